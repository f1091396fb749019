"""What validating a message costs is known before it is done, and what is costly is done beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from minilog.errors import CorruptMessage, MessageTooLarge
from minilog.partition_key import PartitionKey
from minilog.record_batch.builder import build_batch
from minilog.record_batch.header import BatchHeader
from minilog.record_batch.validation import decoded_bytes
from minilog_broker.controller.topic_config import BUILT_IN
from minilog_broker.replication.partition_state import TopicConfig
from minilog_broker.server.services.batch_validation import INLINE_BYTES, BatchValidation, Validated

KEY = PartitionKey(bytes(range(16)), 3)
MAX_MESSAGE_BYTES = 8 << 20


def batch_of(size_bytes: int, compression: str = "none") -> bytes:
    return build_batch(*KEY, pa.record_batch({"value": [bytes(size_bytes)]}), timestamp_us=1, compression=compression)


def validate(batches: list[bytes], max_message_bytes: int | None = MAX_MESSAGE_BYTES) -> list[Validated]:
    asked: list[PartitionKey] = []

    def config(key: PartitionKey) -> TopicConfig | None:
        asked.append(key)
        return None if max_message_bytes is None else replace(BUILT_IN, max_message_bytes=max_message_bytes)

    found = asyncio.run(BatchValidation(config, lambda: 1).validate([KEY] * len(batches), batches))
    assert set(asked) <= {KEY}
    return found


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_batch_costs_what_it_becomes_and_says_so_without_being_decompressed(codec: str) -> None:
    batch = batch_of(4_000_000, codec)
    assert len(batch) < 100_000
    assert 4_000_000 < decoded_bytes(batch) < 4_100_000


@pytest.mark.parametrize("noise", [b"", bytes(27), bytes(100), b"\xff" * 1_000, batch_of(100, "zstd")[:-9]])
def test_bytes_that_are_no_batch_cost_no_more_than_their_number(noise: bytes) -> None:
    assert decoded_bytes(noise) <= max(len(noise), 300)


def test_a_message_that_costs_little_is_left_to_the_core() -> None:
    assert validate([batch_of(1 << 20), batch_of(1 << 20, "zstd")]) == [None, None]


def test_a_message_that_costs_much_is_validated_batch_by_batch_on_one_thread_beside() -> None:
    good, broken = batch_of(INLINE_BYTES, "zstd"), batch_of(INLINE_BYTES)[:-1] + b"\x01"
    threads = threading.active_count()
    header, error, small = validate([good, broken, batch_of(10)])
    assert threading.active_count() <= threads + 1
    assert isinstance(header, BatchHeader)
    assert header.length == len(good)
    assert isinstance(error, CorruptMessage)
    assert isinstance(small, BatchHeader), "all of such a message, in its order"


def test_a_bomb_is_refused_for_what_it_says_that_it_becomes() -> None:
    [error] = validate([batch_of(60 << 20, "zstd")], max_message_bytes=1 << 20)
    assert isinstance(error, CorruptMessage)
    assert "when decompressed" in str(error)
    [error] = validate([batch_of(INLINE_BYTES + 1)], max_message_bytes=1 << 20)
    assert isinstance(error, MessageTooLarge)


def test_batches_for_another_leader_are_not_validated() -> None:
    assert validate([batch_of(INLINE_BYTES)], max_message_bytes=None) == [None]
