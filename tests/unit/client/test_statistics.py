"""What a batch says of its columns: never narrower than its values, told in one way, not believed when it cannot be."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import CorruptMessage
from minilog.typed.conditions.predicate import plain_value
from minilog.typed.conditions.statistics import (
    BOUND_BYTES,
    check_statistics,
    default_columns,
    read_statistics,
    statistics_of,
)
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.fields import Field
from minilog.typed.schema.topic_schema import first_version
from minilog.typed.schema.wire import schema_from_wire, schema_to_wire
from minilog.v1 import typed_pb2

SCHEMA = first_version(
    parse_ddl(
        "flag boolean, tiny byte, big long, ratio double, narrow float, fare decimal(38,3), carrier string, "
        "raw binary, day date, at timestamp, tags array<string>, place struct<x: map<string, int>>"
    ),
    ["carrier", "big"],
    "at",
)
LONG_TEXT = st.text(st.sampled_from("aé\U0010ffff\ud7ff\U0001f600"), min_size=8, max_size=40)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "tiny": st.integers(-128, 127),
    "big": st.integers(-(2**63), 2**63 - 1),
    "ratio": st.floats(),
    "narrow": st.floats(width=32),
    "fare": st.decimals(-(10**35) + 1, 10**35 - 1, places=3),
    "carrier": st.text(max_size=5) | LONG_TEXT,
    "raw": st.binary(max_size=5) | st.binary(min_size=30, max_size=40) | st.just(b"\xff" * 40),
    "day": st.dates(datetime.date(1600, 1, 1)),
    "at": st.datetimes(datetime.datetime(1700, 1, 1), timezones=st.just(datetime.UTC)),
    "tags": st.just(["a"]),
}
COLUMNS = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: st.lists(st.none() | VALUES[name], max_size=8).map(lambda values: column(name, values))
)


def column(name: str, values: list[Any]) -> tuple[Field, pa.Array]:
    return SCHEMA.column(name), pa.array(values, SCHEMA.arrow_schema.field(name).type)


def ordered(value: Any) -> Any:
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


@given(COLUMNS)
def test_bounds_are_never_narrower_than_the_values(told_of: tuple[Field, pa.Array]) -> None:
    field, values = told_of
    (told,) = statistics_of([told_of])
    check_statistics(told, field, values)
    found = read_statistics([typed_pb2.ColumnStatistics.FromString(told.SerializeToString())], SCHEMA, len(values))
    known = [ordered(plain_value(value)) for value in values if value.is_valid] if field.name != "tags" else []
    assert found[field.id].null_count == values.null_count
    if found[field.id].lowest is not None:
        assert ordered(found[field.id].lowest) <= min(known)
    if found[field.id].highest is not None:
        assert max(known) <= ordered(found[field.id].highest)
    assert told.ByteSize() < 3 * BOUND_BYTES


def test_short_values_are_told_as_they_are() -> None:
    told = statistics_of([column("carrier", ["UA", None, "AA"]), column("ratio", [2.0, math.nan, -0.0])])
    found = read_statistics(told, SCHEMA, 3)
    carrier, ratio = (found[SCHEMA.column(name).id] for name in ("carrier", "ratio"))
    assert (carrier.lowest, carrier.highest, carrier.null_count) == ("AA", "UA", 1)
    assert (ratio.lowest, math.isnan(ratio.highest)) == (0.0, True)


def test_a_value_that_cannot_be_raised_has_no_bound() -> None:
    (told,) = statistics_of([column("raw", [b"\xff" * 40])])
    assert told.HasField("lowest")
    assert not told.HasField("highest")


def test_the_key_the_time_stamp_and_numbers_are_told_of_by_default() -> None:
    names = ("carrier", "big", "at", "tiny", "ratio", "narrow", "fare", "day")
    assert default_columns(SCHEMA) == names
    many = first_version(parse_ddl(", ".join(f"c{n} int" for n in range(40))))
    assert len(default_columns(many)) == 16


def lie(**changes: Any) -> typed_pb2.ColumnStatistics:
    told = statistics_of([column("tiny", [1, None, 3])])[0]
    told.MergeFrom(typed_pb2.ColumnStatistics(**changes))
    return told


BOUND = typed_pb2.Bound


@pytest.mark.parametrize("told", [lie(null_count=2), lie(lowest=BOUND(integer=2)), lie(highest=BOUND(integer=9))])
def test_statistics_that_lie_are_refused_by_who_has_the_rows(told: typed_pb2.ColumnStatistics) -> None:
    with pytest.raises(CorruptMessage, match="its producer is wrong"):
        check_statistics(told, *column("tiny", [1, None, 3]))


@pytest.mark.parametrize(
    "told",
    [
        [lie(null_count=4)],
        [lie(null_count=-1)],
        [lie(field_id=99)],
        [lie(), lie()],
        [lie(lowest=BOUND(content=b"x"))],
        [lie(lowest=BOUND(number=1.0))],
        [typed_pb2.ColumnStatistics(field_id=SCHEMA.column("carrier").id, lowest=BOUND(content=b"\xff"))],
        [typed_pb2.ColumnStatistics(field_id=SCHEMA.column("tags").id, lowest=BOUND(content=b"a"))],
        [lie()] * 300,
    ],
)
def test_statistics_that_cannot_be_are_refused_by_who_has_not(told: list[typed_pb2.ColumnStatistics]) -> None:
    with pytest.raises(CorruptMessage):
        read_statistics(told, SCHEMA, 3)


def test_a_decimal_of_all_digits_is_told_to_the_last() -> None:
    value = decimal.Decimal("-99999999999999999999999999999999999.999")
    found = read_statistics(statistics_of([column("fare", [value])]), SCHEMA, 1)
    assert found[SCHEMA.column("fare").id].highest == value


def test_a_schema_goes_over_the_wire_as_it_is() -> None:
    told = typed_pb2.TopicSchema.FromString(schema_to_wire(SCHEMA).SerializeToString())
    assert schema_from_wire(told) == SCHEMA
