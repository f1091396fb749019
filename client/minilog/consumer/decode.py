"""Makes Arrow batches (the schema of the Spark source) and records of runs. Pure. It works on the user's thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from minilog import compute as pc
from minilog.consumer.partition import FetchedRun
from minilog.errors import (
    CorruptMessage,
    NarrowSchemaVersion,
    ResourceExhausted,
    UnknownSchemaVersion,
    UnsupportedVersion,
)
from minilog.record_batch.reader import ReadBatch, RowsOf, iterate_records, offsets_of
from minilog.record_batch.schema import HEADERS, READ_SCHEMA, TIMESTAMP
from minilog.types import Record, RowDeletion

if TYPE_CHECKING:
    from minilog.typed.rows.reader import TypedSelection

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
# The decoder joins many batches that are smaller: one batch costs its reader as much as a copy of these bytes.
_SMALL_BYTES = 128 * 1024


Broken: TypeAlias = CorruptMessage | UnsupportedVersion | UnknownSchemaVersion | NarrowSchemaVersion
"""The error of a run that cannot be decoded. CorruptMessage: its bytes are damaged. UnsupportedVersion: a later version
of minilog wrote it. UnknownSchemaVersion: the client does not know its version of the schema yet. NarrowSchemaVersion:
its version of the schema has wider types than the reader."""
BROKEN = (CorruptMessage, UnsupportedVersion, UnknownSchemaVersion, NarrowSchemaVersion)

# The memory of one Record in Python beside its bytes: the object, its bytes objects, two numbers and a list.
RECORD_BYTES = 320


@dataclass(frozen=True, slots=True)
class Decoded:
    """The first rows of a run (READ_SCHEMA), their size in memory, and the rest of the run, which may begin in the
    middle of a batch."""

    rows: list[pa.RecordBatch]
    size_bytes: int
    rest: FetchedRun | None


def decode(run: FetchedRun, max_bytes: int, record_bytes: int = 0) -> Decoded:
    """The rows of a run, with its crc checked, batch by batch until they take `max_bytes`. Small batches are joined. A
    run of markers and aborted batches has no rows.

    This decodes at least one batch, and gives all its rows. If each row takes `record_bytes` beside its data, it gives
    only the rows that fit, and at least one. It raises the error of a batch only if that batch is the first. Otherwise
    it gives the rows before that batch. Raises CorruptMessage, ResourceExhausted, UnsupportedVersion.
    """
    batches_of_rows: list[pa.RecordBatch] = []
    size, batches, read = 0, _batches(run), ReadBatch(None, 0, run.start_offset, run.epoch_before)
    while size < max_bytes:
        try:
            following = next(batches, None)
        except (*BROKEN, ResourceExhausted):
            if not batches_of_rows:
                raise
            break
        if following is None:
            return Decoded(_joined(batches_of_rows, size), size, None)
        read = following
        if read.rows is None:
            continue
        rows, cost = _fitting(read.rows, max_bytes - size, record_bytes)
        batches_of_rows.append(rows)
        size += cost
        if rows.num_rows < read.rows.num_rows:
            return Decoded(_joined(batches_of_rows, size), size, _rest(run, read, read.rows.slice(rows.num_rows)))
    return Decoded(_joined(batches_of_rows, size), size, _rest(run, read, None))


def _batches(run: FetchedRun) -> Iterator[ReadBatch]:
    if isinstance(run.begun, pa.RecordBatch):
        yield ReadBatch(run.begun, 0, _offsets(run.begun)[-1].as_py() + 1, run.epoch_before)
    yield from iterate_records(
        run.batches,
        run.key.topic_id,
        run.key.partition,
        start_offset=run.start_offset,
        end_offset=run.end_offset,
        aborted_producer_ids=run.aborted_producer_ids,
        rows_of=_rows_of(run),
    )


def _rows_of(run: FetchedRun) -> RowsOf | None:
    if run.reader is not None:
        return run.reader.rows
    return offsets_of if run.headers_only else None


def _offsets(rows: pa.RecordBatch) -> pa.Array:
    """The offsets of rows: always the last column."""
    return rows.column(rows.num_columns - 1)


def _fitting(rows: pa.RecordBatch, max_bytes: int, record_bytes: int) -> tuple[pa.RecordBatch, int]:
    """The rows that fit, and their size in memory. Without `record_bytes` all rows fit."""
    cost = rows.nbytes + record_bytes * rows.num_rows
    if not record_bytes or cost <= max_bytes:
        return rows, cost
    fitting = rows.slice(0, max(1, rows.num_rows * max_bytes // cost))
    return fitting, fitting.nbytes + record_bytes * fitting.num_rows


def _rest(run: FetchedRun, read: ReadBatch, begun: pa.RecordBatch | None) -> FetchedRun | None:
    """The rest of the run behind `read`. `begun` has the remaining rows of `read`."""
    if begun is None and read.next_position == len(run.batches):
        return None
    return replace(
        run,
        start_offset=read.next_offset if begun is None else _offsets(begun)[0].as_py(),
        batches=run.batches[read.next_position :],
        epoch_before=read.leader_epoch,
        begun=begun,
    )


def _joined(batches: list[pa.RecordBatch], size_bytes: int) -> list[pa.RecordBatch]:
    if len(batches) > 1 and size_bytes < _SMALL_BYTES * len(batches):
        with contextlib.suppress(MemoryError):  # then they stay apart
            return [pc.concat_batches(batches)]
    return batches


DecodedRuns: TypeAlias = list[tuple[FetchedRun, list[pa.RecordBatch]]]


@dataclass(frozen=True, slots=True)
class DecodeOutcome:
    """The results of one poll's runs. `good` has the rows to hand out, and `corrupt` the broken runs. `rest` has the
    runs that were not decoded, in order, for the next poll. `lack` is the error if this process lacked memory or
    threads for them."""

    good: DecodedRuns
    corrupt: list[tuple[FetchedRun, Broken]]
    rest: list[FetchedRun]
    lack: ResourceExhausted | None = None


def decode_all(runs: Sequence[FetchedRun], max_bytes: int, record_bytes: int = 0) -> DecodeOutcome:
    """Decode runs in order until there are about `max_bytes` of rows. Runs behind a broken one of their partition do
    not count."""
    outcome = DecodeOutcome([], [], [])
    left_bytes = max_bytes
    for index, run in enumerate(runs):
        if any(run.partition == broken.partition for broken, _ in outcome.corrupt):
            continue
        if left_bytes <= 0:
            outcome.rest.append(run)
            continue
        try:
            decoded = decode(run, left_bytes, record_bytes)
        except BROKEN as error:
            outcome.corrupt.append((run, error))
            continue
        except ResourceExhausted as error:
            broken_partitions = {broken.partition for broken, _ in outcome.corrupt}
            rest = [other for other in runs[index:] if other.partition not in broken_partitions]
            return replace(outcome, rest=rest, lack=error)
        outcome.good.append((run, decoded.rows))
        left_bytes -= decoded.size_bytes
        if decoded.rest is not None:
            left_bytes = 0  # so no later run of this partition comes before the rest
            outcome.rest.append(decoded.rest)
    return outcome


def as_polled(run: FetchedRun, rows: pa.RecordBatch, *, include_headers: bool) -> pa.RecordBatch:
    """Rows of READ_SCHEMA as POLL_SCHEMA, or POLL_SCHEMA_WITH_HEADERS. Rows of a topic with a schema are as in
    `as_rows`."""
    if run.reader is not None:
        return as_rows(run, run.reader.selection, rows)
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


def timestamps_of(run: FetchedRun, rows: pa.RecordBatch) -> pa.Array:
    """The time stamps of rows, if the selection has them."""
    return rows.column("timestamp" if run.reader is None else "_timestamp")


def as_rows(run: FetchedRun, selection: TypedSelection, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The selected columns. If the selection has time stamps, also `_topic`, `_partition`, `_offset`, `_timestamp` and
    `_key`. If it has deletions, also `_deleted`."""
    columns = len(selection.columns)
    chosen = rows.select(list(range(columns)))
    count = rows.num_rows
    more = {name: rows.column(columns + place) for place, name in enumerate(rows.schema.names[columns:-1])}
    if selection.timestamps:
        more = {
            "_topic": pa.repeat(pa.scalar(run.partition.topic, pa.string()), count),
            "_partition": pa.repeat(pa.scalar(run.partition.partition, pa.int32()), count),
            "_offset": _offsets(rows),
            **more,
        }
    if not more:
        return chosen
    fields = [*chosen.schema, *(pa.field(name, values.type) for name, values in more.items())]
    return pa.RecordBatch.from_arrays([*chosen.columns, *more.values()], schema=pa.schema(fields))


def records(run: FetchedRun, rows: pa.RecordBatch) -> Iterator[Record]:
    """Rows of READ_SCHEMA as records, with time stamps in milliseconds."""
    if run.reader is None:
        yield from _records(run, rows)
        return
    selection = run.reader.selection
    deletions = rows.column(rows.num_columns - 2) if selection.deletions else None  # before the offsets
    if deletions is None or not deletions.true_count:
        yield from _records(run, _as_key_and_value(rows, len(selection.columns)))
    else:
        as_records = _records(run, _as_key_and_value(rows, len(selection.columns), deletions))
        yield from _with_deletions(as_records, rows, deletions, selection)


def _with_deletions(
    as_records: Iterator[Record], rows: pa.RecordBatch, deletions: pa.BooleanArray, selection: TypedSelection
) -> Iterator[Record]:
    from minilog.typed.rows.as_json import rows_as_json  # as in _as_key_and_value

    keys = [selection.columns.index(name) for name in selection.schema.key_columns]
    key_columns = iter(rows_as_json(rows.select(keys).filter(deletions)))
    for record, is_deletion in zip(as_records, deletions.to_pylist(), strict=True):
        yield RowDeletion.of(record, next(key_columns)) if is_deletion else record


def _records(run: FetchedRun, rows: pa.RecordBatch) -> Iterator[Record]:
    topic, partition = run.partition.topic, run.partition.partition
    milliseconds = rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    headers = rows.column("headers")
    every_header = [None] * rows.num_rows if headers.null_count == rows.num_rows else headers.to_pylist()
    columns = (rows.column("offset"), milliseconds, rows.column("key"), rows.column("value"))
    for offset, timestamp, key, value, entries in zip(*(c.to_pylist() for c in columns), every_header, strict=True):
        pairs = [(entry["key"], entry["value"]) for entry in entries] if entries else []
        yield Record(topic, partition, offset, timestamp, key, value, pairs)


def _as_key_and_value(rows: pa.RecordBatch, columns: int, deletions: pa.BooleanArray | None = None) -> pa.RecordBatch:
    """Typed rows as keys and values. The value is the row as JSON, and null for a deletion."""
    from minilog.typed.rows.as_json import (
        rows_as_json,  # it loads minilog.typed, which only a topic with a schema needs
    )

    values = pa.array(rows_as_json(rows.select(list(range(columns)))), pa.binary())
    if deletions is not None:
        values = pc.if_else(deletions, pa.scalar(None, pa.binary()), values)
    by_name = dict(zip(rows.schema.names[columns:], rows.columns[columns:], strict=True))
    arrays = [by_name["_key"], values, by_name["_timestamp"], by_name["_headers"], by_name["_offset"]]
    return pa.RecordBatch.from_arrays(arrays, schema=READ_SCHEMA)
