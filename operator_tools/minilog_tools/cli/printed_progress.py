"""The progress of `minilog consume` in each partition."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from minilog import Consumer, TopicPartition
from minilog.types import Record

_COMMIT_EVERY_S = 1.0


class PrintedProgress:
    """The offset behind the last printed record of each partition. With `commits` it commits these offsets about once a
    second, and at the end."""

    def __init__(self, consumer: Consumer, *, commits: bool) -> None:
        self._consumer = consumer
        self._commits = commits
        self._printed: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._committed_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.stdout.flush()  # a record that nobody could read was not consumed
        self._commit()

    def printed(self, record: Record) -> None:
        """Note that one record of a poll is printed."""
        self.printed_to(TopicPartition(record.topic, record.partition), record.offset + 1)

    def printed_to(self, partition: TopicPartition, end: int) -> None:
        """Note that all records of a partition below `end` are printed."""
        self._printed[partition] = end

    def printed_all(self) -> None:
        """Note that everything of a poll is printed, also what lies behind the last record, such as markers."""
        positions = {partition: self._consumer.position(partition) for partition in self._consumer.assignment()}
        self._printed = {partition: offset for partition, offset in positions.items() if offset is not None}
        if time.monotonic() - self._committed_s >= _COMMIT_EVERY_S:
            self._commit()

    def give_back(self, partitions: list[TopicPartition]) -> None:
        """Commit and forget partitions that other members read from now on."""
        sys.stdout.flush()
        self._commit()
        self.forget(partitions)

    def forget(self, partitions: list[TopicPartition]) -> None:
        """Forget partitions that other members already read."""
        for partition in partitions:
            self._printed.pop(partition, None)
            self._committed.pop(partition, None)

    def _commit(self) -> None:
        self._committed_s = time.monotonic()
        if self._commits and self._printed and self._printed != self._committed:
            self._consumer.commit(self._printed)
            self._committed = dict(self._printed)
