"""T9, T12: many partitions against three, and many producers against one; each system against itself.

The figure is a share: what is left of the throughput. `theirs` is Kafka's own share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.arena import Arena
from benchmarks.figures import Better, Run, Target
from benchmarks.processes import run_client
from benchmarks.systems import System
from benchmarks.workloads import Turn, Workload, check_records
from benchmarks.workloads.produce import PARTITIONS, perf_tool

RECORD_BYTES = 1_024
MEGABYTES = 200
_Write = Callable[[str, int, int], dict[str, Any]]
"""Topic, partitions, producers: what a client says."""


def _minilog(arena: Arena, *, of_many: bool) -> _Write:
    servers, records = arena.minilog.servers, MEGABYTES * 1_000_000 // RECORD_BYTES

    def write(topic: str, partitions: int, producers: int) -> dict[str, Any]:
        if of_many:
            return run_client("many_producers", "minilog", servers, topic, producers, records, RECORD_BYTES)
        return run_client("minilog_client", servers, "arrow", topic, partitions, records, RECORD_BYTES)

    return write


def _kafka(arena: Arena, *, of_many: bool) -> _Write:
    cluster, records = arena.kafka, MEGABYTES * 1_000_000 // RECORD_BYTES

    def write(topic: str, partitions: int, producers: int) -> dict[str, Any]:
        del partitions
        if of_many:
            return run_client("many_producers", "kafka", cluster.servers, topic, producers, records, RECORD_BYTES)
        found: dict[str, Any] = perf_tool(arena, cluster, topic, records, RECORD_BYTES, is_tuned=True)
        return found

    return write


def _megabytes_per_s(system: System, write: _Write, topic: str, partitions: int, producers: int) -> float:
    system.create(topic, partitions, is_synced=True)
    found = write(topic, partitions, producers)
    check_records(system.count(topic, partitions), found["sent"], f"{topic} of {system.name}")
    system.delete(topic)
    return float(found["records"] * RECORD_BYTES / 1e6 / found["seconds"])


def _share(
    system: System, write: _Write, arena: Arena, few: tuple[int, int], many: tuple[int, int]
) -> Callable[[], dict[str, float]]:
    """Of (partitions, producers)."""

    def work() -> dict[str, float]:
        with_few, with_many = (_megabytes_per_s(system, write, arena.name("scale"), *counts) for counts in (few, many))
        return {"share": with_many / with_few, "few_mb_s": with_few, "many_mb_s": with_many}

    return work


def _contestant(
    find: Callable[[Arena], System], write: Callable[[Arena], _Write], few: tuple[int, int], many: tuple[int, int]
) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        system = find(arena)
        work = _share(system, write(arena), arena, few, many)

        def turn(_: int) -> Run:
            found = dict[str, float]()
            cost = arena.measure(system, lambda: found.update(work()))
            return Run(found.pop("share"), cost, details=found)

        return turn

    return prepare


def partitions(count: int, aim: float | None) -> Workload:
    """T9: all of them get data, from one producer."""
    few, many = (PARTITIONS, 1), (count, 1)
    contestants = {
        "minilog": _contestant(lambda arena: arena.minilog, lambda arena: _minilog(arena, of_many=False), few, many),
        "kafka": _contestant(lambda arena: arena.kafka, lambda arena: _kafka(arena, of_many=False), few, many),
    }
    title = f"produce to {count} partitions, as a share of what {PARTITIONS} take"
    return Workload(Target(f"T9-{count}", title, "share", Better.HIGHER, aim), "minilog", "kafka", contestants, runs=3)


def producers(count: int) -> Workload:
    """T12: in one process, by turns."""
    few, many = (PARTITIONS, 1), (PARTITIONS, count)
    contestants = {
        "minilog": _contestant(lambda arena: arena.minilog, lambda arena: _minilog(arena, of_many=True), few, many),
        "kafka": _contestant(lambda arena: arena.kafka, lambda arena: _kafka(arena, of_many=True), few, many),
    }
    title = f"{count} producers at once, as a share of what one writes"
    return Workload(Target("T12", title, "share", Better.HIGHER, 0.8), "minilog", "kafka", contestants, runs=3)


def _restarted(arena: Arena, system: System, topic: str, partitions_count: int) -> float:
    """All brokers killed and started: until each partition has a leader and all its replicas again."""
    broker_ids = [int(name.rpartition(" ")[2]) for name in system.pids]
    for broker_id in broker_ids:
        system.kill(broker_id)
    started_s = time.monotonic()
    for broker_id in broker_ids:
        system.start(broker_id)
    system.wait_in_sync(topic, partitions_count)
    return time.monotonic() - started_s


def restart(count: int, aim_s: float) -> Workload:
    """T9: the start after all were killed."""

    def contestant(find: Callable[[Arena], System]) -> Callable[[Arena], Turn]:
        def prepare(arena: Arena) -> Turn:
            system, topic = find(arena), arena.name("restart")
            system.create(topic, count, is_synced=True)

            def turn(_: int) -> Run:
                cost = arena.measure(system, lambda: _restarted(arena, system, topic, count))
                return Run(cost.wall_s, cost)

            return turn

        return prepare

    contestants = {"minilog": contestant(lambda arena: arena.minilog), "kafka": contestant(lambda arena: arena.kafka)}
    return Workload(
        Target(
            f"T9-restart-{count}", f"start of three killed brokers with {count} partitions", "s", Better.LOWER, aim_s
        ),
        "minilog",
        "kafka",
        contestants,
        warm_ups=0,
        runs=3,
    )
