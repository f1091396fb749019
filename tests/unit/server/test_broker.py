"""One broker's start, as far as it goes without a cluster."""

from __future__ import annotations

import asyncio
import pathlib
import socket

import pytest

from minilog_broker.failure import CommandFailed
from minilog_broker.server.broker import Broker
from minilog_broker.server.broker_options import BrokerOptions, VoterAddress
from minilog_broker.server.system_runtime import SYSTEM_BROKER_RUNTIME
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.files import OsFileSystem

CLEAN_EPOCH = 7


def test_a_start_that_finds_its_port_taken_leaves_the_clean_stop_before_it_as_it_was(tmp_path: pathlib.Path) -> None:
    """Else the next start would be an unclean one, after which a sole copy may count as damaged (brokers.py)."""
    directory = DataDirectory.open(OsFileSystem(), str(tmp_path), 1, None)
    directory.write_clean_stop(CLEAN_EPOCH)
    directory.close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        voters = (VoterAddress(1, "127.0.0.1", port),)
        options = BrokerOptions(broker_id=1, listen=("127.0.0.1", port), data_dir=tmp_path, voters=voters)
        with pytest.raises(CommandFailed, match="cannot listen"):
            asyncio.run(Broker(options, SYSTEM_BROKER_RUNTIME).run())
    again = DataDirectory.open(OsFileSystem(), str(tmp_path), 1, None)
    assert again.clean_stop_epoch == CLEAN_EPOCH
    again.close()
