"""What rows of a typed topic are read from on the command line, in batches, and how what does not fit is found.

A batch is taken whole or refused whole: BadRows says which line or row is the first that does not fit, which column,
and why. Only then rows are looked at by halves, until there is one.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from minilog import compute as pc
from minilog.errors import InvalidRecord
from minilog.typed.fields import Array, Field, FieldType, Map, Primitive, Struct, arrow_type
from minilog.typed.iso_8601 import days_of, microseconds_of
from minilog.typed.topic_schema import TopicSchema

BLOCK_BYTES = 4 << 20
_PIPE_WAIT_S = 0.05  # what comes within it goes into the same batch
BINARY, FLOAT = Primitive("binary"), Primitive("float")
_TIMES: dict[FieldType, Callable[[str], int | None]] = {
    Primitive("date"): days_of,
    Primitive("timestamp"): lambda text: microseconds_of(text, has_zone=True),
    Primitive("timestamp_ntz"): lambda text: microseconds_of(text, has_zone=False),
}


class BadRows(Exception):
    """A line or row does not fit, and nothing of its batch was taken; the text says which, and why."""


UNFIT = (pa.ArrowException, InvalidRecord, BadRows)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows in the form of the topic, and `end`: the last line or row of the file that is among them."""

    rows: pa.RecordBatch
    end: int


class Source(Protocol):
    """What JSON and CSV are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to so many bytes; none at the end."""


ReadRows = Callable[[Source, TopicSchema], Iterator[Part]]


class Pipe:
    """A file descriptor: a read gives what there is now, and what comes right behind it."""

    closed = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, size: int = -1, /) -> bytes:
        """See Source."""
        most = size if size >= 0 else BLOCK_BYTES
        pieces = [os.read(self._descriptor, most)]
        left = most - len(pieces[0])
        while pieces[-1] and left and select.select([self._descriptor], [], [], _PIPE_WAIT_S)[0]:
            pieces.append(os.read(self._descriptor, left))
            left -= len(pieces[-1])
        return b"".join(pieces)


class Counted:
    """A source that tells how many bytes were read of it."""

    closed = False

    def __init__(self, source: Source, tell: Callable[[int], None]) -> None:
        self._source = source
        self._tell = tell

    def read(self, size: int = -1, /) -> bytes:
        """See Source."""
        content = self._source.read(size)
        self._tell(len(content))
        return content


def first_failing(count: int, check: Callable[[int], object]) -> int:
    """The first place p for which check(p + 1), of what is up to and with it, fails; it does for all of `count`."""
    low, high = 0, count  # what is before `low` is good; what is before `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            check(middle)
            low = middle
        except UNFIT:
            high = middle
    return high - 1


def loose_type(kind: FieldType, leaf: Callable[[FieldType], pa.DataType] = arrow_type) -> pa.DataType:
    """The Arrow type with `leaf` of what has no parts; nulls are allowed everywhere, and refused later, with rows."""
    match kind:
        case Struct(fields):
            return pa.struct([pa.field(field.name, loose_type(field.type, leaf)) for field in fields])
        case Array(element):
            return pa.list_(pa.field("element", loose_type(element.type, leaf)))
        case Map(key, value):
            return pa.map_(loose_type(key.type, leaf), pa.field("value", loose_type(value.type, leaf)))
        case _:
            return leaf(kind)


def as_topic_has_it(column: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
    """What was read as text or as a double. Raises ArrowException, BadRows."""
    if field.type == BINARY and column.type == pa.string():
        return pa.chunked_array([[_from_base64(value.as_py()) for value in column]], pa.binary())
    if column.type == pa.string() and field.type in _TIMES:
        return _times(column, field)
    converted = column.cast(loose_type(field.type))
    if field.type == FLOAT and pc.any(pc.xor(pc.is_inf(converted), pc.is_inf(column))).as_py():
        raise BadRows("above what a float holds")
    return converted


def _times(column: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
    """Dates and times from text. What Arrow does not read, as years above 9999, is read one by one."""
    kind = arrow_type(field.type)
    texts = pc.utf8_trim_whitespace(column)
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        values = [None if text is None else _TIMES[field.type](text) for text in texts.to_pylist()]
        if values.count(None) > texts.null_count:
            raise
        return pa.chunked_array([values], kind)


def _from_base64(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRows("no base64") from None


def no_utf8(block: bytes, at: int) -> str:
    """Why a file that has the byte at that place is not read, and what to do."""
    if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "the file is in UTF-16: save it as UTF-8"
    return f"the byte 0x{block[at]:02X} is no UTF-8: save the file as UTF-8"


def hint(kind: FieldType) -> str:
    """How a value is written as text, where that is not plain."""
    match kind:
        case Primitive("timestamp"):
            return ": write it as 2024-05-01T12:00:00Z, with a zone"
        case Primitive("timestamp_ntz"):
            return ": write it as 2024-05-01T12:00:00, without a zone"
        case Primitive("date"):
            return ": write it as 2024-05-01"
        case Primitive("binary"):
            return ": write it in base64"
        case _:
            return ""
