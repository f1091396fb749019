"""The roles of a voter that knows no leader: it waits for one, asks whether it would be elected, and stands.

It asks before it raises any epoch (pre-vote, KIP-996, Raft thesis 9.6). So a voter that only lost its own stream, or
was away for long, disturbs nobody (V20). While no cluster is recorded, all voters must answer, and all must be new. So
emptied disks never found a second cluster.
"""

from __future__ import annotations

import math

from minilog.v1 import peer_pb2
from minilog.versions import range_from_wire
from minilog_broker.quorum.ballot import Ballot
from minilog_broker.quorum.cluster import NewVoter
from minilog_broker.quorum.member import NO_LEADER, QuorumMember, Role
from minilog_broker.quorum.quorum_effects import SendVote
from minilog_broker.quorum.voters import VoterKey
from minilog_broker.quorum.voting import vote_request


class Unattached:
    """Waits for a leader of its epoch to speak up. At `due_ms` it asks whether it would be elected."""

    role = Role.UNATTACHED
    leader_id = NO_LEADER

    def __init__(self, due_ms: float) -> None:
        self.due_ms = due_ms


class Prospective:
    """One round of a pre-vote. It asks about the epoch behind `epoch`, and is over at `due_ms`."""

    role = Role.PROSPECTIVE
    leader_id = NO_LEADER

    def __init__(
        self, member: QuorumMember, epoch: int, due_ms: float, *, lost_leader_id: int, leader_due_ms: float
    ) -> None:
        self.due_ms = due_ms
        self._lost_leader_id = lost_leader_id
        self._leader_due_ms = leader_due_ms
        self._member = member
        self._epoch = epoch
        self._founding = not member.voters.current
        self.ballot = Ballot(member.voter_sets(), member.own_key, unanimous=self._founding)
        self.new_voters = {member.node_id: NewVoter(member.directory_id, member.levels)}

    def ask(self) -> None:
        self.ballot.grant(self._member.own_key)
        for key in self._member.peer_keys():  # some have no vote: they may know the leader
            request = vote_request(self._member, key, self._epoch + 1, pre_vote=True)
            self._member.emit(SendVote(key.broker_id, request))

    def waits_until_ms(self) -> float:
        """How long a won round waits for the lost leader's own word. Minus infinity: there is nothing to wait for.

        A stream may break while its leader lives. Then the leader says so, and this node follows it again. A killed
        leader refuses the connection, which is an answer, too.
        """
        awaited = any(key.broker_id == self._lost_leader_id for key in self.ballot.silent)
        return self._leader_due_ms if awaited else -math.inf

    def is_of_round(self, request: peer_pb2.VoteRequest) -> bool:
        """Whether `request` belongs to this round."""
        return request.pre_vote and request.epoch == self._epoch + 1

    def answered(self, key: VoterKey, response: peer_pb2.VoteResponse) -> None:
        if not response.granted or (self._founding and response.cluster_id):
            self.ballot.deny(key)
            return
        self.new_voters[key.broker_id] = NewVoter(response.directory_id, range_from_wire(response.levels))
        self.ballot.grant(key)


class Candidate:
    """The node stands in an epoch of its own. It asks for votes when that epoch and its own vote are on disk, and not
    before.

    `new_voters`: what the voters said about themselves, for a first entry. The round is over at `due_ms`.
    """

    role = Role.CANDIDATE
    leader_id = NO_LEADER

    def __init__(self, member: QuorumMember, epoch: int, due_ms: float, new_voters: dict[int, NewVoter]) -> None:
        self.due_ms = due_ms
        self.new_voters = new_voters
        self._member = member
        self._epoch = epoch
        self.ballot = Ballot(member.voter_sets(), member.own_key)

    def ask(self) -> None:
        """Ask for votes. Our own vote is durable."""
        self.ballot.grant(self._member.own_key)
        for key in self.ballot.others:
            request = vote_request(self._member, key, self._epoch, pre_vote=False)
            self._member.emit(SendVote(key.broker_id, request))

    def is_of_round(self, request: peer_pb2.VoteRequest) -> bool:
        """Whether `request` belongs to this round."""
        return not request.pre_vote and request.epoch == self._epoch

    def answered(self, key: VoterKey, response: peer_pb2.VoteResponse) -> None:
        if response.granted:
            self.ballot.grant(key)
        else:
            self.ballot.deny(key)
