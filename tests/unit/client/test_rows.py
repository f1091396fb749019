"""A user's table as a topic's columns: nothing is lost on the way, and what would be is refused with column and row."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import InvalidRecord
from minilog.typed.rows.rows import rows_of
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.topic_schema import TopicSchema, first_version, schema_from_arrow


def schema_of(words: str) -> TopicSchema:
    return first_version(parse_ddl(words))


def rows(words: str, **columns: pa.Array) -> list[dict[str, Any]]:
    table = pa.table(columns)
    found = rows_of(table, schema_of(words))
    found.validate(full=True)
    said: list[dict[str, Any]] = found.to_pylist()
    return said


def test_columns_are_matched_by_name_and_missing_ones_are_null() -> None:
    found = rows("a int, b string, c double", c=pa.array([1.5]), a=pa.array([7], pa.int64()))
    assert found == [{"a": 7, "b": None, "c": 1.5}]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("a byte", pa.array([-128, 127, None], pa.int64())),
        ("a long", pa.array([2**63 - 1, 0], pa.uint64())),
        ("a double", pa.array([1.5, math.inf, None], pa.float32())),
        ("a float", pa.array([1.5, -0.0], pa.float64())),
        ("a int", pa.array([3.0, None], pa.float64())),
        ("a decimal(6,2)", pa.array([12, None], pa.int32())),
        ("a decimal(6,2)", pa.array([decimal.Decimal("1.5000")])),
        ("a long", pa.array([decimal.Decimal("5.00")])),
        ("a string", pa.array(["x", None, "x"]).dictionary_encode()),
        ("a string", pa.array(["x", None], pa.large_string())),
        ("a binary", pa.array([b"ab", None], pa.binary(2))),
        ("a timestamp", pa.array([1_000, None], pa.timestamp("ns", "Europe/Berlin"))),
        ("a timestamp_ntz", pa.array([1, None], pa.timestamp("s"))),
        ("a date", pa.array([datetime.date(2013, 1, 1)], pa.date64())),
        ("a array<long>", pa.array([[1, None], None, []], pa.list_(pa.int8()))),
        ("a struct<x: long, y: string>", pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))),
        ("a map<string, long>", pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int16()))),
        ("a int", pa.nulls(3)),
    ],
)
def test_values_that_fit_are_cast(words: str, values: pa.Array) -> None:
    found = [row["a"] for row in rows(words, a=values)]
    wanted = [
        value if value is None or not isinstance(value, dict) else {"y": None, **value} for value in values.to_pylist()
    ]
    assert found == wanted


def test_nan_is_a_number_like_others() -> None:
    assert math.isnan(rows("a double", a=pa.array([math.nan], pa.float32()))[0]["a"])


_TEXT_TO_LONG = pa.map_(pa.string(), pa.int64())
REFUSED = [
    ("a byte", pa.array([1, 128, 200]), r"128 in row 1 does not fit, and 1 more"),
    ("a long", pa.array([2**63], pa.uint64()), "in row 0 does not fit"),
    ("a int", pa.array([1.0, 1.5]), "1.5 in row 1 does not fit"),
    ("a int", pa.array([math.nan]), "nan in row 0 does not fit"),
    ("a float", pa.array([1e39]), r"1e\+39 in row 0 does not fit"),
    ("a float", pa.array([decimal.Decimal(10**38 - 1) * 4], pa.decimal256(40, 0)), "does not fit"),
    ("a decimal(4,1)", pa.array([decimal.Decimal("1.25")]), "in row 0 does not fit"),
    ("a decimal(4,1)", pa.array([1000]), "1000 in row 0 does not fit"),
    ("a timestamp_ntz", pa.array([1_001], pa.timestamp("ns")), "does not fit"),
    ("a timestamp", pa.array([1], pa.timestamp("us")), "these times have no zone"),
    ("a int", pa.array(["1"]), "cast it yourself"),
    ("a string", pa.array([1]), "cast it yourself"),
    ("a boolean", pa.array([1]), "cast it yourself"),
    ("a array<byte>", pa.array([[1], [300]]), "'a.element' is byte, and 300"),
    ("a array<byte>", pa.array([None, [], [1, 2], [3, 300], [301]]), "300 in row 3 does not fit, and 1 more"),
    ("a array<array<byte>>", pa.array([[[1], [2]], [[3], [], [4, 300]]]), "300 in row 1 does not fit"),
    ("a map<string, byte>", pa.array([[("a", 1), ("b", 2)], [("c", 300)]], _TEXT_TO_LONG), "300 in row 1 does not fit"),
    ("a struct<x: int>", pa.array([{"z": 1}]), "no field 'z'"),
    ("a int NOT NULL", pa.array([1, None, None]), "may not be null, and row 1 has no value for it, and 1 more"),
    ("a struct<x: int NOT NULL>", pa.array([{"x": None}]), "'a.x' may not be null"),
]


def test_a_value_that_python_has_no_object_for_is_shown_as_its_text() -> None:
    """The year 10000."""
    far = pa.array([100_000_000_000_000], pa.timestamp("s"))
    with pytest.raises(InvalidRecord, match=r"timestamp_ntz, and '\+3170843-11-07T09:46:40' in row 0 does not fit"):
        rows("a timestamp_ntz", a=far)


@pytest.mark.parametrize(
    ("words", "values", "complaint"), REFUSED, ids=[f"{words} {n}" for n, (words, *_) in enumerate(REFUSED)]
)
def test_values_that_do_not_fit_are_refused_with_column_and_row(words: str, values: pa.Array, complaint: str) -> None:
    with pytest.raises(InvalidRecord, match=complaint):
        rows(words, a=values)


def test_a_null_in_a_list_is_told_by_the_row_of_the_list() -> None:
    element = pa.field("element", pa.int32(), nullable=False)
    schema = schema_from_arrow(pa.schema([("a", pa.list_(element))]))
    with pytest.raises(InvalidRecord, match=r"'a\.element' may not be null, and row 1 has no value"):
        rows_of(pa.table({"a": [[1, 2], [3, None]]}), schema)


def test_columns_that_the_topic_does_not_have_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="no column 'b'"):
        rows("a int", a=pa.array([1]), b=pa.array([1]))
    with pytest.raises(InvalidRecord, match="two columns 'a'"):
        rows_of(pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), schema_of("a int"))
    with pytest.raises(InvalidRecord, match="'b' may not be null"):
        rows("a int, b int NOT NULL", a=pa.array([1]))


def test_a_null_struct_has_no_fields_that_could_be_null() -> None:
    kind = pa.struct([("x", pa.int32())])
    assert rows("a struct<x: int NOT NULL>", a=pa.array([None, {"x": 1}], kind)) == [{"a": None}, {"a": {"x": 1}}]


def test_a_slice_of_a_nested_column_is_cast_like_a_whole_one() -> None:
    values = pa.array([[1], [2, 3], None, [4]], pa.list_(pa.int8())).slice(1)
    assert [row["a"] for row in rows("a array<int>", a=values)] == [[2, 3], None, [4]]
    entries = pa.array([[("a", 1)], [("b", 2)], None], pa.map_(pa.string(), pa.int8())).slice(1)
    assert [row["a"] for row in rows("a map<string, int>", a=entries)] == [[("b", 2)], None]


INTEGERS = [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]


@given(st.sampled_from(INTEGERS), st.sampled_from(["byte", "int", "long", "decimal(5,0)"]), st.data())
def test_integers_come_through_exactly_or_not_at_all(kind: pa.DataType, name: str, data: st.DataObject) -> None:
    bits, is_signed = kind.bit_width, pa.types.is_signed_integer(kind)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    near = st.sampled_from([0, -128, 127, 99_999, 100_000, 2**24, 2**24 + 1, 2**31, 2**53 + 1]).filter(
        lambda value: low <= value <= high
    )
    values = data.draw(st.lists(near | st.integers(low, high) | st.none(), max_size=5))
    try:
        found = [row["a"] for row in rows(f"a {name}", a=pa.array(values, kind))]
    except InvalidRecord:
        return
    assert found == values
