"""The mechanism: who answers when, what is known, and what a coordinator forgets (coordinator.py, table.py)."""

from __future__ import annotations

import pytest

from minilog.errors import (
    CoordinatorLoadInProgress,
    CorruptMessage,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
)
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.batches import decode_run, encode_batch
from minilog_broker.coordinators.coordinator import State
from minilog_broker.coordinators.effects import LoadLog, WriteMarkers
from minilog_broker.coordinators.table import LogRecord
from minilog_broker.quorum.records import place
from minilog_broker.replication.state import PartitionKey
from tests.unit.coordinators.transacting import ALREADY, ENLISTED, ORDERS_0, Transacting
from tests.unit.coordinators.world import INTERNAL, OVER, error_of, state_of

Enlist, End = coordinator_pb2.EnlistResponse, coordinator_pb2.EndTransactionResponse
Register = coordinator_pb2.RegisterPartitionsResponse


def test_who_does_not_lead_says_so() -> None:
    world = Transacting(lead=False)
    assert isinstance(error_of(world.enlist()), NotCoordinator)
    assert world.coordinator.state is State.IDLE


def test_nothing_is_answered_before_the_high_watermark_has_reached_the_start_of_the_epoch() -> None:
    world = Transacting()
    world.enlisted()
    world.coordinator.deposed()
    world.coordinator = world.make()
    world.lead()
    world.commit_to(world.log_end - 1)
    assert state_of(world.coordinator) is State.WAITING
    assert isinstance(error_of(world.answer(world.ask_to_enlist(), Enlist)), CoordinatorLoadInProgress)
    world.commit()
    assert state_of(world.coordinator) is State.ACTIVE


def test_nothing_is_answered_while_the_log_is_read() -> None:
    world = Transacting()
    world.enlisted()
    loading = world.make()
    loading.lead(7, world.log_end)
    loading.high_watermark(7, world.log_end, world.now)
    assert loading.take_effects() == [LoadLog(7, world.log_end)]
    (end, records), *_ = (run for batch in world.batches for run in decode_run(INTERNAL, batch))
    loading.replayed(7, records[:1], end - 1, world.now)
    assert state_of(loading) is State.LOADING
    loading.replayed(6, records, world.log_end, world.now)  # what was read for a former term
    assert state_of(loading) is State.LOADING
    loading.replayed(7, records[1:], end, world.now)
    assert state_of(loading) is State.ACTIVE
    assert loading.committed_state() == world.coordinator.committed_state()


def test_a_call_is_answered_when_its_record_is_committed() -> None:
    world = Transacting()
    ticket = world.ask_to_enlist()
    assert world.waits(ticket)
    assert world.coordinator.committed_state() == {}
    world.commit_to(world.log_end - 1)
    assert world.waits(ticket)
    world.commit()
    assert world.answer(ticket, Enlist).outcome == ENLISTED


def test_a_refusal_waits_for_the_decision_that_it_rests_on() -> None:
    world = Transacting()
    first = world.enlisted()
    takes_over = world.ask_to_enlist(attempt="b")
    refused = world.ask_to_register(first, ORDERS_0)
    assert world.waits(refused)  # had the take-over been lost, nobody would be fenced
    world.commit()
    assert isinstance(error_of(world.answer(refused, coordinator_pb2.RegisterPartitionsResponse)), ProducerFenced)
    assert world.answer(takes_over, Enlist).outcome == ENLISTED


def test_answers_of_other_ids_do_not_wait_for_each_other() -> None:
    world = Transacting()
    producer_id = world.enlisted()
    world.ask_to_enlist(name="another")
    assert error_of(world.keep_alive(producer_id)) is None


def test_a_deposed_coordinator_answers_all_who_wait_and_knows_nothing_any_more() -> None:
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    enlisting, ending = world.ask_to_enlist(task=1), world.ask_to_end([producer_id])
    world.coordinator.deposed()
    assert isinstance(error_of(world.answer(enlisting, Enlist)), NotCoordinator)
    assert isinstance(error_of(world.answer(ending, End)), NotCoordinator)
    assert world.coordinator.committed_state() == {}
    assert world.coordinator.next_tick_ms == float("inf")


def test_a_deposed_coordinator_takes_no_later_high_watermark_for_commits_of_its_own() -> None:
    """Wrong rule 12."""
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    ending = world.ask_to_end([producer_id])
    world.coordinator.deposed()
    world.coordinator.high_watermark(world.leader_epoch, world.log_end, world.now)
    world.coordinator.high_watermark(world.leader_epoch + 1, world.log_end + 5, world.now)
    world.collect()
    assert isinstance(error_of(world.answer(ending, End)), NotCoordinator)
    assert world.take(WriteMarkers) == []


def test_a_coordinator_that_leads_again_takes_only_the_high_watermark_of_its_new_epoch() -> None:
    """Wrong rule 12: that of the former term, which comes late, would load what is not committed."""
    world = Transacting()
    world.enlisted()
    former = world.leader_epoch
    world.ask_to_enlist(task=1)
    world.lead()
    world.coordinator.high_watermark(former, world.log_end, world.now)
    assert world.coordinator.state is State.WAITING


def test_an_append_that_finds_the_term_over_ends_it() -> None:
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    ending = world.ask_to_end([producer_id])
    world.refusal = OVER
    enlisting = world.ask_to_enlist(generation=1, attempt="b")
    assert isinstance(error_of(world.answer(enlisting, Enlist)), NotCoordinator)
    assert isinstance(error_of(world.answer(ending, End)), NotCoordinator)
    assert world.coordinator.state is State.IDLE


def test_what_could_not_be_appended_leaves_no_trace() -> None:
    """Wrong rule 15."""
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    before = world.coordinator.committed_state()
    world.refusal = NotEnoughReplicas("the ISR is too small")
    assert isinstance(error_of(world.end([producer_id])), NotEnoughReplicas)
    assert isinstance(error_of(world.enlist(attempt="b")), NotEnoughReplicas)
    world.refusal = None
    assert world.coordinator.committed_state() == before
    assert error_of(world.keep_alive(producer_id)) is None
    assert error_of(world.end([producer_id])) is None


def test_what_was_in_flight_is_kept_or_lost_as_the_next_leader_has_it() -> None:
    for kept in (True, False):
        world = Transacting()
        producer_id = world.writer(ORDERS_0)
        ending = world.ask_to_end([producer_id])
        world.fail_over(kept_batches=1 if kept else 0)
        assert isinstance(error_of(world.answer(ending, End)), NotCoordinator)
        assert (world.enlist(run="r2", attempt="b").outcome == ALREADY) == kept
        world.write_markers()
        assert world.marks() == {(ORDERS_0, producer_id): kept}


def test_who_has_heard_of_a_later_epoch_is_not_answered() -> None:
    world = Transacting()
    late = world.ask_to_enlist(coordinator_epoch=world.leader_epoch + 1)
    assert isinstance(error_of(world.answer(late, Enlist)), NotCoordinator)
    response = world.enlist(coordinator_epoch=world.leader_epoch)
    assert (response.outcome, response.coordinator_epoch) == (ENLISTED, world.leader_epoch)


def test_a_registration_that_is_repeated_is_answered_by_a_coordinator_that_still_is_one() -> None:
    """Another may have written the markers: a deposed one that says yes opens a transaction that nobody ends."""
    world = Transacting()
    producer_id = world.writer(ORDERS_0)
    again = world.ask_to_register(producer_id, ORDERS_0)
    assert world.waits(again)
    world.commit()
    assert error_of(world.answer(again, Register)) is None
    assert world.waits(deposed := world.ask_to_register(producer_id, ORDERS_0))
    world.coordinator.deposed()
    assert isinstance(error_of(world.answer(deposed, Register)), NotCoordinator)


def test_a_batch_of_another_log_or_without_keys_is_refused() -> None:
    batch = place(encode_batch(INTERNAL, [LogRecord(b"k", None)], 1), 0, 0).buffers[0]
    assert list(decode_run(INTERNAL, batch)) == [(1, [LogRecord(b"k", None)])]
    with pytest.raises(CorruptMessage):
        list(decode_run(PartitionKey(INTERNAL.topic_id, 4), batch))
    without = place(encode_batch(INTERNAL, [LogRecord(None, b"v")], 1), 0, 0).buffers[0]  # type: ignore[arg-type]
    with pytest.raises(CorruptMessage, match="without key"):
        list(decode_run(INTERNAL, without))


@pytest.mark.parametrize("record", [LogRecord(b"\xff", b""), LogRecord(b"\n\x01x", b"\xff")])
def test_a_record_that_cannot_be_read_is_damage(record: LogRecord) -> None:
    world = Transacting(lead=False)
    world.coordinator.lead(1, 1)
    world.coordinator.high_watermark(1, 1, world.now)
    with pytest.raises(CorruptMessage, match="cannot be read"):
        world.coordinator.replayed(1, [record], 1, world.now)


def test_the_log_compacted_by_key_replays_to_the_same() -> None:
    world = Transacting()
    winner = world.writer(ORDERS_0, task=0)
    world.writer(ORDERS_0, task=1)
    world.end([winner])
    world.writer(ORDERS_0, generation=1, attempt="b")
    records = [record for batch in world.batches for _, run in decode_run(INTERNAL, batch) for record in run]
    newest = {record.key: record for record in records}
    compacted = world.make()
    compacted.lead(9, world.log_end)
    compacted.high_watermark(9, world.log_end, world.now)
    compacted.replayed(9, [each for each in newest.values() if each.value is not None], world.log_end, world.now)
    assert compacted.committed_state() == world.coordinator.committed_state()
