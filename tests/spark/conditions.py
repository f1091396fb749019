"""A `where` against Spark's own: random conditions over rows of all types, at the reader and by statistics.

    python -m tests.spark.conditions --conditions 20000 --seed 1

Constants are drawn from the rows, and written in all forms that Spark's grammar has. A condition that minilog takes has
to be true for the same rows as in Spark in ANSI mode, and must not be one that Spark refuses or fails on. No cluster is
needed: rows are filtered by the function that readers call, and batches left out by the one that brokers call.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from minilog.errors import InvalidArgument
from minilog.typed.ddl import parse_ddl
from minilog.typed.predicate import TRUE, Predicate, evaluate, outcomes
from minilog.typed.predicate_wire import predicate_from_wire, predicate_to_wire
from minilog.typed.statistics import read_statistics, statistics_of
from minilog.typed.topic_schema import first_version
from minilog.typed.where import parse_where

SCHEMA = first_version(
    parse_ddl(
        "tiny byte, small short, number int, big long, narrow float, wide double, fare decimal(5,2), "
        "huge decimal(38,10), whole decimal(38,0), "
        "name string, flag boolean, day date, at timestamp, local timestamp_ntz, raw binary, "
        "tags array<string>, `odd name` int"
    )
)
NOON = datetime.datetime(2013, 1, 31, 12, tzinfo=datetime.UTC)
_STEP = datetime.timedelta(microseconds=1)
_TIMES = [
    *(NOON + steps * _STEP for steps in (-1, 0, 1, 10**12)),
    datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
    datetime.datetime(1582, 10, 10, 1, 2, 3, tzinfo=datetime.UTC),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC),
]
_FLOATS = [-math.inf, -1.5, -0.0, 0.0, 0.5, 16777216.0, math.inf, math.nan, 2.0**-149]
VALUES: dict[str, list[Any]] = {
    "tiny": [-128, -1, 0, 1, 127],
    "small": [-(2**15), -1, 0, 128, 2**15 - 1],
    "number": [-(2**31), -3, 0, 1, 16777217, 2**31 - 1],
    "big": [-(2**63), -1, 0, 2**31, 2**53 + 1, 2**63 - 1],
    "narrow": [*_FLOATS, pa.scalar(0.1, pa.float32()).as_py(), pa.scalar(3.4028234663852886e38, pa.float32()).as_py()],
    "wide": [*_FLOATS, 0.1, pa.scalar(0.1, pa.float32()).as_py(), 1e300, 1.7976931348623157e308, 2.0**53],
    "fare": [decimal.Decimal(text) for text in ("-999.99", "-0.01", "0.00", "1.50", "2.00", "999.99")],
    "huge": [
        decimal.Decimal(text) for text in ("-9999999999999999999999999999.9999999999", "-0.0000000001", "0", "1.5")
    ],
    "whole": [
        decimal.Decimal(text) for text in ("9" * 38, "-" + "9" * 38, "-12345678901234567890123456789012345678", "1")
    ],
    "name": [
        "",
        "A",
        "a",
        "it's",
        'say "a"',
        "a\nb",
        "a\\b",
        "%",
        "_A",
        "é",
        "\U0001f600",
        "its",
        "1",
        "ab",
        "2013-01-31",
    ],
    "flag": [False, True],
    "day": [datetime.date(2013, 1, 31), datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(2020, 1, 1)],
    "at": _TIMES,
    "local": [each.replace(tzinfo=None) for each in _TIMES],
    "raw": [b"", b"\0", b"\n\xff", b"\xff", b"A"],
    "odd name": [0, 1],
}
NAMES = tuple(VALUES)
_ODD = [
    "null", "true", "false", "interval 1 day", "interval '1' day", "''", "'1'", "'NaN'", "cast('1' as int)", "1 + 1",
    "+1",
    "- -1", "-(1)", "1e3", "1e-3", "1E3BD", "0.1F", "0.1", "0.1D", "0.1BD", "1L", "1S", "1Y", "128Y", "-128Y", "1e400",
    "1e40F",
    "'a' 'b'", "'a''b'", r"r'a\b'", r"'\u0041'", r"'\141'", r"'\q'", r"'\%'", "16777217", "16777217F",
    "9007199254740993",
    "X'0a'", "X'a'", "X''", "'20200101'", "'2020-1-1'", "'2020-01-01'", "'2020'", "date '20200101'",
    "date '2020-01-01'",
    "timestamp '2013-01-31 12:00:00'", "timestamp_ntz '2013-01-31 12:00:00'", "timestamp_ltz '2013-01-31 12:00:00Z'",
    "'2013-01-31T12:00:00+01:00'", "'2013-01-31 12:00:00'", "timestamp_ntz '2013-01-31 12:00:00Z'", "date 'today'",
    "0." + "0" * 20 + "1", "1" * 38, "1" * 39, "1.", ".5", "-.5", "0x1F", "1_000", "b'a'", "'a' -- b", "tiny",
    "2147483648",
    "-9223372036854775808L", "9223372036854775808", "timestamp '2013-01-31T12:00:00.0000001Z'", "-0.0", "-0e0", "0.10F",
]  # fmt: skip


@dataclass
class Figures:
    """What came of the conditions. `wrong`: each with what is wrong of it."""

    equal: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        count = self.equal + self.refused + len(self.wrong)
        return f"{count} conditions: {self.equal} equal, {self.refused} refused, {len(self.wrong)} wrong"


class Drawing:
    """Conditions by chance."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def condition(self, depth: int = 0) -> str:
        kind = self._chance.random()
        if depth < 2 and kind < 0.25:
            word = self._chance.choice(("and", "or", "AND", "Or"))
            left, right = self.condition(depth + 1), self.condition(depth + 1)
            return f"{left} {word} {right}" if kind < 0.1 else f"({left}) {word} ({right})"
        if depth < 2 and kind < 0.35:
            return f"not {self.condition(depth + 1)}" if kind < 0.3 else f"not ({self.condition(depth + 1)})"
        return self._term()

    def _term(self) -> str:
        chance, name = self._chance, self._chance.choice(NAMES)
        column = f"`{name}`" if " " in name else chance.choice((name, name, name.upper(), f"`{name}`"))
        negated = chance.choice(("", "", "not "))
        match chance.randrange(12):
            case 0:
                constants = [self._constant(name) for _ in range(chance.choice((1, 2, 3, 12)))]
                return f"{column} {negated}in ({', '.join(constants)})"
            case 1:
                symmetric = "symmetric " if chance.random() < 0.05 else ""
                return f"{column} {negated}between {symmetric}{self._constant(name)} and {self._constant(name)}"
            case 2:
                escape = " escape '!'" if chance.random() < 0.1 else ""
                pattern = chance.choice(
                    ("'A%'", "'%'", r"'\%'", r"'\\%'", r"'\_A'", "'_'", "'it''s%'", '"a%"', r"r'\%%'", "'a\\nb'")
                )
                return f"{chance.choice((column, 'name'))} {negated}like {pattern}{escape}"
            case 3:
                return f"{column} is {negated}{chance.choice(('null', 'null', 'true', 'false'))}"
            case 4:
                return chance.choice((column, "flag", "`odd name` > 0", "tags = null", "tags is null"))
            case _:
                sign = chance.choice(("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"))
                parts = [column, sign, self._constant(name)]
                return " ".join(parts if chance.random() < 0.75 else reversed(parts))

    def _constant(self, name: str) -> str:
        kind = self._chance.random()
        if kind < 0.12:
            return self._chance.choice(_ODD)
        if kind < 0.17:
            name = self._chance.choice(NAMES)
        return self._written(self._chance.choice(VALUES[name]))

    def _written(self, value: Any) -> str:
        pick = self._chance.choice
        match value:
            case bool():
                return pick(("true", "TRUE", "false"))
            case int():
                return pick(
                    (
                        str(value),
                        str(value),
                        f"{value}L",
                        f"{value}BD",
                        f"{value}.0",
                        f"{value}.5",
                        f"{value}D",
                        f"{value}S",
                    )
                )
            case float() if math.isnan(value) or math.isinf(value):
                return pick(("1e308", "-1e308", f"'{value}'", f"double '{value}'", f"double('{value}')"))
            case float():
                plain = format(decimal.Decimal(repr(value)), "f")
                return pick((plain, f"{value!r}D", f"{value!r}F", plain + "D", f"{value:e}", plain + "BD"))
            case decimal.Decimal():
                plain = format(value, "f")
                return pick((plain, plain + "BD", plain.split(".")[0], plain + "D"))
            case str():
                return self._quoted(value)
            case bytes():
                return pick((f"X'{value.hex()}'", f"x'{value.hex().upper()}'", f"'{value.hex()}'"))
            case datetime.datetime():
                return self._time(value)
            case _:
                return pick((f"date '{value}'", f"DATE'{value}'", f"'{value}'", f'"{value}"', f"timestamp '{value}'"))

    def _time(self, value: datetime.datetime) -> str:
        text = value.replace(tzinfo=None).isoformat(self._chance.choice(" T"))
        zone = self._chance.choice(("Z", "+00:00", "", " UTC", "-00:30"))
        kind = self._chance.choice(("", "timestamp ", "timestamp_ltz ", "TIMESTAMP_NTZ"))
        return f"{kind}'{text}{zone}'"

    def _quoted(self, value: str) -> str:
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        half = len(value) // 2
        return self._chance.choice(
            (
                "'" + escaped.replace("'", "\\'") + "'",
                "'" + escaped.replace("'", "''") + "'",
                '"' + escaped.replace('"', '""') + '"',
                "'" + "".join(map(_by_number, value)) + "'",
                f"r'{value}'" if "'" not in value else f'R"{value}"',
                "'" + value[:half].replace("\\", "\\\\").replace("'", "\\'") + "' '"
                + value[half:].replace("\\", "\\\\").replace("'", "\\'") + "'",
                "'" + value + "'",
            )
        )  # fmt: skip


def _by_number(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if ord(sign) < 1 << 16 else f"\\U{ord(sign):08x}"


def drawn_rows(seed: int, count: int) -> pa.RecordBatch:
    """Each value at least once, with nulls between them."""
    chance = random.Random(seed)
    columns = {name: [*values, None] for name, values in VALUES.items()}
    longest = max(map(len, columns.values()))
    rows = [
        {
            name: values[place % len(values)] if place < longest else chance.choice(values)
            for name, values in columns.items()
        }
        | {"tags": chance.choice((None, ["x"]))}
        for place in range(max(count, longest))
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA.arrow_schema)


class Ours:
    """What readers and brokers make of a condition."""

    def __init__(self, rows: pa.RecordBatch, batch_rows: int = 4) -> None:
        self._rows = rows
        self._places = {each.id: place for place, each in enumerate(SCHEMA.fields)}
        self._batches = [(first, rows.slice(first, batch_rows)) for first in range(0, len(rows), batch_rows)]
        self._statistics = [
            read_statistics(statistics_of(zip(SCHEMA.fields, batch.columns, strict=True)), SCHEMA, len(batch))
            for _, batch in self._batches
        ]

    def chosen(self, predicate: Predicate) -> tuple[set[int], set[int]]:
        """The rows that a reader keeps, and those that the broker sends of them."""
        told = predicate_from_wire(predicate_to_wire(predicate), SCHEMA.by_id.get)
        kept, sent = set[int](), set[int]()
        for (first, batch), statistics in zip(self._batches, self._statistics, strict=True):
            found = evaluate(predicate, lambda id, batch=batch: batch.column(self._places[id]), len(batch)).to_pylist()
            true = {first + place for place, each in enumerate(found) if each}
            kept |= true
            if outcomes(told, statistics.get) & TRUE:
                sent |= true
        return kept, sent


def compare(spark: SparkSession, seed: int, count: int, together: int = 25) -> Figures:
    """`count` conditions, `together` of them in one query of Spark, whose optimizer answers it from the few rows."""
    rows, drawing, figures = drawn_rows(seed, 60), Drawing(seed), Figures()
    frame = spark.createDataFrame(pa.Table.from_batches([rows]))
    ours = Ours(rows)
    taken = list[tuple[str, Predicate]]()
    for _ in range(count):
        words = drawing.condition()
        try:
            taken.append((words, parse_where(words, SCHEMA)))
        except InvalidArgument as error:
            figures.refused += 1
            figures.why[str(error)[:60]] += 1
    for first in range(0, len(taken), together):
        _compare(frame, ours, taken[first : first + together], figures)
    return figures


def _compare(frame: DataFrame, ours: Ours, taken: Sequence[tuple[str, Predicate]], figures: Figures) -> None:
    for (words, predicate), theirs in zip(taken, _of_spark(frame, [words for words, _ in taken]), strict=True):
        kept, sent = ours.chosen(predicate)
        if isinstance(theirs, str):
            figures.wrong.append(f"{words}: Spark fails with {theirs}")
        elif kept != theirs:
            figures.wrong.append(
                f"{words}: readers keep {sorted(kept - theirs)} too much, {sorted(theirs - kept)} lack"
            )
        elif sent != theirs:
            figures.wrong.append(f"{words}: brokers leave out {sorted(theirs - sent)}")
        else:
            figures.equal += 1


def _of_spark(frame: DataFrame, conditions: list[str]) -> list[set[int] | str]:
    """The rows for which each is true, or Spark's error: all in one query, or, where that fails, by halves."""
    try:
        found = frame.select(*(sf.expr(each).alias(f"c{place}") for place, each in enumerate(conditions))).toArrow()
        return [{row for row, true in enumerate(each.to_pylist()) if true} for each in found.columns]
    except PySparkException as error:
        if len(conditions) == 1:
            return [str(error).split("\n")[0][:200]]
    half = len(conditions) // 2
    return _of_spark(frame, conditions[:half]) + _of_spark(frame, conditions[half:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conditions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    figures = compare(spark, asked.seed, asked.conditions)
    print(figures, *figures.wrong[:60], *figures.why.most_common(25), sep="\n")
    spark.stop()
    raise SystemExit(bool(figures.wrong))


if __name__ == "__main__":
    main()
