"""Records that a poll took, and that the program gets one by one: `for record in consumer`. No I/O.

A poll hands out many records, and the position moves behind all of them. A program that iterates has got only those
that it was given. So the position of a partition is before its first record that still waits here: what is committed
in the loop is what the program has got, as in Kafka's Python clients.

    waits     a poll took it, and the program has not got it yet
    next      the program has got it
    let go    the user has gone elsewhere: seek, assign, subscribe, pause
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from minilog.types import Record, TopicPartition


class Iterated:
    """The records of one consumer that wait. The thread of the program takes them, other threads only look."""

    def __init__(self) -> None:
        self._waiting: deque[Record] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, records: Iterable[Record]) -> None:
        """What a poll took, where nothing waits."""
        self._waiting = deque(records)

    def next(self) -> Record:
        """The next one: the position is behind it."""
        return self._waiting.popleft()

    def take_all(self) -> list[Record]:
        """All that wait, for a poll."""
        taken, self._waiting = self._waiting, deque()
        return list(taken)

    def places(self) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition that waits."""
        offsets: dict[TopicPartition, int] = {}
        for record in list(self._waiting):  # a copy in one step: the program's thread may take one meanwhile
            offsets.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return offsets

    def let_go(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Those of these partitions wait no longer; None: of all."""
        if partitions is None:
            self._waiting = deque()
            return
        gone = {(partition.topic, partition.partition) for partition in partitions}
        self._waiting = deque(record for record in self._waiting if (record.topic, record.partition) not in gone)
