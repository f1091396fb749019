"""What a partition knows of transactions: how far it is stable, what was aborted, and who has ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import given

from minilog.errors import CorruptMessage, InvalidTxnState, OutOfOrderSequenceNumber, ProducerFenced
from minilog.record_batch.gaps import joined_gap_batch
from minilog.record_batch.header import decode_header
from minilog_broker.storage.compaction_point import CompactionPoint
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.markers import CoordinatorEpoch, Marker, read_markers
from minilog_broker.storage.producer_state import Accept, ProducerState, recover_producer_state
from minilog_broker.storage.settings import LogSettings
from minilog_broker.storage.transactions import NOTHING, Finished, PartitionTransactions
from tests.rules import proves
from tests.unit.storage.logs import DIRECTORY, KEY, batch, header, open_log, run_of
from tests.world.disk import MemoryDisk


@dataclass
class PartitionModel:
    """A producer state and the batches it has taken in, one record each."""

    state: ProducerState = field(default_factory=ProducerState)
    batches: list[bytes] = field(default_factory=list)

    def take(self, one: bytes) -> int:
        found = decode_header(one)
        self.state.apply(found, read_markers(one, found) if found.is_control else ())
        self.batches.append(one)
        return found.base_offset

    def write(self, producer_id: int, *, transactional: bool = True) -> int:
        entry = self.state.entry(producer_id)
        sequence = 0 if entry is None else entry.next_sequence
        return self.take(batch(len(self.batches), producer=(producer_id, 0, sequence), transactional=transactional))

    def end(self, *markers: tuple[int, bool]) -> int:
        return self.take(batch(len(self.batches), control=True, markers=markers))

    def stable(self, high_watermark: int | None = None) -> int:
        end = len(self.batches) if high_watermark is None else high_watermark
        return self.state.transactions.last_stable_offset(end)


def verdict(state: ProducerState, producer_id: int, sequence: int, *, transactional: bool = True) -> type:
    return type(state.check(header(0, producer=(producer_id, 0, sequence), transactional=transactional)))


# -- the last stable offset


def test_without_transactions_all_below_the_high_watermark_is_stable() -> None:
    partition = PartitionModel()
    partition.write(1, transactional=False)
    assert partition.stable() == 1


@proves("TX.17")
def test_a_log_of_many_transactions_that_was_just_opened_delays_nobody() -> None:
    """Each marker of it is looked at once: a list emptied from its front took 3 s for these, and 30 s for twice
    as many, on the broker's one loop."""
    transactions, count = PartitionTransactions(), 200_000
    for number in range(count):
        transactions.begin(number, 2 * number)
        transactions.end([Finished(number, committed=True, last_offset=2 * number)], 2 * number + 1, 2 * number + 2, 0)
    began_s = time.process_time()
    assert transactions.last_stable_offset(3) == 2
    assert transactions.last_stable_offset(2 * count) == 2 * count
    assert time.process_time() - began_s < 0.5


def test_the_first_offset_of_the_earliest_open_transaction_is_not_stable() -> None:
    partition = PartitionModel()
    partition.write(9, transactional=False)
    partition.write(1)
    partition.write(2)
    partition.write(1)
    assert partition.stable(1) == 1, "the high watermark is lower"
    assert partition.stable() == 1
    partition.end((1, True))
    assert partition.stable() == 2


@proves("TX.11")
def test_a_transaction_is_unstable_until_the_high_watermark_has_passed_its_marker() -> None:
    partition = PartitionModel()
    partition.write(1)
    marker = partition.end((1, True))
    assert partition.stable(marker) == 0
    assert partition.stable(marker + 1) == marker + 1


@proves("TX.11")
def test_of_several_markers_above_the_high_watermark_the_earliest_first_offset_counts() -> None:
    partition = PartitionModel()
    partition.write(1)
    partition.write(2)
    partition.end((2, False))
    partition.end((1, True))
    assert partition.stable(3) == 0, "the marker of 1 is not below it"
    assert partition.stable(4) == 4


def test_a_marker_of_who_wrote_nothing_holds_nothing_and_fences_all_the_same() -> None:
    partition = PartitionModel()
    partition.end((1, False))
    assert partition.stable(0) == 0
    assert partition.stable(1) == 1
    assert verdict(partition.state, 1, 0) is ProducerFenced


# -- markers that never come


@proves("TX.16")
def test_a_transaction_without_a_marker_counts_as_aborted_and_hides_nothing_else() -> None:
    partition = PartitionModel()
    partition.write(1)
    partition.write(2)
    partition.end((2, False))
    partition.write(3)
    partition.state.abort_unmarked([1], 4)
    transactions = partition.state.transactions
    assert partition.stable() == 3, "3 began behind"
    assert [transactions.aborted_within(offset, offset + 1) for offset in range(4)] == [[1], [2], [], []]
    assert transactions.forgotten is not None, "its marker was there once, so a search for it is no proof"
    partition.end((3, True))
    assert partition.stable() == 5
    restarted = ProducerState()
    restarted.restore(partition.state.snapshot())
    assert restarted.transactions.aborted_within(0, 1) == [1]


@proves("TX.16")
@pytest.mark.parametrize("has_records", [False, True])
def test_a_cut_that_leaves_an_old_snapshot_opens_no_transaction_that_compaction_removed(*, has_records: bool) -> None:
    """Found by the simulator (seed 48000005): the newer snapshot, which has its end, is above the cut."""
    log, partition = open_log(MemoryDisk()), PartitionModel()
    partition.write(1)
    at_one = partition.state.snapshot()
    partition.end((1, True))
    partition.write(2)
    partition.write(3, transactional=False)
    marker_is_gone = [gap(offset) for offset in (0, 1)]
    for one in [
        *(partition.batches[:1] if has_records else marker_is_gone[:1]),
        marker_is_gone[1],
        *partition.batches[2:],
    ]:
        log.append(run_of([one]))
    log.flush()
    log.set_high_watermark(3, 2)
    log.write_producer_snapshot(1, at_one)
    log.begin_compaction(CompactionPoint(2, 2), 4, partition.state.snapshot())
    assert recover_producer_state(log).transactions.first_open_offset == 2
    log.truncate_to(3)
    assert recover_producer_state(log).transactions.first_open_offset == (0 if has_records else 2)


@proves("TX.16")
def test_a_cut_keeps_what_was_aborted_without_a_marker() -> None:
    log, partition = open_log(MemoryDisk()), PartitionModel()
    for producer_id in (1, 2, 3):
        partition.write(producer_id)
    partition.end((3, False))
    for one in partition.batches:
        log.append(run_of([one]))
    log.flush()
    partition.state.abort_unmarked([1], 4)
    log.write_producer_snapshot(4, partition.state.snapshot())
    log.truncate_to(3)
    recovered = recover_producer_state(log).transactions
    assert [recovered.is_open(producer_id) for producer_id in (1, 2, 3)] == [False, True, True], (
        "the marker of 3 is cut"
    )
    assert recovered.aborted_within(0, 1) == [1]
    assert recover_producer_state(log).transactions == recovered


def gap(offset: int) -> bytes:
    """What compaction leaves of a batch."""
    found = decode_header(batch(offset))
    return joined_gap_batch(*KEY, found, found)


# -- who may write


@proves("TX.4")
def test_an_ended_producer_never_appends_again_whatever_it_sends() -> None:
    partition = PartitionModel()
    partition.write(1)
    partition.end((1, True))
    assert verdict(partition.state, 1, 1) is ProducerFenced
    assert verdict(partition.state, 1, 0) is ProducerFenced, "not even what is there already"
    assert verdict(partition.state, 1, 1, transactional=False) is ProducerFenced


def test_an_unknown_transactional_producer_begins_at_sequence_0() -> None:
    assert verdict(ProducerState(), 1, 3) is OutOfOrderSequenceNumber
    assert verdict(ProducerState(), 1, 0) is Accept


def test_a_producer_writes_in_a_transaction_or_outside_of_any() -> None:
    partition = PartitionModel()
    partition.write(1)
    partition.write(2, transactional=False)
    assert verdict(partition.state, 1, 1, transactional=False) is InvalidTxnState
    assert verdict(partition.state, 2, 1) is InvalidTxnState
    on_its_way = [header(5, producer=(3, 0, 0), transactional=True)]
    judged = partition.state.check(header(0, producer=(3, 0, 1)), on_its_way)
    assert isinstance(judged, InvalidTxnState)


def test_a_second_marker_changes_nothing_not_even_how_it_ended() -> None:
    partition = PartitionModel()
    partition.write(1)
    first = partition.end((1, False))
    partition.end((1, True))
    end = partition.state.transactions.end_of(1)
    assert end is not None
    assert (end.marker_end_offset, end.committed) == (first + 1, False)
    assert partition.state.transactions.aborted_within(0, 10) == [1]


@proves("TX.21")
def test_no_open_producer_is_dropped_for_silence_or_for_lack_of_room() -> None:
    state = ProducerState(max_producers=2)
    for producer_id in (1, 2):
        state.apply(header(producer_id, producer=(producer_id, 0, 0), transactional=True, timestamp_us=producer_id))
    for producer_id in (3, 4):
        state.apply(header(producer_id, producer=(producer_id, 0, 0), timestamp_us=producer_id))
    assert [state.entry(each) is not None for each in (1, 2, 3, 4)] == [True, True, False, False]
    assert state.expire(100) == 0
    state.apply(header(9, producer=(-1, -1, -1)))
    assert state.transactions.last_stable_offset(10) == 1


def test_the_ends_longest_ago_go_when_there_are_too_many_and_old_ones_expire() -> None:
    transactions = PartitionTransactions(max_ended=2)
    partition = PartitionModel()
    partition.state.transactions = transactions
    for producer_id in (1, 2, 3):
        partition.end((producer_id, True))
    assert [transactions.end_of(each) is not None for each in (1, 2, 3)] == [False, True, True]
    assert partition.state.expire(2000) == 1, "its marker is of 1000 us"
    assert transactions.end_of(2) is None


# -- what was aborted


@proves("TX.14")
@given(st.data())
def test_the_index_tells_what_a_scan_of_the_log_would(data: st.DataObject) -> None:
    """Any interleaving of producers and markers, any range below the last stable offset, from any log start."""
    partition = PartitionModel()
    ended: dict[int, bool] = {}
    for _ in range(data.draw(st.integers(0, 25))):
        producer_id = data.draw(st.integers(1, 6))
        live = [each for each in range(1, 7) if each not in ended]
        if bool(live) and data.draw(st.booleans()) and producer_id in live:
            partition.write(producer_id)
        elif live:
            chosen = data.draw(st.lists(st.sampled_from(live), min_size=1, max_size=3, unique=True))
            markers = [(each, data.draw(st.booleans())) for each in chosen]
            ended.update(markers)
            partition.end(*markers)
    stable = partition.stable()
    aborted = {each for each, committed in ended.items() if not committed}
    headers = [decode_header(one) for one in partition.batches]
    start = data.draw(st.integers(0, stable))
    partition.state.transactions.log_starts_at(start)
    copy = ProducerState()
    copy.restore(partition.state.snapshot())
    low = data.draw(st.integers(start, stable))
    high = data.draw(st.integers(low, stable))
    there = {each.producer_id for each in headers[low:high] if each.producer_id in aborted}
    for state in (partition.state, copy):
        told = state.transactions.aborted_within(low, high)
        assert there <= set(told) <= aborted
        assert len(told) == len(set(told))


def test_an_entry_of_an_earlier_transaction_aborted_later_has_its_first_batch_too() -> None:
    """A read of the first batch meets the other's entry before: that entry has to say that earlier ones follow."""
    partition = PartitionModel()
    partition.write(1)
    partition.write(2)
    partition.end((2, False))
    partition.write(1)
    partition.end((1, False))
    assert partition.state.transactions.aborted_within(0, 1) == [1]


@proves("TX.14")
def test_a_read_looks_no_further_than_its_range() -> None:
    partition = PartitionModel()
    for producer_id in range(1000):
        partition.write(producer_id)
        partition.end((producer_id, False))
    looked = []
    index = partition.state.transactions._aborted
    assert index is not None

    class Watched:
        def __init__(self, column: object) -> None:
            self.column = column

        def __getitem__(self, number: int) -> int:
            looked.append(number)
            return self.column[number]  # type: ignore[index, no-any-return]

    index.first_offsets = Watched(index.first_offsets)  # type: ignore[assignment]
    assert partition.state.transactions.aborted_within(1000, 1004) == [500, 501]
    assert len(looked) == 2


# -- on disk


def test_all_is_rebuilt_from_the_log_where_the_snapshot_is_old_or_damaged() -> None:
    files = MemoryDisk()
    log = open_log(files, settings=LogSettings(segment_bytes=300))
    partition = PartitionModel()
    partition.write(1)
    partition.write(2)
    partition.end((1, False))
    partition.write(3)
    for one in partition.batches:
        log.append(run_of([one]))
    log.flush()
    log.write_producer_snapshot(4, partition.state.snapshot())
    assert recover_producer_state(log) == partition.state
    files.remove(f"{DIRECTORY}/{4:020d}.snapshot")
    log.write_producer_snapshot(4, b"MLP1" + bytes(8))
    assert recover_producer_state(log) == partition.state


def test_a_stored_state_is_as_unstable_as_the_lower_high_watermark_of_the_next_life() -> None:
    partition = PartitionModel()
    partition.write(1)
    partition.end((1, True))
    assert partition.stable(2) == 2
    restarted = ProducerState()
    restarted.restore(partition.state.snapshot())
    assert restarted.transactions.last_stable_offset(1) == 0
    assert restarted.transactions.last_stable_offset(2) == 2


def test_a_control_batch_that_cannot_be_read_is_damage() -> None:
    one = batch(0, control=True, markers=[(7, True)])
    assert read_markers(one, decode_header(one)) == (Marker(7, True),)
    cut = bytearray(one)
    cut[72:76] = (3).to_bytes(4, "little")
    with pytest.raises(CorruptMessage, match="control batch at offset 0"):
        read_markers(bytes(cut), decode_header(one))


def test_a_snapshot_that_says_more_than_it_has_is_refused() -> None:
    with pytest.raises(CorruptFile, match="cannot have"):
        PartitionTransactions.from_snapshot((2**32 - 1).to_bytes(4, "little") * 8)


@proves("TX.14")
def test_retention_leaves_what_a_transaction_still_needs() -> None:
    log = open_log(MemoryDisk(), settings=LogSettings(segment_bytes=200, retention_bytes=0))
    for offset in range(10):
        log.append(run_of([batch(offset, payload=bytes(40))]))
    log.flush()
    log.set_high_watermark(10, 4)
    log.apply_retention(None)
    assert log.log_start_offset <= log.last_stable_offset == 4
    log.advance_log_start(9)
    assert log.log_start_offset == 4


@proves("TX.15")
def test_a_transaction_whose_marker_was_deleted_with_it_is_not_open_after_a_restart() -> None:
    """Its snapshot is older than what retention took: open there for ever, it would hold up every reader."""
    log = open_log(MemoryDisk(), settings=LogSettings(segment_bytes=200, retention_bytes=0))
    partition = PartitionModel()
    partition.write(7)
    partition.write(8, transactional=False)
    snapshot = partition.state.snapshot()
    partition.end((7, True))
    for _ in range(6):
        partition.write(8, transactional=False)
    for one in partition.batches:
        log.append(run_of([one]))
    log.flush()
    log.write_producer_snapshot(2, snapshot)
    log.set_high_watermark(9, partition.stable())
    log.apply_retention(None)
    assert log.log_start_offset > 3
    recovered = recover_producer_state(log)
    assert recovered.transactions.last_stable_offset(9) == 9
    assert recovered.transactions.open_count == 0
    assert recovered.entry(7) is None
    found, known = recovered.entry(8), partition.state.entry(8)
    assert found is not None
    assert known is not None
    assert found.next_sequence == known.next_sequence


@proves("TX.8")
def test_the_epochs_of_coordinators_and_what_is_forgotten_are_in_the_snapshot() -> None:
    transactions = PartitionTransactions(max_ended=1)
    for coordinator in (
        CoordinatorEpoch(3, 7),
        CoordinatorEpoch(3, 5),
        CoordinatorEpoch(0, 2),
        CoordinatorEpoch(16, 9),
    ):
        transactions.had_written(coordinator)
    assert transactions.forgotten is None
    for offset in (4, 6, 9):
        transactions.end([Finished(offset, committed=True, last_offset=NOTHING)], offset, offset + 1, 0)
    for each in (transactions, PartitionTransactions.from_snapshot(transactions.snapshot())):
        assert [each.coordinator_epoch(partition) for partition in (3, 0, 1, 16)] == [7, 2, -1, -1]
        assert each.forgotten == (4, 7)
