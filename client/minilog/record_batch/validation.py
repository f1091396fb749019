"""The checks of a leader before it writes a client's batch. They run once, so that every reader may rely on them.

In order, cheapest first and nothing believed before its checksum: size, header, length, crc (which also proves the
topic id and partition meant), attribute bits a client may send, producer fields, the Arrow message under bounds, all
of its offsets and strings, and that the header's timestamps are those of the records. Brokers keep nothing of what is
decoded.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from minilog import compute as pc
from minilog.errors import CorruptMessage, MessageTooLarge
from minilog.record_batch.arrow_metadata import read_arrow_metadata
from minilog.record_batch.bounds import TimestampBounds as TimestampBounds
from minilog.record_batch.header import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Attributes,
    BatchHeader,
    Buffer,
    check_crc,
    decode_header,
    payload_start,
)
from minilog.record_batch.reader import MAX_BUFFERS, read_payload

# Written by brokers and the quorum only, or (projected, and both codecs at once) by nobody.
_NOT_FOR_CLIENTS = Attributes.CONTROL | Attributes.COMPACTED | Attributes.GAPS | Attributes.PROJECTED
_BOTH_CODECS = Attributes.LZ4 | Attributes.ZSTD
_ATTRIBUTES_AT = 28  # their lowest byte, in which the codecs are
_EXTENSION_AT, _EXTENSION_BYTES = 70, struct.Struct("<H")
_MOST_BUFFERS = 4_096  # of a typed batch: at most 1,000 fields of at most 3, and a few more


def validate_batch(
    topic_id: bytes, partition: int, batch: Buffer, *, max_message_bytes: int, bounds: TimestampBounds | None = None
) -> BatchHeader:
    """The header of `batch`, one whole data batch that a client sent for this topic id and partition.

    Raises MessageTooLarge above `max_message_bytes`, ResourceExhausted where this process lacks what it takes, and
    CorruptMessage, naming what is wrong, for everything else but time stamps out of `bounds`: InvalidTimestamp.
    """
    header = check_envelope(topic_id, partition, batch, max_message_bytes=max_message_bytes)
    check_records(batch, header, max_message_bytes=max_message_bytes, bounds=bounds)
    return header


def check_records(
    batch: Buffer, header: BatchHeader, *, max_message_bytes: int, bounds: TimestampBounds | None = None
) -> pa.RecordBatch:
    """The records of a batch of keys and values whose envelope was checked. Raises as validate_batch."""
    records = read_payload(batch, header, max_message_bytes=max_message_bytes)
    check_timestamps(header, records.column("timestamp"), bounds)
    check_headers(records.column("headers"))
    return records


def check_envelope(topic_id: bytes, partition: int, batch: Buffer, *, max_message_bytes: int) -> BatchHeader:
    """All that is checked before the payload. Raises as validate_batch."""
    if len(batch) > max_message_bytes:
        raise MessageTooLarge(
            f"a record batch of {len(batch)} bytes was sent, max.message.bytes of the topic is {max_message_bytes}: "
            "send smaller batches, or raise it"
        )
    header = decode_header(batch)
    if header.length != len(batch):
        raise CorruptMessage(f"the header of a record batch gives {header.length} bytes, {len(batch)} came")
    check_crc(topic_id, partition, batch, header)
    _check_attributes(header)
    _check_producer(header)
    return header


def decoded_bytes(batch: Buffer) -> int:
    """The decompressed size that `batch` gives in its metadata, in bytes: the cost of its validation. This checks no
    checksum, so the caller may conclude nothing else from it. For bytes that are not compressed, or are no batch, it is
    their own size."""
    if len(batch) <= HEADER_BYTES or not batch[_ATTRIBUTES_AT] & _BOTH_CODECS:
        return len(batch)
    try:
        (extension_bytes,) = _EXTENSION_BYTES.unpack_from(batch, _EXTENSION_AT)
        payload = memoryview(batch)[payload_start(extension_bytes) :]
        message = read_arrow_metadata(payload, max_buffers=_MOST_BUFFERS if extension_bytes else MAX_BUFFERS)
    except CorruptMessage:
        return len(batch)
    return max(len(batch), message.uncompressed_bytes)


def _check_attributes(header: BatchHeader) -> None:
    if header.attributes & _NOT_FOR_CLIENTS or header.attributes & _BOTH_CODECS == _BOTH_CODECS:
        raise CorruptMessage(f"a client cannot send a record batch with attributes {header.attributes:#x}")


def _check_producer(header: BatchHeader) -> None:
    fields = (header.producer_id, header.producer_epoch, header.base_sequence)
    none = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    if fields != none and min(fields) < 0:
        raise CorruptMessage(f"a record batch has producer id, epoch and sequence {fields}: give all three or none")
    if fields == none and header.attributes & Attributes.TRANSACTIONAL:
        raise CorruptMessage("a record batch is transactional and has no producer id")


def check_timestamps(header: BatchHeader, timestamps: pa.Array, bounds: TimestampBounds | None = None) -> None:
    """Whether the header has the first and the highest of these, and all are in bounds. Raises CorruptMessage,
    InvalidTimestamp."""
    if timestamps.null_count:
        raise CorruptMessage(f"a record batch has {timestamps.null_count} records without a timestamp")
    measured = (timestamps[0].value, pc.max(timestamps).value)
    named = (header.base_timestamp_us, header.max_timestamp_us)
    if measured != named:
        raise CorruptMessage(f"a record batch has first and highest timestamp {measured}, its header has {named}")
    if bounds is not None:
        bounds.check(header, timestamps)


def check_headers(headers: pa.Array) -> None:
    """Whether each record header has a key. Raises CorruptMessage."""
    entries = headers.flatten()
    if entries.null_count or entries.field("key").null_count:
        raise CorruptMessage("a record batch has a record header without a key")
