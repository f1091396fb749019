"""From Arrow columns to the bytes of a record batch: the form it keeps on the wire, on disk and in the reading task.

Whole columns go in; there is no code per record, except that `records_to_columns` hands lists to Arrow. The payload is
copied once more, behind its header. A batch is built for one topic id and partition (its crc says so) and leaves the
place in the log to the leader. Time comes in as an argument.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import pyarrow as pa

from minilog import compute as pc
from minilog.errors import CorruptMessage, InvalidArgument, InvalidRecord, MessageTooLarge
from minilog.record_batch.header import (
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Attributes,
    BatchHeader,
    Buffer,
    crc_of_parts,
    decode_header,
    encode_header,
)
from minilog.record_batch.schema import (
    HEADERS,
    MAX_BATCH_BYTES,
    MAX_MESSAGE_BYTES,
    PAYLOAD_SCHEMA,
    TIMESTAMP,
    payload_schema,
    uncompressed_limit,
)

__all__ = [
    "PAYLOAD_SCHEMA",
    "assemble",
    "build_batch",
    "build_control_batch",
    "check_compression",
    "check_size",
    "client_header",
    "message_of",
    "records_to_columns",
    "set_producer",
    "split_columns",
]

_COMPRESSIONS = {"none": 0, "lz4": Attributes.LZ4, "zstd": Attributes.ZSTD}
_CONTROL_LENGTH = struct.Struct("<I")

RecordHeaders = Sequence[tuple[str, bytes | None]]


def build_batch(
    topic_id: bytes,
    partition: int,
    columns: pa.RecordBatch,
    *,
    compression: str = "none",
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    max_bytes: int | None = None,
    timestamp_us: int | None = None,
    transactional: bool = False,
) -> bytes:
    """One batch of all rows of `columns`: `value`, and if wanted `key`, `timestamp`, `headers` (types of PAYLOAD_SCHEMA
    or what casts to them, such as string).

    `timestamp_us` (now, in µs since 1970) is given to rows without a timestamp. `compression` is none, lz4 or zstd; a
    batch that it would not make smaller is sent without. `transactional`: it is seen once its producer's transaction is
    committed. Raises InvalidRecord for columns that do not fit, and MessageTooLarge above `max_bytes`.
    """
    check_compression(compression)
    payload_columns = _payload_columns(columns, timestamp_us)
    codec, message = message_of(payload_columns, compression)
    check_size(HEADER_BYTES + len(message), pa.ipc.get_record_batch_size(payload_columns), max_bytes)
    timestamps = payload_columns.column("timestamp")
    attributes = _attributes(payload_columns.schema.names) | codec
    header = client_header(
        attributes | Attributes.TRANSACTIONAL if transactional else attributes,
        record_count=payload_columns.num_rows,
        timestamps_us=(timestamps[0].value, pc.max(timestamps).value),
        producer=(producer_id, producer_epoch, base_sequence),
    )
    return assemble(topic_id, partition, header, message)


def build_control_batch(
    topic_id: bytes,
    partition: int,
    payload: bytes,
    *,
    timestamp_us: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """A batch of one control record: `payload` is a serialized ControlRecord. Brokers write it; leaders refuse it."""
    framed = _CONTROL_LENGTH.pack(len(payload)) + payload
    header = client_header(
        Attributes.CONTROL,
        record_count=1,
        timestamps_us=(timestamp_us, timestamp_us),
        producer=(producer_id, producer_epoch, base_sequence),
    )
    return assemble(topic_id, partition, header, framed.ljust(-(-len(framed) // 8) * 8, b"\0"))


def set_producer(
    batch: Buffer, topic_id: bytes, partition: int, producer_id: int, producer_epoch: int, base_sequence: int
) -> bytes:
    """`batch` with these producer fields, as it is stamped when it is sent: one copy and one crc over the payload.

    The batch is trusted to be the caller's own. Raises CorruptMessage where its header is damaged.
    """
    header = decode_header(batch)
    if header.length != len(batch):
        raise CorruptMessage(f"the header of a record batch gives {header.length} bytes, {len(batch)} are there")
    stamped = replace(header, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)
    return assemble(topic_id, partition, stamped, memoryview(batch)[HEADER_BYTES:])


def records_to_columns(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    timestamps_us: Sequence[int | None] | None = None,
    headers: Sequence[RecordHeaders | None] | None = None,
) -> pa.RecordBatch:
    """Lists of one entry per record as columns; a list that is None is a column left out.

    Raises InvalidRecord where an entry has a wrong type or the lists differ in length.
    """
    lists = {"key": keys, "value": values, "timestamp": timestamps_us, "headers": headers}
    given = [field for field in PAYLOAD_SCHEMA if lists[field.name] is not None]
    if any(len(entries) != len(values) for entries in lists.values() if entries is not None):
        lengths = {name: len(entries) for name, entries in lists.items() if entries is not None}
        raise InvalidRecord(f"the lists of a batch differ in length: {lengths}; give one entry per record in each")
    arrays = [_array(field, lists[field.name]) for field in given]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(given))


def split_columns(columns: pa.RecordBatch, target_bytes: int) -> list[pa.RecordBatch]:
    """`columns` as slices in order, without a copy, of which `build_batch` makes batches of at most `target_bytes`.

    Rows of one size fill their slices nearly; the sizes are those before compression. A row above `target_bytes` is a
    slice of its own: whether it is too large is not said by where to cut. Raises what `build_batch` raises for columns
    that do not fit.
    """
    if columns.num_rows == 0:
        return []
    measured = _payload_columns(columns, timestamp_us=0)
    return [columns.slice(start, rows) for start, rows in _split(measured, 0, columns.num_rows, target_bytes)]


def _split(measured: pa.RecordBatch, start: int, rows: int, target_bytes: int) -> list[tuple[int, int]]:
    """Even parts, those still too large divided again: at most log2(rows) deep, for every part has fewer rows."""
    size = HEADER_BYTES + pa.ipc.get_record_batch_size(measured.slice(start, rows))
    if size <= target_bytes or rows == 1:
        return [(start, rows)]
    # 5 % more parts than the size asks for, so that rows of about one size need no second division.
    parts = min(rows, max(2, -(-size * 21 // (target_bytes * 20))))
    cuts = [start + rows * part // parts for part in range(parts + 1)]
    batches = []
    for first, end in pairwise(cuts):
        batches += _split(measured, first, end - first, target_bytes)
    return batches


def _payload_columns(columns: pa.RecordBatch, timestamp_us: int | None) -> pa.RecordBatch:
    """`columns` under the names and types of a payload, without those that no record uses. Raises InvalidRecord."""
    names = columns.schema.names
    if columns.num_rows == 0:
        raise InvalidRecord("a record batch holds at least one record: these columns have no rows")
    if "value" not in names or len(set(names)) != len(names) or not set(names) <= set(PAYLOAD_SCHEMA.names):
        raise InvalidRecord(f"the columns are {names}: give value, and if wanted key, timestamp and headers, once each")
    arrays = {"value": _binary("value", columns.column("value")), "timestamp": _timestamps(columns, timestamp_us)}
    if "key" in names and columns.column("key").null_count < columns.num_rows:
        arrays["key"] = _binary("key", columns.column("key"))
    if "headers" in names and (headers := _headers(columns.column("headers"))) is not None:
        arrays["headers"] = headers
    schema = payload_schema(_attributes(arrays))
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _attributes(names: Mapping[str, object] | Sequence[str]) -> int:
    key = Attributes.HAS_KEY if "key" in names else 0
    return key | (Attributes.HAS_HEADERS if "headers" in names else 0)


def _binary(name: str, column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return column
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return _cast(name, column, pa.binary())


def _timestamps(columns: pa.RecordBatch, timestamp_us: int | None) -> pa.Array:
    """No nulls: rows without one get `timestamp_us`. Nanoseconds are cut to microseconds."""
    now = None if timestamp_us is None else pa.scalar(timestamp_us, TIMESTAMP)
    if "timestamp" not in columns.schema.names:
        column = pa.nulls(columns.num_rows, TIMESTAMP) if now is None else pa.repeat(now, columns.num_rows)
    else:
        column = columns.column("timestamp")
    if not pa.types.is_timestamp(column.type) and not pa.types.is_null(column.type):
        raise InvalidRecord(f"the column timestamp is {column.type}: give a timestamp")
    column = _cast("timestamp", column, TIMESTAMP, safe=getattr(column.type, "unit", None) != "ns")
    if not column.null_count:
        return column
    if now is None:
        raise InvalidRecord("a record has no timestamp: give it one, or timestamp_us for all that have none")
    return column.fill_null(now)


def _headers(column: pa.Array) -> pa.Array | None:
    """None where no record has a header. A record with an empty list has none either: null."""
    lists = _cast("headers", column, HEADERS)
    entries = lists.flatten()
    if len(entries) == 0:
        return None
    if entries.null_count or entries.field("key").null_count:
        raise InvalidRecord("a record has a header without a key: give each header a key")
    lengths = pc.list_value_length(lists)
    if pc.min(lengths).as_py() > 0:
        return lists
    return pc.if_else(pc.equal(lengths, 0), pa.scalar(None, HEADERS), lists)


def _cast(name: str, column: pa.Array, target: pa.DataType, *, safe: bool = True) -> pa.Array:
    if column.type == target:
        return column
    try:
        return column.cast(target, safe=safe)
    except pa.ArrowException as error:
        raise InvalidRecord(f"the column {name} is {column.type}, which cannot become {target}: {error}") from error


def _array(field: pa.Field, entries: Sequence[object] | None) -> pa.Array:
    try:
        array = pa.array(entries, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidRecord(f"a {field.name} of a record cannot become {field.type}: {error}") from error
    if isinstance(array, pa.ChunkedArray):  # Arrow's answer to more than an int32 offset can hold
        raise _too_large(f"the column {field.name} has more bytes than Arrow can address", MAX_BATCH_BYTES)
    return array


def check_compression(compression: str) -> None:
    """Raises InvalidArgument for one that is not known."""
    if compression not in _COMPRESSIONS:
        raise InvalidArgument(f"compression {compression!r} is not known: give one of {', '.join(_COMPRESSIONS)}")


def message_of(columns: pa.RecordBatch, compression: str) -> tuple[int, pa.Buffer]:
    """(attribute of the codec, encapsulated message) of `columns`, compressed if that makes it smaller."""
    if compression != "none":
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
        # Not closed: closing would write an end-of-stream marker behind the message. The stream writer, the only one
        # with options, writes the schema first, which is not sent.
        pa.ipc.new_stream(sink, columns.schema, options=options).write_batch(columns)
        compressed = sink.getvalue().slice(_schema_message_bytes(columns.schema))
        if len(compressed) < pa.ipc.get_record_batch_size(columns):
            return _COMPRESSIONS[compression], compressed
    return 0, columns.serialize()


@lru_cache(maxsize=256)
def _schema_message_bytes(schema: pa.Schema) -> int:
    return int(schema.serialize().size)


def client_header(
    attributes: int,
    *,
    record_count: int,
    timestamps_us: tuple[int, int],
    producer: tuple[int, int, int],
    extension_bytes: int = 0,
) -> BatchHeader:
    """A header without a place in the log, its length and crc still to be filled.

    `timestamps_us` are the first and the highest, `producer` is id, epoch and sequence.
    """
    producer_id, producer_epoch, base_sequence = producer
    return BatchHeader(
        length=0,
        base_offset=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        crc=0,
        attributes=attributes,
        record_count=record_count,
        last_offset_delta=record_count - 1,
        base_timestamp_us=timestamps_us[0],
        max_timestamp_us=timestamps_us[1],
        producer_id=producer_id,
        base_sequence=base_sequence,
        producer_epoch=producer_epoch,
        extension_bytes=extension_bytes,
    )


def assemble(topic_id: bytes, partition: int, header: BatchHeader, *parts: Buffer) -> bytes:
    """The batch of a header and all that lies behind it, its length and crc filled. The crc is taken from the parts, so
    that they are copied once only."""
    header = replace(header, length=HEADER_BYTES + sum(map(len, parts)), crc=0)
    crc = crc_of_parts(topic_id, partition, encode_header(header), *parts)
    return b"".join((encode_header(replace(header, crc=crc)), *parts))


def check_size(size: int, uncompressed: int, max_bytes: int | None) -> None:
    """Raises MessageTooLarge for a batch of `size` bytes that has `uncompressed` bytes before compression."""
    limit = MAX_BATCH_BYTES if max_bytes is None else min(max_bytes, MAX_BATCH_BYTES)
    if size > limit:
        raise _too_large(f"a record batch has {size} bytes", limit)
    if uncompressed > (decoded_limit := uncompressed_limit(size, min(limit, MAX_MESSAGE_BYTES))):
        raise _too_large(f"a record batch has {uncompressed} bytes before compression, {size} behind it", decoded_limit)


def _too_large(what: str, limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"{what}, at most {limit} are allowed: split it, or raise max.message.bytes of the topic")
