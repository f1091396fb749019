"""A worker of a queue with a program, and a coordinator that grants what a test says. The test has the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from minilog.partition_key import PartitionKey
from minilog.queues.leases import HeldRange
from minilog.queues.message import Message, Verdict
from minilog.queues.settling import Span
from minilog.queues.worker import SendSettlements, Worker, WorkerEffect, WorkerSettings
from minilog.types import Record, TopicPartition
from minilog.v1 import queue_pb2

QUEUE, TOPIC, TOPIC_ID = "jobs", "orders", b"\x01" * 16
LOCK_MS, MAX_POLL_INTERVAL_MS, MAX_RECORDS = 30_000, 300_000, 500
P0 = TopicPartition(TOPIC, 0)
_Kind = TypeVar("_Kind", bound=WorkerEffect)


def leased_range(first: int, last: int, *, partition: int = 0, delivery_count: int = 1) -> queue_pb2.LeasedRange:
    return queue_pb2.LeasedRange(
        partition_id=PartitionKey(TOPIC_ID, partition).to_wire(),
        first_offset=first,
        last_offset=last,
        delivery_count=delivery_count,
        leader_epoch=1,
    )


class Working:
    """The worker, its time, and all effects that it asked for."""

    def __init__(self, *, subscribed: bool = True, max_lock_renewals: int = 0) -> None:
        self.worker = Worker(WorkerSettings(QUEUE, MAX_RECORDS, MAX_POLL_INTERVAL_MS, max_lock_renewals))
        self.now_ms = 0.0
        self.effects: list[WorkerEffect] = []
        if subscribed:
            self.worker.subscribe({TOPIC: TOPIC_ID})
            self.worker.polled(self.now_ms)
            self.poll()

    def poll(self) -> list[WorkerEffect]:
        """The effects of now."""
        effects = self.worker.poll(self.now_ms)
        self.effects += effects
        return effects

    def wanted(self, kind: type[_Kind]) -> list[_Kind]:
        """The effects of one kind, taken away."""
        wanted: list[_Kind] = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, kind)]
        return wanted

    def grant(
        self,
        *ranges: queue_pb2.LeasedRange,
        lease_id: int = 1,
        sent_ms: float | None = None,
        lock_ms: int = LOCK_MS,
        must_be_renewed_first: bool = False,
    ) -> None:
        """The answer to a request for a lease."""
        response = queue_pb2.LeaseResponse(
            lease_id=lease_id,
            ranges=ranges,
            lock_duration_ms=lock_ms,
            must_be_renewed_first=must_be_renewed_first,
        )
        self.worker.leased(response, self.now_ms if sent_ms is None else sent_ms, self.now_ms)
        self.poll()

    def read(self, offsets: Sequence[int], read_to: int, partition: TopicPartition = P0) -> None:
        """A fetch brought the records with these offsets, and there are no others below `read_to`."""
        held = self.worker.reading[partition]
        self.worker.have_read(partition, read_to, [self.message(held, offset) for offset in offsets], self.now_ms)
        self.poll()

    def message(self, held: HeldRange, offset: int) -> Message:
        record = Record(held.partition.topic, held.partition.partition, offset, 0, None, b"", [])
        return Message.of(record, held, self)

    queue = QUEUE

    def settle(self, message: Message, verdict: Verdict, delay_ms: int, reason: str) -> None:
        self.worker.note(message, verdict, delay_ms, reason, self.now_ms)

    def enlist(self, message: Message) -> None:
        self.worker.enlist(message, self.now_ms)

    def transaction_ended(self, message: Message, *, committed: bool) -> None:
        self.worker.transaction_ended(message, committed=committed)

    def hand_out(self, most: int = 10_000) -> list[Message]:
        return self.worker.take(most, self.now_ms)

    def sent(self) -> list[Span]:
        """The settlements under way, once those that were noted have gathered."""
        self.worker.hurry()
        self.poll()
        return [span for effect in self.wanted(SendSettlements) for span in effect.spans]

    def settled(self, refused: Mapping[int, Exception] | None = None, *, is_repeat: bool = False) -> None:
        self.worker.settled(refused or {}, self.now_ms, is_repeat=is_repeat)  # type: ignore[arg-type]
        self.poll()


def outline(spans: Sequence[Span]) -> list[tuple[int, int, str]]:
    return [(span.first_offset, span.last_offset, span.verdict.name.lower()) for span in spans]
