"""The errors of storage, in the one hierarchy of errors. A failing disk itself is the system's OSError."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from minilog.errors import MinilogError, StorageError

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The disk takes no more for now: other than any other error it is tried again."""


class DataDirectoryError(MinilogError):
    """A data directory that this broker may not use, or whose files contradict each other."""

    code = "STORAGE_ERROR"


class DataDirectoryInUse(DataDirectoryError):
    """Another process holds the lock of the data directory."""


class CorruptFile(StorageError):
    """A small durable file whose checksum is wrong. That is damage: a crash cannot leave the file so."""


class DamagedCopy(OSError):
    """A command met batches of its log that differ from the written ones: the disk works, but its content is wrong. The
    log fails as after any other error of the disk, and its copy is fetched again."""

    def __init__(self, damage: str) -> None:
        super().__init__(errno.EIO, damage)


class DifferingCopy(DamagedCopy):
    """Batches of a log are whole, and from `offset` on they differ from those of most copies: the log is cut there."""

    def __init__(self, damage: str, offset: int) -> None:
        super().__init__(damage)
        self.offset = offset


@contextlib.contextmanager
def passing_no_space() -> Iterator[None]:
    """Ignore a full disk inside: the work there is not worth a failure."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
