"""Who writes rows that their topic no longer keeps is told."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from minilog import schema_from_ddl
from pyspark_minilog.writing.old_rows import older, oldest_us, too_old
from pyspark_minilog.writing.sink import Payload
from tests.rules import proves

pytestmark = proves("SPS.23")

DAY_MS = 86_400_000
NOW_MS = 1_714_566_600_000


def times(*ages_ms: int | None, unit: str = "us") -> pa.Array:
    found = [None if each is None else (NOW_MS - each) * 1000 for each in ages_ms]
    return pa.array(found, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "UTC"))


@pytest.mark.parametrize("unit", ["us", "ms"])
def test_the_oldest_row_is_found_in_the_column_that_says_when_a_row_was(unit: str) -> None:
    batch = pa.record_batch({"value": ["a", "b", "c"], "timestamp": times(5, None, 70, unit=unit)})
    assert oldest_us(Payload("t", None, batch)) == (NOW_MS - 70) * 1000
    schema = schema_from_ddl("value string, timestamp timestamp, at timestamp", timestamp_column="at")
    assert oldest_us(Payload("t", None, batch, schema)) is None
    typed = pa.record_batch({"value": ["a"], "timestamp": times(9_000), "at": times(3)})
    assert oldest_us(Payload("t", None, typed, schema)) == (NOW_MS - 3) * 1000


def test_where_no_row_says_so_there_is_none() -> None:
    for batch in (
        pa.record_batch({"value": ["a"]}),
        pa.record_batch({"value": ["a"], "timestamp": times(None)}),
        pa.record_batch({"value": pa.array([], pa.string()), "timestamp": times()}),
    ):
        assert oldest_us(Payload("t", None, batch)) is None


def test_of_two_tasks_the_older_row_counts_by_topic() -> None:
    assert older({"a": 5, "b": 1}, {"a": 3, "c": 9}) == {"a": 3, "b": 1, "c": 9}


def test_rows_that_retention_deletes_are_reported_with_moment_and_remedy() -> None:
    oldest = {
        "short": (NOW_MS - DAY_MS) * 1000,
        "usual": (NOW_MS - 8 * DAY_MS) * 1000,
        "ever": 0,
        "kept": NOW_MS * 1000,
    }
    (short, usual) = too_old(oldest, {"short": 60_000, "ever": -1, "kept": 0}, NOW_MS)
    moment = datetime.datetime(2024, 4, 30, 12, 30).isoformat()
    assert (
        f"rows as old as {moment}Z were written to topic 'short', which keeps rows for 60000 ms (retention.ms)" in short
    )
    assert "is not the time of the row, drop or rename the column" in short
    assert "topic 'usual', which keeps rows for 604800000 ms" in usual
    assert not list(too_old({"usual": (NOW_MS - 6 * DAY_MS) * 1000}, {}, NOW_MS))
