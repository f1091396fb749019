"""How often an ISR changes: who is put out and taken in again and again is neither in nor out. V19.

whatever befalls the cluster     one life of a member joins an ISR so often at most, but for what follows the healing of
                                 a link of it. Measured over seeds with faults: three times within ten seconds
where nothing is broken or       so often at most it changes within a minute, but for what an operator moves. (With
healed                           replica.lag.max.records it may: a burst of writes is a lag)
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from minilog.partition_key import PartitionKey
from tests.judges.violation import Violation
from tests.simulation.judge.metadata import JudgedChange
from tests.simulation.judge.registrations import Registrations

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.wire import Said

WINDOW_S = 10.0
MOST_JOINS = 6
CALM_S = 5.0  # so long all that was broken has its effects
READS_S = 0.25  # at once; the shortest replica.lag.time.max.ms is 0.3 s
MINUTE_S = 60.0
MOST_CHANGES = 3
LAG_MAX_RECORDS = "replica.lag.max.records"


class Joins:
    """Of members, in one life each."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._joined_s: dict[tuple[PartitionKey, int, int], deque[float]] = {}
        self._last_s: dict[tuple[PartitionKey, int, int], float] = {}

    def changed(self, change: JudgedChange, registrations: Registrations) -> None:
        """A state was committed."""
        before, now_s = change.before, self._cluster.now_s
        if before is None:
            return
        for number in set(change.state.in_sync_replicas) - set(before.in_sync_replicas):
            joiner = change.key, number, registrations.broker_epoch(number)
            last_s, self._last_s[joiner] = self._last_s.get(joiner, 0.0), now_s
            if self._cluster.network.healed_s(self._cluster.hosts[number].name) > last_s:
                continue
            times = self._joined_s.setdefault(joiner, deque())
            times.append(now_s)
            while times[0] < now_s - WINDOW_S:
                times.popleft()
            if len(times) > MOST_JOINS:
                text = f"b{number} has joined the ISR of partition {change.key.partition} {len(times)} times within "
                raise Violation("V19", f"{text}{WINDOW_S:.0f} s, in one life")


class Calm:
    """Since when nothing is broken or healed: each broker runs, is well and was never late, no connection broke, and no
    disk had to read for longer than an ISR may wait for it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._pauses: dict[tuple[str, int], int] = {}  # by host and life
        self._reading_s: dict[tuple[str, int], float] = {}  # by host and life: all that was read before
        self.since_s = 0.0

    def heard(self, call: Said, answers: bool | None) -> None:
        """A message has come, or the connection broke."""
        if answers is None:
            self.since_s = self._cluster.now_s

    def look(self) -> None:
        for host in self._cluster.hosts.values():
            process = host.process
            if process is None or process.stands_still or not host.wanted or not host.is_well:
                self.since_s = self._cluster.now_s
                continue
            life, count = (host.name, host.lives), len(process.pauses_s)
            if self._pauses.get(life) != count:
                self._pauses[life], self.since_s = count, self._cluster.now_s
            before_s, reading_s = self._reading_s.get(life, 0.0), process.busy_s()
            self._reading_s[life] = reading_s
            if reading_s - before_s > READS_S:
                self.since_s = self._cluster.now_s

    @property
    def lasts_s(self) -> float:
        """For how long it is so that nothing of before shows any more; negative where that is to come."""
        return self._cluster.now_s - self.since_s - CALM_S


class Changes:
    """Of ISRs, while nothing is broken or healed."""

    def __init__(self, cluster: SimulatedCluster, calm: Calm) -> None:
        self._cluster = cluster
        self._calm = calm
        self._changed_s: dict[PartitionKey, deque[float]] = {}

    def changed(self, change: JudgedChange) -> None:
        """A state was committed."""
        before, state, now_s = change.before, change.state, self._cluster.now_s
        self._calm.look()  # who was asked to stop a moment ago leaves
        if before is None or self._calm.lasts_s < 0 or set(before.in_sync_replicas) == set(state.in_sync_replicas):
            return
        if list(before.replicas) != list(state.replicas) or state.adding_replicas or state.removing_replicas:
            return
        if any(host.configs.get(LAG_MAX_RECORDS, "off") != "off" for host in self._cluster.hosts.values()):
            return
        times = self._changed_s.setdefault(change.key, deque())
        times.append(now_s)
        while times[0] < max(now_s - MINUTE_S, now_s - self._calm.lasts_s):
            times.popleft()
        if len(times) > MOST_CHANGES:
            text = (
                f"the ISR of partition {change.key.partition} has changed {len(times)} times since {times[0]:.1f} s, "
            )
            raise Violation("V19", f"{text}and nothing was broken or healed since {self._calm.since_s:.1f} s")
