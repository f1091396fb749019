"""Transactions in a partition: registration before the first record, markers, the last stable offset, and reads."""

from __future__ import annotations

import pytest

from minilog.errors import (
    CoordinatorLoadInProgress,
    InvalidArgument,
    InvalidTxnState,
    MinilogError,
    NoSpace,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RequestTimedOut,
    UnknownOutcome,
)
from minilog.record_batch.header import iterate_headers
from minilog.v1 import data_pb2, metadata_pb2
from minilog_broker.replication import registering
from minilog_broker.replication.effects import AppendToLog, EndMarker, RegisterPartition
from minilog_broker.replication.parked import TransactionalWrite
from tests.unit.replication.broker import KEY, batch, transactional
from tests.unit.replication.world import World

UNCOMMITTED = data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED
WRITE = TransactionalWrite("spark-1", 4)


def send(world: World, producer_id: int, sequence: int = 0, *, to: int = 1, acks: int = -1, rows: int = 1) -> int:
    data = transactional(batch(rows, producer=(producer_id, 0, sequence)))
    return world.produce(to, data, acks=acks, transaction=WRITE)


def begin(world: World, producer_id: int, *, to: int = 1) -> None:
    """A producer's first record, registered and committed to the log."""
    send(world, producer_id, to=to)
    world.register(to)
    world.settle()


def commit(producer_id: int, last_sequence: int = 0) -> EndMarker:
    return EndMarker(producer_id, committed=True, last_sequence=last_sequence)


def abort(producer_id: int) -> EndMarker:
    return EndMarker(producer_id, committed=False, last_sequence=-1)


def error_of(world: World, ticket: int, *, at: int = 1) -> type[MinilogError] | None:
    error = world[at].answers[ticket].error
    return None if error is None else type(error)


def stable(world: World, broker_id: int = 1) -> int:
    replica = world[broker_id].manager._replicas[KEY]
    assert replica.log is not None
    return replica.log.last_stable_offset


def cut_off(world: World, *broker_ids: int, leader_id: int = 1) -> None:
    for broker_id in broker_ids:
        world.cut.add((broker_id, leader_id))
        world.break_link(world[broker_id].links[leader_id])


def offsets(world: World, broker_id: int, session_id: int) -> list[int]:
    """Of the batches that a consumer was sent."""
    runs = world.runs(broker_id, session_id)
    return [header.base_offset for run in runs for _, header in iterate_headers(run.batches)]


def appends(world: World, broker_id: int = 1) -> int:
    return sum(isinstance(effect, AppendToLog) for effect in world[broker_id].history)


# -- registration


def test_a_producers_first_record_waits_until_the_coordinator_has_it_registered() -> None:
    world = World()
    tickets = [send(world, 7, 0), send(world, 7, 1)]
    world.settle()
    assert world[1].ends()[2] == 0, "nothing is written"
    assert list(world[1].registrations) == [RegisterPartition(1, KEY, "spark-1", 7, 4)], "and it is asked once"
    world.register(1)
    world.settle()
    assert [world[1].answers[ticket].base_offset for ticket in tickets] == [0, 1]
    send(world, 7, 2)
    assert not world[1].registrations, "it is known from now on"


def test_who_is_refused_by_the_coordinator_writes_nothing() -> None:
    world = World()
    tickets = [send(world, 7, 0), send(world, 7, 1)]
    world.register(1, ProducerFenced("it has ended"))
    world.settle()
    assert [error_of(world, ticket) for ticket in tickets] == [ProducerFenced, ProducerFenced]
    assert world[1].ends()[2] == 0


def test_each_producer_waits_for_its_own_answer() -> None:
    world = World()
    first, second = send(world, 7), send(world, 8)
    asked = world[1].registrations.pop()
    world[1].manager.registered(asked.key, asked.number, None, world.now_ms)
    world.settle()
    assert error_of(world, second) is None
    assert first not in world[1].answers


def test_a_resent_batch_waits_too_and_is_a_duplicate_then() -> None:
    world = World()
    first, again = send(world, 7), send(world, 7)
    world.register(1)
    world.settle()
    assert world[1].answers[first].base_offset == world[1].answers[again].base_offset == 0
    assert world[1].ends()[2] == 1


def test_a_new_leader_with_the_producers_records_asks_nobody() -> None:
    world = World()
    begin(world, 7)
    world[1].crash()
    world.controller.fence(1)
    world.settle()
    ticket = send(world, 7, 1, to=2)
    world.settle()
    assert not world[2].registrations
    assert error_of(world, ticket, at=2) is None


def test_an_unknown_transactional_producer_begins_at_sequence_0() -> None:
    world = World()
    assert error_of(world, send(world, 7, 1)) is OutOfOrderSequenceNumber
    assert not world[1].registrations


@pytest.mark.parametrize("acks", [0, 1])
def test_a_transactional_batch_is_acknowledged_by_all_whatever_is_asked(acks: int) -> None:
    world = World()
    begin(world, 7)
    cut_off(world, 2, 3)
    ticket = send(world, 7, 1, acks=acks)
    world.settle()
    assert ticket not in world[1].answers
    world.cut.clear()
    world.advance(500)
    assert error_of(world, ticket) is None


def test_a_batch_and_its_entry_are_both_of_a_transaction_or_neither() -> None:
    world = World()
    plain, marked = batch(producer=(7, 0, 0)), transactional(batch(producer=(7, 0, 0)))
    assert error_of(world, world.produce(1, plain, transaction=WRITE)) is InvalidArgument
    assert error_of(world, world.produce(1, marked)) is InvalidArgument
    assert error_of(world, world.produce(1, marked, transaction=TransactionalWrite("", 0))) is InvalidArgument
    assert not world[1].registrations


def test_who_waits_for_its_coordinator_times_out_and_a_late_answer_writes_nothing() -> None:
    world = World()
    ticket = send(world, 7)
    number = world[1].registrations[0].number
    assert world[1].manager.is_registering(KEY, number)
    world.advance(5_001)
    assert error_of(world, ticket) is RequestTimedOut
    assert not world[1].manager.is_registering(KEY, number), "nobody has to ask any longer"
    world.register(1)
    world.settle()
    assert world[1].ends()[2] == 0


def test_losing_leadership_answers_who_waits_for_its_coordinator() -> None:
    world = World()
    ticket = send(world, 7)
    world.controller.move(KEY, 2)
    world.settle()
    assert error_of(world, ticket) is UnknownOutcome
    world.register(1)
    world.settle()
    assert world[1].ends()[2] == 0


def test_below_min_who_was_registered_is_refused_and_nothing_is_written() -> None:
    world = World()
    ticket = send(world, 7)
    cut_off(world, 2, 3)
    world.advance(4_000)
    world.controller.fence(2)
    world.controller.fence(3)
    world.settle()
    world.register(1)
    assert error_of(world, ticket) is NotEnoughReplicas


def test_what_waits_is_bounded_by_producer_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    tickets = [send(world, 7, sequence) for sequence in range(registering.MAX_WAITING + 1)]
    assert [error_of(world, tickets[-1]), tickets[-2] in world[1].answers] == [OutOfOrderSequenceNumber, False]
    monkeypatch.setattr(registering, "MAX_WAITING_BYTES", 100)
    assert error_of(world, send(world, 8)) is CoordinatorLoadInProgress
    world.register(1, ProducerFenced("it has ended"))
    send(world, 8)
    assert [asked.producer_id for asked in world[1].registrations] == [8], "room was given back"


# -- markers


def test_all_markers_of_a_call_are_one_control_batch() -> None:
    world = World()
    begin(world, 7)
    begin(world, 8)
    before = appends(world)
    ticket = world.write_markers(1, commit(7), abort(8), abort(9))
    assert ticket not in world[1].marked
    world.settle()
    assert world[1].marked[ticket] is None
    assert appends(world) == before + 1
    assert world[1].headers()[-1].is_control


def test_markers_are_answered_when_they_are_below_the_high_watermark() -> None:
    world = World()
    begin(world, 7)
    cut_off(world, 2, 3)
    first = world.write_markers(1, commit(7))
    world.settle()
    again = world.write_markers(1, commit(7))
    world.settle()
    assert not world[1].marked, "the second writes nothing, and waits for the first one's"
    world.cut.clear()
    world.advance(500)
    assert world[1].marked == {first: None, again: None}
    assert world[1].ends()[2] == 2


def test_a_repeated_marker_writes_nothing_and_is_answered_at_once() -> None:
    world = World()
    begin(world, 7)
    world.write_markers(1, commit(7))
    world.settle()
    again = world.write_markers(1, commit(7))
    assert world[1].marked[again] is None
    assert world[1].ends()[2] == 2


def test_a_repeated_marker_on_its_way_writes_nothing() -> None:
    world = World()
    begin(world, 7)
    tickets = [world.write_markers(1, abort(7)), world.write_markers(1, abort(7), abort(8))]
    world.settle()
    assert [world[1].marked[ticket] for ticket in tickets] == [None, None]
    assert world[1].ends()[2] == 3, "the second batch is that of 8"


def test_a_marker_survives_failover_and_is_not_written_again() -> None:
    world = World()
    begin(world, 7)
    world.write_markers(1, commit(7))
    world.settle()
    world[1].crash()
    world.controller.fence(1)
    world.settle()
    end = world[2].ends()[2]
    again = world.write_markers(2, commit(7))
    world.settle()
    assert world[2].marked[again] is None
    assert world[2].ends()[2] == end
    assert error_of(world, send(world, 7, 1, to=2), at=2) is ProducerFenced


def test_a_commit_that_does_not_match_what_is_there_is_refused_whole() -> None:
    world = World()
    begin(world, 7)
    begin(world, 8)
    for markers in ([commit(7, 1)], [commit(8), commit(7, -1)], [abort(8), commit(9)]):
        assert isinstance(world[1].marked[world.write_markers(1, *markers)], InvalidTxnState)
    world.settle()
    assert world[1].ends()[2] == 2, "nothing was marked"
    nothing_written = world.write_markers(1, commit(9, -1))
    world.settle()
    assert world[1].marked[nothing_written] is None


def test_a_commit_is_judged_by_log_and_queue() -> None:
    world = World()
    begin(world, 7)
    send(world, 7, 1, rows=3)
    ticket = world.write_markers(1, commit(7, 3))
    world.settle()
    assert world[1].marked[ticket] is None


def test_who_was_aborted_is_not_committed_nor_the_other_way_round() -> None:
    world = World()
    begin(world, 7)
    world.write_markers(1, abort(7))
    assert isinstance(world[1].marked[world.write_markers(1, commit(7))], InvalidTxnState), "on its way"
    world.settle()
    assert isinstance(world[1].marked[world.write_markers(1, commit(7))], InvalidTxnState), "in the log"


def test_a_marker_cancels_who_waits_for_the_coordinator() -> None:
    world = World()
    ticket = send(world, 7)
    world.write_markers(1, abort(7))
    assert error_of(world, ticket) is ProducerFenced
    world.register(1)
    world.settle()
    assert world[1].ends()[2] == 1, "only the marker: a late answer of the coordinator writes nothing"


def test_a_producer_that_ended_or_ends_is_fenced() -> None:
    world = World()
    begin(world, 7)
    world.write_markers(1, commit(7))
    assert error_of(world, send(world, 7, 1)) is ProducerFenced, "its marker is on its way"
    world.settle()
    assert error_of(world, send(world, 7, 1)) is ProducerFenced
    assert error_of(world, world.produce(1, batch(producer=(7, 0, 1)))) is ProducerFenced
    assert not world[1].registrations


def test_losing_leadership_answers_markers_that_this_broker_leads_no_more() -> None:
    world = World()
    begin(world, 7)
    cut_off(world, 2, 3)
    ticket = world.write_markers(1, abort(7))
    world.controller.move(KEY, 2)
    world.settle()
    assert isinstance(world[1].marked[ticket], NotLeaderOrFollower)
    assert isinstance(world[1].marked[world.write_markers(1, abort(7))], NotLeaderOrFollower)


def test_markers_that_are_not_committed_in_time_are_to_be_asked_for_again() -> None:
    world = World()
    begin(world, 7)
    cut_off(world, 2, 3)
    ticket = world.write_markers(1, abort(7))
    world.advance(world.settings.markers_timeout_ms - 1)
    assert ticket not in world[1].marked
    world.advance(2)
    error = world[1].marked[ticket]
    assert error is not None
    assert not isinstance(error, InvalidTxnState)


def test_a_full_disk_writes_no_marker_and_the_producer_has_not_ended() -> None:
    world = World()
    begin(world, 7)
    world[1].files.full = True
    ticket = world.write_markers(1, abort(7))
    world.settle()
    assert isinstance(world[1].marked[ticket], NoSpace)
    world[1].files.full = False
    world.advance(1_100)
    next_batch = send(world, 7, 1)
    world.settle()
    assert error_of(world, next_batch) is None
    assert stable(world) == 0


@pytest.mark.parametrize("markers", [[], [abort(7), abort(7)]])
def test_a_call_without_markers_or_with_two_of_one_producer_is_refused(markers: list[EndMarker]) -> None:
    world = World()
    assert isinstance(world[1].marked[world.write_markers(1, *markers)], InvalidArgument)


# -- the last stable offset


def test_the_last_stable_offset_waits_for_the_marker_to_be_committed_on_every_replica() -> None:
    world = World()
    world.produce(1)
    begin(world, 7)
    world.produce(1)
    world.settle()
    assert [stable(world, broker_id) for broker_id in (1, 2, 3)] == [1, 1, 1]
    cut_off(world, 2, 3)
    world.write_markers(1, commit(7))
    world.settle()
    assert stable(world) == 1, "an uncommitted marker moves nothing"
    world.cut.clear()
    world.advance(500)
    assert [stable(world, broker_id) for broker_id in (1, 2, 3)] == [4, 4, 4]


def test_list_offsets_tells_the_last_stable_offset() -> None:
    world = World()
    world.produce(1)
    begin(world, 7)
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1, timestamp_us=0)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    told = world[1].manager.list_offsets(entry, world.now_ms)
    assert (told.last_stable_offset, told.high_watermark, told.offset) == (1, 2, 0)


def test_a_restart_knows_what_was_open_and_what_had_ended() -> None:
    world = World(brokers=1)
    begin(world, 7)
    begin(world, 8)
    world.write_markers(1, abort(8))
    world.settle()
    world[1].manager.stop_leading(world.now_ms)
    world[1].run()
    world[1].work()
    world[1].crash()
    world[1].restart()
    world.settle()
    assert stable(world) == 0
    leader = world[1].leader()
    assert leader is not None
    assert leader.aborted_within(0, 10) == [8]
    assert error_of(world, send(world, 8, 1)) is ProducerFenced


def test_transactions_are_truncated_with_the_log() -> None:
    world = World()
    begin(world, 7)
    cut_off(world, 2, 3)
    world.write_markers(1, abort(7))
    world.settle()
    world.controller.move(KEY, 2)
    world.settle()
    world.cut.clear()
    world.produce(2)
    world.advance(500)
    assert [stable(world, broker_id) for broker_id in (1, 2, 3)] == [0, 0, 0], "the marker is gone, 7 is open again"
    ticket = world.write_markers(2, commit(7))
    world.settle()
    assert world[2].marked[ticket] is None
    assert [stable(world, broker_id) for broker_id in (1, 2, 3)] == [3, 3, 3]


# -- who reads what


@pytest.mark.parametrize("broker_id", [1, 2])
def test_who_reads_what_is_committed_is_sent_nothing_above_the_last_stable_offset(broker_id: int) -> None:
    world = World()
    world.produce(1)
    begin(world, 7)
    world.advance(10)
    committed, all_ = world.consume(broker_id, 0), world.consume(broker_id, 0, isolation=UNCOMMITTED)
    world.settle()
    assert offsets(world, broker_id, committed) == [0]
    assert offsets(world, broker_id, all_) == [0, 1]
    world.write_markers(1, commit(7))
    world.settle()
    world.advance(10)
    assert offsets(world, broker_id, committed) == [0, 1, 2], "woken, with the transaction and its marker"
    assert [run.last_stable_offset for run in world.runs(broker_id, committed)][-1] == 3


@pytest.mark.parametrize("broker_id", [1, 2])
def test_a_run_tells_whose_batches_in_it_were_aborted(broker_id: int) -> None:
    world = World()
    begin(world, 7)
    begin(world, 8)
    world.write_markers(1, commit(7), abort(8))
    world.settle()
    begin(world, 9)
    world.write_markers(1, abort(9))
    world.settle()
    world.advance(10)
    whole = world.consume(broker_id, 0)
    later = world.consume(broker_id, 3)
    all_ = world.consume(broker_id, 0, isolation=UNCOMMITTED)
    world.settle()
    told = [[list(run.aborted_producer_ids) for run in world.runs(broker_id, s) if run.batches] for s in (whole, later)]
    assert told == [[[8, 9]], [[9]]]
    assert [list(run.aborted_producer_ids) for run in world.runs(broker_id, all_) if run.batches] == [[]]


def test_without_transactions_both_isolation_levels_are_sent_the_same() -> None:
    world = World()
    sessions = [world.consume(1, 0), world.consume(1, 0, isolation=UNCOMMITTED)]
    for _ in range(3):
        world.produce(1)
    world.settle()
    assert [offsets(world, 1, session_id) for session_id in sessions] == [[0, 1, 2], [0, 1, 2]]
