"""One question for offsets. The client asks all their leaders until each partition has its answer. No I/O.

"latest" is the high watermark (read_uncommitted) or the last stable offset (read_committed). The query ignores an
answer of a leader epoch below a known one (rule V8). If a leader does not know its offsets yet, the client asks it
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minilog.errors import InvalidArgument, MinilogError, error_from_wire
from minilog.limits import MAX_OFFSETS_ENTRIES, parts_of
from minilog.net.by_leader import entries_by_leader
from minilog.net.metadata_cache import MetadataCache
from minilog.partition_key import PartitionKey
from minilog.place_words import named_place
from minilog.types import OffsetSpec, SizesFrom, TopicPartition
from minilog.v1 import common_pb2, metadata_pb2

_MOST_MS = (1 << 63) // 1000  # brokers count microseconds, in 64 bits


def check_spec(partition: TopicPartition, spec: OffsetSpec) -> None:
    """Raises InvalidArgument unless `spec` is "earliest", "latest" or milliseconds since 1970."""
    is_time = isinstance(spec, int) and not isinstance(spec, bool) and 0 <= spec < _MOST_MS
    if named_place(spec) in ("earliest", "latest") or is_time:
        return
    raise InvalidArgument(
        f"{spec!r} for partition {partition.partition} of topic {partition.topic!r} is no offset to ask for: "
        'give "earliest", "latest" or a timestamp in milliseconds since 1970'
    )


@dataclass(slots=True)
class OffsetsQuery:
    """One query. The caller sends the requests of `requests` and gives each response to `answered`, until `missing` is
    empty. `results` has the raw, final answers."""

    cache: MetadataCache
    wanted: Mapping[TopicPartition, OffsetSpec]
    sizes: Mapping[TopicPartition, SizesFrom] = field(default_factory=dict)
    with_replicas: bool = False  # also ask for the end of each replica, as far as the leader knows it
    results: dict[TopicPartition, metadata_pb2.ListOffsetsResult] = field(default_factory=dict)
    failures: dict[TopicPartition, MinilogError] = field(default_factory=dict)  # final errors
    last_errors: dict[TopicPartition, MinilogError] = field(default_factory=dict)  # errors that may pass

    def __post_init__(self) -> None:
        for partition, spec in self.wanted.items():
            check_spec(partition, spec)

    def missing(self) -> list[TopicPartition]:
        """Partitions without a final answer."""
        return [p for p in self.wanted if p not in self.results and p not in self.failures]

    def topics(self) -> set[str]:
        return {partition.topic for partition in self.wanted}

    def requests(self, identity: common_pb2.ClientIdentity) -> list[tuple[int, metadata_pb2.ListOffsetsRequest]]:
        """The next requests, each with the id of its broker. Partitions without a known leader wait for the next
        metadata."""
        by_leader = entries_by_leader(self.cache, self.missing(), self._key, self._entry, self.last_errors)
        return [
            (broker_id, metadata_pb2.ListOffsetsRequest(client=identity, entries=part))
            for broker_id, entries in by_leader.items()
            for part in parts_of(entries, MAX_OFFSETS_ENTRIES)
        ]

    def _entry(self, partition: TopicPartition, key: PartitionKey, epoch: int) -> metadata_pb2.ListOffsetsEntry:
        spec, sizes = self.wanted[partition], self.sizes.get(partition)
        return metadata_pb2.ListOffsetsEntry(
            partition_id=key.to_wire(),
            leader_epoch=epoch,
            timestamp_us=spec * 1000 if isinstance(spec, int) else None,
            from_offset=0 if sizes is None else sizes.offset,
            sizes_bytes=() if sizes is None else sizes.sizes_bytes,
            with_replicas=self.with_replicas,
        )

    def answered(self, response: metadata_pb2.ListOffsetsResponse) -> None:
        """Take in the response of one leader."""
        names = {key: p for p in self.missing() if (key := self._key(p)) is not None}
        for result in response.results:
            key = PartitionKey.of(result.partition_id)
            partition = names.get(key)
            if partition is not None:
                self._take(partition, key, result)

    def forget_outdated(self) -> None:
        """Drop the answers that are outdated by newer metadata: those of another topic with the same name, and those of
        a leader with a lower epoch."""
        self.results = {
            partition: result for partition, result in self.results.items() if self._is_current(partition, result)
        }

    def _is_current(self, partition: TopicPartition, result: metadata_pb2.ListOffsetsResult) -> bool:
        key = self._key(partition)
        if key is None or key.topic_id != result.partition_id.topic_id:
            return False
        return result.leader_epoch >= self.cache.seen_epoch(key)

    def _key(self, partition: TopicPartition) -> PartitionKey | None:
        """The key of a partition. None if the known metadata has no such partition. Newer metadata may have it."""
        try:
            return self.cache.key(partition)
        except MinilogError as error:
            self.last_errors[partition] = error
            return None

    def _take(self, partition: TopicPartition, key: PartitionKey, result: metadata_pb2.ListOffsetsResult) -> None:
        error = error_from_wire(result.error)
        if error is not None:
            (self.last_errors if error.retriable else self.failures)[partition] = error
        elif result.leader_epoch >= self.cache.seen_epoch(key):
            self.cache.see_epoch(key, result.leader_epoch)
            self.results[partition] = result


def offset_of(result: metadata_pb2.ListOffsetsResult, spec: OffsetSpec, isolation_level: str) -> int | None:
    """The wanted offset in a result. None if no record is as young as the timestamp."""
    end = named_place(spec)
    if end == "earliest":
        return result.log_start_offset
    if end == "latest":
        return result.last_stable_offset if isolation_level == "read_committed" else result.high_watermark
    return result.offset if result.HasField("offset") else None
