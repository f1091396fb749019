"""A poll is bounded by what batches become in memory, not by what they are on the wire."""

from __future__ import annotations

import pyarrow as pa
import pytest

from minilog.consumer.decode import DecodeOutcome, decode, decode_all
from minilog.consumer.partition import FetchedRun
from minilog.errors import CorruptMessage, ResourceExhausted
from minilog.record_batch.builder import build_batch, records_to_columns
from minilog.types import TopicPartition
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers
from tests.unit.client.consuming import Consuming, fill
from tests.unit.record_batch.batches import counted_memory

MIB = 1 << 20
BATCHES, ROWS = 20, 2_000  # each 2 MiB when decoded, some hundred bytes on the wire


def reading(brokers: Brokers, partitions: int = 1) -> Consuming:
    cluster = Consuming(brokers, auto_offset_reset="earliest")
    cluster.core.assign([TopicPartition(TOPIC, number) for number in range(partitions)])
    cluster.run()
    return cluster


def bombs(brokers: Brokers, partition: int = 0) -> None:
    log = brokers.log(partition)
    columns = records_to_columns([bytes(1000)] * ROWS, None, [9] * ROWS, None)
    for _ in range(BATCHES):
        log.append(build_batch(TOPIC_ID, partition, columns, compression="zstd"))


def of_bombs() -> Consuming:
    """A consumer to which they have come."""
    brokers = Brokers()
    bombs(brokers)
    cluster = reading(brokers)
    cluster.push()
    return cluster


def take_one_run() -> FetchedRun:
    cluster = of_bombs()
    [run] = cluster.core.take(1 << 30)
    assert len(run.batches) < MIB
    return run


def polled(cluster: Consuming, max_bytes: int, record_bytes: int = 0) -> DecodeOutcome:
    """What the consumers do with what they take."""
    outcome = decode_all(cluster.core.take(1 << 30), max_bytes, record_bytes)
    cluster.core.put_back(outcome.rest)
    cluster.core.runs_are_corrupt(outcome.corrupt, cluster.now)
    return outcome


def offsets(outcome: DecodeOutcome) -> list[int]:
    return [offset for _, found in outcome.good for rows in found for offset in rows.column("offset").to_pylist()]


def test_a_poll_decodes_no_more_than_its_bound_and_one_batch() -> None:
    run = take_one_run()
    with counted_memory() as memory:
        decoded = decode(run, 3 * MIB)
        assert [rows.num_rows for rows in decoded.rows] == [ROWS, ROWS]
        assert memory.max_memory() < 3 * MIB + 2.1 * MIB
    assert decoded.rest is not None
    assert (decoded.rest.start_offset, decoded.rest.end_offset) == (2 * ROWS, BATCHES * ROWS)


def test_every_record_is_handed_out_once_and_the_position_is_behind_it() -> None:
    brokers = Brokers(partitions=2)
    bombs(brokers)
    bombs(brokers, 1)
    cluster = reading(brokers, 2)
    cluster.push()
    seen: dict[int, list[int]] = {0: [], 1: []}
    while (outcome := polled(cluster, 3 * MIB)).good:
        for run, found in outcome.good:
            seen[run.partition.partition] += [each for rows in found for each in rows.column("offset").to_pylist()]
        for number, at in seen.items():
            assert cluster.core.position(TopicPartition(TOPIC, number)) == len(at)
    assert seen == {0: list(range(BATCHES * ROWS)), 1: list(range(BATCHES * ROWS))}


def test_records_count_what_they_take_in_python() -> None:
    """Rows of a few bytes each: a batch of 8 MiB may have a million of them, 300 bytes each as objects."""
    brokers = Brokers()
    fill(brokers, 1000, 1000)
    cluster = reading(brokers)
    cluster.push()
    first = polled(cluster, 32_000, record_bytes=320)
    assert 80 <= len(offsets(first)) <= 100
    found = offsets(first)
    while (outcome := polled(cluster, 32_000, record_bytes=320)).good:
        assert len(offsets(outcome)) <= 100
        found += offsets(outcome)
    assert found == list(range(2000))


def test_even_one_record_above_the_bound_is_handed_out() -> None:
    brokers = Brokers()
    fill(brokers, 3)
    cluster = reading(brokers)
    cluster.push()
    assert [offsets(polled(cluster, 1, record_bytes=320)) for _ in range(3)] == [[0], [1], [2]]


def test_a_seek_drops_what_was_put_back() -> None:
    cluster = of_bombs()
    polled(cluster, 3 * MIB)
    cluster.core.seek(TopicPartition(TOPIC, 0), 10)
    cluster.run()
    cluster.push()
    assert offsets(polled(cluster, 1))[:1] == [10]


def test_a_run_that_was_put_back_is_still_held_and_earns_no_credit() -> None:
    cluster = of_bombs()
    [run] = cluster.core.take(1 << 30)
    held = run.session.given_back_bytes
    cluster.core.put_back([run])
    assert run.session.given_back_bytes == held - len(run.batches)
    assert cluster.core.waiting_bytes() == len(run.batches)


def test_want_of_memory_moves_nothing_and_blames_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: three times, and the topic was said to be damaged."""
    cluster = of_bombs()

    def starved(*_: object) -> pa.RecordBatch:
        raise pa.ArrowMemoryError("malloc of size 2097152 failed")

    with monkeypatch.context() as patched:
        patched.setattr(pa.ipc, "read_record_batch", starved)
        for _ in range(5):
            outcome = polled(cluster, 3 * MIB)
            assert (outcome.good, outcome.corrupt) == ([], [])
            assert isinstance(outcome.lack, ResourceExhausted)
    assert cluster.core.position(TopicPartition(TOPIC, 0)) == 0
    assert offsets(polled(cluster, 1)) == list(range(ROWS))


def test_records_before_a_damaged_batch_are_handed_out() -> None:
    brokers = Brokers()
    fill(brokers, 3, 3)
    cluster = reading(brokers)
    first, behind, damaged = brokers.log().batches[1]
    brokers.log().batches[1] = (first, behind, damaged[:-1] + bytes([damaged[-1] ^ 1]))
    cluster.push()
    assert offsets(polled(cluster, MIB)) == [0, 1, 2]
    outcome = polled(cluster, MIB)
    assert [type(error) for _, error in outcome.corrupt] == [CorruptMessage]
    assert cluster.core.position(TopicPartition(TOPIC, 0)) == 3
