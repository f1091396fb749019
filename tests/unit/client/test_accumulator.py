"""Batching by linger.ms and batch.size, within buffer.memory."""

from __future__ import annotations

import random
from concurrent.futures import Future
from dataclasses import replace

import pyarrow as pa
import pytest

from minilog.errors import Closed, MessageTooLarge
from minilog.net.metadata_cache import MetadataCache
from minilog.partition_key import PartitionKey
from minilog.producer.accumulator import RECORD_OVERHEAD_BYTES, Accumulator, Taken
from minilog.producer.arguments import cut_columns
from tests.rules import proves
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers

CACHE = MetadataCache()
CACHE.apply(Brokers(partitions=3).metadata())
TOPIC_INFO = CACHE.topics[TOPIC]
KEY = PartitionKey(TOPIC_ID, 0)


def accumulator(batch_size: int = 1000, linger_ms: int = 5, buffer_memory: int = 10_000) -> Accumulator:
    return Accumulator(
        batch_size=batch_size,
        linger_ms=linger_ms,
        buffer_memory=buffer_memory,
        chance=random.Random(1),
        available=CACHE.available_partitions,
    )


def append(
    to: Accumulator, value: bytes, partition: int | None = 0, now_ms: float = 0.0, key: bytes | None = None
) -> Taken:
    return to.append(TOPIC_INFO, partition, key, value, None, 0, Future(), now_ms)


def test_a_batch_waits_for_linger() -> None:
    to = accumulator()
    assert append(to, b"a") is Taken.WAKE
    assert append(to, b"b", now_ms=3.0) is Taken.ADDED
    assert to.take(KEY, 4.9) is None
    assert to.next_ready_ms() == 5.0
    batch = to.take(KEY, 5.0)
    assert batch is not None
    assert batch.values == [b"a", b"b"]


def test_a_full_batch_goes_at_once() -> None:
    to = accumulator()
    assert append(to, bytes(1000)) is Taken.WAKE
    assert to.newly_ready(0.0) == [KEY]


def test_a_record_that_does_not_fit_begins_the_next_batch() -> None:
    to = accumulator()
    append(to, bytes(600))
    append(to, bytes(600))
    first = to.take(KEY, 0.0)
    assert first is not None
    assert first.record_count == 1
    assert to.take(KEY, 0.0) is None  # the second lingers


def test_the_topics_own_limit_makes_batches_smaller() -> None:
    told = Brokers().metadata()
    told.topics[0].configs["max.message.bytes"] = "2048"
    cache = MetadataCache()
    cache.apply(told)
    to = accumulator(batch_size=100_000, buffer_memory=100_000)
    for _ in range(3):
        to.append(cache.topics[TOPIC], 0, None, bytes(500), None, 0, Future(), 0.0)
    assert to.newly_ready(0.0) == [KEY]


@pytest.mark.parametrize(
    ("setting", "columns"),
    [("`a,b`, c", ("a,b", "c")), ("", ()), (" ", ()), ("a,,b", None)],
)
def test_statistics_of_batches_are_named_as_their_columns(setting: str, columns: tuple[str, ...] | None) -> None:
    told = Brokers().metadata()
    told.topics[0].configs["statistics.columns"] = setting
    cache = MetadataCache()
    cache.apply(told)
    assert cache.topics[TOPIC].statistics_columns == columns


def test_a_full_buffer_takes_nothing_until_a_batch_is_settled() -> None:
    to = accumulator(buffer_memory=1500)
    append(to, bytes(1000))
    assert append(to, bytes(1000)) is Taken.NO_SPACE
    batch = to.take(KEY, 0.0)
    assert batch is not None
    assert append(to, bytes(1000)) is Taken.NO_SPACE  # taken is not settled
    to.settled(batch)
    assert to.used_bytes() == 0
    assert append(to, bytes(1000)) is Taken.WAKE
    assert to.used_bytes() == 1000 + RECORD_OVERHEAD_BYTES


def test_a_record_above_the_whole_buffer_is_refused() -> None:
    with pytest.raises(MessageTooLarge, match=r"topic 'flights' is larger than buffer\.memory=1500"):
        append(accumulator(buffer_memory=1500), bytes(2000))


def test_an_arrow_batch_above_the_whole_buffer_goes_alone() -> None:
    to = accumulator(buffer_memory=1500)
    columns = pa.RecordBatch.from_pydict({"value": [bytes(4000)]})
    assert to.append_columns(TOPIC_INFO, [(0, columns)], Future(), 0.0) is Taken.WAKE
    assert to.append_columns(TOPIC_INFO, [(0, columns)], Future(), 0.0) is Taken.NO_SPACE


def test_flush_lets_everything_go_and_knows_when_it_is_done() -> None:
    to = accumulator()
    append(to, b"a")
    target = to.begin_flush()
    append(to, b"later")
    batch = to.take(KEY, 0.0)
    assert batch is not None
    assert batch.values == [b"a"]
    assert not to.is_settled(target)
    to.settled(batch)
    assert to.is_settled(target)
    assert to.take(KEY, 0.0) is None  # the later one lingers


def test_keyless_records_stay_together_and_move_on_with_the_batch() -> None:
    to = accumulator(batch_size=100)
    for _ in range(6):
        append(to, bytes(50), partition=None)
    assert len(to.newly_ready(0.0)) == 3  # two records fill a batch, each batch another partition


def test_keyed_records_go_by_key() -> None:
    to = accumulator()
    for _ in range(3):
        append(to, b"x", partition=None, key=b"same")
    assert len(to.newly_ready(10.0)) == 1


def test_closed_takes_nothing() -> None:
    to = accumulator()
    to.close()
    with pytest.raises(Closed):
        append(to, b"a")


@proves("SPF.34")
def test_arrow_batches_are_cut_to_batch_size_and_lose_nothing() -> None:
    to = accumulator(batch_size=10_000)
    columns = pa.RecordBatch.from_pydict({"value": [b"%06d" % number * 10 for number in range(2000)]})
    parts = cut_columns(to, TOPIC_INFO, columns, None)
    assert len(parts) > 10
    assert {partition for partition, _ in parts} == {None}
    assert pa.Table.from_batches([rows for _, rows in parts]).equals(pa.Table.from_batches([columns]))


@proves("SPF.34")
def test_batch_size_says_where_to_cut_and_not_what_is_too_large() -> None:
    """What is too large says max.message.bytes, of which only the leader knows the value of now."""
    to = accumulator(batch_size=10_000)
    columns = pa.RecordBatch.from_pydict({"value": [b"s", bytes(20_000), b"s"], "key": [b"k", b"k", None]})
    for topic in (TOPIC_INFO, replace(TOPIC_INFO, max_message_bytes=1_000)):
        parts = cut_columns(to, topic, columns, None)
        found = [rows for _, rows in parts if isinstance(rows, pa.RecordBatch)]
        assert sorted(len(value) for rows in found for value in rows.column("value").to_pylist()) == [1, 1, 20_000]


def test_a_batch_of_batch_size_is_not_cut() -> None:
    columns = pa.RecordBatch.from_pydict({"value": [bytes(100)] * 95})
    assert len(cut_columns(accumulator(batch_size=10_000), TOPIC_INFO, columns, 1)) == 1
