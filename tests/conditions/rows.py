"""The rows that all recorded conditions are about: each value of each type at least once, with nulls between them."""

from __future__ import annotations

import datetime
import decimal
import math
import struct
from typing import Any

import pyarrow as pa

from minilog.typed.conditions.predicate import array_of_plain, plain_value
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.topic_schema import first_version

COUNT = 48
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
_FARES = ("-999.99", "-0.01", "0.00", "1.50", "2.00", "999.99")
_LONG_FARES = ("-9999999999999999999999999999.9999999999", "-0.0000000001", "0", "1.5", "12345678901234567890.1")
_WHOLE = ("9" * 38, "-" + "9" * 38, "-12345678901234567890123456789012345678", "0", "1")
VALUES: dict[str, list[Any]] = {
    "tiny": [-128, -1, 0, 1, 2, 127],
    "small": [-(2**15), -1, 0, 128, 2**15 - 1],
    "number": [-(2**31), -3, 0, 1, 16777217, 2**31 - 1],
    "big": [-(2**63), -1, 0, 2**31, 2**53 + 1, 2**63 - 1],
    "narrow": [*_FLOATS, _narrow(3.4028234663852886e38)],
    "wide": [*_FLOATS, 0.1, 1e300, 1.7976931348623157e308, 2.0**53],
    "fare": [decimal.Decimal(each) for each in _FARES],
    "huge": [decimal.Decimal(each) for each in _LONG_FARES],
    "whole": [decimal.Decimal(each) for each in _WHOLE],
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
    "tags": [["x"]],
}
_BEYOND_PYTHON = {"day": [-800_000, 3_000_000], "at": [-(10**17), 3 * 10**17], "local": [-(10**17), 3 * 10**17]}
"""Days and microseconds of years that no constant can say."""


def _column(place: int, arrow: pa.Field) -> pa.Array:
    """The values of a column over and over, each column in another order, so that they meet in other pairs."""
    values = [*(plain_value(pa.scalar(each, arrow.type)) for each in VALUES[arrow.name]), None]
    values += _BEYOND_PYTHON.get(arrow.name, [])
    step = next(each for each in range(place + 2, 1000) if math.gcd(each, len(values)) == 1)
    return array_of_plain([values[(row * step + place) % len(values)] for row in range(COUNT)], arrow.type)


ROWS = pa.RecordBatch.from_arrays(
    [_column(place, arrow) for place, arrow in enumerate(SCHEMA.arrow_schema)], schema=SCHEMA.arrow_schema
)
