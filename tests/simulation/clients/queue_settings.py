"""The queue of the simulation: its name and its settings."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

QUEUE = "jobs"
DEAD_LETTERS = "dlq0"
DEAD_LETTER_SHARE = 0.5  # of the queues: they have a dead-letter topic


@dataclass(frozen=True, slots=True)
class Settings:
    """Of the queue, as drawn. `copies`: dead letters have their records. None: there is no dead-letter topic."""

    lock_s: float
    limit: int
    max_locks: int
    copies: bool | None = None

    def texts(self) -> dict[str, str]:
        of_dead_letters = {
            "errors.deadletterqueue.topic.name": DEAD_LETTERS,
            "errors.deadletterqueue.copy.record.enable": str(self.copies).lower(),
        }
        return {
            **({} if self.copies is None else of_dead_letters),
            "group.share.record.lock.duration.ms": str(int(1000 * self.lock_s)),
            "group.share.delivery.count.limit": str(self.limit),
            "group.share.partition.max.record.locks": str(self.max_locks),
        }


def drawn(seed: int, *, has_letters: bool = False) -> Settings:
    """The settings of a seed. `has_letters`: there is a dead-letter topic in any case."""
    chance = random.Random(f"queue {seed}")
    settings = Settings(chance.choice((1.0, 2.0, 3.0)), chance.choice((2, 4, 8)), chance.choice((2_000, 2_000, 10)))
    share = 1.0 if has_letters else DEAD_LETTER_SHARE
    return replace(settings, copies=chance.choice((False, True)) if chance.random() < share else None)
