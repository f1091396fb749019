"""Batches without some of their records: each record that stays keeps its offset, and each offset is in one batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import CorruptMessage, LevelNotReached
from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import assemble, build_batch
from minilog.record_batch.compaction import compacted_batch, compressed_batch
from minilog.record_batch.gaps import gap_batch, joined_gap_batch
from minilog.record_batch.header import (
    HEADER_BYTES,
    Attributes,
    check_attributes_of_level,
    check_crc,
    decode_header,
)
from minilog.record_batch.reader import iterate_records, offsets_of, read_payload, read_records
from minilog.record_batch.schema import payload_schema
from minilog_broker.replication.sessions.scanner import HeaderScanner
from tests.unit.record_batch.batches import NOW_US, PARTITION, TOPIC_ID, at_offset, columns, full_batch, full_columns

BASE = 40


def without(batch: bytes, kept: list[bool]) -> bytes:
    return compacted_batch(TOPIC_ID, PARTITION, batch, decode_header(batch), pa.array(kept, pa.bool_()))


def read(run: bytes, **bounds: int) -> list[dict[str, Any]]:
    return [row for rows in read_records(run, TOPIC_ID, PARTITION, **bounds) for row in rows.to_pylist()]


def test_offsets_alone_are_those_of_the_records_that_are_left_and_headers_do_not_tell_them() -> None:
    compacted = without(at_offset(full_batch(4), BASE), [True, False, True, True])
    gap = without(at_offset(full_batch(3), BASE + 4), [False] * 3)
    run = compacted + gap + at_offset(full_batch(2), BASE + 7)
    cut = HeaderScanner().scan(PartitionKey(TOPIC_ID, PARTITION), run, 1 << 30).batches
    assert cut[: len(compacted + gap)] == compacted + gap
    for batches in (run, cut):
        rows = read_records(batches, TOPIC_ID, PARTITION, rows_of=offsets_of, start_offset=BASE + 1)
        assert [offset for part in rows for offset in part.column("offset").to_pylist()] == [42, 43, 47, 48]


def with_deltas(deltas: list[int | None]) -> bytes:
    """A batch of records whose offset deltas no compaction writes; ten offsets."""
    header = decode_header(without(at_offset(full_batch(), BASE), [row < len(deltas) for row in range(10)]))
    records = full_columns(len(deltas))
    schema = payload_schema(header.attributes)
    names = [name for name in schema.names if name != "offset_delta"]
    arrays = [*(records.column(name).cast(schema.field(name).type) for name in names), pa.array(deltas, pa.int32())]
    return compressed_batch(TOPIC_ID, PARTITION, header, b"", pa.RecordBatch.from_arrays(arrays, schema=schema), "none")


@given(columns(), st.sampled_from(["none", "lz4", "zstd"]), st.data())
def test_records_that_stay_keep_their_offsets_and_all_that_they_have(
    given_columns: pa.RecordBatch, compression: str, data: st.DataObject
) -> None:
    batch = at_offset(
        build_batch(TOPIC_ID, PARTITION, given_columns, compression=compression, timestamp_us=NOW_US), BASE
    )
    rows = given_columns.num_rows
    kept = data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    start, end = (BASE + data.draw(st.integers(0, rows)) for _ in range(2))
    expected = [row for row, is_kept in zip(read(batch), kept, strict=True) if is_kept]
    compacted = without(batch, kept)
    header = decode_header(compacted)
    check_crc(TOPIC_ID, PARTITION, compacted, header)
    assert (header.base_offset, header.next_offset, header.partition_leader_epoch) == (BASE, BASE + rows, 7)
    assert read(compacted) == expected
    assert read(compacted, start_offset=start, end_offset=end) == [
        row for row in expected if start <= row["offset"] < end
    ]
    once_more = data.draw(st.lists(st.booleans(), min_size=len(expected), max_size=len(expected)))
    if expected:
        stamps = (
            pa.array([row["timestamp"] for row in expected], pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        )
        assert (header.base_timestamp_us, header.max_timestamp_us) == (stamps[0], max(stamps))
        left = [row for row, is_kept in zip(expected, once_more, strict=True) if is_kept]
        assert read(without(compacted, once_more)) == left


def test_a_batch_keeps_its_producer_and_its_sequence() -> None:
    batch = at_offset(full_batch(producer_id=9, producer_epoch=2, base_sequence=30, transactional=True), BASE)
    for kept in ([True] * 3 + [False] * 7, [False] * 10):
        header = decode_header(without(batch, kept))
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 30)
        assert (header.last_offset_delta, header.record_count, header.is_transactional) == (9, sum(kept), True)


def test_a_gap_batch_is_a_header_and_gives_no_record() -> None:
    gap = without(at_offset(full_batch(), BASE), [False] * 10)
    assert len(gap) == HEADER_BYTES
    (read_batch,) = iterate_records(gap, TOPIC_ID, PARTITION)
    assert (read_batch.rows, read_batch.next_offset) == (None, BASE + 10)
    with pytest.raises(CorruptMessage, match="gap"):
        read_payload(gap)


def test_gap_batches_join_to_one_that_names_no_producer() -> None:
    first, last = (
        decode_header(at_offset(full_batch(producer_id=9, producer_epoch=0, base_sequence=0), offset))
        for offset in (BASE, BASE + 25)
    )
    gap = joined_gap_batch(TOPIC_ID, PARTITION, first, last)
    header = decode_header(gap)
    check_crc(TOPIC_ID, PARTITION, gap, header)
    assert (header.base_offset, header.next_offset, header.producer_id) == (BASE, BASE + 35, -1)
    assert next(iter(iterate_records(gap, TOPIC_ID, PARTITION))).rows is None


@pytest.mark.parametrize(
    "deltas",
    [[3, 3], [4, 3], [-1, 3], [3, 10], [3, None], [10]],
    ids=["twice", "back", "below", "above", "null", "end"],
)
def test_offset_deltas_that_cannot_be_are_damage(deltas: list[int | None]) -> None:
    with pytest.raises(CorruptMessage, match="offset deltas"):
        read(with_deltas(deltas))


def test_a_batch_whose_deltas_are_missing_is_damage() -> None:
    batch = at_offset(full_batch(), BASE)
    header = decode_header(batch)
    claimed = decode_header(gap_batch(TOPIC_ID, PARTITION, header))
    for attributes, count in ((header.attributes | claimed.attributes, 10), (claimed.attributes, 10)):
        forged = assemble(
            TOPIC_ID,
            PARTITION,
            replace(header, attributes=attributes, record_count=count),
            memoryview(batch)[HEADER_BYTES:],
        )
        with pytest.raises(CorruptMessage, match="columns and buffers"):
            read(forged)


def test_gaps_are_written_from_level_6_on() -> None:
    header = decode_header(without(at_offset(full_batch(), BASE), [True] + [False] * 9))
    check_attributes_of_level(header, 6)
    with pytest.raises(LevelNotReached, match=f"attributes {header.attributes:#x}"):
        check_attributes_of_level(header, 5)
    assert header.attributes & Attributes.GAPS
