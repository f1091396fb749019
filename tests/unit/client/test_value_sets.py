"""A column and many values: one sorted set, which means the same as an equality for each of them and costs as one."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import CorruptMessage
from minilog.limits import MAX_CONDITION_TERMS
from minilog.typed.conditions.bounds import compared_type
from minilog.typed.conditions.predicate import (
    FALSE,
    TRUE,
    UNKNOWN,
    ColumnStatistics,
    Constant,
    Equal,
    IsNull,
    Not,
    OneOf,
    Or,
    Predicate,
    either,
    evaluate,
    outcomes,
    plain_value,
    size_of,
)
from minilog.typed.conditions.predicate_wire import predicate_from_wire, predicate_to_wire, terms_of
from minilog.typed.conditions.where import parse_where
from minilog.typed.schema.fields import arrow_type
from minilog.v1 import typed_pb2
from tests.unit.client.test_where import SCHEMA, VALUES

BY_ID = {each.id: each for each in SCHEMA.fields}
COMPARED = ["tiny", "delay", "fare", "ratio", "carrier", "flag", "day", "at", "local", "raw"]


def scalars(name: str, values: list[Any]) -> list[pa.Scalar]:
    field = SCHEMA.column(name)
    return [pa.scalar(each, arrow_type(field.type)) for each in values]


def of(name: str, values: list[Any]) -> Predicate:
    field_id = SCHEMA.column(name).id
    return either([Equal(field_id, each) for each in scalars(name, values)])


def each_row(predicate: Predicate, rows: pa.Array) -> list[bool | None]:
    """What the rows of a column are."""
    return list(evaluate(predicate, lambda _: rows, len(rows)).to_pylist())


def possible(predicate: Predicate, found: ColumnStatistics | None) -> int:
    """What the statistics of a column say."""
    return outcomes(predicate, lambda _: found)


def test_nan_is_equal_to_itself_and_both_zeros_are_one_number() -> None:
    field = SCHEMA.column("ratio")
    rows = pa.array([math.nan, -0.0, 0.0, 1.0, None])
    for zero in (0.0, -0.0):
        found = OneOf.of(field.id, [math.nan, zero], pa.float64())
        assert each_row(found, rows) == [True, True, True, False, None]
    assert OneOf.of(field.id, [0.0, -0.0], pa.float64()).values in ((0.0,), (-0.0,))
    assert possible(found, ColumnStatistics(2, 0, 5.0, math.nan)) == TRUE | FALSE
    assert possible(found, ColumnStatistics(2, 0, 5.0, 6.0)) == FALSE


def test_a_float_column_is_compared_with_doubles() -> None:
    rows = pa.array([0.3, 0.5], pa.float32())
    found = OneOf.of(1, [0.3, 0.5], pa.float64())
    assert each_row(found, rows) == [False, True]


def test_a_value_between_the_bounds_may_be_there_and_one_beside_them_is_not() -> None:
    found = of("delay", [1, 2])
    for bounds, said in (((3, 9), FALSE), ((2, 9), TRUE | FALSE), ((-5, 0), FALSE), ((2, 2), TRUE), ((0, 9), 3)):
        assert possible(found, ColumnStatistics(2, 0, *bounds)) == said
        assert possible(found, ColumnStatistics(2, 1, *bounds)) == said | UNKNOWN
    assert possible(found, ColumnStatistics(2, 2)) == UNKNOWN
    assert possible(found, None) == TRUE | FALSE | UNKNOWN


def test_in_of_constants_is_one_set_of_them_whatever_their_order() -> None:
    many = ", ".join(map(str, range(300, 0, -1)))
    found = parse_where(f"delay in ({many}, 7)", SCHEMA)
    assert isinstance(found, OneOf)
    assert found.values == tuple(range(1, 301))
    assert size_of(found) == terms_of(predicate_to_wire(found)) == 1
    assert isinstance(parse_where(f"delay not in ({many})", SCHEMA), Not)
    assert isinstance(parse_where("delay in (5)", SCHEMA), Equal)


def test_null_and_what_the_column_cannot_be_stay_beside_the_set() -> None:
    found = parse_where("delay in (1, null, 2, 99999999999)", SCHEMA)
    assert isinstance(found, Or)
    assert Constant(None) in found.parts
    column = pa.array([1, 3, None], pa.int32())
    assert each_row(found, column) == [True, None, None]
    absent = parse_where("delay not in (1, null)", SCHEMA)
    assert each_row(absent, column) == [False, None, None]


@pytest.mark.parametrize("name", COMPARED)
def test_a_set_comes_back_as_it_was(name: str) -> None:
    values = [plain_value(each) for each in scalars(name, VALUES[name])]
    found = OneOf.of(SCHEMA.column(name).id, values, compared_type(SCHEMA.column(name)))
    told = typed_pb2.Predicate.FromString(predicate_to_wire(found).SerializeToString())
    back = predicate_from_wire(told, BY_ID.get)
    assert isinstance(back, OneOf)
    assert repr(back) == repr(found)
    assert set(map(str, back.array)) == set(map(str, found.array))


def told(name: str, **values: Any) -> typed_pb2.Predicate:
    return typed_pb2.Predicate(one_of=typed_pb2.SetCondition(field_id=SCHEMA.column(name).id, **values))


@pytest.mark.parametrize(
    ("predicate", "words"),
    [
        (told("delay"), "has none"),
        (told("delay", numbers=[1.0]), "has none, or none of int"),
        (told("delay", integers=[1], numbers=[1.0]), "has none, or none of int"),
        (told("delay", integers=[2, 1]), "not ascending"),
        (told("delay", integers=[1, 1]), "not ascending"),
        (told("ratio", numbers=[math.nan, 1.0]), "not ascending"),
        (told("ratio", numbers=[-0.0, 0.0]), "not ascending"),
        (told("ratio", integers=[1]), "none of double"),
        (told("delay", integers=[2**31]), "is no int"),
        (told("tiny", integers=[-129, 0]), "is no byte"),
        (told("day", integers=[2**40]), "is no date"),
        (told("carrier", contents=[b"\xff"]), "no text"),
        (told("fare", unscaled=[b"\x7f" * 4]), "is no decimal"),
        (told("fare", integers=[1]), "none of decimal"),
        (told("tags", contents=[b"x"]), "none of array"),
        (typed_pb2.Predicate(one_of=typed_pb2.SetCondition(field_id=99, integers=[1])), "field 99"),
    ],
)
def test_a_message_that_is_no_set_is_refused(predicate: typed_pb2.Predicate, words: str) -> None:
    with pytest.raises(CorruptMessage, match=words):
        predicate_from_wire(predicate, BY_ID.get)


def test_terms_are_counted_wherever_they_stand() -> None:
    part = typed_pb2.Predicate(is_null=1)
    parts = typed_pb2.Predicates(parts=[part] * (MAX_CONDITION_TERMS + 1))
    wide = typed_pb2.Predicate(any_of=parts)
    deep = typed_pb2.Predicate(negated=typed_pb2.Predicate(all_of=typed_pb2.Predicates(parts=[wide])))
    for each in (wide, typed_pb2.Predicate(negated=wide), deep):
        with pytest.raises(CorruptMessage, match=f"terms or more came, the most is {MAX_CONDITION_TERMS}"):
            predicate_from_wire(each, BY_ID.get)
    del parts.parts[MAX_CONDITION_TERMS - 1 :]
    most = predicate_from_wire(typed_pb2.Predicate(any_of=parts), BY_ID.get)
    assert size_of(most) == MAX_CONDITION_TERMS
    assert most == Or((IsNull(1),) * (MAX_CONDITION_TERMS - 1))


def test_dates_and_decimals_are_sets_as_they_are_written() -> None:
    days = parse_where("day in ('2013-01-31', '2013-01-30')", SCHEMA)
    assert isinstance(days, OneOf)
    column = pa.array([datetime.date(2013, 1, 30), datetime.date(2013, 2, 1)])
    assert each_row(days, column) == [True, False]
    fares = parse_where("fare in (1.5, 2, 1.505)", SCHEMA)
    assert isinstance(fares, Or)
    assert (
        OneOf.of(SCHEMA.column("fare").id, map(decimal.Decimal, ("1.50", "2.00")), pa.decimal128(5, 2)) in fares.parts
    )
