"""From the bytes of record batches to Arrow: without a copy where the payload is not compressed.

The reader first checks bytes from a peer within bounds (`arrow_metadata`). Then Arrow reads them with the fixed schema.
Then it validates them in full (offsets, UTF-8; some µs per 10,000 records), so that no later access can leave the
buffers. Wrong bytes raise CorruptMessage. ResourceExhausted means that this process has too little memory or too few
threads, and nothing about the bytes. The returned columns point into the buffer that they were read from, and keep it
alive.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from minilog import compute as pc
from minilog.errors import CorruptMessage, ResourceExhausted
from minilog.record_batch.arrow_metadata import ArrowMessage, read_arrow_metadata
from minilog.record_batch.gaps import records_between
from minilog.record_batch.header import (
    HEADER_BYTES,
    Attributes,
    BatchHeader,
    Buffer,
    check_crc,
    decode_header,
    iterate_headers,
)
from minilog.record_batch.schema import (
    MAX_BATCH_BYTES,
    MAX_MESSAGE_BYTES,
    PAYLOAD_SCHEMA,
    READ_SCHEMA,
    payload_schema,
    uncompressed_limit,
)

__all__ = ["PAYLOAD_SCHEMA", "READ_SCHEMA", "offsets_of", "read_control", "read_payload", "read_records"]

_CONTROL_LENGTH = struct.Struct("<I")
_CODECS = {0: "none", Attributes.LZ4: "lz4", Attributes.ZSTD: "zstd"}
# Arrow nodes and buffers of the columns: binary 1 and 3, timestamp 1 and 2, list<struct<string, binary>> 4 and 9.
_SHAPES = {0: (2, 5), 1: (3, 8), 2: (6, 14), 3: (7, 17)}
_GAPS_SHAPE = (1, 2)  # offset_delta besides
MAX_BUFFERS = 19
_MOST_RECORDS = MAX_BATCH_BYTES // 4  # a value takes four bytes at least: where it ends


def read_payload(
    batch: Buffer, header: BatchHeader | None = None, *, max_message_bytes: int = MAX_MESSAGE_BYTES
) -> pa.RecordBatch:
    """The records of one data batch, as PAYLOAD_SCHEMA; a column that the batch leaves out is all null.

    The crc is not checked here. Raises CorruptMessage where the payload is not what the header says, is not valid
    Arrow, or (seen before anything is decompressed) would take more than `uncompressed_limit` allows under
    `max_message_bytes`; ResourceExhausted where this process lacks what it takes.
    """
    header = header or decode_header(batch)
    decoded = read_stored(batch, header, max_message_bytes)
    return pa.RecordBatch.from_arrays(_all_columns(decoded), schema=PAYLOAD_SCHEMA)


def read_stored(batch: Buffer, header: BatchHeader, max_message_bytes: int = MAX_MESSAGE_BYTES) -> pa.RecordBatch:
    """The columns that the payload of one data batch has, as its attributes say (`payload_schema`). Raises as
    read_payload."""
    payload = _payload(batch, header)
    _check_message(payload, header, max_message_bytes)
    with arrow_errors(header):
        decoded = pa.ipc.read_record_batch(pa.py_buffer(payload), payload_schema(header.attributes))
        decoded.validate(full=True)
    return decoded


def _all_columns(decoded: pa.RecordBatch) -> list[pa.Array]:
    return [
        decoded.column(field.name) if field.name in decoded.schema.names else pa.nulls(decoded.num_rows, field.type)
        for field in PAYLOAD_SCHEMA
    ]


@contextmanager
def arrow_errors(header: BatchHeader) -> Iterator[None]:
    """What Arrow raises over the payload, told apart: Arrow calls bytes that are wrong invalid, and its codecs, which
    read memory and nothing else, have an OSError without an errno for them. All else is this process's own want."""
    where = f"the record batch at offset {header.base_offset}"
    try:
        yield
    except (pa.ArrowException, MemoryError, OSError, RuntimeError) as error:
        if isinstance(error, pa.ArrowInvalid) or (isinstance(error, OSError) and error.errno is None):
            raise CorruptMessage(f"the payload of {where} is not valid: {error}") from error
        raise ResourceExhausted(
            f"{where}, of {header.length} bytes, could not be decoded, since this process has too little memory or too "
            f"few threads ({error or type(error).__name__}): the batch is not damaged. Give this process more, or let "
            "it read less at a time (max.poll.bytes), and try again"
        ) from error


def read_control(batch: Buffer, header: BatchHeader | None = None) -> bytes:
    """The serialized ControlRecord of one control batch. Raises CorruptMessage where it is none or is cut."""
    header = header or decode_header(batch)
    payload = _whole_payload(batch, header)
    if not header.is_control:
        raise CorruptMessage(f"the record batch at offset {header.base_offset} is no control batch")
    start = _CONTROL_LENGTH.size
    length = _CONTROL_LENGTH.unpack_from(payload)[0] if len(payload) >= start else len(payload)
    if start + length > len(payload):
        raise CorruptMessage(f"the control batch at offset {header.base_offset} has a record that is cut")
    return bytes(payload[start : start + length])


RowsOf: TypeAlias = Callable[[Buffer, BatchHeader, int, int], pa.RecordBatch | None]
"""The rows of a batch with offsets in [first, end), their offsets in the last column; None where none is wanted."""


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """One batch of a run, read: `rows` of READ_SCHEMA, None where nothing of it is wanted; and what lies behind it."""

    rows: pa.RecordBatch | None
    next_position: int
    next_offset: int
    leader_epoch: int | None


def read_records(run: Buffer, topic_id: bytes, partition: int, **wanted: Any) -> list[pa.RecordBatch]:
    """The records of all of `run`: see iterate_records."""
    return [records.rows for records in iterate_records(run, topic_id, partition, **wanted) if records.rows is not None]


def iterate_records(
    run: Buffer,
    topic_id: bytes,
    partition: int,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    aborted_producer_ids: AbstractSet[int] = frozenset(),
    check_crc: bool = True,
    rows_of: RowsOf | None = None,
) -> Iterator[ReadBatch]:
    """The batches of `run`, whole ones back to back, each decoded when it is asked for and not before.

    `rows_of` reads a batch: without it as records, of READ_SCHEMA.

    Control batches are skipped, and transactional ones of `aborted_producer_ids`, their payload not looked at; only
    offsets in [start_offset, end_offset) are given. The crc is checked before anything of a batch is believed, so that
    damage is never taken for a batch to skip. Raises CorruptMessage, ResourceExhausted.
    """
    view = memoryview(run)
    for position, header in iterate_headers(view):
        batch = view[position : position + header.length]
        if check_crc:
            _check_crc(topic_id, partition, batch, header)
        first = max(header.base_offset, start_offset or 0)
        end = header.next_offset if end_offset is None else min(header.next_offset, end_offset)
        rows = None
        has_records = header.record_count and not header.is_control and not header.is_aborted(aborted_producer_ids)
        if has_records and first < end:
            rows = (rows_of or _records_of)(batch, header, first, end)
        yield ReadBatch(rows, position + header.length, header.next_offset, header.partition_leader_epoch)


def _records_of(batch: Buffer, header: BatchHeader, first: int, end: int) -> pa.RecordBatch | None:
    decoded = read_stored(batch, header)
    with arrow_errors(header):
        records, offsets = records_between(decoded, header, first, end)
        rows = pa.RecordBatch.from_arrays([*_all_columns(records), offsets], schema=READ_SCHEMA)
    return rows if rows.num_rows else None


def offsets_of(batch: Buffer, header: BatchHeader, first: int, end: int) -> pa.RecordBatch | None:
    """The offsets alone of the records of a data batch, as its header tells them: its payload may have been left out.
    Where compaction has left gaps in the batch, the payload tells them. For `iterate_records`. Raises CorruptMessage,
    ResourceExhausted."""
    if header.has_gaps:
        rows = _records_of(batch, header, first, end)
        return None if rows is None else rows.select(["offset"])
    _check_records(header)
    if header.record_count > _MOST_RECORDS:
        raise CorruptMessage(
            f"the header of the batch at offset {header.base_offset} gives {header.record_count} records, at most "
            f"{_MOST_RECORDS} fit into a batch"
        )
    with arrow_errors(header):
        return pa.RecordBatch.from_arrays([pc.arange(first, end)], names=["offset"])


_check_crc = check_crc  # `iterate_records` has an argument of that name


def _whole_payload(batch: Buffer, header: BatchHeader) -> memoryview:
    if header.length != len(batch):
        raise CorruptMessage(
            f"the header of a batch at offset {header.base_offset} gives {header.length} bytes, {len(batch)} are there"
        )
    return memoryview(batch)[HEADER_BYTES:]


def _payload(batch: Buffer, header: BatchHeader) -> memoryview:
    """The Arrow message of a data batch of attributes that can be read."""
    payload = _whole_payload(batch, header)
    _check_records(header)
    return payload


def _check_records(header: BatchHeader) -> None:
    if header.attributes & (Attributes.CONTROL | Attributes.TYPED) or not header.record_count:
        raise CorruptMessage(
            f"the record batch at offset {header.base_offset} has attributes {header.attributes:#x} and "
            f"{header.record_count} records: a control, gap or typed batch, which is not read as records"
        )


def _check_message(payload: memoryview, header: BatchHeader, max_message_bytes: int) -> None:
    nodes, buffers = _SHAPES[header.attributes & (Attributes.HAS_KEY | Attributes.HAS_HEADERS)]
    if header.has_gaps:
        nodes, buffers = nodes + _GAPS_SHAPE[0], buffers + _GAPS_SHAPE[1]
    check_message(payload, header, (nodes, buffers), max_message_bytes)


def check_message(
    payload: Buffer, header: BatchHeader, expected: tuple[int, int], max_message_bytes: int
) -> ArrowMessage:
    """Whether the payload is an Arrow message of what the header says, with so many nodes and buffers, and would not
    become too large when it is decompressed. Raises CorruptMessage."""
    message = read_arrow_metadata(payload, max_buffers=max(MAX_BUFFERS, expected[1]))
    where = f"the record batch at offset {header.base_offset}"
    if message.row_count != header.record_count:
        raise CorruptMessage(
            f"the header of {where} gives {header.record_count} records, its payload has {message.row_count}"
        )
    if message.codec != _CODECS.get(header.attributes & (Attributes.LZ4 | Attributes.ZSTD)):
        raise CorruptMessage(
            f"{where} has attributes {header.attributes:#x}, its payload has compression {message.codec}"
        )
    shape = (message.node_count, message.buffer_count)
    if shape != expected:
        raise CorruptMessage(f"{where} has {shape} Arrow columns and buffers, it should have {expected}")
    if message.uncompressed_bytes > (limit := uncompressed_limit(header.length, max_message_bytes)):
        raise CorruptMessage(
            f"{where} has {message.uncompressed_bytes} bytes when decompressed, {limit} are allowed for the "
            f"{header.length} that it has compressed: send smaller batches (batch.size)"
        )
    return message
