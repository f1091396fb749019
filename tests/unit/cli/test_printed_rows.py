"""What `minilog consume` prints of rows, `minilog produce` takes: the same rows come back, of every type."""

from __future__ import annotations

import decimal
import io
import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minilog import TopicSchema
from minilog.typed.rows.as_json import rows_as_json
from minilog.typed.schema.fields import Array, Decimal, Field, FieldType, Map, Primitive, Struct, arrow_type
from minilog.typed.schema.topic_schema import first_version
from minilog_tools.cli.as_csv import rows_as_csv
from minilog_tools.cli.json_rows import json_rows
from minilog_tools.cli.row_sources import BadRows, Part
from minilog_tools.cli.table_rows import csv_rows

_FAR_DAY, _FAR_US = 10_000_000, 10**18


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


_TEXT = st.text(max_size=8)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": _integers(8),
    "short": _integers(16),
    "int": _integers(32),
    "long": _integers(64),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": _TEXT | st.sampled_from(["", "NaN", "null", "\r\n", '"', ",", " a ", "\u2028"]),
    "binary": st.binary(max_size=5),
    "date": st.integers(-1_000_000, _FAR_DAY),
    "timestamp": st.integers(-(10**17), _FAR_US),
    "timestamp_ntz": st.integers(-(10**17), _FAR_US),
}
_SIMPLE: tuple[FieldType, ...] = (*map(Primitive, _VALUES), Decimal(9, 2), Decimal(38, 10), Decimal(5, 5))


def _nested(inner: st.SearchStrategy[FieldType]) -> st.SearchStrategy[FieldType]:
    return st.one_of(
        st.builds(lambda kind: Array(Field("element", kind)), inner),
        st.builds(lambda a, b: Struct((Field("a", a), Field("b", b))), inner, inner),
        st.builds(lambda a, b: Map(Field("key", a, nullable=False), Field("value", b)), inner, inner),
    )


_KINDS = st.recursive(st.sampled_from(_SIMPLE), _nested, max_leaves=4)


def _of(kind: FieldType) -> st.SearchStrategy[Any]:
    """Values of a type, without nulls at the top."""
    match kind:
        case Primitive(name):
            return _VALUES[name]
        case Decimal(precision, scale):
            bound = 10**precision - 1
            return st.integers(-bound, bound).map(lambda digits: _decimal(digits, scale))
        case Array(element):
            return st.lists(_or_null(element.type), max_size=3)
        case Struct(fields):
            return st.fixed_dictionaries({each.name: _or_null(each.type) for each in fields})
        case Map(key, value):
            pairs = st.tuples(_of(key.type), _or_null(value.type))
            return st.lists(
                pairs, max_size=3, unique_by=lambda pair: str(_told(pa.scalar(pair[0], arrow_type(key.type))))
            )


def _decimal(digits: int, scale: int) -> Any:
    return decimal.Decimal(digits).scaleb(-scale, decimal.Context(prec=50))


def _or_null(kind: FieldType) -> st.SearchStrategy[Any]:
    return st.none() | _of(kind)


@st.composite
def _rows(draw: st.DrawFn, kinds: st.SearchStrategy[FieldType]) -> tuple[TopicSchema, pa.RecordBatch]:
    schema = first_version(
        Field(f"c{place}", kind) for place, kind in enumerate(draw(st.lists(kinds, min_size=1, max_size=3)))
    )
    count = draw(st.integers(0, 4))
    columns = [
        pa.array(draw(st.lists(_or_null(each.type), min_size=count, max_size=count)), arrow.type)
        for each, arrow in zip(schema.fields, schema.arrow_schema, strict=True)
    ]
    return schema, pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)


def _read(parts: Iterable[Part], schema: TopicSchema) -> pa.RecordBatch:
    batches = [part.rows for part in parts]
    return pa.Table.from_batches(batches, schema.arrow_schema).combine_chunks()


def _same(one: Any, other: Any) -> bool:
    """Of what Arrow gives for a column, as text: NaN is itself, and far years have no object."""
    return str(_told(one)) == str(_told(other))


def _told(value: Any) -> Any:
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return value.value
    if pa.types.is_struct(kind):
        return {name: _told(value[name]) for name in kind.names}
    if pa.types.is_map(kind):
        keys, items = value.values.flatten()
        return sorted(str((_told(key), _told(item))) for key, item in zip(keys, items, strict=True))
    if pa.types.is_list(kind):
        return [_told(each) for each in value.values]
    return value.as_py()


def _assert_same(found: pa.Table, wanted: pa.RecordBatch) -> None:
    assert found.num_rows == wanted.num_rows
    for name in wanted.schema.names:
        for one, other in zip(found.column(name), wanted.column(name), strict=True):
            assert _same(one, other), (name, _told(one), _told(other))


_SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_SETTINGS
@given(_rows(_KINDS))
def test_json_comes_back(rows: tuple[TopicSchema, pa.RecordBatch]) -> None:
    schema, printed = rows
    text = b"".join(line + b"\n" for line in rows_as_json(printed))
    _assert_same(_read(json_rows(io.BytesIO(text), schema), schema), printed)


@_SETTINGS
@given(_rows(st.sampled_from(_SIMPLE)))
def test_csv_comes_back(rows: tuple[TopicSchema, pa.RecordBatch]) -> None:
    schema, printed = rows
    text = rows_as_csv(printed.slice(0, 0), header=True) + rows_as_csv(printed, header=False)
    _assert_same(_read(csv_rows(io.BytesIO(text), schema), schema), printed)


def _far(kind: str, count: int) -> tuple[TopicSchema, pa.RecordBatch]:
    schema = first_version([Field("c", Primitive(kind))])
    return schema, pa.RecordBatch.from_arrays(
        [pa.array([count, None, 0], schema.arrow_schema.field(0).type)], schema=schema.arrow_schema
    )


@pytest.mark.parametrize(("kind", "count"), [("date", -_FAR_DAY), ("timestamp", _FAR_US), ("timestamp_ntz", _FAR_US)])
def test_years_beyond_9999_and_nulls_of_one_column_come_back_from_csv(kind: str, count: int) -> None:
    schema, printed = _far(kind, count)
    text = rows_as_csv(printed, header=True)
    _assert_same(_read(csv_rows(io.BytesIO(text), schema), schema), printed)


@pytest.mark.parametrize("lines", [b"null\n", b'{"a":1}\nnull\n{"a":2}\n', b'{"a":1} null\n', b'{"a":1}\n[null]\n'])
def test_a_line_that_is_null_is_refused(lines: bytes) -> None:
    schema = first_version([Field("a", Primitive("int"))])
    with pytest.raises(BadRows, match=r"^line [12]: this is no"):
        list(json_rows(io.BytesIO(lines), schema))


def test_numbers_that_json_has_not_are_taken_with_and_without_quotes() -> None:
    schema = first_version([Field("a", Primitive("double")), Field("b", Primitive("float"))])
    lines = b'{"a":NaN,"b":"NaN"}\n{"a":"-Infinity","b":Infinity}\n'
    found = _read(json_rows(io.BytesIO(lines), schema), schema).to_pylist()
    assert all(map(math.isnan, found[0].values()))
    assert found[1] == {"a": -math.inf, "b": math.inf}


def test_csv_needs_no_place_for_a_nested_column_that_the_file_has_not() -> None:
    schema = first_version([Field("a", Primitive("int")), Field("tags", Array(Field("element", Primitive("int"))))])
    assert _read(csv_rows(io.BytesIO(b"a\n1\n"), schema), schema).to_pylist() == [{"a": 1, "tags": None}]
