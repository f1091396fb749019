"""What is data loss and what is not: ends that went back, leaders that do not answer for a while."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from minilog import TopicPartition
from pyspark_minilog.errors import DataLoss
from pyspark_minilog.options.offsets import Partition, SourceOffset
from pyspark_minilog.options.table import parse_stream_options
from pyspark_minilog.reading.schema import arrow_source_schema
from pyspark_minilog.reading.stream_reader import StreamReader
from tests.cluster import Cluster
from tests.rules import proves
from tests.spark.kit import Collected, Kit, edit_checkpoint, run_available, values, wait_until

pytestmark = proves("SPO.10")


@proves("SPL.6")
def test_an_end_below_the_start_is_asked_for_again_then_reported_and_never_moved_back(
    kit: Kit, tmp_path: pathlib.Path
) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b"])
    collected = Collected()
    options = {"subscribe": topic, "startingOffsets": "earliest", "fetchOffset__numRetries": 2}
    run_available(kit.read_stream(**options), collected, tmp_path)
    edit_checkpoint(tmp_path, {topic: {"0": 5}})
    began_s = time.monotonic()
    with pytest.raises(
        StreamingQueryException,
        match=f"data was lost: partition {topic}-0 ends at offset 2, but the query has read to offset 5. Remedy",
    ):
        run_available(kit.read_stream(**options, fetchOffset__retryIntervalMs=600), collected, tmp_path)
    assert time.monotonic() - began_s >= 1.2
    going_on = kit.read_stream(**options, fetchOffset__retryIntervalMs=10, failOnDataLoss="false")
    run_available(going_on, collected, tmp_path)
    assert collected.values == ["a", "b"]
    kit.send(topic, ["c", "d", "e", "f", "g"])
    run_available(going_on, collected, tmp_path)
    assert collected.values == ["a", "b", "f", "g"], "offsets 0 to 5 were read, whatever they held"


@proves("SPL.4")
def test_a_range_that_was_trimmed_is_loss_with_topic_partition_and_both_offsets(
    kit: Kit, tmp_path: pathlib.Path
) -> None:
    topic = kit.topic(partitions=2)
    kit.send(topic, ["a", "b"])
    collected = Collected()
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    run_available(kit.read_stream(**options), collected, tmp_path)
    kit.send(topic, ["c", "d", "e", "f"])
    kit.admin.delete_records({TopicPartition(topic, 0): 4})
    with pytest.raises(
        StreamingQueryException,
        match=f"data was lost: offsets 2 to 4 of partition {topic}-0 .* starts at offset 4",
    ):
        run_available(kit.read_stream(**options), collected, tmp_path)
    assert collected.values == ["a", "b"]
    going_on = kit.read_stream(**options, failOnDataLoss="false")
    run_available(going_on, collected, tmp_path)
    assert collected.values == ["a", "b", "e", "f"], "what is there, once"
    kit.send(topic, ["g"])
    run_available(going_on, collected, tmp_path)
    assert collected.values == ["a", "b", "e", "f", "g"]


@pytest.mark.long
@proves("SPL.5")
@pytest.mark.parametrize("new", [pytest.param("partition", marks=pytest.mark.long), "topic"])
def test_records_of_a_new_partition_that_went_before_they_were_read_are_loss(
    kit: Kit, tmp_path: pathlib.Path, new: str
) -> None:
    topic = kit.topic()
    kit.send(topic, ["a"])
    collected = Collected()
    options = {"subscribePattern": f"{topic}.*", "startingOffsets": "earliest"}
    run_available(kit.read_stream(**options), collected, tmp_path)
    if new == "partition":
        kit.admin.alter_topic(topic, num_partitions=2)
        wait_until(lambda: len(kit.admin.describe_topics([topic])[0].partitions) == 2)
        added = TopicPartition(topic, 1)
    else:
        added = TopicPartition(kit.topic(name=f"{topic}-more"), 0)
    kit.send(added.topic, ["b", "c", "d"], partition=added.partition)
    kit.admin.delete_records({added: 2})
    with pytest.raises(
        StreamingQueryException,
        match=f"data was lost: partition {added.topic}-{added.partition} is new to this query, and offsets 0 to 2 are ",
    ):
        run_available(kit.read_stream(**options), collected, tmp_path)
    assert collected.values == ["a"]
    run_available(kit.read_stream(**options, failOnDataLoss="false"), collected, tmp_path)
    run_available(kit.read_stream(**options), collected, tmp_path)
    assert collected.values == ["a", "d"]


@proves("SPL.4")
def test_a_batch_read_of_a_trimmed_range_is_loss_and_without_the_option_what_is_there(kit: Kit) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c", "d"])
    kit.admin.delete_records({TopicPartition(topic, 0): 3})
    assert values(kit.read(subscribe=topic)) == ["d"], "earliest is the log start"
    wanted = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":1}}}}'}
    with pytest.raises(
        PySparkException, match=f"data was lost: .* of partition {topic}-0 was 1, but its log holds offsets 3 to 4"
    ):
        values(kit.read(**wanted))
    assert values(kit.read(**wanted, failOnDataLoss="false")) == ["d"]


@proves("SPL.4")
def test_trimming_what_a_query_has_read_is_no_loss(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b"])
    collected = Collected()
    frame = kit.read_stream(subscribe=topic, startingOffsets="earliest")
    run_available(frame, collected, tmp_path)
    kit.admin.delete_records({TopicPartition(topic, 0): -1})
    kit.send(topic, ["c"])
    run_available(frame, collected, tmp_path)
    assert collected.values == ["a", "b", "c"]


@proves("SPL.8")
def test_a_leader_that_hangs_is_not_shown_to_the_user(kit: Kit, cluster: Cluster) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b"])
    leader = kit.admin.describe_topics([topic])[0].partitions[0].leader
    assert leader is not None
    cluster.pause(leader)
    try:
        assert values(kit.read(subscribe=topic)) == ["a", "b"]
    finally:
        cluster.resume(leader)
        cluster.wait_running()


@proves("SPO.12")
def test_the_driver_asks_as_often_as_it_is_told(kit: Kit) -> None:
    def seconds(retries: int) -> float:
        options = {"fetchOffset.numRetries": retries, "fetchOffset.retryIntervalMs": 250}
        reader = kit.spark.read.format("minilog").option("bootstrap.servers", "127.0.0.1:1").option("subscribe", "t")
        reader = reader.option("minilog.request.timeout.ms", 100).options(**options)
        began_s = time.monotonic()
        with pytest.raises(PySparkException, match="BrokerNotAvailable"):
            reader.load()
        return time.monotonic() - began_s

    assert seconds(3) >= 3 * 0.25 + 4 * 0.1


def _read_in_one_task(
    kit: Kit, topic: str, ends: list[int], between: Callable[[], object], **options: str
) -> list[bytes]:
    """The values of all partitions up to `ends`, read by one task; `between` comes after it was planned."""
    given = {"kafka.bootstrap.servers": kit.servers, "subscribe": topic, **options}
    reader = StreamReader(parse_stream_options(given), arrow_source_schema(False))
    topic_ids = {topic: kit.admin.describe_topics([topic])[0].id}
    places = [{Partition(topic, n): at for n, at in enumerate(each)} for each in ([0] * len(ends), ends)]
    start, end = (SourceOffset(each, topic_ids).to_json() for each in places)
    (task,) = reader.partitions(start, end)
    between()
    return sorted(value for batch in reader.read(task) for value in batch.column("value").to_pylist())


def test_small_ranges_are_one_task_which_says_of_each_what_is_lost(kit: Kit) -> None:
    topic = kit.topic(partitions=3)
    for partition in range(3):
        kit.send(topic, [f"{partition}{n}" for n in range(4)], partition)
    assert len(_read_in_one_task(kit, topic, [4, 4, 4], lambda: None)) == 12

    def trim() -> None:
        kit.admin.delete_records({TopicPartition(topic, 1): 3})

    with pytest.raises(DataLoss, match=f"offsets 0 to 3 of partition {topic}-1 are not there any more"):
        _read_in_one_task(kit, topic, [4, 4, 4], trim)
    found = _read_in_one_task(kit, topic, [4, 4, 4], lambda: None, failOnDataLoss="false")
    assert found == [b"00", b"01", b"02", b"03", b"13", b"20", b"21", b"22", b"23"], "what is there, once"
    cut = _read_in_one_task(
        kit, topic, [4, 4, 6], lambda: None, failOnDataLoss="false", **{"minilog.request.timeout.ms": "1500"}
    )
    assert cut == found, "a log that ends below the range"


@pytest.mark.long
def test_a_task_of_several_ranges_takes_nothing_of_a_new_topic_of_the_name(kit: Kit) -> None:
    topic = kit.topic(partitions=2)
    for partition in range(2):
        kit.send(topic, ["old"], partition)

    def create_again() -> None:
        kit.delete(topic)
        kit.topic(partitions=2, name=topic)
        kit.send(topic, ["new"], 0)

    with pytest.raises(DataLoss, match="was deleted and created again"):
        _read_in_one_task(kit, topic, [1, 1], create_again)
