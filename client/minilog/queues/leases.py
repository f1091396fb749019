"""The leases that a worker holds. No I/O.

    first_offset          read_to              last_offset
    |  read: records that wait  |  not read yet      |
    |  for the program or its   |                    |
    |  verdict are in `open`    |                    |

The lock of a lease is the worker's own view, by its monotonic clock. It counts from before the request was sent, so it
ends before the coordinator's lock. No record is handed out in the last tenth of a lock: a renewal may still be under
way, and the program needs some time.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import NamedTuple

from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from minilog.v1 import queue_pb2

_RENEWAL_PART = 1 / 3  # of the lock: two more attempts fit into the rest
_MARGIN_PART = 1 / 10  # of the lock: what is handed out has at least so much time


class DeadLetterTopic(NamedTuple):
    """Where a queue's dead records go. `copies_records`: with their keys, values and headers."""

    name: str
    copies_records: bool


@dataclass(slots=True, eq=False)
class Lease:
    """The lock on some ranges. Threads of the program read it, and only the worker changes it. `dead_letter_topic`:
    given with dead ranges. `must_be_renewed`: before the program gets anything. So the coordinator knows that this
    worker has the lease, and counts the delivery."""

    lease_id: int
    lock_end_ms: float = 0.0
    renew_at_ms: float = 0.0
    margin_ms: float = 0.0
    is_lost: bool = False
    must_be_renewed: bool = False
    lock_count: int = 0  # that began anew while its messages were with the program
    forgotten_count: int = 0  # the same, while the program had all of it, and gave no verdict on the rest
    dead_letter_topic: DeadLetterTopic | None = None
    ranges: list[HeldRange] = field(default_factory=list)

    def locked(self, sent_ms: float, lock_duration_ms: float) -> None:
        """The lock began anew. `sent_ms` is the time before its request was sent."""
        self.lock_end_ms = sent_ms + lock_duration_ms
        self.renew_at_ms = sent_ms + lock_duration_ms * _RENEWAL_PART
        self.margin_ms = lock_duration_ms * _MARGIN_PART

    def is_locked(self, now_ms: float) -> bool:
        """Whether the worker still has the lock for sure."""
        return not self.is_lost and now_ms < self.lock_end_ms

    def may_hand_out(self, now_ms: float) -> bool:
        """Whether the lock lasts long enough for the program to begin on a record."""
        return not (self.is_lost or self.must_be_renewed) and now_ms < self.lock_end_ms - self.margin_ms

    def unsettled(self) -> int:
        """The number of offsets whose end the coordinator has not confirmed."""
        return sum(held.unsettled for held in self.ranges)


@dataclass(slots=True, eq=False)
class HeldRange:
    """The leased offsets from `first_offset` to `last_offset`, both included. `death_reason`: they are dead, and the
    worker carries them to the dead-letter topic."""

    lease: Lease
    partition: TopicPartition
    key: PartitionKey
    first_offset: int
    last_offset: int
    delivery_count: int
    leader_epoch: int
    read_to: int = 0  # the next offset to read
    open: set[int] = field(default_factory=set)  # read, with a record, and without a verdict
    unsettled: int = 0
    death_reason: str | None = None

    @classmethod
    def of(cls, lease: Lease, leased: queue_pb2.LeasedRange, topic: str) -> HeldRange:
        """A range of an answer. The partition names its topic's id: another topic may have the name by now."""
        key = PartitionKey.of(leased.partition_id)
        partition = TopicPartition(topic, key.partition, topic_id=str(uuid.UUID(bytes=key.topic_id)))
        first, last = leased.first_offset, leased.last_offset
        held = cls(lease, partition, key, first, last, leased.delivery_count, leased.leader_epoch)
        held.read_to, held.unsettled = first, last - first + 1
        held.death_reason = leased.death_reason if leased.HasField("death_reason") else None
        return held

    @property
    def unread(self) -> int:
        """The number of offsets that are not read yet."""
        return self.last_offset + 1 - self.read_to

    def bounded(self) -> TopicPartition:
        """The rest of the range, as a bounded read."""
        return TopicPartition(
            self.partition.topic,
            self.partition.partition,
            offset=self.read_to,
            end_offset=self.last_offset + 1,
            topic_id=self.partition.topic_id,
        )
