"""Producer state on disk: `<offset>.snapshot` holds the state up to `offset`. The two newest files stay.

A snapshot above the log's end describes records that are gone. So the log removes it, durably, before other records
take their offsets. But it may be the only file with the producers of deleted records. So the log first reads these
producers from it, and stores them as of the log's end (`replace_later`).
"""

from __future__ import annotations

import contextlib
import re

from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.errors import CorruptFile, passing_no_space
from minilog_broker.storage.files import FileSystem

KEPT_SNAPSHOTS = 2  # one may be damaged
_NAME = re.compile(r"(\d{20})\.snapshot")


def snapshot_offsets(files: FileSystem, directory: str) -> list[int]:
    """The offsets of all snapshots, ascending."""
    return [int(match[1]) for name in files.list(directory) if (match := _NAME.fullmatch(name))]


def write_snapshot(files: FileSystem, directory: str, offset: int, snapshot: bytes) -> None:
    """Store a snapshot, durably, and remove the oldest ones."""
    write_durable_file(files, _path(directory, offset), snapshot)
    for old in snapshot_offsets(files, directory)[:-KEPT_SNAPSHOTS]:
        files.remove(_path(directory, old))


def load_snapshot(files: FileSystem, directory: str, log_end_offset: int) -> tuple[int, bytes] | None:
    """(offset, snapshot) of the newest whole snapshot at or below the log's end. None if there is none."""
    for offset in reversed(snapshot_offsets(files, directory)):
        if offset > log_end_offset:
            continue
        try:
            snapshot = read_durable_file(files, _path(directory, offset))
        except CorruptFile:
            continue  # an older one, or the log itself, gives the same state
        if snapshot is not None:
            return offset, snapshot
    return None


def later_snapshots(files: FileSystem, directory: str, log_end_offset: int) -> list[bytes]:
    """The whole snapshots above the log's end, the lowest first."""
    snapshots = []
    for offset in snapshot_offsets(files, directory):
        with contextlib.suppress(CorruptFile):
            if offset > log_end_offset and (snapshot := read_durable_file(files, _path(directory, offset))) is not None:
                snapshots.append(snapshot)
    return snapshots


def replace_later(files: FileSystem, directory: str, log_end_offset: int, snapshot: bytes) -> None:
    """If there are snapshots above the log's end, replace them by `snapshot`, which is the state at that end."""
    if any(offset > log_end_offset for offset in snapshot_offsets(files, directory)):
        with passing_no_space():
            write_durable_file(files, _path(directory, log_end_offset), snapshot)
        remove_snapshots(files, directory, above_offset=log_end_offset)


def remove_snapshots(files: FileSystem, directory: str, *, above_offset: int) -> None:
    """Remove, durably, the snapshots with an offset above `above_offset`."""
    above = [offset for offset in snapshot_offsets(files, directory) if offset > above_offset]
    for offset in above:
        files.remove(_path(directory, offset))
    if above:
        files.fsync_dir(directory)


def _path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}.snapshot"
