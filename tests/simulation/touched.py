"""What one event touched: judges look at that only, so that a check costs what happened, not what exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from minilog.record_batch.header import Buffer
from minilog.v1 import peer_pb2
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.replication.replica_effects import AnswerProduce


@dataclass(frozen=True, slots=True)
class Answered:
    """A leader answered a produce entry just now: before the answer is on the wire, and whether or not it arrives."""

    node_id: int
    life: int
    key: PartitionKey
    acks: int
    batch: Buffer
    answer: AnswerProduce


@dataclass(frozen=True, slots=True)
class Voted:
    """A voter's answer is on the wire."""

    node_id: int
    life: int
    request: peer_pb2.VoteRequest
    response: peer_pb2.VoteResponse


class TrimAsked(NamedTuple):
    """A node is asked to delete what is below `offset`: before it looks at that."""

    node_id: int
    key: PartitionKey
    offset: int


class TrimAnswered(NamedTuple):
    """A leader says that all below `low_watermark` is deleted, where `offset` was asked for."""

    node_id: int
    key: PartitionKey
    offset: int
    low_watermark: int


class Sent(NamedTuple):
    """A run of batches is on the wire to a reader."""

    node_id: int
    key: PartitionKey
    batches: bytes


@dataclass(slots=True)
class Touched:
    """See the module's text. Dictionaries are ordered sets: their order is the order of touching, never a hash's.

    nodes     anything at all happened in the process of this node
    replicas  (node, partition): its log, its role or its marks may have changed; the log may be gone
    quorum    the node's metadata log, vote, epoch or role may have changed
    images    the node's image was moved on (its changes are in replicas too)
    decided   the node's active controller decided or was answered something
    answers   produce entries that were answered by their leader
    votes     answers to candidates
    trims_asked, trims_answered  records that are to be deleted, and are
    sent      what readers are sent
    heard     (source, target): a message of a peer's quorum node reached the target's
    broken    pairs of nodes between which a connection was lost, though both live
    controlled  nodes whose controller answered something without an error
    heartbeats  (controller's node, broker, its broker epoch) that an active controller takes or refuses
    began     nodes whose life began (recovered, not yet registered)
    recovered (node, partition): its log was found damaged in this life, and cut there
    ended     (node, how): node.life is None now; "crash" keeps the page cache, "power" does not, "failed" is by an
              error of its own, "clean" or "unclean stop" after SIGTERM
    """

    nodes: dict[int, None] = field(default_factory=dict)
    replicas: dict[tuple[int, PartitionKey], None] = field(default_factory=dict)
    quorum: dict[int, None] = field(default_factory=dict)
    images: dict[int, None] = field(default_factory=dict)
    decided: dict[int, None] = field(default_factory=dict)
    answers: list[Answered] = field(default_factory=list)
    votes: list[Voted] = field(default_factory=list)
    trims_asked: list[TrimAsked] = field(default_factory=list)
    trims_answered: list[TrimAnswered] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    heard: dict[tuple[int, int], None] = field(default_factory=dict)
    broken: dict[tuple[int, int], None] = field(default_factory=dict)
    controlled: list[int] = field(default_factory=list)
    heartbeats: list[tuple[int, int, int]] = field(default_factory=list)
    began: list[int] = field(default_factory=list)
    recovered: list[tuple[int, PartitionKey]] = field(default_factory=list)
    ended: list[tuple[int, str]] = field(default_factory=list)

    def clear(self) -> None:
        """Forget it all, for the next event."""
        self.nodes.clear()
        if self.replicas:
            self.replicas.clear()
        if self.quorum:
            self.quorum.clear()
        if self.images:
            self.images.clear()
        if self.decided:
            self.decided.clear()
        if self.answers:
            self.answers.clear()
        if self.votes:
            self.votes.clear()
        if self.trims_asked or self.trims_answered:
            self.trims_asked.clear()
            self.trims_answered.clear()
        if self.sent:
            self.sent.clear()
        if self.heard:
            self.heard.clear()
        if self.broken:
            self.broken.clear()
        if self.controlled:
            self.controlled.clear()
        if self.heartbeats:
            self.heartbeats.clear()
        if self.recovered:
            self.recovered.clear()
        if self.began or self.ended:
            self.began.clear()
            self.ended.clear()


Observer: TypeAlias = Callable[[Touched], None]
