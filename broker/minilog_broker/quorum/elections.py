"""Elections: what this node answers who asks for its vote, and what it makes of the answers it gets. V11, V20.

asked, and                                        answer
the request does not belong here (voting)         an error; nothing changes
the vote asked for is another directory's         no
a leader that a majority hears, a later epoch     no; it stands itself, in an epoch above
we hear a live leader, not the one who asks       no; our epoch stays
pre-vote, else                                    yes where its log has all that ours has; nothing changes
a later epoch, or ours with our vote still free   yes where its log has all that ours has; epoch and vote to disk first
"""

from __future__ import annotations

from minilog.errors import (
    FencedLeaderEpoch,
    InconsistentClusterId,
    InconsistentVoters,
    InvalidArgument,
    MinilogError,
    wire_error,
)
from minilog.v1 import peer_pb2
from minilog_broker.quorum import voting
from minilog_broker.quorum.candidate import Candidate
from minilog_broker.quorum.effects import AnswerVote
from minilog_broker.quorum.member import NO_LEADER, Member
from minilog_broker.quorum.prospective import Prospective
from minilog_broker.quorum.transitions import Transitions
from minilog_broker.quorum.voters import VoterKey


class Elections:
    """See the module's text."""

    def __init__(self, member: Member, transitions: Transitions) -> None:
        self._member = member
        self._transitions = transitions

    @property
    def _epoch(self) -> int:
        return self._transitions.epoch

    @property
    def _leader_id(self) -> int:
        return self._transitions.leader_id

    # -- votes

    def vote_persisted(self, now_ms: float, timestamp_us: int) -> None:
        self._transitions.at(timestamp_us)
        self._transitions.keeper.persisted()
        self._transitions.count(now_ms)

    def vote_request(self, ticket: object, request: peer_pb2.VoteRequest, now_ms: float) -> None:
        """A candidate asks: answered by AnswerVote, when what the answer promises is durable."""
        member, transitions = self._member, self._transitions
        error = voting.request_error(member, self._epoch, request)
        granted = error is None and self._grants(request, now_ms)
        response = peer_pb2.VoteResponse(
            error=None if error is None else wire_error(error),
            granted=granted,
            epoch=transitions.keeper.current.epoch,  # an observer's own is not on disk
            leader_id=self._leader_id if transitions.hears_leader(now_ms) else NO_LEADER,
            directory_id=member.directory_id,
            cluster_id=member.cluster_id,
        )
        transitions.keeper.when_durable(lambda: member.emit(AnswerVote(ticket, response)))

    def _grants(self, request: peer_pb2.VoteRequest, now_ms: float) -> bool:
        """Whether the candidate has our vote, or would have it; and what follows for us from its epoch."""
        transitions, leader = self._transitions, self._transitions.leader
        if not voting.is_addressed(self._member, request):
            return False
        its_epoch = request.epoch - 1 if request.pre_vote else request.epoch
        if leader is not None and its_epoch > self._epoch and leader.voters.hears_majority(now_ms):
            transitions.stand_above(its_epoch, now_ms)
            return False
        up_to_date = voting.is_up_to_date(self._member, request)
        if request.pre_vote:
            return up_to_date and request.epoch > self._epoch and not transitions.hears_leader(now_ms)
        if leader is None and transitions.hears_leader(now_ms) and request.candidate_id != self._leader_id:
            return False
        if request.epoch < self._epoch:
            return False
        free = request.epoch > self._epoch or (
            self._leader_id == NO_LEADER
            and transitions.keeper.is_free_for(self._epoch, request.candidate_id, request.candidate_directory_id)
        )
        if free and up_to_date:
            transitions.vote_for(request.epoch, request.candidate_id, request.candidate_directory_id, now_ms)
        elif request.epoch > self._epoch:
            transitions.adopt(request.epoch, NO_LEADER, now_ms)
        return free and up_to_date

    def vote_answered(
        self,
        voter_id: int,
        request: peer_pb2.VoteRequest,
        response: peer_pb2.VoteResponse,
        now_ms: float,
        timestamp_us: int,
    ) -> None:
        """A voter answered our SendVote."""
        self._transitions.at(timestamp_us)
        if not response.error.code and self.learn(response.epoch, response.leader_id, now_ms):
            return
        state = self._transitions.state
        if isinstance(state, Prospective | Candidate) and state.asked(request):
            key = VoterKey(voter_id, request.voter_directory_id)
            if response.error.code:
                state.ballot.deny(key)
            else:
                state.answered(key, response)
            self._transitions.count(now_ms)

    def learn(self, epoch: int, leader_id: int, now_ms: float) -> bool:
        """Second-hand news of an epoch and its leader; whether it is news."""
        if not self._member.plausible(epoch, self._epoch) or epoch < self._epoch:
            return False
        known = leader_id if leader_id in self._member.voter_ids and leader_id != self._member.node_id else NO_LEADER
        if epoch > self._epoch:
            standing = isinstance(self._transitions.state, Prospective | Candidate)
            self._transitions.adopt(epoch, known, now_ms, stand_soon=standing)
            return True
        if known != NO_LEADER and self._leader_id == NO_LEADER:
            self._transitions.follow(epoch, known, now_ms)
            return True
        return False

    def vote_unanswered(self, voter_id: int, request: peer_pb2.VoteRequest, now_ms: float) -> None:
        """It did not."""
        state = self._transitions.state
        if isinstance(state, Prospective | Candidate) and state.asked(request):
            state.ballot.deny(VoterKey(voter_id, request.voter_directory_id))
            self._transitions.count(now_ms)

    # -- who leads

    def begin_quorum_epoch(
        self, request: peer_pb2.BeginQuorumEpochRequest, now_ms: float
    ) -> peer_pb2.BeginQuorumEpochResponse:
        """A leader says that it leads."""
        error = self._begin_error(request)
        if error is None:
            self._transitions.follow(request.epoch, request.leader_id, now_ms)
            self._transitions.told_by_leader(now_ms)
        epoch = self._transitions.told_epoch()
        leader_id = self._leader_id if epoch == self._epoch else NO_LEADER
        wire = None if error is None else wire_error(error)
        return peer_pb2.BeginQuorumEpochResponse(error=wire, epoch=epoch, leader_id=leader_id)

    def _begin_error(self, request: peer_pb2.BeginQuorumEpochRequest) -> MinilogError | None:
        member = self._member
        if member.cluster_id and request.cluster_id != member.cluster_id:
            return InconsistentClusterId(f"broker {member.node_id} belongs to cluster {member.cluster_id}")
        if request.voter_id != self._member.node_id or request.leader_id not in member.voter_ids:
            return InconsistentVoters(f"this is broker {member.node_id}, and the voters are {member.voter_ids}")
        if request.leader_id == self._member.node_id or not member.plausible(request.epoch, self._epoch):
            return InvalidArgument(f"broker {request.leader_id} cannot lead in epoch {request.epoch}")
        if request.epoch < self._epoch:
            return FencedLeaderEpoch(f"quorum epoch {request.epoch} is over, it is {self._epoch}")
        if request.epoch == self._epoch and self._leader_id not in (NO_LEADER, request.leader_id):
            return InvalidArgument(f"broker {self._leader_id} leads in epoch {self._epoch}")
        return None

    def begin_epoch_answered(self, response: peer_pb2.BeginQuorumEpochResponse, now_ms: float) -> None:
        """A voter answered our SendBeginQuorumEpoch; those that do not fetch are told again."""
        leader = self._transitions.leader
        if leader is None or not self._member.plausible(response.epoch, self._epoch):
            return
        if response.epoch > self._epoch and leader.voters.hears_majority(now_ms):
            self._transitions.stand_above(response.epoch, now_ms)
        elif response.epoch > self._epoch:
            self.learn(response.epoch, response.leader_id, now_ms)
