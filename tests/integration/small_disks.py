"""A small disk under a broker's data directory, to be filled and emptied. Only root may mount one."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

LEFT_BYTES = 1 << 20


@contextlib.contextmanager
def small_disk(directory: pathlib.Path, size_mib: int) -> Iterator[pathlib.Path]:
    """`directory`, made on a disk of its own."""
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def fill(disk: pathlib.Path) -> pathlib.Path:
    """Leave LEFT_BYTES at most, whoever writes beside; the file to remove for space."""
    filler, size_bytes = disk / "filler", 0
    with filler.open("wb") as file:
        while (more_bytes := _free_bytes(disk) - LEFT_BYTES) > 0:
            with contextlib.suppress(OSError):  # taken meanwhile: what is free is looked at again
                os.posix_fallocate(file.fileno(), size_bytes, more_bytes)
                size_bytes += more_bytes
    return filler


def _free_bytes(disk: pathlib.Path) -> int:
    free = os.statvfs(disk)
    return free.f_bavail * free.f_frsize
