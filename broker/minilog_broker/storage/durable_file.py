"""Small files that survive a crash as the old or the new file, and whose checksum shows damage.

A new file is written to `<path>.tmp` and synced. Then it is renamed, and the directory is synced. One line with the
crc32c follows the content, so that JSON stays readable. Checkpoints, epochs, topic ids, producer snapshots,
broker.json, votes and the clean-stop mark are such files.
"""

from __future__ import annotations

import contextlib

import google_crc32c

from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem

TEMPORARY_SUFFIX = ".tmp"
MAX_BYTES = 64 << 20  # larger than any producer snapshot; bounds what a damaged size can make us read
_TRAILER = b"\ncrc32c=%08x\n"
_TRAILER_BYTES = len(_TRAILER % 0)


def parent(path: str) -> str:
    """The directory of `path`."""
    return path.rpartition("/")[0] or "/"


def write_durable_file(files: FileSystem, path: str, content: bytes) -> None:
    """Replace the file at `path`, durably on return. After an OSError there is the old file or the new one."""
    temporary = path + TEMPORARY_SUFFIX
    try:
        file = files.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write([content, _TRAILER % google_crc32c.value(content)], 0)
            file.fdatasync()
        finally:
            file.close()
        files.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # a full disk keeps no half file; the caller gets the first error
            files.remove(temporary)
        raise
    files.fsync_dir(parent(path))


def read_durable_file(files: FileSystem, path: str) -> bytes | None:
    """The content of the file at `path`. None if there is no such file. Raises CorruptFile if its checksum is wrong."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        stored = file.pread(MAX_BYTES + _TRAILER_BYTES + 1, 0)
    finally:
        file.close()
    content = stored[:-_TRAILER_BYTES]
    if len(content) > MAX_BYTES or stored[len(content) :] != _TRAILER % google_crc32c.value(content):
        raise CorruptFile(f"{path} is damaged: its checksum does not fit its {len(stored)} bytes")
    return content


def remove_durable_file(files: FileSystem, path: str) -> None:
    """Remove the file at `path`, durably. If it is not there, nothing happens."""
    try:
        files.remove(path)
    except FileNotFoundError:
        return
    files.fsync_dir(parent(path))
