"""The rules of compaction one by one, over logs of keys and values (docs/spec/formats.md § Compaction)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from minilog.errors import CorruptMessage
from minilog.record_batch.builder import build_control_batch
from minilog.record_batch.gaps import gap_batch
from minilog.record_batch.header import HEADER_BYTES, decode_header
from minilog.v1 import records_pb2
from minilog_broker.storage.compaction.newest_offsets import NewestOffsetsBuilder
from minilog_broker.storage.compaction.removals import RemovalSearch
from minilog_broker.storage.compaction.rewrite import rewritten_batches
from minilog_broker.storage.compaction.stored_batches import MAX_LAST_OFFSET_DELTA
from minilog_broker.storage.markers import read_markers
from minilog_broker.storage.producer_state import ProducerState
from tests.rules import proves
from tests.unit.record_batch.batches import NOW_US, at_offset, patched
from tests.unit.storage.compaction.keyed_logs import (
    KEY,
    LARGE_BUFFER_BYTES,
    UNTYPED,
    KeyedLog,
    cleaned,
    headers,
    newest_offsets,
    read,
    stored,
)

pytestmark = proves("SPS.16")


def offsets(batches: list[bytes]) -> list[int]:
    return [row["offset"] for row in read(batches)]


def all_of(log: KeyedLog, deletes_before: int = 0) -> list[bytes]:
    return cleaned(log.batches, log.end, aborted=log.aborted, dirty_from=log.start, deletes_before=deletes_before)


# -- which records stay


def test_the_table_has_the_newest_offset_of_each_key_and_no_record_without_a_key() -> None:
    log = KeyedLog(start=10)
    log.write([(b"a", b"1"), (None, b"2"), (b"b", b"3")])
    log.write([(b"a", b"4"), (b"", None)], compression="lz4")
    log.write([(None, b"5")])
    newest = newest_offsets(UNTYPED, stored(log.batches), 10, set())
    table = dict(zip(newest.keys.to_pylist(), newest.offsets.to_pylist(), strict=True))
    assert table == {b"a": 13, b"b": 12, b"": 14}
    assert newest.end_offset == 16


def test_a_record_without_a_key_stays() -> None:
    log = KeyedLog()
    log.write([(None, b"1"), (None, None), (b"a", b"1")])
    log.write([(None, b"1"), (b"a", b"2")])
    assert offsets(all_of(log, deletes_before=9)) == [0, 1, 3, 4]


def test_a_key_below_the_dirty_range_is_looked_up() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1"), (b"b", b"1")])
    log.write([(b"a", b"2")])
    after = cleaned(log.batches, log.end, aborted=set(), dirty_from=2)
    assert offsets(after) == [1, 2]


def test_a_record_from_the_end_of_the_table_on_stays_and_so_does_its_older_one() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1")])
    log.write([(b"a", b"2")])
    assert cleaned(log.batches, 1, aborted=set(), deletes_before=5) == log.batches


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(("deletes_before", "left"), [(1, [1]), (2, [])])
def test_a_deletion_stays_until_it_is_below_deletes_before(
    compression: str, deletes_before: int, left: list[int]
) -> None:
    log = KeyedLog()
    log.write([(b"a", b"1" * 200)], compression=compression)
    log.write([(b"a", None)], compression=compression)
    assert offsets(all_of(log, deletes_before)) == left


def test_deletions_of_one_batch_expire_one_by_one() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1"), (b"b", None), (b"c", None), (None, None)])
    assert offsets(all_of(log, deletes_before=2)) == [0, 2, 3]


def test_a_deletion_that_expired_does_not_bring_an_older_value_back() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1"), (b"b", b"1")])
    log.write([(b"b", b"2")])
    log.write([(b"a", None)])
    for buffer_bytes in (0, LARGE_BUFFER_BYTES):
        after = cleaned(log.batches, log.end, aborted=set(), deletes_before=log.end, buffer_bytes=buffer_bytes)
        assert offsets(after) == [2]


def test_an_aborted_record_neither_stays_nor_supersedes() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1")])
    log.write([(b"a", b"2")], producer_id=9, transactional=True)
    log.write([(b"a", b"3")], producer_id=8, transactional=True)
    log.mark(9, committed=False)
    log.mark(8, committed=True)
    log.write([(b"a", None)], producer_id=7, transactional=True)
    log.mark(7, committed=False)
    assert offsets(all_of(log)) == [2]


def test_a_batch_with_gaps_in_the_dirty_range_is_cleaned_again() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    log.write([(b"a", b"2")])
    log.batches = all_of(log)
    assert offsets(log.batches) == [1, 2, 3]
    log.write([(b"c", b"2")])
    assert offsets(all_of(log)) == [1, 3, 4]


# -- markers


def test_a_marker_goes_when_its_records_are_gone_and_deletes_before_has_passed_it() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1"), (b"b", b"1")], producer_id=9, transactional=True)
    log.mark(9, committed=True)
    log.write([(b"a", b"2")])
    assert [header.is_control for header in headers(all_of(log, deletes_before=9))] == [False, True, False]
    log.write([(b"b", b"2")])
    assert [header.is_control for header in headers(all_of(log, deletes_before=2))] == [False, True, False, False]
    (gap, *_) = headers(all_of(log, deletes_before=3))
    assert (gap.base_offset, gap.next_offset, gap.producer_id, gap.is_transactional) == (0, 3, -1, False)


def test_a_control_batch_of_several_markers_waits_for_all_of_them() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1")], producer_id=9, transactional=True)
    log.write([(b"b", b"1")], producer_id=8, transactional=True)
    log.mark(8, 9, committed=True)
    log.write([(b"a", b"2")])
    assert sum(header.is_control for header in headers(all_of(log, deletes_before=9))) == 1


def test_a_control_batch_without_markers_stays() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1")])
    content = records_pb2.ControlRecord(leader_change=records_pb2.LeaderChangeRecord())
    control = build_control_batch(*KEY, content.SerializeToString(), timestamp_us=NOW_US)
    log.batches.append(at_offset(control, log.end, log.epoch))
    assert all_of(log, deletes_before=9) == log.batches


def test_a_log_that_is_read_again_has_no_transaction_open() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1")], producer_id=9, transactional=True)
    log.write([(b"b", b"1")], producer_id=8, transactional=True)
    log.write([(b"b", b"2")], producer_id=8, transactional=True)
    log.mark(9, committed=True)
    log.mark(8, committed=False)
    log.write([(b"a", b"2")])
    for deletes_before in (0, log.end):
        state = ProducerState()
        for header, batch in stored(all_of(log, deletes_before)):
            state.apply(header, read_markers(batch, header) if header.is_control else ())
        assert not state.transactions.open_count
        assert state.transactions.last_stable_offset(log.end) == log.end


def test_a_stored_gap_batch_of_a_transaction_loses_its_producer() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1")], producer_id=9, transactional=True)
    log.batches[0] = gap_batch(*KEY, decode_header(log.batches[0]))
    log.mark(9, committed=True)
    assert decode_header(log.batches[0]).is_transactional
    assert [header.producer_id for header in headers(all_of(log))] == [-1, -1]


# -- the batches


def test_gap_batches_join_with_the_latest_time_stamp_of_all() -> None:
    log = KeyedLog()
    for _ in range(4):
        log.write([(b"a", b"1"), (b"a", b"2")])
    before = headers(log.batches)[:3]
    gap = headers(all_of(log))[0]
    assert (gap.base_offset, gap.next_offset) == (0, 6)
    assert gap.max_timestamp_us == max(header.max_timestamp_us for header in before)


def test_gap_batches_of_two_leader_epochs_stay_two() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1")])
    log.epoch += 1
    log.write([(b"a", b"2")])
    log.write([(b"a", b"3")])
    log.write([(b"a", b"4")])
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers(all_of(log))] == [
        (0, 3),
        (1, 4),
        (3, 4),
    ]


def test_a_lone_gap_batch_keeps_its_producer() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1")], producer_id=9)
    log.write([(b"a", b"2")])
    gap = headers(all_of(log))[0]
    assert (gap.record_count, gap.producer_id, gap.base_sequence, gap.length) == (0, 9, 0, HEADER_BYTES)


def test_a_joined_gap_batch_has_no_more_offsets_than_an_int32_counts() -> None:
    half = MAX_LAST_OFFSET_DELTA // 2 + 1
    log = KeyedLog()
    log.write([(b"a", b"1")])
    first = decode_header(log.batches[0])
    wide = [
        gap_batch(*KEY, replace(first, base_offset=number * half, last_offset_delta=half - 1)) for number in range(3)
    ]
    after = cleaned(wide, 3 * half, aborted=set())
    assert [(header.base_offset, header.next_offset) for header in headers(after)] == [
        (0, 2 * half),
        (2 * half, 3 * half),
    ]


def test_the_search_says_nothing_of_a_part_that_stays_as_it_is() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1")])
    log.write([(b"b", b"1"), (b"b", b"2")])
    run = stored(log.batches)
    search = RemovalSearch(UNTYPED, newest_offsets(UNTYPED, run, 0, set()), set(), 0, log_start_offset=0)
    assert search.search(run[:1]) == {}
    removals = search.search(run[1:])
    assert {offset: is_kept.to_pylist() for offset, is_kept in removals.items() if is_kept is not None} == {
        1: [False, True]
    }


# -- the buffer


def test_a_table_that_is_full_ends_with_a_batch() -> None:
    log = KeyedLog()
    for number in range(50):
        log.write([(b"key-%d" % number, b"v"), (b"again", b"v")])
    run = stored(log.batches)
    newest = newest_offsets(UNTYPED, run, 0, set(), buffer_bytes=400)
    assert newest.end_offset in log.boundaries()
    assert 0 < newest.end_offset < log.end
    assert 300 <= newest.nbytes <= 450


def test_a_table_takes_in_one_batch_however_small_the_buffer_is() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1")])
    log.write([(b"b", b"1")])
    builder = NewestOffsetsBuilder(UNTYPED, 0, set(), 0)
    was_full = builder.is_full
    builder.add(*stored(log.batches)[0])
    assert (was_full, builder.is_full) == (False, True)
    assert builder.build().end_offset == 1


def test_keys_of_few_values_do_not_fill_the_buffer() -> None:
    log = KeyedLog()
    for _ in range(100):
        log.write([(b"a", b"1"), (b"b", b"1")])
    newest = newest_offsets(UNTYPED, stored(log.batches), 0, set(), buffer_bytes=400)
    assert newest.end_offset == log.end


# -- damage


def test_a_damaged_batch_gets_no_new_checksum() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1"), (b"b", b"1")])
    log.write([(b"a", b"2")])
    run = stored(log.batches)
    newest = newest_offsets(UNTYPED, run, 0, set())
    removals = RemovalSearch(UNTYPED, newest, set(), 0, log_start_offset=0).search(run)
    damaged = patched(log.batches[0], len(log.batches[0]) - 8, "B", 77)
    again = [(decode_header(damaged), damaged), *run[1:]]
    with pytest.raises(CorruptMessage, match="crc"):
        list(rewritten_batches(UNTYPED, again, removals))
    with pytest.raises(CorruptMessage, match="crc"):
        newest_offsets(UNTYPED, again, 0, set())
    later = newest_offsets(UNTYPED, run[1:], 2, set())
    with pytest.raises(CorruptMessage, match="crc"):
        RemovalSearch(UNTYPED, later, set(), 0, log_start_offset=0).search(again)


def test_a_batch_that_is_left_out_is_noticed() -> None:
    log = KeyedLog()
    for _ in range(3):
        log.write([(b"a", b"1")])
    run = stored(log.batches)
    newest = newest_offsets(UNTYPED, run, 0, set())
    holed = [run[0], run[2]]
    with pytest.raises(CorruptMessage, match="where 1 follows"):
        newest_offsets(UNTYPED, holed, 0, set())
    with pytest.raises(CorruptMessage, match="where 1 follows"):
        RemovalSearch(UNTYPED, newest, set(), 0, log_start_offset=0).search(holed)
    with pytest.raises(CorruptMessage, match="where 1 follows"):
        list(rewritten_batches(UNTYPED, holed, {}))
    with pytest.raises(CorruptMessage, match="where 1 follows"):
        NewestOffsetsBuilder(UNTYPED, 1, set(), 1).add(*run[2])


def test_a_log_start_within_a_batch_keeps_the_batch() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    log.write([(b"b", b"2")])
    run = stored(log.batches)
    newest = newest_offsets(UNTYPED, run, 1, set())
    removals = RemovalSearch(UNTYPED, newest, set(), 0, log_start_offset=1).search(run)
    after = [bytes(batch) for _, batch in rewritten_batches(UNTYPED, run, removals)]
    assert offsets(after) == [0, 2, 3]


def test_keys_read_of_a_batch_do_not_keep_it_in_memory() -> None:
    log = KeyedLog()
    log.write([(b"a", b"1" * 10_000)])
    ((header, batch),) = stored(log.batches)
    records = UNTYPED.read(header, batch)
    assert records is not None
    start = pa.py_buffer(batch).address
    of_keys = [buffer.address for buffer in records.keys.buffers() if buffer is not None]
    assert not any(start <= address < start + len(batch) for address in of_keys)
