"""Brokers that go: no new replicas (cordon), no replicas (decommission), no registration (forget)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from minilog.errors import (
    BrokerIdNotRegistered,
    InvalidArgument,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    LevelNotReached,
    MinilogError,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import admin_pb2
from minilog.versions import VersionRange
from minilog_broker.controller.image import Cordon
from minilog_broker.controller.retirement import CHECK_MS, MAX_MOVES
from minilog_broker.controller.snapshot import decode_snapshot, encode_snapshot
from minilog_broker.levels import OPERATIONS_LEVEL
from minilog_broker.storage.snapshot_id import SnapshotId
from tests.rules import proves
from tests.unit.controller.cluster import SESSION_TIMEOUT_MS, ControllerCluster, error_of
from tests.unit.controller.test_reassignment import join, on

pytestmark = proves("MD.51")

CORDON, UNCORDON, DECOMMISSION, FORGET = (
    admin_pb2.BROKER_CHANGE_CORDON,
    admin_pb2.BROKER_CHANGE_UNCORDON,
    admin_pb2.BROKER_CHANGE_DECOMMISSION,
    admin_pb2.BROKER_CHANGE_FORGET,
)


@pytest.fixture
def cluster() -> ControllerCluster:
    """Broker 1 votes."""
    cluster = ControllerCluster()
    cluster.start_all(5)
    cluster.upgrade(OPERATIONS_LEVEL)
    return cluster


def alter(
    cluster: ControllerCluster, broker_id: int, change: admin_pb2.BrokerChange.ValueType, throttle: int = 0
) -> MinilogError | None:
    ticket = cluster.ticket()
    request = admin_pb2.AlterBrokerRequest(broker_id=broker_id, change=change, throttle_bytes_per_second=throttle)
    cluster.controller.alter_broker(ticket, request, cluster.now_ms)
    return error_of(cluster.answer(ticket, admin_pb2.AlterBrokerResponse))


def refused(cluster: ControllerCluster, broker_id: int, change: admin_pb2.BrokerChange.ValueType) -> str:
    """The reason of a refusal that wrote nothing."""
    before = len(cluster.records)
    error = alter(cluster, broker_id, change)
    assert isinstance(error, InvalidArgument), error
    assert len(cluster.records) == before
    return str(error)


def replicas(cluster: ControllerCluster, broker_id: int) -> int:
    return len(cluster.image.replicas_on(broker_id))


def moving(cluster: ControllerCluster, broker_id: int) -> list[PartitionKey]:
    return [state.key for state in cluster.image.replicas_on(broker_id) if broker_id in state.removing_replicas]


def pass_time(cluster: ControllerCluster, *silent: int, for_ms: float = CHECK_MS) -> None:
    """All are heard meanwhile, but for those."""
    for _ in range(int(for_ms // CHECK_MS)):
        for broker_id in list(cluster.image.brokers):
            if broker_id not in silent:
                cluster.heartbeat(broker_id)
        cluster.advance(CHECK_MS)


def finish(cluster: ControllerCluster, keys: Iterable[PartitionKey]) -> None:
    """The leaders take the joiners in."""
    for key in keys:
        join(cluster, key, *cluster.state(key).target_replicas)


# -- cordon


def test_no_new_replica_is_placed_on_a_cordoned_broker(cluster: ControllerCluster) -> None:
    assert alter(cluster, 4, CORDON) is None
    for number in range(10):
        cluster.created(f"t{number}", 5, 3)
    assert replicas(cluster, 4) == 0
    assert alter(cluster, 4, UNCORDON) is None
    cluster.created("more", 10, 3)
    assert replicas(cluster, 4)


def test_what_does_not_fit_beside_cordoned_brokers_is_refused_and_they_are_named(cluster: ControllerCluster) -> None:
    for broker_id in (3, 4, 5):
        alter(cluster, broker_id, CORDON)
    result = cluster.create("t", 1, 3)
    error = error_of(result)
    assert isinstance(error, InvalidReplicationFactor)
    assert "The cordoned brokers are [3, 4, 5]" in str(error)
    result = cluster.create("as-many-as-there-are", 1, None)
    assert error_of(result) is None
    assert set(cluster.state(PartitionKey(result.topic_id, 0)).replicas) == {1, 2}, (
        "the default counts those that take replicas"
    )


def test_an_operator_cannot_place_one_there_either_but_what_it_has_stays(cluster: ControllerCluster) -> None:
    key = on(cluster, 1, 2, 4)
    alter(cluster, 4, CORDON)
    alter(cluster, 5, CORDON)
    assert isinstance(error_of(cluster.reassign(key, (1, 4, 5))), InvalidReplicaAssignment)
    assert error_of(cluster.reassign(key, (4, 2, 1))) is None
    assert cluster.state(key).replicas == (4, 2, 1)


def test_a_cordon_is_of_the_id_and_outlives_lives_controllers_and_snapshots(cluster: ControllerCluster) -> None:
    alter(cluster, 4, CORDON)
    cluster.restart(4)
    cluster.fail_over()
    assert cluster.image.cordons == {4: Cordon()}
    end = SnapshotId(cluster.image.end_offset, 1)
    assert decode_snapshot(encode_snapshot(cluster.image, 1), end).cordons == {4: Cordon()}
    before = len(cluster.records)
    assert alter(cluster, 4, CORDON) is None
    assert len(cluster.records) == before, "twice is once"


@pytest.mark.parametrize("change", [CORDON, UNCORDON, DECOMMISSION, FORGET])
def test_a_broker_that_is_not_registered_is_refused(
    cluster: ControllerCluster, change: admin_pb2.BrokerChange.ValueType
) -> None:
    assert isinstance(alter(cluster, 9, change), BrokerIdNotRegistered)


@pytest.mark.parametrize("change", [CORDON, UNCORDON, DECOMMISSION, FORGET])
def test_below_its_level_nothing_of_it_is_written(change: admin_pb2.BrokerChange.ValueType) -> None:
    cluster = ControllerCluster(levels=VersionRange(1, OPERATIONS_LEVEL))
    cluster.start_all(3)
    cluster.upgrade(OPERATIONS_LEVEL - 1)
    before = len(cluster.records)
    assert isinstance(alter(cluster, 3, change), LevelNotReached)
    assert len(cluster.records) == before


# -- decommission


def test_its_replicas_move_to_others_and_it_is_forgotten_when_it_is_gone(cluster: ControllerCluster) -> None:
    keys = [on(cluster, 4, 2, 3), on(cluster, 1, 4), on(cluster, 4)]
    assert alter(cluster, 4, DECOMMISSION, throttle=7) is None
    assert moving(cluster, 4) == sorted(keys)
    assert all(cluster.state(key).throttle_bytes_per_second == 7 for key in keys)
    finish(cluster, keys)
    assert replicas(cluster, 4) == 0
    assert [len(cluster.state(key).replicas) for key in keys] == [3, 2, 1]
    pass_time(cluster)
    assert 4 in cluster.image.brokers, "it runs"
    cluster.fence(4)
    pass_time(cluster, 4, for_ms=SESSION_TIMEOUT_MS + 2 * CHECK_MS)
    assert 4 not in cluster.image.brokers
    assert 4 not in cluster.image.cordons


def test_at_most_so_many_partitions_move_at_once(cluster: ControllerCluster) -> None:
    alter(cluster, 5, CORDON)
    cluster.created("large", MAX_MOVES * 2 + 5, 4)
    alter(cluster, 5, UNCORDON)
    assert replicas(cluster, 4) == MAX_MOVES * 2 + 5
    alter(cluster, 4, DECOMMISSION)
    assert len(moving(cluster, 4)) == MAX_MOVES
    pass_time(cluster, for_ms=3 * CHECK_MS)
    assert len(moving(cluster, 4)) == MAX_MOVES
    finish(cluster, moving(cluster, 4)[:3])
    pass_time(cluster)
    assert len(moving(cluster, 4)) == MAX_MOVES
    while moving(cluster, 4):
        finish(cluster, moving(cluster, 4))
        pass_time(cluster)
    assert replicas(cluster, 4) == 0


def test_a_controller_that_takes_over_goes_on(cluster: ControllerCluster) -> None:
    alter(cluster, 5, CORDON)
    cluster.created("large", MAX_MOVES + 5, 4)
    alter(cluster, 5, UNCORDON)
    alter(cluster, 4, DECOMMISSION)
    cluster.fail_over()
    pass_time(cluster)
    finish(cluster, moving(cluster, 4))
    pass_time(cluster)
    finish(cluster, moving(cluster, 4))
    assert replicas(cluster, 4) == 0


def test_replicas_go_where_those_of_a_new_partition_would() -> None:
    cluster = ControllerCluster()
    for broker_id, rack in enumerate("aabbb", 1):
        cluster.start(broker_id, domain=rack)
    cluster.upgrade(OPERATIONS_LEVEL)
    key = on(cluster, 3, 1)
    on(cluster, 4)
    alter(cluster, 3, DECOMMISSION)
    assert cluster.state(key).target_replicas == (5, 1), "the other rack, and the emptiest of it"


def test_one_that_is_on_its_way_to_a_broker_that_died_goes_to_another(cluster: ControllerCluster) -> None:
    key = on(cluster, 4, 1)
    alter(cluster, 4, DECOMMISSION)
    (joining,) = cluster.state(key).adding_replicas
    cluster.fence(joining)
    pass_time(cluster, joining)
    target = cluster.state(key).target_replicas
    assert joining not in target
    join(cluster, key, *target)
    assert cluster.state(key).replicas == target
    assert replicas(cluster, 4) == 0


def test_a_broker_that_dies_in_the_middle_is_emptied_from_the_other_copies(cluster: ControllerCluster) -> None:
    shared, alone = on(cluster, 4, 2), on(cluster, 4)
    alter(cluster, 4, DECOMMISSION)
    cluster.fence(4)
    finish(cluster, [shared])
    pass_time(cluster, 4, for_ms=SESSION_TIMEOUT_MS * 2)
    assert moving(cluster, 4) == [alone], "nobody else has it: it waits for its only copy"
    assert 4 in cluster.image.brokers, "it has a replica: it is not forgotten"
    cluster.restart(4)
    finish(cluster, [alone])
    assert replicas(cluster, 4) == 0


def test_uncordon_ends_it_but_for_what_has_begun(cluster: ControllerCluster) -> None:
    alter(cluster, 5, CORDON)
    cluster.created("large", MAX_MOVES + 5, 4)
    alter(cluster, 5, UNCORDON)
    alter(cluster, 4, DECOMMISSION)
    alter(cluster, 4, UNCORDON)
    finish(cluster, moving(cluster, 4))
    pass_time(cluster, for_ms=3 * CHECK_MS)
    assert replicas(cluster, 4) == 5
    assert not moving(cluster, 4)


def test_twice_is_once_and_another_throttle_is_of_the_moves_to_come(cluster: ControllerCluster) -> None:
    key = on(cluster, 4, 2)
    alter(cluster, 4, DECOMMISSION, throttle=7)
    before = len(cluster.records)
    assert alter(cluster, 4, DECOMMISSION, throttle=7) is None
    assert len(cluster.records) == before
    assert alter(cluster, 4, DECOMMISSION, throttle=9) is None
    assert cluster.image.cordons[4] == Cordon(True, 9)
    assert cluster.state(key).throttle_bytes_per_second == 7


@pytest.mark.parametrize(("of_the_operator", "expected"), [(3, 3), (0, 7)])
def test_the_throttle_of_a_move_by_an_operator_stays(
    cluster: ControllerCluster, of_the_operator: int, expected: int
) -> None:
    """The decommission replaced it, and the operator's move went on at another rate."""
    key = on(cluster, 4, 2)
    assert error_of(cluster.reassign(key, (4, 1), of_the_operator)) is None
    assert cluster.state(key).throttle_bytes_per_second == of_the_operator
    assert alter(cluster, 4, DECOMMISSION, throttle=7) is None
    assert 4 not in cluster.state(key).target_replicas
    assert cluster.state(key).throttle_bytes_per_second == expected


def test_a_voter_is_refused_with_the_way_to_go(cluster: ControllerCluster) -> None:
    for change in (DECOMMISSION, FORGET):
        assert "minilog cluster remove-voter 1" in refused(cluster, 1, change)


def test_a_second_one_is_refused_while_the_first_goes(cluster: ControllerCluster) -> None:
    alter(cluster, 4, DECOMMISSION)
    assert "broker 4 is being decommissioned" in refused(cluster, 5, DECOMMISSION)


def test_replicas_that_would_not_fit_are_refused_and_named(cluster: ControllerCluster) -> None:
    on(cluster, 1, 2, 3, 4)
    alter(cluster, 5, CORDON)
    reason = refused(cluster, 4, DECOMMISSION)
    assert "partition 0 of t0 has the replicas [1, 2, 3, 4]" in reason
    assert "Start another broker, or uncordon one" in reason


def test_the_last_copy_of_a_broker_that_does_not_run_is_refused(cluster: ControllerCluster) -> None:
    on(cluster, 4)
    cluster.fence(4)
    assert "only it has all acknowledged records of partition 0 of t0. Start it first" in refused(
        cluster, 4, DECOMMISSION
    )


# -- forget


def test_one_that_is_gone_and_has_nothing_is_registered_no_more(cluster: ControllerCluster) -> None:
    cluster.fence(5)
    epoch = cluster.epoch(5)
    assert alter(cluster, 5, FORGET) is None
    assert 5 not in cluster.image.brokers
    assert isinstance(alter(cluster, 5, FORGET), BrokerIdNotRegistered)
    assert isinstance(error_of(cluster.heartbeat(5, epoch=epoch)), BrokerIdNotRegistered), "it is told so"
    cluster.start(5)
    assert cluster.epoch(5) > epoch, "another broker from now on"


def test_what_was_set_for_one_that_is_forgotten_goes_with_it(cluster: ControllerCluster) -> None:
    ticket = cluster.ticket()
    request = admin_pb2.AlterBrokerSettingsRequest(broker_id=5, set_configs={"replica.lag.time.max.ms": "5000"})
    cluster.controller.alter_broker_settings(ticket, request)
    assert error_of(cluster.answer(ticket, admin_pb2.AlterBrokerSettingsResponse)) is None
    cluster.fence(5)
    cluster.image.take_changes()
    assert alter(cluster, 5, FORGET) is None
    assert cluster.image.broker_settings == {}, "nobody could delete it: no broker has that number"
    assert cluster.image.take_changes().broker_settings


def test_one_that_runs_votes_or_has_replicas_is_not_forgotten(cluster: ControllerCluster) -> None:
    assert "it runs" in refused(cluster, 5, FORGET)
    on(cluster, 4, 1)
    cluster.fence(4)
    assert "it has replicas of 1 partitions, such as 0 of t0" in refused(cluster, 4, FORGET)
    cluster.fence(1)
    assert "it is a voter" in refused(cluster, 1, FORGET)


def test_a_change_that_is_not_known_is_refused(cluster: ControllerCluster) -> None:
    assert "has no change" in refused(cluster, 4, admin_pb2.BROKER_CHANGE_NONE)


def test_one_that_starts_is_not_forgotten_by_a_controller_that_never_heard_it(cluster: ControllerCluster) -> None:
    alter(cluster, 4, DECOMMISSION)
    cluster.fence(4)
    cluster.register(4)
    cluster.fail_over()
    pass_time(cluster, 4)
    assert 4 in cluster.image.brokers, "it has registered, and is replaying"
    assert "it runs or starts" in refused(cluster, 4, FORGET)
    pass_time(cluster, 4, for_ms=SESSION_TIMEOUT_MS + CHECK_MS)
    assert 4 not in cluster.image.brokers, "it was silent for a session of this controller's term"


def test_one_that_registered_and_is_not_unfenced_yet_is_not_forgotten_by_command(cluster: ControllerCluster) -> None:
    cluster.fence(5)
    cluster.register(5)
    assert "it runs or starts" in refused(cluster, 5, FORGET)
    pass_time(cluster, 5, for_ms=SESSION_TIMEOUT_MS + CHECK_MS)
    assert alter(cluster, 5, FORGET) is None
