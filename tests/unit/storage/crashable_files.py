"""A file system in memory that loses at a crash what it may: unsynced bytes and unsynced names. See files.py.

Each change of a name and each write is pending until it is synced. At a crash any part of the pending names
survives, and of each file's pending writes either the first few, the next one torn, or any, each whole or torn. `fail`
makes an operation raise; `crash_after` makes the machine stop in the middle of the n-th change from now on.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from minilog.record_batch.header import Buffer
from minilog_broker.storage.files import File

Write = tuple[int, bytes | None]  # (position, bytes); a truncation has None


class PowerLoss(BaseException):
    """The machine stopped in the middle of a change."""


def apply_write(content: bytearray, write: Write) -> None:
    position, data = write
    if data is None:
        del content[position:]
        content.extend(bytes(position - len(content)))
        return
    content.extend(bytes(max(0, position - len(content))))
    content[position : position + len(data)] = data


def tear(content: bytearray, write: Write, random: Random) -> None:
    """Part of a write is on the disk, and perhaps zeros behind it."""
    position, data = write
    if data is not None:
        torn = data[: random.randint(0, len(data))]
        zeros = bytes(random.randint(0, len(data) - len(torn))) if random.random() < 0.3 else b""
        apply_write(content, (position, torn + zeros))


def _lose(content: bytearray, write: Write) -> None:
    """Nothing of it is."""


@dataclass(eq=False)
class Inode:
    live: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[Write] = field(default_factory=list)
    locked: bool = False
    sync_failed: bool = False

    def write(self, write: Write) -> None:
        apply_write(self.live, write)
        self.pending.append(write)

    def after_crash(self, random: Random) -> Inode:
        """What of this file is on the disk."""
        content = bytearray(self.durable)
        if random.random() < 0.5:
            kept = random.randint(0, len(self.pending))
            for write in self.pending[:kept]:
                apply_write(content, write)
            for write in self.pending[kept : kept + 1]:
                tear(content, write, random)
        else:
            for write in self.pending:
                random.choice((apply_write, lambda content, write: tear(content, write, random), _lose))(content, write)
        return Inode(bytearray(content), bytes(content))


class CrashableFile:
    def __init__(self, files: CrashableFiles, inode: Inode, path: str) -> None:
        self._files = files
        self._inode = inode
        self._path = path
        self._life = files.life
        self._open = True
        self._locks = False

    def _check(self) -> None:
        if self._life != self._files.life or not self._open:
            raise OSError(errno.EBADF, f"{self._path} is not open")

    def pread_quietly(self, size_bytes: int, position: int) -> bytes:
        return self.pread(size_bytes, position)

    def read_now(self, size_bytes: int, position: int) -> bytes | None:
        found = self.pread(size_bytes, position)
        return found if len(found) == size_bytes else None

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._check()
        self._files.may_fail("pread", self._path)
        found = bytes(self._inode.live[position : position + size_bytes])
        self._files.read_bytes += len(found)
        return found

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._check()
        data = b"".join(bytes(buffer) for buffer in buffers)

        def half() -> None:
            self._inode.write((position, data[: len(data) // 2]))

        self._files.change("write", self._path, half)
        self._inode.write((position, data))

    def fdatasync(self) -> None:
        self._check()
        assert not self._inode.sync_failed, f"{self._path}: a failed fdatasync was tried again"

        def failed() -> None:
            self._inode.sync_failed = True

        self._files.change("fdatasync", self._path, failed)
        self._inode.durable = bytes(self._inode.live)
        self._inode.pending.clear()

    def truncate(self, size_bytes: int) -> None:
        self._check()
        self._files.change("truncate", self._path)
        if size_bytes != len(self._inode.live):
            self._inode.write((size_bytes, None))

    def size(self) -> int:
        self._check()
        return len(self._inode.live)

    def forget(self, begin: int, end: int) -> None:
        self._check()

    def close(self) -> None:
        if self._locks:
            self._inode.locked = False
        self._open = False


class CrashableFiles:
    """See the module. The root directory `/` is there."""

    def __init__(self, random: Random | None = None) -> None:
        self.random = random or Random(0)
        self.life = 0
        self.names: dict[str, Inode | None] = {"/": None}  # a directory has no inode
        self._durable: dict[str, Inode | None] = {"/": None}
        self._pending: list[dict[str, tuple[bool, Inode | None]]] = []  # path -> (there, inode)
        self._failures: list[tuple[str, str, int]] = []
        self._changes_left: int | None = None
        self.changes = 0
        self.read_bytes = 0

    # what tests do to it

    def fail(self, operation: str, error: int, path_part: str = "") -> None:
        """The next `operation` on a path that contains `path_part` raises."""
        self._failures.append((operation, path_part, error))

    def crash_after(self, changes: int) -> None:
        """Raise PowerLoss in the middle of the change after so many."""
        self._changes_left = changes

    def crash(self) -> None:
        """Lose what may be lost. Open files are no more."""
        names = dict(self._durable)
        chance = self.random.choice((0.0, 0.5, 1.0))
        for change in self._pending:
            if self.random.random() < chance:
                _apply_names(names, change)
        survivors: dict[int, Inode] = {}
        for path, inode in names.items():
            if inode is not None:
                survivors.setdefault(id(inode), inode.after_crash(self.random))
                names[path] = survivors[id(inode)]
        self.names = names
        self._durable = dict(names)
        self._pending.clear()
        self.stop_process()

    def stop_process(self) -> None:
        """The process dies, the machine does not: nothing is lost."""
        self.life += 1
        self._changes_left = None
        self._failures.clear()
        for inode in self.names.values():
            if inode is not None:
                inode.locked = False

    def copy(self) -> CrashableFiles:
        """Another disk with the same names and bytes, after a crash."""
        copy = CrashableFiles(self.random)
        inodes = {id(inode): replace(inode, live=bytearray(inode.live)) for inode in self.names.values() if inode}
        copy.names = {path: None if inode is None else inodes[id(inode)] for path, inode in self.names.items()}
        copy._durable = dict(copy.names)
        return copy

    def content(self, path: str) -> bytes:
        inode = self.names[path]
        assert inode is not None
        return bytes(inode.live)

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Change bytes on the disk."""
        inode = self.names[path]
        assert inode is not None
        inode.live[position : position + len(data)] = data
        inode.durable = bytes(inode.live)

    def cut(self, path: str, size_bytes: int) -> None:
        inode = self.names[path]
        assert inode is not None
        del inode.live[size_bytes:]
        inode.durable = bytes(inode.live)

    def lose(self, path: str) -> None:
        """A file is gone."""
        del self.names[path]
        self._durable.pop(path, None)

    # the interface

    def may_fail(self, operation: str, path: str) -> None:
        for failure in self._failures:
            if failure[0] == operation and failure[1] in path:
                self._failures.remove(failure)
                raise OSError(failure[2], os.strerror(failure[2]), path)

    def change(self, operation: str, path: str, half: Callable[[], None] = lambda: None) -> None:
        self.changes += 1
        if self._changes_left is not None:
            if self._changes_left == 0:
                half()
                raise PowerLoss
            self._changes_left -= 1
        try:
            self.may_fail(operation, path)
        except OSError:
            half()
            raise

    def _rename_entries(self, change: dict[str, tuple[bool, Inode | None]]) -> None:
        _apply_names(self.names, change)
        self._pending.append(change)

    def open(self, path: str, *, create: bool = False) -> File:
        if path not in self.names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            if path.rpartition("/")[0] not in self.names and path.count("/") > 1:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            self.change("open", path)
            self._rename_entries({path: (True, Inode())})
        inode = self.names[path]
        assert inode is not None, f"{path} is a directory"
        return CrashableFile(self, inode, path)

    def lock(self, path: str) -> File | None:
        file = self.open(path, create=True)
        assert isinstance(file, CrashableFile)
        if file._inode.locked:
            return None
        file._inode.locked = file._locks = True
        return file

    def rename(self, source: str, target: str) -> None:
        self.change("rename", target)
        moved: dict[str, tuple[bool, Inode | None]] = {}
        for path, inode in self.names.items():
            if path == source or path.startswith(source + "/"):
                moved[path] = (False, None)
                moved[target + path.removeprefix(source)] = (True, inode)
        if not moved:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._rename_entries(moved)

    def remove(self, path: str) -> None:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.change("remove", path)
        self._rename_entries({path: (False, None)})

    def make_dir(self, path: str) -> None:
        if path not in self.names:
            self.change("make_dir", path)
            self._rename_entries({path: (True, None)})

    def remove_dir(self, path: str) -> None:
        assert not self.list(path), f"{path} is not empty"
        self.change("remove_dir", path)
        self._rename_entries({path: (False, None)})

    def fsync_dir(self, path: str) -> None:
        self.change("fsync_dir", path)
        still_pending = []
        for change in self._pending:
            if any(name.rpartition("/")[0] == path.rstrip("/") for name in change):
                _apply_names(self._durable, change)
            else:
                still_pending.append(change)
        self._pending = still_pending

    def list(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = (name.removeprefix(prefix) for name in self.names if name.startswith(prefix) and name != "/")
        return sorted(name for name in below if "/" not in name)

    def exists(self, path: str) -> bool:
        return path in self.names

    def size(self, path: str) -> int:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return len(self.content(path))


def _apply_names(names: dict[str, Inode | None], change: dict[str, tuple[bool, Inode | None]]) -> None:
    for path, (there, inode) in change.items():
        if there:
            names[path] = inode
        else:
            names.pop(path, None)
