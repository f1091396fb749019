"""T2: one consumer, from the beginning to the end, into Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.arena import Arena, rate_run
from benchmarks.figures import Better, Run, Target
from benchmarks.processes import run, run_client
from benchmarks.systems import System
from benchmarks.systems.kafka import CLIENT
from benchmarks.workloads import Turn, Workload, check_records
from benchmarks.workloads.produce import PARTITIONS, perf_tool


def _read(arena: Arena, system: System, record_bytes: int, wanted: int, work: Callable[[], dict[str, Any]]) -> Run:
    found = dict[str, Any]()

    def timed() -> float:
        found.update(work())
        return float(found["seconds"])

    cost = arena.measure(system, timed)
    check_records(found["records"], wanted, system.name)
    megabytes = found["records"] * record_bytes / 1e6
    return rate_run(cost, found["records"], record_bytes, megabytes / found["seconds"])


def _minilog(record_bytes: int, records: int, kind: str) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        cluster, topic = arena.minilog, arena.name("consume")
        cluster.create(topic, PARTITIONS)
        run_client("minilog_client", cluster.servers, kind, topic, PARTITIONS, records, record_bytes)
        wanted = cluster.count(topic, PARTITIONS)
        asked = (cluster.servers, "consume", topic, PARTITIONS, records, record_bytes)
        return lambda _: _read(arena, cluster, record_bytes, wanted, lambda: run_client("minilog_client", *asked))

    return prepare


def _kafka(record_bytes: int, records: int, *, is_confluent: bool, is_tuned: bool = True) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        cluster, topic = arena.kafka, arena.name("consume")
        cluster.create(topic, PARTITIONS, is_synced=False)
        perf_tool(arena, cluster, topic, records, record_bytes, is_tuned=is_tuned)
        wanted = cluster.count(topic, PARTITIONS)
        asked = (cluster.servers, "consume", topic, PARTITIONS, records, record_bytes)

        def perf() -> dict[str, Any]:
            command = [*CLIENT, "-cp", cluster.class_path, "org.apache.kafka.tools.ConsumerPerformance"]
            command += ["--bootstrap-server", cluster.servers, "--topic", topic, "--num-records", str(wanted)]
            command += cluster.command_config()
            head, row = [line for line in run(command).splitlines() if line.count(",") >= 8][-2:]
            fields = dict(zip(map(str.strip, head.split(",")), map(str.strip, row.split(",")), strict=True))
            return {"records": int(fields["data.consumed.in.nMsg"]), "seconds": float(fields["fetch.time.ms"]) / 1e3}

        work = (lambda: run_client("confluent_client", *asked)) if is_confluent else perf
        return lambda _: _read(arena, cluster, record_bytes, wanted, work)

    return prepare


def consume(target: str, record_bytes: int, aim: float, *, kind: str = "arrow", megabytes: int = 400) -> Workload:
    """`kind`: what the topic was written with. The peer of what `send` wrote is what Kafka's producer wrote as it
    comes."""
    records = megabytes * 1_000_000 // record_bytes
    is_tuned = kind == "arrow"
    contestants = {
        "minilog": _minilog(record_bytes, records, kind),
        "kafka": _kafka(record_bytes, records, is_confluent=False, is_tuned=is_tuned),
        "confluent": _kafka(record_bytes, records, is_confluent=True, is_tuned=is_tuned),
    }
    title = f"consume into Arrow, {record_bytes} B" + ("" if is_tuned else ", what `send` wrote")
    return Workload(Target(target, title, "MB/s", Better.HIGHER, aim), "minilog", "kafka", contestants)
