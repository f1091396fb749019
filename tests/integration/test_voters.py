"""The voters of a running cluster change by command, while records are written and brokers die: 1, 3, 5, 3 voters."""

from __future__ import annotations

import json
import pathlib
import time

import msgspec
import pytest

from minilog import Admin
from minilog.errors import InvalidArgument, VotersNotReady
from minilog_broker.quorum.quorum_effects import VoteState
from minilog_broker.server.disk.vote_file import FILE_NAME
from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.files import OsFileSystem
from minilog_tools.cli.app import run
from tests.cluster import free_ports, running_cluster
from tests.integration.moving import Writing, admin, create, wait_in_sync, wait_until
from tests.rules import proves

pytestmark = proves("MD.15")


@pytest.mark.long
def test_voters_become_three_five_and_three_while_records_are_written_and_brokers_die(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_cluster(tmp_path, brokers=5, voters=1) as cluster:
        create(cluster, "kept")
        with Writing(cluster, "kept") as writer, admin(cluster) as client:
            for broker_id in (2, 3, 4, 5):
                assert run(["cluster", "add-voter", str(broker_id), "-b", cluster.bootstrap_servers]) == 0
                assert f"broker {broker_id} votes" in capsys.readouterr().out
            assert [voter.id for voter in client.describe_cluster().voters] == [1, 2, 3, 4, 5]
            writer.wait_for_more(100)
            cluster.kill(1)  # the only one of the beginning
            wait_until(lambda: client.describe_cluster().controller not in (None, 1))
            writer.wait_for_more(100)
            assert client.remove_voter(1).voters == [2, 3, 4, 5]
            controller = client.describe_cluster().controller
            assert controller is not None
            assert run(["cluster", "remove-voter", str(controller), "--json", "-b", cluster.bootstrap_servers]) == 0
            left = json.loads(capsys.readouterr().out)["voters"]
            assert left == sorted({2, 3, 4, 5} - {controller})
            wait_until(lambda: client.describe_cluster().controller in left)
            cluster.start(1)  # its --voters and its log know no voter but itself
            cluster.wait_running()
            wait_in_sync(cluster, "kept")
            assert {voter.id: voter.moved for voter in client.describe_cluster().voters} == dict.fromkeys(left, False)
            cluster.kill(left[0])
            writer.wait_for_more(100)
            wait_until(lambda: client.describe_cluster().controller not in (None, left[0]))
            writer.wait_for_more(100)
            time.sleep(1.0)  # half of quorum.fetch.timeout.ms: until then the dead voter counts as heard
            impatient = Admin({**cluster.client, "request.timeout.ms": 3_000})
            with impatient, pytest.raises(VotersNotReady, match="no majority is heard"):
                impatient.remove_voter(left[1])
            with pytest.raises(InvalidArgument, match="remove-voter"):
                client.decommission_broker(left[2])
            cluster.start(left[0])
            cluster.wait_running()
            wait_in_sync(cluster, "kept")


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_a_voter_that_moved_is_named_by_health_and_found_once_its_address_is_recorded(tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path, voters=3) as cluster:
        create(cluster, "kept")
        with Writing(cluster, "kept") as writer, admin(cluster) as client:
            assert client.move_voter(2).changed, "the first change records the addresses of all"
            cluster.stop(2)
            given = cluster.voter_list
            (cluster.ports[2],) = free_ports(1)
            cluster.start(2)
            cluster.wait_running()
            assert cluster.voter_list != given, "it is started with its own new address, the others were not"
            wait_until(lambda: [voter.id for voter in client.describe_cluster().voters if voter.moved] == [2])
            assert "VOTER_MOVED" in {problem.code for problem in client.cluster_health().problems}
            assert client.move_voter(2).changed
            assert not client.move_voter(2).changed
            assert not any(voter.moved for voter in client.describe_cluster().voters)
            wait_in_sync(cluster, "kept")
            cluster.kill(1)  # with the voter at its new address there is a majority
            writer.wait_for_more(100)
            cluster.start(1)
            cluster.wait_running()
            wait_in_sync(cluster, "kept")


@pytest.mark.long
def test_a_voter_that_moved_while_it_led_and_is_an_epoch_ahead_is_not_locked_out(tmp_path: pathlib.Path) -> None:
    """It was killed when it had stood for election alone. Nobody reaches it to hear of that epoch."""
    with running_cluster(tmp_path, voters=3) as cluster:
        create(cluster, "kept")
        with admin(cluster) as client:
            assert client.move_voter(2).changed, "the first change records the addresses of all"
            moved = client.describe_cluster().controller
            assert moved is not None
            cluster.kill(moved)
            wait_until(lambda: client.describe_cluster().controller not in (None, moved))
            files, vote_file = OsFileSystem(), f"{cluster.data_directory(moved)}/{FILE_NAME}"
            newest = max(_vote(files, f"{cluster.data_directory(each)}/{FILE_NAME}").epoch for each in (1, 2, 3))
            write_durable_file(files, vote_file, msgspec.json.encode(VoteState(newest + 1, moved)))
            (cluster.ports[moved],) = free_ports(1)
            cluster.start(moved)
            cluster.wait_running()
            assert "VOTER_MOVED" in {problem.code for problem in client.cluster_health().problems}
            assert client.move_voter(moved).changed
            wait_in_sync(cluster, "kept")
            other = next(each for each in (1, 2, 3) if each not in (moved, client.describe_cluster().controller))
            cluster.kill(other)
            assert not client.move_voter(moved).changed
            create(cluster, "with-its-vote", replication_factor=2)


def _vote(files: OsFileSystem, path: str) -> VoteState:
    content = read_durable_file(files, path)
    assert content is not None
    return msgspec.json.decode(content, type=VoteState)
