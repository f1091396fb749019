"""What may happen in the small model, and what follows: `Rules.next_states` gives every next state with its name.

    by a replica       append, flush (and tell the leader), fetch (position and progress judged; then truncation, or
                       one record and the high watermark), propose a joiner, propose to do without a member, ask again
    by the controller  judge a proposal, fence, unfence; a broker learns what is committed
    by the world       loss of power (what is not synced is gone), restart as a new life, or with less than was synced

Where the production decides, its functions do: high_watermark.py, divergence.py, in_sync.py, EpochCache, election.py
and the controller's in_sync.py. They are called through their modules, so that a wrong one can be put in their place.

What is simpler than life: a position, its judgement and one record are one event (a run in flight is the simulator's
matter); metadata may be seen late, and then all at once; nobody waits for a joiner (that only holds the high
watermark); who has caught up is never late; a proposal that would change nothing any more is not delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from minilog_broker.controller.election import Departure
from minilog_broker.replication.partition_state import NO_LEADER, BrokerIncarnation, PartitionState
from minilog_broker.replication.rules import divergence, high_watermark, in_sync
from minilog_broker.replication.rules.divergence import Accepted, Diverged, LeaderEpochs, StartAnewAt
from minilog_broker.replication.rules.in_sync import FollowerView, Proposal
from minilog_broker.storage.epoch_cache import EpochCache
from tests.judges.violation import Violation
from tests.unit.replication.small_model_controller import SmallController
from tests.unit.replication.small_model_state import (
    BROKERS,
    NOTHING_SEEN,
    UNKNOWN,
    AskedProposal,
    Lead,
    LeaderView,
    Life,
    ModelReplica,
    Partitions,
    ReplicationBounds,
    ReplicationModelState,
    with_replica,
)

Step: TypeAlias = tuple[str, tuple[int, ...]]  # what happened, to whom
Next: TypeAlias = Iterator[tuple[Step, ReplicationModelState]]


def epoch_before(replica: ModelReplica, offset: int) -> int | None:
    return replica.log[offset - 1][0] if 0 < offset <= len(replica.log) else None


class Rules:
    """Gives the steps that are possible in a state, and what each of them leads to."""

    def __init__(self, bounds: ReplicationBounds, partitions: Partitions) -> None:
        self.bounds = bounds
        self.partitions = partitions
        self._controller = SmallController(partitions, bounds.min_in_sync)
        self._lives: dict[tuple[int, int], BrokerIncarnation] = {}

    def next_states(self, state: ReplicationModelState) -> Next:
        """All that may happen next, within the bounds."""
        for broker_id, replica in enumerate(state.replicas):
            if not replica.alive:
                yield from self._restart(state, broker_id, replica)
                continue
            yield from self._flush(state, broker_id, replica)
            yield from self._learn(state, broker_id, replica)
            if replica.lead is not None:
                yield from self._lead(state, broker_id, replica, replica.lead)
            else:
                yield from self._follow(state, broker_id, replica)
            yield from self._crash(state, broker_id, replica)
            yield from self._fencing(state, broker_id)
        yield from self._judge_proposals(state)

    # -- any replica

    def _flush(self, state: ReplicationModelState, broker_id: int, replica: ModelReplica) -> Next:
        if replica.durable < len(replica.log):
            yield ("flush", (broker_id,)), self._synced(state, broker_id)

    def _synced(self, state: ReplicationModelState, broker_id: int) -> ReplicationModelState:
        """All that is in the log is durable; a leader that accepted the position is told."""
        replica = state.replicas[broker_id]
        replica = self._advanced(broker_id, replica._replace(durable=len(replica.log)))
        state = with_replica(state, broker_id, replica)
        leader_id = self._leader_of(state, broker_id, replica) if replica.lead is None else None
        if leader_id is None:
            return state
        leader = state.replicas[leader_id]
        assert leader.lead is not None
        view = leader.lead.views[broker_id]
        if not view.accepted or view.broker_epoch != replica.life:
            return state
        told = self._with_view(leader, broker_id, view._replace(durable_end=replica.durable))
        return with_replica(state, leader_id, self._advanced(leader_id, told))

    def _learn(self, state: ReplicationModelState, broker_id: int, replica: ModelReplica) -> Next:
        """The broker sees what is committed; another leader epoch is another role."""
        before, after = self.partitions[replica.image], self.partitions[state.partition]
        same_role = (before.leader_epoch, before.leader_id) == (after.leader_epoch, after.leader_id)
        if same_role and replica.lead is None:
            return  # nothing that matters to a follower
        lives = tuple(life for life, _ in state.lives)
        if replica.image == state.partition and replica.lives == lives:
            return
        replica = replica._replace(image=state.partition)
        if not same_role:
            replica = self._in_role(broker_id, replica, after)
        elif replica.lead is not None and after.partition_epoch > before.partition_epoch:
            replica = replica._replace(lead=replica.lead._replace(proposal=None))
        if replica.lead is not None:
            replica = replica._replace(lives=lives)
        yield ("learn", (broker_id,)), with_replica(state, broker_id, self._advanced(broker_id, replica))

    def _in_role(self, broker_id: int, replica: ModelReplica, seen: PartitionState) -> ModelReplica:
        """A leader of its new epoch; or not, and then only the leader's id and epoch matter of what it has seen."""
        if (seen.leader_id, seen.leader_broker_epoch) == (broker_id, replica.life):
            epochs = EpochCache(replica.epochs)
            epochs.assign(seen.leader_epoch, len(replica.log))
            lead = Lead(len(replica.log), (UNKNOWN,) * len(BROKERS), None)
            return replica._replace(epochs=epochs.entries, lead=lead)
        image = self.partitions.as_follower(seen)
        return replica._replace(lead=None, lives=(), image=image)

    def _crash(self, state: ReplicationModelState, broker_id: int, replica: ModelReplica) -> Next:
        if sum(life for life, _ in state.lives) - len(BROKERS) >= self.bounds.restarts:
            return
        dead = replica._replace(alive=False, lead=None, lives=(), image=NOTHING_SEEN)
        yield ("power", (broker_id,)), with_replica(state, broker_id, self._cut(dead, replica.durable))

    def _cut(self, replica: ModelReplica, end: int) -> ModelReplica:
        epochs = EpochCache(replica.epochs)
        epochs.truncate_from_end(end)
        return replica._replace(
            log=replica.log[:end],
            durable=min(replica.durable, end),
            epochs=epochs.entries,
            high_watermark=min(replica.high_watermark, end),
        )

    def _restart(self, state: ReplicationModelState, broker_id: int, replica: ModelReplica) -> Next:
        """A new life registers, its copy whole or damaged, and is unfenced."""
        life = replica.life + 1
        new = (*state.lives[:broker_id], (life, True), *state.lives[broker_id + 1 :])
        unfenced = (*new[:broker_id], (life, False), *new[broker_id + 1 :])
        whole = replica, Departure.OUT, "restart"
        choices = [whole]
        if state.damages < self.bounds.damages and replica.durable:
            choices.append((self._cut(replica, replica.durable - 1), Departure.DAMAGED, "damaged"))
        for found, departure, name in choices:
            partition = self._controller.depart(state.partition, new, broker_id, departure)
            partition = self._controller.reconsider(partition, unfenced)
            damages = state.damages + (departure is Departure.DAMAGED)
            after = self._committed(state, partition, unfenced)._replace(damages=damages)
            reborn = found._replace(alive=True, life=life)
            if self._within(partition):
                yield (name, (broker_id,)), with_replica(after, broker_id, reborn)

    # -- a leader

    def _lead(self, state: ReplicationModelState, broker_id: int, replica: ModelReplica, lead: Lead) -> Next:
        if state.appended < self.bounds.records:
            record = (self.partitions[replica.image].leader_epoch, broker_id, replica.life)
            appended = replica._replace(log=(*replica.log, record))
            yield (
                ("append", (broker_id,)),
                with_replica(state, broker_id, appended)._replace(appended=state.appended + 1),
            )
        if lead.proposal is not None:
            again = self._sent(state, broker_id, replica, lead.proposal)
            if again != state:
                yield ("again", (broker_id,)), again
            return
        if self.partitions[replica.image].partition_epoch >= self.bounds.partition_epochs:
            return
        committed = frozenset(self.partitions[replica.image].in_sync_replicas)
        for member in BROKERS:
            if member == broker_id:
                continue
            if member in committed:
                told = lead.views[member].durable_end
                if told is not None and told >= len(replica.log):
                    continue  # caught up: never late
                yield from self._propose(state, broker_id, replica, lead, "drop", member, committed - {member})
            elif in_sync.may_join(
                self._view(member, lead.views[member]),
                self._life(member, replica.lives[member]),
                epoch_start=lead.epoch_start,
                high_watermark=replica.high_watermark,
                now_ms=0.0,
            ):
                yield from self._propose(state, broker_id, replica, lead, "join", member, committed | {member})

    def _propose(
        self,
        state: ReplicationModelState,
        broker_id: int,
        replica: ModelReplica,
        lead: Lead,
        name: str,
        member: int,
        asked: frozenset[int],
    ) -> Next:
        seen = self.partitions[replica.image]
        members = tuple((each, replica.lives[each]) for each in sorted(asked))
        proposal = AskedProposal(seen.leader_epoch, seen.partition_epoch, members)
        proposing = self._advanced(broker_id, replica._replace(lead=lead._replace(proposal=proposal)))
        proposed = self._sent(with_replica(state, broker_id, proposing), broker_id, proposing, proposal)
        if self.bounds.delayed:
            yield (name, (broker_id, member)), proposed
            return
        for _, judged in self._judge_proposals(proposed):  # one, or none where it changes nothing
            yield (name, (broker_id, member)), judged

    def _sent(
        self, state: ReplicationModelState, broker_id: int, replica: ModelReplica, proposal: AskedProposal
    ) -> ReplicationModelState:
        """On the wire, unless it is there or would change nothing any more."""
        message = (broker_id, replica.life, proposal)
        if message in state.wire or not self._changes(state, message):
            return state
        return state._replace(wire=tuple(sorted((*state.wire, message))))

    def _changes(self, state: ReplicationModelState, message: tuple[int, int, AskedProposal]) -> bool:
        return self._controller.judge(state.partition, state.lives, *message) != state.partition

    def _advanced(self, broker_id: int, replica: ModelReplica) -> ModelReplica:
        """The high watermark looked at again, if it leads."""
        lead = replica.lead
        if lead is None:
            return replica
        committed = frozenset(self.partitions[replica.image].in_sync_replicas)
        proposal = None if lead.proposal is None else Proposal(*lead.proposal)
        members = in_sync.maximal_in_sync(committed, proposal) - {broker_id}
        offset = high_watermark.next_high_watermark(
            replica.high_watermark,
            own_durable_end=replica.durable,
            member_ends=[
                in_sync.known_end(self._view(each, lead.views[each]), self._life(each, replica.lives[each]))
                for each in members
            ],
            joiner_ends=(),
            in_sync_count=len(committed),
            min_in_sync=self.bounds.min_in_sync,
        )
        offset = min(offset, replica.durable)
        return replica if offset == replica.high_watermark else replica._replace(high_watermark=offset)

    def _view(self, broker_id: int, view: LeaderView) -> FollowerView:
        return FollowerView(broker_id, view.broker_epoch, view.accepted, view.durable_end, wants_in=True)

    def _life(self, broker_id: int, life: int) -> BrokerIncarnation:
        """As a leader has seen it last; that it is fenced it sees too late: the controller refuses it then."""
        found = self._lives.get((broker_id, life))
        if found is None:
            found = self._lives[broker_id, life] = BrokerIncarnation(
                broker_id, life, "", 0, fenced=False, stopping=False
            )
        return found

    # -- a follower

    def _follow(self, state: ReplicationModelState, broker_id: int, replica: ModelReplica) -> Next:
        leader_id = self._leader_of(state, broker_id, replica)
        if leader_id is not None:
            after = self._fetch(state, broker_id, replica, leader_id)
            after = after if self.bounds.unsynced else self._synced(after, broker_id)
            if after != state:
                yield ("fetch", (broker_id, leader_id)), after

    def _leader_of(self, state: ReplicationModelState, broker_id: int, replica: ModelReplica) -> int | None:
        """Whom it follows, where that one leads in the same epoch: a lower one is fenced, a higher one waits."""
        seen = self.partitions[replica.image]
        if seen.leader_id in (NO_LEADER, broker_id):
            return None
        leader = state.replicas[seen.leader_id]
        if leader.lead is None or self.partitions[leader.image].leader_epoch != seen.leader_epoch:
            return None
        return seen.leader_id

    def _with_view(self, leader: ModelReplica, broker_id: int, view: LeaderView) -> ModelReplica:
        lead = leader.lead
        assert lead is not None
        views = lead.views
        return leader._replace(lead=lead._replace(views=(*views[:broker_id], view, *views[broker_id + 1 :])))

    def _fetch(
        self, state: ReplicationModelState, broker_id: int, replica: ModelReplica, leader_id: int
    ) -> ReplicationModelState:
        """Position and progress come together; accepted, one record follows, and the high watermark is adopted."""
        leader = state.replicas[leader_id]
        assert leader.lead is not None
        end, epoch = len(replica.log), self.partitions[leader.image].leader_epoch
        verdict = divergence.compare_position(
            LeaderEpochs(EpochCache(leader.epochs), epoch, leader.lead.epoch_start),
            log_start=0,
            log_end=len(leader.log),
            fetch_offset=end,
            last_fetched_epoch=epoch_before(replica, end),
        )
        if isinstance(verdict, Diverged):
            state = with_replica(state, leader_id, self._with_view(leader, broker_id, LeaderView(replica.life)))
            cut = self._truncated(replica, verdict)
            if len(cut.log) >= end:
                raise Violation("V19", f"broker {broker_id} diverged and cuts nothing: it would ask the same for ever")
            return with_replica(state, broker_id, cut)
        assert isinstance(verdict, Accepted)
        told = self._with_view(leader, broker_id, LeaderView(replica.life, True, replica.durable))
        leader = self._advanced(leader_id, told)
        if end < len(leader.log):
            record = leader.log[end]
            epochs = EpochCache(replica.epochs)
            epochs.assign(record[0], end)
            replica = replica._replace(log=(*replica.log, record), epochs=epochs.entries)
        adopted = max(replica.high_watermark, min(leader.high_watermark, replica.durable))
        replica = replica._replace(high_watermark=adopted)
        return with_replica(with_replica(state, leader_id, leader), broker_id, replica)

    def _truncated(self, replica: ModelReplica, told: Diverged) -> ModelReplica:
        what = divergence.truncation(
            EpochCache(replica.epochs), log_start=0, log_end=len(replica.log), diverged=told, leader_log_start=0
        )
        return self._cut(replica, what.offset if isinstance(what, StartAnewAt) else what.end_offset)

    # -- the controller

    def _within(self, partition: int) -> bool:
        state = self.partitions[partition]
        return state.leader_epoch <= self.bounds.leader_epochs and state.partition_epoch <= self.bounds.partition_epochs

    def _fencing(self, state: ReplicationModelState, broker_id: int) -> Next:
        life, fenced = state.lives[broker_id]
        lives = (*state.lives[:broker_id], (life, not fenced), *state.lives[broker_id + 1 :])
        if fenced:
            partition = self._controller.reconsider(state.partition, lives)
        else:
            partition = self._controller.depart(state.partition, lives, broker_id, Departure.OUT)
        # Fencing one that is out of everything already changes nothing that matters here.
        if self._within(partition) and (fenced or partition != state.partition):
            yield ("unfence" if fenced else "fence", (broker_id,)), self._committed(state, partition, lives)

    def _committed(
        self, state: ReplicationModelState, partition: int, lives: tuple[Life, ...]
    ) -> ReplicationModelState:
        """The controller's new state. What would be refused without a trace from now on is gone from the wire."""
        state = state._replace(partition=partition, lives=lives)
        return state._replace(wire=tuple(each for each in state.wire if self._changes(state, each)))

    def _judge_proposals(self, state: ReplicationModelState) -> Next:
        for message in state.wire:
            partition = self._controller.judge(state.partition, state.lives, *message)
            if self._within(partition):
                wire = tuple(each for each in state.wire if each != message)
                judged = self._committed(state._replace(wire=wire), partition, state.lives)
                yield ("judge", (message[0],)), judged
