"""The content that the topics must have, and its comparison with their actual content. Plain pyarrow computes it from
the files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from minilog import compute as pc

Delays = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Census:
    """The comparison of one topic with the records that were written to it. All fields are numbers of records."""

    expected: int
    actual: int
    lost: int
    duplicated: int
    unexpected: int

    @property
    def is_exact(self) -> bool:
        return self.lost == self.duplicated == self.unexpected == 0


@dataclass(frozen=True, slots=True)
class Agreement:
    """The comparison of the job's result with pyarrow's. All fields are numbers of keys."""

    expected: int
    actual: int
    missing: int
    different: int
    unexpected: int

    @property
    def is_exact(self) -> bool:
        return self.missing == self.different == self.unexpected == 0


def take_census(expected: pa.Table, actual: pa.Table) -> Census:
    """Compare two tables with the same columns, row by row and in any order. A null equals a null.

    No two expected rows are equal. So of equal rows in the topic all but one are duplicates.
    """
    wanted = expected.append_column("is_wanted", pa.repeat(True, expected.num_rows))
    held = actual.append_column("is_wanted", pa.repeat(False, actual.num_rows))
    rows = pa.concat_tables([wanted, held])
    sides = rows.group_by(expected.column_names).aggregate([("is_wanted", "any"), ("is_wanted", "all")])
    in_topic = pc.invert(sides["is_wanted_all"])
    kinds = pc.sum(in_topic).as_py() or 0
    matching = pc.sum(pc.and_(in_topic, sides["is_wanted_any"])).as_py() or 0
    return Census(
        expected=expected.num_rows,
        actual=actual.num_rows,
        lost=expected.num_rows - matching,
        duplicated=actual.num_rows - kinds,
        unexpected=kinds - matching,
    )


def expected_delays(flights: pa.Table, weather: pa.Table) -> dict[str, dict[str, Any]]:
    """The job's whole result by key, as jobs/delays.py defines it."""
    hours = pc.floor_temporal(flights["time"], unit="hour")
    flown = flights.select(["carrier", "origin", "dep_delay", "time"]).append_column("hour", hours)
    joined = flown.join(weather.select(["origin", "hour", "precip"]), ["origin", "hour"], join_type="inner")
    in_rain = pc.fill_null(pc.greater(joined["precip"], 0), False)
    days = pc.floor_temporal(joined["time"], unit="day").cast(pa.timestamp("s", "UTC"))
    joined = (
        joined.append_column("day", days)
        .append_column("rain_flights", pc.cast(in_rain, pa.int64()))
        .append_column("rain_delay_sum", pc.if_else(in_rain, joined["dep_delay"], None))
    )
    totals = joined.group_by(["carrier", "day"]).aggregate(
        [
            ([], "count_all"),
            ("dep_delay", "count"),
            ("dep_delay", "sum"),
            ("dep_delay", "mean"),
            ("rain_flights", "sum"),
            ("rain_delay_sum", "sum"),
        ]
    )
    starts = pc.strftime(totals["day"], format="%Y-%m-%dT%H:%M:%SZ")
    rows = totals.drop_columns(["day"]).append_column("window_start", starts).to_pylist()
    return {f"{row['carrier']}|{row['window_start']}": _result(row) for row in rows}


def _result(row: Mapping[str, Any]) -> dict[str, Any]:
    result = {
        "carrier": row["carrier"],
        "window_start": row["window_start"],
        "flights": row["count_all"],
        "departures": row["dep_delay_count"],
        "delay_sum": row["dep_delay_sum"],
        "delay_avg": row["dep_delay_mean"],
        "rain_flights": row["rain_flights_sum"],
        "rain_delay_sum": row["rain_delay_sum_sum"],
    }
    # Spark's to_json leaves out what is null.
    return {name: value for name, value in result.items() if value is not None}


def last_values(records: pa.Table) -> dict[str, dict[str, Any]]:
    """The last value of each key, decoded. `records` has key, value, partition and offset."""
    ordered = records.sort_by([("partition", "ascending"), ("offset", "ascending")])
    keys, values = ordered["key"].to_pylist(), ordered["value"].to_pylist()
    return {key.decode(): json.loads(value) for key, value in zip(keys, values, strict=True)}


def compare_delays(expected: Delays, actual: Delays) -> Agreement:
    """Compare by key: every total must be the same number."""
    both = expected.keys() & actual.keys()
    return Agreement(
        expected=len(expected),
        actual=len(actual),
        missing=len(expected.keys() - actual.keys()),
        different=sum(expected[key] != actual[key] for key in both),
        unexpected=len(actual.keys() - expected.keys()),
    )
