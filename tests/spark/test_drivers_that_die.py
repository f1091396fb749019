"""A batch write whose driver dies at any point, or comes back as a zombie: all of it, once, or nothing.

The writer is driven as Spark drives it, in this process, so that it can stop anywhere between two calls.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from minilog import Admin, Consumer, NewTopic, TopicPartition
from minilog.errors import ProducerFenced
from pyspark_minilog import DefaultSource, clients
from pyspark_minilog.write_task import BatchWriter
from tests.cluster import Cluster

SCHEMA = StructType().add("value", StringType())
Messages = list[WriterCommitMessage | None]


class Write:
    """One `df.write` of one driver, under a name and a version."""

    def __init__(self, cluster: Cluster, topic: str, version: int = 0) -> None:
        self._servers = cluster.bootstrap_servers
        self._topic = topic
        self._version = version

    def begin(self) -> BatchWriter:
        options = {"bootstrap.servers": self._servers, "topic": self._topic}
        name = {"transactionalid": f"{self._topic}-write", "transactionversion": str(self._version)}
        return DefaultSource({**options, **name}).writer(SCHEMA, overwrite=False)

    @staticmethod
    def task(writer: BatchWriter, *rows: str) -> WriterCommitMessage:
        """What a task does with the writer that came to it, and reports."""
        sent: BatchWriter = pickle.loads(pickle.dumps(writer))
        return sent.write(iter([pa.RecordBatch.from_pydict({"value": list(rows)})]))


@pytest.fixture
def topic(admin: Admin, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.replace("_", "-")
    admin.create_topics([NewTopic(name, num_partitions=1)])
    yield name
    for client in clients._idle.values():
        client.close()
    clients._idle.clear()


def visible(cluster: Cluster, admin: Admin, topic: str) -> list[str]:
    """All that a reader sees, up to where nothing holds it up."""
    partition = admin.describe_topics([topic])[0].partitions[0]
    end = partition.last_stable_offset
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "error"}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0, end_offset=end)])
        found: list[str] = []
        while not consumer.finished():
            found += [record.value.decode() for record in consumer.poll(timeout=1.0) if record.value is not None]
    return sorted(found)


def held_up(admin: Admin, topic: str) -> bool:
    partition = admin.describe_topics([topic])[0].partitions[0]
    return partition.last_stable_offset != partition.high_watermark


def test_a_driver_that_died_before_its_commit_leaves_nothing(cluster: Cluster, admin: Admin, topic: str) -> None:
    write = Write(cluster, topic)
    write.task(write.begin(), "a", "b")
    assert visible(cluster, admin, topic) == []
    again = write.begin()  # another driver
    again.commit([write.task(again, "a", "b")])
    assert visible(cluster, admin, topic) == ["a", "b"]
    assert not held_up(admin, topic)


def test_a_driver_that_died_after_its_commit_leaves_everything(
    cluster: Cluster, admin: Admin, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    write = Write(cluster, topic)
    writer = write.begin()
    writer.commit([write.task(writer, "a"), write.task(writer, "b")])
    again = write.begin()
    again.commit([write.task(again, "a"), write.task(again, "b")])
    assert visible(cluster, admin, topic) == ["a", "b"]
    assert "was committed by a run before this one: 2 rows are not written again" in caplog.text


def test_a_driver_that_was_taken_for_dead_is_refused(cluster: Cluster, admin: Admin, topic: str) -> None:
    write = Write(cluster, topic)
    zombie = write.begin()
    reported: Messages = [write.task(zombie, "of the zombie")]
    other = write.begin()
    with pytest.raises(ProducerFenced):
        zombie.commit(reported)
    zombie.abort(reported)
    with pytest.raises(ProducerFenced):
        write.task(zombie, "of a task of the zombie")
    other.commit([write.task(other, "of the other")])
    assert visible(cluster, admin, topic) == ["of the other"]


def test_an_abort_after_a_commit_that_took_place_changes_nothing(
    cluster: Cluster, admin: Admin, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark calls it where `commit` has raised, whatever became of the commit."""
    write = Write(cluster, topic)
    writer = write.begin()
    reported: Messages = [write.task(writer, "a")]
    writer.commit(reported)
    writer.abort(reported)
    assert visible(cluster, admin, topic) == ["a"]
    assert "was to be aborted, and is committed: nothing has changed" in caplog.text


def test_a_task_that_nobody_names_leaves_nothing_visible(cluster: Cluster, admin: Admin, topic: str) -> None:
    """A speculative attempt that Spark did not let win, and one that failed and was run again."""
    write = Write(cluster, topic)
    writer = write.begin()
    write.task(writer, "of the loser")
    writer.commit([write.task(writer, "of the winner")])
    assert visible(cluster, admin, topic) == ["of the winner"]
    assert not held_up(admin, topic)


def test_a_write_that_is_aborted_leaves_nothing_and_its_version_can_be_written(
    cluster: Cluster, admin: Admin, topic: str
) -> None:
    write = Write(cluster, topic, version=7)
    writer = write.begin()
    writer.abort([write.task(writer, "a"), None])
    again = write.begin()
    again.commit([write.task(again, "b")])
    assert visible(cluster, admin, topic) == ["b"]
