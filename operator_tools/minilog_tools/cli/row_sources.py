"""The sources of rows on the command line, the casts to the types of a topic, and the search for a row that is wrong.

The command takes a whole batch, or refuses it. BadRows names the first line or row that does not fit, its column, and
the reason. Only after a refusal the command looks for that row, by halves.
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
from minilog.typed.rows.given_rows import given_rows
from minilog.typed.rows.iso_8601 import days_of, microseconds_of
from minilog.typed.schema.fields import Array, Field, FieldType, Map, Primitive, Struct, arrow_type
from minilog.typed.schema.row_form import DELETED_COLUMN
from minilog.typed.schema.topic_schema import TopicSchema

BLOCK_BYTES = 4 << 20
_PIPE_WAIT_S = 0.05  # bytes that come within this time go into the same batch
BINARY, FLOAT = Primitive("binary"), Primitive("float")
_TIMES: dict[FieldType, Callable[[str], int | None]] = {
    Primitive("date"): days_of,
    Primitive("timestamp"): lambda text: microseconds_of(text, has_zone=True),
    Primitive("timestamp_ntz"): lambda text: microseconds_of(text, has_zone=False),
}


class BadRows(Exception):
    """A line or row does not fit, and the command refuses its batch. The text names the row and the reason."""


UNFIT = (pa.ArrowException, InvalidRecord, BadRows)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows in the form of the topic, with a column `_deleted` if some of them delete their key. `end` is the number of
    the last line or row of the file that is among them."""

    rows: pa.RecordBatch | pa.Table
    end: int


class RowSource(Protocol):
    """A file or a pipe with JSON or CSV."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes. Empty at the end."""


ReadRows = Callable[[RowSource, TopicSchema], Iterator[Part]]


class Pipe:
    """A file descriptor. A read waits for bytes, and adds those that follow within _PIPE_WAIT_S."""

    closed = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes. Empty at the end."""
        most = size if size >= 0 else BLOCK_BYTES
        pieces = [os.read(self._descriptor, most)]
        left = most - len(pieces[0])
        while pieces[-1] and left and select.select([self._descriptor], [], [], _PIPE_WAIT_S)[0]:
            pieces.append(os.read(self._descriptor, left))
            left -= len(pieces[-1])
        return b"".join(pieces)


class Counted:
    """A source that reports the number of bytes of each read."""

    closed = False

    def __init__(self, source: RowSource, report: Callable[[int], None]) -> None:
        self._source = source
        self._report = report

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes. Empty at the end."""
        content = self._source.read(size)
        self._report(len(content))
        return content


def is_mark(name: str, schema: TopicSchema) -> bool:
    """Whether a column of this name says which rows delete their key."""
    return name == DELETED_COLUMN and schema.marks_deletions


def topic_rows(
    table: pa.RecordBatch | pa.Table, schema: TopicSchema, *, first_row: int = 0
) -> pa.RecordBatch | pa.Table:
    """Rows that the producer takes. Raises InvalidRecord for rows that it would refuse, with the first of them."""
    rows = given_rows(table, schema, first_row=first_row)
    return rows.columns if rows.deletions is None else table


def first_failing(count: int, check: Callable[[int], object]) -> int:
    """The place of the first of `count` rows that does not fit. `check(n)` looks at the first n rows, and raises one of
    UNFIT if one of them does not fit. It raises for all of them."""
    low, high = 0, count  # the first `low` rows fit, and the first `high` rows do not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            check(middle)
            low = middle
        except UNFIT:
            high = middle
    return high - 1


def loose_type(kind: FieldType, leaf: Callable[[FieldType], pa.DataType] = arrow_type) -> pa.DataType:
    """The Arrow type of a column. `leaf` gives the type of parts that have no parts. The type allows nulls everywhere.
    A later check refuses them, and names the row."""
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
    """A column in the type of the topic, from one that Arrow read as text or double. Raises ArrowException, BadRows."""
    if field.type == BINARY and column.type == pa.string():
        return pa.chunked_array([[_from_base64(value.as_py()) for value in column]], pa.binary())
    if column.type == pa.string() and field.type in _TIMES:
        return _times(column, field)
    converted = column.cast(loose_type(field.type))
    if field.type == FLOAT and pc.any(pc.xor(pc.is_inf(converted), pc.is_inf(column))).as_py():
        raise BadRows("above what a float holds")
    return converted


def _times(column: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
    """Dates and times from text. Where Arrow cannot read them, as for years above 9999, Python reads one by one."""
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
    """The problem and the remedy for a file whose byte `at` that place is no UTF-8."""
    if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "the file is in UTF-16: save it as UTF-8"
    return f"the byte 0x{block[at]:02X} is no UTF-8: save the file as UTF-8"


def hint(kind: FieldType) -> str:
    """The advice how to write a value of this type. Empty where that is plain."""
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
