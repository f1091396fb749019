"""The deletion of records: it asks the leaders until each partition has its answer. No I/O.

A topic of the same name that was created meanwhile is another topic, and keeps its records. A request without an answer
may have been carried out. Then the deletion ends with UnknownOutcome, and a second attempt is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minilog.errors import (
    InvalidArgument,
    MinilogError,
    RequestTimedOut,
    TimedOut,
    UnknownOutcome,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_from_wire,
)
from minilog.limits import MAX_DELETION_ENTRIES, parts_of
from minilog.net.by_leader import entries_by_leader
from minilog.net.metadata_cache import MetadataCache
from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from minilog.v1 import common_pb2, data_pb2


@dataclass(slots=True)
class RecordsDeletion:
    """Ask `requests`, hand in `answered`, until `missing` is empty. `low_watermarks` has the answers."""

    cache: MetadataCache
    wanted: Mapping[TopicPartition, int]
    keys: dict[TopicPartition, PartitionKey] = field(default_factory=dict)
    low_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    failures: dict[TopicPartition, MinilogError] = field(default_factory=dict)  # will not get better
    last_errors: dict[TopicPartition, MinilogError] = field(default_factory=dict)  # may get better
    requested: set[TopicPartition] = field(default_factory=set)

    def __post_init__(self) -> None:
        for partition, offset in self.wanted.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
                raise InvalidArgument(f"{_name(partition)}: {offset!r} is no offset to delete records up to")

    def missing(self) -> list[TopicPartition]:
        """Partitions without a final answer."""
        return [
            partition
            for partition in self.wanted
            if partition not in self.low_watermarks and partition not in self.failures
        ]

    def requests(
        self, identity: common_pb2.ClientIdentity, timeout_ms: int
    ) -> list[tuple[int, data_pb2.DeleteRecordsRequest]]:
        """The requests, each with the id of its broker. Partitions without a known leader wait for the next
        metadata."""
        by_leader = entries_by_leader(self.cache, self.missing(), self._key, self._entry, self.last_errors)
        return [
            (broker_id, data_pb2.DeleteRecordsRequest(client=identity, timeout_ms=timeout_ms, entries=part))
            for broker_id, entries in by_leader.items()
            for part in parts_of(entries, MAX_DELETION_ENTRIES)
        ]

    def _entry(self, partition: TopicPartition, key: PartitionKey, epoch: int) -> data_pb2.DeleteRecordsEntry:
        self.requested.add(partition)
        before = self.wanted[partition]
        return data_pb2.DeleteRecordsEntry(partition_id=key.to_wire(), leader_epoch=epoch, before_offset=before)

    def _key(self, partition: TopicPartition) -> PartitionKey | None:
        """What it was called by when it was first known."""
        try:
            key = self.cache.key(partition)
        except MinilogError as error:
            self.last_errors[partition] = error
            return None
        if self.keys.setdefault(partition, key) != key:
            text = f"{_name(partition)}: the topic was deleted and created again, and the new topic keeps its records"
            self.failures[partition] = UnknownTopicId(text)
            return None
        return key

    def answered(self, response: data_pb2.DeleteRecordsResponse) -> None:
        """Take in what one leader said."""
        names = {key: partition for partition, key in self.keys.items()}
        for result in response.results:
            partition = names.get(PartitionKey.of(result.partition_id))
            if partition is None:
                continue
            error = error_from_wire(result.error)
            if error is None:
                self.low_watermarks[partition] = result.low_watermark
            else:
                passing = error.retriable or isinstance(error, UnknownOutcome)
                (self.last_errors if passing else self.failures)[partition] = error

    def give_up_unknown(self) -> None:
        """Give up the topics and partitions that no broker knows, after they had time to become known."""
        for partition in self.missing():
            if isinstance(self.last_errors.get(partition), UnknownTopicOrPartition):
                self.failures[partition] = self.last_errors[partition]

    def error(self) -> MinilogError | None:
        """The error of the first partition whose records were not deleted, or perhaps not. It names the finished
        deletions, too."""
        errors = [self._error_of(partition) for partition in self.wanted if partition not in self.low_watermarks]
        if not errors:
            return None
        done = [f"{_name(partition)} starts at {at} now" for partition, at in self.low_watermarks.items()]
        several = len(self.wanted) > 1
        also = f"; {'; '.join(done) if done else 'no deletion in the other partitions is known'}" if several else ""
        return type(errors[0])(f"{'; '.join(str(error) for error in errors)}{also}")

    def _error_of(self, partition: TopicPartition) -> MinilogError:
        if (failure := self.failures.get(partition)) is not None:
            return type(failure)(f"{_name(partition)}: {failure}")
        last = self.last_errors.get(partition, "no leader answered")
        if partition not in self.requested:
            return TimedOut(f"{_name(partition)}: nothing was deleted within request.timeout.ms: {last}")
        text = (
            "no leader confirmed the deletion within request.timeout.ms, but it may be done: a second call is harmless"
        )
        return RequestTimedOut(f"{_name(partition)}: {text}: {last}")


def _name(partition: TopicPartition) -> str:
    return f"partition {partition.partition} of topic {partition.topic!r}"
