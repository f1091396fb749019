"""Space reserved for the metadata log, votes and checkpoints: a file that the broker removes when the disk is full.

    state      entered when                            data may be written    left by
    HELD       made at the start                       yes                    a write that finds the disk full
    LET GO     a write found the disk full             no                     as much as it, twice, is free again

The freed space belongs to those three alone (docs/spec/replication.md § Eligible leaders and damage). Until the broker
holds the reserve again, it refuses data without trying to write it. It takes the reserve back only if twice its size is
free. Else the space that it has just freed would look like enough.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable
from typing import TypeVar

from minilog_broker.storage.errors import NO_SPACE
from minilog_broker.storage.files import FileSystem

RESERVE_BYTES = 8 << 20  # thousands of decisions and checkpoints, small against any disk
RETRY_S = 1.0  # the least time between two tries on a full disk: each try writes until the disk is full
_CHUNK = bytes(1 << 20)

_T = TypeVar("_T")


class Reserve:
    """The file that keeps space on disk for metadata.

    The disk threads of data and of metadata use it. `clock_s` is monotonic.
    """

    def __init__(
        self, files: FileSystem, directory: str, clock_s: Callable[[], float], size_bytes: int = RESERVE_BYTES
    ) -> None:
        self._files = files
        self._path = f"{directory}/reserve"
        self._clock_s = clock_s
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._tried_s = float("-inf")
        self.held = False

    def hold(self) -> bool:
        """Take the space if twice its size is free. Returns whether the reserve is held.

        Raises OSError for any error but a full disk."""
        with self._lock:
            if not self.held and self._clock_s() - self._tried_s >= RETRY_S:
                self._tried_s = self._clock_s()
                self.held = self._take()
            return self.held

    def let_go(self) -> bool:
        """Give the space back, because the disk is full. Returns whether the reserve was held."""
        with self._lock:
            held, self.held = self.held, False
            self._tried_s = self._clock_s()
            if held:
                self._remove()
            return held

    def write_data(self, work: Callable[[], _T]) -> _T:
        """Call `work`, which writes data, but not while the reserve is let go.

        Raises OSError. If the reserve is let go, that is ENOSPC, and `work` was not called."""
        if not self.hold():
            raise OSError(errno.ENOSPC, "the disk is full: the metadata log is using the space reserved for it")
        try:
            return work()
        except OSError as error:
            if error.errno in NO_SPACE:
                self.let_go()
            raise

    def write_metadata(self, work: Callable[[], _T]) -> _T:
        """Call `work`, which writes metadata. If it finds the disk full, call it again in the reserve's space.

        If `work` fails on a full disk, it must leave nothing half done, as logs and durable files do."""
        try:
            return work()
        except OSError as error:
            if error.errno not in NO_SPACE or not self.let_go():
                raise
            return work()

    def _take(self) -> bool:
        if self._files.exists(self._path) and self._files.size(self._path) == self._size_bytes:
            return True  # a former life made the file
        try:
            file = self._files.open(self._path, create=True)
            try:
                for position in range(0, 2 * self._size_bytes, len(_CHUNK)):
                    file.write([_CHUNK[: 2 * self._size_bytes - position]], position)
                file.truncate(self._size_bytes)
                file.fdatasync()
            finally:
                file.close()
        except OSError as error:
            self._remove()
            if error.errno in NO_SPACE:
                return False
            raise
        return True

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._files.remove(self._path)
