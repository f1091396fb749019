"""What lies on a disk is not what was written there: on the disk of the weak machine (ground.py).

Anything of a copy of data may rot, at any place of it: as many sound copies are left as are needed but one. A voter's
metadata log rots only below what its checkpoint has recorded: a voter that lost the newest is counted by what it says
from then on (docs/spec/quorum.md § The metadata log). What ends a broker for good, or a replica, an operator sets
aside: the disk is emptied in the end, and the voter replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minilog.errors import CorruptMessage
from minilog.record_batch.header import HEADER_BYTES, BatchHeader, iterate_headers
from tests.simulation.machines.host import DATA_PATH

if TYPE_CHECKING:
    from tests.simulation.faults.ground import Ground
    from tests.simulation.machines.host import SimulatedHost

_METADATA = f"{DATA_PATH}/__cluster_metadata-0"
_SMALL = (
    "checkpoint",
    "leader-epoch",
    "manifest",
    "topic-id",
    ".snapshot",
    "broker.json",
    "quorum-vote",
    "clean-stop",
    "torn-tail",
)
_SPOILS = ("topic-id", "broker.json", "quorum-vote")  # nobody can tell what these were


class Damage:
    """What befalls the content of the weak machine's disk."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._random = ground.random

    def rot(self) -> bool:
        """A bit anywhere in a segment."""
        return self._rot(self._logs(".log"), 0)

    def rot_of_header(self) -> bool:
        """A bit of a batch's header."""
        host = self._ground.weak_host()
        path = self._pick(self._logs(".log"))
        if host is None or path is None:
            return False
        batches = _batches(host, path)
        if not batches:
            return False
        self._ground.erred.add(host.name)
        return self._flip(host, path, self._random.choice(batches)[0] + self._random.randrange(HEADER_BYTES))

    def rot_of_index(self) -> bool:
        return self._rot(self._logs(".index", ".timeindex"), 0)

    def rot_of_small_file(self) -> bool:
        """What is read at the next start: so its machine loses power soon."""
        host = self._ground.weak_host()
        path = self._pick(self._files(f"{DATA_PATH}/", _SMALL))
        if host is None or path is None or "__cluster_metadata" in path:
            return False
        self._ground.spoilt |= path.endswith(_SPOILS)
        host.lose_power()
        self._ground.start_later(host, 2.0)
        return host.disk.exists(path) and self._rot([path], 0)

    def rot_of_metadata(self) -> bool:
        """See the module's text. It is found at the next start, and ends the process."""
        host = self._ground.weak_host()
        if host is None:
            return False
        recorded = (self._ground.stored(host, "__cluster_metadata-0/checkpoint") or {}).get("durable_end_offset", 0)
        spots = [
            (path, position, header.length)
            for path in self._files(_METADATA, (".log",))
            for position, header in _batches(host, path)
            if header.next_offset <= recorded
        ]
        if not spots:
            return False
        path, position, length = self._random.choice(spots)
        self._ground.spoilt = True
        self._ground.erred.add(host.name)
        host.lose_power()
        self._ground.start_later(host, 2.0)
        return self._flip(host, path, position + self._random.randrange(length))

    def emptied_disk(self) -> bool:
        """A machine comes back with another disk."""
        host = self._ground.weak_host()
        if host is None or self._ground.cluster_id(host) == "":
            return False
        self._ground.empty(host)
        self._ground.start_later(host, 6.0)
        return True

    # -- placing

    def _logs(self, *ends: str) -> list[str]:
        prefixes = tuple(f"{DATA_PATH}/{name}" for name in self._ground.cluster.plan.rotting)
        return [path for path in self._files(f"{DATA_PATH}/", ends) if path.startswith(prefixes)]

    def _files(self, prefix: str, ends: tuple[str, ...]) -> list[str]:
        host = self._ground.weak_host()
        names = host.disk.names if host is not None else {}
        return sorted(name for name in names if name.startswith(prefix) and name.endswith(ends))

    def _pick(self, paths: list[str]) -> str | None:
        return self._random.choice(paths) if paths else None

    def _rot(self, paths: list[str], least: int) -> bool:
        host, path = self._ground.weak_host(), self._pick(paths)
        if host is None or path is None or host.disk.size(path) <= least:
            return False
        self._ground.erred.add(host.name)
        return self._flip(host, path, self._random.randrange(least, host.disk.size(path)))

    def _flip(self, host: SimulatedHost, path: str, position: int) -> bool:
        if position >= host.disk.size(path):  # what was there was lost with the power
            return False
        self._ground.rotten = host
        host.ails("rot")
        host.disk.flip_bit(path, position, self._random.randrange(8))
        self._ground.cluster.note(f"{host.name}: {path} rots at {position}")
        return True


def _batches(host: SimulatedHost, path: str) -> list[tuple[int, BatchHeader]]:
    """As far as they can be read."""
    found = []
    try:
        for position, header in iterate_headers(host.disk.content(path)):
            found.append((position, header))
    except CorruptMessage:
        """What is behind is rotten already, or torn."""
    return found
