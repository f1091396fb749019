"""T1, T1r, T10: one producer, acks=all, three replicas, three partitions; Arrow batches, and record by record."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.arena import Arena, rate_run
from benchmarks.clients.values import values
from benchmarks.figures import Better, Run, Target
from benchmarks.processes import run, run_client
from benchmarks.systems import System
from benchmarks.systems.kafka import CLIENT, TUNED, KafkaCluster
from benchmarks.workloads import Detail, Turn, Workload, check_records

PARTITIONS = 3
BARE_LIMIT_CPU_S_PER_GB = 2.2  # three loopback hops, three synced appends, checksums (docs/spec/performance.md)
WARM_UP_TIMES = 2  # as much: a JVM compiles what it has run for long
_PAYLOADS = 1_000
_RATE = re.compile(r"([\d.]+) records/sec.*99th")


def megabytes_per_s(
    arena: Arena, system: System, work: Callable[[str], dict[str, Any]], record_bytes: int, *, is_synced: bool
) -> Run:
    """Write to a new topic and count what is there. The figure is MB of values a second, without a client's start."""
    topic, found = arena.name("produce"), dict[str, Any]()
    system.create(topic, PARTITIONS, is_synced=is_synced)

    def timed() -> float:
        found.update(work(topic))
        return float(found["seconds"])

    cost = arena.measure(system, timed)
    check_records(system.count(topic, PARTITIONS), found["sent"], f"{topic} of {system.name}")
    system.delete(topic)
    amount_bytes = found["records"] * record_bytes
    limit = cost.total_cpu_s / (amount_bytes / 1e9) / BARE_LIMIT_CPU_S_PER_GB
    return rate_run(
        cost, found["records"], record_bytes, amount_bytes / 1e6 / found["seconds"], over_the_bare_limit=limit
    )


def perf_tool(arena: Arena, kafka: KafkaCluster, topic: str, records: int, record_bytes: int, *, is_tuned: bool) -> Any:
    """Kafka's own: records of 1,000 different values."""
    payloads = arena.directory / f"payloads-{record_bytes}.txt"
    if not payloads.exists():
        payloads.write_text("\n".join(each.hex()[:record_bytes] for each in values(_PAYLOADS, record_bytes)) + "\n")
    properties = {
        "bootstrap.servers": kafka.servers,
        "acks": "all",
        **(TUNED if is_tuned else {}),
    }
    command = [*CLIENT, "-cp", kafka.class_path, "org.apache.kafka.tools.ProducerPerformance", "--topic", topic]
    command += ["--num-records", str(records), "--payload-file", str(payloads), "--throughput", "-1"]
    command += kafka.command_config()
    output = run([*command, "--producer-props", *(f"{name}={value}" for name, value in properties.items())])
    found = _RATE.findall(output)
    return {"records": records, "sent": records, "seconds": records / float(found[-1])}


@dataclass(frozen=True)
class Produce:
    """The contestants for records of one size."""

    record_bytes: int
    megabytes: int

    def _records(self, number: int) -> int:
        times = WARM_UP_TIMES if number < 0 else 1
        return times * self.megabytes * 1_000_000 // self.record_bytes

    def minilog(self, kind: str) -> Callable[[Arena], Turn]:
        def prepare(arena: Arena) -> Turn:
            cluster = arena.minilog

            def work(topic: str, number: int) -> dict[str, Any]:
                records = self._records(number)
                return run_client(
                    "minilog_client", cluster.servers, kind, topic, PARTITIONS, records, self.record_bytes
                )

            return lambda number: megabytes_per_s(
                arena, cluster, lambda topic: work(topic, number), self.record_bytes, is_synced=True
            )

        return prepare

    def kafka(self, *, is_tuned: bool, is_synced: bool, share: float = 1.0) -> Callable[[Arena], Turn]:
        """`share` of the records: small batches that are synced one by one take long."""

        def prepare(arena: Arena) -> Turn:
            cluster = arena.kafka

            def work(topic: str, number: int) -> dict[str, Any]:
                records = int(self._records(number) * share)
                found: dict[str, Any] = perf_tool(arena, cluster, topic, records, self.record_bytes, is_tuned=is_tuned)
                return found

            return lambda number: megabytes_per_s(
                arena, cluster, lambda topic: work(topic, number), self.record_bytes, is_synced=is_synced
            )

        return prepare

    def jetstream(self, arena: Arena) -> Turn:
        """Without partitions; synced every two minutes, as it comes."""
        cluster = arena.jetstream

        def turn(number: int) -> Run:
            found = dict[str, float]()

            def work() -> float:
                found.update(cluster.publish(self._records(number), self.record_bytes))
                return found["seconds"]

            cost = arena.measure(cluster, work)
            check_records(found["sent"], found["records"], cluster.name)
            megabytes = found["records"] * self.record_bytes / 1e6
            limit = cost.total_cpu_s / (megabytes / 1e3) / BARE_LIMIT_CPU_S_PER_GB
            return rate_run(
                cost, found["records"], self.record_bytes, megabytes / found["seconds"], over_the_bare_limit=limit
            )

        return turn

    def confluent(self, *, is_synced: bool) -> Callable[[Arena], Turn]:
        def prepare(arena: Arena) -> Turn:
            cluster = arena.kafka

            def work(topic: str, number: int) -> dict[str, Any]:
                records = self._records(number)
                return run_client(
                    "confluent_client", cluster.servers, "records", topic, PARTITIONS, records, self.record_bytes
                )

            return lambda number: megabytes_per_s(
                arena, cluster, lambda topic: work(topic, number), self.record_bytes, is_synced=is_synced
            )

        return prepare


def batches(target: str, record_bytes: int, aim: float, *, megabytes: int = 300, is_quick: bool = False) -> Workload:
    """T1. Quick: the two that the ratio is of."""
    produce = Produce(record_bytes, megabytes)
    contestants = {
        "minilog": produce.minilog("arrow"),
        "kafka tuned, synced": produce.kafka(is_tuned=True, is_synced=True),
    }
    if not is_quick:
        contestants |= {
            "kafka tuned, not synced": produce.kafka(is_tuned=True, is_synced=False),
            "kafka as it comes, synced": produce.kafka(is_tuned=False, is_synced=True, share=0.04),
            "kafka as it comes, not synced": produce.kafka(is_tuned=False, is_synced=False, share=0.15),
            "jetstream, not synced": produce.jetstream,
        }
    limit = Detail(
        Target(
            f"T10{target.removeprefix('T1')}",
            f"CPU of the produce path, {record_bytes} B, over the bare limit",
            "times",
            Better.LOWER,
            3.6 if record_bytes > 1_000 else None,
        ),
        "over_the_bare_limit",
    )
    title = f"produce, acks=all, Arrow batches, {record_bytes} B records"
    return Workload(
        Target(target, title, "MB/s", Better.HIGHER, aim),
        "minilog",
        "kafka tuned, synced",
        contestants,
        details=(limit,),
    )


def record_by_record(target: str, record_bytes: int, aim: float) -> Workload:
    """T1r."""
    produce = Produce(record_bytes, 60 if record_bytes > 1_000 else 20)
    contestants = {
        "minilog": produce.minilog("records"),
        "confluent, synced": produce.confluent(is_synced=True),
        "confluent, not synced": produce.confluent(is_synced=False),
    }
    title = f"Producer.send record by record, {record_bytes} B"
    return Workload(Target(target, title, "MB/s", Better.HIGHER, aim), "minilog", "confluent, synced", contestants)
