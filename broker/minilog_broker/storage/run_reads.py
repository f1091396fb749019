"""The reads of a log for a session: whole batches back to back, at once or by a thread that may wait for the disk.

A read takes adjacent bytes of one file. So a run belongs to one segment, and is whole or an error. The log may be cut
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
    """The run that a session wants to read. replica_effects.ReadRun has this shape."""

    @property
    def offset(self) -> int:
        """An offset in the first batch."""

    @property
    def max_bytes(self) -> int:
        """The most bytes of all batches together. A larger first batch comes alone."""

    @property
    def end_offset(self) -> int:
        """All batches end at or below this offset. `readable_end` has the exception."""

    @property
    def readable_end(self) -> int:
        """The end of the readable batches. If `end_offset` lies inside the first batch, and that batch ends at or below
        `readable_end`, it comes alone."""


def read_run(log: Log, wanted: WantedRun) -> bytes:
    """Read the wanted run, and wait for the disk. Empty if the log does not hold the offset any more.

    Raises OSError, CorruptMessage, UnsupportedVersion if the copy cannot be read."""
    return _read(log.read, wanted)


def read_run_now(log: Log, wanted: WantedRun) -> Buffer | None:
    """Read the wanted run without waiting for the disk.

    None if part of it is not in memory, or if the system cannot tell. Also None after an error: then the read that
    waits raises the error."""
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
