"""The states of the small model: one partition, three replicas, a controller; all of it plain tuples, so that two
histories that end alike end in the same state.

A record is told by its offset, its leader epoch, and the broker and life that appended it. A replica's disk is its log,
how much of it is durable, its epoch cache and its high watermark; its memory is the metadata it has seen and, where it
leads, what it knows of the others. Committed states of the partition are numbered: the production's PartitionState is
kept once, in `Partitions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from minilog.partition_key import PartitionKey
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState

BROKERS = (0, 1, 2)
KEY = PartitionKey(bytes(range(16)), 0)

Record: TypeAlias = tuple[int, int, int]  # (leader epoch, broker id and broker epoch of who appended it)
Log: TypeAlias = tuple[Record, ...]
Life: TypeAlias = tuple[int, bool]  # (broker epoch, fenced)
Members: TypeAlias = tuple[tuple[int, int], ...]  # (broker id, broker epoch)


class LeaderView(NamedTuple):
    """What a leader knows of a follower (in_sync.FollowerView)."""

    broker_epoch: int | None = None
    accepted: bool = False
    durable_end: int | None = None


UNKNOWN = LeaderView()


class AskedProposal(NamedTuple):
    """A proposal, in flight at its leader or on the wire (in_sync.Proposal)."""

    leader_epoch: int
    partition_epoch: int
    members: Members


class Lead(NamedTuple):
    """The memory of a leader, in one leader epoch."""

    epoch_start: int
    views: tuple[LeaderView, ...]  # by broker id
    proposal: AskedProposal | None


class ModelReplica(NamedTuple):
    """One broker and its copy."""

    alive: bool
    life: int  # its broker epoch
    image: int  # number of the partition's state as it has seen it
    lives: tuple[int, ...]  # where it leads: the broker epochs of all, as it has seen them
    log: Log
    durable: int
    epochs: tuple[tuple[int, int], ...]
    high_watermark: int
    lead: Lead | None

    @property
    def ends(self) -> tuple[int, int, int, int]:
        return 0, self.high_watermark, self.durable, len(self.log)

    def below(self, offset: int) -> Log:
        return self.log[:offset]


class ReplicationModelState(NamedTuple):
    """Everything. `committed` and the rest are for the judges: no rule looks at them."""

    partition: int  # number of the committed state
    lives: tuple[Life, ...]
    replicas: tuple[ModelReplica, ...]
    wire: tuple[
        tuple[int, int, AskedProposal], ...
    ]  # (leader, its broker epoch, proposal), on the way to the controller
    committed: Log  # all that was ever below the high watermark of one who believed to lead
    answered: tuple[tuple[int, int], ...]  # (leader epoch, largest end that its leader answered as the latest)
    appended: int  # how many records, all in all
    damages: int


@dataclass(frozen=True, slots=True)
class ReplicationBounds:
    """How far histories go: what would go further is not done.

    Without `unsynced` every write is synced at once; without `delayed` a proposal is judged when it is made. Both make
    for far fewer states, so that there is room for more epochs and records.
    """

    leader_epochs: int = 1
    partition_epochs: int = 2
    records: int = 1
    restarts: int = 0
    damages: int = 0
    min_in_sync: int = 2
    unsynced: bool = True
    delayed: bool = True


NOTHING_SEEN = 0  # the number of what a broker has seen that has just started


class Partitions:
    """The committed states of the partition by their numbers."""

    def __init__(self) -> None:
        nothing = PartitionState(KEY, "topic", BROKERS, (), (), (), NO_LEADER, -1, -1, -1)
        self._states: list[PartitionState] = [nothing]
        self._numbers: dict[PartitionState, int] = {nothing: NOTHING_SEEN}

    def __getitem__(self, number: int) -> PartitionState:
        return self._states[number]

    def number(self, state: PartitionState) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def as_follower(self, state: PartitionState) -> int:
        """The number of as much of a state as matters to who does not lead in it."""
        return self.number(
            PartitionState(KEY, "topic", BROKERS, (), (), (), state.leader_id, state.leader_epoch, -1, -1)
        )


def first_state(partitions: Partitions) -> ReplicationModelState:
    """A new partition, led by broker 0, all in sync."""
    partition = partitions.number(PartitionState(KEY, "topic", BROKERS, BROKERS, (), (), 0, 0, 0, 1))
    lives = tuple((1, False) for _ in BROKERS)
    seen = partitions.as_follower(partitions[partition])
    follower = ModelReplica(True, 1, seen, (), (), 0, (), 0, None)
    leader = follower._replace(
        image=partition, epochs=((0, 0),), lives=(1, 1, 1), lead=Lead(0, (UNKNOWN,) * len(BROKERS), None)
    )
    return ReplicationModelState(partition, lives, (leader, follower, follower), (), (), (), 0, 0)


def with_replica(state: ReplicationModelState, broker_id: int, replica: ModelReplica) -> ReplicationModelState:
    replicas = state.replicas
    return state._replace(replicas=(*replicas[:broker_id], replica, *replicas[broker_id + 1 :]))
