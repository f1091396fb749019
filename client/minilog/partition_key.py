"""The name of a partition between clients and brokers, and inside both. Users name it by its topic (TopicPartition)."""

from __future__ import annotations

from typing import NamedTuple, Self

from minilog.v1 import common_pb2


class PartitionKey(NamedTuple):
    """A partition by topic id (16 bytes), never by name: a name used again is not the same topic."""

    topic_id: bytes
    partition: int

    @classmethod
    def of(cls, message: common_pb2.PartitionId) -> Self:
        """As it came over the wire, or from a log."""
        return cls(message.topic_id, message.partition)

    def to_wire(self) -> common_pb2.PartitionId:
        return common_pb2.PartitionId(topic_id=self.topic_id, partition=self.partition)
