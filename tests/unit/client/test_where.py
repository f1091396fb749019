"""A where against a reference: random conditions over random rows, and what statistics allow to skip."""

from __future__ import annotations

import datetime
import decimal
import math
import operator
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import InvalidArgument
from minilog.typed.conditions.predicate import (
    FALSE,
    TRUE,
    UNKNOWN,
    ColumnStatistics,
    Equal,
    Predicate,
    evaluate,
    field_ids,
    outcomes,
    plain_value,
)
from minilog.typed.conditions.where import MAX_WHERE_CHARACTERS, parse_where
from minilog.typed.rows.reader import TypedSelection
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.topic_schema import first_version

SCHEMA = first_version(
    parse_ddl(
        "tiny byte, delay int, fare decimal(5,2), ratio double, carrier string, flag boolean, day date, "
        "at timestamp, local timestamp_ntz, raw binary, tags array<string>"
    )
)
DAY = datetime.date(2013, 1, 31)
AT = datetime.datetime(2013, 1, 31, 12, tzinfo=datetime.UTC)
VALUES: dict[str, list[Any]] = {
    "tiny": [-128, -1, 0, 1, 127],
    "delay": [-(2**31), -3, 0, 1, 2, 2**31 - 1],
    "fare": [decimal.Decimal(text) for text in ("-999.99", "-0.01", "0.00", "1.50", "2.00", "999.99")],
    "ratio": [-math.inf, -1.5, -0.0, 0.0, 0.1, 2.0, math.inf, math.nan],
    "carrier": ["", "A", "AA", "AB", "B", "é", "\U0001f600"],
    "flag": [False, True],
    "day": [DAY + datetime.timedelta(days) for days in (-400, -1, 0, 1)],
    "at": [AT + datetime.timedelta(microseconds=steps) for steps in (-1, 0, 1, 10**12)],
    "local": [AT.replace(tzinfo=None) + datetime.timedelta(microseconds=steps) for steps in (-1, 0, 1)],
    "raw": [b"", b"\0", b"\n\xff", b"\xff"],
}
CONSTANTS: dict[str, list[tuple[str, Any]]] = {
    "tiny": [("-129", -129), ("-1", -1), ("0", 0), ("1.0", 1), ("1.5", decimal.Decimal("1.5")), ("300", 300)],
    "delay": [
        ("-3", -3),
        ("0L", 0),
        ("1.5", decimal.Decimal("1.5")),
        ("-0.5", decimal.Decimal("-0.5")),
        (str(2**40), 2**40),
    ],
    "fare": [("1.5", decimal.Decimal("1.5")), ("1.505", decimal.Decimal("1.505")), ("2", 2), ("-1000", -1000)],
    "ratio": [("0", 0.0), ("0.1", 0.1), ("-1.5", -1.5), ("2e0", 2.0), ("1e300", 1e300)],
    "carrier": [("'A'", "A"), ("'AB'", "AB"), ("''", ""), ("'é'", "é"), ("'it''s'", "it's"), ("'A' \"B\"", "AB")],
    "flag": [("true", True), ("false", False)],
    "day": [("'2013-01-31'", DAY), ("date '2013-02-01'", DAY + datetime.timedelta(1))],
    "at": [("'2013-01-31T12:00:00Z'", AT), ("timestamp '2013-01-31 13:00:00+01:00'", AT)],
    "local": [("'2013-01-31 12:00:00'", AT.replace(tzinfo=None))],
    "raw": [("X'0aff'", b"\n\xff"), ("X'00'", b"\0")],
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
Row = dict[str, Any]
Expected = Callable[[Row], bool | None]
"""A condition in words, and what it is for a row by SQL's rules, written without a look at the product."""
Condition = tuple[str, Expected]


def ordered(value: Any) -> Any:
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def compared(name: str, sign: str, constant: tuple[str, Any], *, mirrored: bool) -> Condition:
    words, right = constant

    def expected(row: Row) -> bool | None:
        left = row[name]
        return None if left is None else COMPARISONS[sign](ordered(left), ordered(right))

    return (f"{words} {MIRRORED.get(sign, sign)} {name}" if mirrored else f"{name} {sign} {words}"), expected


def between(name: str, low: tuple[str, Any], high: tuple[str, Any], *, negated: bool) -> Condition:
    def expected(row: Row) -> bool | None:
        if row[name] is None:
            return None
        return (ordered(low[1]) <= ordered(row[name]) <= ordered(high[1])) is not negated

    return f"{name} {'not ' if negated else ''}between {low[0]} and {high[0]}", expected


def one_of(name: str, constants: list[tuple[str, Any]], *, with_null: bool) -> Condition:
    def expected(row: Row) -> bool | None:
        if row[name] is None:
            return None
        return True if row[name] in [value for _, value in constants] else None if with_null else False

    return f"{name} in ({', '.join([words for words, _ in constants] + ['null'] * with_null)})", expected


def both(left: Condition, right: Condition) -> Condition:
    def expected(row: Row) -> bool | None:
        found = left[1](row), right[1](row)
        return False if False in found else None if None in found else True

    return f"({left[0]}) and ({right[0]})", expected


def either(left: Condition, right: Condition) -> Condition:
    def expected(row: Row) -> bool | None:
        found = left[1](row), right[1](row)
        return True if True in found else None if None in found else False

    return f"({left[0]}) or ({right[0]})", expected


def negated(part: Condition) -> Condition:
    def expected(row: Row) -> bool | None:
        found = part[1](row)
        return None if found is None else not found

    return f"not ({part[0]})", expected


def starts(prefix: str) -> Condition:
    return (
        f"carrier like '{prefix}%'",
        lambda row: None if row["carrier"] is None else row["carrier"].startswith(prefix),
    )


NAMES = st.sampled_from(sorted(CONSTANTS))


def with_constants(count: int, make: Callable[..., Condition], *others: st.SearchStrategy[Any]) -> Any:
    return NAMES.flatmap(
        lambda name: st.builds(
            lambda constants, *rest: make(name, constants, *rest),
            st.lists(st.sampled_from(CONSTANTS[name]), min_size=count, max_size=count),
            *others,
        )
    )


PARTS: st.SearchStrategy[Condition] = st.one_of(
    with_constants(
        1,
        lambda name, given, sign, mirrored: compared(name, sign, given[0], mirrored=mirrored),
        st.sampled_from(sorted(COMPARISONS)),
        st.booleans(),
    ),
    with_constants(2, lambda name, given, negated: between(name, *given, negated=negated), st.booleans()),
    with_constants(2, lambda name, given, with_null: one_of(name, given, with_null=with_null), st.booleans()),
    st.sampled_from(["", "A", "AA", "é"]).map(starts),
    st.sampled_from(sorted(VALUES)).map(lambda name: (f"{name} is null", lambda row: row[name] is None)),
    st.sampled_from(sorted(VALUES)).map(lambda name: (f"{name} is not null", lambda row: row[name] is not None)),
    st.just(("flag", lambda row: row["flag"])),
    st.just(("flag is true", lambda row: row["flag"] is True)),
    st.just(("delay <=> 0", lambda row: row["delay"] == 0)),
    st.just(("null", lambda _: None)),
)
CONDITIONS = st.recursive(
    PARTS, lambda inner: st.one_of(st.builds(both, inner, inner), st.builds(either, inner, inner), inner.map(negated))
)


def rows(seed: int, count: int, chance_of_null: float) -> list[Row]:
    chance = random.Random(seed)
    return [
        {name: None if chance.random() < chance_of_null else chance.choice(values) for name, values in VALUES.items()}
        | {"tags": None}
        for _ in range(count)
    ]


def columns(batch: pa.RecordBatch) -> Callable[[int], pa.Array]:
    places = {each.id: place for place, each in enumerate(SCHEMA.fields)}
    return lambda field_id: batch.column(places[field_id])


def statistics(batch: pa.RecordBatch) -> Callable[[int], ColumnStatistics | None]:
    def of_column(field_id: int) -> ColumnStatistics:
        values = columns(batch)(field_id)
        known = sorted((plain_value(value) for value in values if value.is_valid), key=ordered)
        bounds = (known[0], known[-1]) if known else (None, None)
        return ColumnStatistics(len(values), values.null_count, *bounds)

    return of_column


@given(CONDITIONS, st.integers(), st.sampled_from([0.0, 0.3, 1.0]), st.integers(1, 12))
def test_a_where_is_for_each_row_what_sql_says(condition: Condition, seed: int, nulls: float, count: int) -> None:
    words, expected = condition
    said = rows(seed, count, nulls)
    batch = pa.RecordBatch.from_pylist(said, SCHEMA.arrow_schema)
    predicate = parse_where(words, SCHEMA)
    found = evaluate(predicate, columns(batch), count).to_pylist()
    assert found == [expected(row) for row in said]
    possible = outcomes(predicate, statistics(batch))
    there = {True: TRUE, False: FALSE, None: UNKNOWN}
    assert all(possible & there[value] for value in found)
    assert outcomes(predicate, lambda _: None) & possible == possible


@pytest.mark.parametrize(
    ("words", "bounds", "possible"),
    [
        ("delay > 10", (0, 0, 10), FALSE),
        ("delay > 10", (0, 0, 11), TRUE | FALSE),
        ("delay > 10", (0, 11, 12), TRUE),
        ("delay > 10", (3, 11, 12), TRUE | UNKNOWN),
        ("delay <= 10", (0, 10, 20), TRUE | FALSE),
        ("delay < 10", (0, 10, 20), FALSE),
        ("ratio > 1e300", (0, 0.5, math.nan), TRUE | FALSE),
        ("ratio <= 0", (0, math.nan, math.nan), FALSE),
        ("delay > 10", (5, None, None), UNKNOWN),
        ("not (delay > 10)", (0, 11, 12), FALSE),
        ("delay = 4", (0, 5, 9), FALSE),
        ("delay is null", (0, 5, 9), FALSE),
        ("delay > 300 and delay < 300", (0, 1, 400), TRUE | FALSE),
        ("delay > 300 and delay < 200", (0, 1, 100), FALSE),
        ("carrier like 'UA%'", (0, "A", "D"), FALSE),
        ("carrier like 'UA%'", (0, "UA1", "UA9"), TRUE),
        ("tiny < 1000", (1, -3, 4), TRUE | UNKNOWN),
    ],
)
def test_what_statistics_cannot_match_is_known(words: str, bounds: tuple[int, Any, Any], possible: int) -> None:
    predicate = parse_where(words, SCHEMA)
    assert outcomes(predicate, lambda _: ColumnStatistics(5, *bounds)) == possible


REFUSED = {
    "delay + 1 > 2": "cannot be read from '+ 1 > 2' on",
    "abs(delay) > 2": "is no column",
    "delay > (select 1)": "is none",
    "delay in (select 1)": "is none",
    "delay > day": "is none",
    "1 < 2": "is no column",
    "nothing > 2": "there are tiny",
    "tags.x = 1": "fields of structs",
    "tags = 1": "which a where cannot compare",
    "delay = '1'": "compare it with a number",
    "delay = 1e3": "without an exponent",
    "delay = true": "compare it with a number",
    "carrier = 1": "text in quotes",
    "flag = 1": "true or false",
    "day = 'yesterday'": "no date",
    "at = '2013-01-31T12:00:00'": "with its zone",
    "local = '2013-01-31T12:00:00Z'": "without a zone",
    "carrier like '%A'": "like 'prefix%' only",
    "carrier like 'A_'": "like 'prefix%' only",
    "delay like '1%'": "columns of text",
    "carrier rlike 'A'": "is none",
    "carrier like 'A' escape '!'": "is none",
    r"carrier = '\q'": "for a backslash",
    r"carrier = '\ud800'": "no sign of Unicode",
    "carrier = 'A' -- and flag": "has a comment, '-- and flag'",
    "delay > 0 --x": "has a comment, '--x'",
    "_partition = 1": "'_partition' is no column of the topic, and a where compares columns alone: choose partitions",
    "delay between symmetric 3 and 1": "is none",
    "delay between asymmetric 1 and 3": "is none",
    "delay in (1,)": "a comma with nothing beside it",
    "delay in (,1)": "a comma with nothing beside it",
    "delay in (1,,2)": "a comma with nothing beside it",
    "delay = 1 and and (flag)": "nothing before it",
    "or (flag, flag)": "nothing before it",
    "not and(flag)": "nothing before it",
    "delay isnull": "write is null",
    "delay < 9223372036854775807.5": "more than 64 bits",
    "not delay >= 9223372036854775808": "more than 64 bits",
    "-9223372036854775808.5 <= delay": "more than 64 bits",
    "delay between 1 and 10000000000000000000": "more than 64 bits",
    "delay notnull": "write is null",
    "delay is unknown": "write is null",
    "delay not null": "write it before the condition",
    "delay not is null": "write it before the condition",
    "delay = - -1": "arithmetic",
    "delay = 128Y": "no integer of 8 bits",
    "delay = interval '1' day": "is none",
    "delay = '1' 2": "is none",
    "delay = 1e3BD": "a decimal with an exponent",
    "ratio = 1e999": "too large or too small",
    "ratio = 1e39F": "too large or too small",
    "fare < 0.000000000000000000000000000000000001": "Spark compares 38 at most",
    "raw = X'0'": "two digits",
    "day = '20200101'": "no date",
    "day = '2020-W01-1'": "no date",
    "at = '2013-01-31T12:00:00+19:00'": "no time stamp",
    "local = timestamp '2013-01-31T12:00:00'": "has no zone",
    "at = timestamp_ntz '2013-01-31T12:00:00Z'": "has a zone",
    "tags = null": "which a where cannot compare",
    "delay > 1; drop table x": "cannot be read",
    "delay >": "cannot be read",
    "": "cannot be read",
    "case when flag then 1 end": "is none",
    "ratio > " + "9" * 400: "more than 38 digits",
    "x" * (MAX_WHERE_CHARACTERS + 1): "the most is",
    " and ".join(["delay > 1"] * 2_000): "more than 1000 terms",
    "not " * 5_000 + "flag": "",
    "(" * 10_000 + "flag" + ")" * 10_000: "",
}


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: words[:30])
def test_what_is_no_where_is_refused_with_a_sentence(words: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        parse_where(words, SCHEMA)
    assert REFUSED[words] in str(raised.value)
    assert len(str(raised.value)) < 1_000


NUMBERS = first_version(parse_ddl("narrow float, wide double, whole decimal(38,0), name string"))


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("name = 'it''s'", "it's"),
        ('name = "a"', "a"),
        ('name = "say ""a"""', 'say "a"'),
        (r"name = r'a\d'", r"a\d"),
        (r"name = '\n\'\\\u0041\U0001f600\101'", "\n'\\A\U0001f600A"),
        ("name = 'a' 'b'", "ab"),
        ("name = 'a' r'\\' \"b\"", "a\\b"),
        ("narrow = 0.1", 0.1),
        ("narrow = 0.1F", 0.10000000149011612),
        ("wide = 0.1F", 0.10000000149011612),
        ("whole = -12345678901234567890123456789012345678", decimal.Decimal("-12345678901234567890123456789012345678")),
    ],
)
def test_a_literal_is_what_spark_reads(words: str, value: Any) -> None:
    with decimal.localcontext(prec=3):
        assert parse_where(words, NUMBERS) == Equal(
            NUMBERS.column(words.split()[0]).id, pa.scalar(value, pa.decimal128(38) if "whole" in words else None)
        )


def test_columns_are_named_in_any_case_as_in_a_where() -> None:
    assert [each.name for each in TypedSelection(SCHEMA, ("DELAY", "Carrier")).fields] == ["delay", "carrier"]
    with pytest.raises(InvalidArgument, match="named twice"):
        TypedSelection(SCHEMA, ("delay", "DELAY")).check()


def test_a_where_names_the_columns_it_looks_at() -> None:
    predicate: Predicate = parse_where("DELAY > 1 or (carrier is null and not flag)", SCHEMA)
    by_name = {each.name: each.id for each in SCHEMA.fields}
    assert field_ids(predicate) == {by_name["delay"], by_name["carrier"], by_name["flag"]}
