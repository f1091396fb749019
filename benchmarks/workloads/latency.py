"""T6: one record at a time at a rate, from `send` to its acknowledgement by all of the ISR."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.arena import Arena, rate_run
from benchmarks.figures import Better, Run, Target
from benchmarks.processes import run_client
from benchmarks.systems import System
from benchmarks.workloads import Detail, Turn, Workload

PARTITIONS = 3
RECORD_BYTES = 100
SECONDS = 10


def _turn(arena: Arena, system: System, module: str, rate: int, settings: tuple[str, ...], *, is_synced: bool) -> Turn:
    topic = arena.name("latency")
    system.create(topic, PARTITIONS, is_synced=is_synced)

    def turn(_: int) -> Run:
        found = dict[str, float]()

        def work() -> None:
            asked = (system.servers, "latency", topic, PARTITIONS, rate * SECONDS, RECORD_BYTES, rate, *settings)
            found.update(run_client(module, *asked))

        cost = arena.measure(system, work)
        return rate_run(cost, found["records"], RECORD_BYTES, found["p50"], p99=found["p99"], worst=found["max"])

    return turn


def _minilog(rate: int) -> Callable[[Arena], Turn]:
    return lambda arena: _turn(arena, arena.minilog, "minilog_client", rate, (), is_synced=True)


def _kafka(rate: int, *settings: str, is_synced: bool) -> Callable[[Arena], Turn]:
    return lambda arena: _turn(arena, arena.kafka, "confluent_client", rate, settings, is_synced=is_synced)


def latency(rate: int) -> Workload:
    """Kafka waits for 5 ms for more records (librdkafka's linger.ms), unless it is told not to."""
    contestants = {
        "minilog": _minilog(rate),
        "kafka, synced": _kafka(rate, is_synced=True),
        "kafka, not synced": _kafka(rate, is_synced=False),
        "kafka, synced, linger.ms=0": _kafka(rate, "linger.ms=0", is_synced=True),
    }
    target = f"T6-{rate}"
    p99 = Detail(Target(f"{target}-p99", f"latency at {rate} records/s, p99", "ms", Better.LOWER, 0.33), "p99")
    title = f"latency at {rate} records/s, p50"
    return Workload(
        Target(target, title, "ms", Better.LOWER, 0.5), "minilog", "kafka, synced", contestants, details=(p99,)
    )
