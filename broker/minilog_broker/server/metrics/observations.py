"""The counters that shells add to (runtime/observer.py), in a registry of their own."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

from minilog.partition_key import PartitionKey
from minilog_broker.replication.partition_state import PartitionState
from minilog_broker.server.metrics import names
from minilog_broker.server.metrics.names import Metric
from minilog_broker.server.runtime.observer import CallObserver


class _Call:
    """The children of one kind of call, looked up once."""

    __slots__ = ("received", "sent", "took")

    def __init__(self, duration: Histogram, received: Counter, sent: Counter, kind: str) -> None:
        self.took = duration.labels(kind).observe
        self.received = received.labels(kind).inc
        self.sent = sent.labels(kind).inc


class Observations:
    """An Observer that counts, for the broker `broker_id`."""

    def __init__(self, broker_id: int) -> None:
        self.registry = registry = CollectorRegistry()
        self._broker_id = broker_id
        self._duration = _histogram(names.REQUEST_DURATION_SECONDS, registry)
        self._received = _counter(names.RECEIVED_BYTES, registry)
        self._sent = _counter(names.SENT_BYTES, registry)
        self._appended_bytes = _counter(names.APPENDED_BYTES, registry)
        self._appended_records = _counter(names.APPENDED_RECORDS, registry)
        runs, run_bytes = _counter(names.RUNS_READ, registry), _counter(names.RUN_BYTES_READ, registry)
        self._memory = runs.labels("memory").inc, run_bytes.labels("memory").inc
        self._disk = runs.labels("disk").inc, run_bytes.labels("disk").inc
        self._elections = _counter(names.LEADER_ELECTIONS, registry)
        self._shrinks = _counter(names.ISR_SHRINKS, registry)
        self._expands = _counter(names.ISR_EXPANDS, registry)
        self._unclean = _counter(names.UNCLEAN_ELECTIONS, registry)
        self._controllers = _counter(names.CONTROLLER_CHANGES, registry)
        self.synced = _histogram(names.SYNC_DURATION_SECONDS, registry).observe
        self.loop_was_late = _histogram(names.LOOP_DELAY_SECONDS, registry).observe
        self._calls: dict[str, CallObserver] = {}
        self._last: dict[PartitionKey, PartitionState] = {}  # of the replicas here
        ProcessCollector(registry=registry)  # process_cpu_seconds_total, process_resident_memory_bytes, ...

    def call(self, kind: str) -> CallObserver:
        if kind not in self._calls:
            self._calls[kind] = _Call(self._duration, self._received, self._sent, kind)
        return self._calls[kind]

    def appended(self, size_bytes: int, records: int) -> None:
        self._appended_bytes.inc(size_bytes)
        self._appended_records.inc(records)

    def read_from_memory(self, size_bytes: int) -> None:
        runs, run_bytes = self._memory
        runs()
        run_bytes(size_bytes)

    def read_from_disk(self, size_bytes: int) -> None:
        runs, run_bytes = self._disk
        runs()
        run_bytes(size_bytes)

    def partitions_changed(self, states: Iterable[PartitionState]) -> None:
        for state in states:
            before = self._last.get(state.key)
            self._last[state.key] = state
            if before is not None and state.leader_id == self._broker_id:
                self._compare(before, state)

    def _compare(self, before: PartitionState, state: PartitionState) -> None:
        if before.leader_id != state.leader_id:
            self._elections.inc()
        former, members = set(before.in_sync_replicas), set(state.in_sync_replicas)
        if former - members:
            self._shrinks.inc()
        if members - former:
            self._expands.inc()

    def partitions_removed(self, keys: Iterable[PartitionKey]) -> None:
        for key in keys:
            self._last.pop(key, None)

    def controller_changed(self) -> None:
        self._controllers.inc()

    def unclean_election(self) -> None:
        self._unclean.inc()


def _counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


def _histogram(metric: Metric, registry: CollectorRegistry) -> Histogram:
    return Histogram(metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=registry)
