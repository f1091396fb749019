"""One partition's batches that have a sequence and no end yet: at most five, in order.

    filling     the sender appends new batches, and sends them at once
    resending   the leader refused a batch, or its answer is lost. The sender waits until no batch of the lane is out
                any more, and the pause is over. Then it sends all again, in sequence order

Until the first batch under a producer id is acknowledged, only that one is out. A leader without state of this producer
accepts any sequence (docs/spec/replication.md § Producing), so it could take a later batch for the first. Under acks=0
the same holds for each leader. The sender sends its first batch under acks=1. A broker may not know yet that it leads,
for example a topic that was just created. It refuses the batch, and under acks=0 nobody would learn that.
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
    """The batches in the order of their sequences. The first one without an answer is at the front."""

    key: PartitionKey
    batches: deque[Batch] = field(default_factory=deque)  # with a sequence, in the order of the sequences
    waiting: deque[Batch] = field(default_factory=deque)  # put back without a sequence: they go before new ones
    next_sequence: int = 0
    proven: bool = False
    resending: bool = False
    retry_at_ms: float = 0.0
    failures: int = 0  # one after the other: they set the pause
    rewind_to: int | None = None  # the leader refused a batch with this sequence for good: those behind move up
    tried: LeaderAndEpoch | None = None
    last_acknowledged: int = -1  # the sequence of the last record that is surely written

    def has_unanswered(self) -> bool:
        return any(batch.correlation_id is not None for batch in self.batches)

    def is_superseded_by(self, leader: LeaderAndEpoch, sent_before_ms: float) -> bool:
        """Whether another broker leads by now, and a batch that was sent some time ago has no answer."""
        tried = self.tried
        if tried is None or leader.broker_id == tried.broker_id or leader.epoch <= tried.epoch:
            return False
        return any(batch.correlation_id is not None and batch.sent_ms <= sent_before_ms for batch in self.batches)

    def room(self, max_in_flight: int) -> bool:
        """Whether a new batch may get a sequence now."""
        allowed = max_in_flight if self.proven else 1
        return not self.resending and self.rewind_to is None and len(self.batches) < allowed

    def meets(self, leader: LeaderAndEpoch, acks: int) -> None:
        """Note the leader of the next batch. Under acks=0 a new leader first proves by one answer that it accepts
        batches."""
        if acks == 0 and leader != self.tried:
            self.proven = False

    def may_go_to(self, leader: LeaderAndEpoch, acks: int) -> bool:
        """Whether a new batch may go to this leader. It may if the leader has proven itself, or if no batch for the
        former leader is left."""
        self.meets(leader, acks)
        return self.proven or not self.batches

    def acknowledged(self, batch: Batch) -> None:
        """The batch is written. From now on the leader knows this producer."""
        self.batches.remove(batch)
        self.proven, self.failures = True, 0
        self.last_acknowledged = sequence_after(batch.base_sequence, batch.record_count - 1)
        if not self.batches:
            self.resending = False

    def may_resend(self, now_ms: float) -> bool:
        return self.resending and now_ms >= self.retry_at_ms and not self.has_unanswered()

    def resend_later(self, at_ms: float) -> None:
        """A batch was refused or lost: send all again, at this time at the earliest."""
        self.resending = True
        self.retry_at_ms = max(self.retry_at_ms, at_ms)

    def renumber(self) -> None:
        """Close the gap in the sequences that a batch left, which was refused for good. No batch may be out, or maybe
        written."""
        assert self.rewind_to is not None
        sequence = self.rewind_to
        for batch in self.batches:
            batch.encode("none", batch.producer, sequence, 0)
            sequence = sequence_after(sequence, batch.record_count)
        self.next_sequence, self.rewind_to = sequence, None

    def restart(self) -> None:
        """Begin under a new producer id, with sequences from 0."""
        assert not self.batches
        self.next_sequence, self.rewind_to = 0, None
        self.proven = self.resending = False

    def put_back_unwritten(self) -> list[Batch]:
        """Empty the lane. Batches that are surely not written wait for a new producer id. Returns the others."""
        unknown = [batch for batch in self.batches if batch.maybe_written or batch.correlation_id is not None]
        unwritten = [batch for batch in self.batches if batch not in unknown]
        self.waiting.extendleft(reversed(unwritten))
        self.batches.clear()
        self.resending, self.rewind_to = False, None
        return unknown
