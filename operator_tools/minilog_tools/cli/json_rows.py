"""Rows of a typed topic from JSON, with one object a line. Arrow reads them in batches of whole lines."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.json as pj

from minilog.typed.schema.fields import Field, FieldType, Map, Primitive, arrow_type, walk
from minilog.typed.schema.row_form import DELETED_COLUMN
from minilog.typed.schema.topic_schema import TopicSchema
from minilog_tools.cli.json_values import loads, value_of
from minilog_tools.cli.row_sources import (
    BINARY,
    BLOCK_BYTES,
    UNFIT,
    BadRows,
    Part,
    RowSource,
    as_topic_has_it,
    first_failing,
    loose_type,
    no_utf8,
    topic_rows,
)

MAX_LINE_BYTES = 64 << 20
_OBJECTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_AS_TEXT = frozenset({"binary", "date", "timestamp", "timestamp_ntz"})


def json_rows(source: RowSource, schema: TopicSchema) -> Iterator[Part]:
    """The rows of the lines, batch by batch. A missing column is null. Raises BadRows."""
    form = _JsonForm(schema)
    before = 0
    for block in _blocks(source):
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        if block.strip():
            yield Part(form.parsed(block, before), before + lines)
        before += lines


def _blocks(source: RowSource) -> Iterator[bytes]:
    """Blocks of whole lines, of about BLOCK_BYTES each. Raises BadRows for a line of more than MAX_LINE_BYTES."""
    rest: list[bytes] = []
    is_first = True
    while chunk := source.read(BLOCK_BYTES):
        chunk, is_first = chunk.removeprefix(codecs.BOM_UTF8 if is_first else b""), False
        if cut := chunk.rfind(b"\n") + 1:
            yield b"".join((*rest, chunk[:cut]))
            rest = []
        rest.append(chunk[cut:])
        if sum(map(len, rest)) > MAX_LINE_BYTES:
            raise BadRows(f"a line takes more than {MAX_LINE_BYTES >> 20} MiB: write one object a line")
    if any(rest):
        yield b"".join(rest)


class _JsonForm:
    """The reader of the lines for one topic. Arrow reads a block at once. Where it cannot, Python reads line by line.

    Dates and times are text in JSON. A text for an instant must have a zone, as everywhere. Bytes are base64.
    """

    def __init__(self, schema: TopicSchema) -> None:
        self._schema = schema
        self._fields = {field.name: field for field in schema.fields}
        self._by_arrow = all(map(_is_read_by_arrow, schema.fields))
        self._read = [pa.field(field.name, loose_type(field.type, _read_type)) for field in schema.fields]
        self._of_deletion = frozenset((*schema.key_columns, schema.timestamp_column))
        if schema.marks_deletions:
            self._read.append(pa.field(DELETED_COLUMN, pa.bool_()))

    def parsed(self, block: bytes, lines_before: int) -> pa.RecordBatch | pa.Table:
        """The rows of whole lines. Raises BadRows for the first that does not fit."""
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            raise self._no_utf8(block, lines_before, error.start) from None
        rows = self._at_once(block)
        return self._by_line(text, lines_before) if rows is None else rows

    def _at_once(self, block: bytes) -> pa.RecordBatch | pa.Table | None:
        """The rows of a block as Arrow reads them. None where Arrow cannot read it, or where a line does not fit."""
        if not self._by_arrow:
            return None
        try:
            _OBJECTS.decode_lines(block)  # Arrow's reader does not survive a line that is null
            table = _read_json(block, self._read)
            if table.num_rows != sum(1 for line in block.split(b"\n") if line.strip()):
                return None
            columns = [as_topic_has_it(table.column(field.name), field) for field in self._schema.fields]
            marks = table.columns[len(columns) :]  # `_deleted`, if the topic's rows may have it
            return topic_rows(pa.table([*columns, *marks], names=table.schema.names), self._schema)
        except (msgspec.MsgspecError, *UNFIT):
            return None

    def _by_line(self, text: str, lines_before: int) -> pa.RecordBatch | pa.Table:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=lines_before + 1) if line.strip()]
        rows = [self._of_line(line, number) for number, line in lines]
        columns = [
            pa.array([row.get(field.name) for row in rows], loose_type(field.type)) for field in self._schema.fields
        ]
        table = pa.table(columns, names=self._schema.names)
        if self._schema.marks_deletions:
            marks = pa.array([row.get(DELETED_COLUMN) for row in rows], pa.bool_())
            table = table.append_column(DELETED_COLUMN, marks)
        try:
            return topic_rows(table, self._schema)
        except UNFIT:
            bad = first_failing(len(rows), lambda count: topic_rows(table.slice(0, count), self._schema))
            number = lines[bad][0]
            try:
                topic_rows(table.slice(bad, 1), self._schema, first_row=number)
            except UNFIT as error:
                raise BadRows(f"line {number}: {error}") from None
            raise

    def _of_line(self, line: str, number: int) -> dict[str, Any]:
        """The values of one line, by column. Raises BadRows."""
        try:
            row = loads(line)
        except (ValueError, RecursionError) as error:
            raise BadRows(f"line {number}: this is not one JSON object ({error}): write one object a line") from None
        if not isinstance(row, dict):
            raise BadRows(
                f"line {number}: this is no JSON object: write one object a line, with the columns as its names"
            )
        mark = row.pop(DELETED_COLUMN, None) if self._schema.marks_deletions else None
        if mark is not None and not isinstance(mark, bool):
            raise BadRows(f"line {number}: {DELETED_COLUMN!r} is true or false, and {json.dumps(mark)} is neither")
        if unknown := next((name for name in row if name not in self._fields), None):
            raise BadRows(f"line {number}: the topic has no column {unknown!r}: it has {', '.join(self._fields)}")
        if mark:
            row = {name: row[name] for name in row if name in self._of_deletion}
            if missing := next((name for name in self._schema.key_columns if name not in row), None):
                raise BadRows(f"line {number}: the deletion has no value for key column {missing!r}: give all of them")
        try:
            values = {name: value_of(value, self._fields[name]) for name, value in row.items()}
        except BadRows as error:
            raise BadRows(f"line {number}: {error}") from None
        return values | {DELETED_COLUMN: mark}

    def _no_utf8(self, block: bytes, lines_before: int, at: int) -> BadRows:
        """The error for the byte `at` that place, which is no UTF-8. It names the line, and where it can the column."""
        number = lines_before + block.count(b"\n", 0, at) + 1
        start = block.rfind(b"\n", 0, at) + 1
        line = block[start:].split(b"\n", 1)[0]
        try:
            row = loads(line.decode(errors="surrogateescape"))
            column = next((name for name, value in row.items() if not json.dumps(value, ensure_ascii=False).isascii()))
        except (ValueError, RecursionError, AttributeError, TypeError, StopIteration):
            return BadRows(f"line {number}: {no_utf8(block, at)}")
        return BadRows(f"line {number}: column {column!r}: {no_utf8(block, at)}")


def _is_read_by_arrow(field: Field) -> bool:
    """Whether Arrow can read the column. It reads no map from JSON. Bytes become base64 only at the top level."""
    (_, outer), *inner = walk((field,))
    nested = [part.type for _, part in inner]
    return not any(isinstance(kind, Map) for kind in (outer.type, *nested)) and BINARY not in nested


def _read_type(kind: FieldType) -> pa.DataType:
    """The type as which Arrow reads a column without parts."""
    match kind:
        case Primitive(name) if name in _AS_TEXT:
            return pa.string()
        case Primitive("float"):
            return pa.float64()
        case _:
            return arrow_type(kind)


def _read_json(block: bytes, fields: list[pa.Field]) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error"),
    )
