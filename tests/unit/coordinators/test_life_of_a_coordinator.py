"""The mechanism: who answers when, what is known, and what a coordinator forgets (coordinator.py, table.py)."""

from __future__ import annotations

import pytest

from minilog.errors import (
    CoordinatorLoadInProgress,
    CorruptMessage,
    NotCoordinator,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.batches import decode_run, encode_batch
from minilog_broker.coordinators.coordinator import CoordinatorState
from minilog_broker.coordinators.coordinator_effects import LoadLog, WriteMarkers
from minilog_broker.coordinators.table import LogRecord
from minilog_broker.quorum.records import place
from tests.rules import proves
from tests.unit.coordinators.cluster import INTERNAL, error_of, state_of
from tests.unit.coordinators.transacting import ORDERS_0, TransactionCalls

pytestmark = proves("CO.4")

Enlist, End = coordinator_pb2.EnlistResponse, coordinator_pb2.EndTransactionResponse
Register = coordinator_pb2.RegisterPartitionsResponse


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
