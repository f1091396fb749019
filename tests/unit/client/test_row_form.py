"""Rows as programs give them to `send`: Python's values, and what numpy and pandas have in their place."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from minilog.errors import InvalidRecord
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.topic_schema import first_version

NOON = datetime.datetime(2024, 5, 1, 12)
UTC_NOON = NOON.replace(tzinfo=datetime.UTC)
DAY = datetime.date(2024, 5, 1)


def checked(kind: str, value: Any) -> Any:
    schema = first_version(parse_ddl(f"c {kind}"))
    (found,) = schema.row_form.check({"c": value}).values
    # What is taken is what Arrow takes.
    (taken,) = pa.array([found], schema.arrow_schema.field(0).type).to_pylist()
    assert taken == found or isinstance(found, list | float | decimal.Decimal)
    return found


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("boolean", np.bool_(True), True),
        ("int", np.int64(7), 7),
        ("byte", np.uint8(127), 127),
        ("int", 3.0, 3),
        ("int", np.float64(3), 3),
        ("long", np.array(5), 5),
        ("float", np.float32(0.5), 0.5),
        ("float", np.float16(0.5), 0.5),
        ("double", np.float64(0.1), 0.1),
        ("double", np.int32(3), 3.0),
        ("string", np.str_("a"), "a"),
        ("binary", np.bytes_(b"a"), b"a"),
        ("decimal(5,2)", np.int8(3), decimal.Decimal(3)),
        ("date", np.datetime64("2024-05-01"), DAY),
        ("timestamp_ntz", np.datetime64("2024-05-01T12:00:00.000000000"), NOON),
        ("timestamp_ntz", np.datetime64("2024-05-01T12:00"), NOON),
        ("timestamp_ntz", pd.Timestamp(NOON), NOON),
        ("timestamp", pd.Timestamp(UTC_NOON), UTC_NOON),
        ("timestamp", pd.Timestamp("2024-05-01T14:00:00", tz="Europe/Berlin"), UTC_NOON),
        ("array<int>", np.array([1, 2]), [1, 2]),
        ("array<timestamp_ntz>", np.array(["2024-05-01T12:00"], "datetime64[ns]"), [NOON]),
        ("struct<a: int>", {"a": np.int16(1)}, {"a": 1}),
        ("map<string, double>", {"k": np.float32(1.5)}, [("k", 1.5)]),
    ],
)
def test_scalars_of_numpy_and_pandas_are_taken(kind: str, value: Any, wanted: Any) -> None:
    found = checked(kind, value)
    assert found == wanted
    assert type(found) is type(wanted) or isinstance(found, float | str | bytes)


@pytest.mark.parametrize("null", [pd.NaT, pd.NA, np.datetime64("NaT")], ids=repr)
def test_the_nulls_of_pandas_are_null(null: Any) -> None:
    for kind in ("int", "string", "timestamp", "timestamp_ntz", "date", "array<int>"):
        assert checked(kind, null) is None
        with pytest.raises(InvalidRecord, match="column 'c' may not be null"):
            checked(f"{kind} NOT NULL", null)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (
            "timestamp",
            NOON,
            r"it has no zone: give it one.*replace\(tzinfo=datetime.UTC\)",
        ),
        ("timestamp", pd.Timestamp(NOON), "it has no zone"),
        ("timestamp", np.datetime64("2024-05-01T12:00"), "it has no zone"),
        ("timestamp_ntz", UTC_NOON, "it has a zone, and the column has times without"),
        ("timestamp_ntz", pd.Timestamp(UTC_NOON), "it has a zone"),
        ("timestamp_ntz", pd.Timestamp("2024-05-01T12:00:00.000000001"), "it has nanoseconds"),
        ("timestamp_ntz", np.datetime64("2024-05-01T12:00:00.000000001"), "none that fits"),
        ("timestamp_ntz", np.datetime64("20000-05-01T12:00:00"), "none that fits"),
        ("date", NOON, r"give its date\(\)"),
        ("date", pd.Timestamp(NOON), r"give its date\(\)"),
        ("byte", np.int64(128), "none that fits"),
        ("int", 1.5, "none that fits"),
        ("int", np.float64("nan"), "give None where there is no value"),
        ("int", np.float64("inf"), "none that fits"),
        ("int", True, "none that fits"),
        ("int", np.bool_(True), "none that fits"),
        ("boolean", np.int8(1), "none that fits"),
        ("float", np.float64(1e39), "none that fits"),
        ("array<int>", np.array([[1]]), "none that fits"),
        ("string", np.int8(1), "none that fits"),
    ],
)
def test_lossy_forms_are_refused_with_a_remedy(kind: str, value: Any, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        checked(kind, value)


def test_rows_of_a_frame_are_taken_with_their_keys_and_time_stamps() -> None:
    schema = first_version(parse_ddl("id int, name string, at timestamp"), ["id"], "at")
    frame = pd.DataFrame({"id": [1, 2], "name": ["a", None], "at": pd.to_datetime([UTC_NOON, UTC_NOON])})
    for row in frame.to_dict("records"):
        found = schema.row_form.check({name: None if value != value else value for name, value in row.items()})
        plain = schema.row_form.check({"id": int(row["id"]), "at": UTC_NOON})
        assert (found.key, found.timestamp_us) == (plain.key, plain.timestamp_us)
