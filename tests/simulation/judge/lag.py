"""Who lags leaves the ISR: replication.md § In-sync replicas. V19.

caught up   a member is, for the last time, when the leader's log ended no further than what the member has told since,
            in this leader epoch; what it has sent counts, arrived or not. What a slow leader has not synced itself is
            nobody's fault; nor is for how long the disk of the leader, or the controller, was read
contact     a leader and the controller answer each other's heartbeats without a gap
lag         a member that was not caught up for the leader's lag time and some more, in which the processes of leader
            and controller ran and had contact, is out of the ISR. Who was late itself excuses others for that only
kept out    with `replica.lag.max.records` a follower stays out that is more records behind. It may be nobody's fault: a
            leader whose reads are cold gives it less than producers with acks=0 write. Such a follower comes on all the
            time. One that stands still is not kept out, it is stuck
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minilog.partition_key import PartitionKey
from minilog.v1.records_pb2 import PartitionRecord
from tests.judges.violation import Violation
from tests.simulation.judge.fencing import HARMLESS, paused_s
from tests.simulation.judge.hearing import Lead

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.judge.truth import Truth
    from tests.simulation.machines.host import SimulatedHost
    from tests.simulation.machines.wire import Said

LAG_TIME, LAG_TIME_MS = "replica.lag.time.max.ms", 10_000
OVERDUE, OVERDUE_S = 1.6, 1.5  # it is looked at every half lag time; then a controller decides
LOOKS = 200  # some forty seconds
GAP_S = 1.0  # between heartbeats, whose interval is 0.3 s at most
COMES_ON_S = 0.5  # ten reads of the slowest disk that is well
LAG_RECORDS = "replica.lag.max.records"
_REPLICATE = "/minilog.v1.PeerService/Replicate"
_HEARTBEAT = "/minilog.v1.PeerService/Heartbeat"


@dataclass(slots=True)
class _Leadership:
    """One leader epoch of a partition: when its log ended where, and what members have told."""

    leader: tuple[int, int]
    epoch: int
    told: dict[int, int]
    ends: deque[tuple[float, int]] = field(default_factory=deque)  # each look at which the end was another
    member_since_s: dict[int, float] = field(default_factory=dict)
    came_on_s: dict[int, tuple[int, float]] = field(default_factory=dict)  # what a replica told, and since when

    def looked(self, now_s: float, end: int, members: set[int]) -> None:
        if not self.ends or self.ends[-1][1] != end:
            self.ends.append((now_s, end))
        self.member_since_s = {each: self.member_since_s.get(each, now_s) for each in members}
        for each, told in self.told.items():
            if self.came_on_s.get(each, (-1, 0.0))[0] != told:
                self.came_on_s[each] = told, now_s

    def is_kept_out(self, number: int, most: int, since_s: float, now_s: float) -> bool:
        """Whether a follower comes on, and is more than so many records behind where the log ended at that time."""
        told, came_on_s = self.came_on_s.get(number, (-1, 0.0))
        before = max((end for looked_s, end in self.ends if looked_s <= since_s), default=0)
        return came_on_s > now_s - COMES_ON_S and told < before - most

    def caught_up_s(self, member: int, now_s: float) -> float:
        """The last look at which the log ended no further than what the member told."""
        told, caught_up_s = self.told.get(member, -1), self.member_since_s[member]
        for index, (_, end) in enumerate(self.ends):
            if end <= told:
                until_s = self.ends[index + 1][0] if index + 1 < len(self.ends) else now_s
                caught_up_s = max(caught_up_s, until_s)
        return caught_up_s


class Lag:
    """Follows what members have told their leaders, and how far those were; looks five times a second."""

    def __init__(self, cluster: SimulatedCluster, truth: Truth) -> None:
        self._cluster = cluster
        self._truth = truth
        self._leaderships: dict[PartitionKey, _Leadership] = {}
        self._told: dict[tuple[PartitionKey, tuple[int, int], int], dict[int, int]] = {}  # by leader and leader epoch
        self._answered_s: dict[tuple[str, str], float] = {}  # a leader, and the controller that answered it
        self._contact_s: dict[tuple[str, str], float] = {}  # since when without a gap
        self._reads: dict[int, deque[tuple[float, int]]] = {}  # of each host, as it was at each look
        self.kept_out_s: dict[PartitionKey, float] = {}  # when too few followers were near enough to join, last

    # -- what is said

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """A message is sent."""
        if answers or call.method != _REPLICATE:
            return
        follower, leader = self._truth.speaker(call.client)[0], self._truth.speaker(call.host)
        for each in message.progress:
            key = PartitionKey(each.partition_id.topic_id, each.partition_id.partition)
            told = self._told.setdefault((key, leader, each.leader_epoch), {})
            told[follower] = max(told.get(follower, -1), each.durable_end_offset)

    def heard(self, call: Said, answers: bool | None) -> None:
        """A message has come, or the connection broke."""
        if call.method != _HEARTBEAT or answers is False:
            return
        pair, now_s = (call.client, call.host), self._cluster.now_s
        if answers is None or now_s - self._answered_s.get(pair, -1e9) > GAP_S:
            self._contact_s[pair] = now_s
        self._answered_s[pair] = now_s

    # -- what must be

    def look(self, lead: Lead | None) -> None:
        """At every partition."""
        for number, host in self._cluster.hosts.items():
            reads = self._reads.setdefault(number, deque(maxlen=LOOKS))
            reads.append((self._cluster.now_s, host.disk.read_bytes))
        states = self._truth.metadata.states
        for key in self._leaderships.keys() - states.keys():
            del self._leaderships[key]
        for key, state in states.items():
            self._look_at(key, state, lead)

    def _look_at(self, key: PartitionKey, state: PartitionRecord, lead: Lead | None) -> None:
        name, now_s = self._truth.log_name(key), self._cluster.now_s
        if state.leader_id == -1 or name is None:
            self._leaderships.pop(key, None)
            return
        host = self._cluster.hosts[state.leader_id]
        leader = (host.number, host.lives)
        known = self._leaderships.get(key)
        if known is None or (known.leader, known.epoch) != (leader, state.leader_epoch):
            told = self._told.setdefault((key, leader, state.leader_epoch), {})
            known = self._leaderships[key] = _Leadership(leader, state.leader_epoch, told)
        members = set(state.in_sync_replicas) - {host.number}
        copy, partition = self._truth.copies.of(host.number, name), self._truth.partitions.get(key)
        known.looked(now_s, (copy.durable if partition is None else partition.view(copy)).end, members)
        self._look_at_who_is_out(key, state, host, known)
        contact_s = self._contact_since_s(host, lead)
        if contact_s is None or lead is None:
            return
        controller = self._cluster.hosts[lead.number]
        lag_s = int(host.configs.get(LAG_TIME, LAG_TIME_MS)) / 1e3
        for member in members:
            since_s = max(contact_s, known.caught_up_s(member, now_s))
            delays_s = paused_s(host, since_s, now_s, 0.0) + paused_s(controller, since_s, now_s, 0.0)
            delays_s += self._read_s(host.number, since_s) + self._read_s(controller.number, since_s)
            running_s = now_s - since_s - delays_s
            if running_s > OVERDUE * lag_s + OVERDUE_S and next(self._truth.metadata.later(key), None) is None:
                text = (
                    f"b{host.number} leads partition {key.partition}, b{member} has lagged for {running_s:.1f} s, and "
                )
                text += f"is in the ISR; the lag time is {lag_s:.1f} s"
                raise Violation("V19", text)

    def _look_at_who_is_out(
        self, key: PartitionKey, state: PartitionRecord, host: SimulatedHost, known: _Leadership
    ) -> None:
        """Whether the leader must leave its ISR below min: of those outside too few are near enough. It compares with
        the log's end at its last check of the lag, which it makes every half lag time."""
        plan, bound, now_s = self._cluster.plan, host.configs.get(LAG_RECORDS, "off"), self._cluster.now_s
        if bound == "off" or not plan.cold_share:
            return
        since_s = now_s - int(host.configs.get(LAG_TIME, LAG_TIME_MS)) / 2e3
        outside = set(state.replicas) - set(state.in_sync_replicas)
        near = [each for each in outside if not known.is_kept_out(each, int(bound), since_s, now_s)]
        if len(state.in_sync_replicas) + len(near) < plan.min_in_sync:
            self.kept_out_s[key] = now_s

    def _read_s(self, number: int, since_s: float) -> float:
        """For how long the disk of a host was read since the last look before that."""
        reads = self._reads[number]
        before = max((read for looked_s, read in reads if looked_s <= since_s), default=reads[0][1])
        return (reads[-1][1] - before) / self._cluster.plan.read_bytes_per_s

    def _contact_since_s(self, host: SimulatedHost, lead: Lead | None) -> float | None:
        """Since when a leader's word reaches a controller that can decide; None where it does not."""
        if lead is None:
            return None
        controller = self._cluster.hosts[lead.number]
        for each in (host, controller):
            if each.process is None or each.process.stands_still or each.ailments - HARMLESS:
                return None
        pair, now_s = (host.name, controller.name), self._cluster.now_s
        if controller.lives != lead.life or now_s - self._answered_s.get(pair, -1e9) > GAP_S:
            return None
        return max(self._contact_s[pair], lead.since_s, host.well_since_s, controller.well_since_s)
