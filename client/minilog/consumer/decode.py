"""Runs into Arrow batches (the schema of the Spark source) and into records. Pure; runs on the user's thread."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from minilog.consumer.partition import Run
from minilog.record_batch.reader import read_records
from minilog.record_batch.schema import HEADERS, TIMESTAMP
from minilog.types import Record

POLL_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),  # 0: create time
    ]
)
POLL_SCHEMA_WITH_HEADERS = POLL_SCHEMA.append(pa.field("headers", HEADERS))
# Many batches smaller than this are joined: a batch costs its reader as much as copying these bytes.
_SMALL_BYTES = 128 * 1024


def decode(run: Run) -> list[pa.RecordBatch]:
    """The rows of a run as READ_SCHEMA, crc checked; small batches are joined. None where the run has only markers and
    what was aborted. Raises CorruptMessage."""
    found = read_records(
        run.batches,
        run.key.topic_id,
        run.key.partition,
        start_offset=run.start_offset,
        end_offset=run.end_offset,
        aborted_producer_ids=run.aborted_producer_ids,
    )
    if len(found) > 1 and len(run.batches) < _SMALL_BYTES * len(found):
        return [pa.concat_batches(found)]
    return found


def as_polled(run: Run, rows: pa.RecordBatch, *, include_headers: bool) -> pa.RecordBatch:
    """Rows of READ_SCHEMA as POLL_SCHEMA, or POLL_SCHEMA_WITH_HEADERS."""
    count = rows.num_rows
    arrays = [
        rows.column("key"),
        rows.column("value"),
        pa.repeat(pa.scalar(run.partition.topic, pa.string()), count),
        pa.repeat(pa.scalar(run.partition.partition, pa.int32()), count),
        rows.column("offset"),
        rows.column("timestamp"),
        pa.repeat(pa.scalar(0, pa.int32()), count),
    ]
    if include_headers:
        return pa.RecordBatch.from_arrays([*arrays, rows.column("headers")], schema=POLL_SCHEMA_WITH_HEADERS)
    return pa.RecordBatch.from_arrays(arrays, schema=POLL_SCHEMA)


def records(run: Run, rows: pa.RecordBatch) -> Iterator[Record]:
    """Rows of READ_SCHEMA as records; timestamps in milliseconds."""
    topic, partition = run.partition.topic, run.partition.partition
    milliseconds = rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    headers = rows.column("headers")
    every_header = [None] * rows.num_rows if headers.null_count == rows.num_rows else headers.to_pylist()
    columns = (rows.column("offset"), milliseconds, rows.column("key"), rows.column("value"))
    for offset, timestamp, key, value, entries in zip(*(c.to_pylist() for c in columns), every_header, strict=True):
        pairs = [(entry["key"], entry["value"]) for entry in entries] if entries else []
        yield Record(topic, partition, offset, timestamp, key, value, pairs)
