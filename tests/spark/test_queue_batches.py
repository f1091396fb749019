"""Micro-batches of a queue whose driver dies at any point: each message has its row once, whatever became of its lock.

Reader and writer are driven as Spark drives them, in this process, so that the driver can stop between any two calls.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import pickle
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructType

from minilog import Admin, NewTopic, Producer, QueueConsumer
from minilog.v1 import queue_pb2
from pyspark_minilog import DefaultSource
from pyspark_minilog.errors import InvalidOption, LeaseLost
from pyspark_minilog.job_properties import BATCH_ID, QUERY_ID, RUN_ID
from pyspark_minilog.login import clients
from pyspark_minilog.queues import reader as queue_reader
from pyspark_minilog.queues.offset import QueueOffset
from pyspark_minilog.queues.reader import QueueReader
from pyspark_minilog.reading.schema import source_schema
from pyspark_minilog.writing.sink_protocol import STREAM_PREFIX
from pyspark_minilog.writing.write_task import StreamWriter
from tests.cluster import Cluster
from tests.rules import proves
from tests.spark.kit import wait_until

WRITTEN = StructType().add("value", BinaryType())
SHORT_LOCK_MS, LONG_LOCK_MS = 1_000, 60_000
Messages = list[WriterCommitMessage | None]
Begin = Callable[..., "Driver"]


class Scene:
    """A queue with messages, the topic that gets a row of each, and the checkpoint of the query."""

    def __init__(self, cluster: Cluster, admin: Admin, name: str, folder: pathlib.Path) -> None:
        self.servers, self.admin = {"bootstrap.servers": cluster.bootstrap_servers}, admin
        self.queue, self.source, self.sink = f"{name}-queue", f"{name}-in", f"{name}-out"
        self.checkpoint = folder / "checkpoint"
        (self.checkpoint / "offsets").mkdir(parents=True)
        admin.create_topics([NewTopic(topic, num_partitions=1) for topic in (self.source, self.sink)])
        self.lock(LONG_LOCK_MS)

    def lock(self, lock_ms: int) -> None:
        self.admin.alter_queue(self.queue, set={"group.share.record.lock.duration.ms": str(lock_ms)})

    def send(self, *values: str) -> None:
        with Producer(self.servers) as producer:
            for value in values:
                producer.send(self.source, value.encode())

    def rows(self) -> list[str]:
        """What a reader sees of the sink."""
        reader = DefaultSource({**self.servers, "subscribe": self.sink}).reader(source_schema(False))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return sorted(value.decode() for batch in batches for value in batch.column("value").to_pylist())

    def backlog(self) -> int:
        """The messages that are not settled."""
        places = self.admin.describe_queue(self.queue).partitions
        held = sum(part.count for place in places for part in place.ranges)
        return held + sum(place.backlog or 0 for place in places)


class Driver:
    """One life of the query's driver, from its checkpoint. It makes what Spark makes, and calls what Spark calls."""

    def __init__(self, scene: Scene, folder: pathlib.Path, patched: pytest.MonkeyPatch, **options: str) -> None:
        self.scene, self.run_id, self.patched = scene, folder.name, patched
        patched.setenv("SPARK_LOCAL_DIRS", str(folder))
        source = DefaultSource({**scene.servers, "subscribe": scene.source, "queue": scene.queue, **options})
        reader = source.streamReader(source_schema(False))
        assert isinstance(reader, QueueReader)
        self.reader = reader
        self._sent = pickle.dumps(reader)  # to the tasks, before Spark calls any method

    def die(self) -> None:
        self.reader._unplanned = None  # a process that dies gives nothing back
        self.reader.stop()  # its thread of locks ends with the process

    def plan(self, batch: int) -> bool:
        """Ask for the next batch, and note it in the checkpoint. False: there is none."""
        start = self._offset(batch - 1) if batch else self.reader.initialOffset()
        end = self.reader.latestOffset(start, ReadAllAvailable())
        if end != start:
            lines = ["v1", "{}", json.dumps(end)]
            (self.scene.checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
        return end != start

    def _offset(self, batch: int) -> dict[str, Any]:
        lines = (self.scene.checkpoint / "offsets" / str(batch)).read_text().splitlines()
        read: dict[str, Any] = json.loads(lines[-1])
        return read

    def read(self, batch: int) -> list[pa.RecordBatch]:
        """Plan the batch, and run its tasks."""
        end = self._offset(batch)
        with _task(batch, self.run_id):
            tasks = self.reader.partitions(end, end)
            reader: QueueReader = pickle.loads(self._sent)
            return [rows for task in tasks for rows in reader.read(pickle.loads(pickle.dumps(task)))]

    def write(self, batch: int, rows: list[pa.RecordBatch]) -> Messages:
        """The tasks of the sink."""
        writer: StreamWriter = pickle.loads(pickle.dumps(self._writer()))
        with _task(batch, self.run_id):
            return [writer.write(iter([part.select(["value"]) for part in rows]))]

    def commit(self, batch: int, messages: Messages) -> None:
        self._writer().commit(messages, batch)

    def whole(self, batch: int) -> None:
        """All of a batch that stands in the checkpoint."""
        self.commit(batch, self.write(batch, self.read(batch)))

    def _writer(self) -> StreamWriter:
        options = {"topic": self.scene.sink, "settlequeue": self.scene.queue}
        options["checkpointlocation"] = str(self.scene.checkpoint)
        return DefaultSource({**self.scene.servers, **options}).streamWriter(WRITTEN, overwrite=False)


class _task:  # noqa: N801
    """The context of a task of a micro-batch, as Spark sets it."""

    query_id = ""

    def __init__(self, batch: int, run_id: str) -> None:
        self._properties = {QUERY_ID: self.query_id, BATCH_ID: str(batch), RUN_ID: run_id}

    def __enter__(self) -> None:
        context = TaskContext._getOrCreate()
        context._localProperties, context._partitionId = self._properties, 0

    def __exit__(self, *_: object) -> None:
        TaskContext._setTaskContext(None)


@pytest.fixture
def scene(
    cluster: Cluster,
    admin: Admin,
    request: pytest.FixtureRequest,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Scene]:
    name = re.sub("[^a-z0-9]+", "-", request.node.name)[:60]
    monkeypatch.setattr(_task, "query_id", name)
    monkeypatch.setattr(queue_reader, "_WAIT_MS", 2_000)
    yield Scene(cluster, admin, name, tmp_path)
    for client in list(clients._idle.values()):
        client.close()
    clients._idle.clear()


@pytest.fixture
def begin(scene: Scene, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Begins one more life of the query's driver, with these options."""
    lives = itertools.count()
    return lambda **options: Driver(scene, tmp_path / f"life-{next(lives)}", monkeypatch, **options)


@proves("SPQ.2")
def test_messages_are_settled_with_their_rows_by_one_driver_after_the_other(
    scene: Scene, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    first = begin()
    scene.send("a", "b")
    assert first.plan(0)
    first.whole(0)
    assert (scene.rows(), scene.backlog()) == (["a", "b"], 0)
    assert not first.plan(1)
    scene.send("c")
    assert first.plan(1)
    first.die()
    second = begin()
    second.whole(1)
    assert (scene.rows(), scene.backlog()) == (["a", "b", "c"], 0)
    second.die()
    third = begin()  # Spark repeats a batch that it has not noted as done
    third.whole(1)
    assert (scene.rows(), scene.backlog()) == (["a", "b", "c"], 0)
    assert "does not write its 1 rows again" in caplog.text
    assert "compared" not in caplog.text  # the offsets have shown that it is a replay
    assert not third.plan(2)


@proves("SPQ.5")
def test_a_batch_whose_locks_have_ended_reads_nothing_and_its_messages_come_in_a_later_one(
    scene: Scene, begin: Begin
) -> None:
    scene.lock(SHORT_LOCK_MS)
    first = begin()
    scene.send("a", "b")
    assert first.plan(0)
    written = first.write(0, first.read(0))
    first.die()
    wait_until(lambda: not _leases(scene))
    scene.lock(LONG_LOCK_MS)
    with pytest.raises(LeaseLost, match="The messages are delivered again"):
        first.commit(0, written)
    second = begin()
    assert second.read(0) == []
    second.whole(0)
    assert scene.rows() == []
    assert second.plan(1)
    second.whole(1)
    assert (scene.rows(), scene.backlog()) == (["a", "b"], 0)


@proves("SPQ.6")
def test_a_committed_batch_is_read_again_for_its_state_though_its_locks_have_ended(scene: Scene, begin: Begin) -> None:
    scene.lock(SHORT_LOCK_MS)
    first = begin()
    scene.send("a", "b")
    assert first.plan(0)
    first.whole(0)
    first.die()
    time.sleep(2 * SHORT_LOCK_MS / 1000)  # any question about these locks would begin them anew
    second = begin()
    rows = second.read(0)
    assert sum(part.num_rows for part in rows) == 2
    second.commit(0, second.write(0, rows))
    assert (scene.rows(), scene.backlog()) == (["a", "b"], 0)


@proves("SPQ.6")
def test_a_batch_that_was_committed_without_its_messages_is_not_read_again(scene: Scene, begin: Begin) -> None:
    """A stateful query may write rows though the source gives none."""
    scene.lock(SHORT_LOCK_MS)
    first = begin()
    scene.send("a")
    assert first.plan(0)
    first.die()
    wait_until(lambda: not _leases(scene))
    scene.lock(LONG_LOCK_MS)
    second = begin()
    assert second.read(0) == []
    of_state = [pa.RecordBatch.from_pydict({"value": [b"of the state"]})]
    second.commit(0, second.write(0, of_state))
    third = begin()
    assert third.read(0) == []
    third.commit(0, third.write(0, of_state))
    assert third.plan(1)
    third.whole(1)
    assert (scene.rows(), scene.backlog()) == (["a", "of the state"], 0)


@proves("SPQ.7")
def test_a_driver_takes_over_what_a_dead_one_has_settled_and_not_committed(scene: Scene, begin: Begin) -> None:
    """The messages are settling until the marker of the aborted transaction has come."""
    first = begin()
    scene.send("a", "b")
    _die_settling(first)
    second = begin()
    second.whole(0)
    assert (scene.rows(), scene.backlog()) == (["a", "b"], 0)


def test_a_batch_that_a_dead_driver_has_settled_outlives_its_lock(scene: Scene, begin: Begin) -> None:
    """All of the lease is settling, so it has lost nothing. The next driver reads the messages, and settles them."""
    scene.lock(SHORT_LOCK_MS)
    first = begin()
    scene.send("a", "b")
    _die_settling(first)
    time.sleep(2 * SHORT_LOCK_MS / 1000)
    scene.lock(LONG_LOCK_MS)
    second = begin()
    second.whole(0)
    assert (scene.rows(), scene.backlog()) == (["a", "b"], 0)


@proves("SPQ.7")
def test_a_lock_that_an_abort_brings_back_settles_nothing_that_was_not_read(scene: Scene, begin: Begin) -> None:
    """The lock ends when a dead driver's transaction has settled a part of the lease, so the lease has lost the rest.
    The abort gives it that part again."""
    scene.lock(SHORT_LOCK_MS)
    first = begin()
    scene.send("a", "b")
    settlements = QueueOffset.settlements

    def first_message(batch: QueueOffset, verdict: queue_pb2.Verdict.ValueType) -> list[queue_pb2.Settlement]:
        [settlement] = settlements(batch, verdict)
        settlement.last_offset = settlement.first_offset
        return [settlement]

    with first.patched.context() as partly:
        partly.setattr(QueueOffset, "settlements", first_message)
        _die_settling(first)
    time.sleep(2 * SHORT_LOCK_MS / 1000)
    scene.lock(3 * SHORT_LOCK_MS)
    second = begin()
    assert second.read(0) == []
    second.commit(0, second.write(0, []))  # it takes over, and so aborts the transaction of the first
    second.die()
    wait_until(lambda: _leases(scene))
    third = begin()
    assert third.read(0) == [], "the lock holds, but the batch is committed without its messages"
    third.commit(0, third.write(0, []))
    for batch in (1, 2):
        wait_until(lambda number=batch: third.plan(number))  # type: ignore[misc]
        third.whole(batch)
    assert (scene.rows(), scene.backlog()) == (["a", "b"], 0)


@proves("SPQ.8")
def test_a_batch_without_rows_settles_its_messages_and_supersedes_the_driver_before(scene: Scene, begin: Begin) -> None:
    first = begin()
    scene.send("a")
    assert first.plan(0)
    first.read(0)
    first.commit(0, first.write(0, []))
    assert (scene.rows(), scene.backlog()) == ([], 0)
    listing = scene.admin.describe_transaction(STREAM_PREFIX + _task.query_id).listing
    assert (listing.last_committed_generation, listing.state) == (0, "idle")


@proves("SPQ.9")
def test_another_sink_has_its_messages_accepted_when_the_batch_is_done(scene: Scene, begin: Begin) -> None:
    driver = begin(maxOffsetsPerTrigger="1")
    scene.send("a", "b")
    assert driver.plan(0)
    assert sum(part.num_rows for part in driver.read(0)) == 2, "a trigger Once has no limit"
    assert scene.backlog() == 2
    assert not driver.plan(1)
    assert scene.backlog() == 0


@proves("SPQ.10")
def test_an_offered_batch_that_spark_has_not_used_is_offered_again(scene: Scene, begin: Begin) -> None:
    driver = begin()
    scene.send("a")
    start = driver.reader.initialOffset()
    end = driver.reader.latestOffset(start, ReadAllAvailable())
    assert driver.reader.latestOffset(start, ReadAllAvailable()) == end != start


@proves("SPQ.11")
def test_a_checkpoint_of_another_queue_and_a_sink_of_another_queue_are_refused(scene: Scene, begin: Begin) -> None:
    driver = begin()
    scene.send("a")
    assert driver.plan(0)
    written = driver.write(0, driver.read(0))
    scene.queue = "other"
    with pytest.raises(InvalidOption, match="no source of the query reads this queue"):
        driver.commit(0, written)
    with pytest.raises(InvalidOption, match="the checkpoint is of queue"):
        begin().plan(1)


@proves("SPQ.4")
def test_locks_are_renewed_while_a_batch_is_under_way(scene: Scene, begin: Begin) -> None:
    scene.lock(SHORT_LOCK_MS)
    driver = begin()
    scene.send("a")
    assert driver.plan(0)
    written = driver.write(0, driver.read(0))
    with QueueConsumer({**scene.servers, "queue": scene.queue}) as worker:
        worker.subscribe([scene.source])
        assert worker.poll(timeout=3 * SHORT_LOCK_MS / 1000) == []
    driver.commit(0, written)
    assert (scene.rows(), scene.backlog()) == (["a"], 0)
    driver.die()


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def _die_settling(driver: Driver) -> None:
    """The driver plans a batch, settles its messages in the transaction of its rows, and dies before the commit."""
    assert driver.plan(0)
    written = driver.write(0, driver.read(0))
    with driver.patched.context() as dying:
        dying.setattr("pyspark_minilog.writing.write_task._carry_out", _dies)
        with pytest.raises(KeyboardInterrupt):
            driver.commit(0, written)
    driver.die()


def _leases(scene: Scene) -> bool:
    places = scene.admin.describe_queue(scene.queue).partitions
    return any(part.state == "leased" for place in places for part in place.ranges)
