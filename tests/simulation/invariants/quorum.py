"""The metadata quorum's votes, epochs and tenures: V11, V20, V21.

hears    a message of the quorum reached the other's core. A pair is steady since t when no gap between two
         messages, either way, was longer than `GAP` of the fetch time-out from t on, and neither was stopped
V20      a leader that was steady with a majority for two fetch time-outs is not deposed; by itself it may be, where
         a voter is stuck in a later epoch: it stands above that one, and leads again before anybody else does. And it
         may resign where it is such a voter that it lacks: that one asks for votes, and fetches nothing from it
V21      a leader that heard no majority for `PATIENCE` fetch time-outs leads no more
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minilog_broker.quorum.member import Role
from tests.simulation.invariants.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.life import Life
    from tests.simulation.node import Node
    from tests.simulation.touched import Voted

GAP = 0.5
STEADY = 2.0
PATIENCE = 2.5


@dataclass(slots=True)
class _Tenure:
    node_id: int
    life: int
    since_ms: float


@dataclass(slots=True)
class QuorumTruth:
    """See the module's text. Times are virtual milliseconds."""

    fetch_timeout_ms: float
    tenures: dict[int, _Tenure] = field(default_factory=dict)  # by epoch
    votes: dict[tuple[int, int], int] = field(default_factory=dict)  # (voter, epoch): whom it voted for
    heard_ms: dict[tuple[int, int], float] = field(default_factory=dict)  # (source, target)
    steady_ms: dict[tuple[int, int], float] = field(default_factory=dict)
    resumed_ms: dict[int, float] = field(default_factory=dict)
    _epochs: dict[int, int] = field(default_factory=dict)  # of the lives there are
    _promised: dict[int, int] = field(default_factory=dict)  # voter: the highest epoch it answered or led in
    _leads: dict[int, int] = field(default_factory=dict)  # node: the epoch it leads
    _stands_above: dict[int, list[int]] = field(default_factory=dict)  # a leader that made way, and who heard it

    def _fail(self, rule: str, message: str, *nodes: int, epoch: int | None = None) -> Violation:
        return Violation(rule, message, nodes=nodes, epoch=epoch)

    # -- hearing

    def heard(self, source: int, target: int, now_ms: float) -> None:
        pair = (source, target)
        if now_ms - self.heard_ms.get(pair, -1e9) > GAP * self.fetch_timeout_ms:
            self.steady_ms[pair] = now_ms
            self._no_longer_asked(*pair)
        self.heard_ms[pair] = now_ms

    def broken(self, one: int, other: int, now_ms: float) -> None:
        """A connection between the two was lost: a follower may stand at once."""
        for pair in ((one, other), (other, one)):
            self.steady_ms[pair] = now_ms
        self._no_longer_asked(one, other)

    def _no_longer_asked(self, *nodes: int) -> None:
        """What befell them may cost them, or who heard them, an election that they stood in."""
        for node_id in [n for n, hearing in self._stands_above.items() if {n, *hearing} & {*nodes}]:
            del self._stands_above[node_id]

    def disturbed(self, node_id: int, now_ms: float) -> None:
        """Its process was stopped, went on, began or ended: steadiness begins anew."""
        self.resumed_ms[node_id] = now_ms
        self._no_longer_asked(node_id)
        for pair in self.steady_ms:
            if node_id in pair:
                self.steady_ms[pair] = now_ms

    def _is_steady(self, one: int, other: int, now_ms: float) -> bool:
        for pair in ((one, other), (other, one)):
            if now_ms - self.heard_ms.get(pair, -1e9) > GAP * self.fetch_timeout_ms:
                return False
            if now_ms - self.steady_ms.get(pair, now_ms) < STEADY * self.fetch_timeout_ms:
                return False
        return True

    # -- votes

    def voted(self, node: Node, voted: Voted) -> None:
        """A voter answers: what it says is on its disk, and it says it to one candidate only (V11)."""
        request, response, voter = voted.request, voted.response, voted.node_id
        stored = node.stored_vote()
        epoch = max(stored.epoch if stored is not None else 0, _epoch_of_log(node))
        if response.epoch > epoch:
            text = f"node {voter} answers a vote in epoch {response.epoch}, its disk has epoch {epoch}"
            raise self._fail("V11", text, voter, epoch=request.epoch)
        self._promised[voter] = max(self._promised.get(voter, -1), response.epoch)
        if not response.granted or request.pre_vote:
            return
        if request.voter_directory_id not in (b"", response.directory_id):
            text = f"node {voter} grants the vote of directory {request.voter_directory_id.hex()[:8]}, which it lost"
            raise self._fail("V11", text, voter, epoch=request.epoch)
        candidate = request.candidate_id
        # A later epoch on the disk, written in the same event, keeps it from voting again in this one as well.
        if (
            stored is None
            or stored.epoch < request.epoch
            or (stored.epoch == request.epoch and stored.voted_for != candidate)
        ):
            text = f"node {voter} votes for {candidate} in epoch {request.epoch}, its disk has {stored}"
            raise self._fail("V11", text, voter, candidate, epoch=request.epoch)
        before = self.votes.setdefault((voter, request.epoch), candidate)
        if before != candidate:
            text = f"node {voter} votes for {before} and for {candidate} in epoch {request.epoch}"
            raise self._fail("V11", text, voter, before, candidate, epoch=request.epoch)

    def wiped(self, node_id: int) -> None:
        """Its disk came back empty: what it knew is gone, and it must not vote."""
        self._promised.pop(node_id, None)

    # -- epochs and tenures

    def look(self, node: Node, life: Life, voters: list[int], now_ms: float, *, intact: bool) -> list[str]:
        """A node after an event of its quorum. Returns what is worth counting. `intact`: every voter has the disk that
        is recorded; where one is being replaced, two sets of voters need their majority, and V20 is not asked."""
        node_id, quorum = node.node_id, life.quorum
        epoch = quorum.epoch
        known = max(self._epochs.get(node_id, -1), self._promised.get(node_id, -1))
        if quorum.role is not Role.OBSERVER:  # whose epoch is no promise, also while it does not know that it votes
            if node_id in voters and epoch < known:
                raise self._fail("V11", f"node {node_id} is in epoch {epoch} and was in {known}", node_id, epoch=epoch)
            self._epochs[node_id] = epoch
        led = self._leads.get(node_id)
        if led is not None and intact and _makes_way_for_itself(node, life, led, voters):
            hearing = self._hearing(node_id, led, voters, now_ms)
            if hearing:
                self._stands_above[node_id] = hearing
            intact = False
        if not quorum.is_leader:
            if led is not None:
                asked = intact and life.stage.name != "STOPPING"
                stuck = _stuck_above(node, led, voters) if epoch == led else []
                self._deposed(node_id, led, voters, now_ms, asked=asked, stuck=stuck)
                return ["quorum leaders deposed"]
            return []
        if led is not None and led != epoch:
            self._deposed(node_id, led, voters, now_ms, asked=intact)
        return self._lead(node, life, epoch, now_ms) if led != epoch else []

    def _lead(self, node: Node, life: Life, epoch: int, now_ms: float) -> list[str]:
        node_id = node.node_id
        self._leads[node_id] = epoch
        self._stands_above.pop(node_id, None)
        for other_id, hearing in self._stands_above.items():
            if not all(self._is_steady(other_id, voter, now_ms) for voter in hearing):
                continue
            text = f"node {other_id} made way for itself, heard by {hearing}, and node {node_id} leads epoch {epoch}"
            raise self._fail("V20", text, other_id, node_id, epoch=epoch)
        tenure = self.tenures.setdefault(epoch, _Tenure(node_id, life.number, now_ms))
        if (tenure.node_id, tenure.life) != (node_id, life.number):
            text = f"life {life.number} of node {node_id} leads quorum epoch {epoch}, and life {tenure.life} of "
            raise self._fail("V11", f"{text}node {tenure.node_id} did", node_id, tenure.node_id, epoch=epoch)
        stored = node.stored_vote()
        if stored is None or stored.epoch < epoch:
            raise self._fail("V11", f"node {node_id} leads epoch {epoch}, its disk has {stored}", node_id, epoch=epoch)
        self._promised[node_id] = max(self._promised.get(node_id, -1), epoch)
        return ["quorum elections"]

    def _deposed(
        self, node_id: int, epoch: int, voters: list[int], now_ms: float, *, asked: bool, stuck: Sequence[int] = ()
    ) -> None:
        hearing = self._hearing(node_id, epoch, voters, now_ms, stuck) if asked else []
        del self._leads[node_id]
        if hearing:
            text = f"node {node_id} led quorum epoch {epoch}, {hearing} heard it all the time, and it was deposed"
            raise self._fail("V20", text, node_id, *hearing, epoch=epoch)

    def _hearing(
        self, node_id: int, epoch: int, voters: list[int], now_ms: float, stuck: Sequence[int] = ()
    ) -> list[int]:
        """The voters that heard the leader of `epoch` for long, where they are a majority with it; else nobody."""
        if len(voters) < 2 or now_ms - self.tenures[epoch].since_ms < STEADY * self.fetch_timeout_ms:
            return []
        hearing = [v for v in voters if v not in (node_id, *stuck) and self._is_steady(node_id, v, now_ms)]
        return hearing if node_id in voters and len(hearing) + 1 > len(voters) // 2 else []

    def ended(self, node_id: int) -> None:
        """The process is gone, and with it what it led."""
        self._leads.pop(node_id, None)
        self._epochs.pop(node_id, None)

    def check_heard(self, node_id: int, voters: list[int], now_ms: float) -> None:
        """V21, of a node after any event of its own."""
        epoch = self._leads.get(node_id)
        if epoch is None or len(voters) < 2:
            return
        others = sorted((self.heard_ms.get((v, node_id), -1e9) for v in voters if v != node_id), reverse=True)
        needed = len(voters) // 2 + 1 - (node_id in voters)
        since_ms = max(others[needed - 1], self.tenures[epoch].since_ms, self.resumed_ms.get(node_id, -1e9))
        if now_ms - since_ms > PATIENCE * self.fetch_timeout_ms:
            text = f"node {node_id} leads quorum epoch {epoch} and has heard no majority for {now_ms - since_ms:.0f} ms"
            raise self._fail("V21", text, node_id, epoch=epoch)


def _makes_way_for_itself(node: Node, life: Life, led: int, voters: list[int]) -> bool:
    """Whether it stands above a voter that has a later epoch on its disk than the one that is led."""
    if life.quorum.epoch <= led or life.quorum.role is not Role.CANDIDATE:
        return False
    return bool(_stuck_above(node, led, voters))


def _stuck_above(node: Node, led: int, voters: list[int]) -> list[int]:
    """The other voters that have a later epoch on their disks than the one that is led."""
    stored = {voter_id: node.cluster.nodes[voter_id].stored_vote() for voter_id in voters if voter_id != node.node_id}
    return [voter_id for voter_id, vote in stored.items() if vote is not None and vote.epoch > led]


def _epoch_of_log(node: Node) -> int:
    """The newest epoch that the metadata log has recorded, which is durable before anything rests on it."""
    latest = node.life.metadata_log.epochs.latest_epoch if node.life is not None else None
    return 0 if latest is None else latest
