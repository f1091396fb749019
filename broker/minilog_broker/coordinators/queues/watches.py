"""What the coordinator knows of the last stable offsets of a queue's partitions, and its questions for news.

    an answer                              what follows
    news                                   it is known, unless a later epoch is
    an error                               the same question again, after a pause

There is one question for a partition of a queue at a time. Each has a number, so the answer to a question of an earlier
term counts for nothing.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.replication.stable_offsets import StableOffset

RETRY_MS = 100.0


@dataclass(slots=True)
class _Watch:
    number: int = 0  # of the question under way; 0: there is none
    retry_at_ms: float = -math.inf
    stable: StableOffset | None = None


class Watches:
    """By queue and partition."""

    def __init__(self) -> None:
        self._watches: dict[QueueKey, _Watch] = {}
        self._retries: list[tuple[float, QueueKey]] = []
        self._numbers = 0

    def clear(self) -> None:
        """Forget all. Numbers go on."""
        self._watches.clear()
        self._retries.clear()

    def stable(self, key: QueueKey) -> StableOffset | None:
        """None: nothing is known yet."""
        watch = self._watches.get(key)
        return None if watch is None else watch.stable

    def is_watched(self, key: QueueKey) -> bool:
        """Whether something of this term is known of the partition, or asked."""
        return key in self._watches

    def forget(self, key: QueueKey) -> None:
        """Nothing is known of the partition any more, and the question under way counts for nothing."""
        self._watches.pop(key, None)

    def begin_question(self, key: QueueKey, now_ms: float) -> int | None:
        """The number of a new question. None: one is under way, or pauses."""
        watch = self._watches.setdefault(key, _Watch())
        if watch.number or watch.retry_at_ms > now_ms:
            return None
        self._numbers += 1
        watch.number = self._numbers
        return watch.number

    def end_question(self, key: QueueKey, number: int) -> bool:
        """Whether the answer is that of the question under way."""
        watch = self._watches.get(key)
        if watch is None or watch.number != number:
            return False
        watch.number = 0
        return True

    def pause(self, key: QueueKey, now_ms: float) -> None:
        """Ask again after a while."""
        watch = self._watches[key]
        watch.retry_at_ms = now_ms + RETRY_MS
        heapq.heappush(self._retries, (watch.retry_at_ms, key))

    def is_older(self, key: QueueKey, stable: StableOffset) -> bool:
        """Whether a leader of a later epoch has answered already."""
        newest = self.stable(key)
        return newest is not None and stable.leader_epoch < newest.leader_epoch

    def learn(self, key: QueueKey, stable: StableOffset) -> None:
        self._watches[key].stable = stable

    def take_retries(self, now_ms: float) -> list[QueueKey]:
        """The partitions whose pause is over."""
        keys = []
        while self._retries and self._retries[0][0] <= now_ms:
            keys.append(heapq.heappop(self._retries)[1])
        return keys

    def next_ms(self) -> float:
        """The end of the first pause."""
        return self._retries[0][0] if self._retries else math.inf
