"""What the topics must hold, by a year small enough to count by hand."""

from __future__ import annotations

import dataclasses
import datetime
import json

import pyarrow as pa

from minilog_broker.demo import data
from minilog_broker.demo.expected import compare_delays, expected_delays, last_values, take_census


def _time(hour: int, minute: int = 0, day: int = 1) -> datetime.datetime:
    return datetime.datetime(2013, 1, day, hour, minute, tzinfo=datetime.UTC)


FLIGHTS = pa.table(
    {
        "event": pa.array([0, 1, 2, 3, 4]),
        "time": pa.array(
            [_time(5, 15), _time(5, 59), _time(6), _time(7), _time(5, day=2)], pa.timestamp("s", tz="UTC")
        ),
        "carrier": ["UA", "UA", "UA", "DL", "UA"],
        "flight": pa.array([1, 2, 3, 4, 5]),
        "tailnum": ["N1", None, 'N"3', "N4", "N5"],
        "origin": ["EWR", "EWR", "EWR", "JFK", "EWR"],
        "dest": ["IAH", "IAH", "IAH", "MIA", "IAH"],
        "dep_delay": pa.array([2, -4, None, 7, 9]),
        "distance": pa.array([100, 200, 300, 400, 500]),
    }
)
WEATHER = pa.table(
    {
        "event": pa.array([0, 1, 2]),
        "hour": pa.array([_time(5), _time(6), _time(5, day=2)], pa.timestamp("s", tz="UTC")),
        "origin": ["EWR", "EWR", "EWR"],
        "temp": [39.02, None, 40.0],
        "wind_speed": [10.0, 11.0, 12.0],
        "precip": [0.0, 0.5, 0.0],
        "visib": [10.0, 10.0, 10.0],
    }
)


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


def test_events_are_json_with_nulls_and_quotes_kept() -> None:
    events = [json.loads(text) for text in data.flight_events(FLIGHTS)["value"].to_pylist()]
    assert events[0]["time"] == "2013-01-01T05:15:00Z"
    assert (events[1]["tailnum"], events[2]["tailnum"]) == (None, 'N"3')
    assert [event["dep_delay"] for event in events] == [2, -4, None, 7, 9]
    assert data.flight_events(FLIGHTS)["key"].to_pylist() == FLIGHTS["carrier"].to_pylist()
    assert json.loads(data.weather_events(WEATHER)["value"][0].as_py())["temp"] == 39.02


def test_parts_hold_everything_once_and_weather_before_its_flights() -> None:
    parts = list(data.parts(FLIGHTS, WEATHER, 3))
    assert [part.flights.num_rows for part in parts] == [1, 2, 2]
    assert [part.weather.num_rows for part in parts] == [1, 1, 1]
    whole = pa.Table.from_batches([part.flights for part in parts])
    assert take_census(data.flight_events(FLIGHTS), whole).is_exact


def test_more_parts_than_flights_lose_nothing() -> None:
    parts = list(data.parts(FLIGHTS, WEATHER, 50))
    assert sum(part.flights.num_rows for part in parts) == 5
    assert sum(part.weather.num_rows for part in parts) == 3


def test_the_census_tells_lost_from_duplicated_from_unexpected() -> None:
    events = data.flight_events(FLIGHTS)
    strange = pa.table({"key": ["UA"], "value": ["{}"]})
    census = take_census(events, pa.concat_tables([events.slice(1), events.slice(3, 1), events.slice(3, 1), strange]))
    assert (census.expected, census.found) == (5, 7)
    assert (census.lost, census.duplicated, census.unexpected) == (1, 2, 1)


def test_a_record_under_another_key_is_lost_and_unexpected() -> None:
    events = data.flight_events(FLIGHTS).slice(0, 1)
    moved = pa.table({"key": ["DL"], "value": events["value"]})
    census = take_census(events, moved)
    assert (census.lost, census.duplicated, census.unexpected) == (1, 0, 1)


def test_an_empty_topic_has_lost_everything() -> None:
    events = data.flight_events(FLIGHTS)
    assert take_census(events, events.slice(0, 0)).lost == 5


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
    times = [json.loads(flight["value"][0].as_py())["time"], json.loads(weather["value"][0].as_py())["hour"]]
    assert times == ["2014-03-01T00:00:00Z"] * 2
