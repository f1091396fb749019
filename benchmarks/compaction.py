"""T19, the cleaner: `python -m benchmarks.compaction`.

One broker has a compacted topic whose cleaner rests, and takes records of random keys. Then the cleaner may work. The
figures are of the time until it has carried out its point: dirty bytes for each second of the broker's CPU, and the
latency of a producer to another topic, before and meanwhile.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import tempfile
import time
import urllib.request
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from benchmarks.accounting import cpu_s
from benchmarks.clients.values import quantiles_ms
from benchmarks.processes import free_ports
from benchmarks.scrub import Sending
from benchmarks.systems.minilog import MinilogCluster
from minilog import Admin, NewTopic, Producer

TOPIC = "keyed"
BATCH_ROWS = 10_000
SEGMENT_BYTES = 64 << 20
_ENABLE = "log.cleaner.enable"
_CLEANINGS = re.compile(r"^minilog_log_cleaner_cleanings_total (\S+)$", re.MULTILINE)
_USED_BYTES = re.compile(r"^minilog_log_cleaner_used_bytes_total (\S+)$", re.MULTILINE)
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class Bench:
    """The broker with its records."""

    def __init__(self, directory: pathlib.Path, chosen: argparse.Namespace) -> None:
        self._chosen = chosen
        self._directory = directory
        (self._http_port,) = free_ports(1)
        settings = {
            _ENABLE: "false",
            "log.cleaner.backoff.ms": "100",
            "log.cleaner.io.max.bytes.per.second": str(chosen.rate_mb << 20),
            "log.cleaner.dedupe.buffer.size": str(chosen.buffer_mb << 20),
        }
        arguments = {1: ("--http", f"127.0.0.1:{self._http_port}")}
        self.cluster = MinilogCluster(directory, settings, 1, arguments=arguments)

    def write(self) -> None:
        """Records of uniformly random keys."""
        chance = np.random.default_rng(1)
        settings = {"bootstrap.servers": self.cluster.servers, "compression.type": self._chosen.compression}
        configs = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
        with Admin(settings) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1, configs=configs), NewTopic("fresh", 1, 1)])
        rows = self._chosen.mb * 1_000_000 // self._chosen.record_bytes
        with Producer(settings) as producer:
            for _ in range(rows // BATCH_ROWS):
                producer.send_batch(TOPIC, self._batch(chance), partition=0)
            producer.flush()

    def _batch(self, chance: np.random.Generator) -> pa.RecordBatch:
        keys = pa.array(chance.integers(0, self._chosen.keys, BATCH_ROWS)).cast(pa.string()).cast(pa.binary())
        content = chance.integers(97, 123, BATCH_ROWS * self._chosen.record_bytes, dtype=np.uint8).tobytes()
        size = self._chosen.record_bytes
        values = pa.array([content[at * size : (at + 1) * size] for at in range(BATCH_ROWS)], pa.binary())
        return pa.RecordBatch.from_arrays([keys, values], ["key", "value"])

    def clean(self) -> None:
        """Let the cleaner work, and measure."""
        sending = Sending(self.cluster.servers, self._chosen.produce_rate)
        sending.start()
        time.sleep(self._chosen.warm_s)
        sending.taken()
        time.sleep(self._chosen.warm_s)
        before = quantiles_ms(sending.taken())
        size_before, (pid,) = self._size_bytes(), self.cluster.pids.values()
        with Admin({"bootstrap.servers": self.cluster.servers}) as admin:
            admin.alter_broker_settings(None, set_configs={_ENABLE: "true"})
            began_s, cpu_before_s = time.monotonic(), cpu_s(pid)
            _until(lambda: self._metric(_CLEANINGS) >= 1)
            seconds, cpu = time.monotonic() - began_s, cpu_s(pid) - cpu_before_s
        meanwhile = quantiles_ms(sending.taken())
        sending.end()
        peak = int(_PEAK.findall(pathlib.Path(f"/proc/{pid}/status").read_text())[0]) / 1024
        dirty_mb = (size_before - SEGMENT_BYTES / 2) / 1e6  # the active segment is not cleaned: half of one by the mean
        print(
            f"{size_before / 1e6:.0f} MB became {self._size_bytes() / 1e6:.0f} MB in {seconds:.1f} s, "
            f"{cpu:.1f} s of CPU: {dirty_mb / cpu:.0f} MB of dirty bytes for each second of CPU, "
            f"{self._metric(_USED_BYTES) / seconds / 1e6:.0f} MB/s read and written, peak of memory {peak:.0f} MiB"
        )
        print(f"produce p99: {before['p99']:.2f} ms before, {meanwhile['p99']:.2f} ms meanwhile")

    def _size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._directory.glob(f"broker-*/{TOPIC}-0/*.log"))

    def _metric(self, name: re.Pattern[str]) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/metrics", timeout=10) as answer:
            (figure,) = name.findall(answer.read().decode())
        return float(figure)


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.2)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--mb", type=int, default=5_000, help="of values")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--record-bytes", type=int, default=1_000, help="of a value")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--buffer-mb", type=int, default=128, help="log.cleaner.dedupe.buffer.size")
    parser.add_argument("--rate-mb", type=int, default=4_000, help="log.cleaner.io.max.bytes.per.second")
    parser.add_argument("--produce-rate", type=float, default=200.0, help="records a second beside it")
    parser.add_argument("--warm-s", type=float, default=5.0)
    parser.add_argument("--directory", type=pathlib.Path, help="of the data; by default that of temporary files")
    return parser.parse_args()


def main() -> None:
    chosen = parse()
    with tempfile.TemporaryDirectory(prefix="minilog-clean-", dir=chosen.directory) as folder:
        bench = Bench(pathlib.Path(folder), chosen)
        try:
            bench.write()
            bench.clean()
        finally:
            bench.cluster.end()


if __name__ == "__main__":
    main()
