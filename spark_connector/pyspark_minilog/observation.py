"""`observe(spark)`: how far each streaming query is behind, as log lines, as metrics, and to be asked for.

A listener of Spark's: it hears of each micro-batch when that has ended, on Spark's thread for listeners, which no query
waits for. All that it needs is in the progress that Spark hands it (behind.py): it asks no broker, keeps a few numbers
for each query, and what goes wrong in it is a warning, once for each kind.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_minilog.behind import Batch, Left, QueryBehind, batch_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from pyspark_minilog.observed_metrics import QueryMetrics

logger = logging.getLogger(__name__)

LOG_EVERY_S = 10.0  # of one query; a batch may take a tenth of a second
FORGET_AFTER_S = 600.0  # of its end: long enough for whoever asks now and then
MOST_QUERIES = 1_000  # a driver that starts queries without end does not keep them all; the one that ended first goes
_MOST_FAILURE_CHARACTERS = 500


def observe(spark: SparkSession, registry: CollectorRegistry | None = None, log: bool = True) -> Observation:
    """Observe all streaming queries of a session with a source of minilog, from now on, until `stop`.

    `registry`: a Prometheus registry that is given the numbers as metrics (observed_metrics.py has their names).
    `log`: a line at level INFO for a query that made progress, every ten seconds at most. Raises ValueError where the
    registry has another observer already.
    """
    observation = Observation(spark, registry, QueryLedger(log=log))
    observation.begin()
    return observation


class Observation:
    """What is known of a session's queries. Made by `observe`."""

    def __init__(self, spark: SparkSession, registry: CollectorRegistry | None, ledger: QueryLedger) -> None:
        self._spark = spark
        self._registry = registry
        self._ledger = ledger
        self._listener = QueryListener(ledger)
        self._collector = None if registry is None else _collector(ledger)
        self._guard = threading.Lock()
        self._runs = False

    def queries(self) -> tuple[QueryBehind, ...]:
        """The latest numbers of each query that made progress since it is observed; of those that ended, for ten
        minutes. Kept after `stop`, as they were then."""
        return self._ledger.queries()

    def begin(self) -> None:
        """Listen. Raises ValueError where the registry has these metrics already."""
        if self._registry is not None and self._collector is not None:
            self._registry.register(self._collector)
        self._spark.streams.addListener(self._listener)
        self._runs = True

    def stop(self) -> None:
        """Listen no longer, and take the metrics out of the registry. Idempotent."""
        with self._guard:
            if not self._runs:
                return
            self._runs = False
        if self._registry is not None and self._collector is not None:
            self._registry.unregister(self._collector)
        self._spark.streams.removeListener(self._listener)


def _collector(ledger: QueryLedger) -> QueryMetrics:
    from pyspark_minilog.observed_metrics import QueryMetrics

    return QueryMetrics(ledger.queries)


@dataclass(slots=True)
class _Query:
    """What is kept of one query."""

    id: str
    name: str | None
    at_ms: int
    batches: int = 0
    read: int = 0
    written: int | None = 0
    last: Batch | None = None
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
    """The numbers of all queries, by their ids. `clock_ms` is the time of day, `clock_s` goes forward only."""

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
        """Those that are known now, those with progress, in the order in which they began."""
        with self._guard:
            self._forget()
            now_ms = self._clock_ms()
            return tuple(query.behind(now_ms) for query in self._queries.values() if query.left is not None)

    def progressed(self, query_id: str, name: str | None, progress: str) -> None:
        """A batch of a query has ended. Raises what `batch_of` raises."""
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
        """A query lives, and has nothing to read."""
        with self._guard:
            if query_id in self._queries:
                self._queries[query_id].at_ms = self._clock_ms()

    def ended(self, query_id: str, failure: str | None) -> None:
        """A query was stopped, or has failed."""
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
        """The query of this id; one that ended and was started again goes on. Another one of the same name has ended
        by then, and leaves its name to this one."""
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
        """Those that ended long ago; of too many the one that ended first, or began first."""
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
        """What is logged of a query, unless that was done just now."""
        if not self._log or self._clock_s() < query.logged_s + LOG_EVERY_S or query.left is None:
            return None
        query.logged_s = self._clock_s()
        return in_one_line(query.behind(self._clock_ms()))


def in_one_line(query: QueryBehind) -> str:
    """A query in one line, for people."""
    behind = [f"{topic.topic} {topic.records:,}" for topic in query.topics if topic.records]
    most = ", ".join(behind[:5]) + (f" and {len(behind) - 5} more topics" if len(behind) > 5 else "")
    size = "bytes not known yet" if query.bytes is None else f"{query.bytes:,} bytes"
    age = "seconds not known yet" if query.seconds is None else f"{query.seconds:.1f} s"
    where = f"{query.records:,} records behind, {size}, {age} ({most})" if behind else "nothing behind"
    batch = f"batch {query.batch_id} took {query.batch_seconds:.1f} s"
    return f"query {query.label}: {where}; {batch}, {query.records_read:,} records read so far"


class QueryListener(StreamingQueryListener):
    """Tells the ledger what Spark tells. Whatever goes wrong is a warning, once for each kind of error."""

    def __init__(self, ledger: QueryLedger) -> None:
        self._ledger = ledger
        self._warned: set[type[Exception]] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names, here and below
        """Nothing: Spark waits for it, and a query is known by its first progress."""

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
        except Exception as error:  # whatever it is, no query may depend on it
            if type(error) not in self._warned:
                self._warned.add(type(error))
                kind = type(error).__name__
                logger.warning("the observation does not understand a query's progress: %s: %s", kind, error)
