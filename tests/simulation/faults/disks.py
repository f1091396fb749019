"""Disks that are slow, full, hang, or err."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tests.simulation.machines.host import METADATA_HANGS, METADATA_QUEUE

if TYPE_CHECKING:
    from tests.simulation.faults.ground import Ground

_CHANGES = ("write", "fdatasync", "truncate", "rename", "open", "fsync_dir", "remove")
_PATHS = ("", "t0-0", "t0-", "__cluster_metadata", "quorum-vote", "checkpoint", ".log")
QUEUES = (("data-disk",), (METADATA_QUEUE,), ("data-disk", METADATA_QUEUE))


class Disks:
    """What befalls the calls of disks."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._random = ground.random

    def slow_disk(self) -> None:
        host = self._ground.host()
        host.slow_disk(self._random.choice((10.0, 100.0, 1_000.0)))
        self._ground.ails_for(host, "slow disk", 0.5, 5.0, lambda: host.slow_disk(1.0))

    def hanging_disk(self) -> bool:
        """A call does not return for a while; whoever is killed meanwhile never sees it return."""
        host = self._ground.some_host(lambda host: host.machine is not None)
        if host is None:
            return False
        queues = self._random.choice(QUEUES)
        host.hang_disk(queues)
        what = METADATA_HANGS if METADATA_QUEUE in queues else "hanging data disk"
        self._ground.ails_for(host, what, 0.2, 10.0, host.unhang_disk)
        return True

    def hanging_reads(self) -> bool:
        """What is not in memory is not read for a while; what is written is."""
        host = self._ground.some_host(lambda host: host.machine is not None)
        if host is None:
            return False
        host.hang_reads()
        self._ground.ails_for(host, "hanging reads", 0.2, 5.0, host.unhang_disk)
        return True

    def disk_error(self) -> bool:
        """One call fails, of those to come; half the time it reads."""
        host = self._ground.some_host(lambda host: host.process is not None)
        if host is None:
            return False
        operation = "pread" if self._random.random() < 0.5 else self._random.choice(_CHANGES)
        self._fail(host.name, operation)
        return True

    def disk_error_at_start(self) -> bool:
        """The same, while a process reads what is there."""
        host = self._ground.some_host(lambda host: host.process is None)
        if host is None:
            return False
        self._fail(host.name, self._random.choice(("pread", "pread", "open", "write", "fdatasync", "rename")))
        return True

    def _fail(self, name: str, operation: str) -> None:
        host, path = self._ground.cluster.host(name), self._random.choice(_PATHS)
        self._ground.erred.add(name)
        host.ails("disk error")
        host.disk.fail(operation, errno.EIO, path)
        self._ground.cluster.note(f"{name}: the next {operation} of {path or 'any file'} fails")

    def full_disk(self) -> None:
        host = self._ground.host()
        host.disk.fill("/data")
        self._ground.ails_for(host, "full disk", 0.5, 5.0, host.disk.fill)
