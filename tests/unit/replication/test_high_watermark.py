"""How far a log is committed, and what waits for it. docs/spec/replication.md § High watermark."""

from __future__ import annotations

import pytest

from minilog.v1 import common_pb2, metadata_pb2
from minilog_broker.replication.high_watermark import next_high_watermark
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.replication.settings import ReplicationSettings
from tests.unit.replication.world import KEY, World, batch


def high_watermark(
    current: int, own: int, members: list[int | None], joiners: tuple[int, ...] = (), isr: int = 3
) -> int:
    return next_high_watermark(
        current, own_durable_end=own, member_ends=members, joiner_ends=joiners, in_sync_count=isr, min_in_sync=2
    )


def latest(world: World, broker_id: int) -> metadata_pb2.ListOffsetsResult:
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    return world[broker_id].manager.list_offsets(entry, world.now_ms)


def test_it_is_the_smallest_durable_end_the_leaders_own_included() -> None:
    assert high_watermark(0, 10, [7, 9]) == 7
    assert high_watermark(0, 5, [7, 9]) == 5


def test_a_member_not_heard_holds_it() -> None:
    assert high_watermark(3, 10, [None, 9]) == 3


def test_it_never_goes_back() -> None:
    assert high_watermark(8, 10, [7, 9]) == 8


def test_it_waits_for_a_joiner() -> None:
    assert high_watermark(3, 10, [9], (6,)) == 6


def test_it_stays_while_the_isr_is_below_min() -> None:
    assert high_watermark(3, 10, [], isr=1) == 3


def led_log(world: World, broker_id: int) -> ReplicaLog:
    leader = world[broker_id].leader()
    assert leader is not None
    return leader.log


def test_what_is_appended_and_not_synced_does_not_count() -> None:
    world = World()
    ticket = world.produce(1)
    while world[1].disk:
        world[1].work()
    world[1].dirty.clear()  # the leader's own sync does not come
    world.settle()
    assert world[2].ends()[1:] == (1, 1)
    assert led_log(world, 1).high_watermark == 0
    assert ticket not in world[1].answers


def test_under_flush_policy_os_the_log_end_is_the_durable_end() -> None:
    world = World(flush_on_append=False)
    ticket = world.produce(1)
    world[1].work()
    assert led_log(world, 1).durable_end == 1
    world.settle()
    assert world[1].answers[ticket].error is None


def test_a_member_not_heard_in_this_life_holds_it() -> None:
    world = World()
    world.produce(1)
    world.settle()
    world.controller.register(3)  # a new life of 3 registers; the old process is still heard
    state = world.controller.partitions[KEY]
    world.controller.set_state(KEY, in_sync_replicas=(1, 2, 3))
    assert state.leader_id == 1
    world.settle()
    ticket = world.produce(1)
    world.settle()
    assert ticket not in world[1].answers
    assert led_log(world, 1).high_watermark == 1


def test_a_new_leader_holds_it_until_every_member_was_heard_in_its_epoch() -> None:
    world = World()
    world.produce(1)
    world.settle()
    world.cut.add((3, 2))
    world.controller.move(KEY, 2)
    world.settle()
    ticket = world.produce(2)
    world.settle()
    assert led_log(world, 2).high_watermark <= 1
    assert ticket not in world[2].answers
    world.cut.clear()
    world.advance(1_000)
    assert world[2].answers[ticket].error is None


def test_it_moves_only_with_min_members_and_then_catches_up() -> None:
    world = World(brokers=2)
    world[2].crash()
    world.controller.fence(2)
    world.settle()
    ticket = world.produce(1, acks=1)
    world.settle()
    assert world[1].answers[ticket].error is None
    assert world[1].ends() == (0, 1, 1), "stored, and not visible"
    world[2].restart()
    world.advance(1_000)
    assert world[1].ends() == (1, 1, 1)


def test_min_is_at_most_the_replication_factor() -> None:
    world = World(brokers=1, min_in_sync=2)
    ticket = world.produce(1)
    world.settle()
    assert world[1].answers[ticket].error is None


def test_a_follower_clamps_it_to_its_own_durable_end() -> None:
    world = World()
    world.produce(1)
    for _ in range(3):
        world.settle()
        world.advance(10)
    assert [world[b].ends() for b in (2, 3)] == [(1, 1, 1), (1, 1, 1)]
    world[1].crash()
    for broker in (2, 3):
        high_watermark, durable_end, _ = world[broker].ends()
        assert high_watermark <= durable_end


def test_at_start_it_is_the_checkpoint_clamped() -> None:
    world = World()
    world.produce(1)
    world.settle()
    world.advance(20)
    world[2].logs[KEY].write_checkpoint()
    world[2].crash()
    world[2].restart()
    high_watermark, durable_end, _ = world[2].ends()
    assert high_watermark == 1 <= durable_end


def test_latest_is_not_available_before_it_reached_the_epochs_start() -> None:
    world = World()
    world.produce(1)
    world.settle()
    world.cut.update({(3, 2), (1, 2)})
    world.controller.move(KEY, 2)
    world.settle()
    assert world[2].ends() == (0, 1, 1), "the new leader was not told yet"
    assert latest(world, 2).error.code == common_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE
    world.cut.clear()
    world.advance(1_000)
    assert latest(world, 2).error.code == common_pb2.ERROR_CODE_NONE
    assert latest(world, 2).high_watermark == 1


def test_the_four_ends_of_an_answer_are_one_snapshot() -> None:
    world = World()
    world.produce(1, batch(5))
    world.settle()
    world.produce(1, batch(2))
    while world[1].disk:
        world[1].work()
    found = latest(world, 1)
    assert (found.log_start_offset, found.last_stable_offset, found.high_watermark, found.log_end_offset) == (
        0,
        5,
        5,
        7,
    )


def test_only_the_leader_answers_latest() -> None:
    world = World()
    assert latest(world, 2).error.code == common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


def test_an_offset_for_a_timestamp_is_below_it() -> None:
    world = World()
    world.produce(1)
    while world[1].disk:
        world[1].work()
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1, timestamp_us=0)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    assert not world[1].manager.list_offsets(entry, world.now_ms).HasField("offset")
    world.settle()
    assert world[1].manager.list_offsets(entry, world.now_ms).offset == 0


def test_sizes_are_told_up_to_it() -> None:
    world = World()
    world.produce(1)
    while world[1].disk:
        world[1].work()
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1, sizes_bytes=[1, 2**62])
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    assert [each.size_bytes for each in world[1].manager.list_offsets(entry, world.now_ms).sizes] == [0, 0]
    world.settle()
    told = world[1].manager.list_offsets(entry, world.now_ms).sizes
    assert [(each.offset, each.size_bytes) for each in told] == [(1, len(batch()))] * 2


def test_more_sizes_than_a_question_may_have_are_refused() -> None:
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1, sizes_bytes=[1] * 65)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    answer = World()[1].manager.list_offsets(entry, 0.0)
    assert answer.error.code == common_pb2.ERROR_CODE_INVALID_REQUEST
    assert "65 sizes are asked for, at most 64 may be" in answer.error.message


@pytest.mark.parametrize("lag_ms", [200.0])
def test_a_joiner_is_waited_for_under_load(lag_ms: float) -> None:
    world = World(settings=ReplicationSettings(replica_lag_time_max_ms=lag_ms))
    world[3].crash()
    world.controller.fence(3)
    world.settle()
    for _ in range(5):
        world.produce(1)
    world.settle()
    world[3].restart()
    for _ in range(60):  # there is never a moment without something on its way
        world.produce(1)
        for _ in range(12):
            if steps := world.steps():
                steps[-1]()
        world.advance(10, settle=False)
    world.advance(300)
    assert 3 in world.controller.partitions[KEY].in_sync_replicas


def hung_joiner() -> World:
    """3 is outside the ISR and could join; its process is stopped, and its session still open."""
    world = World(settings=ReplicationSettings(replica_lag_time_max_ms=200.0))
    world.controller.set_state(KEY, in_sync_replicas=(1, 2))
    world.settle(controller=False)
    world.lose_proposal(world[1])
    world[1].proposal_answers.clear()  # the controller does not answer: 3 stays a joiner
    leader = world[1].leader()
    assert leader is not None
    leader.in_sync.proposal = None
    world[3].alive = False
    return world


def test_a_joiner_that_stops_is_not_waited_for_longer_than_the_lag_time() -> None:
    world = hung_joiner()
    ticket = world.produce(1)
    world.settle()
    assert ticket not in world[1].answers, "it was caught up a moment ago"
    world.advance(600)
    assert world[1].answers[ticket].error is None


def test_a_joiner_whose_session_closes_is_not_waited_for_at_all() -> None:
    world = hung_joiner()
    ticket = world.produce(1)
    world.settle()
    assert ticket not in world[1].answers
    world.break_link(world[3].links[1])
    world.settle()
    assert world[1].answers[ticket].error is None
