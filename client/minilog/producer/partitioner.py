"""The choice of a record's partition: by the key as in Kafka, or sticky without a key.

Equal keys go to the same partition in all clients and languages: (murmur2(key) & 0x7fffffff) % partitions. Sticky means
one whole batch per partition in turn (KIP-480).
"""

from __future__ import annotations

import functools
import random

import pyarrow as pa

from minilog import compute as pc
from minilog.steady_tables import encode

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_REMEMBERED_KEYS = 8192  # a hash costs microseconds, and programs use few keys again and again


@functools.lru_cache(maxsize=_REMEMBERED_KEYS)
def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 of `data`, unsigned."""
    length = len(data)
    state = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = (int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER) & _MASK
        word = ((word ^ (word >> 24)) * _MULTIPLIER) & _MASK
        state = ((state * _MULTIPLIER) & _MASK) ^ word
    if length > whole:
        state = ((state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER) & _MASK
    state = ((state ^ (state >> 13)) * _MULTIPLIER) & _MASK
    return state ^ (state >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Kafka's default partition of `key`."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """The partition for records without a key: the same until `advance`, then the next one that has a leader."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._current: dict[bytes, int] = {}

    def current(self, topic_id: bytes) -> int | None:
        """The partition of the batch that is filled now. None before the first."""
        return self._current.get(topic_id)

    def advance(self, topic_id: bytes, available: list[int]) -> int:
        """The next one of `available` (ascending, not empty). The first one is random."""
        before = self._current.get(topic_id)
        if before is None:
            chosen = self._chance.choice(available)
        else:
            chosen = next((partition for partition in available if partition > before), available[0])
        self._current[topic_id] = chosen
        return chosen


def split_by_key(columns: pa.RecordBatch, partition_count: int) -> tuple[dict[int, pa.RecordBatch], pa.RecordBatch]:
    """Rows by the partition of their key, in order, and the rows whose key is null.

    This hashes each distinct key once. Arrow does the rest.
    """
    key = columns.column(columns.schema.get_field_index("key"))
    if isinstance(key, pa.DictionaryArray):
        key = key.dictionary_decode()
    parts, keyless = dict[int, pa.RecordBatch](), columns.slice(0, 0)
    for partition, places in places_by_key(key.cast(pa.binary()), partition_count):
        rows = columns if len(places) == columns.num_rows else columns.take(places)
        if partition is None:
            keyless = rows
        else:
            parts[partition] = rows
    return parts, keyless


def places_by_key(keys: pa.BinaryArray, partition_count: int) -> list[tuple[int | None, pa.Array]]:
    """The indices of the keys of each partition, in order. The indices of nulls come last, under None, if there are
    nulls."""
    codes, different = encode(keys)
    by_code = pa.array([partition_for_key(key, partition_count) for key in different], pa.int32())
    partitions = by_code.take(codes)
    parts: list[tuple[int | None, pa.Array]] = [
        (partition, pc.indices_nonzero(pc.equal(partitions, partition).fill_null(False)))
        for partition in pc.unique(by_code).to_pylist()
    ]
    return [*parts, (None, pc.indices_nonzero(partitions.is_null()))] if partitions.null_count else parts
