"""Who is in sync, how that is asked for, and what ends a proposal. docs/spec/replication.md § In-sync replicas."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from minilog.errors import IneligibleReplica
from minilog_broker.replication import in_sync
from minilog_broker.replication.effects import ProposalAnswer, ProposeInSyncReplicas
from minilog_broker.replication.in_sync import FollowerView, Marks
from minilog_broker.replication.leader_in_sync import LeaderInSync
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.replication.state import BrokerLife
from tests.unit.replication.world import KEY, World

FAST = ReplicationSettings(replica_lag_time_max_ms=200.0)
LIFE = BrokerLife(2, 50, "host", 9092, fenced=False, stopping=False)


def isr(world: World) -> list[int]:
    return sorted(world.controller.partitions[KEY].in_sync_replicas)


def leading(world: World, broker_id: int = 1) -> LeaderInSync:
    leader = world[broker_id].leader()
    assert leader is not None
    return leader.in_sync


def replay_all(world: World, broker_id: int = 1) -> None:
    while world[broker_id].images_replayed < len(world.controller.images):
        world.replay(world[broker_id])


# -- caught up


def test_last_caught_up_is_the_time_of_the_newest_mark_reached() -> None:
    marks = Marks(lag_time_ms=320)
    for now_ms, end in ((100, 0), (120, 10), (140, 20)):
        marks.note(now_ms, end)
    assert marks.last_reached(9) == 100
    assert marks.last_reached(10) == 120
    assert marks.last_reached(99) == 140
    assert Marks(320).last_reached(99) == -math.inf


def test_marks_are_a_short_ring() -> None:
    marks = Marks(lag_time_ms=320)
    for now_ms in range(100_000):
        marks.note(float(now_ms), now_ms)
    assert marks.last_reached(99_000) == -math.inf
    assert marks.last_reached(99_999) >= 99_980


def test_a_follower_at_the_log_end_is_caught_up_now_however_long_it_is_idle() -> None:
    world = World(settings=FAST)
    world.produce(1)
    world.settle()
    world.advance(10_000)
    world.produce(1)  # the next append must not put anybody out
    world[1].work()
    world.advance(100)
    assert isr(world) == [1, 2, 3]
    assert not any(isinstance(effect, ProposeInSyncReplicas) for effect in world[1].history)


def test_a_full_pipe_puts_no_healthy_follower_out() -> None:
    world = World(settings=FAST)
    for _ in range(100):
        world.produce(1)
        world.advance(5, settle=False)
        for _ in range(30):
            if steps := world.steps():
                steps[-1]()
    assert isr(world) == [1, 2, 3]


def test_a_follower_late_by_more_than_the_lag_time_is_put_out() -> None:
    world = World(settings=FAST)
    world.cut.add((3, 1))
    world.break_link(world[3].links[1])
    ticket = world.produce(1)
    world.advance(150)
    assert isr(world) == [1, 2, 3]
    world.advance(200)
    assert isr(world) == [1, 2]
    assert world[1].answers[ticket].error is None


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
def test_who_may_join(change: dict[str, int], joins: bool) -> None:
    view = FollowerView(2, broker_epoch=50, accepted=True, durable_end=10, wants_in=True)
    for name, value in change.items():
        setattr(view, name, value)
    assert in_sync.may_join(view, LIFE, epoch_start=7, high_watermark=5, now_ms=0.0) is joins


@pytest.mark.parametrize(
    "life", [None, replace(LIFE, fenced=True), replace(LIFE, stopping=True), replace(LIFE, broker_epoch=51)]
)
def test_a_life_that_is_not_current_fenced_or_stopping_may_not_join(life: BrokerLife | None) -> None:
    view = FollowerView(2, broker_epoch=50, accepted=True, durable_end=10, wants_in=True)
    assert not in_sync.may_join(view, life, epoch_start=0, high_watermark=0, now_ms=0.0)


def test_nobody_joins_below_the_high_watermark_or_the_epochs_start() -> None:
    view = FollowerView(2, broker_epoch=50, accepted=True, durable_end=10, wants_in=True)
    assert not in_sync.may_join(view, LIFE, epoch_start=0, high_watermark=11, now_ms=0.0)
    assert not in_sync.may_join(view, LIFE, epoch_start=11, high_watermark=0, now_ms=0.0)


def test_a_restarted_replica_gets_back_in() -> None:
    world = World(settings=FAST)
    world.produce(1)
    world.settle()
    world[3].crash()
    world.controller.fence(3)
    world.settle()
    world.produce(1)
    world.settle()
    world[3].restart()
    world.advance(300)
    assert isr(world) == [1, 2, 3]
    assert world[3].ends() == (2, 2, 2)


# -- proposals


def lone_joiner() -> World:
    """3 is caught up and outside the ISR; the proposal to take it in is on its way."""
    world = World(settings=FAST)
    world.controller.set_state(KEY, in_sync_replicas=(1, 2))
    world.settle(controller=False)
    assert world[1].proposals
    return world


def test_a_proposal_carries_one_snapshot_and_the_leader() -> None:
    world = lone_joiner()
    asked = world[1].proposals[0]
    state = world.controller.partitions[KEY]
    assert (asked.leader_epoch, asked.partition_epoch) == (state.leader_epoch, state.partition_epoch)
    assert asked.members == tuple((b, world[b].broker_epoch) for b in (1, 2, 3))


def test_a_joiner_is_in_the_maximal_isr_from_the_proposal_on() -> None:
    world = lone_joiner()
    assert leading(world).committed == {1, 2}
    assert leading(world).maximal == {1, 2, 3}


def test_a_leaver_stays_in_the_maximal_isr_until_the_commit() -> None:
    world = World(settings=FAST)
    world.cut.add((3, 1))
    world.break_link(world[3].links[1])
    ticket = world.produce(1)
    world.settle()
    world.now_ms += 250
    world[1].manager.tick(world.now_ms - 249)  # so that no tick is late
    leading(world).check_lag(1, world.now_ms)
    world[1].run()
    assert world[1].proposals[0].members == tuple((b, world[b].broker_epoch) for b in (1, 2))
    assert leading(world).maximal == {1, 2, 3}
    assert ticket not in world[1].answers
    world.settle()
    assert world[1].answers[ticket].error is None


def test_one_proposal_is_in_flight() -> None:
    world = World(settings=FAST)
    world.controller.set_state(KEY, in_sync_replicas=(1,))
    world.settle(controller=False)
    assert len(world[1].proposals) == 1
    leading(world).propose_joiners(0, world.now_ms)
    world[1].run()
    assert len(world[1].proposals) == 1
    world.settle()
    assert isr(world) == [1, 2, 3], "the second joiner's turn is after the first's"


def test_refused_because_the_joiner_is_ineligible_the_committed_isr_counts_when_that_is_committed() -> None:
    world = lone_joiner()
    world.controller.lives[3] = replace(world.controller.lives[3], fenced=True)  # the leader does not know yet
    world.decide_proposal(world[1], lost=True)
    assert leading(world).maximal == {1, 2, 3}
    replay_all(world)
    assert leading(world).maximal == {1, 2}
    assert leading(world).proposal is None
    ticket = world.produce(1)
    world.cut.add((3, 1))
    world.advance(1_500)
    assert world[1].answers[ticket].error is None
    assert leading(world).maximal == {1, 2}


def test_a_refused_joiner_is_proposed_again_later() -> None:
    world = lone_joiner()
    world.controller.lives[3] = replace(world.controller.lives[3], fenced=True)
    world.decide_proposal(world[1])
    world.answer_proposal(world[1])
    world.controller.change_life(3)  # not fenced any more
    world.settle()
    assert isr(world) == [1, 2]
    world.advance(1_500)
    assert isr(world) == [1, 2, 3]


def test_an_ineligible_answer_that_is_not_committed_takes_nobody_back() -> None:
    world = lone_joiner()
    refusal = IneligibleReplica("by a controller that is deposed and does not know it, or to an older proposal")
    world[1].manager.proposal_answered(KEY, ProposalAnswer(refusal), world.now_ms)
    assert leading(world).maximal == {1, 2, 3}


@pytest.mark.parametrize("after_commit", [False, True])
def test_without_an_answer_the_same_proposal_goes_again(after_commit: bool) -> None:
    world = lone_joiner()
    asked = world[1].proposals[0]
    if after_commit:
        world.decide_proposal(world[1], lost=True)
    else:
        world.lose_proposal(world[1])
    world.answer_proposal(world[1])
    assert leading(world).maximal == {1, 2, 3}, "it may have been committed"
    world.now_ms += 101
    world.tick()
    assert world[1].proposals[0] == asked
    world.settle()
    assert isr(world) == [1, 2, 3]
    assert leading(world).proposal is None


def test_committed_metadata_with_a_higher_partition_epoch_ends_what_is_pending() -> None:
    world = lone_joiner()
    world.controller.set_state(KEY, in_sync_replicas=(1,))
    world.settle(controller=False)
    assert leading(world).committed == {1}
    proposal = leading(world).proposal
    assert proposal is not None  # made anew from the new state
    assert proposal.partition_epoch == world.controller.partitions[KEY].partition_epoch


def test_repeated_metadata_of_the_same_epoch_resets_nothing() -> None:
    world = World()
    world.produce(1)
    world.settle()
    before = {b: replace(view) for b, view in leading(world).views.items()}
    world.controller._commit(KEY)
    replay_all(world)
    assert leading(world).views == before


def test_a_new_leader_gives_everybody_a_full_lag_period() -> None:
    world = World(settings=FAST)
    world.cut.add((3, 2))
    world.controller.move(KEY, 2)
    world.settle()
    world.produce(2)
    world.advance(190)
    assert isr(world) == [1, 2, 3]
    world.advance(200)
    assert isr(world) == [1, 2]


def test_a_replica_removed_and_added_again_starts_unknown() -> None:
    world = World()
    world.produce(1)
    world.settle()
    world.controller.set_state(KEY, replicas=(1, 2), in_sync_replicas=(1, 2))
    replay_all(world)
    world.controller.set_state(KEY, replicas=(1, 2, 3))
    replay_all(world)
    view = leading(world).views[3]
    assert (view.durable_end, view.accepted) == (None, False)
    world.settle()
    world.advance(500)
    assert isr(world) == [1, 2, 3], "and gets in by a new position and its own log"


def test_a_tick_that_comes_late_itself_puts_nobody_out() -> None:
    world = World(settings=FAST)
    world.produce(1)
    world.now_ms += 5_000  # this process stood still
    world.tick()
    world.settle()
    assert isr(world) == [1, 2, 3]
    assert not world[1].refused


def test_a_new_leader_does_not_take_in_a_follower_below_its_epochs_start() -> None:
    world = World()
    world.produce(1)
    world.settle()
    world.cut.update({(3, 2), (1, 2)})
    world[3].crash()  # ... and 3 lost nothing but its place
    world.controller.fence(3)
    world.settle()
    world.controller.move(KEY, 2)
    world.settle()
    leader = world[2].leader()
    assert leader is not None
    assert (leader.log.high_watermark, leader.epoch_start) == (0, 1)
    life = replace(LIFE, broker_id=3, broker_epoch=200)
    view = FollowerView(3, broker_epoch=200, accepted=True, durable_end=0, wants_in=True)
    joins = in_sync.may_join(view, life, epoch_start=leader.epoch_start, high_watermark=0, now_ms=0.0)
    assert not joins


def test_a_late_copy_of_a_refused_proposal_is_refused_too() -> None:
    """Bad history: the leader goes back to {1, 2}, commits without 3, and the first copy then takes 3 in (V5, V10)."""
    world = lone_joiner()
    world.lose_proposal(world[1])  # as far as the leader can tell: it is under way for long
    world.answer_proposal(world[1])
    world.now_ms += 101
    world.tick()
    fence(world, 3)
    world.decide_proposal(world[1])
    world.answer_proposal(world[1])
    replay_all(world)
    assert leading(world).maximal == {1, 2}
    world.cut.add((3, 1))
    for link in world.links():
        if link.follower_id == 3:
            world.break_link(link)
    ticket = world.produce(1)
    world.advance(400)
    assert world[1].answers[ticket].error is None, "3 is not waited for any longer"
    fence(world, 3, fenced=False)
    world.decide_late_proposal(0)
    assert isr(world) == [1, 2], "3 lacks what is committed"


def fence(world: World, broker_id: int, *, fenced: bool = True) -> None:
    """In the controller's image; the brokers hear of it later."""
    world.controller.lives[broker_id] = replace(world.controller.lives[broker_id], fenced=fenced)
