"""A file system that keeps only the most recently used files open, so that many logs need few descriptors.

The pool keeps the name of each file. It opens the file at a use, and may close it at any time between two uses:

    a file that is    is closed when room is needed
    clean             in its turn: the clock algorithm, one bit of recency per file
    dirty             when no clean one is left, by the thread that changes files. That thread syncs it first, because
                      after the close no sync would report the error. A reader, which may be the event loop, does not
                      wait for that: it opens one file above the limit
    failed            never: a sync of it failed, and every later change raises that error to its owner

So no error of fdatasync is lost between two descriptors, and a failed fdatasync is never tried again. One thread
changes files, and any thread may read. If another thread may be reading, the pool drops a descriptor without closing it
(files.py). A file that is renamed while it is in use does not belong here, because the pool opens files by name.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import OrderedDict
from collections.abc import Sequence

from minilog.record_batch.header import Buffer
from minilog_broker.storage.files import File, FileSystem
from minilog_broker.storage.page_window import PageWindow

OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})


class _Name:
    """One file of the pool. `file` is None while it is closed."""

    __slots__ = ("dirty", "failed", "file", "path", "recent")

    def __init__(self, path: str) -> None:
        self.path = path
        self.file: File | None = None  # the page window refers to names, which keep no file open
        self.recent = False  # used after it was opened, and after the clock's hand passed it last
        self.dirty = False
        self.failed: OSError | None = None

    def forget(self, begin: int, end: int) -> None:
        file = self.file
        if file is not None:
            file.forget(begin, end)


class _Pool:
    """The open names, in the order of the clock's hand.

    No thread holds its lock during I/O, not even to open a file. Else the writer would wait for readers."""

    def __init__(self, files: FileSystem, most: int, window: PageWindow) -> None:
        self._files = files
        self._most = most
        self._window = window
        self._open: OrderedDict[_Name, None] = OrderedDict()
        self._lock = threading.RLock()  # reentrant: inside any call the last reference to a file may go (__del__)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def to_read(self, name: _Name, *, create: bool = False) -> File:
        """The name's file. If it is closed, open it. If two threads open it at once, both use the first one's file."""
        with self._lock:
            if (file := name.file) is not None:
                name.recent = True
                return file
            self._make_room(self._most - 1)
        opened = self._open_file(name.path, create=create)
        with self._lock:
            if (file := name.file) is None:
                file = name.file = opened
                self._open[name] = None
            return file

    def to_change(self, name: _Name) -> File:
        """The name's file, for the thread that changes files. It is dirty from now on, so that no reader closes it."""
        if name.failed is not None:
            raise OSError(name.failed.errno, f"an earlier sync of the file failed: {name.failed.strerror}", name.path)
        self._tidy(self._most - (name.file is None))
        with self._lock:
            name.dirty = True
        return self.to_read(name)

    def write(self, name: _Name, buffers: Sequence[Buffer], position: int) -> None:
        self.to_change(name).write(buffers, position)
        self._window.wrote(name, position, sum(map(len, buffers)))

    def create(self, name: _Name) -> None:
        """Open a file, and make it if it is missing. Called on the thread that changes files."""
        self._tidy(self._most - 1)
        self.to_read(name, create=True)

    def let_go(self, name: _Name) -> File | None:
        with self._lock:
            file, name.file = name.file, None
            self._open.pop(name, None)
            return file

    def _open_file(self, path: str, *, create: bool) -> File:
        try:
            return self._files.open(path, create=create)
        except OSError as error:
            if error.errno not in OUT_OF_FILES:
                raise
            with self._lock:
                self._make_room(len(self._open) // 2)  # other parts of the process use more descriptors than planned
            return self._files.open(path, create=create)

    def _make_room(self, most: int) -> None:
        """Close clean files until at most `most` are open, or none is left."""
        for _ in range(2 * len(self._open)):  # the hand clears each bit in its first round
            if len(self._open) <= most:
                return
            name = next(iter(self._open))
            if name.recent or name.dirty:
                name.recent = False
                self._open.move_to_end(name)
            else:
                self.let_go(name)

    def _tidy(self, most: int) -> None:
        """Close clean files, and sync dirty ones to make them clean, until at most `most` are open.

        Called on the thread that changes files."""
        while len(self._open) > most:
            with self._lock:
                self._make_room(most)
                chosen = next((name for name in self._open if name.dirty and name.failed is None), None)
            if len(self._open) <= most or chosen is None:
                return
            with contextlib.suppress(OSError):  # the file's next change raises the error to its owner
                self._sync(chosen, chosen.file)

    def sync(self, name: _Name) -> None:
        """Call fdatasync, on the thread that changes files. After an error all later changes raise that error."""
        self._sync(name, self.to_change(name))

    @staticmethod
    def _sync(name: _Name, file: File | None) -> None:
        if file is None:  # its last reference has gone
            return
        try:
            file.fdatasync()
        except OSError as error:
            name.failed = error
            raise
        name.dirty = False


class PooledFile:
    """A file that the pool opens by its name at a use, and may close between two uses."""

    __slots__ = ("_name", "_pool")

    def __init__(self, pool: _Pool, name: _Name) -> None:
        self._pool = pool
        self._name = name

    def __del__(self) -> None:
        self._pool.let_go(self._name)  # the descriptor is dropped, not closed: another thread may be reading from it

    def __repr__(self) -> str:
        return f"PooledFile({self._name.path!r})"

    def _to_read(self) -> File:
        name = self._name
        file = name.file
        if file is None:
            return self._pool.to_read(name)
        name.recent = True
        return file

    def pread(self, size_bytes: int, position: int) -> bytes:
        return self._to_read().pread(size_bytes, position)

    def pread_quietly(self, size_bytes: int, position: int) -> bytes:
        return self._to_read().pread_quietly(size_bytes, position)

    def read_now(self, size_bytes: int, position: int) -> Buffer | None:
        name = self._name
        file = name.file
        if file is None:  # opening the file could wait for the disk
            return None
        name.recent = True
        return file.read_now(size_bytes, position)

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._pool.write(self._name, buffers, position)

    def fdatasync(self) -> None:
        self._pool.sync(self._name)

    def truncate(self, size_bytes: int) -> None:
        self._pool.to_change(self._name).truncate(size_bytes)

    def size(self) -> int:
        return self._to_read().size()

    def forget(self, begin: int, end: int) -> None:
        self._name.forget(begin, end)

    def close(self) -> None:
        """Drop the descriptor without closing it, as `__del__` does. Another thread may be reading from it."""
        self._pool.let_go(self._name)


class PooledFileSystem:
    """The file system `files`, with at most `most_open` open files at a time. A locked file stays open besides.

    The newest `page_cache_bytes` that were written stay in the page cache (page_window.py)."""

    def __init__(self, files: FileSystem, most_open: int, page_cache_bytes: int | None = None) -> None:
        self._files = files
        self._pool = _Pool(files, most_open, PageWindow(page_cache_bytes))

    @property
    def open_count(self) -> int:
        """The number of files that are open now."""
        return self._pool.open_count

    def open(self, path: str, *, create: bool = False) -> File:
        name = _Name(path)
        file = PooledFile(self._pool, name)
        if create:
            self._pool.create(name)
        else:
            self._pool.to_read(name)
        return file

    def lock(self, path: str) -> File | None:
        return self._files.lock(path)

    def rename(self, source: str, target: str) -> None:
        self._files.rename(source, target)

    def remove(self, path: str) -> None:
        self._files.remove(path)

    def make_dir(self, path: str) -> None:
        self._files.make_dir(path)

    def remove_dir(self, path: str) -> None:
        self._files.remove_dir(path)

    def fsync_dir(self, path: str) -> None:
        self._files.fsync_dir(path)

    def list(self, path: str) -> list[str]:
        return self._files.list(path)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def size(self, path: str) -> int:
        return self._files.size(path)
