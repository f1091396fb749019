"""As much of a controller as replication needs: lives, elections, ISR proposals, and a committed log of images.

The rules: docs/spec/replication.md § In-sync replicas and § Eligible leaders and damage; the controller proper has its
own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minilog.errors import IneligibleReplica, InvalidUpdateVersion, MinilogError, StaleBrokerEpoch
from minilog.partition_key import PartitionKey
from minilog_broker.replication.partition_state import NO_LEADER, BrokerIncarnation, PartitionState, TopicConfig
from minilog_broker.replication.replica_effects import ProposalAnswer, ProposeInSyncReplicas


@dataclass(frozen=True)
class Image:
    """One committed batch, as every broker replays it."""

    states: tuple[PartitionState, ...]
    removed: tuple[PartitionKey, ...]
    lives: dict[int, BrokerIncarnation]
    config: TopicConfig | None = None  # of the topic, from this batch on


class InstantController:
    """Decides at once; brokers replay `images` in order, each at its own time."""

    def __init__(self, min_in_sync: int) -> None:
        self.min_in_sync = min_in_sync
        self.partitions: dict[PartitionKey, PartitionState] = {}
        self.lives: dict[int, BrokerIncarnation] = {}
        self.images: list[Image] = []
        self._next_epoch = 100

    def create(self, key: PartitionKey, replicas: tuple[int, ...], leader_id: int, name: str = "topic") -> None:
        self.partitions[key] = PartitionState(
            key, name, replicas, replicas, (), (), leader_id, 0, 0, self.lives[leader_id].broker_epoch
        )
        self._commit(key)

    def alter(self, config: TopicConfig) -> None:
        """The topic has another configuration; whom that makes eligible no more is the controller proper's to know."""
        self.min_in_sync = config.min_in_sync_replicas
        self.images.append(Image((), (), dict(self.lives), config))

    def delete(self, key: PartitionKey) -> None:
        del self.partitions[key]
        self.images.append(Image((), (key,), dict(self.lives)))

    def _commit(self, *keys: PartitionKey) -> None:
        self.images.append(Image(tuple(self.partitions[key] for key in keys), (), dict(self.lives)))

    def _change(self, state: PartitionState, in_sync: tuple[int, ...], leader_id: int, eligible: set[int]) -> None:
        """Write a partition anew; another leader, or the same one by election, gets a higher leader epoch."""
        left = set(state.in_sync_replicas) - set(in_sync)
        enough = len(in_sync) >= min(self.min_in_sync, len(state.replicas))
        eligible = set() if enough else (eligible | left) - set(in_sync)
        life = self.lives.get(leader_id)
        elected = leader_id != state.leader_id
        self.partitions[state.key] = replace(
            state,
            in_sync_replicas=in_sync,
            eligible_leaders=tuple(sorted(eligible)),
            leader_id=leader_id,
            leader_epoch=state.leader_epoch + elected,
            partition_epoch=state.partition_epoch + 1,
            leader_broker_epoch=life.broker_epoch if life and elected else state.leader_broker_epoch,
        )

    # -- lives

    def register(self, broker_id: int) -> int:
        """A new life, unclean: out of every ISR with another member, and no longer eligible; then unfenced."""
        self._next_epoch += 1
        self.lives[broker_id] = BrokerIncarnation(
            broker_id, self._next_epoch, "host", 9092, fenced=False, stopping=False
        )
        for key, state in self.partitions.items():
            eligible = set(state.eligible_leaders) - {broker_id}
            others = tuple(b for b in state.in_sync_replicas if b != broker_id)
            if state.leader_id == broker_id:  # a leader epoch never spans two lives
                state = replace(state, leader_id=NO_LEADER)
            self._change(state, others or state.in_sync_replicas, state.leader_id, eligible)
            if others:
                self.partitions[key] = replace(
                    self.partitions[key],
                    eligible_leaders=tuple(b for b in self.partitions[key].eligible_leaders if b != broker_id),
                )
        self.elect_missing()
        self._commit(*self.partitions)
        return self._next_epoch

    def fence(self, broker_id: int) -> None:
        """Its heartbeats ended."""
        self.lives[broker_id] = replace(self.lives[broker_id], fenced=True)
        for state in list(self.partitions.values()):
            others = tuple(b for b in state.in_sync_replicas if b != broker_id)
            leader_id = NO_LEADER if state.leader_id == broker_id else state.leader_id
            if leader_id != state.leader_id or others != state.in_sync_replicas:
                self._change(state, others or state.in_sync_replicas, leader_id, set(state.eligible_leaders))
        self.elect_missing()
        self._commit(*self.partitions)

    def damage(self, broker_id: int, key: PartitionKey) -> None:
        """Its copy is damaged: out of the ISR, no eligible leader; and where it was that already, it is so anew."""
        state = self.partitions[key]
        others = tuple(b for b in state.in_sync_replicas if b != broker_id) or state.in_sync_replicas
        state = replace(state, damaged_replicas=tuple(sorted({*state.damaged_replicas, broker_id})))
        leader_id = NO_LEADER if state.leader_id == broker_id else state.leader_id
        self._change(state, others, leader_id, set(state.eligible_leaders))
        state = self.partitions[key]
        eligible = tuple(b for b in state.eligible_leaders if b != broker_id)
        self.partitions[key] = replace(state, eligible_leaders=eligible)
        self.elect_missing()
        self._commit(key)

    def change_life(self, broker_id: int, *, fenced: bool = False, stopping: bool = False) -> None:
        self.lives[broker_id] = replace(self.lives[broker_id], fenced=fenced, stopping=stopping)
        self._commit()

    def elect_missing(self) -> None:
        """From the ISR, then from the eligible."""
        for state in list(self.partitions.values()):
            if state.leader_id != NO_LEADER:
                continue
            for candidate in (*state.in_sync_replicas, *state.eligible_leaders):
                life = self.lives.get(candidate)
                if life is not None and not life.fenced and candidate not in state.damaged_replicas:
                    in_sync = state.in_sync_replicas if candidate in state.in_sync_replicas else (candidate,)
                    self._change(state, in_sync, candidate, set(state.eligible_leaders))
                    break

    def move(self, key: PartitionKey, leader_id: int) -> None:
        """Make another replica lead, whether it is in the ISR or not (the tests of divergence need that)."""
        state = replace(self.partitions[key], leader_id=NO_LEADER)
        in_sync = state.in_sync_replicas if leader_id in state.in_sync_replicas else (leader_id,)
        self._change(state, in_sync, leader_id, set(state.eligible_leaders))
        self._commit(key)

    def set_state(self, key: PartitionKey, **changes: object) -> None:
        state = self.partitions[key]
        self.partitions[key] = replace(state, partition_epoch=state.partition_epoch + 1, **changes)  # type: ignore[arg-type]
        self._commit(key)

    # -- proposals

    def propose(self, broker_id: int, broker_epoch: int, asked: ProposeInSyncReplicas) -> ProposalAnswer:
        state = self.partitions[asked.key]
        error = self._judge(broker_id, broker_epoch, asked, state)
        if error is None:
            in_sync = tuple(b for b, _ in asked.members)
            damaged = tuple(b for b in state.damaged_replicas if b not in in_sync)
            state = replace(state, damaged_replicas=damaged)
            self._change(state, in_sync, state.leader_id, set(state.eligible_leaders))
            self._commit(asked.key)
        elif isinstance(error, IneligibleReplica):  # refused for good: older than the state from now on
            self.set_state(asked.key)
        return ProposalAnswer(error)

    def _judge(
        self, broker_id: int, broker_epoch: int, asked: ProposeInSyncReplicas, state: PartitionState
    ) -> MinilogError | None:
        if broker_epoch != self.lives[broker_id].broker_epoch:
            return StaleBrokerEpoch("an earlier life of the leader")
        if (asked.leader_epoch, asked.partition_epoch) != (state.leader_epoch, state.partition_epoch):
            return InvalidUpdateVersion("not made from the committed state")
        for member, epoch in asked.members:
            life = self.lives.get(member)
            joins = member not in state.in_sync_replicas
            if life is None or epoch != life.broker_epoch or (joins and (life.fenced or life.stopping)):
                return IneligibleReplica(f"broker {member} may not be in the ISR")
        return None
