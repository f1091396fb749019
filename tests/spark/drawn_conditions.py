"""Rows of all types, and conditions on them by chance, for conditions.py.

Constants are drawn from the rows, and written in all forms that Spark's grammar has for them. Most terms use the forms
that minilog takes for the type of their column (`_Writer.usual`). One in ten uses any form of any value, or is one of
the lists of oddities: such a term is refused, or means what Spark means by it.
"""

from __future__ import annotations

import datetime
import decimal
import math
import random
import re
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from minilog.typed.conditions.predicate import array_of_plain, plain_value
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.topic_schema import first_version

SCHEMA = first_version(
    parse_ddl(
        "tiny byte, small short, number int, big long, narrow float, wide double, fare decimal(5,2), "
        "huge decimal(38,10), whole decimal(38,0), name string, flag boolean, day date, at timestamp, "
        "local timestamp_ntz, raw binary, `odd, ``name``` int, date date, r string, interval int, tags array<string>"
    )
)
_NOON = datetime.datetime(2013, 1, 31, 12, tzinfo=datetime.UTC)
_STEP = datetime.timedelta(microseconds=1)
_TIMES = [
    *(_NOON + steps * _STEP for steps in (-1, 0, 1, 500_000, 10**12)),
    datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
    datetime.datetime(1582, 10, 10, 1, 2, 3, tzinfo=datetime.UTC),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC),
]
_DAYS = [
    datetime.date(2013, 1, 31),
    datetime.date(2013, 2, 1),
    datetime.date(1582, 10, 10),
    datetime.date(9999, 12, 31),
]


def _narrow(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


_FLOATS = [-math.inf, -1.5, -0.0, 0.0, 0.5, 16777216.0, math.inf, math.nan, 2.0**-149, _narrow(0.1)]
_TEXTS = [
    "", "A", "AB", "a", "it's", 'say "a"', "a\nb", "a\\b", "a\\", "%", "_A", "a%b", "é", "\U0001f600", "its", "1",
    "2013-01-31", "\x1a\t\r\b", "z" * 40, "'", '"',
]  # fmt: skip
_NUMERALS = ("-999.99", "-0.01", "0.00", "1.50", "2.00", "999.99")
_LONG_NUMERALS = ("-9999999999999999999999999999.9999999999", "-0.0000000001", "0", "1.5", "12345678901234567890.1")
_WHOLE_NUMERALS = ("9" * 38, "-" + "9" * 38, "-12345678901234567890123456789012345678", "0", "1")
VALUES: dict[str, list[Any]] = {
    "tiny": [-128, -1, 0, 1, 2, 127],
    "small": [-(2**15), -1, 0, 128, 2**15 - 1],
    "number": [-(2**31), -3, 0, 1, 16777217, 2**31 - 1],
    "big": [-(2**63), -1, 0, 2**31, 2**53 + 1, 2**63 - 1],
    "narrow": [*_FLOATS, _narrow(3.4028234663852886e38)],
    "wide": [*_FLOATS, 0.1, 1e300, 1.7976931348623157e308, 2.0**53],
    "fare": [decimal.Decimal(each) for each in _NUMERALS],
    "huge": [decimal.Decimal(each) for each in _LONG_NUMERALS],
    "whole": [decimal.Decimal(each) for each in _WHOLE_NUMERALS],
    "name": _TEXTS,
    "flag": [False, True],
    "day": _DAYS,
    "at": _TIMES,
    "local": [each.replace(tzinfo=None) for each in _TIMES],
    "raw": [b"", b"\0", b"\n\xff", b"\xff", b"A", b"A" * 40],
    "odd, `name`": [0, 1],
    "date": _DAYS,
    "r": _TEXTS,
    "interval": [0, 1],
}
_BEYOND_PYTHON = {"day": [-800_000, 3_000_000], "at": [-(10**17), 3 * 10**17], "local": [-(10**17), 3 * 10**17]}
"""Days and microseconds of years that no constant can say."""
NAMES = tuple(VALUES)
_TOKEN = re.compile(r"""`[^`]*`|'[^']*'|"[^"]*"|[\w.]+|<=>|<=|>=|<>|!=|==|\S""")
_BITS = {"tiny": 8, "small": 16, "number": 32, "big": 64}

_CONSTANTS = [
    "null", "true", "false", "interval 1 day", "interval '1' day", "''", "'1'", "'NaN'", "cast('1' as int)", "1 + 1",
    "+1", "- -1", "-(1)", "(1)", "((-1))", "- 1", "1e3", "1e-3", "1E3BD", "0.1F", "0.1", "0.1D", "0.1BD", "1L", "1S",
    "1Y", "128Y", "-128Y", "- 128Y", "1e400", "-1e400", "1e40F", "1e-400", "1e-50F", "'a' 'b'", "'a''b'", r"r'a\b'",
    r"'A' r'\b'", r"'\u0041'", r"'\U00000041'", r"'\101'", r"'\q'", r"'\%'", r"'\0'", "16777217", "16777217F",
    "9007199254740993", "9007199254740993D", "9007199254740993L", "X'0a'", "X'a'", "X''", "x'0A' x'0B'", "X '0a'",
    "'20200101'", "'2020-1-1'", "'2020-01-01'", "'2020'", "' 2020-01-01 '", "date '20200101'", "date '2020-01-01'",
    "date '2013-' '01-31'", "date r'2013-01-31'", 'DATE"2013-01-31"', "timestamp '2013-01-31 12:00:00'",
    "timestamp_ntz '2013-01-31 12:00:00'", "timestamp_ltz '2013-01-31 12:00:00Z'", "timestamp '2013-01-31'",
    "'2013-01-31T12:00:00+01:00'", "'2013-01-31 12:00:00'", "timestamp_ntz '2013-01-31 12:00:00Z'", "date 'today'",
    "timestamp '2013-01-31T12:00Z'", "timestamp '2013-01-31T12:00:00.0000001Z'", "timestamp '2013-01-31T24:00:00Z'",
    "timestamp '2013-01-31T12:00:60Z'", "timestamp '2013-01-31T12:00:00+18:01'", "time '12:00:00'", "binary '0a'",
    "date '2013-02-30'", "date '0000-01-01'", "0." + "0" * 20 + "1", "1" * 38, "1" * 39, "-" + "9" * 38, "1.", ".5",
    "-.5", "0x1F", "1_000", "b'a'", "'a' -- b", "/* a */ 1", "tiny", "2147483648", "-9223372036854775808L",
    "9223372036854775808L", "9223372036854775808", "-0.0", "-0e0", "0.10F", "00012", "1.50000", "1d", "1f", "1bd",
    "'a' collate UTF8_LCASE", "$$a$$", "?", ":a", "current_date", "double('NaN')", "float('inf')", "N'a'",
]  # fmt: skip
_CONDITIONS = [
    "tags = null", "tags is null", "tags is not null", "tags[0] = 'x'", "!flag", "flag = (tiny > 1)",
    "not flag is null",
    "tiny = 1 is null", "flag is unknown", "flag is not unknown", "tiny !> 1", "tiny in (select 1)", "tiny in ()",
    "name ilike 'a%'", "name rlike 'a'", "name like any ('a%', 'A%')", "name like all ('a%', 'A%')", "tiny = (1)",
    "(tiny) = 1", "(tiny) in (1)", "((tiny = 1))", "tiny % 2 = 1", "tiny & 1 = 1", "tiny = 1 = true", "-tiny = 1",
    "true = (1 = tiny)", "tiny = 1 /* c */", "tiny = 1 -- c", "case when flag then true end", "1 = 1", "true", "null",
    "false", "'a' = 'a'", "`tiny`.x = 1", "t.tiny = 1", "tiny == 1", "tiny = 1;", "name || 'a' = 'aa'", "tiny::int = 1",
    "tiny between 1 and 2 = true", "flag in (true) is null", "not not flag", "flag and tiny", "tiny", "not tiny",
    "flag or not null", "not(flag)or tiny=1", "flag and(tiny=1)", "null = tiny", "null <=> tiny", "null and flag",
    "name like null", "null like 'a'", "name in (null)", "flag in (null, true)", "flag between false and true",
    "flag > false", "flag = not true", "name like 'a%' escape '!'", "name like '!%' escape '!'", "name not ilike 'a%'",
    "tiny between symmetric 1 and -1", "tiny between asymmetric 1 and 2",
    "tiny isnull", "tiny notnull", "tiny is unknown", "tiny in (1) and not flag or null",
    "flag is true is null", "not tiny = 1 and flag", "not tiny in (1) or flag", "not tiny between 1 and 2 and flag",
    "flag = true and true", "flag <=> true or false", "tiny = 1 and flag is not null is true", "flag is not true",
    "interval = 1", "interval is null", "date = date '2013-01-31'", "date is null", "r = r'A'", "r in (r'A', 'a')",
    "not interval in (1)", "date between date '2013-01-31' and '2013-02-01'", "`date` < `day`", "tiny = small",
]  # fmt: skip


def drawn_rows(seed: int, count: int) -> pa.RecordBatch:
    """Each value at least once, with nulls between them."""
    chance = random.Random(seed)
    columns = []
    for arrow in SCHEMA.arrow_schema:
        values = [*(plain_value(pa.scalar(each, arrow.type)) for each in VALUES.get(arrow.name, (["x"],))), None]
        values += _BEYOND_PYTHON.get(arrow.name, [])
        drawn = [*values, *chance.choices(values, k=count - len(values))]
        chance.shuffle(drawn)
        columns.append(array_of_plain(drawn, arrow.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow_schema)


class Drawing:
    """Conditions by chance."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._writer = _Writer(self._chance)

    def condition(self) -> str:
        """One of up to four terms. One in twelve lacks a token, or has one twice, or two in each other's place."""
        words = self._condition(0)
        return words if self._chance.random() < 11 / 12 else self._torn(words)

    def _torn(self, words: str) -> str:
        tokens = _TOKEN.findall(words)
        at, kind = self._chance.randrange(len(tokens)), self._chance.randrange(3)
        there = tokens[at : at + 2]
        tokens[at : at + 2] = (there[1:], [*there[:1], *there], [*there[1:], *there[:1]])[kind]
        return " ".join(tokens)

    def _condition(self, depth: int) -> str:
        kind = self._chance.random()
        if depth < 2 and kind < 0.25:
            word = self._chance.choice(("and", "or", "AND", "Or"))
            left, right = self._condition(depth + 1), self._condition(depth + 1)
            return f"{left} {word} {right}" if kind < 0.1 else f"({left}){word}\n({right})"
        if depth < 2 and kind < 0.35:
            return f"not {self._condition(depth + 1)}" if kind < 0.3 else f"NOT({self._condition(depth + 1)})"
        return self._chance.choice(_CONDITIONS) if self._chance.random() < 0.06 else self._term()

    def _term(self) -> str:
        pick, name = self._chance.choice, self._chance.choice(NAMES)
        column, negated, write = self._column(name), pick(("", "", "not ", "NOT ")), self._how_to_write(name)
        match self._chance.randrange(12):
            case 0 | 1:
                constants = [write() for _ in range(pick((1, 2, 3, 12)))]
                return f"{column} {negated}{pick(('in (', 'in(', 'IN ('))}{pick((', ', ',')).join(constants)})"
            case 2:
                return f"{column} {negated}between {write()} and {write()}"
            case 3:
                return f"{self._column(pick(('name', 'r')))} {negated}like {self._writer.pattern(pick(_TEXTS))}"
            case 4:
                return f"{column} is {negated}null"
            case 5:
                return pick(("flag", f"flag is {negated}true", f"flag is {negated}false", f"{column} is not null"))
            case 6:
                return f"{column} is {pick(('not', 'not', 'NOT', ''))} distinct from {write()}"
            case _:
                sign = pick(("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"))
                parts = [column, sign, write()]
                return pick((" ", "", "\t \n")).join(parts if self._chance.random() < 0.75 else reversed(parts))

    def _column(self, name: str) -> str:
        if not name.isidentifier():
            return "`" + name.replace("`", "``") + "`"
        return self._chance.choice((name, name, name.upper(), f"`{name}`"))

    def _how_to_write(self, name: str) -> Callable[[], str]:
        """Constants of one term. A form that is refused would refuse the whole term."""
        kind, writer = self._chance.random(), self._writer
        if kind < 0.03:
            return lambda: self._chance.choice(_CONSTANTS)
        if kind < 0.06:
            return lambda: writer.any(self._chance.choice(VALUES[self._chance.choice(NAMES)]))
        if kind < 0.12:
            return lambda: writer.any(self._chance.choice(VALUES[name]))
        return lambda: writer.usual(self._chance.choice(VALUES[name]), name)


class _Writer:
    """Values as constants of SQL."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def usual(self, value: Any, name: str) -> str:
        """In a form that is taken for the column of this name."""
        forms: list[str]
        match value:
            case bool():
                forms = ["true", "TRUE", "False"]
            case int():
                forms = _integer_forms(value)
            case float():
                forms = _float_forms(value)
            case decimal.Decimal():
                plain = format(value, "f")
                whole = plain.split(".")[0]
                forms = [plain, plain + "BD", whole, whole + "bd", f"{whole}.", plain.replace("-", "- ")]
            case str():
                forms = self._texts(value)
            case bytes():
                forms = [f"X'{value.hex()}'", f"x'{value.hex().upper()}'"]
            case datetime.datetime():
                text = self._time(value)
                if name == "local":
                    forms = [f"timestamp_ntz '{text}'", f"TIMESTAMP_NTZ'{text}'", f"'{text}'", f'"{text}"']
                else:
                    text += self._chance.choice(("Z", "+00:00", "-00:30", "+18:00"))
                    forms = [f"timestamp '{text}'", f"timestamp_LTZ'{text}'", f"'{text}'", f'"{text}"']
            case _:
                forms = [f"date '{value}'", f"DATE'{value}'", f'date "{value}"', *self._texts(str(value))]
        return self._chance.choice(forms)

    def any(self, value: Any) -> str:
        """In some form, of whatever type."""
        match value:
            case bool():
                return self._chance.choice(("true", "'true'", "1", "boolean 'true'"))
            case int():
                return f"{value}{self._chance.choice(('', 'L', 'BD', '.0', 'D', 'F', 'S', 'Y', 'e0', 'E2BD', 'e-1D'))}"
            case float() if math.isnan(value) or math.isinf(value):
                return self._chance.choice((f"'{value}'", f"double '{value}'", f"double('{value}')"))
            case float():
                return f"{value!r}{self._chance.choice(('', 'D', 'F', 'BD'))}"
            case decimal.Decimal():
                return f"{value:f}{self._chance.choice(('', 'BD', 'D', 'F', 'L'))}"
            case str():
                return self._chance.choice((f"'{value}'", f'"{value}"', f"r'{value}'", f'R"{value}"'))
            case bytes():
                return self._chance.choice((f"X'{value.hex()}'", f"'{value.hex()}'", f"binary '{value.hex()}'"))
            case datetime.datetime():
                kind = self._chance.choice(("", "timestamp ", "timestamp_ltz ", "TIMESTAMP_NTZ", "date "))
                return f"{kind}'{self._time(value)}{self._chance.choice(('Z', '', ' UTC', '+1:00', '-00:30'))}'"
            case _:
                return self._chance.choice((f"'{value}'", f"timestamp '{value}'", f"'{value:%Y%m%d}'", f"'{value} '"))

    def pattern(self, value: str) -> str:
        """A beginning of `value` as a constant for LIKE, or all of it; rarely some pattern that is another."""
        if self._chance.random() < 0.1:
            return self._chance.choice(
                ("'%b'", r"'\%'", r"'\\%'", r"'\_A'", "'_'", r"r'\%%'", "'%%'", r"'a\\b'", "'a_'")
            )
        prefix = value[: self._chance.randint(0, len(value))]
        escaped = "".join(f"\\{sign}" if sign in "\\%_" else sign for sign in prefix)
        return self._chance.choice(self._texts(escaped + self._chance.choice(("%", "%", "%%", ""))))

    def _texts(self, value: str) -> list[str]:
        escaped = value.replace("\\", "\\\\").replace("\n", self._chance.choice(("\\n", "\n", "\\012")))
        half = len(value) // 2
        forms = [
            "'" + escaped.replace("'", "\\'") + "'",
            "'" + escaped.replace("'", "''") + "'",
            '"' + escaped.replace('"', '""') + '"',
            '"' + escaped.replace('"', '\\"') + '"',
            "'" + "".join(map(self._by_number, value)) + "'",
            f"{_in_quotes(value[:half])} {_in_quotes(value[half:])}",
            _in_quotes(value[:half]) + _in_quotes(value[half:], '"'),
        ]
        if "'" not in value:
            forms.append(f"r'{value}'")
        if '"' not in value:
            forms.append(f'R"{value}"')
        return forms

    def _by_number(self, sign: str) -> str:
        code = ord(sign)
        forms = [f"\\U{code:08x}", *([f"\\u{code:04x}"] if code < 1 << 16 else []), *([f"\\{code:03o}"] * (code < 128))]
        return self._chance.choice(forms)

    def _time(self, value: datetime.datetime) -> str:
        text = value.replace(tzinfo=None).isoformat(self._chance.choice(" T"))
        return text.rstrip("0") if "." in text else text + self._chance.choice(("", ".0", ".000", ".000000"))


def _in_quotes(value: str, quote: str = "'") -> str:
    return quote + value.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote


def _integer_forms(value: int) -> list[str]:
    forms = [f"{value}"] * 3 + [f"{value}{tail}" for tail in ("L", "l", "BD", ".0", ".5", ".", ".00BD")]
    forms += [f"{value}".replace("-", "- "), f"({value})"]
    for letter, bits in (("Y", 8), ("S", 16)):
        if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            forms.append(f"{value}{letter}")
    return forms


def _float_forms(value: float) -> list[str]:
    if math.isnan(value) or math.isinf(value):
        return ["1.7976931348623157e308", "-1.7976931348623157E+308", "1e38"]  # no constant says these
    forms = [f"{value!r}D", f"{value!r}d", f"{value:.16e}", f"{value:e}"]
    plain = format(decimal.Decimal(repr(value)), "f")
    if len(plain) < 30:
        forms += [plain, plain + "BD", plain + "D"]
        forms += [f"{plain}F", f"{plain}f"] if value == 0 or abs(value) > 1e-30 else []
    if value.is_integer() and abs(value) < 2**63:
        forms += [str(int(value)), f"{int(value)}L"]
    return forms
