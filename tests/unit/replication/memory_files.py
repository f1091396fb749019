"""A disk in memory that forgets, at a crash, what was not synced. The real storage runs on it."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from minilog.record_batch.header import Buffer


class MemoryFile:
    """Content as written, and as it would be found after a crash."""

    def __init__(self, disk: MemoryFileSystem) -> None:
        self.content = bytearray()
        self.durable = b""
        self._disk = disk

    def pread(self, size_bytes: int, position: int) -> bytes:
        return bytes(self.content[position : position + size_bytes])

    def pread_quietly(self, size_bytes: int, position: int) -> bytes:
        return self.pread(size_bytes, position)

    def read_now(self, size_bytes: int, position: int) -> bytes | None:
        found = self.pread(size_bytes, position)
        return None if self._disk.cold or len(found) < size_bytes else found

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        if self._disk.full:
            raise OSError(errno.ENOSPC, "no space left")
        data = b"".join(bytes(buffer) for buffer in buffers)
        self.content[position : position + len(data)] = data

    def fdatasync(self) -> None:
        if self._disk.failing:
            raise OSError(errno.EIO, "the disk failed")
        self.durable = bytes(self.content)

    def truncate(self, size_bytes: int) -> None:
        self.content[:] = self.content[:size_bytes].ljust(size_bytes, b"\0")

    def size(self) -> int:
        return len(self.content)

    def forget(self, begin: int, end: int) -> None:
        """It is no cache."""

    def close(self) -> None:
        pass


class MemoryFileSystem:
    """Names are durable at once (fsync_dir has tests of its own in storage); contents are not."""

    def __init__(self) -> None:
        self.full = False
        self.failing = False
        self.cold = False  # nothing is in memory: who reads waits
        self._files: dict[str, MemoryFile] = {}
        self._directories = {"/"}

    def crash(self) -> None:
        """Power is lost: every file is as it was synced last."""
        for file in self._files.values():
            file.content = bytearray(file.durable)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path not in self._files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._files[path] = MemoryFile(self)
        return self._files[path]

    def lock(self, path: str) -> MemoryFile | None:
        return self.open(path, create=True)

    def rename(self, source: str, target: str) -> None:
        self._files[target] = self._files.pop(source)

    def remove(self, path: str) -> None:
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        del self._files[path]

    def make_dir(self, path: str) -> None:
        self._directories.add(path)

    def remove_dir(self, path: str) -> None:
        self._directories.discard(path)

    def fsync_dir(self, path: str) -> None:
        pass

    def list(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        names = {
            name[len(prefix) :].partition("/")[0]
            for name in (*self._files, *self._directories)
            if name.startswith(prefix)
        }
        return sorted(names - {""})

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def size(self, path: str) -> int:
        return self.open(path).size()
