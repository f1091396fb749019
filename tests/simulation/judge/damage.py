"""Which copies a fault has damaged, and until when they are excused from having what they promised.

A copy is excused from when its bytes rot, or its disk is emptied, until

    its bytes are what was written again (it was cut, or fetched again), and
    its broker is registered in a later life, or the copy does not count any more. Of a disk that was emptied somewhat
    longer: a leader that has not heard of the later life says what the former one had
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.partition_key import PartitionKey
from tests.simulation.judge.registrations import NextLife
from tests.simulation.machines.host import DATA_PATH

if TYPE_CHECKING:
    from tests.simulation.judge.metadata import Metadata
    from tests.simulation.machines.host import SimulatedHost


@dataclass(slots=True)
class _Excuse:
    next_life: NextLife
    emptied: bool  # a joiner's disk may be, while it is decided that it joins


class KnownDamage:
    """The damage of all disks, as faults have placed it."""

    def __init__(self, hosts: list[SimulatedHost], metadata: Metadata) -> None:
        self._hosts = {host.number: host for host in hosts}
        self._metadata = metadata
        self._flips: dict[int, int] = dict.fromkeys(self._hosts, 0)  # that were looked at
        self._wipes: dict[int, int] = dict.fromkeys(self._hosts, 0)
        self._excused: dict[tuple[int, str], _Excuse] = {}  # host, log

    def look(self) -> None:
        for number, host in self._hosts.items():
            disk = host.disk
            if len(disk.flips) == self._flips[number] and disk.wipes == self._wipes[number]:
                continue
            since = self._metadata.written_end
            for path, _, _ in disk.flips[self._flips[number] :]:
                log = path.removeprefix(DATA_PATH + "/").partition("/")[0]
                self._excused[number, log] = _Excuse(NextLife(since), emptied=False)
            if disk.wipes > self._wipes[number]:
                for key in self._metadata.states:
                    self._excused[number, self._metadata.log_name(key) or ""] = _Excuse(NextLife(since), emptied=True)
            self._flips[number], self._wipes[number] = len(disk.flips), disk.wipes

    def excuses(self, number: int, key: PartitionKey) -> bool:
        """Whether this host's copy may lack what it has promised."""
        self.look()
        if not self._excused:
            return False
        log = self._metadata.log_name(key) or ""
        excuse = self._excused.get((number, log))
        if excuse is None:
            return False
        state = self._metadata.states.get(key)
        counts = state is not None and number in (*state.in_sync_replicas, *state.eligible_leaders)
        if self._is_rotten(number, log) or ((counts or excuse.emptied) and not self._is_over(number, excuse)):
            return True
        del self._excused[number, log]
        return False

    def _is_over(self, number: int, excuse: _Excuse) -> bool:
        """A later life is registered, and where the disk was emptied leaders have heard of it."""
        broker_epoch = self._metadata.registrations.broker_epoch(number)
        if excuse.emptied:
            return excuse.next_life.is_heard_of(broker_epoch, self._hosts[number].loop.now_s)
        return excuse.next_life.is_registered(broker_epoch)

    def _is_rotten(self, number: int, log: str) -> bool:
        disk, path = self._hosts[number].disk, f"{DATA_PATH}/{log}"
        if disk.exists(f"{path}/torn-tail"):  # it may be what rotted, and another copy is asked
            return True
        inodes = {id(inode) for inode in disk.files(path, durable=False).values()}
        return any(
            id(inode) in inodes and position < len(inode.live)
            for name, inode, position in disk.flips
            if name.startswith(path + "/")
        )
