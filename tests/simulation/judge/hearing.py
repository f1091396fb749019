"""Who hears whom in the metadata quorum, by what arrives. V20, V21.

hears    a message of the quorum came to the other's program. A pair is steady since t when no gap between two messages,
         either way, was longer than GAP of the fetch time-out from t on, no connection broke, and neither was stopped
V20      who leads, and was steady with a majority for STEADY fetch time-outs, is not followed by another leader, unless
         a change of voters is not committed yet, and no majority of its voters was steady: the leader needs both; or
         its metadata disk did not answer, or failed; and where a voter that came back had an epoch far above all others
         on its disk: the leader that leaps towards it is elected anew, or another is. A voter with another disk than
         the recorded one is none until it is replaced
V21      who heard no majority for PATIENCE fetch time-outs answers no heartbeat, and tells nobody that it is the
         controller
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from minilog_broker.quorum.reported_epochs import LEAP_EPOCHS
from tests.judges.quorum import Holders, check_heard, check_not_deposed
from tests.simulation.machines.host import METADATA_ERROR, METADATA_HANGS

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.judge.truth import Truth
    from tests.simulation.machines.wire import Said

GAP, STEADY, PATIENCE = 0.5, 2.0, 2.5
HANDS_OVER = (METADATA_HANGS, "slow disk", METADATA_ERROR)
FETCH_TIMEOUT = "quorum.fetch.timeout.ms"
_REPLICATE = "/minilog.v1.PeerService/Replicate"
_HEARTBEAT = "/minilog.v1.PeerService/Heartbeat"
_CALLS = ("/minilog.v1.PeerService/Vote", "/minilog.v1.PeerService/BeginQuorumEpoch")


class Lead(NamedTuple):
    """Who leads the quorum, by what was heard last: since then."""

    epoch: int
    number: int
    life: int
    since_s: float


class Hearing:
    """Who heard whom when, of voters and leaders."""

    def __init__(self, cluster: SimulatedCluster, truth: Truth) -> None:
        self._cluster = cluster
        self._truth = truth
        told_ms = (int(values.get(FETCH_TIMEOUT, 1_000)) for values in cluster.plan.configs.values())
        self._fetch_timeout_s = max(told_ms, default=1_000) / 1e3
        self._streams: weakref.WeakSet[Said] = weakref.WeakSet()  # of the metadata log
        self._stopping: set[tuple[int, int]] = set()  # host and life: it was asked to stop, and hands over
        self._heard_s: dict[tuple[int, int], float] = {}
        self._fetched_s: dict[tuple[int, int], float] = {}  # a voter that is stuck in a later epoch asks for votes only
        self._steady_s: dict[tuple[int, int], float] = {}
        self.lead: Lead | None = None
        self._resumed_s: dict[int, float] = {}
        self._lives: dict[int, int] = {}
        self._began_s: dict[tuple[int, int], float] = {}  # by epoch and leader

    # -- what comes

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """A message is sent."""
        if answers:
            return
        if call.method == _REPLICATE and message.cluster_metadata:
            self._streams.add(call)
        elif call.method == _HEARTBEAT and message.wants_stop:
            self._stopping.add(self._truth.speaker(call.client))

    def heard(self, call: Said, answers: bool | None) -> None:
        """A message has come, or the connection broke."""
        if call.method not in _CALLS and call not in self._streams:
            return
        client, server = self._truth.speaker(call.client)[0], self._truth.speaker(call.host)[0]
        pairs = [(client, server), (server, client)]
        now_s = self._cluster.now_s
        if answers is None:
            for pair in pairs:
                self._steady_s[pair] = now_s
            return
        pair = pairs[answers]
        if now_s - self._heard_s.get(pair, -1e9) > GAP * self._fetch_timeout_s:
            self._steady_s[pair] = now_s
        self._heard_s[pair] = now_s
        if call in self._streams and not answers:
            self._fetched_s[pair] = now_s

    def look(self) -> None:
        """Who stands still, or runs anew."""
        for host in self._cluster.hosts.values():
            if not host.wanted:
                self._stopping.add((host.number, host.lives))
            stopped = host.process is None or host.process.stands_still or host.process.dead
            if stopped or self._lives.get(host.number) != host.lives:
                self._lives[host.number] = host.lives
                self._resumed_s[host.number] = self._cluster.now_s
                for pair in self._steady_s:
                    if host.number in pair:
                        self._steady_s[pair] = self._cluster.now_s

    # -- what must be

    def check_answers(self, number: int, epoch: int) -> None:
        """V21: the controller of an epoch answers."""
        voters, now_s = self._truth.metadata.voters, self._cluster.now_s
        began_s = self._began_s.get((epoch, number))
        if began_s is None or len(voters) < 2:
            return
        others = sorted((self._heard_s.get((v, number), -1e9) for v in voters if v != number), reverse=True)
        needed = len(voters) // 2 + 1 - (number in voters)
        since_s = max(others[needed - 1], began_s, self._resumed_s.get(number, -1e9))
        check_heard(number, epoch, now_s - since_s, PATIENCE * self._fetch_timeout_s)

    def leads(self, number: int, life: int, epoch: int) -> None:
        """V20: somebody is heard of who leads an epoch, for the first time."""
        before = self.lead
        self._began_s[epoch, number] = self._cluster.now_s
        if before is not None and before.epoch > epoch:
            return
        self.lead = Lead(epoch, number, life, self._cluster.now_s)
        if before is None or before.number == number:
            return
        led, other, other_life, since_s = before
        host = self._cluster.hosts[other]
        if host.process is None or host.lives != other_life or host.process.stands_still:
            return
        if not host.wanted or (other, other_life) in self._stopping:
            return
        if host.ailed_from(HANDS_OVER, self._cluster.now_s - STEADY * self._fetch_timeout_s):
            return
        if led < self._cluster.stray_epoch and epoch >= min(led + LEAP_EPOCHS, self._cluster.stray_epoch):
            return
        sets = self._truth.metadata.voter_sets()
        if self._cluster.now_s - since_s < STEADY * self._fetch_timeout_s or any(other not in each for each in sets):
            return
        hears = [Holders(voters, self._hearing(other, voters)) for voters in sets]
        check_not_deposed(other, led, min(hears, key=lambda each: each.are_majority), f"b{number} leads {epoch}")

    def _hearing(self, leader: int, voters: Sequence[int]) -> list[int]:
        """The voters that heard the leader all the time, itself too."""
        late_s = self._cluster.now_s - STEADY * self._fetch_timeout_s
        following = [
            v for v in voters if self._truth.metadata.votes(v) and self._fetched_s.get((v, leader), -1e9) > late_s
        ]
        return [leader, *(v for v in following if v != leader and self._is_steady(leader, v))]

    def _is_steady(self, one: int, other: int) -> bool:
        now_s = self._cluster.now_s
        for pair in ((one, other), (other, one)):
            if now_s - self._heard_s.get(pair, -1e9) > GAP * self._fetch_timeout_s:
                return False
            if now_s - self._steady_s.get(pair, now_s) < STEADY * self._fetch_timeout_s:
                return False
        return True
