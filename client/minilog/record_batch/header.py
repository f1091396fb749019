"""The fixed header of a record batch: 72 bytes, little-endian.

      0  magic                   u32   "MLB1"
      4  length                  u32   the whole batch in bytes, header included, a multiple of 8
      8  base_offset             i64 ┐
     16  partition_leader_epoch  i32 ├ the leader fills these; a client sends 0 and -1
     20  header_checksum         u32 ┘ crc32c of the header's other bytes: 0 to 20, then 24 to 72
     24  crc                     u32   crc32c of topic id, partition (i32) and bytes 28 to the end
     28  attributes              u32   see Attributes
     32  record_count            u32
     36  last_offset_delta       u32   record_count - 1, except in a compacted batch (gaps.py)
     40  base_timestamp_us       i64   of the first record
     48  max_timestamp_us        i64
     56  producer_id             i64   -1: none
     64  base_sequence           i32   -1: none
     68  producer_epoch          i16   -1: none
     70  extension_bytes         u16   of a typed batch: what lies before the payload, else 0
     72  (typed: a TypedBatch message, and zeros to a multiple of 8)
         payload

A leader gives a batch its place by replacing the first 24 bytes (`placement`), so that the producer's bytes are never
copied and never checked twice: what the client summed up, it summed up for this topic id and partition.

A later version may set other attributes, or the last letter of the magic. What the first 72 bytes are, and what
header_checksum covers, stays: so a header that is whole and not known is told from one that is damaged. The first is
UnsupportedVersion, the second CorruptMessage.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

import google_crc32c
import pyarrow as pa

from minilog.errors import CorruptMessage, LevelNotReached
from minilog.versions import written_later

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC = int.from_bytes(b"MLB1", "little")
HEADER_BYTES = 72
PLACEMENT_BYTES = 24  # what the leader fills: magic to header_checksum
NO_LEADER_EPOCH = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

_PLACED = struct.Struct("<IIqi")  # what the leader fills before header_checksum
_CHECKSUM = struct.Struct("<I")
_HEADER = struct.Struct("<IIqiIIIIIqqqihH")
_PRODUCER = struct.Struct("<qih")  # id, base sequence, epoch
_PRODUCER_FROM = 56
_PARTITION = struct.Struct("<i")
_CRC_FROM = 28
_MAGIC_OF_ALL_VERSIONS = 0xFFFFFF  # of the four letters the first three
_END_OF_OFFSETS = 2**63 - 1  # so that the offset behind a batch is an i64 too
assert _HEADER.size == HEADER_BYTES
assert _PLACED.size + _CHECKSUM.size == PLACEMENT_BYTES


class Attributes(enum.IntEnum):
    """The bits of `attributes`; any other bit is of a later version. Sets of them are plain ints: each batch is asked
    for its own several times, and what an IntFlag answers is made by Python."""

    HAS_KEY = 1
    HAS_HEADERS = 2
    LZ4 = 4
    ZSTD = 8
    TRANSACTIONAL = 16
    CONTROL = 32  # the payload is a ControlRecord, not Arrow
    COMPACTED = 64  # records are missing: record_count may be below last_offset_delta + 1
    TYPED = 128  # the payload has the columns of the topic's schema, behind an extension of the header
    PROJECTED = 256  # only some columns, cut out for one reader (none if not typed): on no disk, written by nobody
    DELETES = 512  # typed: some rows delete their key, and the extension says which (minilog/typed/rows/deletions.py)
    GAPS = 1024  # compacted and on a disk: the last column has the offset delta of each record (gaps.py)


# which may be written from which level of a cluster on
_BROUGHT_BY_LEVEL = {1: 127, 2: Attributes.TYPED, 6: Attributes.DELETES | Attributes.GAPS}
_KNOWN_ATTRIBUTES = sum(_BROUGHT_BY_LEVEL.values()) | Attributes.PROJECTED
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """A decoded header. Offsets are absolute; `next_offset` is the offset behind the batch."""

    length: int
    base_offset: int
    partition_leader_epoch: int
    crc: int
    attributes: int
    record_count: int
    last_offset_delta: int
    base_timestamp_us: int
    max_timestamp_us: int
    producer_id: int
    base_sequence: int
    producer_epoch: int
    extension_bytes: int = 0

    @property
    def payload_start(self) -> int:
        """Where the payload begins in the batch."""
        return payload_start(self.extension_bytes)

    @property
    def is_typed(self) -> bool:
        return bool(self.attributes & Attributes.TYPED)

    @property
    def has_gaps(self) -> bool:
        """Whether offsets of the batch have no record any more, and a column says which ones are left."""
        return bool(self.attributes & Attributes.GAPS)

    @property
    def has_deletions(self) -> bool:
        """Whether rows of the batch, which is typed, delete their key."""
        return bool(self.attributes & Attributes.DELETES)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & Attributes.CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & Attributes.TRANSACTIONAL)

    def is_aborted(self, aborted_producer_ids: AbstractSet[int]) -> bool:
        """Was this written in a transaction that one of these producers had, which were all aborted? A producer id
        belongs to one transaction for good; only what was written in it is transactional."""
        return self.is_transactional and self.producer_id in aborted_producer_ids


def payload_start(extension_bytes: int) -> int:
    """Where the payload of a batch begins: a multiple of 8."""
    return HEADER_BYTES + extension_bytes + -extension_bytes % _ALIGNMENT


def placement(batch: Buffer, base_offset: int, partition_leader_epoch: int) -> bytes:
    """The first 24 bytes of `batch` at its place in the log."""
    return _placement(len(batch), base_offset, partition_leader_epoch, bytes(batch[PLACEMENT_BYTES:HEADER_BYTES]))


def _placement(length: int, base_offset: int, partition_leader_epoch: int, rest: bytes) -> bytes:
    placed = _PLACED.pack(MAGIC, length, base_offset, partition_leader_epoch)
    return placed + _CHECKSUM.pack(_header_checksum(placed, rest))


def _header_checksum(placed: bytes, rest: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(placed), rest))


def encode_header(header: BatchHeader) -> bytes:
    """The 72 bytes of `header`, its header checksum computed, its crc as given."""
    rest = _HEADER.pack(
        MAGIC,
        header.length,
        header.base_offset,
        header.partition_leader_epoch,
        0,
        header.crc,
        header.attributes,
        header.record_count,
        header.last_offset_delta,
        header.base_timestamp_us,
        header.max_timestamp_us,
        header.producer_id,
        header.base_sequence,
        header.producer_epoch,
        header.extension_bytes,
    )
    rest = rest[PLACEMENT_BYTES:]
    return _placement(header.length, header.base_offset, header.partition_leader_epoch, rest) + rest


def decode_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, its own checksum, magic, attributes and bounds checked; not the crc of the payload.

    Raises CorruptMessage, naming the field; UnsupportedVersion where the header is whole and a later version's. Whether
    `length` bytes are really there is for the caller to see.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptMessage(f"a record batch header is {HEADER_BYTES} bytes, only {len(buffer) - position} are there")
    fields = _HEADER.unpack_from(buffer, position)
    magic, length, base_offset, epoch, header_checksum, crc, attributes, count, last_delta = fields[:9]
    if (magic ^ MAGIC) & _MAGIC_OF_ALL_VERSIONS:
        raise CorruptMessage(f"a record batch has magic {magic:#010x}, {MAGIC:#010x} is known")
    header = bytes(buffer[position : position + HEADER_BYTES])
    if _header_checksum(header[: _PLACED.size], header[PLACEMENT_BYTES:]) != header_checksum:
        raise CorruptMessage(f"the header checksum of a batch is wrong, and its header gives offset {base_offset}")
    is_typed = bool(attributes & Attributes.TYPED)
    if magic != MAGIC or attributes & ~_KNOWN_ATTRIBUTES or (fields[14] and not is_typed):
        raise written_later(
            f"the record batch at offset {base_offset} (magic {magic:#010x}, attributes {attributes:#x}, extension of "
            f"{fields[14]} bytes)"
        )
    if length < payload_start(fields[14]) or length % _ALIGNMENT:
        raise CorruptMessage(f"a record batch cannot have a length of {length} bytes")
    compacted = attributes & Attributes.COMPACTED
    has_gaps = bool(attributes & Attributes.GAPS)
    if has_gaps != bool(compacted) and (has_gaps or count):  # a replica leaves records out without a column of deltas
        raise CorruptMessage(
            f"the record batch at offset {base_offset} has attributes {attributes:#x}, which do not go together"
        )
    if attributes & Attributes.DELETES and not is_typed:
        raise CorruptMessage(
            f"the record batch at offset {base_offset} has attributes {attributes:#x}: only rows of a topic with a "
            "schema delete their key"
        )
    in_bounds = base_offset >= 0 and base_offset + last_delta < _END_OF_OFFSETS
    if not in_bounds or count > last_delta + 1 or (count == 0 and not compacted):
        raise CorruptMessage(
            f"a record batch cannot have offset {base_offset}, {count} records and a delta of {last_delta}"
        )
    if last_delta + 1 != count and not compacted:
        raise CorruptMessage(
            f"a record batch of {count} records that was not compacted has a last delta of {last_delta}"
        )
    return BatchHeader(length, base_offset, epoch, crc, attributes, count, last_delta, *fields[9:])


def level_of(attribute: Attributes) -> int:
    """The level of a cluster from which on batches with this attribute may be written."""
    return next(level for level, bits in _BROUGHT_BY_LEVEL.items() if bits & attribute)


def producer_of(batch: Buffer) -> tuple[int, int]:
    """Id and epoch as the header says them, of a batch that nobody has looked at yet; none of what is too short."""
    if len(batch) < HEADER_BYTES:
        return NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    producer_id, _, producer_epoch = _PRODUCER.unpack_from(batch, _PRODUCER_FROM)
    return producer_id, producer_epoch


def check_attributes_of_level(header: BatchHeader, level: int) -> None:
    """Raises LevelNotReached where a cluster at `level` has brokers that may not know this batch. Whoever sent it may
    have been told of a later level sooner than whoever looks here."""
    allowed = sum(bits for since, bits in _BROUGHT_BY_LEVEL.items() if since <= level)
    if header.attributes & ~allowed:
        raise LevelNotReached(
            f"a record batch has attributes {header.attributes:#x}, and the cluster is at level {level}, which allows "
            f"{allowed:#x}: raise it (`minilog cluster upgrade`) before anybody writes so"
        )


def iterate_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch in `buffer`, which holds whole batches back to back.

    Raises CorruptMessage where a header is bad or the last batch is cut, UnsupportedVersion as decode_header.
    """
    position, end = 0, len(buffer)
    while position < end:
        header = decode_header(buffer, position)
        if position + header.length > end:
            raise CorruptMessage(
                f"the record batch at offset {header.base_offset} is cut {position + header.length - end} bytes short"
            )
        yield position, header
        position += header.length


def crc_of_parts(topic_id: bytes, partition: int, header: bytes, *parts: Buffer) -> int:
    """The crc of a batch whose header (72 bytes) and what follows are not joined yet; `header` may have any crc."""
    crc = google_crc32c.extend(_crc_seed(topic_id, partition), header[_CRC_FROM:])
    for part in parts:
        crc = google_crc32c.extend(crc, pa.py_buffer(part))
    return int(crc)


def batch_crc(topic_id: bytes, partition: int, batch: Buffer) -> int:
    """The crc of `batch` as meant for this topic id (16 bytes) and partition."""
    # google_crc32c takes no memoryview; a pyarrow buffer is one it takes without a copy.
    return int(google_crc32c.extend(_crc_seed(topic_id, partition), pa.py_buffer(batch).slice(_CRC_FROM)))


def _crc_seed(topic_id: bytes, partition: int) -> int:
    return int(google_crc32c.value(topic_id + _PARTITION.pack(partition)))


def check_crc(topic_id: bytes, partition: int, batch: Buffer, header: BatchHeader) -> None:
    """Raises CorruptMessage unless `batch` is whole and meant for this topic id and partition."""
    computed = batch_crc(topic_id, partition, batch)
    if computed != header.crc:
        raise CorruptMessage(
            f"the record batch at offset {header.base_offset} has crc {computed:#010x}, its header {header.crc:#010x}: "
            f"damaged, or not meant for partition {partition} of topic id {topic_id.hex()}"
        )
