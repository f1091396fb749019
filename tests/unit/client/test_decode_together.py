"""Threads decode runs, and the outcome is that of one thread (client/minilog/consumer/decode_together.py)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from minilog.consumer.decode import DecodedRuns, decode_all
from minilog.consumer.decode_together import decode_together
from minilog.consumer.partition import FetchedRun
from minilog.errors import CorruptMessage
from minilog.types import TopicPartition
from tests.unit.client.brokers import TOPIC, Brokers
from tests.unit.client.consuming import Consuming, fill

_ALL = 1 << 40


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(3) as pool:
        yield pool


def taken(*batches: int) -> tuple[Consuming, list[FetchedRun]]:
    """All runs of two partitions, each batch in a run of its own."""
    cluster = Consuming(Brokers(partitions=2))
    cluster.core.assign({TopicPartition(TOPIC, 0): 0, TopicPartition(TOPIC, 1): 0})
    cluster.run()
    for count in batches:
        for partition in (0, 1):
            fill(cluster.brokers, count, partition=partition)
        cluster.push()
    return cluster, cluster.core.take(_ALL)


def damaged(run: FetchedRun) -> FetchedRun:
    content = bytearray(run.batches)
    content[-1] ^= 1
    return replace(run, batches=bytes(content))


def rows(found: DecodedRuns) -> dict[int, list[int]]:
    offsets: dict[int, list[int]] = {0: [], 1: []}
    for run, every in found:
        for each in every:
            assert isinstance(each, pa.RecordBatch)
            offsets[run.partition.partition] += each.column("offset").to_pylist()
    return offsets


def test_each_partition_comes_in_its_order(executor: Executor) -> None:
    _, runs = taken(3, 2, 4)
    assert len(runs) == 6
    outcome = decode_together(runs, _ALL, executor)
    assert rows(outcome.good) == {0: list(range(9)), 1: list(range(9))}
    assert not outcome.corrupt
    assert not outcome.rest


def test_behind_a_run_that_is_broken_nothing_of_its_partition_counts(executor: Executor) -> None:
    _, runs = taken(3, 2, 4)
    at = next(place for place, run in enumerate(runs) if run.partition.partition == 1 and run.start_offset == 3)
    runs[at] = damaged(runs[at])
    outcome = decode_together(runs, _ALL, executor)
    assert rows(outcome.good) == {0: list(range(9)), 1: [0, 1, 2]}
    assert [(run, type(error)) for run, error in outcome.corrupt] == [(runs[at], CorruptMessage)]
    assert [run for run, _ in outcome.corrupt] == [run for run, _ in decode_all(runs, _ALL).corrupt]


def test_batches_that_are_not_decoded_come_again_in_their_order(executor: Executor) -> None:
    cluster = Consuming(Brokers())
    cluster.core.assign({TopicPartition(TOPIC, 0): 0})
    cluster.run()
    for counts in ((3, 2), (4,)):
        fill(cluster.brokers, *counts)
        cluster.push()
    found: list[int] = []
    while runs := cluster.core.take(_ALL):
        outcome = decode_together(runs, 1, executor)  # one batch of each run
        found += rows(outcome.good)[0]
        cluster.core.put_back(outcome.rest)
    assert found == list(range(9))
