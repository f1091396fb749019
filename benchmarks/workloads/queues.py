"""T21: a queue that workers share, beside Kafka's share groups and a work queue of NATS JetStream.

The clients of all three are for Python: minilog's, confluent-kafka and nats-py. Each message is accepted by itself. The
messages are not synced. The state of the queue is synced where a system does that by default, as minilog alone does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.arena import Arena, rate_run
from benchmarks.clients.queue_workers import RECORD_BYTES
from benchmarks.figures import Better, Run, Target
from benchmarks.member_hosts import ClientProcess
from benchmarks.processes import run_client
from benchmarks.systems import Running
from benchmarks.workloads import Detail, Turn, Workload, check_records, details_of

PARTITIONS = 4
WORKERS = 4
LIVE_SECONDS = 10
_WATCHED_S = 15.0
_CALM_S = 40.0  # until all wait as long as they do, at most


def _create(arena: Arena, name: str) -> tuple[Running, str]:
    """A system and a topic of its own, or a stream. Raises artifacts.Unavailable."""
    topic = arena.name("queue")
    if name == "jetstream":
        arena.jetstream.create_work_queue(topic)
        return arena.jetstream, topic
    if name == "kafka":
        arena.kafka.create(topic, PARTITIONS, is_synced=False)
        arena.kafka.begin_share_group_at_start(topic)
        return arena.kafka, topic
    arena.minilog.create(topic, PARTITIONS, is_synced=False)
    return arena.minilog, topic


def _backlog(name: str, messages: int, batch: int) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        def turn(_: int) -> Run:
            system, topic = _create(arena, name)
            asked = (name, system.servers, topic, messages, WORKERS, batch, 0)
            run_client("queue_workers", "send", *asked)
            found = dict[str, float]()
            cost = arena.measure(system, lambda: found.update(run_client("queue_workers", "take", *asked)))
            check_records(found["messages"], messages, name)
            brokers_s = cost.total_cpu_s - cost.cpu_s["clients"]
            details = {
                "brokers_ms": brokers_s / messages * 1e6,
                "clients_ms": cost.cpu_s["clients"] / messages * 1e6,
                "again": found["deliveries"] - messages,
            }
            return rate_run(cost, messages, RECORD_BYTES, messages / found["seconds"], **details)

        _create(arena, name)
        return turn

    return prepare


def _live(name: str, rate: int, batch: int) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        def turn(_: int) -> Run:
            system, topic = _create(arena, name)
            asked = ("live", name, system.servers, topic, rate * LIVE_SECONDS, WORKERS, batch, rate)
            found = dict[str, float]()
            cost = arena.measure(system, lambda: found.update(run_client("queue_workers", *asked)))
            check_records(found["messages"], rate * LIVE_SECONDS, name)
            brokers_s = cost.total_cpu_s - cost.cpu_s["clients"]
            return Run(found["p99"], cost, details={"p50": found["p50"], "brokers": brokers_s / cost.wall_s * 100})

        _create(arena, name)
        return turn

    return prepare


_SYSTEMS = ("minilog", "kafka", "jetstream")
_BACKLOG_DETAILS = (
    ("brokers", "CPU of the brokers for 1,000 messages", "ms", "brokers_ms"),
    ("clients", "CPU of the workers for 1,000 messages", "ms", "clients_ms"),
    ("again", "messages that were delivered again", "messages", "again"),
)


def queue_backlog(messages: int, batch: int) -> Workload:
    """How many messages a second workers lease and settle."""
    target = Target("T21", f"{WORKERS} workers of a queue, {batch} messages a lease", "messages/s", Better.HIGHER, None)
    contestants = {name: _backlog(name, messages, batch) for name in _SYSTEMS}
    details = details_of("T21", _BACKLOG_DETAILS)
    return Workload(target, "minilog", "kafka", contestants, warm_ups=0, runs=3, details=details)


def queue_live(rate: int, batch: int) -> Workload:
    """How long a message takes to a worker."""
    target = Target("T21-live", f"send to worker at {rate} messages/s, p99", "ms", Better.LOWER, None)
    contestants = {name: _live(name, rate, batch) for name in _SYSTEMS}
    p50 = Detail(Target("T21-live-p50", "the same, p50", "ms", Better.LOWER, None), "p50")
    brokers = Detail(
        Target("T21-live-brokers", "the same, CPU of the brokers", "% of a core", Better.LOWER, None), "brokers"
    )
    return Workload(target, "minilog", "kafka", contestants, warm_ups=0, runs=3, details=(p50, brokers))


def _idle(workers: int) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        def turn(_: int) -> Run:
            system, topic = _create(arena, "minilog")
            before = arena.measure(system, lambda: time.sleep(_WATCHED_S))
            log = arena.directory / f"{topic}.log"
            process = ClientProcess(log, "queue_workers", "idle", system.name, system.servers, topic, 0, workers, 1, 0)
            try:
                time.sleep(_CALM_S)
                process.check_alive()
                cost = arena.measure(system, lambda: time.sleep(_WATCHED_S))
            finally:
                process.end()
            more = {name: spent_s - before.cpu_s[name] for name, spent_s in cost.cpu_s.items() if name != "clients"}
            return Run(max(more.values()) / _WATCHED_S * 100, cost)

        return turn

    return prepare


def queue_idle(workers: int) -> Workload:
    """The broker that needs most more with the workers than without is their coordinator."""
    title = f"CPU of the coordinator of {workers:,} workers without work"
    target = Target("T21-idle", title, "% of a core", Better.LOWER, None)
    return Workload(target, "minilog", "kafka", {"minilog": _idle(workers)}, warm_ups=0, runs=3)
