"""A well-behaved client beside an attack: what the attack does to its requests, to leadership and to brokers' memory.

An attack is a generator function over a running cluster. What it does up to its first `yield` is preparation and not
measured; then each turn is one blow, struck again until the time is over; `finally` and `with` clean up:

    def many_names(cluster: Cluster) -> Iterator[None]:
        with grpc.insecure_channel(...) as channel:
            request = ...
            yield
            while True:
                stub.GetMetadata(request)
                yield

    def test_many_names(tmp_path):
        unnoticed(tmp_path, many_names, running_cluster)

The client is a process of its own, and sends at a fixed pace whatever became of the requests before (so that one stop
of a broker's loop is felt by all that came into it): records with acks=all to partitions that all brokers lead, and
metadata requests to every broker in turn. `check` wants no error, 99 of 100 requests under 250 ms, and no election:
neither a leader epoch nor the controller's epoch changed. `Report` has the figures.

The bound is for an otherwise quiet machine, and a disk of a machine that is shared may stop for half a second. So the
client's process also syncs a few bytes to the same disk at the same pace (`disk`). `unnoticed` judges a run by `check`
alone; only where it fails and the disk stood still by itself, the run is made again, on a new cluster. An attack that
stops the disk fails each time.

    python -m tests.integration.well_behaved tests.integration.attacks:many_names --seconds 10 [--brokers-of CHECKOUT]

prints them, for brokers of this checkout or of another one (its `broker` and `client` directories are imported).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import math
import multiprocessing
import os
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TypeAlias

import grpc

from minilog import Admin, NewTopic, Producer
from minilog.v1 import metadata_pb2, metadata_pb2_grpc
from tests.cluster import HOST, OF_NOW, Cluster, running_cluster

TOPIC = "well-behaved"
PARTITIONS = 6
PACE_S = 0.02
"""One record and one metadata request in each."""
QUIET_S = 1.5
ATTACK_S = 5.0
ANSWERS_S = 60.0
"""How long the client waits at the end for what is not answered."""
P99_MS = 250.0
QUIET_DISK_MS = 50.0
"""99 of 100 syncs of a few bytes take less where nothing else uses the machine. A record waits for three in a row."""
RUNS = 3
"""How often a run is made again at most, where the machine was not quiet."""
_PRODUCE, _METADATA, _DISK = "produce", "metadata", "disk"

Attack: TypeAlias = Callable[[Cluster], Iterator[None]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One request: when it was sent (time.monotonic is one clock for all processes here), and what became of it."""

    kind: str
    sent_s: float
    took_ms: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of requests of one kind, in milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    worst_ms: float

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Latencies:
        took = sorted(each.took_ms for each in samples)
        if not took:
            return cls(0, math.nan, math.nan, math.nan)
        p50, p99 = (took[min(len(took) - 1, int(share * len(took)))] for share in (0.5, 0.99))
        return cls(len(took), p50, p99, took[-1])

    def __str__(self) -> str:
        return f"{self.p50_ms:.0f} / {self.p99_ms:.0f} / {self.worst_ms:.0f}"


@dataclass(frozen=True, slots=True)
class ElectionEpochs:
    """What an election changes."""

    controller: int
    leaders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes of one broker: before, the most there was during the attack, and after it."""

    before_bytes: int
    peak_bytes: int
    after_bytes: int

    def __str__(self) -> str:
        return " / ".join(f"{each >> 20}" for each in (self.before_bytes, self.peak_bytes, self.after_bytes))


@dataclass(frozen=True, slots=True)
class Report:
    """What the client saw. `quiet` is before the attack; `blows` how often it struck."""

    quiet: Mapping[str, Latencies]
    attacked: Mapping[str, Latencies]
    errors: Sequence[str]
    elections: Sequence[str]
    memory: Mapping[int, Memory]
    blows: int

    @property
    def disk_stood_still(self) -> bool:
        """Was the machine's disk late for a client that has nothing to do with brokers?"""
        return self.attacked[_DISK].p99_ms >= QUIET_DISK_MS

    def check(self, p99_ms: float = P99_MS) -> None:
        """Raise AssertionError unless the client hardly noticed."""
        assert self.blows, "the attack did not strike once"
        assert not self.elections, f"{self.elections}\n{self}"
        assert not self.errors, f"{self.errors[:5]}\n{self}"
        for kind in (_PRODUCE, _METADATA):
            found = self.attacked[kind]
            assert found.count, f"no {kind} request was sent during the attack"
            assert found.p99_ms < p99_ms, f"{kind}: p99 {found.p99_ms:.0f} ms, at most {p99_ms:.0f} are right\n{self}"

    def __str__(self) -> str:
        lines = [f"{self.blows} blows; p50 / p99 / worst in ms"]
        kinds = (_PRODUCE, _METADATA, _DISK)
        lines += [f"  {kind:9} quiet {self.quiet[kind]}   attacked {self.attacked[kind]}" for kind in kinds]
        lines += [f"  broker {each}: {memory} MiB before / peak / after" for each, memory in self.memory.items()]
        lines.append(
            f"  errors {len(self.errors)} {list(self.errors[:2])}; elections: {list(self.elections) or 'none'}"
        )
        return "\n".join(lines)


# -- the client's process


@dataclass(slots=True)
class _Client:
    """Sends at its pace, and notes when each answer came."""

    samples: list[Sample] = field(default_factory=list)
    waiting: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def expect(self, kind: str, sent_s: float) -> Callable[[object], None]:
        with self.changed:
            self.waiting += 1

        def answered(done: object) -> None:
            error = done.exception()  # type: ignore[attr-defined]
            took_ms = (time.monotonic() - sent_s) * 1000.0
            with self.changed:
                self.samples.append(Sample(kind, sent_s, took_ms, "" if error is None else repr(error)))
                self.waiting -= 1
                self.changed.notify_all()

        return answered

    def add(self, sample: Sample) -> None:
        with self.changed:
            self.samples.append(sample)

    def drain(self) -> list[Sample]:
        with self.changed:
            assert self.changed.wait_for(lambda: not self.waiting, ANSWERS_S), f"{self.waiting} requests hang"
            return list(self.samples)


def _sync(path: str, client: _Client, stop: threading.Event) -> None:
    """Write some bytes over and over, and sync them: how long the disk takes without a broker."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while not stop.wait(PACE_S):
            sent_s = time.monotonic()
            os.pwrite(descriptor, b"%f" % sent_s, 0)
            os.fdatasync(descriptor)
            client.add(Sample(_DISK, sent_s, (time.monotonic() - sent_s) * 1000.0))
    finally:
        os.close(descriptor)


def _behave(bootstrap_servers: str, addresses: list[str], path: str, told: Connection) -> None:
    """The client's process: says "ready", sends until it is told to stop, and gives its samples."""
    client = _Client()
    stop = threading.Event()
    syncing = threading.Thread(target=_sync, args=(path, client, stop))
    syncing.start()
    try:
        _send(client, bootstrap_servers, addresses, told)
    finally:
        stop.set()
        syncing.join()


def _send(client: _Client, bootstrap_servers: str, addresses: list[str], told: Connection) -> None:
    channels = [grpc.insecure_channel(address) for address in addresses]
    stubs = [metadata_pb2_grpc.MetadataServiceStub(channel) for channel in channels]
    request = metadata_pb2.GetMetadataRequest(client=OF_NOW, topic_names=[TOPIC])
    with Producer({"bootstrap.servers": bootstrap_servers, "client.id": TOPIC, "linger.ms": 0}) as producer:
        for partition in range(PARTITIONS):  # all connections are there
            producer.send(TOPIC, value=b"first", partition=partition).result(timeout=ANSWERS_S)
        for stub in stubs:
            stub.GetMetadata(request, timeout=ANSWERS_S)
        told.send("ready")
        number, due_s = 0, time.monotonic()
        while not told.poll(max(0.0, due_s - time.monotonic())):
            future = producer.send(TOPIC, value=b"%d" % number, partition=number % PARTITIONS)
            future.add_done_callback(client.expect(_PRODUCE, due_s))
            call = stubs[number % len(stubs)].GetMetadata.future(request, timeout=ANSWERS_S)
            call.add_done_callback(client.expect(_METADATA, due_s))
            number, due_s = number + 1, due_s + PACE_S
        told.send(client.drain())
    for channel in channels:
        channel.close()


# -- beside an attack


def beside(cluster: Cluster, attack: Attack, *, seconds: float = ATTACK_S, quiet_s: float = QUIET_S) -> Report:
    """Run the client on the cluster's brokers, first alone and then beside the attack; what it saw."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        if TOPIC not in admin.list_topics():
            factor = min(3, len(cluster.processes))
            admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=factor)])
    blows = attack(cluster)
    try:
        next(blows)
        return _measure(cluster, blows, seconds, quiet_s)
    finally:
        blows.close()  # type: ignore[attr-defined]


def unnoticed(
    directory: pathlib.Path,
    attack: Attack,
    clusters: Callable[[pathlib.Path], contextlib.AbstractContextManager[Cluster]],
) -> tuple[Report, Cluster]:
    """A checked run beside the attack, and the cluster that it was made on (which may be over: its logs are there).

    Raises AssertionError unless the client hardly noticed. A run that fails while the disk stood still by itself is
    made again, at most RUNS times, in a directory of its own.
    """
    for number in range(1, RUNS + 1):
        with clusters(directory / f"run-{number}") as cluster:
            report = beside(cluster, attack)
        print(report)
        if number == RUNS or not report.disk_stood_still:
            break
        with contextlib.suppress(AssertionError):
            report.check()
            break
    report.check()
    return report, cluster


def _measure(cluster: Cluster, blows: Iterator[None], seconds: float, quiet_s: float) -> Report:
    here, there = multiprocessing.get_context("spawn").Pipe()
    addresses = [f"{HOST}:{cluster.ports[each]}" for each in cluster.processes]
    arguments = (cluster.bootstrap_servers, addresses, str(cluster.directory / "beside"), there)
    process = multiprocessing.get_context("spawn").Process(target=_behave, args=arguments, daemon=True)
    process.start()
    there.close()
    try:
        assert here.poll(ANSWERS_S), "the well-behaved client did not get ready"
        assert here.recv() == "ready"
        time.sleep(quiet_s)
        epochs, before = _epochs(cluster), _resident(cluster, "VmRSS")
        _forget_peaks(cluster)
        began_s, struck = time.monotonic(), 0
        while time.monotonic() < began_s + seconds and next(blows, StopIteration) is None:
            struck += 1
        time.sleep(max(0.0, began_s + seconds - time.monotonic()))  # an attack may be over before
        ended_s = time.monotonic()
        here.send("stop")
        assert here.poll(2 * ANSWERS_S), "the well-behaved client does not end"
        samples: list[Sample] = here.recv()
    finally:
        process.kill()
        process.join()
        here.close()
    peaks, after = _resident(cluster, "VmHWM"), _resident(cluster, "VmRSS")
    attacked = [each for each in samples if began_s <= each.sent_s < ended_s]
    return Report(
        _by_kind([each for each in samples if each.sent_s < began_s]),
        _by_kind(attacked),
        [each.error for each in attacked if each.error],
        _differences(epochs, _epochs(cluster)),
        {each: Memory(before[each], peaks[each], after[each]) for each in before},
        struck,
    )


def _by_kind(samples: Sequence[Sample]) -> dict[str, Latencies]:
    return {kind: Latencies.of([s for s in samples if s.kind == kind]) for kind in (_PRODUCE, _METADATA, _DISK)}


def _epochs(cluster: Cluster) -> ElectionEpochs:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers, "request.timeout.ms": 30_000}) as admin:
        partitions = admin.describe_topics([TOPIC])[0].partitions
        return ElectionEpochs(
            admin.describe_cluster().controller_epoch, tuple(each.leader_epoch for each in partitions)
        )


def _differences(before: ElectionEpochs, after: ElectionEpochs) -> list[str]:
    found = (
        [f"controller epoch {before.controller} -> {after.controller}"] if before.controller != after.controller else []
    )
    pairs = enumerate(zip(before.leaders, after.leaders, strict=True))
    return found + [f"partition {number}: leader epoch {old} -> {new}" for number, (old, new) in pairs if old != new]


def _resident(cluster: Cluster, name: str) -> dict[int, int]:
    """A figure of /proc/PID/status, bytes: VmRSS is what is resident now, VmHWM the most since `_forget_peaks`."""
    found = {}
    for broker_id, process in cluster.processes.items():
        lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
        found[broker_id] = next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))
    return found


def _forget_peaks(cluster: Cluster) -> None:
    for process in cluster.processes.values():
        pathlib.Path(f"/proc/{process.pid}/clear_refs").write_text("5")


# -- the command line


def attack_named(name: str) -> Attack:
    """`module:function`."""
    module, _, function = name.partition(":")
    attack: Attack = getattr(importlib.import_module(module), function)
    return attack


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="+", metavar="MODULE:FUNCTION")
    parser.add_argument("--seconds", type=float, default=ATTACK_S)
    parser.add_argument("--brokers-of", type=pathlib.Path, help="a checkout whose brokers are attacked")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the brokers")
    chosen = parser.parse_args()
    settings = dict(each.split("=", 1) for each in chosen.set)
    for name in chosen.attacks:
        with tempfile.TemporaryDirectory(prefix="minilog-beside-") as folder:
            former = os.environ.get("PYTHONPATH", "")
            if chosen.brokers_of is not None:
                paths = [str(chosen.brokers_of.absolute() / each) for each in ("broker", "client")]
                os.environ["PYTHONPATH"] = os.pathsep.join(paths)
            with running_cluster(pathlib.Path(folder), settings=settings) as cluster:
                os.environ["PYTHONPATH"] = former
                print(f"{name}: {beside(cluster, attack_named(name), seconds=chosen.seconds)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
