"""The errors of storage, in the one hierarchy of errors. For a failing disk storage raises the system's OSError."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from minilog.errors import MinilogError, StorageError

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The disk has no space for now. The broker retries after these errors, and after no other error of the disk."""


class DataDirectoryError(MinilogError):
    """This broker may not use the data directory, or the files of the directory contradict each other."""

    code = "STORAGE_ERROR"


class DataDirectoryInUse(DataDirectoryError):
    """Another process holds the lock of the data directory."""


class CorruptFile(StorageError):
    """A small durable file has a wrong checksum or content. That is damage, because a crash cannot leave it so."""


class DamagedCopy(OSError):
    """A command read batches that differ from the batches that the log wrote: the disk works, but its content is wrong.

    The log fails as after any other error of the disk. The broker fetches its copy again."""

    def __init__(self, damage: str) -> None:
        super().__init__(errno.EIO, damage)


class DifferingCopy(DamagedCopy):
    """The batches of a log are whole, but from `offset` on they differ from those of most copies.

    The broker cuts the log there."""

    def __init__(self, damage: str, offset: int) -> None:
        super().__init__(damage)
        self.offset = offset


@contextlib.contextmanager
def passing_no_space() -> Iterator[None]:
    """Ignore a full disk inside the block. The work there is optional."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
