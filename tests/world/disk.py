"""A disk in memory under the real storage: it loses, tears, fails and rots as files.py allows, when faults say so.

Each write and each change of a name is pending until it is synced. When the machine loses power, any part of the
pending names survives, and of each file's pending writes the first few, the next one torn; on a disk that writes
`out_of_order`, any of them, each whole or torn. Who does not say how it writes gets either, drawn for each file. When
only the process dies nothing is lost. A `Death` is raised in the middle of a change where `die_after` was set.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from minilog.record_batch.header import Buffer
from minilog_broker.storage.files import File

Write = tuple[int, bytes | None]  # (position, bytes); a truncation to the position has None
NEVER = 1 << 62  # a position that no file reaches
SEGMENT_SUFFIX = ".log"
_METADATA = "__cluster_metadata"  # some space stays reserved for it
Names = dict[str, tuple[bool, "Inode | None"]]  # path -> (is there, its inode)
_ByDirectory = dict[str, dict[str, "Inode"]]


@dataclass(frozen=True, slots=True)
class TreeMove:
    """A directory takes another name, with all that is in it."""

    source: str
    target: str

    def moves(self, path: str) -> bool:
        return path == self.source or path.startswith(self.source + "/")

    def moved(self, path: str) -> str:
        """The path of a file or directory after the move."""
        return self.target + path.removeprefix(self.source) if self.moves(path) else path


NameChange = Names | TreeMove


class Death(BaseException):
    """A process ends in the middle of what it does."""


class PowerLoss(Death):
    """The machine stopped."""


class Killed(Death):
    """SIGKILL: the page cache stays."""


def _apply(content: bytearray, write: Write) -> None:
    position, data = write
    length = len(content)
    if data is None:
        if position < length:
            del content[position:]
        else:
            content.extend(bytes(position - length))
        return
    if position > length:
        content.extend(bytes(position - length))
    content[position : position + len(data)] = data


class Inode:
    """A file's content: as processes see it, and as it is on the disk.

    For one reader that reads only what is new, each where bytes changed first since it last looked: `live_from`,
    `durable_from`; `cut_to`: the shortest that the file was cut to."""

    __slots__ = ("cut_to", "durable", "durable_from", "live", "live_from", "locked", "pending", "sync_failed")

    def __init__(self, content: bytes = b"") -> None:
        self.live = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[Write] = []
        self.locked = False
        self.sync_failed = False
        self.live_from = self.durable_from = 0
        self.cut_to = NEVER

    def write(self, write: Write) -> None:
        position, data = write
        if position < self.live_from:
            self.live_from = position
        if data is None and position < self.cut_to:
            self.cut_to = position
        _apply(self.live, write)
        self.pending.append(write)

    def sync(self) -> None:
        for write in self.pending:
            if write[0] < self.durable_from:
                self.durable_from = write[0]
            _apply(self.durable, write)
        self.pending.clear()

    def lose_power(self, rng: random.Random | None, *, out_of_order: bool | None) -> None:
        """What of this file is on the disk; without `rng` only what was synced."""
        if rng is None:
            pass
        elif rng.random() < 0.5 if out_of_order is None else out_of_order:
            for write in self.pending:
                drawn = rng.random()
                if drawn < 0.6:
                    self._keep(write, rng, torn=drawn < 0.2)
        else:
            kept = rng.randint(0, len(self.pending))
            for write in self.pending[:kept]:
                self._keep(write, rng, torn=False)
            if kept < len(self.pending):
                self._keep(self.pending[kept], rng, torn=True)
        self.pending.clear()
        self.live = bytearray(self.durable)
        self.live_from = self.durable_from = 0
        self.sync_failed = False

    def _keep(self, write: Write, rng: random.Random, *, torn: bool) -> None:
        position, data = write
        if not torn:
            _apply(self.durable, write)
        elif data is not None:
            part = data[: rng.randint(0, len(data))]
            zeros = bytes(rng.randint(0, len(data) - len(part))) if rng.random() < 0.3 else b""
            _apply(self.durable, (position, part + zeros))


class DiskFile:
    """An open file of one process."""

    __slots__ = ("_disk", "_inode", "_life", "_locks", "_open", "_path")

    def __init__(self, disk: MemoryDisk, inode: Inode, path: str, *, locks: bool = False) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._life = disk.life
        self._open = True
        self._locks = locks

    def _check(self) -> None:
        if self._life != self._disk.life or not self._open:
            raise OSError(errno.EBADF, "not open", self._path)

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._check()
        disk = self._disk
        disk.waited_for(self._path)
        if disk.armed:
            disk.may_fail_to_read(self._path)
        found = bytes(self._inode.live[position : position + size_bytes])
        disk.read_bytes += len(found)
        return found

    def pread_quietly(self, size_bytes: int, position: int) -> bytes:
        return self.pread(size_bytes, position)

    def read_now(self, size_bytes: int, position: int) -> bytes | None:
        """What fails is not in memory: who waits for it meets the error."""
        self._check()
        disk, live = self._disk, self._inode.live
        if position + size_bytes > len(live) or disk.is_cold(self._path):
            return None
        return bytes(live[position : position + size_bytes])

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._check()
        data = b"".join(buffers)
        disk, inode = self._disk, self._inode
        if disk.armed and not disk.passes("write", self._path, grows=position + len(data) > len(inode.live)):
            inode.write((position, data[: disk.random.randint(0, len(data))]))
            disk.interrupt(self._path)
        disk.changes += 1
        inode.write((position, data))

    def fdatasync(self) -> None:
        self._check()
        disk, inode = self._disk, self._inode
        assert not inode.sync_failed, f"{self._path}: a failed fdatasync was tried again"
        if disk.armed and not disk.passes("fdatasync", self._path):
            inode.sync_failed = disk.interrupted_by_error
            disk.interrupt(self._path)
        disk.changes += 1
        inode.sync()

    def truncate(self, size_bytes: int) -> None:
        self._check()
        disk = self._disk
        if disk.armed and not disk.passes("truncate", self._path):
            disk.interrupt(self._path)
        disk.changes += 1
        if size_bytes != len(self._inode.live):
            self._inode.write((size_bytes, None))

    def size(self) -> int:
        self._check()
        return len(self._inode.live)

    def forget(self, begin: int, end: int) -> None:
        """Only what is on the disk leaves a page cache: nothing changes."""
        self._check()
        assert 0 <= begin < end <= len(self._inode.live), f"{self._path}: bytes that were never written are forgotten"

    def close(self) -> None:
        if self._locks and self._life == self._disk.life:
            self._inode.locked = False
        self._open = False


class MemoryDisk:
    """See the module's text. A FileSystem of minilog_broker.storage.files; the root `/` is there.

    `failures`: (operation, part of the path, errno), each met once. `full_parts`: writes that make a file longer fail
    where one is in the path, but in the metadata log's, for which some space stays reserved. `changes` counts changes,
    `read_bytes` what was read. `life` counts processes: files of former ones are closed. `renames` counts changes of
    segments' names, synced or not, and what befell content otherwise than by a write.
    """

    def __init__(self, rng: random.Random | None = None, *, out_of_order: bool | None = None) -> None:
        self.random = rng or random.Random(0)
        self.out_of_order = out_of_order
        self.life = 0
        self.changes = 0
        self.renames = 0
        self.flips: list[tuple[str, Inode, int]] = []  # bits that are not what was written: path, file, position
        self.wipes = 0
        self.read_bytes = 0
        self.failures: list[tuple[str, str, int]] = []
        self.full_parts: tuple[str, ...] = ()
        self.cold_share = 0.0  # of the reads: what they ask for is not in memory
        self._cold_chance = random.Random(0)
        self.armed = False  # something may fail: kept so that the usual path asks one flag
        self._changes_left: int | None = None
        self._death: type[Death] = PowerLoss
        self._error: int | None = None  # of the change that does not pass; None: the process dies in it
        self.names: dict[str, Inode | None] = {"/": None}  # a directory has no inode
        self._durable: dict[str, Inode | None] = {"/": None}
        self._pending: list[NameChange] = []
        self._segments: dict[bool, tuple[int, _ByDirectory]] = {}  # durable: as of so many renames

    # -- what faults do to it

    def fail(self, operation: str, error: int, path_part: str = "") -> None:
        """The next `operation` on a path that contains `path_part` raises OSError(error)."""
        self.failures.append((operation, path_part, error))
        self._arm()

    def fill(self, *path_parts: str) -> None:
        """No space is left for files with one of `path_parts` in their paths; none: there is space again."""
        self.full_parts = path_parts
        self._arm()

    def die_after(self, changes: int, death: type[Death]) -> None:
        """Raise `death` in the middle of the change after so many."""
        self._changes_left, self._death = changes, death
        self._arm()

    def survives(self, change: Callable[[], object], changes: int | None) -> bool:
        """Carry out `change`; whether the power lasted. It fails in the middle of the change after so many, if any."""
        if changes is not None:
            self.die_after(changes, PowerLoss)
        try:
            change()
        except PowerLoss:
            self.lose_power()
            return False
        self.calm()
        return True

    def lose_power(self) -> None:
        """Lose what may be lost. Open files are no more."""
        names = dict(self._durable)
        chance = self.random.choice((0.0, 0.5, 1.0))
        for change in self._pending:
            if self.random.random() < chance:
                _apply_names(names, change)
        self.renames += 1
        self.names = names
        self._durable = dict(names)
        self._pending.clear()
        lost: dict[int, None] = {}
        for inode in names.values():
            if inode is not None and id(inode) not in lost:
                lost[id(inode)] = None
                inode.lose_power(self.random, out_of_order=self.out_of_order)
        self.end_process()

    def lose_unsynced(self) -> None:
        """Power is lost, and with it all that was not synced."""
        self.renames += 1
        self.names = dict(self._durable)
        self._pending.clear()
        for inode in self.names.values():
            if inode is not None:
                inode.lose_power(None, out_of_order=None)
        self.end_process()

    def end_process(self) -> None:
        """The process dies, the machine does not: nothing is lost, but what a failed sync left only in memory."""
        self.life += 1
        self.renames += 1
        self.calm()
        for inode in self.names.values():
            if inode is not None:
                inode.locked = False
                if inode.sync_failed:
                    inode.lose_power(self.random, out_of_order=self.out_of_order)

    def calm(self) -> None:
        """Nothing fails any more."""
        self._changes_left = None
        self.failures.clear()
        self.full_parts = ()
        self._arm()

    def wipe(self) -> None:
        """Another disk, empty. Only while no process runs on it."""
        self.renames += 1
        self.wipes += 1
        self.names, self._durable = {"/": None}, {"/": None}
        self._pending.clear()

    def copy(self) -> MemoryDisk:
        """Another disk with the same names and bytes, all of them durable."""
        copy = MemoryDisk(self.random, out_of_order=self.out_of_order)
        inodes = {id(inode): Inode(bytes(inode.live)) for inode in self.names.values() if inode is not None}
        copy.names = {path: None if inode is None else inodes[id(inode)] for path, inode in self.names.items()}
        copy._durable = dict(copy.names)
        return copy

    def _inode(self, path: str) -> Inode:
        inode = self.names[path]
        assert inode is not None, f"{path} is a directory"
        return inode

    def content(self, path: str) -> bytes:
        return bytes(self._inode(path).live)

    def durable_content(self, path: str) -> bytes | None:
        """What of the file would survive a loss of power now, at the least; None where its name would not."""
        inode = self._durable.get(path)
        return None if inode is None else bytes(inode.durable)

    def files(self, directory: str, *, durable: bool) -> dict[str, Inode]:
        """What stands in a directory, by name; `durable`: under a name that a loss of power would leave."""
        prefix, names = directory + "/", self._durable if durable else self.names
        return {
            path[len(prefix) :]: inode for path, inode in names.items() if inode is not None and path.startswith(prefix)
        }

    def segments(self, directory: str, *, durable: bool) -> dict[str, Inode]:
        """As `files`, but segments only; not to be changed. Kept until a segment's name changes."""
        renames, found = self._segments.get(durable, (-1, {}))
        if renames != self.renames:
            found = {}
            for path, inode in (self._durable if durable else self.names).items():
                if inode is not None and path.endswith(SEGMENT_SUFFIX):
                    parent, _, name = path.rpartition("/")
                    found.setdefault(parent, {})[name] = inode
            self._segments[durable] = self.renames, found
        return found.get(directory, {})

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """A bit of the file is not what was written, in the page cache and on the disk."""
        inode = self._inode(path)
        inode.sync()
        self.renames += 1
        self.flips.append((path, inode, position))
        inode.live_from, inode.durable_from = min(inode.live_from, position), min(inode.durable_from, position)
        inode.live[position] ^= 1 << bit
        inode.durable[position] ^= 1 << bit

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Bytes are not what was written, in the page cache and on the disk."""
        inode = self._inode(path)
        inode.write((position, data))
        inode.sync()

    def cut(self, path: str, size_bytes: int) -> None:
        """The file is shorter than it was written."""
        inode = self._inode(path)
        inode.write((size_bytes, None))
        inode.sync()

    def lose(self, path: str) -> None:
        """A file is gone."""
        self.renames += 1
        del self.names[path]
        self._durable.pop(path, None)

    # -- failing

    def _arm(self) -> None:
        self.armed = bool(self.failures) or bool(self.full_parts) or self._changes_left is not None

    def passes(self, operation: str, path: str, *, grows: bool = False) -> bool:
        """Whether a change may be made; where not, do half of it and call `interrupt`."""
        if self._changes_left is not None:
            if self._changes_left <= 0:
                self._error = None
                return False
            self._changes_left -= 1
        if grows and _METADATA not in path and any(part in path for part in self.full_parts):
            self._error = errno.ENOSPC
            return False
        for failure in self.failures:
            if failure[0] == operation and failure[1] in path:
                self.failures.remove(failure)
                self._arm()
                self._error = failure[2]
                return False
        return True

    @property
    def interrupted_by_error(self) -> bool:
        """Whether the change that did not pass meets an error, and not the end of the process."""
        return self._error is not None

    def interrupt(self, path: str) -> None:
        """Raise what the change that did not pass met."""
        if self._error is None:
            raise self._death
        raise OSError(self._error, os.strerror(self._error), path)

    def may_fail(self, operation: str, path: str) -> None:
        if not self.passes(operation, path):
            self.interrupt(path)

    def get_cold(self, share: float, seed: object = 0) -> None:
        """Of the reads so many have to wait from now on."""
        self.cold_share, self._cold_chance = share, random.Random(f"cold {seed}")

    def is_cold(self, path: str) -> bool:
        """Whether who reads has to wait."""
        if self.armed and any(failure[0] == "pread" and failure[1] in path for failure in self.failures):
            return True
        return self.cold_share > 0.0 and self._cold_chance.random() < self.cold_share

    def waited_for(self, path: str) -> None:
        """Somebody waits for this read."""

    def may_fail_to_read(self, path: str) -> None:
        """A "pread" is no change: nobody dies in one, and a full disk is read."""
        for failure in self.failures:
            if failure[0] == "pread" and failure[1] in path:
                self.failures.remove(failure)
                self._arm()
                self._error = failure[2]
                self.interrupt(path)

    def _change_names(self, operation: str, path: str, change: NameChange) -> None:
        if self.armed:
            self.may_fail(operation, path)
        self.changes += 1
        self.renames += _has_segments(change)
        _apply_names(self.names, change)
        self._pending.append(change)

    # -- the interface

    def open(self, path: str, *, create: bool = False) -> File:
        return self._open(path, create=create)

    def _open(self, path: str, *, create: bool, locks: bool = False) -> DiskFile:
        if path not in self.names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            if path.count("/") > 1 and path.rpartition("/")[0] not in self.names:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            self._change_names("open", path, {path: (True, Inode())})
        inode = self._inode(path)
        return DiskFile(self, inode, path, locks=locks)

    def lock(self, path: str) -> File | None:
        file = self._open(path, create=True, locks=True)
        inode = self._inode(path)
        if inode.locked:
            return None
        inode.locked = True
        return file

    def rename(self, source: str, target: str) -> None:
        if source not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        inode = self.names[source]
        change = TreeMove(source, target) if inode is None else {source: (False, None), target: (True, inode)}
        self._change_names("rename", target, change)

    def remove(self, path: str) -> None:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._change_names("remove", path, {path: (False, None)})

    def make_dir(self, path: str) -> None:
        if path not in self.names:
            self._change_names("make_dir", path, {path: (True, None)})

    def remove_dir(self, path: str) -> None:
        if self.list(path):
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self._change_names("remove_dir", path, {path: (False, None)})

    def fsync_dir(self, path: str) -> None:
        if self.armed:
            self.may_fail("fsync_dir", path)
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.changes += 1
        directory = path.rstrip("/")
        still_pending: list[NameChange] = []
        for change in self._pending:
            if all(name.rpartition("/")[0] != directory for name in _changed(change)):
                still_pending.append(change)
                continue
            self.renames += _has_segments(change)
            _apply_names(self._durable, change)
            if isinstance(change, TreeMove):  # what is pending in the directory is pending under its new name
                still_pending = [_moved(earlier, change) for earlier in still_pending]
        self._pending = still_pending

    def list(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        length = len(prefix)
        below = (name[length:] for name in self.names if name.startswith(prefix))
        return sorted(name for name in below if name and "/" not in name)

    def exists(self, path: str) -> bool:
        return path in self.names

    def size(self, path: str) -> int:
        inode = self.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return len(inode.live)


def _changed(change: NameChange) -> Iterable[str]:
    """The paths that a change is about."""
    return (change.source, change.target) if isinstance(change, TreeMove) else change


def _has_segments(change: NameChange) -> bool:
    return isinstance(change, TreeMove) or any(path.endswith(SEGMENT_SUFFIX) for path in change)


def _moved(change: NameChange, move: TreeMove) -> NameChange:
    """An earlier change, after the move of a directory."""
    if isinstance(change, TreeMove):
        return TreeMove(move.moved(change.source), move.moved(change.target))
    return {move.moved(path): there for path, there in change.items()}


def _apply_names(names: dict[str, Inode | None], change: NameChange) -> None:
    if isinstance(change, TreeMove):
        for path in [path for path in names if change.moves(path)]:
            names[change.moved(path)] = names.pop(path)
        return
    for path, (there, inode) in change.items():
        if there:
            names[path] = inode
        else:
            names.pop(path, None)
