"""A scan whose brokers are killed, whose leaders change, and whose topic is deleted meanwhile, or whose records go by a
trim or by retention."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import minilog
from minilog import Admin, NewTopic, Producer, TopicPartition, schema_from_ddl
from minilog.errors import OffsetOutOfRange, UnknownTopicId
from tests.cluster import Cluster, running_cluster
from tests.integration.moving import leaders, wait_in_sync, wait_until

PARTITIONS = 3
ROWS = 30_000  # of a partition
SETTINGS = {"broker.session.timeout.ms": "1500", "log.retention.check.interval.ms": "200"}
COLUMNS = ["number", "_partition", "_offset"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("faults"), settings=SETTINGS) as running:
        yield running


def fill(cluster: Cluster, topic: str, replicas: int = 1) -> None:
    """Small batches, so that a scan takes many turns, and small segments."""
    schema = schema_from_ddl("number long, content string")
    with Admin(cluster.client) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, replicas, {"segment.bytes": "65536"}, schema=schema)])
    with Producer({**cluster.client, "batch.size": 16_000}) as producer:
        for partition in range(PARTITIONS):
            numbers = pa.array(range(partition * ROWS, (partition + 1) * ROWS))
            rows = pa.table({"number": numbers, "content": pa.array(["some content"] * ROWS)})
            producer.send_batch(topic, rows, partition).result(30)


def slow_scan(cluster: Cluster, topic: str) -> minilog.Scan:
    """With so little credit that most of the rows are not sent yet when the first ones come."""
    return minilog.scan(topic, COLUMNS, config={**cluster.client, "fetch.max.bytes": 20_000})


def some_rows(reader: pa.RecordBatchReader, count: int) -> list[pa.RecordBatch]:
    """The next batches, of at least `count` rows together."""
    batches = list[pa.RecordBatch]()
    while sum(batch.num_rows for batch in batches) < count:
        batches.append(reader.read_next_batch())
    return batches


def check_all_rows_once(batches: list[pa.RecordBatch]) -> None:
    """Each partition has every row once, in the order of its offsets."""
    rows = pa.Table.from_batches(batches)
    for partition in range(PARTITIONS):
        mine = rows.filter(pc.equal(rows.column("_partition"), partition))
        assert mine.column("_offset").to_pylist() == list(range(ROWS))
        assert mine.column("number").to_pylist() == list(range(partition * ROWS, (partition + 1) * ROWS))


def check_no_holes(batches: list[pa.RecordBatch]) -> None:
    """What came is the beginning of each partition."""
    rows = pa.Table.from_batches(batches)
    assert rows.num_rows < PARTITIONS * ROWS
    for partition in range(PARTITIONS):
        offsets = rows.filter(pc.equal(rows.column("_partition"), partition)).column("_offset").to_pylist()
        assert offsets == list(range(len(offsets)))


@pytest.mark.timeout(180)
def test_every_row_comes_once_through_kills_and_changes_of_leaders(cluster: Cluster) -> None:
    fill(cluster, "numbers", replicas=3)
    scan, place = slow_scan(cluster, "numbers"), TopicPartition("numbers", 0)
    reader = scan.to_arrow_batch_reader()
    batches = some_rows(reader, 3_000)

    killed = leaders(cluster, "numbers")[0]
    assert killed is not None
    cluster.kill(killed)
    batches += some_rows(reader, 20_000)
    wait_until(lambda: leaders(cluster, "numbers")[0] not in (None, killed))

    cluster.start(killed)
    cluster.wait_running()
    wait_in_sync(cluster, "numbers")
    with Admin(cluster.client) as admin:
        assert admin.elect_leaders([place])[place] is None
    assert leaders(cluster, "numbers")[0] == killed
    batches += some_rows(reader, 20_000)

    cluster.kill(killed)
    assert pc.sum(pc.equal(pa.Table.from_batches(batches).column("_partition"), 0)).as_py() < ROWS
    batches += list(reader)
    check_all_rows_once(batches)

    first = scan.to_arrow()
    check_all_rows_once(first.to_batches())
    cluster.start(killed)
    cluster.wait_running()
    assert scan.to_arrow() == first
    assert scan.count() == PARTITIONS * ROWS


def test_a_trim_that_overtakes_a_scan_is_an_error_and_never_a_hole(cluster: Cluster) -> None:
    fill(cluster, "trimmed")
    scan = slow_scan(cluster, "trimmed")
    reader = scan.to_arrow_batch_reader()
    batches = some_rows(reader, 3_000)
    with Admin(cluster.client) as admin:
        admin.delete_records({TopicPartition("trimmed", 1): ROWS - 10})
    with pytest.raises(OffsetOutOfRange, match="partition 1 of topic 'trimmed' has offsets 29990 to 30000"):
        batches.extend(reader)
    check_no_holes(batches)
    with pytest.raises(OffsetOutOfRange):
        scan.count()
    with Admin(cluster.client) as admin:  # what was not trimmed is still there
        assert admin.list_offsets({TopicPartition("trimmed", 0): "earliest"}) == {TopicPartition("trimmed", 0): 0}
    assert slow_scan(cluster, "trimmed").count() == (PARTITIONS - 1) * ROWS + 10


def first_offsets(cluster: Cluster, topic: str) -> list[int]:
    """Where the partitions begin."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Admin(cluster.client) as admin:
        offsets = admin.list_offsets(dict.fromkeys(partitions, "earliest"))
    return [offsets[partition] or 0 for partition in partitions]


def keep(cluster: Cluster, topic: str, **configs: str) -> None:
    """Let retention remove records of each partition."""
    with Admin(cluster.client) as admin:
        admin.alter_topic(topic, set_configs={name.replace("_", "."): value for name, value in configs.items()})
    wait_until(lambda: all(first_offsets(cluster, topic)))


@pytest.mark.parametrize("bound", ["retention_bytes", "retention_ms"])
def test_retention_that_overtakes_a_scan_is_an_error_and_never_a_hole(cluster: Cluster, bound: str) -> None:
    topic = bound.replace("_", "-")
    fill(cluster, topic)
    scan = slow_scan(cluster, topic)
    reader = scan.to_arrow_batch_reader()
    batches = some_rows(reader, 3_000)
    keep(cluster, topic, **{bound: "70000" if bound == "retention_bytes" else "1"})
    with pytest.raises(
        OffsetOutOfRange, match=rf"of topic '{topic}' has offsets \d+ to 30000 now.* Start the read anew"
    ):
        batches.extend(reader)
    check_no_holes(batches)
    for read in (scan.count, scan.to_arrow):  # what was promised is not there, so no read of it gives less
        with pytest.raises(OffsetOutOfRange, match="this read still needs 0 to 30000"):
            read()
    assert slow_scan(cluster, topic).count() == PARTITIONS * ROWS - sum(first_offsets(cluster, topic))


def test_retention_behind_a_scan_takes_nothing_from_it(cluster: Cluster) -> None:
    fill(cluster, "behind")
    reader = slow_scan(cluster, "behind").to_arrow_batch_reader()
    batches = some_rows(reader, 60_000)
    keep(cluster, "behind", retention_bytes="600000")
    batches += list(reader)
    check_all_rows_once(batches)


def test_a_topic_that_is_deleted_meanwhile_is_an_error_and_never_a_hole(cluster: Cluster) -> None:
    fill(cluster, "deleted")
    reader = slow_scan(cluster, "deleted").to_arrow_batch_reader()
    batches = some_rows(reader, 3_000)
    with Admin(cluster.client) as admin:
        admin.delete_topics(["deleted"])
    fill(cluster, "deleted")  # another topic of this name does not go on for it
    with pytest.raises(UnknownTopicId, match="deleted"):
        batches.extend(reader)
    check_no_holes(batches)
