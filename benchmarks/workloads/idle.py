"""T8: what a cluster costs that has nothing to do: memory, and CPU with 1 and with 300 partitions."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.accounting import resident_bytes
from benchmarks.arena import Arena
from benchmarks.figures import Better, Run, Target
from benchmarks.systems import System
from benchmarks.workloads import Detail, Turn, Workload

WATCHED_S = 20.0


def _contestant(find: Callable[[Arena], System], partitions: int) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        system = find(arena)
        system.create(arena.name("idle"), partitions, is_synced=True)

        def turn(_: int) -> Run:
            cost = arena.measure(system, lambda: time.sleep(WATCHED_S))
            brokers_s = cost.total_cpu_s - cost.cpu_s["clients"]
            megabytes = sum(resident_bytes(pid) for pid in system.pids.values()) / 1e6
            return Run(brokers_s / WATCHED_S * 100, cost, details={"megabytes": megabytes})

        return turn

    return prepare


def idle(partitions: int, aim: float) -> Workload:
    """To be run with fewer partitions first: topics stay."""
    contestants = {
        "minilog": _contestant(lambda arena: arena.minilog, partitions),
        "kafka": _contestant(lambda arena: arena.kafka, partitions),
    }
    target = f"T8-{partitions}"
    memory = Detail(Target(f"{target}-memory", "memory of the brokers", "MB", Better.LOWER, 0.33), "megabytes")
    title = f"CPU of an idle cluster, {partitions} partitions"
    return Workload(
        Target(target, title, "% of a core", Better.LOWER, aim),
        "minilog",
        "kafka",
        contestants,
        runs=3,
        details=(memory,),
    )
