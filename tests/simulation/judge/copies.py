"""What lies on the disks: each host's copy of each log, as its batches' headers say, read again only where it changed.

A copy is seen twice: `live`, as processes see it, and `durable`, what a loss of power would leave.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.judges.views import View
from tests.simulation.machines.host import DATA_PATH
from tests.world.stored import as_json, durable_json

if TYPE_CHECKING:
    from tests.simulation.machines.host import SimulatedHost

_SNAPSHOT = re.compile(r"\d{20}-\d{10}\.snapshot")


class Copy:
    """One host's copy of one log."""

    def __init__(self, host: SimulatedHost, name: str) -> None:
        self.host = host
        self.path = f"{DATA_PATH}/{name}"
        self._changes = self._renames = -1
        self._log_start = 0  # as its checkpoint says
        self._live = View(durable=False)
        self._durable = View(durable=True)

    def look(self) -> None:
        disk = self.host.disk
        if (disk.changes, disk.renames) == (self._changes, self._renames):
            return
        renamed = disk.renames != self._renames
        self._changes, self._renames = disk.changes, disk.renames
        if renamed:
            self._log_start = int((self.recorded("checkpoint") or {}).get("log_start_offset", 0))
        for view in (self._live, self._durable):
            view.look(disk.segments(self.path, durable=view.durable) if renamed else None, self._log_start)

    @property
    def live(self) -> View:
        self.look()
        return self._live

    @property
    def durable(self) -> View:
        self.look()
        return self._durable

    def snapshot_end(self, *, durable: bool) -> int:
        """Where the newest snapshot of the metadata log ends; 0 where there is none."""
        names = self.host.disk.files(self.path, durable=durable)
        return max((int(name[:20]) for name in names if _SNAPSHOT.fullmatch(name)), default=0)

    @property
    def exists(self) -> bool:
        return self.host.disk.exists(self.path)

    def recorded(self, name: str, *, durable: bool = True) -> Any:
        """What a durable JSON file of the log says on the disk; None where there is none. `durable` unset: as processes
        see it."""
        path = f"{self.path}/{name}"
        if durable:
            return durable_json(self.host.disk, path)
        return as_json(self.host.disk.content(path) if self.host.disk.exists(path) else None)


class Copies:
    """All of them, by host and the log's name (`topic-partition`)."""

    def __init__(self, hosts: list[SimulatedHost]) -> None:
        self._hosts = hosts
        self._copies: dict[tuple[int, str], Copy] = {}

    def of(self, number: int, name: str) -> Copy:
        """The copy of host `number`."""
        copy = self._copies.get((number, name))
        if copy is None:
            host = next(host for host in self._hosts if host.number == number)
            copy = self._copies[number, name] = Copy(host, name)
        return copy

    def all_of(self, name: str) -> list[Copy]:
        return [self.of(host.number, name) for host in self._hosts]
