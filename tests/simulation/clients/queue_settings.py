"""The queue of the simulation: its name and its settings."""

from __future__ import annotations

import random
from dataclasses import dataclass

QUEUE = "jobs"


@dataclass(frozen=True, slots=True)
class Settings:
    """Of the queue, as drawn."""

    lock_s: float
    limit: int
    max_locks: int

    def texts(self) -> dict[str, str]:
        return {
            "group.share.record.lock.duration.ms": str(int(1000 * self.lock_s)),
            "group.share.delivery.count.limit": str(self.limit),
            "group.share.partition.max.record.locks": str(self.max_locks),
        }


def drawn(seed: int) -> Settings:
    """The settings of a seed."""
    chance = random.Random(f"queue {seed}")
    return Settings(chance.choice((1.0, 2.0, 3.0)), chance.choice((2, 4, 8)), chance.choice((2_000, 2_000, 10)))
