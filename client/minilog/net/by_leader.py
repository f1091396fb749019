"""Entries of a request, grouped by the brokers that lead their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from typing import TypeVar

from minilog.errors import MinilogError
from minilog.net.metadata_cache import MetadataCache
from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition

Entry = TypeVar("Entry")


def entries_by_leader(
    cache: MetadataCache,
    partitions: Iterable[TopicPartition],
    key_of: Callable[[TopicPartition], PartitionKey | None],
    entry_of: Callable[[TopicPartition, PartitionKey, int], Entry],
    last_errors: MutableMapping[TopicPartition, MinilogError],
) -> dict[int, list[Entry]]:
    """The entries by broker id. `entry_of` gets the leader's epoch. Partitions without a key, or without a known
    leader, wait for the next metadata. `last_errors` gets the reason why a leader cannot be reached."""
    by_leader: dict[int, list[Entry]] = {}
    for partition in partitions:
        if (key := key_of(partition)) is None:
            continue
        if (unreachable := cache.why_no_leader(key)) is not None:
            last_errors[partition] = unreachable
        if (leader := cache.leader(key)) is not None:
            by_leader.setdefault(leader.broker_id, []).append(entry_of(partition, key, leader.epoch))
    return by_leader
