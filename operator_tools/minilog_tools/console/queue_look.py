"""One queue as the console shows it."""

from __future__ import annotations

from dataclasses import dataclass

from minilog.errors import MinilogError
from minilog.types import QueueDescription, QueuePosition, QueueRange

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
MOST_QUEUES = 20  # of one look: a description takes a call to the queue's coordinator


@dataclass(frozen=True, slots=True)
class LeasedRange:
    """A range of a partition, as a row."""

    topic: str
    partition: int
    range: QueueRange

    @property
    def remaining_s(self) -> float | None:
        """Until the lock or the delay ends. None in a transaction, which ends when its program ends it."""
        return None if self.range.state == "settling" else self.range.remaining_ms / 1000


@dataclass(frozen=True, slots=True)
class QueueLook:
    """One queue: its description, or the error that came in its place."""

    queue: str
    description: QueueDescription | None
    trouble: MinilogError | None = None

    @property
    def positions(self) -> list[QueuePosition]:
        return [] if self.description is None else self.description.partitions

    @property
    def ranges(self) -> list[LeasedRange]:
        """The ranges of all partitions."""
        return [LeasedRange(at.topic, at.partition, part) for at in self.positions for part in at.ranges]

    def count(self, state: str) -> int:
        """The number of offsets in this state."""
        return sum(position.count(state) for position in self.positions)

    @property
    def backlog(self) -> int | None:
        """None where the end of a partition is not known."""
        backlogs = [position.backlog for position in self.positions]
        return None if None in backlogs else sum(backlog or 0 for backlog in backlogs)

    @property
    def undecided_count(self) -> int | None:
        """The offsets in or behind open transactions. None where the leader of a partition does not tell."""
        counts = [position.undecided_count for position in self.positions]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def unsettled(self) -> int | None:
        """The offsets that are not settled. None where the end of a partition is not known."""
        return None if self.backlog is None else self.backlog + sum(row.range.count for row in self.ranges)

    @property
    def dead_letter_topic(self) -> str | None:
        """None where dead records are settled, and no letter is written."""
        return None if self.description is None else self.description.settings.get(DEAD_LETTER_TOPIC) or None

    @property
    def dead_count(self) -> int:
        return sum(position.dead_count for position in self.positions)

    @property
    def expired_count(self) -> int:
        return sum(position.expired_count for position in self.positions)

    @property
    def worker_count(self) -> int:
        """The workers that have records, as far as the coordinator knows them."""
        return len({row.range.worker_id for row in self.ranges if row.range.worker_id})
