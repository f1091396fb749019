"""What a scrub costs a producer beside it: `python -m benchmarks.scrub`.

Three brokers on this machine hold old records, which nobody reads. A client sends records at a rate and measures each
from `send` to its acknowledgement by all of the ISR. Turns with a scrub that never rests and turns without one follow
each other; `minilog broker alter` switches between them. Before each turn the old records leave the page cache, so
that a scrub reads the disk. A turn with a scrub that reads nothing is an error.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import tempfile
import time
import urllib.request

import pyarrow as pa

from benchmarks.accounting import cpu_s, settle
from benchmarks.clients.sending import Sending
from benchmarks.clients.values import quantiles_ms, values
from benchmarks.figures import spread
from benchmarks.processes import free_ports
from benchmarks.systems.minilog import MinilogCluster
from minilog import Admin, NewTopic, Producer

PARTITIONS, BROKERS = 3, 3
OLD_RECORD_BYTES = 1_024
SEGMENT_BYTES = 32 << 20
_INTERVAL, _RATE = "log.scrub.interval.ms", "log.scrub.max.bytes.per.second"
_SETTLE_S = 1.0  # also for the range that is under way when a scrub ends
_READ_BYTES = re.compile(r"^minilog_scrub_read_bytes_total (\S+)$", re.MULTILINE)


class Bench:
    """The cluster with its old records."""

    def __init__(self, directory: pathlib.Path, chosen: argparse.Namespace) -> None:
        self._chosen = chosen
        self._directory = directory
        self._http_ports = free_ports(BROKERS)
        arguments = {number: ("--http", f"127.0.0.1:{port}") for number, port in enumerate(self._http_ports, start=1)}
        self.cluster = MinilogCluster(directory, {_INTERVAL: "0"}, BROKERS, arguments=arguments)
        self.cluster.create("fresh", PARTITIONS)

    def write_old(self) -> None:
        records = max(1, self._chosen.batch_bytes // OLD_RECORD_BYTES)
        batch = pa.RecordBatch.from_arrays([pa.array(values(records, OLD_RECORD_BYTES), pa.binary())], ["value"])
        settings = {"bootstrap.servers": self.cluster.servers}
        with Admin(settings) as admin:
            admin.create_topics([NewTopic("old", PARTITIONS, 3, configs={"segment.bytes": str(SEGMENT_BYTES)})])
        with Producer(settings) as producer:
            for number in range(self._chosen.old_mb * 1_000_000 // (records * OLD_RECORD_BYTES)):
                producer.send_batch("old", batch, partition=number % PARTITIONS)
            producer.flush()

    def forget_old(self) -> None:
        """Let the old records leave the page cache."""
        settle()
        for path in self._directory.glob("broker-*/old-*/*.log"):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def scrub(self, *, on: bool) -> None:
        with Admin({"bootstrap.servers": self.cluster.servers}) as admin:
            admin.alter_broker_settings(
                None, set_configs={_INTERVAL: "1" if on else "0", _RATE: str(self._chosen.scrub_rate)}
            )
        time.sleep(_SETTLE_S)

    def read_bytes(self) -> float:
        """What all brokers have read for scrubs."""
        total = 0.0
        for port in self._http_ports:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                (figure,) = _READ_BYTES.findall(answer.read().decode())
            total += float(figure)
        return total

    def turns(self) -> dict[bool, list[dict[str, float]]]:
        """Turns without and with a scrub, under one producer that never rests."""
        found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        sending = Sending(self.cluster.servers, "fresh", self._chosen.rate)
        sending.start()
        try:
            for number in range(-1, self._chosen.turns):
                for on in found:
                    figures = self._turn(sending, on=on)
                    if number >= 0:  # the first two warm up
                        found[on].append(figures)
        finally:
            sending.end()
        return found

    def _turn(self, sending: Sending, *, on: bool) -> dict[str, float]:
        self.forget_old()
        self.scrub(on=on)
        began_s, cpu_before_s, bytes_before = time.monotonic(), self._cpu_s(), self.read_bytes()
        sending.taken()
        time.sleep(self._chosen.seconds)
        figures = quantiles_ms(sending.taken())
        seconds = time.monotonic() - began_s
        figures["cpu"] = (self._cpu_s() - cpu_before_s) / seconds * 100
        figures["MiB/s"] = (self.read_bytes() - bytes_before) / seconds / BROKERS / (1 << 20)
        shown = ", ".join(f"{name} {figures[name]:.2f}" for name in ("p50", "p99", "max", "cpu", "MiB/s"))
        print(f"{'with' if on else 'without'}: {shown}", flush=True)
        if on and not figures["MiB/s"]:
            raise SystemExit("the scrub has read nothing")
        return figures

    def _cpu_s(self) -> float:
        return sum(map(cpu_s, self.cluster.pids.values()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scrub", description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn")
    parser.add_argument("--rate", type=float, default=200.0, help="records a second")
    parser.add_argument("--scrub-rate", type=int, default=4 << 20, help=f"{_RATE}, of each broker")
    parser.add_argument("--batch-bytes", type=int, default=1_000_000, help="of the old records")
    parser.add_argument("--directory", type=pathlib.Path, help="of the data; by default that of temporary files")
    parser.add_argument("--old-mb", type=int, default=600)
    return parser.parse_args()


def main() -> None:
    chosen = parse()
    with tempfile.TemporaryDirectory(prefix="minilog-scrub-", dir=chosen.directory) as folder:
        bench = Bench(pathlib.Path(folder), chosen)
        try:
            bench.write_old()
            runs = bench.turns()
        finally:
            bench.cluster.end()
    for name in ("p50", "p99", "cpu"):
        without, beside = ([figures[name] for figures in runs[on]] for on in (False, True))
        ratios = [ours / theirs for ours, theirs in zip(beside, without, strict=True)]
        print(f"{name}: without {spread(without, 2)}, with {spread(beside, 2)}, ratio turn by turn {spread(ratios, 2)}")


if __name__ == "__main__":
    main()
