"""T19, the cleaner: `python -m benchmarks.compaction`, and with `--kafka` Kafka's cleaner after it.

A broker has a keyed topic that nobody cleans, and takes records of random keys. Then its cleaner may work. The figures
are of the time until all segments but the active one are clean: dirty bytes for each second of the broker's CPU, and
the latency of a producer to another topic, before and meanwhile. Both topics have one partition with one copy. Each
record of the producer is synced before its acknowledgement.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import tempfile
import time
import urllib.request
from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from benchmarks import artifacts
from benchmarks.__main__ import PEERS
from benchmarks.accounting import cpu_s, settle, touch_memory
from benchmarks.clients.sending import KafkaSending, Sending, SendingAtARate
from benchmarks.clients.values import quantiles_ms
from benchmarks.processes import free_ports, wait_until
from benchmarks.systems.kafka import KafkaCluster
from benchmarks.systems.minilog import MinilogCluster
from minilog import Admin, NewTopic, Producer

TOPIC, FRESH = "keyed", "fresh"
BATCH_ROWS = 10_000
SEGMENT_BYTES = 64 << 20
_WITHIN_S = 900.0
_TOUCHED_GIB = 2.0
_ENABLE = "log.cleaner.enable"
_CLEANED = "a copy is compacted"
_USED_BYTES = re.compile(r"^minilog_log_cleaner_used_bytes_total (\S+)$", re.MULTILINE)
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class Records:
    """Batches of uniformly random keys and values, the same for both sides."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._chance = np.random.default_rng(1)
        self._keys, self._record_bytes = chosen.keys, chosen.record_bytes
        self.batch_count = chosen.mb * 1_000_000 // chosen.record_bytes // BATCH_ROWS

    def batch(self) -> pa.RecordBatch:
        keys = pa.array(self._chance.integers(0, self._keys, BATCH_ROWS)).cast(pa.string()).cast(pa.binary())
        size = self._record_bytes
        content = self._chance.integers(97, 123, BATCH_ROWS * size, dtype=np.uint8).tobytes()
        values = pa.array([content[at * size : (at + 1) * size] for at in range(BATCH_ROWS)], pa.binary())
        return pa.RecordBatch.from_arrays([keys, values], ["key", "value"])


class Side(Protocol):
    """A broker with its keyed topic."""

    name: str

    @property
    def pid(self) -> int:
        """The process of the broker that has both topics."""

    def write(self, records: Records) -> None:
        """Write all records."""

    def sending(self, rate: float) -> SendingAtARate:
        """A producer of so many records a second."""

    def let_clean(self) -> None:
        """Let the cleaner work."""

    def is_clean(self) -> bool:
        """Whether all but the active segment is clean."""

    def log_folder(self) -> pathlib.Path:
        """The folder of the keyed topic's log."""

    def end(self) -> None:
        """End all processes."""


class MinilogSide:
    """One broker, whose cleaner is off at first."""

    name = "minilog"

    def __init__(self, directory: pathlib.Path, chosen: argparse.Namespace) -> None:
        self._compression = chosen.compression
        self._directory = directory
        (self._http_port,) = free_ports(1)
        settings = {
            _ENABLE: "false",
            "log.cleaner.backoff.ms": "100",
            "log.cleaner.io.max.bytes.per.second": str(chosen.rate_mb << 20),
            "log.cleaner.dedupe.buffer.size": str(chosen.buffer_mb << 20),
        }
        arguments = {1: ("--http", f"127.0.0.1:{self._http_port}")}
        self._cluster = MinilogCluster(directory, settings, 1, arguments=arguments)

    @property
    def pid(self) -> int:
        (pid,) = self._cluster.pids.values()
        return pid

    def write(self, records: Records) -> None:
        settings = {"bootstrap.servers": self._cluster.servers, "compression.type": self._compression}
        configs = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
        with Admin(settings) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1, configs=configs), NewTopic(FRESH, 1, 1)])
        with Producer(settings) as producer:
            for _ in range(records.batch_count):
                producer.send_batch(TOPIC, records.batch(), partition=0)
            producer.flush()

    def sending(self, rate: float) -> SendingAtARate:
        return Sending(self._cluster.servers, FRESH, rate)

    def let_clean(self) -> None:
        with Admin({"bootstrap.servers": self._cluster.servers}) as admin:
            admin.alter_broker_settings(None, set_configs={_ENABLE: "true"})

    def is_clean(self) -> bool:
        """As the broker logs it. To ask it for its metrics 20 times a second would cost a third of its event loop, and
        each answer holds up the producer."""
        return any(_CLEANED in path.read_text() for path in self._directory.glob("*.log"))

    def log_folder(self) -> pathlib.Path:
        (folder,) = self._directory.glob(f"broker-*/{TOPIC}-0")
        return folder

    def used_bytes(self) -> float:
        """The bytes that the cleaner has read and written."""
        return self._metric(_USED_BYTES)

    def _metric(self, name: re.Pattern[str]) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/metrics", timeout=10) as answer:
            (figure,) = name.findall(answer.read().decode())
        return float(figure)

    def end(self) -> None:
        self._cluster.end()


class KafkaSide:
    """Three nodes. One of them has both topics. `let_clean` makes the keyed topic a compacted one."""

    name = "kafka"

    def __init__(self, directory: pathlib.Path, chosen: argparse.Namespace) -> None:
        self._compression = chosen.compression
        self._directory = directory
        cleaner = {
            "log.cleaner.backoff.ms": 100,
            "log.cleaner.dedupe.buffer.size": chosen.buffer_mb << 20,
        }
        self._cluster = KafkaCluster(directory, artifacts.kafka_jars(chosen.peers), more_settings=cleaner)

    @property
    def pid(self) -> int:
        return self._cluster.pids[f"broker {self._cluster.leader(TOPIC)}"]

    def write(self, records: Records) -> None:
        from confluent_kafka import Producer as KafkaProducer

        configs = {"segment.bytes": str(SEGMENT_BYTES), "cleanup.policy": "delete"}
        node = self._cluster.create_single(TOPIC, configs)
        self._cluster.create_single(FRESH, {"flush.messages": "1"}, node)
        producer = KafkaProducer(
            {
                "bootstrap.servers": self._cluster.servers,
                "compression.type": self._compression,
                "linger.ms": 5,
                "batch.size": 1_000_000,
            }
        )
        for _ in range(records.batch_count):
            batch = records.batch()
            for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
                producer.produce(TOPIC, value, key, 0)
            producer.flush()

    def sending(self, rate: float) -> SendingAtARate:
        return KafkaSending(self._cluster.servers, FRESH, rate)

    def let_clean(self) -> None:
        self._cluster.alter(TOPIC, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})

    def is_clean(self) -> bool:
        active = max(int(path.stem) for path in self.log_folder().glob("*.log"))
        checkpoint = self.log_folder().parent / "cleaner-offset-checkpoint"
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        ends = [int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} 0 ")]
        return ends == [active]

    def log_folder(self) -> pathlib.Path:
        (folder,) = self._directory.glob(f"node-*/{TOPIC}-0")
        return folder

    def end(self) -> None:
        self._cluster.end()


def clean(side: Side, chosen: argparse.Namespace) -> None:
    """Let the cleaner of one side work, and print the figures."""
    settle()
    sending = side.sending(chosen.produce_rate)
    sending.start()
    time.sleep(chosen.warm_s)
    sending.taken()
    time.sleep(chosen.warm_s)
    before, size_before, pid = quantiles_ms(sending.taken()), _size_bytes(side), side.pid
    began_s, cpu_before_s = time.monotonic(), cpu_s(pid)
    side.let_clean()
    wait_until(side.is_clean, f"the cleaning by {side.name}", _WITHIN_S)
    seconds, cpu = time.monotonic() - began_s, cpu_s(pid) - cpu_before_s
    meanwhile = quantiles_ms(sending.taken())
    sending.end()
    peak = int(_PEAK.findall(pathlib.Path(f"/proc/{pid}/status").read_text())[0]) / 1024
    dirty_mb = (size_before - SEGMENT_BYTES / 2) / 1e6  # the active segment is not cleaned: half of one by the mean
    moved = f", {side.used_bytes() / seconds / 1e6:.0f} MB/s read and written" if isinstance(side, MinilogSide) else ""
    print(
        f"{side.name}: {size_before / 1e6:.0f} MB became {_size_bytes(side) / 1e6:.0f} MB in {seconds:.1f} s, "
        f"{cpu:.1f} s of CPU: {dirty_mb / cpu:.0f} MB of dirty bytes for each second of CPU, "
        f"{dirty_mb / seconds:.0f} MB for each second{moved}, peak of memory {peak:.0f} MiB",
        flush=True,
    )
    print(f"  produce p99: {before['p99']:.2f} ms before, {meanwhile['p99']:.2f} ms meanwhile", flush=True)


def _size_bytes(side: Side) -> int:
    return sum(path.stat().st_size for path in side.log_folder().glob("*.log"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--mb", type=int, default=5_000, help="of values")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--record-bytes", type=int, default=1_000, help="of a value")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--buffer-mb", type=int, default=128, help="log.cleaner.dedupe.buffer.size")
    parser.add_argument("--rate-mb", type=int, default=4_000, help="log.cleaner.io.max.bytes.per.second of minilog")
    parser.add_argument("--produce-rate", type=float, default=200.0, help="records a second beside it")
    parser.add_argument("--warm-s", type=float, default=5.0)
    parser.add_argument("--kafka", action="store_true", help="Kafka's cleaner, too")
    parser.add_argument("--peers", type=pathlib.Path, default=PEERS, help="where fetched artifacts are kept")
    parser.add_argument("--directory", type=pathlib.Path, help="of the data; by default that of temporary files")
    return parser.parse_args()


def main() -> None:
    chosen = parse()
    sides: list[Callable[[pathlib.Path, argparse.Namespace], Side]] = [MinilogSide]
    if chosen.kafka:
        sides.append(KafkaSide)
    touch_memory(_TOUCHED_GIB)
    for make in sides:
        with tempfile.TemporaryDirectory(prefix="minilog-clean-", dir=chosen.directory) as folder:
            side = make(pathlib.Path(folder), chosen)
            try:
                side.write(Records(chosen))
                clean(side, chosen)
            finally:
                side.end()


if __name__ == "__main__":
    main()
