"""What storage refuses, as errors of the one hierarchy. A failing disk itself is an OSError, as the system gave it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from minilog.errors import MinilogError, StorageError

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The disk takes no more for now: other than any other error it is tried again."""


class DataDirectoryError(MinilogError):
    """A data directory that this broker may not use, or whose files say something that cannot be."""

    code = "STORAGE_ERROR"


class DataDirectoryInUse(DataDirectoryError):
    """Another process holds the lock of the data directory."""


class CorruptFile(StorageError):
    """A small durable file whose checksum is wrong: it was damaged, a crash cannot leave it so."""


class DamagedCopy(OSError):
    """A command met batches of its log that are not what was written: the disk works, and what it holds is not right.
    The log is failed as by any other error of the disk; its copy is fetched again."""

    def __init__(self, damage: str) -> None:
        super().__init__(errno.EIO, damage)


class DifferingCopy(DamagedCopy):
    """Batches of a log are whole, and from `offset` on they differ from those of most copies: the log is cut there."""

    def __init__(self, damage: str, offset: int) -> None:
        super().__init__(damage)
        self.offset = offset


@contextlib.contextmanager
def passing_no_space() -> Iterator[None]:
    """What is tried inside is not worth failing for where the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
