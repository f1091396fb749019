"""`observe(spark)`: how far each streaming query is behind, as log lines, as metrics, and as an answer to `queries()`.

It is a listener of Spark. It gets an event after each micro-batch, on Spark's thread for listeners, and no query waits
for that thread. The progress event has everything that it needs (watching/behind.py). So it asks no broker, and keeps a
few numbers for each query. An error in it is a warning, once for each kind of error.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_minilog.watching.behind import BatchProgress, Left, QueryBehind, batch_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from pyspark_minilog.watching.observed_metrics import QueryMetrics

logger = logging.getLogger(__name__)

LOG_EVERY_S = 10.0  # for one query, because a batch may take a tenth of a second
FORGET_AFTER_S = 600.0  # after the end of a query: long enough for a reader that asks now and then
MOST_QUERIES = 1_000  # a driver may start queries without end, so the query that ended first is forgotten
_MOST_FAILURE_CHARACTERS = 500


def observe(spark: SparkSession, registry: CollectorRegistry | None = None, log: bool = True) -> Observation:
    """Observe all streaming queries of a session with a source of minilog, from now on, until `stop`.

    `registry` is a Prometheus registry that gets the numbers as metrics. With `log`, the logger of this module writes a
    line at level INFO for a query that made progress, every ten seconds at most. Raises ValueError if the registry
    already has an observer.
    """
    observation = Observation(spark, registry, QueryLedger(log=log))
    observation.begin()
    return observation


class Observation:
    """The numbers of a session's queries. `observe` makes it."""

    def __init__(self, spark: SparkSession, registry: CollectorRegistry | None, ledger: QueryLedger) -> None:
        self._spark = spark
        self._registry = registry
        self._ledger = ledger
        self._listener = QueryListener(ledger)
        self._collector = None if registry is None else _collector(ledger)
        self._guard = threading.Lock()
        self._runs = False

    def queries(self) -> tuple[QueryBehind, ...]:
        """The latest numbers of each query that made progress since the observation began. An ended query stays for ten
        minutes. After `stop` the numbers stay as they were then."""
        return self._ledger.queries()

    def begin(self) -> None:
        """Begin to listen. Raises ValueError if the registry already has these metrics."""
        if self._registry is not None and self._collector is not None:
            self._registry.register(self._collector)
        self._spark.streams.addListener(self._listener)
        self._runs = True

    def stop(self) -> None:
        """Stop listening, and take the metrics out of the registry. A second call does nothing."""
        with self._guard:
            if not self._runs:
                return
            self._runs = False
        if self._registry is not None and self._collector is not None:
            self._registry.unregister(self._collector)
        self._spark.streams.removeListener(self._listener)


def _collector(ledger: QueryLedger) -> QueryMetrics:
    from pyspark_minilog.watching.observed_metrics import QueryMetrics

    return QueryMetrics(ledger.queries)


@dataclass(slots=True)
class _Query:
    """The numbers that the ledger keeps of one query."""

    id: str
    name: str | None
    at_ms: int
    batches: int = 0
    read: int = 0
    written: int | None = 0
    last: BatchProgress | None = None
    left: dict[str, Left] | None = None
    logged_s: float = float("-inf")
    ended_s: float | None = None
    failure: str | None = None

    def behind(self, now_ms: int) -> QueryBehind:
        return QueryBehind(
            id=self.id,
            name=self.name,
            topics=tuple(left.behind(topic, now_ms) for topic, left in sorted((self.left or {}).items())),
            batches=self.batches,
            records_read=self.read,
            records_written=self.written,
            batch_id=None if self.last is None else self.last.batch_id,
            batch_seconds=0.0 if self.last is None else self.last.seconds,
            at_ms=self.at_ms,
            is_active=self.ended_s is None,
            failure=self.failure,
        )


class QueryLedger:
    """The numbers of all queries, by their ids. `clock_ms` is the time of day, and `clock_s` only goes forward."""

    def __init__(
        self,
        *,
        log: bool,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._clock_ms = clock_ms
        self._clock_s = clock_s
        self._guard = threading.Lock()
        self._queries: dict[str, _Query] = {}

    def queries(self) -> tuple[QueryBehind, ...]:
        """The known queries with progress, in the order in which they began."""
        with self._guard:
            self._forget()
            now_ms = self._clock_ms()
            return tuple(query.behind(now_ms) for query in self._queries.values() if query.left is not None)

    def progressed(self, query_id: str, name: str | None, progress: str) -> None:
        """Note that a batch of a query has ended. Raises the errors of `batch_of`."""
        batch = batch_of(progress)
        if batch is None:
            return
        with self._guard:
            query = self._begun(query_id, name)
            query.at_ms = self._clock_ms()
            query.batches += 1
            query.read += batch.read
            query.written = None if batch.written is None or query.written is None else query.written + batch.written
            query.last = batch
            query.left = query.left if batch.left is None else batch.left
            line = self._line(query)
        if line is not None:
            logger.info(line)

    def idled(self, query_id: str) -> None:
        """Note that a query lives, and has nothing to read."""
        with self._guard:
            if query_id in self._queries:
                self._queries[query_id].at_ms = self._clock_ms()

    def ended(self, query_id: str, failure: str | None) -> None:
        """Note that a query was stopped, or has failed."""
        with self._guard:
            query = self._queries.get(query_id)
            if query is None:
                return
            query.ended_s, query.at_ms = self._clock_s(), self._clock_ms()
            query.failure = None if failure is None else failure.split("\n", 1)[0][:_MOST_FAILURE_CHARACTERS]
            line = f"query {query.name or query.id} {'ended' if failure is None else f'failed: {query.failure}'}"
        if self._log:
            logger.info(line)

    def _begun(self, query_id: str, name: str | None) -> _Query:
        """The query with this id. A query that ended and was started again goes on. Another query of the same name has
        ended before, so its numbers are dropped."""
        query = self._queries.get(query_id)
        if query is not None:
            query.ended_s = query.failure = None
            return query
        for former in [query.id for query in self._queries.values() if name is not None and query.name == name]:
            del self._queries[former]
        self._forget()
        self._queries[query_id] = _Query(query_id, name, self._clock_ms())
        return self._queries[query_id]

    def _forget(self) -> None:
        """Drop the queries that ended long ago. If there are too many, drop the query that ended first, or began
        first."""
        until_s = self._clock_s() - FORGET_AFTER_S
        for query in [
            query for query in self._queries.values() if query.ended_s is not None and query.ended_s < until_s
        ]:
            del self._queries[query.id]
        while len(self._queries) > MOST_QUERIES:
            oldest = min(
                self._queries.values(), key=lambda query: float("inf") if query.ended_s is None else query.ended_s
            )
            del self._queries[oldest.id]

    def _line(self, query: _Query) -> str | None:
        """The log line of a query, or None if it was logged just now."""
        if not self._log or self._clock_s() < query.logged_s + LOG_EVERY_S or query.left is None:
            return None
        query.logged_s = self._clock_s()
        return in_one_line(query.behind(self._clock_ms()))


def in_one_line(query: QueryBehind) -> str:
    """The numbers of a query in one line, for people."""
    behind = [f"{topic.topic} {topic.records:,}" for topic in query.topics if topic.records]
    most = ", ".join(behind[:5]) + (f" and {len(behind) - 5} more topics" if len(behind) > 5 else "")
    size = "bytes not known yet" if query.bytes is None else f"{query.bytes:,} bytes"
    age = "seconds not known yet" if query.seconds is None else f"{query.seconds:.1f} s"
    where = f"{query.records:,} records behind, {size}, {age} ({most})" if behind else "nothing behind"
    batch = f"batch {query.batch_id} took {query.batch_seconds:.1f} s"
    return f"query {query.label}: {where}; {batch}, {query.records_read:,} records read so far"


class QueryListener(StreamingQueryListener):
    """Passes Spark's events to the ledger. An error is a warning, once for each kind of error."""

    def __init__(self, ledger: QueryLedger) -> None:
        self._ledger = ledger
        self._warned: set[type[Exception]] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names, here and below
        """Does nothing, because Spark waits for it. The ledger knows a query from its first progress."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        self._safely(lambda: self._ledger.progressed(str(progress.id), progress.name, progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        self._safely(lambda: self._ledger.idled(str(event.id)))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._safely(lambda: self._ledger.ended(str(event.id), event.exception))

    def _safely(self, take: Callable[[], None]) -> None:
        try:
            take()
        except Exception as error:  # no query may depend on an error of the observation
            if type(error) not in self._warned:
                self._warned.add(type(error))
                kind = type(error).__name__
                logger.warning("the observation does not understand a query's progress: %s: %s", kind, error)
