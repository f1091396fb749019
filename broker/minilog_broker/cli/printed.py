"""What `minilog consume` has printed: how far, and in what form a line goes to a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from minilog import Consumer, TopicPartition
from minilog.types import Record
from minilog_broker.printable import printable

_COMMIT_EVERY_S = 1.0


class PrintedProgress:
    """How far was printed; committed about once a second and at the end, where that is wanted."""

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
        sys.stdout.flush()  # what nobody could read was not consumed
        self._commit()

    def printed(self, record: Record) -> None:
        """One record of several that were polled."""
        self.printed_to(TopicPartition(record.topic, record.partition), record.offset + 1)

    def printed_to(self, partition: TopicPartition, end: int) -> None:
        """What lies below `end`."""
        self._printed[partition] = end

    def printed_all(self) -> None:
        """All that was polled: what lies behind the last record, such as markers, is done too."""
        positions = {partition: self._consumer.position(partition) for partition in self._consumer.assignment()}
        self._printed = {partition: offset for partition, offset in positions.items() if offset is not None}
        if time.monotonic() - self._committed_s >= _COMMIT_EVERY_S:
            self._commit()

    def give_back(self, partitions: list[TopicPartition]) -> None:
        """Others read them from here on: what was printed of them is committed."""
        sys.stdout.flush()
        self._commit()
        self.forget(partitions)

    def forget(self, partitions: list[TopicPartition]) -> None:
        """Others read them already."""
        for partition in partitions:
            self._printed.pop(partition, None)
            self._committed.pop(partition, None)

    def _commit(self) -> None:
        self._committed_s = time.monotonic()
        if self._commits and self._printed and self._printed != self._committed:
            self._consumer.commit(self._printed)
            self._committed = dict(self._printed)


def line(value: bytes) -> bytes:
    """A value as it is, for whoever reads the pipe; what a terminal would obey is shown as an escape."""
    if not sys.stdout.isatty():
        return value + b"\n"
    return for_terminal(value) + b"\n"


def for_terminal(value: bytes) -> bytes:
    """A value with escapes in the place of characters that a terminal would obey."""
    return printable(value.decode(errors="backslashreplace")).encode(errors="backslashreplace")
