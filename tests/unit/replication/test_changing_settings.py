"""min.insync.replicas and flush.policy change while records are written: from which moment on which value counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend
from minilog_broker.replication.leader import LeaderPartition
from tests.unit.replication.world import KEY, World


def alone(world: World) -> None:
    """The ISR is the leader, 1, alone, with a record of its own; the others are fenced, and eligible below min."""
    for broker_id in (2, 3):
        world.controller.fence(broker_id)
    world.settle()
    world.produce(1, acks=1)
    while world[1].disk or world[1].dirty:
        world[1].work() if world[1].disk else world[1].flush()


def high_watermark(world: World, broker_id: int) -> int:
    return world[broker_id].ends()[0]


def test_lowered_the_high_watermark_goes_on_with_the_batch_that_says_so() -> None:
    world = World()
    alone(world)
    assert high_watermark(world, 1) == 0
    world.controller.alter(replace(world.config, min_in_sync_replicas=1))
    world.settle()
    assert high_watermark(world, 1) == 1


def test_a_deposed_leader_that_sees_both_at_once_does_not_commit_alone_under_the_lower_value() -> None:
    """It was deposed, an eligible one leads, and then min was lowered: its ISR is older than the value."""
    world = World()
    alone(world)
    world.controller.move(KEY, 2)
    world.controller.alter(replace(world.config, min_in_sync_replicas=1))
    world.replay_slice(world[1], 2)
    assert high_watermark(world, 1) == 0
    assert world[1].leader() is None


def test_raised_what_waits_is_unknown_at_once_and_what_comes_is_refused() -> None:
    world = World(min_in_sync=1)
    world.controller.fence(3)
    world.settle()
    parked = world.produce(1)
    world[1].work()
    world.controller.alter(replace(world.config, min_in_sync_replicas=3))
    world.replay(world[1])
    assert isinstance(world[1].answers[parked].error, NotEnoughReplicasAfterAppend)
    refused = world.produce(1)
    assert isinstance(world[1].answers[refused].error, NotEnoughReplicas)
    world.controller.change_life(3)  # not fenced any more
    world.advance(1_000)
    accepted = world.produce(1)
    world.settle()
    assert world[1].answers[accepted].error is None, "3 has joined: it is not refused for ever"


# -- flush.policy


def under(world: World, *, flush_on_append: bool) -> None:
    world.controller.alter(replace(world.config, flush_on_append=flush_on_append))


def test_under_fsync_a_follower_that_does_not_know_it_yet_is_not_counted() -> None:
    world = World(flush_on_append=False)
    under(world, flush_on_append=True)
    for broker_id in (1, 3):
        world.replay(world[broker_id])
        world[broker_id].work()
    ticket = world.produce(1)
    slow = world[2]
    replayed, slow.images_replayed = slow.images_replayed, len(world.controller.images)  # 2 hears nothing of it yet
    world.settle()
    assert slow.ends()[1:] == (1, 1), "under os it counts as durable there"
    assert high_watermark(world, 1) == 0
    assert ticket not in world[1].answers
    slow.images_replayed = replayed
    world.settle()
    assert world[1].answers[ticket].error is None


def durable_end(leader: LeaderPartition, follower_id: int) -> int | None:
    return leader.in_sync.views[follower_id].durable_end


def test_under_fsync_what_was_told_before_counts_no_more() -> None:
    """3 holds the high watermark back; 2 had said 1 under os, and loses it with its power: nothing may rest on that."""
    world = World(flush_on_append=False)
    world.cut.add((3, 1))
    for link in [link for link in world.links() if link.follower_id == 3]:
        world.break_link(link)
    world.produce(1)
    world.settle()
    leader = world[1].leader()
    assert leader is not None
    assert durable_end(leader, 2) == 1
    under(world, flush_on_append=True)
    world.replay(world[1])
    world[1].work()
    assert durable_end(leader, 2) is None
    world.settle()
    assert durable_end(leader, 2) == 1, "2 has synced it, and says so again"


@pytest.mark.parametrize("first", [1, 2])
def test_to_os_and_back_writing_goes_on_whoever_hears_of_it_first(first: int) -> None:
    world = World()
    for flush_on_append in (False, True, False):
        under(world, flush_on_append=flush_on_append)
        world.replay(world[first])
        ticket = world.produce(1)
        world.settle()
        assert world[1].answers[ticket].error is None
    assert high_watermark(world, 1) == 3


def test_what_a_full_disk_dropped_is_asked_of_it_again() -> None:
    world = World()
    world.produce(1)
    world[1].files.full = True
    under(world, flush_on_append=False)
    world.replay(world[1])
    world[1].work()  # the append fails, and the disk thread drops what was asked behind it
    world[1].disk.popleft()
    world[1].files.full = False
    world.settle()
    assert not world[1].logs[KEY].settings.flush_on_append
    leader = world[1].leader()
    assert leader is not None
    assert not leader.log.flush_on_append


def test_to_os_what_a_follower_told_that_heard_of_it_before_its_leader_counts_when_that_hears_of_it() -> None:
    """Seed 600691: nothing is written, so it says nothing more; it stayed out of the ISR for ever."""
    world = World()
    world.controller.fence(3)
    world.cut.add((3, 1))
    for link in [link for link in world.links() if link.follower_id == 3]:
        world.break_link(link)
    world.settle()
    world.controller.change_life(3)  # not fenced any more: it is to join
    world.settle()
    under(world, flush_on_append=False)
    world.cut.clear()
    late, world[1].images_replayed = world[1].images_replayed, len(world.controller.images)
    world.advance(1_000)
    assert 3 not in world.controller.partitions[KEY].in_sync_replicas, "under fsync it does not count"
    world[1].images_replayed = late
    world.advance(1_000)
    assert 3 in world.controller.partitions[KEY].in_sync_replicas


def test_to_fsync_and_back_before_a_follower_hears_of_either_what_it_told_counts_again() -> None:
    """It sees what both come to, which is nothing: so it says nothing."""
    world = World(flush_on_append=False)
    world.produce(1)
    world.settle()
    leader = world[1].leader()
    assert leader is not None
    for flush_on_append in (True, False):
        under(world, flush_on_append=flush_on_append)
        world.replay(world[1])
        world[1].work()
    for follower_id in (2, 3):
        world.replay_slice(world[follower_id], 2)
    world.settle()
    assert [durable_end(leader, follower_id) for follower_id in (2, 3)] == [1, 1]
