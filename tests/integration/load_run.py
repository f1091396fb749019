"""No false alarm: full-speed producing on three brokers, and nobody is taken for dead, nobody leaves an ISR.

    python -m tests.integration.load_run --seconds 60

One process per producer writes Arrow batches of about 1 MiB as fast as the brokers take them. Afterwards every leader
epoch, partition epoch and the controller's epoch must be what they were: no election, no shrunk ISR. Exit 1 otherwise.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pathlib
import sys
import tempfile
import time
from dataclasses import dataclass

import pyarrow as pa

from minilog import Admin, NewTopic, Producer
from tests.cluster import Cluster, running_cluster

TOPIC = "load"
PARTITIONS = 6
RECORD_BYTES = 1024
BATCH_RECORDS = 1024
IN_FLIGHT = 64
"""Arrow batches per producer that wait for their acknowledgement."""


@dataclass(frozen=True, slots=True)
class ClusterEpochs:
    """What any alarm changes: the controller's epoch, and each partition's leader epoch and partition epoch."""

    controller: int
    partitions: tuple[tuple[int, int], ...]


def epochs(cluster: Cluster) -> ClusterEpochs:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        partitions = admin.describe_topics([TOPIC])[0].partitions
        controller_epoch = admin.describe_cluster().controller_epoch
    return ClusterEpochs(controller_epoch, tuple((each.leader_epoch, each.partition_epoch) for each in partitions))


def produce(bootstrap_servers: str, seconds: float) -> int:
    """Full speed for so long; the bytes acknowledged."""
    value = b"x" * RECORD_BYTES
    batch = pa.record_batch({"value": pa.array([value] * BATCH_RECORDS, pa.binary())})
    deadline, sent = time.monotonic() + seconds, []
    with Producer({"bootstrap.servers": bootstrap_servers}) as producer:
        while time.monotonic() < deadline:
            sent.append(producer.send_batch(TOPIC, batch))
            if len(sent) > IN_FLIGHT:
                sent[-IN_FLIGHT].result(timeout=60)
        for future in sent:
            future.result(timeout=60)
    return len(sent) * BATCH_RECORDS * RECORD_BYTES


@dataclass(frozen=True, slots=True)
class Loaded:
    """One run."""

    before: ClusterEpochs
    after: ClusterEpochs
    megabytes_per_s: float

    @property
    def alarms(self) -> list[str]:
        """What changed though nothing had happened."""
        found = [f"controller epoch {self.before.controller} -> {self.after.controller}"]
        found = found if self.before.controller != self.after.controller else []
        pairs = zip(self.before.partitions, self.after.partitions, strict=True)
        return found + [
            f"partition {number}: (leader epoch, partition epoch) {old} -> {new}"
            for number, (old, new) in enumerate(pairs)
            if old != new
        ]


def run(directory: pathlib.Path, seconds: float, producers: int = 2) -> Loaded:
    """Three brokers at default settings under full load."""
    with running_cluster(directory) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)])
        before, started = epochs(cluster), time.monotonic()
        with multiprocessing.get_context("spawn").Pool(producers) as pool:
            written = pool.starmap(produce, [(cluster.bootstrap_servers, seconds)] * producers)
        return Loaded(before, epochs(cluster), sum(written) / 1e6 / (time.monotonic() - started))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--producers", type=int, default=2)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="minilog-load-") as folder:
        loaded = run(pathlib.Path(folder), chosen.seconds, chosen.producers)
    print(f"{loaded.megabytes_per_s:.0f} MB/s for {chosen.seconds:.0f} s, {len(loaded.alarms)} false alarms")
    for alarm in loaded.alarms:
        print("  " + alarm)
    return 1 if loaded.alarms else 0


if __name__ == "__main__":
    sys.exit(main())
