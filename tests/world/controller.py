"""A controller that decides at once, by the production's functions (controller/election.py, controller/in_sync.py).

`Decisions` is one topic's, on any committed state. `InstantController` keeps the states that follow, and the batches in
which brokers replay them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from minilog.errors import MinilogError, error_from_wire
from minilog.partition_key import PartitionKey
from minilog.v1 import peer_pb2
from minilog_broker.controller import election, in_sync
from minilog_broker.controller.election import Departure
from minilog_broker.controller.image import BrokerRegistration, MetadataImage, TopicImage
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.topic_config import topic_config_values
from minilog_broker.replication.partition_state import BrokerIncarnation, PartitionState, TopicConfig
from minilog_broker.replication.replica_effects import ProposalAnswer, ProposeInSyncReplicas

Lives = Mapping[int, BrokerIncarnation]


class Decisions:
    """What follows a state, where these brokers live."""

    def __init__(self, config: TopicConfig) -> None:
        self.config = config

    def ledger(self, state: PartitionState, lives: Lives) -> Ledger:
        image, key = MetadataImage(), state.key
        for number, life in lives.items():
            image.brokers[number] = BrokerRegistration(
                number, life.broker_epoch, b"", "", 0, None, "", "", fenced=life.fenced, stopping=life.stopping
            )
        made_with = tuple(topic_config_values(self.config).items())
        image.topics[key.topic_id] = TopicImage(
            state.topic_name, key.topic_id, internal=False, partition_count=1, defaults=made_with
        )
        image.partitions[key] = state
        return Ledger(image, 0, lambda records: 0, [], has_spoken=lambda _: True)

    def depart(self, state: PartitionState, lives: Lives, broker_id: int, departure: Departure) -> PartitionState:
        """What befell a broker, whose life is `lives`' already."""
        return election.depart(state, broker_id, departure, self.ledger(state, lives).rules(state.key)).state

    def reconsider(self, state: PartitionState, lives: Lives) -> PartitionState:
        """A broker came back."""
        return election.reconsider(state, self.ledger(state, lives).rules(state.key)).state

    def propose(
        self, state: PartitionState, lives: Lives, proposer: tuple[int, int], asked: ProposeInSyncReplicas
    ) -> tuple[PartitionState, MinilogError | None]:
        """`proposer`: the broker and its broker epoch."""
        ledger = self.ledger(state, lives)
        proposal = peer_pb2.InSyncReplicasProposal(
            partition_id=asked.key.to_wire(), leader_epoch=asked.leader_epoch, partition_epoch=asked.partition_epoch
        )
        for member, epoch in asked.members:
            proposal.in_sync_replicas.add(broker_id=member, broker_epoch=epoch)
        request = peer_pb2.ProposeInSyncReplicasRequest(
            broker_id=proposer[0], broker_epoch=proposer[1], proposals=[proposal]
        )
        try:
            answer = in_sync.propose_in_sync_replicas(ledger, request).answers[0]
        except MinilogError as error:  # a life that is over
            return state, error
        return ledger.image.partitions[state.key], error_from_wire(answer.error)


@dataclass(frozen=True)
class Image:
    """One committed batch, as every broker replays it."""

    states: tuple[PartitionState, ...]
    removed: tuple[PartitionKey, ...]
    lives: dict[int, BrokerIncarnation]
    config: TopicConfig | None = None  # of the topic, from this batch on


class InstantController:
    """See the module's text. Brokers replay `images` in order, each at its own time."""

    def __init__(self, config: TopicConfig) -> None:
        self._decisions = Decisions(config)
        self.partitions: dict[PartitionKey, PartitionState] = {}
        self.lives: dict[int, BrokerIncarnation] = {}
        self.images: list[Image] = []
        self._next_epoch = 100

    def create(self, key: PartitionKey, replicas: tuple[int, ...], leader_id: int, name: str = "topic") -> None:
        epoch = self.lives[leader_id].broker_epoch
        self.partitions[key] = PartitionState(key, name, replicas, replicas, (), (), leader_id, 0, 0, epoch)
        self.commit(key)

    def alter(self, config: TopicConfig) -> None:
        """The topic has another configuration; whom that makes eligible no more is the controller proper's to know."""
        self._decisions.config = config
        self.images.append(Image((), (), dict(self.lives), config))

    def delete(self, key: PartitionKey) -> None:
        del self.partitions[key]
        self.images.append(Image((), (key,), dict(self.lives)))

    def commit(self, *keys: PartitionKey) -> None:
        self.images.append(Image(tuple(self.partitions[key] for key in keys), (), dict(self.lives)))

    # -- lives

    def register(self, broker_id: int) -> int:
        """A new life, unclean: out of every ISR with another member, and no longer eligible; then unfenced."""
        self._next_epoch += 1
        life = BrokerIncarnation(broker_id, self._next_epoch, "host", 9092, fenced=True, stopping=False)
        self.lives[broker_id] = life
        self._depart(broker_id, Departure.UNCLEAN)
        self.lives[broker_id] = replace(life, fenced=False)
        self.elect_missing()
        self.commit(*self.partitions)
        return self._next_epoch

    def fence(self, broker_id: int) -> None:
        """Its heartbeats ended."""
        self.lives[broker_id] = replace(self.lives[broker_id], fenced=True)
        self._depart(broker_id, Departure.OUT)
        self.commit(*self.partitions)

    def _depart(self, broker_id: int, departure: Departure) -> None:
        for key, state in self.partitions.items():
            if broker_id in state.replicas:
                self.partitions[key] = self._decisions.depart(state, self.lives, broker_id, departure)

    def damage(self, broker_id: int, key: PartitionKey) -> None:
        """Its copy is damaged: out of the ISR, no eligible leader; and where it was that already, it is so anew."""
        before = self.partitions[key]
        state = self._decisions.depart(before, self.lives, broker_id, Departure.DAMAGED)
        self.partitions[key] = state if state != before else election.overtaking(state).state
        self.commit(key)

    def change_life(self, broker_id: int, *, fenced: bool = False, stopping: bool = False) -> None:
        self.lives[broker_id] = replace(self.lives[broker_id], fenced=fenced, stopping=stopping)
        self.commit()

    def elect_missing(self) -> None:
        for key, state in self.partitions.items():
            self.partitions[key] = self._decisions.reconsider(state, self.lives)

    def move(self, key: PartitionKey, leader_id: int) -> None:
        """Make another replica lead, whether it is in the ISR or not (the tests of divergence need that)."""
        state = self.partitions[key]
        changes: dict[str, object] = {"leader_id": leader_id, "leader_broker_epoch": self.lives[leader_id].broker_epoch}
        if leader_id not in state.in_sync_replicas:
            former = {*state.in_sync_replicas, *state.eligible_leaders}
            changes |= {"in_sync_replicas": (leader_id,), "eligible_leaders": tuple(sorted(former - {leader_id}))}
        self.set_state(key, leader_epoch=state.leader_epoch + 1, **changes)

    def set_state(self, key: PartitionKey, **changes: object) -> None:
        state = self.partitions[key]
        self.partitions[key] = replace(state, partition_epoch=state.partition_epoch + 1, **changes)  # type: ignore[arg-type]
        self.commit(key)

    def propose(self, broker_id: int, broker_epoch: int, asked: ProposeInSyncReplicas) -> ProposalAnswer:
        before = self.partitions[asked.key]
        state, error = self._decisions.propose(before, self.lives, (broker_id, broker_epoch), asked)
        if state != before:
            self.partitions[asked.key] = state
            self.commit(asked.key)
        return ProposalAnswer(error)
