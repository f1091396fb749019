"""The reads of a log for a session: whole batches back to back, at once or by a thread that may wait for the disk.

A read takes one file, from one place on. So a run belongs to one segment, and is whole or an error. The log may be cut
or deleted meanwhile. The session checks that when it gets the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from minilog.errors import OffsetOutOfRange
from minilog.record_batch.header import Buffer
from minilog_broker.storage.files import NotInMemory
from minilog_broker.storage.log import Log

_Run = TypeVar("_Run", bound=Buffer)


class WantedRun(Protocol):
    """replica_effects.ReadRun, by shape."""

    @property
    def offset(self) -> int:
        """In the first batch."""

    @property
    def max_bytes(self) -> int:
        """Of all of them, unless the first is larger."""

    @property
    def end_offset(self) -> int:
        """All end at or below it ..."""

    @property
    def readable_end(self) -> int:
        """... unless it lies inside of the first, which ends at or below this: then that one comes, alone."""


def read_run(log: Log, wanted: WantedRun) -> bytes:
    """Waits for the disk. Empty where the log does not hold the offset any more.

    Raises OSError, CorruptMessage, UnsupportedVersion: the copy cannot be read."""
    return _read(log.read, wanted)


def read_run_now(log: Log, wanted: WantedRun) -> Buffer | None:
    """None where any of it has to be waited for, or nobody can tell; an error is met by who waits."""
    try:
        return _read(log.read_now, wanted)
    except NotInMemory:
        return None


def _read(read: Callable[[int, int, int], _Run], wanted: WantedRun) -> _Run | bytes:
    offset = wanted.offset
    try:
        run = read(offset, wanted.max_bytes, wanted.end_offset)
        if not run and offset < wanted.end_offset < wanted.readable_end:
            run = read(offset, 1, wanted.readable_end)
    except OffsetOutOfRange:
        return b""
    return run
