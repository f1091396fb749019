"""Words of a where: what is refused, what a literal is, what statistics allow to skip.

What a condition means is compared with Spark in test_recorded_conditions.py.
"""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import InvalidArgument
from minilog.typed.conditions.predicate import (
    FALSE,
    TRUE,
    UNKNOWN,
    ColumnStatistics,
    Equal,
    Predicate,
    field_ids,
    outcomes,
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
def test_statistics_tell_which_truths_are_possible(words: str, bounds: tuple[int, Any, Any], possible: int) -> None:
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
def test_a_text_that_is_no_where_is_refused_with_a_sentence(words: str) -> None:
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
