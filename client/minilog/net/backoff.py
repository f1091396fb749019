"""The pauses of a client that tries again and again.

After a failure a client tries again soon, because most failures are short. While failures follow each other, it waits
longer and longer. Otherwise the clients of overloaded brokers would load them even more, and the brokers would never
recover. Each pause is a little random, so that the clients of a broker that died do not come at the same moment. The
rule is Kafka's (KIP-580): each pause is twice the former one, and moves at random by up to a fifth.
"""

from __future__ import annotations

import random

_JITTER = 0.2
_MOST_DOUBLINGS = 16


def pause_after(failures: int, first: float, most: float) -> float:
    """The pause after `failures` failures in a row (at least 1), in the unit of `first` and `most`."""
    return min(first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), most)


def moved(pause: float, chance: random.Random) -> float:
    """The pause, moved by chance."""
    return pause * chance.uniform(1.0 - _JITTER, 1.0 + _JITTER)


class ExponentialBackoff:
    """The pauses between attempts that follow each other, in the unit of `first` and `most`."""

    def __init__(self, first: float, most: float, chance: random.Random) -> None:
        self.most = most
        self._first, self._chance = first, chance
        self._failures = 0

    def next(self) -> float:
        """The pause before the next attempt: the first one, and twice the former one after each further failure."""
        self._failures += 1
        return moved(pause_after(self._failures, self._first, self.most), self._chance)

    def reset(self) -> None:
        """Note that an attempt succeeded. The next pause is the first one again."""
        self._failures = 0
