"""One partition's batches that have a sequence and no end yet: at most five, in order.

    filling     new batches are appended and sent at once
    resending   a batch was refused or its answer is lost: nothing is sent until no batch of the lane is out any more
                and the pause is over; then all go again, in sequence order

Until the first batch under a producer id is acknowledged only one is out: a leader without state of this producer
accepts any sequence (docs/spec/replication.md § Producing), so that a later one could be taken for the first. Under
acks=0 the same holds of each leader: its first batch is sent under acks=1, for one that does not know yet that it
leads, as of a topic created a moment ago, takes nothing, and nobody would hear of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from minilog.net.metadata_cache import LeaderAndEpoch
from minilog.partition_key import PartitionKey
from minilog.producer.batch import Batch

_SEQUENCE_MASK = 0x7FFFFFFF  # sequences wrap to 0 behind the largest int32


def sequence_after(base_sequence: int, record_count: int) -> int:
    """The sequence behind a batch."""
    return (base_sequence + record_count) & _SEQUENCE_MASK


@dataclass(slots=True)
class Lane:
    """In the order of their sequences; the first one without an answer is at the front."""

    key: PartitionKey
    batches: deque[Batch] = field(default_factory=deque)  # with a sequence, in its order
    waiting: deque[Batch] = field(default_factory=deque)  # put back without one; they go before new ones
    next_sequence: int = 0
    proven: bool = False
    resending: bool = False
    retry_at_ms: float = 0.0
    failures: int = 0  # on end, for the pause
    rewind_to: int | None = None  # a batch with this sequence was refused for good: those behind move up
    tried: LeaderAndEpoch | None = None
    last_acknowledged: int = -1  # the sequence of the last record that was written for certain

    def has_unanswered(self) -> bool:
        return any(batch.correlation_id is not None for batch in self.batches)

    def is_superseded_by(self, leader: LeaderAndEpoch, sent_before_ms: float) -> bool:
        """Has somebody else come to lead, while what was sent some time ago is not answered?"""
        tried = self.tried
        if tried is None or leader.broker_id == tried.broker_id or leader.epoch <= tried.epoch:
            return False
        return any(batch.correlation_id is not None and batch.sent_ms <= sent_before_ms for batch in self.batches)

    def room(self, max_in_flight: int) -> bool:
        """May a new batch be given a sequence now?"""
        allowed = max_in_flight if self.proven else 1
        return not self.resending and self.rewind_to is None and len(self.batches) < allowed

    def meets(self, leader: LeaderAndEpoch, acks: int) -> None:
        """Under acks=0 another leader proves that it takes anything, by one batch that it answers."""
        if acks == 0 and leader != self.tried:
            self.proven = False

    def may_go_to(self, leader: LeaderAndEpoch, acks: int) -> bool:
        """Whether a new batch may: to one that has proven itself, or when all for the former has gone."""
        self.meets(leader, acks)
        return self.proven or not self.batches

    def acknowledged(self, batch: Batch) -> None:
        """It is written: the leader knows this producer from now on."""
        self.batches.remove(batch)
        self.proven, self.failures = True, 0
        self.last_acknowledged = sequence_after(batch.base_sequence, batch.record_count - 1)
        if not self.batches:
            self.resending = False

    def may_resend(self, now_ms: float) -> bool:
        return self.resending and now_ms >= self.retry_at_ms and not self.has_unanswered()

    def resend_later(self, at_ms: float) -> None:
        """Something was refused or lost."""
        self.resending = True
        self.retry_at_ms = max(self.retry_at_ms, at_ms)

    def renumber(self) -> None:
        """Close the gap that a batch refused for good has left. Nothing may be out or maybe written."""
        assert self.rewind_to is not None
        sequence = self.rewind_to
        for batch in self.batches:
            batch.encode("none", batch.producer, sequence, 0)
            sequence = sequence_after(sequence, batch.record_count)
        self.next_sequence, self.rewind_to = sequence, None

    def restart(self) -> None:
        """A new producer id: sequences begin at 0 again."""
        assert not self.batches
        self.next_sequence, self.rewind_to = 0, None
        self.proven = self.resending = False

    def put_back_unwritten(self) -> list[Batch]:
        """Empty the lane: what was surely not written waits for a new producer id; the others are returned."""
        unknown = [batch for batch in self.batches if batch.maybe_written or batch.correlation_id is not None]
        unwritten = [batch for batch in self.batches if batch not in unknown]
        self.waiting.extendleft(reversed(unwritten))
        self.batches.clear()
        self.resending, self.rewind_to = False, None
        return unknown
