"""Rows of a typed topic from JSON, one object a line, read by Arrow in batches of whole lines."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from minilog.typed.fields import Field, FieldType, Map, Primitive, arrow_type, walk
from minilog.typed.rows import rows_of
from minilog.typed.topic_schema import TopicSchema
from minilog_broker.cli.row_sources import (
    BINARY,
    BLOCK_BYTES,
    UNFIT,
    BadRows,
    Part,
    Source,
    as_topic_has_it,
    first_failing,
    hint,
    loose_type,
)

MAX_LINE_BYTES = 64 << 20
_AS_TEXT = frozenset({"binary", "date", "timestamp", "timestamp_ntz"})


def json_rows(source: Source, schema: TopicSchema) -> Iterator[Part]:
    """A column that is not there is null. Raises BadRows."""
    form = _JsonForm(schema)
    before = 0
    for block in _blocks(source):
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        if block.strip():
            yield Part(form.parsed(block, before), before + lines)
        before += lines


def _blocks(source: Source) -> Iterator[bytes]:
    """Whole lines, about BLOCK_BYTES of them."""
    rest: list[bytes] = []
    while found := source.read(BLOCK_BYTES):
        if cut := found.rfind(b"\n") + 1:
            yield b"".join((*rest, found[:cut]))
            rest = []
        rest.append(found[cut:])
        if sum(map(len, rest)) > MAX_LINE_BYTES:
            raise BadRows(f"a line takes more than {MAX_LINE_BYTES >> 20} MiB: write one object a line")
    if any(rest):
        yield b"".join(rest)


class _JsonForm:
    """How the lines of one topic are read. What JSON has no numbers for is read as text and then cast: an instant
    without a zone is refused, as everywhere. Bytes are base64."""

    def __init__(self, schema: TopicSchema) -> None:
        self._schema = schema
        self._fields = {each.name: each for each in schema.fields if _has_json(each)}
        self._read = {name: pa.field(name, loose_type(each.type, _read_type)) for name, each in self._fields.items()}

    def parsed(self, block: bytes, lines_before: int) -> pa.RecordBatch:
        """The rows of whole lines. Raises BadRows for the first that does not fit."""
        try:
            return self._rows(block)
        except UNFIT as error:
            lines = block.split(b"\n")
            bad = first_failing(len(lines), lambda count: self._rows(b"\n".join(lines[:count])))
            number = lines_before + bad + 1
            raise BadRows(f"line {number}: {self._reason(lines[bad], number) or error}") from None

    def _rows(self, block: bytes, first_row: int = 1) -> pa.RecordBatch | None:
        """None where there are only empty lines."""
        if not block.strip():
            return None
        table = _read_json(block, list(self._read.values()), "error")
        if table.num_rows != sum(1 for each in block.split(b"\n") if each.strip()):
            raise BadRows("write one object a line")
        columns = [as_topic_has_it(table.column(name), field) for name, field in self._fields.items()]
        return rows_of(pa.table(columns, names=list(self._fields)), self._schema, first_row=first_row)

    def _reason(self, line: bytes, number: int) -> str | None:
        """Why one line does not fit, for who wrote it."""
        try:
            said = json.loads(line, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            return f"this is not one JSON object ({error}): write one object a line"
        if not isinstance(said, dict):
            return "this is no JSON object: write one object a line, with the columns as its names"
        for name, value in said.items():
            if reason := self._reason_of(name, value, line):
                return reason
        try:
            self._rows(line, number)
        except UNFIT as error:
            return str(error)
        return None

    def _reason_of(self, name: str, value: Any, line: bytes) -> str | None:
        if name not in self._schema.names:
            return f"the topic has no column {name!r}: it has {', '.join(self._schema.names)}"
        field = self._schema.column(name)
        if name not in self._fields:
            return f"column {name!r} is {field.type}, which is not read from JSON: use --format parquet"
        try:
            as_topic_has_it(_read_json(line, [self._read[name]], "ignore").column(name), field)
        except UNFIT:
            return f"column {name!r} is {field.type}, and {reprlib.repr(value)} does not fit{hint(field.type)}"
        return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    said = dict(pairs)
    if len(said) != len(pairs):
        raise ValueError(
            f"{next(name for name, _ in pairs if sum(name == each for each, _ in pairs) > 1)!r} is there twice"
        )
    return said


def _has_json(field: Field) -> bool:
    """Arrow reads no map from JSON, and base64 is taken at the top only."""
    (_, outer), *inner = walk((field,))
    nested = [each.type for _, each in inner]
    return not any(isinstance(each, Map) for each in (outer.type, *nested)) and BINARY not in nested


def _read_type(kind: FieldType) -> pa.DataType:
    """What a column without parts is read as."""
    match kind:
        case Primitive(name) if name in _AS_TEXT:
            return pa.string()
        case Primitive("float"):
            return pa.float64()
        case _:
            return arrow_type(kind)


def _read_json(block: bytes, fields: list[pa.Field], unexpected: str) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior=unexpected),
    )
