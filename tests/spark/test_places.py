"""Where a query begins and ends: timestamps, relative places, and how a range is cut into tasks."""

from __future__ import annotations

import json
import pathlib

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from tests.cluster import Cluster
from tests.rules import proves
from tests.spark.kit import Collected, Kit, failing_at, read_bytes, run_available, values, wait_until

DAY_MS = 1_700_000_000_000


@pytest.fixture
def timed(kit: Kit) -> str:
    """Ten records a second apart in each of two partitions, each partition one stored batch."""
    topic = kit.topic(partitions=2)
    for partition, name in enumerate("ab"):
        kit.send_timed(topic, [(f"{name}{n}", DAY_MS + n * 1000) for n in range(10)], partition)
    return topic


@proves("SPO.4")
def test_timestamps_bound_a_batch_at_the_very_record(kit: Kit, timed: str) -> None:
    found = kit.read(subscribe=timed, startingTimestamp=DAY_MS + 7_500, endingTimestamp=DAY_MS + 9_000)
    assert values(found) == ["a8", "b8"]
    each = {timed: {"0": DAY_MS + 8_000, "1": DAY_MS + 1}}
    # a timestamp for all wins over those of each partition, and these win over offsets
    found = kit.read(subscribe=timed, startingOffsetsByTimestamp=json.dumps(each), startingOffsets="latest")
    assert values(found) == ["a8", "a9", *(f"b{n}" for n in range(1, 10))]
    found = kit.read(subscribe=timed, endingOffsetsByTimestamp=json.dumps(each), startingTimestamp=DAY_MS)
    assert values(found) == [*(f"a{n}" for n in range(8)), "b0"]


@proves("SPO.4")
def test_where_no_record_is_that_young_a_start_fails_or_is_latest_and_an_end_is_latest(kit: Kit, timed: str) -> None:
    late = DAY_MS + 60_000
    with pytest.raises(PySparkException, match=f"all records of {timed}-0, {timed}-1 are older: give an earlier"):
        kit.read(subscribe=timed, startingTimestamp=late).count()
    frame = kit.read(subscribe=timed, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert frame.count() == 0
    assert kit.read(subscribe=timed, endingTimestamp=late).count() == 20


@proves("SPK.2")
def test_a_relative_start_counts_records_or_time(kit: Kit, timed: str) -> None:
    assert values(kit.read(subscribe=timed, startingOffsets="-3")) == ["a7", "a8", "a9", "b7", "b8", "b9"]
    assert kit.read(subscribe=timed, startingOffsets="-1000").count() == 20
    assert kit.read(subscribe=timed, startingOffsets="-10m").count() == 0
    kit.send(timed, ["new"])
    assert values(kit.read(subscribe=timed, startingOffsets="-10m")) == ["new"]


@proves("SPO.18")
def test_a_stream_starts_there_once_and_then_from_its_checkpoint(kit: Kit, timed: str, tmp_path: pathlib.Path) -> None:
    collected = Collected()
    run_available(kit.read_stream(subscribe=timed, startingTimestamp=DAY_MS + 7_500), collected, tmp_path)
    assert collected.values == ["a8", "a9", "b8", "b9"]
    kit.send(timed, ["c"])
    run_available(kit.read_stream(subscribe=timed, startingOffsets="-1000"), collected, tmp_path)
    assert collected.values == ["a8", "a9", "b8", "b9", "c"]


@proves("SPF.13")
def test_a_first_batch_is_replayed_though_its_start_fits_no_longer(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c"])
    frame = kit.read_stream(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 1}}))
    failed, collected = Collected(), Collected()
    with pytest.raises(StreamingQueryException):
        run_available(frame, failing_at(0, failed), tmp_path)
    kit.admin.alter_topic(topic, num_partitions=2)
    wait_until(lambda: len(kit.admin.describe_topics([topic])[0].partitions) == 2)
    kit.send(topic, ["d"], partition=1)
    run_available(frame, collected, tmp_path)
    assert collected.batches[0] == failed.batches[0]
    assert collected.values == ["b", "c", "d"]


@proves("SPB.1")
def test_latest_is_resolved_at_the_first_action_and_stays_fixed(kit: Kit) -> None:
    topic = kit.topic()
    kit.send(topic, ["a"])
    frame = kit.read(subscribe=topic)
    kit.send(topic, ["b"])
    assert values(frame) == ["a", "b"]
    kit.send(topic, ["c"])
    assert values(frame) == ["a", "b"]
    assert values(kit.read(subscribe=topic)) == ["a", "b", "c"]


@proves("SPO.9")
def test_at_most_so_many_records_are_one_task_and_each_is_read_once(kit: Kit) -> None:
    topic = kit.topic(partitions=2)
    kit.send(topic, map(str, range(250)), partition=0)
    kit.send(topic, map(str, range(250, 260)), partition=1)
    frame = kit.read(subscribe=topic, maxRecordsPerPartition=100)
    assert frame.rdd.getNumPartitions() == 4
    places = [(row.partition, row.offset) for row in frame.collect()]
    assert sorted(places) == [(0, n) for n in range(250)] + [(1, n) for n in range(10)]
    assert kit.read(subscribe=topic, maxRecordsPerPartition=100, minPartitions=7).rdd.getNumPartitions() == 7


@proves("SPK.3")
def test_a_read_fetches_only_what_lies_between_start_and_end(kit: Kit, cluster: Cluster) -> None:
    topic = kit.topic(partitions=2)
    for partition in range(2):
        for _ in range(4):
            kit.send(topic, ["x" * 10_000] * 100, partition=partition)
    wait_until(lambda: all(len(each.isr) == 3 for each in kit.admin.describe_topics([topic])[0].partitions))
    before = sum(read_bytes(cluster, each) for each in cluster.processes)
    frame = kit.read(assign=json.dumps({topic: [1]}), startingOffsets="-5")
    assert frame.select("partition", "offset").collect() == [(1, offset) for offset in range(395, 400)]
    assert sum(read_bytes(cluster, each) for each in cluster.processes) - before < 2_000_000, "of 8,000,000"
