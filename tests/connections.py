"""The TCP connections that a process holds on this machine, as the kernel lists them."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import NamedTuple

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED = "01"


class Ends(NamedTuple):
    """The ports of a connection."""

    local: int
    remote: int


def connections_of(pid: int) -> set[Ends]:
    """Those that are established now."""
    inodes = set()
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):  # closed meanwhile
            inodes.add(os.readlink(f"{folder}/{name}"))
    found = set()
    for table in _TABLES:
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _ESTABLISHED and f"socket:[{fields[9]}]" in inodes:
                local, remote = (int(each.rpartition(":")[2], 16) for each in fields[1:3])
                found.add(Ends(local, remote))
    return found
