"""Who is in sync, how that is asked for, and what ends a proposal. docs/spec/replication.md § In-sync replicas."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from minilog.errors import IneligibleReplica
from minilog_broker.replication.leader.isr_state import IsrState
from minilog_broker.replication.partition_state import BrokerIncarnation
from minilog_broker.replication.replica_effects import ProposalAnswer
from minilog_broker.replication.rules import in_sync
from minilog_broker.replication.rules.in_sync import FollowerView, LogEndMarks
from tests.rules import proves
from tests.unit.replication.cluster import KEY, ReplicaCluster, quick_settings

FAST = quick_settings(replica_lag_time_max_ms=200.0)
LIFE = BrokerIncarnation(2, 50, "host", 9092, fenced=False, stopping=False)


def isr(cluster: ReplicaCluster) -> list[int]:
    return sorted(cluster.controller.partitions[KEY].in_sync_replicas)


def leading(cluster: ReplicaCluster, broker_id: int = 1) -> IsrState:
    leader = cluster[broker_id].leader()
    assert leader is not None
    return leader.in_sync


def replay_all(cluster: ReplicaCluster, broker_id: int = 1) -> None:
    while cluster[broker_id].images_replayed < len(cluster.controller.images):
        cluster.replay(cluster[broker_id])


# -- caught up


@proves("ISR.1")
def test_last_caught_up_is_the_time_of_the_newest_mark_reached() -> None:
    marks = LogEndMarks(lag_time_ms=320)
    for now_ms, end in ((100, 0), (120, 10), (140, 20)):
        marks.note(now_ms, end)
    assert marks.last_reached(9) == 100
    assert marks.last_reached(10) == 120
    assert marks.last_reached(99) == 140
    assert LogEndMarks(320).last_reached(99) == -math.inf


@proves("ISR.1")
def test_marks_are_a_short_ring() -> None:
    marks = LogEndMarks(lag_time_ms=320)
    for now_ms in range(100_000):
        marks.note(float(now_ms), now_ms)
    assert marks.last_reached(99_000) == -math.inf
    assert marks.last_reached(99_999) >= 99_980


@proves("ISR.1")
def test_a_full_pipe_puts_no_healthy_follower_out() -> None:
    cluster = ReplicaCluster(settings=FAST)
    for _ in range(100):
        cluster.produce(1)
        cluster.advance(5, settle=False)
        for _ in range(30):
            if steps := cluster.steps():
                steps[-1]()
    assert isr(cluster) == [1, 2, 3]


@proves("ISR.2")
def test_too_many_records_behind_on_two_checks_running_puts_out() -> None:
    view = FollowerView(2, accepted=True, durable_end=100)
    assert not in_sync.is_behind_in_records(view, previous_check_end=111, lag_max_records=10)
    assert in_sync.is_behind_in_records(view, previous_check_end=111, lag_max_records=10)
    view.durable_end = 105
    assert not in_sync.is_behind_in_records(view, previous_check_end=111, lag_max_records=10)
    view.durable_end = 100
    assert not in_sync.is_behind_in_records(view, previous_check_end=111, lag_max_records=10)


def test_the_bound_in_records_is_off_by_default() -> None:
    view = FollowerView(2, accepted=True, durable_end=0)
    assert not in_sync.is_behind_in_records(view, previous_check_end=10**9, lag_max_records=None)


# -- joining


@proves("ISR.3")
@pytest.mark.parametrize(
    ("change", "joins"),
    [
        ({}, True),
        ({"durable_end": 6}, False),
        ({"durable_end": None}, False),
        ({"accepted": False}, False),
        ({"broker_epoch": 49}, False),
        ({"wants_in": False}, False),
        ({"counts_from": 3, "partition_epoch": 2}, False),
        ({"counts_from": 3, "partition_epoch": 3}, True),
    ],
)
def test_a_follower_joins_at_the_bounds_of_the_rule(change: dict[str, int], joins: bool) -> None:
    view = FollowerView(2, broker_epoch=50, accepted=True, durable_end=10, wants_in=True)
    for name, value in change.items():
        setattr(view, name, value)
    assert in_sync.may_join(view, LIFE, epoch_start=7, high_watermark=5, now_ms=0.0) is joins


@pytest.mark.parametrize(("durable_end", "joins"), [(88, False), (90, True)])
def test_a_follower_beyond_the_bound_in_records_does_not_join(durable_end: int, joins: bool) -> None:
    view = FollowerView(2, broker_epoch=50, accepted=True, durable_end=durable_end, wants_in=True)
    ends = {"epoch_start": 7, "high_watermark": 5, "previous_check_end": 100, "lag_max_records": 10}
    assert in_sync.may_join(view, LIFE, **ends, now_ms=0.0) is joins


@pytest.mark.parametrize(("caught_up_ms", "joins"), [(99.0, False), (101.0, True)])
def test_a_follower_beyond_the_lag_time_does_not_join(caught_up_ms: float, joins: bool) -> None:
    view = FollowerView(2, broker_epoch=50, accepted=True, durable_end=10, wants_in=True)
    found = in_sync.may_join(
        view, LIFE, epoch_start=7, high_watermark=10, caught_up_ms=caught_up_ms, lag_time_max_ms=400.0, now_ms=500.0
    )
    assert found is joins


@proves("ISR.3")
@pytest.mark.parametrize(
    "life", [None, replace(LIFE, fenced=True), replace(LIFE, stopping=True), replace(LIFE, broker_epoch=51)]
)
def test_a_life_that_is_not_current_fenced_or_stopping_may_not_join(life: BrokerIncarnation | None) -> None:
    view = FollowerView(2, broker_epoch=50, accepted=True, durable_end=10, wants_in=True)
    assert not in_sync.may_join(view, life, epoch_start=0, high_watermark=0, now_ms=0.0)


@proves("ISR.3")
def test_nobody_joins_below_the_high_watermark_or_the_epochs_start() -> None:
    view = FollowerView(2, broker_epoch=50, accepted=True, durable_end=10, wants_in=True)
    assert not in_sync.may_join(view, LIFE, epoch_start=0, high_watermark=11, now_ms=0.0)
    assert not in_sync.may_join(view, LIFE, epoch_start=11, high_watermark=0, now_ms=0.0)


# -- proposals


def lone_joiner() -> ReplicaCluster:
    """3 is caught up and outside the ISR; the proposal to take it in is on its way."""
    cluster = ReplicaCluster(settings=FAST)
    cluster.controller.set_state(KEY, in_sync_replicas=(1, 2))
    cluster.settle(controller=False)
    assert cluster[1].proposals
    return cluster


@proves("ISR.6")
def test_a_proposal_carries_one_snapshot_and_the_leader() -> None:
    cluster = lone_joiner()
    asked = cluster[1].proposals[0]
    state = cluster.controller.partitions[KEY]
    assert (asked.leader_epoch, asked.partition_epoch) == (state.leader_epoch, state.partition_epoch)
    assert asked.members == tuple((b, cluster[b].broker_epoch) for b in (1, 2, 3))


@proves("ISR.6")
def test_a_leaver_stays_in_the_maximal_isr_until_the_commit() -> None:
    cluster = ReplicaCluster(settings=FAST)
    cluster.cut.add((3, 1))
    cluster.break_link(cluster[3].links[1])
    ticket = cluster.produce(1)
    cluster.settle()
    cluster.now_ms += 250
    cluster[1].manager.tick(cluster.now_ms - 249)  # so that no tick is late
    leading(cluster).check_lag(1, cluster.now_ms)
    cluster[1].run()
    assert cluster[1].proposals[0].members == tuple((b, cluster[b].broker_epoch) for b in (1, 2))
    assert leading(cluster).maximal == {1, 2, 3}
    assert ticket not in cluster[1].answers
    cluster.settle()
    assert cluster[1].answers[ticket].error is None


@proves("ISR.6")
def test_a_leader_has_one_proposal_in_flight() -> None:
    cluster = ReplicaCluster(settings=FAST)
    cluster.controller.set_state(KEY, in_sync_replicas=(1,))
    cluster.settle(controller=False)
    assert len(cluster[1].proposals) == 1
    leading(cluster).propose_joiners(0, 0, cluster.now_ms)
    cluster[1].run()
    assert len(cluster[1].proposals) == 1
    cluster.settle()
    assert isr(cluster) == [1, 2, 3], "the second joiner's turn is after the first's"


@proves("ISR.7")
def test_an_ineligible_answer_that_is_not_committed_takes_nobody_back() -> None:
    cluster = lone_joiner()
    refusal = IneligibleReplica("by a controller that is deposed and does not know it, or to an older proposal")
    cluster[1].manager.proposal_answered(KEY, ProposalAnswer(refusal), cluster.now_ms)
    assert leading(cluster).maximal == {1, 2, 3}


@proves("ISR.9")
def test_repeated_metadata_of_the_same_epoch_resets_nothing() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    before = {b: replace(view) for b, view in leading(cluster).views.items()}
    cluster.controller.commit(KEY)
    cluster.controller.set_state(KEY, in_sync_replicas=(1, 2, 3))
    replay_all(cluster)
    assert leading(cluster).views == before


@proves("ISR.9")
def test_a_replica_removed_and_added_again_starts_unknown() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    cluster.controller.set_state(KEY, replicas=(1, 2), in_sync_replicas=(1, 2))
    replay_all(cluster)
    cluster.controller.set_state(KEY, replicas=(1, 2, 3))
    replay_all(cluster)
    view = leading(cluster).views[3]
    assert (view.durable_end, view.accepted) == (None, False)
    cluster.settle()
    cluster.advance(500)
    assert isr(cluster) == [1, 2, 3], "and gets in by a new position and its own log"


def test_a_new_leader_does_not_take_in_a_follower_below_its_epochs_start() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    cluster.cut.update({(3, 2), (1, 2)})
    cluster[3].crash()  # ... and 3 lost nothing but its place
    cluster.controller.fence(3)
    cluster.settle()
    cluster.controller.move(KEY, 2)
    cluster.settle()
    leader = cluster[2].leader()
    assert leader is not None
    assert (leader.log.high_watermark, leader.epoch_start) == (0, 1)
    life = replace(LIFE, broker_id=3, broker_epoch=200)
    view = FollowerView(3, broker_epoch=200, accepted=True, durable_end=0, wants_in=True)
    joins = in_sync.may_join(view, life, epoch_start=leader.epoch_start, high_watermark=0, now_ms=0.0)
    assert not joins
