"""One answer for each value and each type of a column, whichever way a program gives the value: as a row, in a table,
or as a number of JSON or CSV."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minilog.errors import InvalidRecord
from minilog.typed.rows.rows import rows_of
from minilog.typed.schema.ddl import schema_from_ddl
from minilog_tools.cli.json_rows import json_rows
from minilog_tools.cli.row_sources import BadRows
from minilog_tools.cli.table_rows import csv_rows

REFUSED = "refused"
NUMBERS = ["byte", "short", "int", "long", "float", "double"]
KINDS = [*NUMBERS, "decimal(5,2)", "decimal(38,0)", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz"]
_GIVEN = {
    pa.bool_(): st.booleans(),
    **{
        kind: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for kind, bits in ((pa.int8(), 8), (pa.int16(), 16), (pa.int32(), 32), (pa.int64(), 64))
    },
    pa.float32(): st.floats(width=32) | st.integers(-300, 300).map(float),
    pa.float64(): st.floats() | st.integers(-300, 300).map(float) | st.sampled_from([0.1, 3.4028235677973366e38]),
    pa.decimal128(38, 6): st.decimals(-(10**31), 10**31, places=6) | st.integers(-999, 999).map(decimal.Decimal),
    pa.string(): st.text(max_size=5) | st.sampled_from(["1", "0.1"]),
    pa.binary(): st.binary(max_size=5),
    pa.date32(): st.dates(),
    pa.timestamp("us", tz="UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.timestamp("us"): st.datetimes(),
}
values = st.sampled_from(list(_GIVEN)).flatmap(lambda kind: st.tuples(st.just(kind), _GIVEN[kind]))


def as_row(value: Any, kind: str) -> Any:
    schema = schema_from_ddl(f"a {kind}")
    try:
        checked = schema.row_form.check({"a": value}).values[0]
    except InvalidRecord:
        return REFUSED
    return pa.array([checked], schema.arrow_schema.field(0).type)[0].as_py()


def in_table(value: Any, given_kind: pa.DataType, kind: str) -> Any:
    try:
        return rows_of(pa.table({"a": pa.array([value], given_kind)}), schema_from_ddl(f"a {kind}")).to_pylist()[0]["a"]
    except InvalidRecord:
        return REFUSED


def from_text(read: Any, text: str, kind: str) -> Any:
    try:
        (part,) = read(io.BytesIO(text.encode()), schema_from_ddl(f"a {kind}"))
    except BadRows:
        return REFUSED
    return part.rows.to_pylist()[0]["a"]


def same(one: Any, other: Any) -> bool:
    return one == other or (
        isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    )


@given(values, st.sampled_from(KINDS))
@example((pa.float64(), 0.1), "float")
@example((pa.int64(), 2**53 + 1), "double")
@example((pa.decimal128(38, 6), decimal.Decimal("0.1")), "float")
@example((pa.decimal128(38, 6), decimal.Decimal("2.000000")), "int")
@example((pa.float64(), 1e39), "float")
def test_a_row_and_a_table_have_one_answer_for_all_pairs_of_types(
    given_value: tuple[pa.DataType, Any], kind: str
) -> None:
    given_kind, value = given_value
    row, table = as_row(value, kind), in_table(value, given_kind, kind)
    assert same(row, table), f"{value!r} of {given_kind} into {kind}: {row!r} as a row, {table!r} in a table"


numbers = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-300, 300).map(float)
)
# Above 2^53 the shortest text of a double is another whole number than the double.
exact = numbers.filter(lambda value: isinstance(value, int) or abs(value) <= 2**53)


@given(exact, st.sampled_from(NUMBERS))
@example(0.1, "float")
@example(2.0, "int")
@example(2**24 + 1, "float")
def test_a_number_of_json_has_the_answer_of_a_row(value: float, kind: str) -> None:
    row, text = as_row(value, kind), from_text(json_rows, json.dumps({"a": value}) + "\n", kind)
    assert same(row, text), f"{value!r} into {kind}: {row!r} as a row, {text!r} from JSON"


@given(numbers, st.sampled_from(["float", "double"]))
@example(0.1, "float")
def test_a_number_of_csv_has_the_answer_of_a_row_in_a_float_or_double(value: float, kind: str) -> None:
    row, text = as_row(value, kind), from_text(csv_rows, f"a\n{value!r}\n", kind)
    assert same(row, text), f"{value!r} into {kind}: {row!r} as a row, {text!r} from CSV"


@pytest.mark.parametrize(
    ("value", "kind"), [(1.5, "int"), (math.nan, "long"), (1e39, "float"), (0.001, "decimal(5,2)")]
)
def test_losses_above_rounding_are_refused(value: float, kind: str) -> None:
    assert (as_row(value, kind), in_table(value, pa.float64(), kind)) == (REFUSED, REFUSED)
