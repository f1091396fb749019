"""Rows as JSON: every value that a row can have has a form."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.typed.rows.as_json import rows_as_json
from minilog.typed.rows.iso_8601 import date_text, days_of, microseconds_of, timestamp_text

INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
FAR_US = 253_402_300_800_000_000  # 10000-01-01
EPOCH = datetime.date(1970, 1, 1)


def as_objects(**columns: pa.Array) -> list[dict[str, Any]]:
    return [json.loads(each) for each in rows_as_json(pa.RecordBatch.from_pydict(columns))]


def test_a_date_or_time_outside_of_the_years_of_python_has_a_text() -> None:
    at = [0, FAR_US + 1, -62_135_596_800_000_001]
    days = [None, 2_932_897, 2**31 - 1]
    assert as_objects(i=pa.array(at, INSTANT), n=pa.array(at, LOCAL), d=pa.array(days, pa.date32())) == [
        {"i": "1970-01-01T00:00:00+00:00", "n": "1970-01-01T00:00:00", "d": None},
        {"i": "+10000-01-01T00:00:00.000001+00:00", "n": "+10000-01-01T00:00:00.000001", "d": "+10000-01-01"},
        {"i": "0000-12-31T23:59:59.999999+00:00", "n": "0000-12-31T23:59:59.999999", "d": "+5881580-07-11"},
    ]


def test_so_it_has_in_structs_lists_and_maps_and_all_else_stays_as_it_is() -> None:
    place = pa.array([{"at": FAR_US, "raw": b"x"}], pa.struct([("at", INSTANT), ("raw", pa.binary())]))
    every = pa.array([[FAR_US, None]], pa.list_(INSTANT))
    named = pa.array([[(FAR_US, float("nan"))]], pa.map_(LOCAL, pa.float64()))
    assert as_objects(place=place, every=every, named=named, none=pa.array([None], place.type)) == [
        {
            "place": {"at": "+10000-01-01T00:00:00+00:00", "raw": "eA=="},
            "every": ["+10000-01-01T00:00:00+00:00", None],
            "named": {"+10000-01-01T00:00:00": "NaN"},
            "none": None,
        }
    ]


@given(st.dates())
def test_dates_that_python_has_look_as_they_do_there(date: datetime.date) -> None:
    assert date_text((date - EPOCH).days) == date.isoformat()


@given(st.datetimes(), st.booleans())
def test_times_that_python_has_look_as_they_do_there(at: datetime.datetime, has_zone: bool) -> None:
    microseconds = (at - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
    shown = at.replace(tzinfo=datetime.UTC) if has_zone else at
    assert timestamp_text(microseconds, has_zone=has_zone) == shown.isoformat()


@given(st.integers(-(2**31), 2**31 - 1))
def test_each_date_is_read_back(days: int) -> None:
    assert days_of(date_text(days)) == days


@given(st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_each_time_is_read_back(microseconds: int, has_zone: bool) -> None:
    assert microseconds_of(timestamp_text(microseconds, has_zone=has_zone), has_zone=has_zone) == microseconds


def test_a_zone_is_an_offset_from_utc() -> None:
    assert microseconds_of("+10000-01-01T02:00+02:00", has_zone=True) == FAR_US
    assert microseconds_of("9999-12-31T19:00:00.0-05:00", has_zone=True) == FAR_US


@pytest.mark.parametrize("text", ["2023-02-29", "2024-13-01", "10000-01-01", "2024-01-00", "2024-1-1", "today", ""])
def test_a_text_that_is_no_date_is_none(text: str) -> None:
    assert days_of(text) is None
    assert microseconds_of(f"{text}T00:00:00", has_zone=False) is None


@pytest.mark.parametrize("text", ["2024-05-01", "2024-05-01T24:00:00", "2024-05-01T12:00:00Z", "2024-05-01T12:60:00"])
def test_a_text_that_is_no_time_without_a_zone_is_none(text: str) -> None:
    assert microseconds_of(text, has_zone=False) is None
