"""The state that all roles of one node share: its identity, its log, the voters, its timers, and its effects in
order."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence
from typing import cast

from minilog.addresses import Address
from minilog.v1 import peer_pb2
from minilog.versions import VersionRange
from minilog_broker.levels import ClusterLevel
from minilog_broker.quorum.metadata_log import MetadataLog
from minilog_broker.quorum.quorum_effects import AppendToLog, QuorumEffect, StartLogAt, TruncateLog
from minilog_broker.quorum.settings import QuorumSettings
from minilog_broker.quorum.voter_addresses import VoterAddresses
from minilog_broker.quorum.voters import Voter, VoterHistory, VoterKey, VoterSet
from minilog_broker.replication.context import ReplicationContext
from minilog_broker.replication.replica_effects import Effect
from minilog_broker.replication.settings import ReplicationSettings

NO_LEADER = -1
MAX_EPOCH = (1 << 31) - 2  # a node adopts no later one: epochs are signed, 32 bits wide, and one is left to stand in


class Role(enum.Enum):
    """The roles of a node. `transitions` describes them."""

    UNATTACHED = enum.auto()
    PROSPECTIVE = enum.auto()
    CANDIDATE = enum.auto()
    LEADER = enum.auto()
    FOLLOWER = enum.auto()
    OBSERVER = enum.auto()


class QuorumMember:
    """The state of a quorum node that all its roles share.

    `address`: other brokers reach this one there. `given`: the voters that this broker was started with, with their
    addresses.
    """

    def __init__(
        self,
        node_id: int,
        directory_id: bytes,
        cluster_id: str | None,
        address: Address,
        given: Sequence[peer_pb2.VoterAddress],
        log: MetadataLog,
        settings: ReplicationSettings,
        timing: QuorumSettings,
        rng: random.Random,
        levels: VersionRange,
        registered: Callable[[Voter], Address | None],
    ) -> None:
        self.node_id = node_id
        self.directory_id = directory_id
        self.known_cluster_id = cluster_id
        self.given = tuple(given)
        self.given_ids = sorted(voter.broker_id for voter in given)
        self.log = log
        self.settings = settings
        self.timing = timing
        self.rng = rng
        self.levels = levels  # that this broker can read and write
        self.voters = VoterHistory()
        self.addresses = VoterAddresses(node_id, address, self.given, self.voters, registered)
        self.now_ms = 0.0  # of the event that is being worked on
        self.fetching_snapshot = False  # one at a time
        # The metadata session does not depend on a broker's life: it neither asks for a broker epoch nor sends one.
        self.context = ReplicationContext(node_id, settings, ClusterLevel(levels), broker_epoch=-1)
        self.effects = cast("list[QuorumEffect]", self.context.effects)

    # -- who votes

    @property
    def cluster_id(self) -> str:
        """Empty if this node knows of no cluster yet. An id that only the log names may still be cut."""
        return self.voters.cluster_id or self.known_cluster_id or ""

    @property
    def settled_cluster_id(self) -> str:
        """The cluster that this node belongs to for good: its directory names it, or its log has committed it."""
        return self.known_cluster_id or self.voters.committed_cluster_id(self.log.high_watermark) or ""

    def is_stranger(self, cluster_id: str, broker_id: int, directory_id: bytes) -> bool:
        """Whether the other side, which names `cluster_id`, is of another cluster than this node.

        While a cluster is founded, two voters may lead in turn, and each names a cluster. A broker with the directory
        of a voter that is recorded here was asked by that founder. So another name from it was never committed, and
        will be cut.
        """
        if not cluster_id or not self.cluster_id or cluster_id == self.cluster_id:
            return False
        return VoterKey(broker_id, directory_id) not in self.voters.keys

    @property
    def own_key(self) -> VoterKey:
        """This node's key as a voter, if it is one."""
        return VoterKey(self.node_id, self.directory_id if self.voters.current else b"")

    @property
    def is_voter(self) -> bool:
        """Whether this node stands and votes. The log decides that. While it names no voters, the voters of the start
        do."""
        if self.voters.keys:
            return self.voters.takes_part(self.own_key, self.log.high_watermark)
        return self.node_id in self.given_ids

    @property
    def is_only_voter(self) -> bool:
        """Whether this node decides alone."""
        return all(voters == {self.own_key} for voters in self.voter_sets())

    @property
    def may_vote(self) -> bool:
        """False if the log names this broker as a voter, but with another directory."""
        return self.is_voter or self.node_id not in self.voter_ids

    def voter_sets(self) -> tuple[VoterSet, ...]:
        """The sets that each need a majority (quorum.voters). While a cluster is founded, the set of the given
        voters."""
        if self.voters.current:
            return self.voters.sets(self.log.high_watermark)
        return (frozenset(VoterKey(voter_id, b"") for voter_id in self.given_ids),)

    @property
    def voter_ids(self) -> list[int]:
        """The broker ids in `voter_sets`."""
        return sorted({key.broker_id for voters in self.voter_sets() for key in voters})

    def peer_keys(self) -> list[VoterKey]:
        """The brokers that this node asks for their word: the other voters first, then those that may know of other
        voters.

        A log that is behind may name former voters. So this node also asks the brokers that it was started with, and
        the leaders that those named. Their votes do not count.
        """
        voters = sorted({key for voters in self.voter_sets() for key in voters if key.broker_id != self.node_id})
        voter_ids = {key.broker_id for key in voters}
        return voters + [VoterKey(peer, b"") for peer in self.addresses.known_ids() if peer not in voter_ids]

    def is_peer(self, broker_id: int) -> bool:
        """Whether the broker's word counts: it is a voter, or one of the other brokers that this node asks."""
        return any(key.broker_id == broker_id for key in self.peer_keys())

    # -- effects

    def emit(self, effect: QuorumEffect) -> None:
        self.effects.append(effect)

    def emit_log(self, effect: Effect) -> None:
        """Emit an effect on the log. Its voter entries count from here on."""
        match effect:
            case AppendToLog(batches=batches):
                self.voters.note(batches)
            case TruncateLog(end_offset=end_offset):
                self.voters.cut(end_offset)
            case StartLogAt():
                self.voters.cut(0)
            case _:
                pass
        self.effects.append(effect)

    # -- time

    def jitter_ms(self) -> float:
        return self.rng.uniform(0.0, self.timing.jitter_ms)

    def election_timeout_ms(self) -> float:
        """One to two times the configured time-out, so that few voters stand at once."""
        return self.timing.election_timeout_ms * self.rng.uniform(1.0, 2.0)
