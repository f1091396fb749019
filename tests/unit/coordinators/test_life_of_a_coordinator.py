"""The mechanism: who answers when, what is known, and what a coordinator forgets (coordinator.py, table.py)."""

from __future__ import annotations

import pytest

from minilog.errors import (
    CoordinatorLoadInProgress,
    CorruptMessage,
    MinilogError,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    StorageError,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.batches import decode_run, encode_batch
from minilog_broker.coordinators.coordinator import CoordinatorState
from minilog_broker.coordinators.coordinator_effects import LoadLog, WriteMarkers
from minilog_broker.coordinators.table import LogRecord
from minilog_broker.quorum.records import place
from tests.rules import proves
from tests.unit.coordinators.cluster import INTERNAL, OVER, error_of, state_of
from tests.unit.coordinators.transacting import ALREADY, ENLISTED, ORDERS_0, TransactionCalls

pytestmark = proves("CO.4")

Enlist, End = coordinator_pb2.EnlistResponse, coordinator_pb2.EndTransactionResponse
Register = coordinator_pb2.RegisterPartitionsResponse


def test_who_does_not_lead_says_so() -> None:
    cluster = TransactionCalls(lead=False)
    assert isinstance(error_of(cluster.enlist()), NotCoordinator)
    assert cluster.coordinator.state is CoordinatorState.IDLE


def test_nothing_is_answered_before_the_high_watermark_has_reached_the_start_of_the_epoch() -> None:
    cluster = TransactionCalls()
    cluster.enlisted()
    cluster.coordinator.deposed()
    cluster.coordinator = cluster.make()
    cluster.lead()
    cluster.commit_to(cluster.log_end - 1)
    assert state_of(cluster.coordinator) is CoordinatorState.WAITING
    assert isinstance(error_of(cluster.answer(cluster.ask_to_enlist(), Enlist)), CoordinatorLoadInProgress)
    cluster.commit()
    assert state_of(cluster.coordinator) is CoordinatorState.ACTIVE


def test_nothing_is_answered_while_the_log_is_read() -> None:
    cluster = TransactionCalls()
    cluster.enlisted()
    loading = cluster.make()
    loading.lead(7, cluster.log_end)
    loading.high_watermark(7, cluster.log_end, cluster.now)
    assert loading.take_effects() == [LoadLog(7, cluster.log_end)]
    (end, records), *_ = (run for batch in cluster.batches for run in decode_run(INTERNAL, batch))
    loading.replayed(7, records[:1], end - 1, cluster.now)
    assert state_of(loading) is CoordinatorState.LOADING
    loading.replayed(6, records, cluster.log_end, cluster.now)  # what was read for a former term
    assert state_of(loading) is CoordinatorState.LOADING
    loading.replayed(7, records[1:], end, cluster.now)
    assert state_of(loading) is CoordinatorState.ACTIVE
    assert loading.committed_state() == cluster.coordinator.committed_state()


def test_a_call_is_answered_when_its_record_is_committed() -> None:
    cluster = TransactionCalls()
    ticket = cluster.ask_to_enlist()
    assert cluster.waits(ticket)
    assert cluster.coordinator.committed_state() == {}
    cluster.commit_to(cluster.log_end - 1)
    assert cluster.waits(ticket)
    cluster.commit()
    assert cluster.answer(ticket, Enlist).outcome == ENLISTED


def test_a_refusal_waits_for_the_decision_that_it_rests_on() -> None:
    cluster = TransactionCalls()
    first = cluster.enlisted()
    takes_over = cluster.ask_to_enlist(attempt="b")
    refused = cluster.ask_to_register(first, ORDERS_0)
    assert cluster.waits(refused)  # had the take-over been lost, nobody would be fenced
    cluster.commit()
    assert isinstance(error_of(cluster.answer(refused, coordinator_pb2.RegisterPartitionsResponse)), ProducerFenced)
    assert cluster.answer(takes_over, Enlist).outcome == ENLISTED


def test_answers_of_other_ids_do_not_wait_for_each_other() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.enlisted()
    cluster.ask_to_enlist(name="another")
    assert error_of(cluster.keep_alive(producer_id)) is None


def test_a_deposed_coordinator_answers_all_who_wait_and_knows_nothing_any_more() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    enlisting, ending = cluster.ask_to_enlist(task=1), cluster.ask_to_end([producer_id])
    cluster.coordinator.deposed()
    assert isinstance(error_of(cluster.answer(enlisting, Enlist)), NotCoordinator)
    assert isinstance(error_of(cluster.answer(ending, End)), NotCoordinator)
    assert cluster.coordinator.committed_state() == {}
    assert cluster.coordinator.next_tick_ms == float("inf")


def test_a_decision_that_the_log_dropped_is_answered_with_the_disk_as_the_reason() -> None:
    """The log of the same leader epoch begins anew, as on a full disk. "Does not lead now" was the answer."""
    cluster = TransactionCalls()
    ticket = cluster.ask_to_enlist(task=1)
    cluster.coordinator.lead(cluster.leader_epoch, 0)
    cluster.collect()
    error = error_of(cluster.answer(ticket, Enlist))
    assert isinstance(error, NotCoordinator)
    assert "the disk of this broker is full or failed" in str(error)


def test_a_deposed_coordinator_takes_no_later_high_watermark_for_commits_of_its_own() -> None:
    """Wrong rule 12."""
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    ending = cluster.ask_to_end([producer_id])
    cluster.coordinator.deposed()
    cluster.coordinator.high_watermark(cluster.leader_epoch, cluster.log_end, cluster.now)
    cluster.coordinator.high_watermark(cluster.leader_epoch + 1, cluster.log_end + 5, cluster.now)
    cluster.collect()
    assert isinstance(error_of(cluster.answer(ending, End)), NotCoordinator)
    assert cluster.take(WriteMarkers) == []


def test_a_coordinator_that_leads_again_takes_only_the_high_watermark_of_its_new_epoch() -> None:
    """Wrong rule 12: that of the former term, which comes late, would load what is not committed."""
    cluster = TransactionCalls()
    cluster.enlisted()
    former = cluster.leader_epoch
    cluster.ask_to_enlist(task=1)
    cluster.lead()
    cluster.coordinator.high_watermark(former, cluster.log_end, cluster.now)
    assert cluster.coordinator.state is CoordinatorState.WAITING


@pytest.mark.parametrize("refusal", [OVER, StorageError("the replica of partition 3 is offline")])
def test_an_append_that_finds_the_term_over_ends_it(refusal: MinilogError) -> None:
    """Also when the log has failed, and the coordinator hears of its high watermark before it hears of that."""
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    ending = cluster.ask_to_end([producer_id])
    enlisting = cluster.ask_to_enlist(generation=1, attempt="b")
    assert cluster.waits(enlisting), "for the batch before"
    cluster.refusal = refusal
    cluster.commit_to(cluster.log_end)
    assert isinstance(error_of(cluster.answer(ending, End)), NotCoordinator), "its markers are not written yet"
    assert isinstance(error_of(cluster.answer(enlisting, Enlist)), NotCoordinator)
    assert cluster.coordinator.state is CoordinatorState.IDLE


def test_a_decision_that_finds_the_term_over_ends_it() -> None:
    cluster = TransactionCalls()
    cluster.refusal = OVER
    enlisting = cluster.ask_to_enlist(generation=1, attempt="b")
    assert isinstance(error_of(cluster.answer(enlisting, Enlist)), NotCoordinator)
    assert cluster.coordinator.state is CoordinatorState.IDLE


def test_what_could_not_be_appended_leaves_no_trace() -> None:
    """Wrong rule 15."""
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    before = cluster.coordinator.committed_state()
    cluster.refusal = NotEnoughReplicas("the ISR is too small")
    assert isinstance(error_of(cluster.end([producer_id])), NotEnoughReplicas)
    assert isinstance(error_of(cluster.enlist(attempt="b")), NotEnoughReplicas)
    cluster.refusal = None
    assert cluster.coordinator.committed_state() == before
    assert error_of(cluster.keep_alive(producer_id)) is None
    assert error_of(cluster.end([producer_id])) is None


def test_what_was_in_flight_is_kept_or_lost_as_the_next_leader_has_it() -> None:
    for kept in (True, False):
        cluster = TransactionCalls()
        producer_id = cluster.writer(ORDERS_0)
        ending = cluster.ask_to_end([producer_id])
        cluster.fail_over(kept_batches=1 if kept else 0)
        assert isinstance(error_of(cluster.answer(ending, End)), NotCoordinator)
        assert (cluster.enlist(run="r2", attempt="b").outcome == ALREADY) == kept
        cluster.write_markers()
        assert cluster.marks() == {(ORDERS_0, producer_id): kept}


def test_who_has_heard_of_a_later_epoch_is_not_answered() -> None:
    cluster = TransactionCalls()
    late = cluster.ask_to_enlist(coordinator_epoch=cluster.leader_epoch + 1)
    assert isinstance(error_of(cluster.answer(late, Enlist)), NotCoordinator)
    response = cluster.enlist(coordinator_epoch=cluster.leader_epoch)
    assert (response.outcome, response.coordinator_epoch) == (ENLISTED, cluster.leader_epoch)


@proves("CO.7")
def test_a_registration_that_is_repeated_is_answered_by_a_coordinator_that_still_is_one() -> None:
    """Another may have written the markers: a deposed one that says yes opens a transaction that nobody ends."""
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    again = cluster.ask_to_register(producer_id, ORDERS_0)
    assert cluster.waits(again)
    cluster.commit()
    assert error_of(cluster.answer(again, Register)) is None
    assert cluster.waits(deposed := cluster.ask_to_register(producer_id, ORDERS_0))
    cluster.coordinator.deposed()
    assert isinstance(error_of(cluster.answer(deposed, Register)), NotCoordinator)


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
    cluster = TransactionCalls(lead=False)
    cluster.coordinator.lead(1, 1)
    cluster.coordinator.high_watermark(1, 1, cluster.now)
    with pytest.raises(CorruptMessage, match="cannot be read"):
        cluster.coordinator.replayed(1, [record], 1, cluster.now)


def test_the_log_compacted_by_key_replays_to_the_same() -> None:
    cluster = TransactionCalls()
    winner = cluster.writer(ORDERS_0, task=0)
    cluster.writer(ORDERS_0, task=1)
    cluster.end([winner])
    cluster.writer(ORDERS_0, generation=1, attempt="b")
    records = [record for batch in cluster.batches for _, run in decode_run(INTERNAL, batch) for record in run]
    newest = {record.key: record for record in records}
    compacted = cluster.make()
    compacted.lead(9, cluster.log_end)
    compacted.high_watermark(9, cluster.log_end, cluster.now)
    compacted.replayed(9, [each for each in newest.values() if each.value is not None], cluster.log_end, cluster.now)
    assert compacted.committed_state() == cluster.coordinator.committed_state()
