"""The Prometheus metrics of observed queries: their names, in one place.

A scrape makes them from the latest numbers. So nothing is counted twice, and a forgotten query disappears. The labels
are the query's name (or its id) and the topic. observation.py and behind.py limit the number of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pyspark_minilog.watching.behind import QueryBehind, TopicBehind

_BEHIND: dict[str, tuple[str, Callable[[TopicBehind], float | None]]] = {
    "minilog_spark_records_behind": ("Records that the query had before it in the topic.", lambda topic: topic.records),
    "minilog_spark_bytes_behind": (
        "Stored bytes that the query had before it in the topic.",
        lambda topic: topic.bytes,
    ),
    "minilog_spark_seconds_behind": (
        "The age of the first record that the query had not read.",
        lambda topic: topic.seconds,
    ),
}
_SUMS: dict[str, tuple[str, Callable[[QueryBehind], float | None]]] = {
    "minilog_spark_records_read": ("Records that the query has read from minilog.", lambda query: query.records_read),
    "minilog_spark_records_written": ("Rows that the query's sink has written.", lambda query: query.records_written),
    "minilog_spark_batches": ("Micro-batches that the query has finished.", lambda query: query.batches),
}
_STATES: dict[str, tuple[str, Callable[[QueryBehind], float | None]]] = {
    "minilog_spark_batch_duration_seconds": ("How long the last batch took.", lambda query: query.batch_seconds),
    "minilog_spark_query_active": ("1 while the query runs, 0 when it has ended.", lambda query: query.is_active),
    "minilog_spark_told_timestamp_seconds": (
        "The time of Spark's last event for the query.",
        lambda query: query.at_ms / 1000,
    ),
}


class QueryMetrics(Collector):
    """The metrics of all observed queries. `queries` returns the latest numbers."""

    def __init__(self, queries: Callable[[], Sequence[QueryBehind]]) -> None:
        self._queries = queries

    def describe(self) -> list[Metric]:
        """The names alone, so that a registry notices a second observer."""
        return list(_families([]))

    def collect(self) -> Iterator[Metric]:
        """The metrics with their values, for a registry."""
        return _families(self._queries())


def _families(queries: Sequence[QueryBehind]) -> Iterator[Metric]:
    for name, (meaning, number) in _BEHIND.items():
        behind = GaugeMetricFamily(name, meaning, labels=["query", "topic"])
        for query in queries:
            for topic in query.topics:
                if (value := number(topic)) is not None:
                    behind.add_metric([query.label, topic.topic], value)
        yield behind
    for table, kind in ((_SUMS, CounterMetricFamily), (_STATES, GaugeMetricFamily)):
        for name, (meaning, of_query) in table.items():
            family = kind(name, meaning, labels=["query"])
            for query in queries:
                if (value := of_query(query)) is not None:
                    family.add_metric([query.label], float(value))
            yield family
