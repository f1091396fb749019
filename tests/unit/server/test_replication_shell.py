"""What the shell of the replicas tells their core: a session ends with its stream."""

from __future__ import annotations

import asyncio
import pathlib

from minilog.v1 import data_pb2
from minilog_broker.server.runtime.timer import now_ms
from tests.unit.server.coordinating import CoordinatingBroker

LATER_MS = 1_000.0  # a sign of life is due by then


def test_nothing_is_said_on_a_session_whose_stream_is_gone(tmp_path: pathlib.Path) -> None:
    async def scenario() -> None:
        broker = CoordinatingBroker(tmp_path)
        try:
            replicas = broker.replicas
            gone, stays = replicas.sessions.open(), replicas.sessions.open()
            for session_id in (gone, stays):
                replicas.manager.open_consumer_session(session_id, data_pb2.FetchRequest(), now_ms())
            replicas.close_session(gone)
            assert replicas.manager.next_message(gone, now_ms() + LATER_MS) is None
            assert replicas.manager.next_message(stays, now_ms() + LATER_MS) is not None
        finally:
            await broker.stop()

    asyncio.run(scenario())
