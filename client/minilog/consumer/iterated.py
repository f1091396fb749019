"""The records of a poll, which the program gets one by one: `for record in consumer`. No I/O.

A poll takes many records, and the position moves behind all of them. But a program that iterates has got only some of
them. So the position of a partition is before its first record that still waits here. A commit in the loop commits the
records that the program has got, as in Kafka's Python clients.

    waits     a poll took the record, and the program has not got it yet
    next      the program gets the record
    let go    the user has gone elsewhere: seek, assign, subscribe, pause
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from minilog.types import Record, TopicPartition


class Iterated:
    """The waiting records of one consumer. The thread of the program takes them. Other threads only look."""

    def __init__(self) -> None:
        self._waiting: deque[Record] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, records: Iterable[Record]) -> None:
        """Put in the records of a poll. None may wait before."""
        self._waiting = deque(records)

    def next(self) -> Record:
        """Take the next record. The position is then behind it."""
        return self._waiting.popleft()

    def take_all(self) -> list[Record]:
        """Take all waiting records, for a poll."""
        taken, self._waiting = self._waiting, deque()
        return list(taken)

    def places(self) -> dict[TopicPartition, int]:
        """The offset of the first waiting record of each partition."""
        offsets: dict[TopicPartition, int] = {}
        for record in list(self._waiting):  # a copy in one step: the program's thread may take one meanwhile
            offsets.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return offsets

    def let_go(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Drop the waiting records of these partitions, or of all if None."""
        if partitions is None:
            self._waiting = deque()
            return
        gone = {(partition.topic, partition.partition) for partition in partitions}
        self._waiting = deque(record for record in self._waiting if (record.topic, record.partition) not in gone)
