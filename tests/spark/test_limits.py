"""How much a micro-batch reads: limits on offsets, bytes and time, under each trigger, over restarts and in a union."""

from __future__ import annotations

import pathlib
import time

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from tests.rules import proves
from tests.spark.kit import Collected, Kit, failing_at, run_available, run_once, start, wait_until

LARGE = "x" * 10_000


@proves("SPO.7")
def test_a_small_batch_is_held_back_until_there_is_enough_or_the_delay_is_over(
    kit: Kit, tmp_path: pathlib.Path
) -> None:
    topic = kit.topic()
    kit.send(topic, ["first"])
    collected = Collected()
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 5}
    query = start(kit.read_stream(**options), collected, tmp_path)
    wait_until(lambda: len(collected.batches) == 1)
    kit.send(topic, ["a", "b"])
    time.sleep(0.8)
    assert len(collected.batches) == 1
    kit.send(topic, ["c", "d", "e"])
    wait_until(lambda: len(collected.batches) == 2)
    query.stop()
    query = start(kit.read_stream(**options, maxTriggerDelay="2s"), collected, tmp_path)
    kit.send(topic, ["last"])
    wait_until(lambda: len(collected.batches) == 3)
    query.stop()
    assert [len(batch) for _, batch in sorted(collected.batches.items())] == [1, 5, 1]


@proves("SPG.1")
def test_available_now_does_not_wait_for_more_and_keeps_the_maximum(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    kit.send(topic, [f"{n:02}" for n in range(10)])
    collected = Collected()
    frame = kit.read_stream(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=4, maxOffsetsPerTrigger=4)
    run_available(frame, collected, tmp_path)
    assert collected.counts() == [{0: 4}, {0: 4}, {0: 2}]


@proves("SPO.8")
def test_bytes_per_trigger_are_about_as_many_as_said(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic(partitions=3)
    for partition, count in enumerate((60, 30)):
        for round_ in range(count // 10):
            kit.send(topic, [f"{partition}-{round_}-{n}-{LARGE}" for n in range(10)], partition=partition)
    kit.send(topic, ["small"], partition=2)
    collected = Collected()
    frame = kit.read_stream(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger=300_000)
    run_available(frame, collected, tmp_path)
    sizes = [sum(len(value) for _, _, value in batch) for _, batch in sorted(collected.batches.items())]
    assert len(collected.values) == len(set(collected.values)) == 91
    assert max(sizes) < 400_000
    assert 3 <= len(sizes) <= 6
    first = collected.counts()[0]
    assert first[2] == 1, "the small one does not starve"
    assert 1.5 * first[1] <= first[0] <= 2.5 * first[1]


@proves("SPG.3")
def test_once_reads_all_without_limits_also_after_a_restart_in_the_middle(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b", "c"])
    failed, collected = Collected(), Collected()
    frame = kit.read_stream(
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=1,
        maxBytesPerTrigger=1,
    )
    with pytest.raises(StreamingQueryException):
        run_once(frame, failing_at(0, failed), tmp_path)
    kit.send(topic, ["d", "e"])
    run_once(frame, collected, tmp_path)
    assert collected.batches == failed.batches, "what was begun is replayed as it was, and is the one batch of its run"
    run_once(frame, collected, tmp_path)
    assert collected.counts() == [{0: 3}, {0: 2}]
    assert collected.values == ["a", "b", "c", "d", "e"]


@proves("SPG.1")
@pytest.mark.long
def test_available_now_goes_on_where_a_restart_in_the_middle_left_it(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic(partitions=2)
    kit.send(topic, [f"a{n}" for n in range(4)], partition=0)
    kit.send(topic, [f"b{n}" for n in range(4)], partition=1)
    collected, again = Collected(), Collected()
    frame = kit.read_stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    with pytest.raises(StreamingQueryException):
        run_available(frame, failing_at(1, collected), tmp_path)
    kit.send(topic, ["c"])
    run_available(frame, again, tmp_path)
    assert again.batches[1] == collected.batches[1]
    assert 0 not in again.batches
    first = {value for _, _, value in collected.batches[0]}
    assert len(first) == 4
    assert sorted([*first, *again.values]) == sorted([f"{name}{n}" for name in "ab" for n in range(4)] + ["c"])


@proves("SPG.2")
def test_available_now_fails_when_partitions_vanish_meanwhile(kit: Kit, tmp_path: pathlib.Path) -> None:
    prefix = kit.topic()
    gone, stays = kit.topic(name=f"{prefix}.gone"), kit.topic(name=f"{prefix}.stays")
    for topic in (gone, stays):
        kit.send(topic, ["a", "b", "c"])

    def delete(frame: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            kit.delete(gone)

    frame = kit.read_stream(subscribePattern=f"{prefix}\\..*", startingOffsets="earliest", maxOffsetsPerTrigger=2)
    with pytest.raises(StreamingQueryException, match=f"partitions {gone}-0 existed when the AvailableNow query began"):
        run_available(frame, delete, tmp_path)


@proves("SPG.4")
@pytest.mark.long
def test_two_limited_sources_in_a_union_keep_their_own_limits_and_offsets(kit: Kit, tmp_path: pathlib.Path) -> None:
    one, other = kit.topic(), kit.topic()
    kit.send(one, [f"a{n}" for n in range(4)])
    kit.send(other, [f"b{n}" for n in range(6)])
    frames = [
        kit.read_stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
        for topic, limit in ((one, 2), (other, 3))
    ]
    collected, again = Collected(), Collected()
    with pytest.raises(StreamingQueryException):
        run_available(frames[0].union(frames[1]), failing_at(1, collected), tmp_path)
    batches = [sorted(value for _, _, value in batch) for _, batch in sorted(collected.batches.items())]
    assert batches == [["a0", "a1", "b0", "b1", "b2"], ["a2", "a3", "b3", "b4", "b5"]]
    kit.send(other, ["b6"])
    run_available(frames[0].union(frames[1]), again, tmp_path)
    assert again.batches[1] == collected.batches[1]
    assert again.values == ["a2", "a3", "b3", "b4", "b5", "b6"]
