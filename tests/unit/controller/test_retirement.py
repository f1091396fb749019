"""Brokers that go: no new replicas (cordon), no replicas (decommission), no registration (forget)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from minilog.errors import (
    InvalidArgument,
    MinilogError,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import admin_pb2
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


# -- decommission


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


# -- forget


def test_settings_of_a_forgotten_broker_go_with_it(cluster: ControllerCluster) -> None:
    ticket = cluster.ticket()
    request = admin_pb2.AlterBrokerSettingsRequest(broker_id=5, set_configs={"replica.lag.time.max.ms": "5000"})
    cluster.controller.alter_broker_settings(ticket, request)
    assert error_of(cluster.answer(ticket, admin_pb2.AlterBrokerSettingsResponse)) is None
    cluster.fence(5)
    cluster.image.take_changes()
    assert alter(cluster, 5, FORGET) is None
    assert cluster.image.broker_settings == {}, "nobody could delete it: no broker has that number"
    assert cluster.image.take_changes().broker_settings


def test_a_change_that_is_not_known_is_refused(cluster: ControllerCluster) -> None:
    assert "has no change" in refused(cluster, 4, admin_pb2.BROKER_CHANGE_NONE)
