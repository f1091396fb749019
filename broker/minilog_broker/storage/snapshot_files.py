"""The snapshots of the metadata image on disk: `<end offset, 20 digits>-<epoch, 10 digits>.snapshot`, beside its log.

A snapshot is written to another name and synced. Then it is renamed, and the directory is synced. So a file with that
name is whole, or the disk has damaged it later. Here a snapshot is only bytes. controller.snapshot knows its content,
and checks it.
"""

from __future__ import annotations

import contextlib

from minilog_broker.storage.durable_file import TEMPORARY_SUFFIX
from minilog_broker.storage.files import File, FileSystem
from minilog_broker.storage.snapshot_id import SnapshotId, parse_snapshot_name, snapshot_name

MAX_SNAPSHOT_BYTES = 1 << 30  # far above any image; it limits a read with a damaged size, and a write from a peer


class SnapshotReceiver:
    """A snapshot that arrives from another broker. The caller writes its chunks in order, and then calls `finish`."""

    def __init__(self, files: FileSystem, directory: str, snapshot_id: SnapshotId) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{snapshot_name(snapshot_id)}"
        self._aside = self._path + TEMPORARY_SUFFIX
        self._file: File | None = files.open(self._aside, create=True)
        self._file.truncate(0)
        self.size_bytes = 0

    def write(self, position: int, content: bytes) -> None:
        """Write the next chunk. Raises ValueError if it is not the next one, or if the whole is too large, OSError."""
        if self._file is None or position != self.size_bytes or position + len(content) > MAX_SNAPSHOT_BYTES:
            raise ValueError(f"{self._path}: a chunk of {len(content)} bytes at {position} is not the next one")
        self._file.write([content], position)
        self.size_bytes += len(content)

    def content(self) -> bytes:
        """All bytes that have arrived. The caller checks them before `finish`."""
        assert self._file is not None
        return self._file.pread(MAX_SNAPSHOT_BYTES, 0)

    def finish(self) -> None:
        """Give the whole snapshot its name. It is durable on return."""
        assert self._file is not None
        self._file.fdatasync()
        self._file.close()
        self._file = None
        self._files.rename(self._aside, self._path)
        self._files.fsync_dir(self._directory)

    def abandon(self) -> None:
        """Remove an unfinished snapshot. After `finish` this does nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None
            with contextlib.suppress(OSError):
                self._files.remove(self._aside)


class SnapshotFiles:
    """The snapshots in the directory of one metadata log."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory

    def list(self) -> list[SnapshotId]:
        """The ids of all snapshots, the newest first."""
        if not self._files.exists(self._directory):
            return []
        snapshot_ids = map(parse_snapshot_name, self._files.list(self._directory))
        return sorted((snapshot_id for snapshot_id in snapshot_ids if snapshot_id is not None), reverse=True)

    def read(self, snapshot_id: SnapshotId) -> bytes:
        """The whole content of a snapshot. Raises OSError. That is FileNotFoundError if the snapshot is missing."""
        return self.read_chunk(snapshot_id, 0, MAX_SNAPSHOT_BYTES)[0]

    def read_chunk(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """(the bytes from `position` on, the size of the whole file)."""
        file = self._files.open(self._path(snapshot_id))
        try:
            return file.pread(max_bytes, position), file.size()
        finally:
            file.close()

    def write(self, snapshot_id: SnapshotId, content: bytes) -> None:
        """Write a whole snapshot. It is durable under its name on return."""
        receiver = self.receive(snapshot_id)
        try:
            receiver.write(0, content)
            receiver.finish()
        finally:
            receiver.abandon()

    def receive(self, snapshot_id: SnapshotId) -> SnapshotReceiver:
        """Begin to receive a snapshot from another broker."""
        return SnapshotReceiver(self._files, self._directory, snapshot_id)

    def remove_before(self, snapshot_id: SnapshotId) -> None:
        """Remove the snapshots that are older than `snapshot_id`.

        Called when `snapshot_id` is durable and the log starts at its end."""
        for older in self.list():
            if older.end_offset < snapshot_id.end_offset:
                self._files.remove(self._path(older))
        self._files.fsync_dir(self._directory)

    def _path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._directory}/{snapshot_name(snapshot_id)}"
