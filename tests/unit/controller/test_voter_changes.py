"""Voters are added, removed and moved by command: what the entry says, and what is refused, with its reason."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidArgument, LevelNotReached, MinilogError, VotersNotReady
from minilog.v1 import admin_pb2, records_pb2
from minilog_broker.levels import OPERATIONS_LEVEL
from minilog_broker.quorum.cluster import level_record
from tests.unit.controller.cluster import SESSION_TIMEOUT_MS, ControllerCluster, directory_id, error_of

ADD, REMOVE, MOVE = admin_pb2.VOTER_CHANGE_ADD, admin_pb2.VOTER_CHANGE_REMOVE, admin_pb2.VOTER_CHANGE_MOVE
EVERYTHING = 1 << 40


def cluster_of(*voters: int, brokers: int = 5) -> ControllerCluster:
    cluster = ControllerCluster(voters=voters)
    cluster.append_by_another(level_record(OPERATIONS_LEVEL))
    cluster.start_all(brokers)
    cluster.quorum.copies = dict.fromkeys(range(1, brokers + 1), EVERYTHING)
    return cluster


def alter(
    cluster: ControllerCluster, broker_id: int, change: admin_pb2.VoterChange.ValueType
) -> admin_pb2.AlterVoterResponse:
    ticket = cluster.ticket()
    cluster.controller.alter_voter(ticket, admin_pb2.AlterVoterRequest(broker_id=broker_id, change=change))
    return cluster.answer(ticket, admin_pb2.AlterVoterResponse)


def ids(cluster: ControllerCluster) -> list[int]:
    return [voter.broker_id for voter in cluster.image.voters]


def test_a_voter_becomes_three_five_and_three() -> None:
    cluster = cluster_of(1)
    for broker_id in (3, 2, 5, 4):
        assert alter(cluster, broker_id, ADD).changed
    assert ids(cluster) == [1, 2, 3, 4, 5]
    for broker_id in (1, 4):
        answer = alter(cluster, broker_id, REMOVE)
        assert answer.changed
    assert list(answer.voter_ids) == ids(cluster) == [2, 3, 5]
    assert cluster.image.voters[0].directory_id == directory_id(2)
    assert (cluster.image.voters[0].host, cluster.image.voters[0].port) == cluster.image.brokers[2].peer_address


def test_the_first_change_records_the_addresses_that_the_brokers_are_registered_with() -> None:
    cluster = cluster_of(1)
    first = cluster.image.voters[0]
    assert (first.host, first.port) == ("", 0)
    assert alter(cluster, 1, MOVE).changed
    assert [(voter.host, voter.port) for voter in cluster.image.voters] == [cluster.image.brokers[1].peer_address]
    assert not alter(cluster, 1, MOVE).changed


def test_a_command_given_twice_changes_once() -> None:
    cluster = cluster_of(1)
    assert alter(cluster, 2, ADD).changed
    assert not alter(cluster, 2, ADD).changed
    assert alter(cluster, 2, REMOVE).changed
    assert not alter(cluster, 2, REMOVE).changed


@pytest.mark.parametrize(
    ("broker_id", "change", "error", "words"),
    [
        (9, ADD, InvalidArgument, "broker 9 is not running"),
        (9, REMOVE, InvalidArgument, "has never registered"),
        (4, MOVE, InvalidArgument, "the voters are [1, 2, 3]"),
        (1, admin_pb2.VOTER_CHANGE_NONE, InvalidArgument, "is not known"),
    ],
)
def test_impossible_changes_are_refused(
    broker_id: int, change: admin_pb2.VoterChange.ValueType, error: type[MinilogError], words: str
) -> None:
    cluster = cluster_of(1, 2, 3)
    before = len(cluster.records)
    refusal = error_of(alter(cluster, broker_id, change))
    assert isinstance(refusal, error)
    assert words in str(refusal)
    assert len(cluster.records) == before


def test_a_sixth_voter_and_the_removal_of_the_last_one_are_refused() -> None:
    assert "it is the only voter" in str(error_of(alter(cluster_of(1), 1, REMOVE)))
    refusal = error_of(alter(cluster_of(1, 2, 3, 4, 5, brokers=6), 6, ADD))
    assert isinstance(refusal, InvalidArgument)
    assert "there are 5 voters" in str(refusal)


def test_a_broker_that_has_not_fetched_the_metadata_log_waits() -> None:
    cluster = cluster_of(1)
    for _ in range(1_100):
        cluster.append_by_another(records_pb2.MetadataRecord(cluster_level=records_pb2.ClusterLevelRecord(level=5)))
    cluster.heartbeat(2)
    for ends in ({}, {2: 3}):
        cluster.quorum.copies = ends
        refusal = error_of(alter(cluster, 2, ADD))
        assert isinstance(refusal, VotersNotReady)
        assert f"up to offset {ends.get(2, 0)}" in str(refusal)
    cluster.quorum.copies = {2: len(cluster.records) - 10}
    assert alter(cluster, 2, ADD).changed


def test_without_a_majority_of_the_voters_after_it_nothing_changes() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.quorum.silent = {3}
    refusal = error_of(alter(cluster, 2, REMOVE))
    assert isinstance(refusal, VotersNotReady)
    assert "of the voters [1, 3] no majority is heard" in str(refusal)
    assert alter(cluster, 3, REMOVE).changed, "1 and 2 are heard"
    cluster.quorum.silent = {2}
    assert ids(cluster) == [1, 2]
    assert alter(cluster, 4, ADD).changed, "1 and 4 are two of three"


def test_voters_change_one_at_a_time() -> None:
    cluster = cluster_of(1, 2, 3)
    for broker_id in (4, 5):
        request = admin_pb2.AlterVoterRequest(broker_id=broker_id, change=ADD)
        cluster.controller.alter_voter(broker_id, request)
    cluster.commit()
    first, second = (error_of(cluster.answer(each, admin_pb2.AlterVoterResponse)) for each in (4, 5))
    assert first is None
    assert isinstance(second, VotersNotReady)
    assert "one at a time" in str(second)
    assert alter(cluster, 5, ADD).changed


def test_a_lost_disk_is_a_matter_of_replace_voter() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.fence(2)
    cluster.advance(SESSION_TIMEOUT_MS * 1.1)
    cluster.start(2, disk=7)
    for change in (ADD, MOVE):
        assert "minilog cluster replace-voter 2" in str(error_of(alter(cluster, 2, change)))
    ticket = cluster.ticket()
    cluster.controller.replace_voter(ticket, admin_pb2.ReplaceVoterRequest(broker_id=2))
    assert error_of(cluster.answer(ticket, admin_pb2.ReplaceVoterResponse)) is None
    assert cluster.image.voters[1].directory_id == directory_id(2, 7)
    assert cluster.records[-1].WhichOneof("record") == "voters"


def test_below_its_level_nothing_changes() -> None:
    cluster = ControllerCluster(voters=(1,))
    cluster.append_by_another(level_record(OPERATIONS_LEVEL - 1))
    cluster.start_all(2)
    refusal = error_of(alter(cluster, 2, ADD))
    assert isinstance(refusal, LevelNotReached)
    assert "minilog cluster upgrade" in str(refusal)
