"""A batch write whose driver dies at any point, or comes back as a zombie: all of it, once, or nothing.

The writer is driven as Spark drives it, in this process, so that it can stop anywhere between two calls.
"""

from __future__ import annotations

import datetime
import json
import pathlib
import pickle
import re
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructType, TimestampType

from minilog import Admin, Consumer, NewTopic, TopicPartition
from minilog.errors import ProducerFenced
from pyspark_minilog import DefaultSource
from pyspark_minilog.login import clients
from pyspark_minilog.writing import write_task
from pyspark_minilog.writing.sink_protocol import stream_attempt
from pyspark_minilog.writing.write_task import BatchWriter, StreamWriter, write_part
from tests.cluster import Cluster
from tests.rules import proves
from tests.spark.kit import wait_until

pytestmark = proves("SPF.28", "SPS.21")

SCHEMA = StructType().add("value", StringType())
Messages = list[WriterCommitMessage | None]


class Write:
    """One `df.write` under a name and a version, of one driver after the other."""

    def __init__(self, cluster: Cluster, admin: Admin, topic: str) -> None:
        self.servers, self.admin, self.topic = cluster.bootstrap_servers, admin, topic
        admin.create_topics([NewTopic(topic, num_partitions=1)])

    def begin(self) -> BatchWriter:
        options = {"bootstrap.servers": self.servers, "topic": self.topic}
        name = {"transactionalid": f"{self.topic}-write", "transactionversion": "7"}
        writer = DefaultSource({**options, **name}).writer(SCHEMA, overwrite=False)
        assert isinstance(writer, BatchWriter)
        return writer

    @staticmethod
    def task(writer: BatchWriter, *rows: str) -> WriterCommitMessage:
        """What a task does with the writer that came to it, and reports."""
        sent: BatchWriter = pickle.loads(pickle.dumps(writer))
        return sent.write(iter([pa.RecordBatch.from_pydict({"value": list(rows)})]))

    def visible(self) -> list[str]:
        """All that a reader sees, up to where nothing holds it up."""
        end = self.admin.describe_topics([self.topic])[0].partitions[0].last_stable_offset
        with Consumer({"bootstrap.servers": self.servers, "auto.offset.reset": "error"}) as consumer:
            consumer.assign([TopicPartition(self.topic, 0, 0, end_offset=end)])
            found: list[str] = []
            while not consumer.finished():
                found += [record.value.decode() for record in consumer.poll(timeout=1.0) if record.value is not None]
        return sorted(found)

    def held_up(self) -> bool:
        partition = self.admin.describe_topics([self.topic])[0].partitions[0]
        return partition.last_stable_offset != partition.high_watermark


@pytest.fixture
def write(cluster: Cluster, admin: Admin, request: pytest.FixtureRequest) -> Iterator[Write]:
    yield Write(cluster, admin, re.sub("[^a-zA-Z0-9]+", "-", request.node.name))
    for client in list(clients._idle.values()):
        client.close()
    clients._idle.clear()


def test_a_driver_that_died_before_its_commit_leaves_nothing(write: Write) -> None:
    write.task(write.begin(), "a", "b")
    assert write.visible() == []
    again = write.begin()  # another driver
    again.commit([write.task(again, "a", "b")])
    assert write.visible() == ["a", "b"]
    assert not write.held_up()


def test_a_driver_that_died_after_its_commit_leaves_everything(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    writer = write.begin()
    writer.commit([write.task(writer, "a"), write.task(writer, "b")])
    again = write.begin()
    again.commit([write.task(again, "a"), write.task(again, "b")])
    assert write.visible() == ["a", "b"]
    assert ": this run does not write its 2 rows again" in caplog.text


@proves("SPS.18")
def test_a_task_that_waits_for_its_first_row_keeps_the_transaction_alive(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_task, "_EARLY_S", 0.05)
    writer, name = write.begin(), f"{write.topic}-write:{write.topic}"

    def enlisted() -> int:
        return write.admin.describe_transaction(name).listing.producer_count

    def late(*rows: str) -> Iterator[pa.RecordBatch]:
        known = enlisted()
        wait_until(lambda: enlisted() > known)
        yield from [pa.RecordBatch.from_pydict({"value": [each]}) for each in rows]

    reported: Messages = [writer.write(late("a", "b")), writer.write(late())]
    assert write.admin.describe_transaction(name).timeout_ms == 60_000
    writer.commit(reported)
    assert write.visible() == ["a", "b"]
    assert not write.held_up()


@proves("SPF.30")
@pytest.mark.parametrize("checkpoint", ["a folder", "s3a://bucket/c"])
def test_a_micro_batch_of_which_no_task_reports_is_aborted_by_its_own_driver_alone(
    write: Write,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    checkpoint: str,
) -> None:
    """Where the checkpoint can be read it says the query's id, else the coordinators are asked for all."""
    (tmp_path / "metadata").write_text(json.dumps({"id": write.topic}))
    folder = str(tmp_path) if checkpoint == "a folder" else checkpoint

    def writer(driver: str) -> StreamWriter:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", driver)
        options = {"bootstrap.servers": write.servers, "topic": write.topic, "checkpointlocation": folder}
        return DefaultSource(options).streamWriter(SCHEMA, overwrite=False)

    for_tasks = writer("/tmp/blockmgr-1")
    attempt = stream_attempt(write.topic, 7, "run", for_tasks._attempt_id)
    rows = iter([pa.RecordBatch.from_pydict({"value": ["a"]})])
    write_part(for_tasks._options, for_tasks._plan, rows, attempt)
    writer("/tmp/blockmgr-2").abort([None], 7)
    writer("/tmp/blockmgr-1").abort([None], 6)
    assert write.held_up()
    writer("/tmp/blockmgr-1").abort([None], 7)
    wait_until(lambda: not write.held_up())
    assert write.visible() == []


@proves("SPS.23")
def test_a_writer_of_rows_that_their_topic_no_longer_keeps_is_told(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write.admin.alter_topic(write.topic, set_configs={"retention.ms": "86400000"})
    options = {"bootstrap.servers": write.servers, "topic": write.topic}
    written = StructType().add("value", StringType()).add("Timestamp", TimestampType())
    for days, warnings in ((0, 0), (3, 1)):
        moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)
        rows = pa.RecordBatch.from_pydict({"value": ["a"], "Timestamp": pa.array([moment], pa.timestamp("us", "UTC"))})
        writer = DefaultSource(options).writer(written, overwrite=False)
        writer.commit([writer.write(iter([rows]))])
        assert caplog.text.count(f"were written to topic '{write.topic}', which keeps rows for 86400000 ms") == warnings


def test_a_driver_that_was_taken_for_dead_is_refused(write: Write) -> None:
    zombie = write.begin()
    reported: Messages = [write.task(zombie, "of the zombie")]
    other = write.begin()
    with pytest.raises(ProducerFenced):
        zombie.commit(reported)
    zombie.abort(reported)
    with pytest.raises(ProducerFenced):
        write.task(zombie, "of a task of the zombie")
    other.commit([write.task(other, "of the other")])
    assert write.visible() == ["of the other"]


@proves("SPF.29", "SPS.20")
def test_an_abort_after_a_commit_that_took_place_changes_nothing(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark calls it where `commit` has raised, whatever became of the commit."""
    writer = write.begin()
    reported: Messages = [write.task(writer, "a")]
    writer.commit(reported)
    writer.abort(reported)
    assert write.visible() == ["a"]
    assert "was committed before the abort came: nothing has changed" in caplog.text


@proves("SPS.7")
def test_a_task_that_nobody_names_leaves_nothing_visible(write: Write) -> None:
    """A speculative attempt that Spark did not let win, and one that failed and was run again."""
    writer = write.begin()
    write.task(writer, "of the loser")
    writer.commit([write.task(writer, "of the winner")])
    assert write.visible() == ["of the winner"]
    assert not write.held_up()


def test_a_write_that_is_aborted_leaves_nothing_and_its_version_can_be_written(write: Write) -> None:
    writer = write.begin()
    writer.abort([write.task(writer, "a"), None])
    again = write.begin()
    again.commit([write.task(again, "b")])
    assert write.visible() == ["b"]
