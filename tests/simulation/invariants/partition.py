"""The truth about one partition: what is committed, who led when, and what leaders may do. V4 to V10, V14, V17, V18.

`exempt` is set by the exceptions of docs/spec/invariants.md (an unclean election, power lost under flush.policy=os):
V5 to V9 and V14 are not asked of the partition from then on; the others are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from minilog.record_batch.header import NO_PRODUCER_ID
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.partition_state import NO_LEADER, PartitionKey, PartitionState
from minilog_broker.replication.rules.in_sync import Proposal
from tests.simulation.invariants.mirror import Committed, Entry, Mirror
from tests.simulation.invariants.transactions import TransactionTruth
from tests.simulation.invariants.trims import TrimTruth
from tests.simulation.invariants.violation import Violation

_OVERDUE = 1.6  # a lag is looked at every half of the time that is allowed


@dataclass(slots=True)
class Tenure:
    """One life that believes to lead in one leader epoch."""

    node_id: int
    life: int
    high_watermark: int


@dataclass(slots=True)
class PartitionTruth:
    """See the module's text. `state` is the newest committed one."""

    key: PartitionKey
    committed: Committed = field(default_factory=Committed)
    transactions: TransactionTruth = field(init=False)
    trims: TrimTruth = field(init=False)
    mirrors: dict[int, Mirror] = field(default_factory=dict)
    state: PartitionState | None = None
    exempt: str | None = None
    unclean_allowed: bool = False
    unclean_election: tuple[int, float] | None = None  # the leader epoch of the first one, and when it was decided
    tenures: dict[int, Tenure] = field(default_factory=dict)
    answered: dict[int, int] = field(default_factory=dict)  # leader epoch: the highest "latest" it could answer
    _sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)
    _standing: dict[tuple[int, int], tuple[int | None, float]] = field(
        default_factory=dict
    )  # (epoch, member): see there
    _proposed: dict[int, Proposal] = field(default_factory=dict)  # by leader epoch: the last one that was seen

    def __post_init__(self) -> None:
        self.transactions = TransactionTruth(self.key, self.committed)
        self.trims = TrimTruth(self.key)

    def _fail(self, rule: str, message: str, *nodes: int, epoch: int | None = None) -> Violation:
        return Violation(rule, f"partition {self.key.partition}: {message}", nodes=nodes, key=self.key, epoch=epoch)

    # -- who believes to lead

    def check_leader(self, node_id: int, life: int, leader: LeaderPartition) -> bool:
        """A leader after an event of its own; whether its high watermark moved. Its mirror was looked at."""
        epoch, mirror = leader.leader_epoch, self.mirrors[node_id]
        tenure = self.tenures.get(epoch)
        if tenure is None:
            tenure = self.tenures[epoch] = Tenure(node_id, life, mirror.high_watermark)
        elif (tenure.node_id, tenure.life) != (node_id, life):
            text = f"epoch {epoch} is led by life {life} of node {node_id}, and was by life {tenure.life} of "
            raise self._fail("V17", f"{text}node {tenure.node_id}", node_id, tenure.node_id, epoch=epoch)
        self._check_members(node_id, leader)
        moved = self._check_movement(node_id, leader, tenure, mirror)
        if self.exempt is None and (moved or mirror.high_watermark > self.committed.end_offset):
            self._commit(mirror)
        if self.exempt is None and leader.knows_its_end:
            self._check_latest(node_id, epoch, mirror.high_watermark)
        return moved

    def check_lag(self, leader: LeaderPartition, running_ms: float, lag_time_ms: float) -> None:
        """Whoever makes no progress while there is some to make is put out after the lag time, of which the leader was
        running all the time (`running_ms`: its clock), however often it stood still between."""
        in_sync, end = leader.in_sync, leader.log.appended_end
        for member, view in in_sync.views.items():
            named, durable_end = (leader.leader_epoch, member), view.durable_end
            stands = durable_end is None or durable_end < end
            if member not in in_sync.committed or in_sync.proposal is not None or not stands:
                self._standing.pop(named, None)
                continue
            at, since_ms = self._standing.setdefault(named, (durable_end, running_ms))
            if at != durable_end:
                self._standing[named] = (durable_end, running_ms)
            elif running_ms - since_ms > _OVERDUE * lag_time_ms:
                text = (
                    f"node {member} of the ISR stands at {at} for {running_ms - since_ms:.0f} ms, the log ends at {end}"
                )
                raise self._fail("lag", text, member, epoch=leader.leader_epoch)

    def _check_members(self, node_id: int, leader: LeaderPartition) -> None:
        in_sync, state = leader.in_sync, self.state
        maximal = in_sync.maximal
        if node_id not in maximal:
            raise self._fail("V4", f"the leader, node {node_id}, is not in its maximal ISR {set(maximal)}", node_id)
        if in_sync.proposal is not None and node_id not in in_sync.proposal.broker_ids:
            raise self._fail(
                "V4", f"node {node_id} proposes {set(in_sync.proposal.broker_ids)} without itself", node_id
            )
        self._check_joiners(leader)
        if state is not None and (state.leader_id, state.leader_epoch) == (node_id, leader.leader_epoch):
            missing = set(state.in_sync_replicas) - maximal
            if missing:
                text = f"node {node_id} waits for {set(maximal)}, the controller's ISR is {state.in_sync_replicas}"
                raise self._fail("V10", text, node_id, *missing, epoch=leader.leader_epoch)

    def _check_joiners(self, leader: LeaderPartition) -> None:
        """Whoever is proposed to join is heard: in a session that is open at that moment."""
        proposal = leader.in_sync.proposal
        if proposal is None or proposal == self._proposed.get(leader.leader_epoch):
            return
        self._proposed[leader.leader_epoch] = proposal
        heard = {each.session.broker_id for each in leader._subscribers.values()}
        if missing := proposal.broker_ids - leader.in_sync.committed - heard:
            text = f"{missing} are proposed to join, and have no session open"
            raise self._fail("session", text, *missing, epoch=leader.leader_epoch)

    def _check_movement(self, node_id: int, leader: LeaderPartition, tenure: Tenure, mirror: Mirror) -> bool:
        now = mirror.high_watermark
        if now == tenure.high_watermark:
            return False
        if now < tenure.high_watermark:
            text = (
                f"HW of node {node_id} goes back from {tenure.high_watermark} to {now} in epoch {leader.leader_epoch}"
            )
            raise self._fail("V8", text, node_id, epoch=leader.leader_epoch)
        members = leader.state.in_sync_replicas
        if len(members) < leader.min_in_sync:
            text = f"HW of node {node_id} moves to {now} while the ISR {members} is below min {leader.min_in_sync}"
            raise self._fail("V18", text, node_id, epoch=leader.leader_epoch)
        tenure.high_watermark = now
        return True

    def _commit(self, mirror: Mirror) -> None:
        """What is below the high watermark of anyone who believes to lead is committed, for good."""
        committed = self.committed
        mirror.agree()
        entries = mirror.entries
        while mirror.agreed == len(committed.entries) and (at := mirror.agreed - mirror.first) < len(entries):
            if entries[at].next_offset > mirror.high_watermark:
                break
            self._check_sequence(entries[at])
            committed.entries.append(entries[at])
            mirror.agreed += 1
        mirror.check_high_watermark()

    def commit_of_former_leader(self, mirror: Mirror) -> None:
        """A replica that led in this life, and stopped in the same event in which its high watermark moved."""
        if mirror.high_watermark > self.committed.end_offset and any(
            (tenure.node_id, tenure.life) == (mirror.node_id, mirror.life) for tenure in self.tenures.values()
        ):
            self._commit(mirror)

    def _check_sequence(self, entry: Entry) -> None:
        if entry.producer_id == NO_PRODUCER_ID:
            return
        named = (entry.producer_id, entry.producer_epoch, entry.sequence)
        before = self._sequences.setdefault(named, entry.base_offset)
        if before != entry.base_offset:
            text = f"sequence {entry.sequence} of producer {entry.producer_id} is committed at {before}"
            raise self._fail("V14", f"{text} and at {entry.base_offset}", epoch=entry.epoch)

    def _check_latest(self, node_id: int, epoch: int, high_watermark: int) -> None:
        """It could answer "latest" now: not below what an earlier epoch could."""
        if self.answered.get(epoch) == high_watermark:
            return
        for earlier, answered in self.answered.items():
            if earlier < epoch and high_watermark < answered:
                text = f"node {node_id} answers {high_watermark} in epoch {epoch}, epoch {earlier} answered {answered}"
                raise self._fail("V8", text, node_id, epoch=epoch)
        self.answered[epoch] = high_watermark

    # -- the replicas that count

    def check_members(self) -> None:
        """V5, V6: each member of the ISR, and each who could be elected, has all that is committed on its disk, and
        nothing of what was answered to be deleted."""
        state = self.state
        if state is None or self.exempt is not None:
            return
        for node_id in state.in_sync_replicas:
            self._check_member("V5", node_id, "of the ISR")
        for node_id in state.eligible_leaders:
            self._check_member("V6", node_id, "an eligible leader")

    def check_member(self, node_id: int) -> None:
        """The same of one replica, whose log has changed."""
        state = self.state
        if state is None or self.exempt is not None:
            return
        if node_id in state.in_sync_replicas:
            self._check_member("V5", node_id, "of the ISR")
        elif node_id in state.eligible_leaders:
            self._check_member("V6", node_id, "an eligible leader")

    def _check_member(self, rule: str, node_id: int, what: str) -> None:
        mirror = self.mirrors.get(node_id)
        if not self.is_relied_on(node_id):
            return
        missing = self.committed.start if mirror is None else mirror.lacks_durably()
        if missing is not None and self.committed.end_offset > missing:
            end = self.committed.end_offset
            raise self._fail(rule, f"node {node_id}, {what}, lacks offset {missing}; {end} are committed", node_id)
        if mirror is not None:
            self.trims.check_electable(node_id, mirror.start, what)

    # -- committed metadata

    def decided(self, state: PartitionState, broker_epochs: dict[int, int], now_ms: float) -> list[str]:
        """The next committed state, and the lives recorded then. Returns what of it is worth counting."""
        before, self.state = self.state, state
        if not state.in_sync_replicas:
            raise self._fail("V4", "the ISR is empty", epoch=state.leader_epoch)
        if state.leader_id != NO_LEADER and state.leader_id not in state.in_sync_replicas:
            text = f"the leader {state.leader_id} is not in the ISR {state.in_sync_replicas}"
            raise self._fail("V4", text, state.leader_id, epoch=state.leader_epoch)
        events = [] if before is None else self._compare(before, state)
        if "unclean elections" in events and self.unclean_election is None:
            self.unclean_election = (state.leader_epoch, now_ms)
        joined = set(state.in_sync_replicas) - set(() if before is None else before.in_sync_replicas)
        for node_id in joined & self.excused.keys():
            if self.excused[node_id] != broker_epochs.get(node_id):  # it joined for what its new life has
                del self.excused[node_id]
        self.check_members()
        return events

    def _compare(self, before: PartitionState, state: PartitionState) -> list[str]:
        events = []
        if (state.leader_epoch, state.partition_epoch) < (before.leader_epoch, before.partition_epoch):
            raise self._fail("V10", f"its epochs go back from {before} to {state}", epoch=state.leader_epoch)
        if state.leader_epoch > before.leader_epoch:
            events.append("elections" if state.leader_id != NO_LEADER else "partitions without a leader")
            electable = {*before.in_sync_replicas, *before.eligible_leaders}
            done = before.reassigning and not state.reassigning  # the last of the target joined, the others went
            # Who had it all is no replica any more: one of the target took over from those that the command passed by.
            passed_by = before.reassigning and not set(before.in_sync_replicas) & set(state.replicas)
            if done or passed_by or set(before.in_sync_replicas) & set(state.in_sync_replicas):
                electable |= set(state.in_sync_replicas)  # who joins in the same record may lead
            joined = set(state.in_sync_replicas) - set(before.in_sync_replicas)  # and so is damaged no more
            electable -= set(before.damaged_replicas) - joined
            if state.leader_id not in electable | {NO_LEADER}:
                if not self.unclean_allowed:
                    text = f"node {state.leader_id} is elected, only {sorted(electable)} could be; damaged are "
                    raise self._fail("V6", text + str(before.damaged_replicas), state.leader_id)
                events.append("unclean elections")
                self.exempt = "an unclean election"
        if len(state.in_sync_replicas) != len(before.in_sync_replicas):
            grown = len(state.in_sync_replicas) > len(before.in_sync_replicas)
            events.append("ISR grown" if grown else "ISR shrunk")
        if set(state.damaged_replicas) - set(before.damaged_replicas):
            events.append("damaged replicas")
        if state.eligible_leaders and not before.eligible_leaders:
            events.append("eligible leaders")
        return events

    # Nodes whose disk was damaged by a fault, and the life that was recorded when the next began: their copy is excused
    # until a later life has joined an ISR. A proposal that names the former one may be accepted after its end.
    excused: dict[int, int | None] = field(default_factory=dict)

    def is_relied_on(self, node_id: int) -> bool:
        """Whether it is counted, and its copy neither damaged nor excused."""
        state = self.state
        sound = state is not None and node_id not in state.damaged_replicas and node_id not in self.excused
        return sound and self.is_counted(node_id)

    def is_counted(self, node_id: int) -> bool:
        """Whether this replica is relied on: in the ISR, or an eligible leader."""
        state = self.state
        return state is not None and (node_id in state.in_sync_replicas or node_id in state.eligible_leaders)
