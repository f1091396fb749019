"""What is kept of observed queries, told in log lines and as metrics. Spark is not there: what it calls is called."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pyspark_minilog import observation
from pyspark_minilog.observation import FORGET_AFTER_S, MOST_QUERIES, QueryLedger, QueryListener
from pyspark_minilog.watching.observed_metrics import QueryMetrics
from tests.rules import proves

pytestmark = proves("SPF.18")


class Clock:
    """Seconds, from a time of day on."""

    def __init__(self) -> None:
        self.s = 1000.0

    def ms(self) -> int:
        return int(self.s * 1000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> QueryLedger:
    return QueryLedger(log=True, clock_ms=clock.ms, clock_s=lambda: clock.s)


def progress(end: int, latest: int, *, batch: int = 0, topic: str = "t", since_ms: int | None = None) -> str:
    unread = {"bytes": {topic: (latest - end) * 10}, "since_ms": {} if since_ms is None else {topic: since_ms}}
    ids = {"__topic_ids": {topic: "id"}}
    source = {
        "endOffset": {**ids, topic: {"0": end}},
        "latestOffset": {**ids, topic: {"0": latest}, "__unread": unread},
        "numInputRows": 5,
    }
    return json.dumps({"batchId": batch, "batchDuration": 500, "sources": [source], "sink": {"numOutputRows": 3}})


def names(ledger: QueryLedger) -> list[str]:
    return [each.label for each in ledger.queries()]


def test_the_latest_numbers_and_the_sums_of_each_query_are_known(ledger: QueryLedger, clock: Clock) -> None:
    ledger.progressed("1", "one", progress(5, 20, since_ms=990_000))
    ledger.progressed("1", "one", progress(10, 20, batch=1, since_ms=995_000))
    ledger.progressed("2", None, progress(20, 20))
    one, two = ledger.queries()
    assert (one.records, one.bytes, one.seconds, one.batch_id) == (10, 100, 5.0, 1)
    assert (one.batches, one.records_read, one.records_written, one.batch_seconds) == (2, 10, 6, 0.5)
    assert (two.label, two.records, two.bytes, two.seconds) == ("2", 0, 0, 0.0)
    clock.s += 2
    assert ledger.queries()[0].seconds == 7.0, "a query that makes no progress falls behind"


def test_a_query_that_ended_is_known_for_a_while(ledger: QueryLedger, clock: Clock) -> None:
    ledger.progressed("1", "one", progress(5, 20))
    ledger.progressed("2", "two", progress(5, 20))
    ledger.ended("1", "java.lang.Exception: it broke\n  at line 1")
    clock.s += FORGET_AFTER_S - 1
    one, two = ledger.queries()
    assert (one.is_active, one.failure, two.is_active) == (False, "java.lang.Exception: it broke", True)
    clock.s += 2
    assert names(ledger) == ["two"]


def test_a_query_that_is_started_again_goes_on(ledger: QueryLedger) -> None:
    ledger.progressed("1", "one", progress(5, 20))
    ledger.ended("1", "it broke")
    ledger.progressed("1", "one", progress(10, 20))
    (one,) = ledger.queries()
    assert (one.is_active, one.failure, one.batches) == (True, None, 2)


def test_a_name_belongs_to_one_query(ledger: QueryLedger) -> None:
    """Else two series of metrics would have the same labels."""
    ledger.progressed("1", "one", progress(5, 20))
    ledger.ended("1", None)
    ledger.progressed("2", "one", progress(20, 20))
    assert [each.id for each in ledger.queries()] == ["2"]


def test_queries_without_end_are_not_all_kept(ledger: QueryLedger, clock: Clock) -> None:
    for number in range(MOST_QUERIES):
        ledger.progressed(str(number), None, progress(5, 20))
    ledger.ended("7", None)
    ledger.progressed("another", None, progress(5, 20))
    assert len(ledger.queries()) == MOST_QUERIES
    assert "7" not in names(ledger)
    assert {"0", "another"} <= set(names(ledger))


def test_a_replay_that_says_nothing_of_what_is_left_changes_nothing_of_it(ledger: QueryLedger) -> None:
    silent = json.loads(progress(10, 20))
    silent["sources"][0]["latestOffset"] = None
    ledger.progressed("1", "one", json.dumps(silent))
    assert ledger.queries() == ()
    ledger.progressed("1", "one", progress(5, 20))
    ledger.progressed("1", "one", json.dumps(silent))
    (one,) = ledger.queries()
    assert (one.records, one.batches) == (15, 3)


def test_a_query_is_logged_every_ten_seconds_at_most_and_its_end_always(
    ledger: QueryLedger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=observation.__name__)
    for number in range(5):
        ledger.progressed("1", "one", progress(number, 20, batch=number, since_ms=990_000))
        ledger.progressed("2", "two", progress(20, 20, batch=number))
        clock.s += 4
    ledger.ended("1", "it broke")
    ledger.ended("3", "never heard of")
    of_one = [each.message for each in caplog.records if "query one" in each.message]
    assert of_one == [
        "query one: 20 records behind, 200 bytes, 10.0 s (t 20); batch 0 took 0.5 s, 5 records read so far",
        "query one: 17 records behind, 170 bytes, 22.0 s (t 17); batch 3 took 0.5 s, 20 records read so far",
        "query one failed: it broke",
    ]
    of_two = [each.message for each in caplog.records if "query two" in each.message]
    assert of_two[0] == "query two: nothing behind; batch 0 took 0.5 s, 5 records read so far"
    assert len(of_two) == 2


def test_nothing_is_logged_where_that_is_not_wanted(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=observation.__name__)
    ledger = QueryLedger(log=False, clock_ms=clock.ms, clock_s=lambda: clock.s)
    ledger.progressed("1", "one", progress(5, 20))
    ledger.ended("1", None)
    assert names(ledger) == ["one"]
    assert caplog.records == []


def event(progress_json: str) -> Any:
    return SimpleNamespace(progress=SimpleNamespace(id="1", name="one", json=progress_json))


def test_failures_are_a_warning_once_for_each_kind(ledger: QueryLedger, caplog: pytest.LogCaptureFixture) -> None:
    listener = QueryListener(ledger)
    for _ in range(3):
        listener.onQueryProgress(event("{}"))
        listener.onQueryProgress(event("no JSON"))
    listener.onQueryProgress(event(progress(5, 20)))
    warnings = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert all("the observation does not understand a query's progress" in each for each in warnings)
    assert names(ledger) == ["one"]


def test_the_metrics_are_those_of_the_queries_that_are_known(ledger: QueryLedger, clock: Clock) -> None:
    registry = CollectorRegistry()
    registry.register(QueryMetrics(ledger.queries))
    ledger.progressed("1", "one", progress(5, 20, since_ms=990_000))
    ledger.progressed("2", None, progress(5, 20))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"minilog_spark_{name}", labels)

    assert value("records_behind", query="one", topic="t") == 15
    assert value("bytes_behind", query="one", topic="t") == 150
    assert value("seconds_behind", query="one", topic="t") == 10.0
    assert value("seconds_behind", query="2", topic="t") is None, "what is not known has no number"
    assert value("records_read_total", query="one") == 5
    assert value("records_written_total", query="one") == 3
    assert value("batches_total", query="one") == 1
    assert value("batch_duration_seconds", query="one") == 0.5
    assert value("told_timestamp_seconds", query="one") == 1000.0
    assert value("query_active", query="one") == 1
    ledger.ended("1", None)
    assert value("query_active", query="one") == 0
    clock.s += FORGET_AFTER_S + 1
    assert b'query="one"' not in generate_latest(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(QueryMetrics(ledger.queries))
