"""The one file interface of storage. Storage touches the disk only through it.

So a simulated disk can stand under the real storage. Each file system here keeps these rules. A simulated one may lose
at a crash only as much as they allow:

- Written bytes are durable after `fdatasync` (data and size), not before. A failed `fdatasync` is never tried again.
- A created, renamed or removed name is durable after `fsync_dir` of its directory, not before.
- `rename` replaces its target at once: after a crash there is the old file or the new one.
- An error is an OSError with its errno. A write that raised may have written any part of its bytes.

A file closes at a call of `close`, or when the last reference to it goes. If a reader may still be reading a file, code
drops its reference and does not close the file: after a close the descriptor could already be another file's.

The event loop must not wait, so it reads only bytes that are in memory (`read_now`). Other threads wait for the disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from minilog.record_batch.header import Buffer

# Only the brokers give records to clients, by their rules. No other user of the machine may read the files.
_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_TAKES_ADVICE = hasattr(os, "posix_fadvise")  # Linux and others, not macOS
_NORMAL, _RANDOM, _DONTNEED = (getattr(os, f"POSIX_FADV_{name}", 0) for name in ("NORMAL", "RANDOM", "DONTNEED"))
_MAX_BUFFERS = 1024  # IOV_MAX of Linux: more in one call is refused
_NOT_WAITING = getattr(os, "RWF_NOWAIT", None)  # Linux; on macOS each read waits
_CANNOT_TELL = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})  # a file system without it
_LOOKED_AT_FIRST_BYTES = 64 << 10  # before a longer read allocates memory, it checks both of its ends
_MALLOC = pa.system_memory_pool()  # unlike a bytearray it clears no memory, and it keeps freed memory (minilog.malloc)


PIECE_BYTES = 256 << 10
"""The size of one piece of a quiet read. Larger pieces delay a sync for longer, and smaller ones delay it more often
(measured: docs/internals/performance.md)."""


class Readable(Protocol):
    """A source of bytes."""

    def pread(self, size_bytes: int, position: int) -> Buffer:
        """Up to `size_bytes` at `position`. Only at the end of the file there are fewer."""


class Sized(Readable, Protocol):
    """A source of bytes with a known size."""

    def size(self) -> int:
        """The size in bytes."""


class File(Protocol):
    """An open file. One thread may read it while another one writes it."""

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Up to `size_bytes` at `position`. Only at the end of the file there are fewer."""

    def pread_quietly(self, size_bytes: int, position: int) -> bytes:
        """The same as pread, but the disk reads nothing ahead. So a sync at the same time waits for less."""

    def read_now(self, size_bytes: int, position: int) -> Buffer | None:
        """All of `size_bytes` at `position` if they are in memory.

        None if they are not, or if the system cannot tell."""

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all of `buffers`, one after another, from `position` on."""

    def fdatasync(self) -> None:
        """Sync the file. On return the written bytes and the size are on the disk."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`, or extend it with zeros."""

    def size(self) -> int:
        """The size in bytes."""

    def forget(self, begin: int, end: int) -> None:
        """Advise the kernel to drop these bytes from the page cache. Bytes that are not on the disk yet stay.

        Raises nothing."""

    def close(self) -> None:
        """Close the file, and release its lock if it has one. A second call does nothing."""


class FileSystem(Protocol):
    """Directories and names. Paths are absolute strings with `/`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. If it is missing and `create` is set, make an empty file.

        Raises FileNotFoundError if it is missing and `create` is not set."""

    def lock(self, path: str) -> File | None:
        """Open the file at `path`, and make it if it is missing. It is locked while it is open.

        Returns None if another process has the lock."""

    def rename(self, source: str, target: str) -> None:
        """Give the file `source` the name `target`. A former file of that name goes."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def make_dir(self, path: str) -> None:
        """Make a directory. Its parent must exist. If the directory is there already, nothing happens."""

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""

    def fsync_dir(self, path: str) -> None:
        """Sync the directory `path`. On return its names are on the disk."""

    def list(self, path: str) -> list[str]:
        """The names in directory `path`, sorted."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory at `path`."""

    def size(self, path: str) -> int:
        """The size of the file at `path` in bytes."""


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"OsFile({self._path!r})"

    def pread(self, size_bytes: int, position: int) -> bytes:
        return os.pread(self._descriptor, size_bytes, position)

    def pread_quietly(self, size_bytes: int, position: int) -> bytes:
        self._advise(0, 0, _RANDOM)  # the advice is for the open file, so no other reader of it reads ahead meanwhile
        try:
            return self.pread(size_bytes, position)
        finally:
            self._advise(0, 0, _NORMAL)

    def read_now(self, size_bytes: int, position: int) -> Buffer | None:
        long = size_bytes > _LOOKED_AT_FIRST_BYTES
        if long and not (self._is_in_memory(position) and self._is_in_memory(position + size_bytes - 1)):
            return None
        buffer = memoryview(pa.allocate_buffer(size_bytes, memory_pool=_MALLOC)).cast("B")
        return buffer if self._fills(buffer, position) else None

    def _is_in_memory(self, position: int) -> bool:
        return self._fills(bytearray(1), position)

    def _fills(self, buffer: bytearray | memoryview, position: int) -> bool:
        if _NOT_WAITING is None:
            return False
        try:
            return os.preadv(self._descriptor, [buffer], position, _NOT_WAITING) == len(buffer)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _CANNOT_TELL:
                return False
            raise

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        pending: list[Buffer] = list(buffers)
        while pending:
            head = pending[:_MAX_BUFFERS]
            written = os.pwritev(self._descriptor, head, position)
            position += written
            pending = _after(head, written) + pending[_MAX_BUFFERS:]

    def fdatasync(self) -> None:
        os.fdatasync(self._descriptor)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def forget(self, begin: int, end: int) -> None:
        self._advise(begin, end - begin, _DONTNEED)

    def _advise(self, begin: int, size_bytes: int, advice: int) -> None:
        if _TAKES_ADVICE:
            with contextlib.suppress(OSError):  # a file system that takes no advice
                os.posix_fadvise(self._descriptor, begin, size_bytes, advice)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _after(buffers: list[Buffer], written_bytes: int) -> list[Buffer]:
    """The rest of `buffers` behind the first `written_bytes`."""
    for index, buffer in enumerate(buffers):
        length = len(buffer)
        if written_bytes < length:
            return [memoryview(buffer)[written_bytes:], *buffers[index + 1 :]]
        written_bytes -= length
    return []


class NotInMemory(Exception):
    """The bytes are not in memory, so the caller would have to wait for the disk."""


class InMemory:
    """A view of a file that reads only bytes that are in memory. It raises NotInMemory for any other byte."""

    __slots__ = ("_file",)

    def __init__(self, file: File) -> None:
        self._file = file

    def pread(self, size_bytes: int, position: int) -> Buffer:
        content = self._file.read_now(size_bytes, position)
        if content is None:
            raise NotInMemory
        return content


class Quiet:
    """A view of a file for a reader that has time. It reads nothing ahead, and reads in pieces of PIECE_BYTES.

    It calls `pause` between two pieces, so that a sync waits for at most one piece."""

    __slots__ = ("_file", "_pause")

    def __init__(self, file: File, pause: Callable[[], None]) -> None:
        self._file = file
        self._pause = pause

    def pread(self, size_bytes: int, position: int) -> bytes:
        if size_bytes <= PIECE_BYTES:
            return self._file.pread_quietly(size_bytes, position)
        pieces = []
        for begin in range(0, size_bytes, PIECE_BYTES):
            if begin:
                self._pause()
            wanted_bytes = min(PIECE_BYTES, size_bytes - begin)
            pieces.append(self._file.pread_quietly(wanted_bytes, position + begin))
            if len(pieces[-1]) < wanted_bytes:  # the end of the file
                break
        return b"".join(pieces)


class OsFileSystem:
    """The real disk."""

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(path, flags, _FILE_MODE), path)

    def lock(self, path: str) -> File | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, _FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return OsFile(descriptor, path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def make_dir(self, path: str) -> None:
        if not os.path.isdir(path):
            os.mkdir(path, _DIRECTORY_MODE)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size


class ReadingFileSystem(OsFileSystem):
    """The real disk, for reading only. Its files cannot be written, and it makes no file.

    So it also works on a disk that takes no writes. Several processes may read one directory at the same time."""

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return OsFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)

    def lock(self, path: str) -> File | None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return OsFile(descriptor, path)
