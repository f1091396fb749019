"""The redrive of dead letters to the offsets that their records have (docs/spec/queues.md § Redrive)."""

from __future__ import annotations

import pytest

from minilog.errors import (
    CoordinatorLoadInProgress,
    InvalidRecordState,
    LevelNotReached,
    MinilogError,
    NonEmptyQueue,
    ResourceNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.coordinators.queues.ranges import RangeState
from minilog_broker.coordinators.queues.records import RedrivenTo
from tests.unit.coordinators.cluster import ORDERS, PAYMENTS, error_of
from tests.unit.coordinators.queueing import P0, REJECT, Q, Queueing, delivery_counts, offsets
from tests.unit.coordinators.test_dead_letters import TOPIC, carry

LETTERS = PartitionKey(PAYMENTS, 0)  # the dead-letter topic
MADE_READY, DONE = queue_pb2.REDRIVE_OUTCOME_MADE_READY, queue_pb2.REDRIVE_OUTCOME_DONE_BEFORE
UNSETTLED, GONE = queue_pb2.REDRIVE_OUTCOME_UNSETTLED, queue_pb2.REDRIVE_OUTCOME_GONE
NO_ROOM, NOT_BEGUN = queue_pb2.REDRIVE_OUTCOME_NO_ROOM, queue_pb2.REDRIVE_OUTCOME_NOT_BEGUN
NOT_YET = queue_pb2.REDRIVE_OUTCOME_NOT_YET


class Redriving(Queueing):
    """A queue whose first records have died. Letter n, of the record at n, is at offset 10 + n of the dead-letter
    topic."""

    def __init__(self, dead: int = 3, end: int = 5) -> None:
        super().__init__()
        self.ids["dead"] = PAYMENTS
        self.has(end)
        assert self.alter(**{TOPIC: "dead"}) is None
        leased = self.lease(dead)
        self.settle(leased, 0, dead - 1, REJECT)
        carried = carry(self, dead)
        assert self.settle_in_transaction([self.settlement(carried, 0, dead - 1)]) is None
        assert self.mark(committed=True) is None

    def redrive(
        self, *records: int, first: int = 0, end: int | None = None, key: PartitionKey = P0, queue: str = Q
    ) -> queue_pb2.RedriveResponse:
        """Redrive the letters of these records, and of no others in between."""
        ticket = self.ticket()
        letters = [
            queue_pb2.Letter(letter_offset=10 + record, partition_id=key.to_wire(), offset=record) for record in records
        ]
        request = queue_pb2.RedriveRequest(
            queue=queue,
            letters_partition_id=LETTERS.to_wire(),
            first_offset=first,
            next_offset=11 + max(records) if end is None else end,
            letters=letters,
        )
        self.coordinator.redrive(ticket, request, self.now)
        self.collect()
        self.commit()
        return self.answer(ticket, queue_pb2.RedriveResponse)

    def rewrite(self, first: int, end: int, *, producer_id: int = 9, sequence: int = 0) -> MinilogError | None:
        """A transaction writes the letters of a part anew."""
        request = queue_pb2.SettleRequest(queue=Q)
        request.transaction.transactional_id = f"{Q}-redrive"
        request.transaction.producer_id, request.transaction.sequence = producer_id, sequence
        part = queue_pb2.RewrittenLetters(letters_partition_id=LETTERS.to_wire(), first_offset=first, next_offset=end)
        request.rewritten.CopyFrom(part)
        ticket = self.ticket()
        self.coordinator.settle(ticket, request, self.now)
        self.collect()
        self.register_producers()
        self.commit()
        return error_of(self.answer(ticket, queue_pb2.SettleResponse))

    def place(self) -> RedrivenTo | None:
        self.commit()
        value = self.coordinator.committed_state().get(QueueKey(Q, letters=LETTERS))
        assert value is None or isinstance(value, RedrivenTo)
        return value


def test_the_records_are_ready_again_as_if_they_were_never_delivered() -> None:
    world = Redriving()
    assert world.state().settled_to == 3
    answer = world.redrive(0, 2)
    assert (list(answer.outcomes), answer.next_offset) == ([MADE_READY, MADE_READY], 13)
    assert [(part.first, part.state, part.delivery_count) for part in world.state().ranges] == [
        (0, RangeState.READY, 0),
        (2, RangeState.READY, 0),
    ]
    leased = world.lease(10)
    assert offsets(leased) == [0, 2, 3, 4]
    assert delivery_counts(leased) == [1, 1]


def test_neighbours_are_one_range() -> None:
    world = Redriving()
    world.redrive(0, 1, 2)
    assert [(part.first, part.last) for part in world.state().ranges] == [(0, 2)]


def test_a_worker_that_waits_gets_them_at_once() -> None:
    world = Redriving(end=3)
    ticket = world.ask_to_lease()
    world.redrive(1)
    assert offsets(world.lease_answer(ticket)) == [1]


def test_a_repeated_redrive_makes_nothing_ready() -> None:
    world = Redriving()
    world.redrive(0, 1)
    leased = world.lease(2)
    assert world.settle(leased, 0, 1) is None
    answer = world.redrive(0, 1, 2)
    assert list(answer.outcomes) == [DONE, DONE, MADE_READY]
    assert offsets(world.lease(1)) == [2]


def test_the_next_coordinator_knows_what_was_redriven() -> None:
    world = Redriving()
    world.redrive(0, 1)
    world.begin()
    assert world.place() == RedrivenTo(12)
    assert list(world.redrive(0, 1).outcomes) == [DONE, DONE]


def test_offsets_and_place_are_one_decision() -> None:
    world = Redriving()
    before = len(world.batches)
    world.redrive(0)
    assert len(world.batches) == before + 1


def test_a_record_that_dies_again_has_a_second_letter_and_is_redriven_again() -> None:
    world = Redriving()
    world.redrive(0)
    world.settle(world.lease(1), 0, 0, REJECT)
    carried = carry(world, 1)
    assert world.settle_in_transaction([world.settlement(carried, 0, 0)], producer_id=8) is None
    world.mark(committed=True, producer_id=8)
    request = queue_pb2.RedriveRequest(queue=Q, letters_partition_id=LETTERS.to_wire(), first_offset=11, next_offset=21)
    request.letters.add(letter_offset=20, partition_id=P0.to_wire(), offset=0)
    world.coordinator.redrive(ticket := world.ticket(), request, world.now)
    world.collect()
    world.commit()
    assert list(world.answer(ticket, queue_pb2.RedriveResponse).outcomes) == [MADE_READY]


def test_a_record_that_is_not_settled_is_left_as_it_is() -> None:
    """A letter may name it that nobody has carried. It is delivered anyway."""
    world = Redriving()
    world.lease(1)
    assert list(world.redrive(3, 4).outcomes) == [UNSETTLED, UNSETTLED]
    assert [part.first for part in world.state().ranges] == [3]


def test_two_letters_of_one_record_make_it_ready_once() -> None:
    world = Redriving()
    request = queue_pb2.RedriveRequest(queue=Q, letters_partition_id=LETTERS.to_wire(), next_offset=20)
    for letter_offset in (10, 11):
        request.letters.add(letter_offset=letter_offset, partition_id=P0.to_wire(), offset=1)
    world.coordinator.redrive(ticket := world.ticket(), request, world.now)
    world.collect()
    world.commit()
    assert list(world.answer(ticket, queue_pb2.RedriveResponse).outcomes) == [MADE_READY, UNSETTLED]


def test_a_record_below_the_log_start_stops_the_call_before_its_letter() -> None:
    world = Redriving()
    world.ask_to_lease()
    world.has(5, start=1)
    answer = world.redrive(0, 1)
    assert (list(answer.outcomes), answer.next_offset) == ([GONE], 10)
    assert list(world.redrive(1, first=10).outcomes) == [MADE_READY]


def test_a_new_coordinator_redrives_nothing_before_the_leader_has_reported_its_log_start() -> None:
    """Once: retention had the record, the coordinator did not know, and the place went over the only copy."""
    world = Redriving()
    world.fail_over()
    assert isinstance(error_of(world.redrive(0)), CoordinatorLoadInProgress)
    assert world.place() is None
    world.has(5, start=1)
    world.ask_to_lease()
    world.report()
    assert list(world.redrive(0).outcomes) == [GONE]


def test_a_topic_that_is_gone_stops_the_call_before_its_letter() -> None:
    world = Redriving()
    answer = world.redrive(0, key=PartitionKey(bytes(15) + b"\x23", 0))
    assert (list(answer.outcomes), answer.next_offset) == ([GONE], 10)


def test_a_partition_without_room_stops_the_call() -> None:
    """So the state of a partition stays within its bound, whatever is redriven."""
    world = Redriving()
    assert world.alter(locks="2") is None
    answer = world.redrive(0, 1, 2)
    assert (list(answer.outcomes), answer.next_offset) == ([MADE_READY, MADE_READY, NO_ROOM], 12)
    world.settle(world.lease(2), 0, 1)
    assert list(world.redrive(2, first=12).outcomes) == [MADE_READY]


def test_a_partition_that_the_queue_has_not_begun_stops_the_call() -> None:
    world = Redriving()
    assert list(world.redrive(0, key=LETTERS).outcomes) == [NOT_BEGUN]


def test_a_record_whose_carrier_has_not_ended_at_the_queue_stops_the_call() -> None:
    """Its letter is readable where the marker came first. The record would be settled behind the redrive, for good."""
    world = Redriving(end=4)
    world.settle(world.lease(1), 3, 3, REJECT)
    assert world.settle_in_transaction([world.settlement(carry(world, 1), 3, 3)], producer_id=8) is None
    assert list(world.redrive(0, 3).outcomes) == [MADE_READY, NOT_YET]
    world.mark(committed=True, producer_id=8)
    assert list(world.redrive(3, first=13).outcomes) == [MADE_READY]


def test_letters_are_not_passed_over() -> None:
    world = Redriving()
    assert isinstance(error_of(world.redrive(2, first=12)), InvalidRecordState)
    assert world.place() is None


def test_what_holds_no_letter_is_passed() -> None:
    world = Redriving()
    assert world.redrive(end=40).next_offset == 40
    assert world.place() == RedrivenTo(40)


def test_letters_of_a_topic_or_a_partition_that_is_not_there_are_refused() -> None:
    world = Redriving()
    world.counts[PAYMENTS] = 0
    assert isinstance(error_of(world.redrive(0)), UnknownTopicOrPartition)
    del world.counts[PAYMENTS]
    assert isinstance(error_of(world.redrive(0)), UnknownTopicId)


def test_letters_of_another_topic_than_the_dead_letter_topic_are_refused() -> None:
    """So who may not write to that one cannot name letters."""
    world = Redriving()
    world.ids["dead"] = ORDERS
    assert isinstance(error_of(world.redrive(0)), InvalidRecordState)
    assert isinstance(world.rewrite(0, 11), InvalidRecordState)


def test_a_queue_that_is_not_there_is_refused() -> None:
    assert isinstance(error_of(Redriving().redrive(0, queue="other")), ResourceNotFound)


def test_below_level_7_it_is_refused() -> None:
    world = Redriving()
    world.allows_queues = False
    assert isinstance(error_of(world.redrive(0)), LevelNotReached)


def test_a_deleted_queue_leaves_no_place() -> None:
    world = Redriving()
    world.redrive(0)
    world.coordinator.delete(world.ticket(), queue_pb2.DeleteQueueRequest(queue=Q))
    world.collect()
    assert world.place() is None


def test_a_deleted_dead_letter_topic_leaves_no_place() -> None:
    world = Redriving()
    world.redrive(0)
    del world.counts[PAYMENTS]
    world.coordinator.drop_deleted_topics()
    world.collect()
    assert world.place() is None


def test_the_description_has_the_place() -> None:
    world = Redriving()
    world.redrive(0)
    world.rewrite(11, 13)
    [place] = world.describe().redriven
    assert (PartitionKey.of(place.letters_partition_id), place.next_offset, place.is_settling) == (LETTERS, 11, True)


class TestLettersThatATransactionWritesAnew:
    def test_after_its_commit_they_are_redriven(self) -> None:
        world = Redriving()
        assert world.rewrite(0, 12) is None
        assert world.place() == RedrivenTo(0, 12, 9)
        assert world.mark(committed=True, producer_id=9) is None
        assert world.place() == RedrivenTo(12)

    def test_after_its_abort_they_are_not(self) -> None:
        world = Redriving()
        world.redrive(0)
        world.rewrite(11, 13)
        assert world.mark(committed=False, producer_id=9) is None
        assert world.place() == RedrivenTo(11)
        assert list(world.redrive(1, 2).outcomes) == [MADE_READY, MADE_READY]

    def test_only_from_the_place_on(self) -> None:
        """Another redrive has done them meanwhile, or has not come so far."""
        world = Redriving()
        world.redrive(0)
        assert isinstance(world.rewrite(0, 12), InvalidRecordState)
        assert isinstance(world.rewrite(12, 13), InvalidRecordState)

    def test_in_several_requests(self) -> None:
        world = Redriving()
        assert world.rewrite(0, 11) is None
        assert world.rewrite(11, 13, sequence=1) is None
        assert world.mark(committed=True, producer_id=9, last_sequence=1) is None
        assert world.place() == RedrivenTo(13)

    def test_until_its_end_nobody_else_redrives_them(self) -> None:
        world = Redriving()
        world.rewrite(0, 12)
        assert isinstance(error_of(world.redrive(0)), UnstableOffsetCommit)
        assert isinstance(world.rewrite(0, 12, producer_id=10), UnstableOffsetCommit)

    def test_the_next_coordinator_waits_for_its_end(self) -> None:
        world = Redriving()
        world.rewrite(0, 12)
        world.begin()
        assert world.mark(committed=True, producer_id=9) is None
        assert world.place() == RedrivenTo(12)

    def test_until_its_end_the_queue_is_not_deleted(self) -> None:
        """Its marker finds what it is for."""
        world = Redriving()
        world.rewrite(0, 12)
        world.coordinator.delete(ticket := world.ticket(), queue_pb2.DeleteQueueRequest(queue=Q))
        world.collect()
        world.commit()
        assert isinstance(error_of(world.answer(ticket, queue_pb2.DeleteQueueResponse)), NonEmptyQueue)


@pytest.mark.parametrize("records", [1, 2])
def test_the_bound_of_settled_records_goes_back_to_the_first_that_is_ready_again(records: int) -> None:
    world = Redriving()
    world.redrive(*range(3 - records, 3))
    assert world.state().settled_to == 3 - records
