"""Real worker processes of one queue come, leave, hang, stop and are killed beside kills of brokers, and are judged.

    python -m tests.integration.kill_runs queues --minutes 10 --workers 50 --seed 1

One topic, a producer with acks=all, and up to so many workers, each a process of its own (judged_worker.py) that writes
down what it gets and what became of it. Locks are short. Each second or so one of these happens to workers: one comes,
leaves, dies by SIGKILL, is stopped by SIGSTOP and goes on later, or hangs beyond its locks. Each half minute a broker
dies by SIGKILL, most often the queue's coordinator, and starts again. At the end a few healthy workers drain the queue.
Dead records go to a dead-letter topic, so that none can be taken for a lost one.
`queue_history.py` judges the files.
"""

from __future__ import annotations

import pathlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import Progress, TaskID

from minilog import Admin, Consumer, NewTopic, TopicPartition
from minilog.errors import MinilogError
from minilog.net.coordinators_of import QUEUES_TOPIC_NAME, coordinator_partition
from minilog.queues.dead_letters import OFFSET_HEADER, PARTITION_HEADER
from tests.cluster import Cluster
from tests.integration.broker_kills import BrokerKills
from tests.integration.clients import Writer
from tests.integration.history import History, Place
from tests.integration.judged_worker import WorkerOrder
from tests.integration.populations import Population
from tests.integration.process_runs import broker_faults, report, watched_cluster
from tests.integration.queue_history import QueueJudgement, WorkerEvent, judge_queue
from tests.integration.rounds import admin_of

TOPIC = QUEUE = "jobs"
LETTERS = "jobs.dead"
LETTER_PARTITIONS = 3
LOCK_S = 5.0
DELIVERY_COUNT_LIMIT = 5
SETTINGS = {
    "group.share.record.lock.duration.ms": str(int(LOCK_S * 1000)),
    "group.share.delivery.count.limit": str(DELIVERY_COUNT_LIMIT),
    "errors.deadletterqueue.topic.name": LETTERS,
}
KINDS = ("leave", "kill", "stop", "hang")
HEALTHY = 5
DRAINS_WITHIN_S = 60.0
LETTERS_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class QueueRunOptions:
    """Pauses are means, in seconds."""

    seconds: float
    workers: int = 50
    seed: int = 1
    partitions: int = 12
    worker_pause_s: float = 1.0
    broker_pause_s: float = 25.0
    write_pause_s: float = 0.01
    work_s: float = 0.1


@dataclass
class QueueRunOutcome:
    """What was done, and what became of it."""

    options: QueueRunOptions
    faults: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    drained_s: float = 0.0
    """From the last fault until all was settled."""
    judgement: QueueJudgement = field(default_factory=QueueJudgement)
    wrong: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        judged = self.judgement
        return {
            "seed": self.options.seed,
            "seconds": self.options.seconds,
            "faults": dict(self.faults),
            "acknowledged": self.acknowledged,
            "handed": judged.handed,
            "handed again": judged.again,
            "verdicts": dict(judged.verdicts),
            "polls that raised": dict(judged.raised),
            "ends of acknowledged records": dict(judged.ends),
            "drained after, s": round(self.drained_s, 1),
            "wrong": self.wrong,
        }


class QueueRun:
    """One run, from its first worker to its judgement."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path, options: QueueRunOptions, progress: Progress) -> None:
        self._cluster, self._options, self._progress = cluster, options, progress
        self._chance = random.Random(options.seed)
        self._are_healthy = False
        self.workers = Population(folder, "worker", "tests.integration.judged_worker", WorkerEvent, self._order_of)
        self.outcome = QueueRunOutcome(options)
        self._task = TaskID(0)

    def _order_of(self, name: str, number: int, log: str) -> WorkerOrder:
        options, seed = self._options, self._options.seed * 100_000 + number
        settings = {**self._cluster.client, "queue": QUEUE, "client.id": name, "request.timeout.ms": 5_000}
        settings["max.poll.records"] = random.Random(seed).choice([1, 5, 10, 20])
        hang_s = random.Random(seed).uniform(2.0, 4.0) * LOCK_S
        work_s = 0.0 if self._are_healthy else options.work_s
        return WorkerOrder(settings, TOPIC, log, seed, hang_s, work_s, healthy=self._are_healthy)

    def run(self) -> QueueRunOutcome:
        with admin_of(self._cluster) as admin:
            partitions = {TOPIC: self._options.partitions, LETTERS: LETTER_PARTITIONS}
            admin.create_topics([NewTopic(name, count, replication_factor=3) for name, count in partitions.items()])
            admin.alter_queue(QUEUE, set=SETTINGS)
            self._task = self._progress.add_task("workers come", total=self._options.seconds)
            writer = Writer(self._cluster.client, TOPIC, value_bytes=100, pause_s=self._options.write_pause_s)
            try:
                self._play()
                history = writer.stop()
                self._drain(admin)
                self.workers.leave_all()
            finally:
                self.workers.end()
            self._judge(history)
        return self.outcome

    def _play(self) -> None:
        options = self._options
        for _ in range(options.workers * 3 // 5):
            self.workers.come()
        kills = BrokerKills(
            self._cluster,
            random.Random(options.seed + 2),
            options.broker_pause_s,
            topic=QUEUES_TOPIC_NAME,
            partition=coordinator_partition(QUEUE),
            topics=[TOPIC, LETTERS],
        )
        began_s = time.monotonic()
        while (gone_s := time.monotonic() - began_s) < options.seconds:
            words = ", ".join(f"{count} {name}" for name, count in sorted(self.outcome.faults.items()))
            self._show(f"{len(self.workers.living)} workers: {words}", gone_s)
            self.workers.look()
            self.workers.wake(self._chance, LOCK_S)
            fault = self.workers.disturb(self._chance, options.workers, KINDS)
            if fault is not None:
                self.outcome.faults[fault] += 1
            time.sleep(min(self._chance.expovariate(1.0 / options.worker_pause_s), 5.0))
        kills.stop()
        self.outcome.faults += kills.faults
        self.outcome.wrong += kills.wrong

    def _drain(self, admin: Admin) -> None:
        """The workers leave, and healthy ones settle the rest. A queue that goes on has time for what is left."""
        self.workers.wake_all()
        self.workers.leave_all()
        self._are_healthy = True
        for _ in range(HEALTHY):
            self.workers.come()
        began_s = time.monotonic()
        deadline_s, least = began_s + DRAINS_WITHIN_S, -1
        while (left := _unsettled(admin, self._options.partitions)) != 0:
            if left is not None and (left < least or least < 0):
                deadline_s, least = time.monotonic() + DRAINS_WITHIN_S, left
            if time.monotonic() > deadline_s:
                self.outcome.wrong.append(f"the queue is not drained: {admin.describe_queue(QUEUE)}")
                break
            self._show(f"{left} are not settled", self._options.seconds)
            time.sleep(0.5)
            self.workers.look()
        self.outcome.drained_s = time.monotonic() - began_s

    def _judge(self, history: History) -> None:
        acknowledged: dict[int, set[int]] = {number: set() for number in range(self._options.partitions)}
        for partition, offset in history.acknowledged.values():
            acknowledged[partition].add(offset)
        outcome, letters = self.outcome, _letters(self._cluster)
        outcome.acknowledged = len(history.acknowledged)
        outcome.judgement = judge_queue(
            self.workers.read(), acknowledged, letters, delivery_count_limit=DELIVERY_COUNT_LIMIT
        )
        outcome.wrong += self.workers.wrong + outcome.judgement.wrong

    def _show(self, words: str, gone_s: float) -> None:
        self._progress.update(self._task, description=words, completed=gone_s)


def _unsettled(admin: Admin, partitions: int) -> int | None:
    """The number of offsets that are not settled. None while nobody knows of each partition."""
    try:
        positions = admin.describe_queue(QUEUE).partitions
        ends = admin.list_offsets({TopicPartition(at.topic, at.partition): "latest" for at in positions})
    except MinilogError:
        return None
    if len(positions) < partitions:
        return None
    fresh = sum((ends[TopicPartition(at.topic, at.partition)] or 0) - at.next_offset for at in positions)
    return fresh + sum(part.count for at in positions for part in at.ranges)


def _letters(cluster: Cluster) -> Counter[Place]:
    """How many committed dead letters each record has. The transaction of a worker that was killed ends by its
    time-out, and readers wait behind it."""
    letters: Counter[Place] = Counter()
    client = {**cluster.client, "isolation.level": "read_committed"}
    reading = {**cluster.client, "isolation.level": "read_uncommitted"}
    with Admin(reading) as admin, Consumer(client) as consumer:
        partitions = [TopicPartition(LETTERS, number) for number in range(LETTER_PARTITIONS)]
        ends = admin.list_offsets(dict.fromkeys(partitions, "latest"))
        consumer.assign([TopicPartition(at.topic, at.partition, 0, end) for at, end in ends.items()])
        deadline_s = time.monotonic() + LETTERS_WITHIN_S
        while not consumer.finished():
            assert time.monotonic() < deadline_s, "a transaction of dead letters is open for too long"
            headers = [dict(record.headers) for record in consumer.poll(timeout=1.0)]
            letters.update((int(one[PARTITION_HEADER] or b""), int(one[OFFSET_HEADER] or b"")) for one in headers)
    return letters


def run_workers(options: QueueRunOptions, directory: pathlib.Path, console: Console | None = None) -> QueueRunOutcome:
    """The run on a cluster of its own, judged."""
    with watched_cluster(directory, {}, console) as (cluster, progress):
        outcome = QueueRun(cluster, directory, options, progress).run()
        outcome.wrong += broker_faults(cluster)
    return outcome


def main(options: QueueRunOptions, result: pathlib.Path | None) -> int:
    """The mode `queues` of kill_runs: 1 where anything is wrong."""
    words = f"at most {options.workers} workers"
    return report("workers", words, lambda folder, console: run_workers(options, folder, console), result)
