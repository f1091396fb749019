"""Conditions as Python writes them are the words of a `where` (client/minilog/typed/conditions/expressions.py)."""

from __future__ import annotations

import datetime
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog import col, schema_from_ddl
from minilog.errors import InvalidArgument
from minilog.typed.conditions.expressions import Condition, constant_words
from minilog.typed.conditions.predicate import Predicate, evaluate
from minilog.typed.conditions.where import parse_where

SCHEMA = schema_from_ddl(
    "carrier string, delay int, distance double, price decimal(10,2), day date, at timestamp, local timestamp_ntz, "
    "late boolean, raw binary, `odd ``name` bigint"
)
AT = datetime.datetime(2013, 1, 31, 12, 0, 0, 5, tzinfo=datetime.UTC)


def parsed(condition: Condition | str) -> Predicate:
    return parse_where(str(condition), SCHEMA)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (col("delay") > 10, "delay > 10"),
        (col("delay") >= -3, "delay >= -3"),
        (col("delay") < 1.5, "delay < 1.5"),
        (col("delay") <= 7, "delay <= 7"),
        (col("carrier") == "UA", "carrier = 'UA'"),
        (col("carrier") != "it's", 'carrier <> "it\'s"'),
        (col("distance") > 1e300, "distance > 1e300"),
        (col("distance") == 0.1, "distance = 0.1"),
        (col("price") >= decimal.Decimal("1.50"), "price >= 1.50"),
        (col("day") == datetime.date(2013, 1, 31), "day = date '2013-01-31'"),
        (col("at") < AT, "at < timestamp '2013-01-31T12:00:00.000005Z'"),
        (col("local") < AT.replace(tzinfo=None), "local < timestamp_ntz '2013-01-31T12:00:00.000005'"),
        (col("late") == True, "late = true"),  # noqa: E712
        (col("late"), "late"),
        (~col("late"), "not late"),
        (col("raw") == b"\0a", "raw = X'0061'"),
        (col("odd `name") == 1, "`odd ``name` = 1"),
        (col("delay").is_in([1, 2]), "delay in (1, 2)"),
        (col("delay").between(1, 2), "delay between 1 and 2"),
        (col("carrier").starts_with("U_%\\"), r"carrier like r'U\_\%\\%'"),
        (col("carrier").is_null(), "carrier is null"),
        (col("carrier").is_not_null(), "carrier is not null"),
        ((col("delay") > 1) & (col("delay") < 9) | col("late"), "delay > 1 and delay < 9 or late"),
        (~((col("delay") > 1) | col("carrier").is_null()), "not (delay > 1 or carrier is null)"),
        (col("delay") == np.int64(5), "delay = 5"),
        (col("distance") == np.float64(2.5), "distance = 2.5"),
    ],
)
def test_an_expression_is_what_its_words_are(condition: Condition, text: str) -> None:
    assert parsed(condition) == parsed(text)


def test_a_chain_of_many_conditions_has_few_levels() -> None:
    condition: Condition = col("delay") > 0
    for number in range(300):
        condition = condition & (col("delay") != number)
    parsed(condition)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_every_text_is_compared_as_it_is(text: str) -> None:
    rows = pa.array([text, text + "x", None])
    found = evaluate(parsed(col("carrier") == text), lambda _: rows, 3).to_pylist()
    assert found == [True, False, None]
    begins = evaluate(parsed(col("carrier").starts_with(text)), lambda _: rows, 3).to_pylist()
    assert begins == [True, True, None]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_compared_with_all_its_digits(value: float) -> None:
    rows = pa.array([value, math.nextafter(value, math.inf)])
    assert evaluate(parsed(col("distance") == value), lambda _: rows, 2).to_pylist() == [True, False]


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_integer_is_compared_exactly(value: int) -> None:
    assert evaluate(parsed(col("odd `name") == value), lambda _: pa.array([value]), 1).to_pylist() == [True]


@pytest.mark.parametrize("value", [None, math.nan, math.inf, decimal.Decimal("NaN"), object(), [1]])
def test_expressions_without_a_constant_are_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="cannot be compared with a column"):
        constant_words(value)


def test_mistakes_of_python_are_told() -> None:
    with pytest.raises(TypeError, match="has no truth value"):
        bool(col("delay") > 1)
    with pytest.raises(TypeError, match="put each comparison in parentheses"):
        (col("delay") > 1) & 5  # type: ignore[operator]
    with pytest.raises(InvalidArgument, match="no name of a column"):
        col("")
    with pytest.raises(InvalidArgument, match="give at least one"):
        col("delay").is_in([])
    with pytest.raises(InvalidArgument, match=r"use is_null\(\)"):
        col("delay") == None  # noqa: B015, E711
