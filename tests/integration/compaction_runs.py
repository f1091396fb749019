"""Brokers die in the middle of cleanings, beside a producer of keyed records. The table of newest records is judged.

    python -m tests.integration.kill_runs compaction --times 50 --seed 1

One compacted partition on three brokers, whose cleaners work slowly and nearly all the time. A producer writes numbered
records of a few hundred keys, and deletions, with acks=all. Each round waits until the copy of one broker has begun a
cleaning and not ended it, kills that broker by SIGKILL, and starts it again. At the end each key has its last
acknowledged record, or a later one whose outcome is unknown. The three copies have the same records.
"""

from __future__ import annotations

import pathlib
import random
import tempfile
import threading
import time
from collections import defaultdict
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from rich.progress import track

from minilog import Admin, Consumer, NewTopic, Producer, RecordMetadata, TopicPartition
from minilog.errors import MinilogError
from tests.cluster import Cluster, running_cluster
from tests.integration.compacted_copies import checkpoint, settle, stored

TOPIC = "accounts"
KEYS = 300
PAUSE_S = 0.002
BEGINS_WITHIN_S = 20.0
SETTINGS = {"log.cleaner.backoff.ms": "50", "log.cleaner.io.max.bytes.per.second": "262144"}
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "65536",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "500",
}


@dataclass
class KeyedWriter:
    """A thread that writes numbered records. A number is negative if the record is a deletion."""

    client: dict[str, object]
    seed: int
    written: dict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: dict[bytes, int] = field(default_factory=lambda: defaultdict(int))
    failures: int = 0

    def __post_init__(self) -> None:
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        chance, number = random.Random(self.seed), 0
        with Producer({**self.client, "batch.size": 4096}) as producer:
            while not self._stops.is_set():
                number += 1
                key, is_deletion = b"%d" % chance.randrange(KEYS), chance.random() < 0.1
                self.written[key].append(-number if is_deletion else number)
                value = None if is_deletion else b"%d %s" % (number, b"x" * chance.randrange(200))
                sent = producer.send(TOPIC, value, key=key)
                sent.add_done_callback(partial(self._done, key, number))
                time.sleep(PAUSE_S)

    def _done(self, key: bytes, number: int, sent: Future[RecordMetadata]) -> None:
        if sent.exception() is None:
            self.acknowledged[key] = max(self.acknowledged[key], number)
        else:
            self.failures += 1

    def stop(self) -> None:
        self._stops.set()
        self._thread.join()

    def judge(self, table: dict[bytes, bytes | None]) -> list[str]:
        """What is wrong with a table of newest records: null for a deletion that is still there."""
        wrong = []
        for key, numbers in self.written.items():
            known = table.get(key)
            possible = {number for number in numbers if abs(number) >= self.acknowledged[key]}
            last = None if known is None else int(known.split(b" ")[0])
            is_right = any(number < 0 for number in possible) if last is None else last in possible
            if not is_right and not (last is None and not self.acknowledged[key]):
                wrong.append(f"key {key!r} has {last}, and its last acknowledged record is {self.acknowledged[key]}")
        return wrong


def main(times: int, seed: int) -> int:
    """The run. Gives 1 where something is wrong."""
    with (
        tempfile.TemporaryDirectory(prefix="minilog-clean-") as folder,
        running_cluster(pathlib.Path(folder), settings=SETTINGS) as cluster,
    ):
        middle, writer, wrong = _run(cluster, times, seed)
    records = sum(map(len, writer.written.values()))
    print(
        f"compaction x {times}, seed {seed}: written {records}, acknowledged keys {len(writer.acknowledged)}, "
        f"failed or unknown {writer.failures}, kills in the middle of a cleaning {middle}, wrong {len(wrong)}"
    )
    for line in wrong[:20]:
        print("  " + line)
    return 1 if wrong else 0


def _run(cluster: Cluster, times: int, seed: int) -> tuple[int, KeyedWriter, list[str]]:
    chance, middle = random.Random(seed), 0
    with Admin(cluster.client) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3, configs=CONFIGS)])
        writer = KeyedWriter(cluster.client, seed)
        try:
            for _ in track(range(times), description="kills"):
                victim = chance.choice(sorted(cluster.ports))
                _wait_for_cleaning(cluster, victim)
                time.sleep(chance.random() * 0.2)
                cluster.kill(victim)
                middle += checkpoint(cluster, victim, TOPIC).compaction.is_due
                cluster.start(victim)
                cluster.wait_running()
                _wait_in_sync(admin)
        finally:
            writer.stop()
    point = settle(cluster, TOPIC, above=0)
    wrong = writer.judge(_table(cluster))
    cluster.stop()
    copies = {broker_id: stored(cluster, broker_id, TOPIC) for broker_id in cluster.ports}
    first, *others = copies.values()
    if any(other != first for other in others):
        wrong.append(f"the copies differ, and all have carried out {point}")
    wrong += [f"broker {name} wrote a traceback" for name in cluster.ports if "Traceback" in cluster.log_text(name)]
    return middle, writer, wrong


def _wait_for_cleaning(cluster: Cluster, broker_id: int) -> None:
    """Until the copy has begun a cleaning that is not done. No longer than some seconds: it may come to none."""
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while not checkpoint(cluster, broker_id, TOPIC).compaction.is_due and time.monotonic() < deadline:
        time.sleep(0.01)


def _wait_in_sync(admin: Admin) -> None:
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while time.monotonic() < deadline:
        try:
            (description,) = admin.describe_topics([TOPIC])
            if len(description.partitions[0].isr) == len(description.partitions[0].replicas):
                return
        except MinilogError:
            """No broker answers yet."""
        time.sleep(0.1)


def _table(cluster: Cluster) -> dict[bytes, bytes | None]:
    partition, table = TopicPartition(TOPIC, 0), dict[bytes, bytes | None]()
    with Consumer({**cluster.client, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([partition])
        (end,) = consumer.end_offsets([partition]).values()
        while (consumer.position(partition) or 0) < end:
            for record in consumer.poll(timeout=1):
                assert record.key is not None
                table[record.key] = record.value
    return table
