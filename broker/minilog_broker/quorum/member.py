"""What the roles of one node share: who it is, its log, who votes, its timers, and the effects asked for, in order."""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from typing import cast

from minilog.addresses import Address
from minilog.v1 import peer_pb2
from minilog.versions import VersionRange
from minilog_broker.levels import ClusterLevel
from minilog_broker.quorum.metadata_log import MetadataLog
from minilog_broker.quorum.quorum_effects import AppendToLog, QuorumEffect, StartLogAt, TruncateLog
from minilog_broker.quorum.settings import QuorumSettings
from minilog_broker.quorum.voter_addresses import VoterAddresses
from minilog_broker.quorum.voters import VoterHistory, VoterKey, VoterSet
from minilog_broker.replication.context import ReplicationContext
from minilog_broker.replication.replica_effects import Effect
from minilog_broker.replication.settings import ReplicationSettings

NO_LEADER = -1
MAX_EPOCH = (1 << 31) - 2  # what can be adopted (epochs are 32 bits wide, signed): one is left to stand in


class Role(enum.Enum):
    """See the text of `transitions`."""

    UNATTACHED = enum.auto()
    PROSPECTIVE = enum.auto()
    CANDIDATE = enum.auto()
    LEADER = enum.auto()
    FOLLOWER = enum.auto()
    OBSERVER = enum.auto()


class Member:
    """The state of a quorum node that all its roles share.

    `address`: where other brokers reach this one. `given`: the voters this broker was started with, with their
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
        self.addresses = VoterAddresses(node_id, address, self.given, self.voters)
        self.now_ms = 0.0  # of the event that is being worked on
        self.fetching_snapshot = False  # one at a time
        # The metadata session is before and beside all lives: no broker epoch is asked for, or told.
        self.context = ReplicationContext(node_id, settings, ClusterLevel(levels), broker_epoch=-1)
        self.effects = cast("list[QuorumEffect]", self.context.effects)

    # -- who votes

    @property
    def cluster_id(self) -> str:
        """Empty: this node knows of no cluster yet. What only the log says may still be cut."""
        return self.voters.cluster_id or self.known_cluster_id or ""

    @property
    def settled_cluster_id(self) -> str:
        """The cluster that this node belongs to for good: by its directory, or by what its log has committed."""
        return self.known_cluster_id or self.voters.committed_cluster_id(self.log.high_watermark) or ""

    def is_stranger(self, cluster_id: str, broker_id: int, directory_id: bytes) -> bool:
        """Whether the other side, which names `cluster_id`, is of another cluster than this node.

        While a cluster is founded two may lead in turn, and each names it. Who has the directory of a voter that is
        recorded here was asked by that founder: another name is then one that was never committed, and will be cut.
        """
        if not cluster_id or not self.cluster_id or cluster_id == self.cluster_id:
            return False
        return VoterKey(broker_id, directory_id) not in self.voters.keys

    @property
    def own_key(self) -> VoterKey:
        """The voter this node is, if it is one."""
        return VoterKey(self.node_id, self.directory_id if self.voters.current else b"")

    @property
    def is_voter(self) -> bool:
        """Whether it stands and votes: by the log, or by what was given as long as the log does not say."""
        if self.voters.keys:
            return self.voters.takes_part(self.own_key, self.log.high_watermark)
        return self.node_id in self.given_ids

    @property
    def is_only_voter(self) -> bool:
        """Whether this node decides alone."""
        return all(voters == {self.own_key} for voters in self.voter_sets())

    @property
    def may_vote(self) -> bool:
        """False: a voter's broker with another directory than the recorded one."""
        return self.is_voter or self.node_id not in self.voter_ids

    def voter_sets(self) -> tuple[VoterSet, ...]:
        """The sets that each need a majority (quorum.voters); while a cluster is founded, of those given."""
        if self.voters.current:
            return self.voters.sets(self.log.high_watermark)
        return (frozenset(VoterKey(voter_id, b"") for voter_id in self.given_ids),)

    @property
    def voter_ids(self) -> list[int]:
        """The ids in `voter_sets`."""
        return sorted({key.broker_id for voters in self.voter_sets() for key in voters})

    def peer_keys(self) -> list[VoterKey]:
        """The brokers to be asked for their word: the other voters first, then those that may know of other voters.

        A log that is behind may name voters that vote no more, so brokers that this one was started with, and leaders
        that those named, are asked besides. Their votes do not count.
        """
        voters = sorted({key for voters in self.voter_sets() for key in voters if key.broker_id != self.node_id})
        voter_ids = {key.broker_id for key in voters}
        return voters + [VoterKey(peer, b"") for peer in self.addresses.known_ids() if peer not in voter_ids]

    def is_peer(self, broker_id: int) -> bool:
        """Whether its word counts: it is a voter, or one of the brokers that are asked besides."""
        return any(key.broker_id == broker_id for key in self.peer_keys())

    # -- effects

    def emit(self, effect: QuorumEffect) -> None:
        self.effects.append(effect)

    def emit_log(self, effect: Effect) -> None:
        """An effect on the log: voter entries count from here on."""
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
        """One to two times the configured one, so that few stand at once."""
        return self.timing.election_timeout_ms * self.rng.uniform(1.0, 2.0)
