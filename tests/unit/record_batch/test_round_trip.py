"""What goes into a batch comes out of it: over all columns, nulls, compressions, slices and places."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from minilog.record_batch.builder import PAYLOAD_SCHEMA, build_batch, set_producer, split_columns
from minilog.record_batch.header import Attributes, decode_header
from minilog.record_batch.reader import READ_SCHEMA, read_payload, read_records
from minilog.record_batch.validation import validate_batch
from tests.unit.record_batch.batches import NOW_US, PARTITION, TOPIC_ID, at_offset, columns

_compressions = st.sampled_from(["none", "lz4", "zstd"])
_bounded = settings(max_examples=40, deadline=None)


def expected(given: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows a reader gets for `given`: no header list is an empty one."""
    stamp = pa.scalar(NOW_US, pa.timestamp("us", "UTC"))
    rows = pa.nulls(given.num_rows, PAYLOAD_SCHEMA.field("timestamp").type).fill_null(stamp)
    full = {name: given.column(name) for name in given.schema.names}
    full.setdefault("timestamp", rows)
    lists = {
        field.name: full[field.name].to_pylist() if field.name in full else [None] * given.num_rows
        for field in PAYLOAD_SCHEMA
    }
    lists["headers"] = [headers or None for headers in lists["headers"]]
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


@_bounded
@given(columns(), _compressions)
def test_a_batch_gives_back_its_records(given: pa.RecordBatch, compression: str) -> None:
    batch = build_batch(TOPIC_ID, PARTITION, given, compression=compression, timestamp_us=NOW_US)
    header = validate_batch(TOPIC_ID, PARTITION, batch, max_message_bytes=len(batch))
    records = read_payload(batch)
    assert records.schema == PAYLOAD_SCHEMA
    assert records.to_pylist() == expected(given)
    assert len(batch) % 8 == 0
    assert bool(header.attributes & Attributes.HAS_KEY) == (records.column("key").null_count < len(records))
    assert bool(header.attributes & Attributes.HAS_HEADERS) == (records.column("headers").null_count < len(records))


@_bounded
@given(columns(), _compressions, st.data())
def test_a_slice_is_built_like_a_batch_of_its_own(given: pa.RecordBatch, compression: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, given.num_rows - 1))
    part = given.slice(start, data.draw(st.integers(1, given.num_rows - start)))
    copied = pa.RecordBatch.from_pylist(part.to_pylist(), schema=part.schema)
    built = [
        build_batch(TOPIC_ID, PARTITION, form, compression=compression, timestamp_us=NOW_US) for form in (part, copied)
    ]
    assert read_payload(built[0]).to_pylist() == read_payload(built[1]).to_pylist() == expected(part)
    # Arrow cuts a slice out of its buffers, but for less than 64 bytes of each.
    assert abs(len(built[0]) - len(built[1])) < 64 * 6


@_bounded
@given(st.lists(columns(max_rows=6), min_size=1, max_size=4), _compressions, st.integers(0, 2**40), st.data())
def test_a_run_is_read_between_two_offsets(
    parts: list[pa.RecordBatch], compression: str, base_offset: int, data: st.DataObject
) -> None:
    run, rows, offset = b"", [], base_offset
    for part in parts:
        batch = build_batch(TOPIC_ID, PARTITION, part, compression=compression, timestamp_us=NOW_US)
        run += at_offset(batch, offset)
        rows += [{**row, "offset": offset + index} for index, row in enumerate(expected(part))]
        offset += part.num_rows
    start = data.draw(st.none() | st.integers(max(0, base_offset - 2), offset + 2))
    end = data.draw(st.none() | st.integers(max(0, base_offset - 2), offset + 2))
    found = read_records(run, TOPIC_ID, PARTITION, start_offset=start, end_offset=end)
    assert all(records.schema == READ_SCHEMA and records.num_rows for records in found)
    assert [row for records in found for row in records.to_pylist()] == [
        row for row in rows if (start is None or row["offset"] >= start) and (end is None or row["offset"] < end)
    ]


@_bounded
@given(columns(), _compressions, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1))
def test_a_restamped_batch_is_the_one_that_would_have_been_built(
    given: pa.RecordBatch, compression: str, producer_id: int, epoch: int, sequence: int
) -> None:
    plain = build_batch(TOPIC_ID, PARTITION, given, compression=compression, timestamp_us=NOW_US)
    stamped = set_producer(plain, TOPIC_ID, PARTITION, producer_id, epoch, sequence)
    assert stamped == build_batch(
        TOPIC_ID,
        PARTITION,
        given,
        compression=compression,
        timestamp_us=NOW_US,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    assert decode_header(stamped).producer_id == producer_id


@_bounded
@given(
    columns(max_rows=60), st.integers(1500, 3000), _compressions
)  # the largest row that is drawn makes a batch of about 1,000 bytes
def test_a_split_keeps_all_rows_in_order_and_its_bound(given: pa.RecordBatch, limit: int, compression: str) -> None:
    parts = split_columns(given, limit)
    assert [row for part in parts for row in part.to_pylist()] == given.to_pylist()
    for part in parts:
        build_batch(TOPIC_ID, PARTITION, part, compression=compression, max_bytes=limit, timestamp_us=NOW_US)
