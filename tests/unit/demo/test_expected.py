"""What the topics must hold, by a year small enough to count by hand."""

from __future__ import annotations

import dataclasses
import datetime
import math

import pyarrow as pa
import pytest

from minilog_tools.demo import data
from minilog_tools.demo.expected import compare_delays, expected_delays, last_values, take_census


def _time(hour: int, minute: int = 0, day: int = 1) -> datetime.datetime:
    return datetime.datetime(2013, 1, day, hour, minute, tzinfo=datetime.UTC)


FLIGHTS = pa.table(
    {
        "event": [0, 1, 2, 3, 4],
        "time": [_time(5, 15), _time(5, 59), _time(6), _time(7), _time(5, day=2)],
        "carrier": ["UA", "UA", "UA", "DL", "UA"],
        "flight": [1, 2, 3, 4, 5],
        "tailnum": ["N1", None, "N3", "N4", "N5"],
        "origin": ["EWR", "EWR", "EWR", "JFK", "EWR"],
        "dest": ["IAH", "IAH", "IAH", "MIA", "IAH"],
        "dep_delay": [2, -4, None, 7, 9],
        "distance": [100, 200, 300, 400, 500],
    },
    data.FLIGHTS_SCHEMA.arrow_schema,
)
WEATHER = pa.table(
    {
        "event": [0, 1, 2],
        "hour": [_time(5), _time(6), _time(5, day=2)],
        "origin": ["EWR", "EWR", "EWR"],
        "temp": [39.02, None, 40.0],
        "wind_speed": [10.0, 11.0, 12.0],
        "precip": [0.0, 0.5, 0.0],
        "visib": [10.0, 10.0, 10.0],
    },
    data.WEATHER_SCHEMA.arrow_schema,
)

OTHER_VALUES = [
    (0, "event", 7),
    (0, "time", _time(5, 16)),
    (0, "carrier", "DL"),
    (0, "tailnum", None),
    (1, "tailnum", ""),
    (2, "dep_delay", 0),
    (0, "temp", math.nextafter(39.02, 40)),
    (1, "temp", math.nan),
]


def _with(rows: pa.Table, column: str, value: object) -> pa.Table:
    """The same rows with this value in one column."""
    return pa.Table.from_pylist([{**row, column: value} for row in rows.to_pylist()], rows.schema)


def test_the_result_counts_each_flight_that_has_weather_once() -> None:
    assert expected_delays(FLIGHTS, WEATHER) == {
        "UA|2013-01-01T00:00:00Z": {
            "carrier": "UA",
            "window_start": "2013-01-01T00:00:00Z",
            "flights": 3,
            "departures": 2,
            "delay_sum": -2,
            "delay_avg": -1.0,
            "rain_flights": 1,
        },
        "UA|2013-01-02T00:00:00Z": {
            "carrier": "UA",
            "window_start": "2013-01-02T00:00:00Z",
            "flights": 1,
            "departures": 1,
            "delay_sum": 9,
            "delay_avg": 9.0,
            "rain_flights": 0,
        },
    }


def test_parts_hold_everything_once_and_weather_before_its_flights() -> None:
    parts = list(data.parts(FLIGHTS, WEATHER, 3))
    assert [part.flights.num_rows for part in parts] == [1, 2, 2]
    assert [part.weather.num_rows for part in parts] == [1, 1, 1]
    whole = pa.Table.from_batches([part.flights for part in parts])
    assert take_census(FLIGHTS, whole).is_exact


def test_more_parts_than_flights_lose_nothing() -> None:
    parts = list(data.parts(FLIGHTS, WEATHER, 50))
    assert sum(part.flights.num_rows for part in parts) == 5
    assert sum(part.weather.num_rows for part in parts) == 3


def test_the_census_tells_lost_from_duplicated_from_unexpected() -> None:
    again, strange = FLIGHTS.slice(3, 1), _with(FLIGHTS.slice(4), "event", 5)
    census = take_census(FLIGHTS, pa.concat_tables([FLIGHTS.slice(1), again, again, strange]))
    assert (census.expected, census.actual) == (5, 7)
    assert (census.lost, census.duplicated, census.unexpected) == (1, 2, 1)


def test_a_strange_row_is_unexpected_as_often_as_it_is_not_a_duplicate() -> None:
    strange = _with(FLIGHTS.slice(4), "event", 5)
    census = take_census(FLIGHTS, pa.concat_tables([FLIGHTS, strange, strange]))
    assert (census.lost, census.duplicated, census.unexpected) == (0, 1, 1)


@pytest.mark.parametrize(("row", "column", "value"), OTHER_VALUES)
def test_a_row_with_one_other_value_is_lost_and_unexpected(row: int, column: str, value: object) -> None:
    one = (FLIGHTS if column in FLIGHTS.column_names else WEATHER).slice(row, 1)
    assert take_census(one, one).is_exact, "a null is like a null"
    census = take_census(one, _with(one, column, value))
    assert (census.lost, census.duplicated, census.unexpected) == (1, 0, 1)


def test_the_order_of_rows_and_their_pieces_do_not_count() -> None:
    assert take_census(FLIGHTS, pa.concat_tables([FLIGHTS.slice(2), FLIGHTS.slice(0, 2)])).is_exact


def test_an_empty_topic_has_lost_everything() -> None:
    nothing = FLIGHTS.slice(0, 0)
    assert take_census(FLIGHTS, nothing).lost == 5
    assert take_census(nothing, nothing).is_exact


def test_the_files_are_read_in_order_of_time_with_every_value_in_its_type() -> None:
    flights, weather = data.load_flights(500), data.load_weather(_time(23))
    assert (flights.schema, weather.schema) == (FLIGHTS.schema, WEATHER.schema)
    for rows, time in ((flights, "time"), (weather, "hour")):
        assert rows["event"].to_pylist() == list(range(rows.num_rows))
        assert rows[time].to_pylist() == sorted(rows[time].to_pylist())
    assert flights.slice(0, 1).to_pylist() == [
        {
            "event": 0,
            "time": _time(10, 15),
            "carrier": "UA",
            "flight": 1545,
            "tailnum": "N14228",
            "origin": "EWR",
            "dest": "IAH",
            "dep_delay": 2,
            "distance": 1400,
        }
    ]
    assert (flights.num_rows, flights["dep_delay"].null_count) == (500, 2)
    measured = {"temp": 39.02, "wind_speed": 10.357019999999999, "precip": 0.0, "visib": 10.0}
    assert weather.slice(0, 1).to_pylist() == [{"event": 0, "hour": _time(6), "origin": "EWR", **measured}]


def test_the_last_value_of_a_key_counts() -> None:
    found = pa.table(
        {
            "key": [b"UA", b"UA", b"DL"],
            "value": [b'{"n":2}', b'{"n":1}', b'{"n":3}'],
            "partition": pa.array([0, 0, 1], pa.int32()),
            "offset": pa.array([8, 7, 0]),
        }
    )
    assert last_values(found) == {"UA": {"n": 2}, "DL": {"n": 3}}


def test_results_are_compared_key_by_key() -> None:
    agreement = compare_delays({"a": {"n": 1}, "b": {"n": 2}, "c": {}}, {"a": {"n": 1}, "b": {"n": 3}, "d": {}})
    assert dataclasses.astuple(agreement) == (3, 3, 1, 1, 1)
    assert not agreement.is_exact


def test_the_closing_events_lie_behind_every_window_and_its_watermark() -> None:
    flight, weather = data.closing_events()
    assert (flight.schema, weather.schema) == (FLIGHTS.schema, WEATHER.schema)
    assert [flight["time"][0].as_py(), weather["hour"][0].as_py()] == [data.CLOSING_TIME] * 2
