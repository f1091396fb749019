"""What a leader takes in, when it answers, and that unknown is never failed. docs/spec/replication.md § Producing."""

from __future__ import annotations

import pytest

from minilog.errors import (
    CorruptMessage,
    DuplicateSequenceNumber,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    InvalidRequiredAcks,
    MessageTooLarge,
    MinilogError,
    NoSpace,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnknownOutcome,
    UnknownTopicId,
)
from minilog.record_batch.header import decode_header
from minilog_broker.replication.effects import AppendToLog
from minilog_broker.replication.state import PartitionKey
from tests.unit.replication.world import KEY, World, batch


def error_of(world: World, broker_id: int, ticket: int) -> type[MinilogError] | None:
    error = world[broker_id].answers[ticket].error
    return None if error is None else type(error)


def isolated(world: World, *, isr: tuple[int, ...]) -> None:
    """The ISR becomes `isr`, the others are cut off."""
    for broker_id in set(world.brokers) - set(isr):
        world.cut.add((broker_id, 1))
        if 1 in world[broker_id].links:
            world.break_link(world[broker_id].links[1])
        world.controller.fence(broker_id)
    world.settle()


def test_acks_all_is_answered_when_the_high_watermark_covers_it() -> None:
    world = World()
    ticket = world.produce(1, batch(3))
    while world[1].disk:
        world[1].work()
    world[1].flush()
    assert ticket not in world[1].answers
    world.settle()
    answer = world[1].answers[ticket]
    assert (answer.error, answer.base_offset, answer.leader_epoch) == (None, 0, 0)


def test_acks_1_is_answered_at_the_leaders_durable_end() -> None:
    world = World()
    ticket = world.produce(1, acks=1)
    world[1].work()
    assert ticket not in world[1].answers
    world[1].flush()
    assert error_of(world, 1, ticket) is None


def test_acks_0_is_answered_only_where_it_is_refused() -> None:
    """Its producer must hear that somebody else leads: else it would go on for metadata.max.age.ms."""
    world = World()
    tickets = [world.produce(1, acks=0), world.produce(2, acks=0), world.produce(1, b"rubbish", acks=0)]
    world.settle()
    assert [each for each in tickets if any(each in broker.answers for broker in world.brokers.values())] == tickets[1:]
    assert world[1].ends()[2] == 1


def test_below_min_acks_all_is_refused_before_anything_is_written() -> None:
    world = World()
    isolated(world, isr=(1,))
    ticket = world.produce(1)
    assert error_of(world, 1, ticket) is NotEnoughReplicas
    world.settle()
    assert world[1].ends()[2] == 0


def test_below_min_acks_1_is_stored_and_not_visible() -> None:
    world = World()
    isolated(world, isr=(1,))
    ticket = world.produce(1, acks=1)
    world.settle()
    assert error_of(world, 1, ticket) is None
    assert world[1].ends() == (0, 1, 1)


def test_when_the_isr_falls_below_min_after_the_append_the_outcome_is_unknown() -> None:
    world = World()
    world.cut.update({(2, 1), (3, 1)})
    for broker_id in (2, 3):
        world.break_link(world[broker_id].links[1])
    ticket = world.produce(1)
    world.settle()
    world.controller.fence(2)
    world.controller.fence(3)
    world.settle()
    assert error_of(world, 1, ticket) is NotEnoughReplicasAfterAppend
    assert issubclass(NotEnoughReplicasAfterAppend, UnknownOutcome)
    assert world[1].ends()[2] == 1


def test_a_parked_produce_times_out_with_an_unknown_outcome() -> None:
    world = World()
    world.cut.add((3, 1))
    world.break_link(world[3].links[1])
    ticket = world.produce(1, timeout_ms=100)
    world.advance(99)
    assert ticket not in world[1].answers
    world.advance(2)
    assert error_of(world, 1, ticket) is RequestTimedOut
    assert issubclass(RequestTimedOut, UnknownOutcome)


@pytest.mark.parametrize("acks", [-1, 1])
def test_losing_leadership_answers_what_is_parked_with_an_unknown_outcome(acks: int) -> None:
    world = World()
    ticket = world.produce(1, acks=acks)
    world.controller.move(KEY, 2)
    while world[1].images_replayed < len(world.controller.images):
        world.replay(world[1])
    assert error_of(world, 1, ticket) is UnknownOutcome


def test_stopping_answers_what_is_parked_with_an_unknown_outcome() -> None:
    world = World()
    ticket = world.produce(1)
    world[1].manager.stop_leading(world.now_ms)
    world[1].run()
    assert error_of(world, 1, ticket) is UnknownOutcome


def test_only_the_leader_takes_records_and_only_in_its_epoch() -> None:
    world = World()
    assert error_of(world, 2, world.produce(2)) is NotLeaderOrFollower
    world.controller.move(KEY, 1)
    world.settle()
    assert error_of(world, 1, world.produce(1, leader_epoch=0)) is FencedLeaderEpoch
    assert error_of(world, 1, world.produce(1, leader_epoch=2)) is UnknownLeaderEpoch


def test_a_topic_is_known_by_its_id() -> None:
    world = World()
    other = PartitionKey(bytes(16), 0)
    assert error_of(world, 1, world.produce(1, batch(key=other), key=other)) is UnknownTopicId


def test_a_batch_for_another_partition_is_refused() -> None:
    world = World()
    ticket = world.produce(1, batch(key=PartitionKey(KEY.topic_id, 1)))
    assert error_of(world, 1, ticket) is CorruptMessage


def test_what_is_no_batch_too_large_or_has_unknown_acks_is_refused() -> None:
    world = World()
    assert error_of(world, 1, world.produce(1, b"x" * 100)) is CorruptMessage
    assert error_of(world, 1, world.produce(1, b"x" * (9 << 20))) is MessageTooLarge
    assert error_of(world, 1, world.produce(1, acks=2)) is InvalidRequiredAcks
    assert world[1].ends()[2] == 0


def test_the_producers_bytes_are_not_copied() -> None:
    world = World()
    data = batch(size_bytes=1_000)
    world.produce(1, data)
    (appended,) = (effect for effect in world[1].history if isinstance(effect, AppendToLog))
    placed, rest = appended.batches.buffers
    assert isinstance(rest, memoryview)
    assert rest.obj is data
    assert len(placed) + len(rest) == len(data)


# -- idempotence


def sent(world: World, broker_id: int, sequence: int, *, epoch: int = 0, rows: int = 1, acks: int = -1) -> int:
    return world.produce(broker_id, batch(rows, producer=(7, epoch, sequence)), acks=acks)


def test_a_duplicate_is_answered_with_the_offsets_of_the_first() -> None:
    world = World()
    world.produce(1)
    first = sent(world, 1, 0)
    world.settle()
    again = sent(world, 1, 0)
    assert world[1].answers[again].base_offset == world[1].answers[first].base_offset == 1
    assert world[1].ends()[2] == 2


def test_a_duplicate_of_a_batch_still_in_the_queue_is_found() -> None:
    world = World()
    first, again = sent(world, 1, 0), sent(world, 1, 0)
    world.settle()
    assert world[1].answers[first].base_offset == world[1].answers[again].base_offset == 0
    assert world[1].ends()[2] == 1


def test_a_duplicate_waits_for_the_same_condition_as_the_original() -> None:
    world = World()
    world.cut.update({(2, 1), (3, 1)})
    for broker_id in (2, 3):
        world.break_link(world[broker_id].links[1])
    first = sent(world, 1, 0)
    world.settle()
    again = sent(world, 1, 0)
    assert again not in world[1].answers
    world.cut.clear()
    world.advance(500)
    assert error_of(world, 1, first) is error_of(world, 1, again) is None


def test_a_duplicate_below_min_is_unknown_not_unwritten() -> None:
    world = World()
    isolated(world, isr=(1,))
    sent(world, 1, 0, acks=1)
    world.settle()
    assert error_of(world, 1, sent(world, 1, 0)) is NotEnoughReplicasAfterAppend


def test_a_gap_is_out_of_order_against_state_and_queue() -> None:
    world = World()
    sent(world, 1, 0)
    assert error_of(world, 1, sent(world, 1, 2)) is OutOfOrderSequenceNumber
    sent(world, 1, 1)
    world.settle()
    assert error_of(world, 1, sent(world, 1, 3)) is OutOfOrderSequenceNumber
    sent(world, 1, 2)
    world.settle()
    assert world[1].ends()[2] == 3


def test_at_most_five_are_on_their_way_into_the_log() -> None:
    world = World()
    tickets = [sent(world, 1, sequence) for sequence in range(6)]
    assert error_of(world, 1, tickets[5]) is OutOfOrderSequenceNumber
    world.settle()
    assert all(error_of(world, 1, ticket) is None for ticket in tickets[:5])
    assert world[1].ends()[2] == 5


def test_sequences_wrap() -> None:
    world = World()
    world.produce(1, batch(2, producer=(7, 0, 2**31 - 2)))
    after = sent(world, 1, 0)
    world.settle()
    assert error_of(world, 1, after) is None
    assert world[1].ends()[2] == 3


def test_a_new_epoch_starts_at_0_and_fences_the_old_one() -> None:
    world = World()
    sent(world, 1, 0)
    assert error_of(world, 1, sent(world, 1, 3, epoch=1)) is OutOfOrderSequenceNumber
    sent(world, 1, 0, epoch=1)
    world.settle()
    assert error_of(world, 1, sent(world, 1, 1)) is InvalidProducerEpoch


def test_older_than_the_last_five_is_a_duplicate_whose_place_is_not_known() -> None:
    world = World()
    for sequence in range(7):
        sent(world, 1, sequence)
        world.settle()
    assert error_of(world, 1, sent(world, 1, 0)) is DuplicateSequenceNumber


def test_an_unknown_producer_is_accepted_at_any_sequence() -> None:
    world = World()
    ticket = sent(world, 1, 40)
    world.settle()
    assert error_of(world, 1, ticket) is None


def test_the_state_survives_failover() -> None:
    world = World()
    first = sent(world, 1, 0)
    world.settle()
    world[1].crash()
    world.controller.fence(1)
    world.settle()
    again = sent(world, 2, 0)
    gap = sent(world, 2, 2)
    world.settle()
    assert world[2].answers[again].base_offset == world[1].answers[first].base_offset
    assert error_of(world, 2, gap) is OutOfOrderSequenceNumber


def test_the_state_survives_a_restart_and_its_own_snapshot() -> None:
    world = World(brokers=1)
    first = sent(world, 1, 0)
    world.settle()
    world[1].manager.stop_leading(world.now_ms)
    world[1].run()
    world[1].work()
    world[1].crash()
    world[1].restart()
    world.settle()
    again = sent(world, 1, 0)
    world.settle()
    assert world[1].answers[again].base_offset == world[1].answers[first].base_offset == 0


def test_the_state_is_truncated_with_the_log() -> None:
    world = World()
    world.cut.update({(2, 1), (3, 1)})
    for broker_id in (2, 3):
        world.break_link(world[broker_id].links[1])
    sent(world, 1, 0, acks=1)
    world.settle()
    world.controller.move(KEY, 2)
    world.produce(2)
    world.settle()
    world.produce(2, acks=1)
    world.settle()
    world.controller.move(KEY, 1)
    world.settle()
    leader = world[1].leader()
    assert leader is not None
    assert leader.producers.entry(7) is None


def test_a_failed_append_drops_the_batch_and_all_behind_it() -> None:
    world = World()
    world[1].files.full = True
    tickets = [sent(world, 1, 0), sent(world, 1, 1)]
    world.settle()
    assert [error_of(world, 1, ticket) for ticket in tickets] == [NoSpace, NoSpace]
    assert error_of(world, 1, sent(world, 1, 2)) is NoSpace, "refused for a while, nothing is written"
    world[1].files.full = False
    world.advance(1_100)
    again = sent(world, 1, 0)
    world.settle()
    assert world[1].answers[again].base_offset == 0


def test_reading_goes_on_when_the_disk_is_full() -> None:
    world = World()
    world.produce(1)
    world.settle()
    world[1].files.full = True
    world.produce(1)
    world.settle()
    session_id = world.consume(1, 0)
    world.settle()
    assert world.pushed(1, session_id)[0][1]


def test_a_failed_sync_takes_the_replica_offline_and_the_outcome_is_unknown() -> None:
    world = World()
    world[1].files.failing = True
    ticket = world.produce(1)
    world.settle()
    assert error_of(world, 1, ticket) is UnknownOutcome
    assert KEY in world[1].offline
    assert world[1].leader() is None


def test_a_batch_that_was_validated_already_is_not_validated_again_and_its_error_is_the_answer() -> None:
    world = World()
    data = batch()
    manager, now_ms = world[1].manager, world.now_ms
    manager.produce("good", KEY, 0, -1, 100.0, data, now_ms, None, decode_header(data))
    manager.produce("bad", KEY, 0, -1, 100.0, data, now_ms, None, CorruptMessage("as was found before"))
    world.settle()
    assert world[1].answers["good"].error is None
    assert str(world[1].answers["bad"].error) == "as was found before"
    assert world[1].ends() == (1, 1, 1)
