"""What of polars' conditions is pushed down: what a `where` surely says as well (client/minilog/polars.py)."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog import schema_from_ddl
from minilog.errors import InvalidArgument
from minilog.polars import pushed_down
from minilog.typed.conditions.expressions import Condition
from minilog.typed.conditions.predicate import evaluate
from minilog.typed.conditions.where import parse_where

SCHEMA = schema_from_ddl(
    "carrier string, delay int, far bigint, distance double, narrow float, price decimal(10,2), day date, "
    "at timestamp, late boolean, raw binary"
)
FRAME = pl.DataFrame(pl.from_arrow(SCHEMA.arrow_schema.empty_table()))
AT = datetime.datetime(2013, 1, 31, 12, tzinfo=datetime.UTC)


def accepts(condition: Condition) -> bool:
    try:
        parse_where(str(condition), SCHEMA)
    except InvalidArgument:
        return False
    return True


def pushed(predicate: pl.Expr) -> list[str]:
    return [str(each) for each in pushed_down(predicate, FRAME.schema, accepts)]


@pytest.mark.parametrize(
    ("predicate", "words"),
    [
        (pl.col("delay") > 10, ["(`delay` > 10)"]),
        (pl.lit(10) < pl.col("delay"), ["(`delay` > 10)"]),
        ((pl.col("delay") > 10) & (pl.col("carrier") == "UA"), ["(`delay` > 10)", "(`carrier` = 'UA')"]),
        ((pl.col("delay") > 10) | pl.col("late"), ["((`delay` > 10) or `late`)"]),
        (~(pl.col("delay") > 10), ["(not (`delay` > 10))"]),
        (pl.col("carrier").is_null(), ["(`carrier` is null)"]),
        (pl.col("carrier").is_not_null(), ["(`carrier` is not null)"]),
        (pl.col("delay").is_in([1, 2]), ["(`delay` in (1, 2))"]),
        (pl.col("delay").is_between(1, 2), ["(`delay` between 1 and 2)"]),
        (pl.col("carrier").str.starts_with("U"), ["(`carrier` like 'U%')"]),
        (pl.col("distance") >= 1.5, ["(`distance` >= 1.5)"]),
        (pl.col("price") == decimal.Decimal("1.50"), ["(`price` = 1.50BD)"]),
        (pl.col("day") < datetime.date(2013, 1, 31), ["(`day` < date '2013-01-31')"]),
        (pl.col("at") < AT, ["(`at` < timestamp '2013-01-31T12:00:00+00:00')"]),
        (pl.col("raw") == b"\n", ["(`raw` = X'0a')"]),
        (pl.col("late"), ["`late`"]),
    ],
)
def test_conditions_that_a_where_has_are_pushed_down(predicate: pl.Expr, words: Sequence[str]) -> None:
    assert pushed(predicate) == words


@pytest.mark.parametrize(
    "predicate",
    [
        pl.col("delay") + 1 > 10,
        pl.col("delay") > pl.col("far"),
        pl.col("carrier").str.ends_with("A"),
        pl.col("delay").is_in([1, None]),
        pl.col("delay").is_between(1, 2, closed="left"),
        pl.col("narrow") == 0.3,  # polars compares in 32 bits
        pl.col("far") < 1.5,  # in floats
        pl.col("distance") == float("nan"),
        pl.col("delay").eq_missing(3),
        pl.col("at") < pl.lit(AT).cast(pl.Datetime("ns", "UTC")),
        pl.col("delay").cast(pl.Int64) > 10,
        (pl.col("delay") > 10).not_() | (pl.col("distance").sqrt() > 2),
    ],
)
def test_conditions_of_another_meaning_are_left_to_polars(predicate: pl.Expr) -> None:
    assert pushed(predicate) == []


def test_only_the_parts_that_a_where_can_say_are_pushed_down() -> None:
    assert pushed((pl.col("delay") > 10) & (pl.col("distance").sqrt() > 2)) == ["(`delay` > 10)"]


_VALUES: dict[str, list[Any]] = {
    "delay": [None, -(2**31), -1, 0, 1, 2**31 - 1],
    "distance": [None, float("nan"), float("-inf"), -0.0, 0.0, 0.3, 1e300, float("inf")],
    "carrier": [None, "", "A", "AB", "é", "\U0001f600"],
    "late": [None, False, True],
}


def _constants(name: str) -> st.SearchStrategy[Any]:
    return st.sampled_from([each for each in _VALUES[name] if each is not None])


@st.composite
def _conditions(draw: st.DrawFn, depth: int = 2) -> pl.Expr:
    if depth and draw(st.booleans()):
        left, right = draw(_conditions(depth - 1)), draw(_conditions(depth - 1))
        joined: pl.Expr = draw(st.sampled_from([left & right, left | right, ~left]))
        return joined
    name = draw(st.sampled_from(sorted(_VALUES)))
    column, value = pl.col(name), draw(_constants(name))
    choices = [column == value, column != value, column.is_null(), column.is_not_null(), column.is_in([value])]
    if name != "late":
        choices += [column < value, column <= value, column > value, column >= value]
    chosen: pl.Expr = draw(st.sampled_from(choices))
    return chosen


@given(predicate=_conditions(), rows=st.lists(st.tuples(*(st.sampled_from(each) for each in _VALUES.values()))))
def test_no_row_that_polars_keeps_is_left_out(predicate: pl.Expr, rows: list[tuple[Any, ...]]) -> None:
    fields = [SCHEMA.column(name) for name in _VALUES]
    arrays = {
        each.name: pa.array([row[place] for row in rows], SCHEMA.arrow_schema.field(each.name).type)
        for place, each in enumerate(fields)
    }
    frame = pl.DataFrame(pl.from_arrow(pa.table(arrays)))
    kept = frame.with_row_index("row").filter(predicate)["row"].to_list()
    by_id = {each.id: arrays[each.name] for each in fields}
    for condition in pushed_down(predicate, frame.schema, accepts):
        found = evaluate(parse_where(str(condition), SCHEMA), by_id.__getitem__, len(rows)).to_pylist()
        assert all(found[row] for row in kept)
