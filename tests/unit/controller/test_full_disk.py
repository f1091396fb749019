"""A broker whose disk is full, or does not answer: it leads only what nobody else can, and is in no ISR that would wait
for it."""

from __future__ import annotations

import pytest

from minilog.errors import IneligibleReplica
from minilog.partition_key import PartitionKey
from minilog.v1 import peer_pb2
from minilog_broker.replication.partition_state import PartitionState
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster, error_of

pytestmark = proves("DK.15")


def beat(
    cluster: ControllerCluster, broker_id: int, *, full: bool = False, slow: bool = False, stalled: bool = False
) -> None:
    broker = cluster.image.brokers[broker_id]
    ticket = cluster.ticket()
    request = peer_pb2.HeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=broker.broker_epoch,
        metadata_offset=cluster.image.end_offset,
        no_space=full,
        disk_stalled=stalled,
        disk_is_slow=slow or stalled,
    )
    cluster.controller.heartbeat(ticket, request, cluster.now_ms)
    assert error_of(cluster.answer(ticket, peer_pb2.HeartbeatResponse)) is None


def led(replication_factor: int = 3) -> tuple[ControllerCluster, PartitionKey]:
    cluster = ControllerCluster()
    cluster.start_all()
    return cluster, cluster.created(replication_factor=replication_factor)


def state(cluster: ControllerCluster, key: PartitionKey) -> PartitionState:
    return cluster.image.partitions[key]


@pytest.mark.parametrize("disk", [{"full": True}, {"stalled": True}, {"full": True, "stalled": True}], ids=str)
def test_leadership_is_handed_over_and_the_isr_does_not_wait(disk: dict[str, bool]) -> None:
    cluster, key = led()
    leader = state(cluster, key).leader_id
    beat(cluster, leader, **disk)
    after = state(cluster, key)
    assert after.leader_id not in (-1, leader)
    assert leader not in after.in_sync_replicas
    assert len(after.in_sync_replicas) == 2


def test_a_full_follower_leaves_the_isr() -> None:
    cluster, key = led()
    before = state(cluster, key)
    follower = next(each for each in before.replicas if each != before.leader_id)
    beat(cluster, follower, full=True)
    after = state(cluster, key)
    assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
    assert follower not in after.in_sync_replicas


def test_where_nobody_else_can_lead_it_stays_and_reading_goes_on() -> None:
    cluster, key = led(replication_factor=1)
    before = state(cluster, key)
    beat(cluster, before.leader_id, full=True)
    assert state(cluster, key) == before


def test_full_brokers_do_not_hand_over_to_each_other() -> None:
    cluster, key = led()
    for broker_id in state(cluster, key).replicas:
        beat(cluster, broker_id, full=True)
    last = state(cluster, key)
    for _ in range(3):
        for broker_id in last.replicas:
            beat(cluster, broker_id, full=True)
    assert state(cluster, key) == last
    assert last.leader_id != -1


def test_it_joins_no_isr_before_it_has_space() -> None:
    cluster, key = led()
    before = state(cluster, key)
    follower = next(each for each in before.replicas if each != before.leader_id)
    beat(cluster, follower, full=True)
    answer = cluster.propose(key, before.replicas)
    assert isinstance(error_of(answer), IneligibleReplica)
    assert "its disk is full" in str(error_of(answer))
    beat(cluster, follower, full=False)
    assert error_of(cluster.propose(key, before.replicas)) is None
    assert set(state(cluster, key).in_sync_replicas) == set(before.replicas)


def test_it_is_handed_over_as_soon_as_another_can_lead() -> None:
    cluster, key = led()
    before = state(cluster, key)
    for broker_id in before.replicas:
        if broker_id != before.leader_id:
            cluster.fence(broker_id)
    beat(cluster, before.leader_id, full=True)
    assert state(cluster, key).leader_id == before.leader_id
    other = next(each for each in before.replicas if each != before.leader_id)
    cluster.start(other)
    cluster.propose(key, (before.leader_id, other))
    beat(cluster, before.leader_id, full=True)
    assert state(cluster, key).leader_id == other
    assert state(cluster, key).in_sync_replicas == (other,)


def test_a_new_life_or_a_new_controller_asks_again() -> None:
    cluster, key = led()
    follower = next(each for each in state(cluster, key).replicas if each != state(cluster, key).leader_id)
    beat(cluster, follower, full=True)
    cluster.restart(follower)
    assert error_of(cluster.propose(key, state(cluster, key).replicas)) is None
    cluster.fail_over()
    beat(cluster, follower, full=True)
    assert follower not in state(cluster, key).in_sync_replicas


def test_disks_that_hang_together_are_not_handed_over_to_each_other() -> None:
    cluster, key = led()
    before = state(cluster, key)
    for broker_id in before.replicas:
        beat(cluster, broker_id, slow=True)
    for broker_id in before.replicas:
        beat(cluster, broker_id, stalled=True)
    assert state(cluster, key) == before, "whoever comes back first has all that was acknowledged"
    follower = next(each for each in before.replicas if each != before.leader_id)
    beat(cluster, follower)
    beat(cluster, before.leader_id, stalled=True)
    assert state(cluster, key).leader_id == follower


def test_a_disk_that_is_only_slow_keeps_what_it_leads() -> None:
    cluster, key = led()
    before = state(cluster, key)
    beat(cluster, before.leader_id, slow=True)
    assert state(cluster, key) == before
