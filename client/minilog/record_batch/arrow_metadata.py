"""A bounded look at the metadata of an Arrow IPC RecordBatch message, before Arrow itself is let near it.

An encapsulated message (Arrow columnar format, "Encapsulated message format") is

    0xFFFFFFFF | metadata_length i32 | metadata: a flatbuffer `Message` | body: the buffers

and a compressed buffer starts with its uncompressed length (i64; -1: this buffer was left uncompressed). Arrow
allocates what that prefix says, so the prefixes are summed here first, for the caller to bound. Nothing is allocated
in proportion to anything the message claims, no position is followed without a bound, and all that can be wrong is a
CorruptMessage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minilog.errors import CorruptMessage
from minilog.record_batch.header import Buffer

_CONTINUATION = 0xFFFFFFFF
_PREFIX_BYTES = 8  # continuation and metadata length
_VERSION_5 = 4  # MetadataVersion.V5
_RECORD_BATCH = 3  # MessageHeader.RecordBatch
_CODECS = {0: "lz4", 1: "zstd"}  # CompressionType
_LEFT_UNCOMPRESSED = -1

_U8 = struct.Struct("<B")
_U16 = struct.Struct("<H")
_I16 = struct.Struct("<h")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_I64 = struct.Struct("<q")
_PAIR = struct.Struct("<qq")  # a FieldNode (length, null_count) or a Buffer (offset, length)


@dataclass(frozen=True, slots=True)
class ArrowMessage:
    """What the metadata of a RecordBatch message says; every buffer was seen to be inside the body.

    `codec` is "none", "lz4" or "zstd"; `uncompressed_bytes` the sum of the buffers when decompressed.
    """

    row_count: int
    nodes: list[tuple[int, int]]
    """Of each column, nested ones behind theirs: rows, nulls."""
    buffers: list[tuple[int, int]]
    """Place in the body, and bytes."""
    codec: str
    uncompressed_bytes: int
    body: memoryview

    @property
    def node_count(self) -> int:
        return len(self.nodes)

    @property
    def buffer_count(self) -> int:
        return len(self.buffers)


@dataclass(frozen=True, slots=True)
class ArrowPlaces:
    """Where the metadata of a message has what differs between two batches of one schema; positions in the message."""

    body_bytes: int
    row_count: int
    nodes: int
    buffers: int


def read_arrow_metadata(message: Buffer, *, max_buffers: int) -> ArrowMessage:
    """The metadata of `message`, which is one encapsulated RecordBatch message and nothing else.

    Raises CorruptMessage where it is none, has more than `max_buffers` buffers, or one that is outside the body.
    """
    root, body = _open(message)
    return _record_batch(root.table(2), body, max_buffers)


def find_arrow_places(message: Buffer) -> ArrowPlaces:
    """The places in the metadata of a message of our own, which has rows. Raises CorruptMessage."""
    root, _ = _open(message)
    table = root.table(2)
    if table is None:
        raise CorruptMessage("the Arrow message has no header")
    nodes, buffers = table.place_of(1, is_vector=True), table.place_of(2, is_vector=True)
    places = root.place_of(3), table.place_of(0), nodes + _U32.size, buffers + _U32.size
    return ArrowPlaces(*(_PREFIX_BYTES + place for place in places))


def _open(message: Buffer) -> tuple[_Table, memoryview]:
    """The flatbuffer's root, and the body."""
    view = memoryview(message)
    if len(view) < _PREFIX_BYTES or _read(_U32, view, 0) != _CONTINUATION:
        raise CorruptMessage("the payload of the record batch does not start as an Arrow message does")
    body_start = _PREFIX_BYTES + _read(_I32, view, 4)
    if not _PREFIX_BYTES < body_start <= len(view) or body_start % 8:
        raise CorruptMessage(
            f"the Arrow message gives byte {body_start} as the end of its metadata, in a payload of {len(view)} bytes"
        )
    metadata, body = view[_PREFIX_BYTES:body_start], view[body_start:]
    root = _Table(metadata, _read(_U32, metadata, 0))
    if root.number(0, _I16) != _VERSION_5 or root.number(1, _U8) != _RECORD_BATCH:
        raise CorruptMessage("the payload of the record batch is not an Arrow RecordBatch message of version 5")
    if root.number(3, _I64) != len(body):
        raise CorruptMessage(f"the Arrow message has a body of {root.number(3, _I64)} bytes, {len(body)} are there")
    return root, body


def _record_batch(table: _Table | None, body: memoryview, max_buffers: int) -> ArrowMessage:
    if table is None:
        raise CorruptMessage("the Arrow message has no header")
    codec = _codec(table.table(3))
    nodes, buffers = table.pairs(1, max_buffers), table.pairs(2, max_buffers)
    row_count = table.number(0, _I64)
    if row_count < 0 or any(length < 0 or not 0 <= nulls <= length for length, nulls in nodes):
        raise CorruptMessage("the Arrow message has a column of a negative length, or of more nulls than values")
    _check_inside(body, buffers)
    lengths = (length for _, length in buffers) if codec == "none" else _uncompressed_lengths(body, buffers)
    uncompressed_bytes = sum(lengths)
    return ArrowMessage(row_count, nodes, buffers, codec, uncompressed_bytes, body)


def _codec(compression: _Table | None) -> str:
    if compression is None:
        return "none"
    codec, method = compression.number(0, _U8), compression.number(1, _U8)
    if codec not in _CODECS or method != 0:
        raise CorruptMessage(f"the Arrow message has compression {codec} by method {method}, which is not known")
    return _CODECS[codec]


def _check_inside(body: memoryview, buffers: Sequence[tuple[int, int]]) -> None:
    """Raises CorruptMessage for a buffer that is not inside the body, or not at a multiple of 8."""
    size_bytes = len(body)
    for offset, length in buffers:
        if offset < 0 or length < 0 or offset % 8 or offset + length > size_bytes:
            raise CorruptMessage(
                f"an Arrow buffer of {length} bytes at {offset} is not inside its body of {size_bytes} bytes"
            )


def _uncompressed_lengths(body: memoryview, buffers: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Of buffers inside the body that a codec wrote: each but an empty one gives its own length."""
    for offset, length in buffers:
        if length == 0:
            continue
        if length < _I64.size:
            raise CorruptMessage(f"a compressed Arrow buffer of {length} bytes has no room for its length")
        claimed: int = _I64.unpack_from(body, offset)[0]
        if claimed < _LEFT_UNCOMPRESSED:
            raise CorruptMessage(f"a compressed Arrow buffer gives its size as {claimed} bytes")
        yield length - _I64.size if claimed == _LEFT_UNCOMPRESSED else claimed


class _Table:
    """A flatbuffer table: a signed step back to its vtable, which has the place of each field, 0 where it is absent."""

    __slots__ = ("_position", "_view", "_vtable", "_vtable_bytes")

    def __init__(self, view: memoryview, position: int) -> None:
        self._view = view
        self._position = position
        self._vtable = position - _read(_I32, view, position)
        self._vtable_bytes = _read(_U16, view, self._vtable)

    def number(self, field: int, form: struct.Struct) -> int:
        """The scalar `field`; 0, the default of all that is read here, where it is absent."""
        position = self._find(field)
        return 0 if position is None else _read(form, self._view, position)

    def table(self, field: int) -> _Table | None:
        position = self._follow(field)
        return None if position is None else _Table(self._view, position)

    def pairs(self, field: int, at_most: int) -> list[tuple[int, int]]:
        """The vector `field` of structs of two i64."""
        position = self._follow(field)
        if position is None:
            return []
        count = _read(_U32, self._view, position)
        if count > at_most:
            raise CorruptMessage(f"the Arrow message has {count} buffers or columns, at most {at_most} are possible")
        start = position + _U32.size
        pairs = self._view[start : start + count * _PAIR.size]
        if len(pairs) != count * _PAIR.size:
            raise CorruptMessage("the Arrow metadata is cut")
        return list(_PAIR.iter_unpack(pairs))

    def place_of(self, field: int, *, is_vector: bool = False) -> int:
        """Where `field` lies; of a vector its count, which its elements follow."""
        position = self._follow(field) if is_vector else self._find(field)
        if position is None:
            raise CorruptMessage(f"the Arrow metadata does not have field {field}")
        return position

    def _find(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + _U16.size > self._vtable_bytes:
            return None
        step = _read(_U16, self._view, self._vtable + entry)
        return self._position + step if step else None

    def _follow(self, field: int) -> int | None:
        position = self._find(field)
        return None if position is None else position + _read(_U32, self._view, position)


def _read(form: struct.Struct, view: memoryview, position: int) -> int:
    try:
        if position >= 0:  # struct counts a negative one from the end
            number: int = form.unpack_from(view, position)[0]
            return number
    except struct.error:
        pass
    raise CorruptMessage(f"the Arrow metadata points to byte {position} of {len(view)}")
