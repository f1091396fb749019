"""Candidate: stands in an epoch of its own. It asks when that epoch and its vote for itself are on disk, not before."""

from __future__ import annotations

from minilog.v1 import peer_pb2
from minilog_broker.quorum.ballot import Ballot
from minilog_broker.quorum.cluster import NewVoter
from minilog_broker.quorum.member import NO_LEADER, Member, Role
from minilog_broker.quorum.quorum_effects import SendVote
from minilog_broker.quorum.voters import VoterKey
from minilog_broker.quorum.voting import vote_request


class Candidate:
    """See the module's text. `new_voters`: what the voters said of themselves, for a first entry. Over at `due_ms`."""

    role = Role.CANDIDATE
    leader_id = NO_LEADER

    def __init__(self, member: Member, epoch: int, due_ms: float, new_voters: dict[int, NewVoter]) -> None:
        self.due_ms = due_ms
        self.new_voters = new_voters
        self._member = member
        self._epoch = epoch
        self.ballot = Ballot(member.voter_sets(), member.own_key)

    def ask(self) -> None:
        """Our own vote is durable."""
        self.ballot.grant(self._member.own_key)
        for key in self.ballot.asked:
            request = vote_request(self._member, key, self._epoch, pre_vote=False)
            self._member.emit(SendVote(key.broker_id, request))

    def asked(self, request: peer_pb2.VoteRequest) -> bool:
        """Whether `request` is of this round."""
        return not request.pre_vote and request.epoch == self._epoch

    def answered(self, key: VoterKey, response: peer_pb2.VoteResponse) -> None:
        if response.granted:
            self.ballot.grant(key)
        else:
            self.ballot.deny(key)
