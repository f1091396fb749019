"""Elections: how this node answers a request for its vote, and what it does with the answers to its own. V11, V20.

a request that                            gets the answer
does not belong here (voting)             an error; nothing changes
asks for another directory's vote         no
comes while we lead, or hear a leader     no; our epoch stays, and we ask the voters for theirs
names an epoch far above ours             no; we ask the voters for theirs
is a pre-vote, else                       yes if its log has all that ours has; nothing changes
names a later epoch, or ours, in which    yes if its log has all that ours has; epoch and vote go to disk first
  our vote is free

What a request says of epochs and leaders is a hint: this node asks the voters for their own word (reported_epochs). It
follows a leader on that leader's own word, or on its request if our vote in the epoch is for it.
"""

from __future__ import annotations

import math

from minilog.errors import (
    FencedLeaderEpoch,
    InconsistentClusterId,
    InconsistentVoters,
    InvalidArgument,
    MinilogError,
    UnknownLeaderEpoch,
    wire_error,
)
from minilog.v1 import peer_pb2
from minilog_broker.quorum import voting
from minilog_broker.quorum.follower import Follower
from minilog_broker.quorum.member import MAX_EPOCH, NO_LEADER, QuorumMember
from minilog_broker.quorum.observer import Observer
from minilog_broker.quorum.quorum_effects import AnswerVote, SendVote
from minilog_broker.quorum.reported_epochs import NEAR_EPOCHS
from minilog_broker.quorum.standing import Candidate, Prospective, Unattached
from minilog_broker.quorum.transitions import Transitions
from minilog_broker.quorum.voters import VoterKey


class Elections:
    """The elections of one node, in every role."""

    def __init__(self, member: QuorumMember, transitions: Transitions) -> None:
        self._member = member
        self._transitions = transitions
        self._asked_ms = -math.inf  # when this node last asked the voters for their epochs

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
        """A candidate asks for our vote. AnswerVote answers it, when what the answer promises is durable."""
        member, transitions = self._member, self._transitions
        error = voting.request_error(member, self._epoch, request)
        granted = error is None and self._grants(request, now_ms)
        leader_id = self._leader_id if transitions.hears_leader(now_ms) else NO_LEADER
        response = peer_pb2.VoteResponse(
            error=None if error is None else wire_error(error),
            granted=granted,
            epoch=transitions.keeper.current.epoch,  # an observer's own epoch is not on disk
            leader_id=leader_id,
            leader=member.addresses.word_of(leader_id),
            directory_id=member.directory_id,
            cluster_id=member.cluster_id,
            levels=member.levels.to_wire(),
        )
        transitions.keeper.when_durable(lambda: member.emit(AnswerVote(ticket, response)))

    def _grants(self, request: peer_pb2.VoteRequest, now_ms: float) -> bool:
        """Whether the candidate has our vote, or would have it. Also does what its epoch demands of this node."""
        transitions, own_epoch = self._transitions, self._promised_epoch
        if not voting.is_addressed(self._member, request):
            return False
        its_epoch = voting.candidates_epoch(request)
        is_near = its_epoch <= own_epoch + NEAR_EPOCHS
        up_to_date = voting.is_up_to_date(self._member, request)
        grants = is_near and up_to_date and not transitions.hears_leader(now_ms) and self._is_free(request)
        if grants and not request.pre_vote:
            transitions.vote_for(request.epoch, request.candidate_id, request.candidate_directory_id, now_ms)
        elif its_epoch > own_epoch:
            self._ask_for_epochs(now_ms)
        return grants

    @property
    def _promised_epoch(self) -> int:
        """This node votes for nobody below this epoch. An observer may follow in an older epoch than the one it has
        voted in."""
        return max(self._epoch, self._transitions.keeper.current.epoch)

    def _is_free(self, request: peer_pb2.VoteRequest) -> bool:
        """Whether our vote in that epoch is free, or the candidate has it already."""
        own_epoch = self._promised_epoch
        if request.epoch != own_epoch or request.pre_vote:
            return request.epoch > own_epoch
        keeper = self._transitions.keeper
        is_free = keeper.is_free_for(own_epoch, request.candidate_id, request.candidate_directory_id)
        return is_free and (own_epoch != self._epoch or self._leader_id == NO_LEADER)

    def _ask_for_epochs(self, now_ms: float) -> None:
        """Somebody named a later epoch, or a leader. Ask every peer for its own word, not more often than an answer
        takes.

        The question is a pre-vote. It changes nothing at the peer.
        """
        member, asked_ms = self._member, self._asked_ms
        is_voter = member.is_voter and not isinstance(self._transitions.state, Observer)
        if not is_voter or now_ms - asked_ms < member.timing.begin_epoch_retry_ms:
            return
        self._asked_ms = now_ms
        for key in member.peer_keys():
            request = voting.vote_request(member, key, self._epoch + 1, pre_vote=True)
            member.emit(SendVote(key.broker_id, request))

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
        if not response.error.code and self.learn(voter_id, response.epoch, response.leader_id, now_ms):
            return
        state = self._transitions.state
        if isinstance(state, Prospective | Candidate) and state.is_of_round(request):
            key = VoterKey(voter_id, request.voter_directory_id)
            if response.error.code:
                state.ballot.deny(key)
            else:
                state.answered(key, response)
            self._transitions.count(now_ms)

    def learn(self, voter_id: int, epoch: int, leader_id: int, now_ms: float) -> bool:
        """Take a voter's own word of its epoch and of the leader. Whether this node changes its epoch or its leader for
        it."""
        transitions, leader = self._transitions, self._transitions.leader
        if isinstance(transitions.state, Observer):
            transitions.state.turn_to(leader_id, now_ms)
            return False
        if not transitions.reported_epochs.note(voter_id, epoch, leads=leader_id == voter_id):
            return False
        if leader is not None and leader.voters.hears_majority(now_ms):
            return transitions.stand_above(epoch, now_ms)
        target_epoch = transitions.reported_epochs.proven(self._epoch)
        if target_epoch == self._epoch and not transitions.hears_leader(now_ms):
            is_near = epoch <= self._epoch + NEAR_EPOCHS
            target_epoch = (
                max(target_epoch, epoch)
                if is_near
                else transitions.reported_epochs.leap_towards(epoch, target_epoch, now_ms)
            )
        if target_epoch > self._epoch:
            transitions.adopt(target_epoch, now_ms)
            return True
        if epoch == self._epoch and leader_id == voter_id and self._leader_id == NO_LEADER:
            transitions.follow(epoch, voter_id, now_ms)
            return True
        if epoch < self._epoch and leader_id == voter_id:
            return transitions.listen(epoch, voter_id, now_ms)
        if epoch > self._epoch or (leader_id != NO_LEADER and self._leader_id == NO_LEADER):
            self._ask_for_epochs(now_ms)
        return False

    def vote_unanswered(self, voter_id: int, request: peer_pb2.VoteRequest, now_ms: float) -> None:
        """The voter did not answer."""
        state = self._transitions.state
        if isinstance(state, Prospective | Candidate) and state.is_of_round(request):
            state.ballot.deny(VoterKey(voter_id, request.voter_directory_id))
            self._transitions.count(now_ms)

    # -- who leads

    def begin_quorum_epoch(
        self, request: peer_pb2.BeginQuorumEpochRequest, now_ms: float
    ) -> peer_pb2.BeginQuorumEpochResponse:
        """A leader says that it leads."""
        error = self._begin_error(request)
        if error is None and (request.epoch, request.leader_id) != (self._epoch, self._leader_id):
            error = self._begin(request, now_ms)
        epoch = self._transitions.epoch_for_others()
        leader_id = self._leader_id if epoch == self._epoch else NO_LEADER
        wire = None if error is None else wire_error(error)
        leader = self._member.addresses.word_of(leader_id)
        return peer_pb2.BeginQuorumEpochResponse(error=wire, epoch=epoch, leader_id=leader_id, leader=leader)

    def _begin(self, request: peer_pb2.BeginQuorumEpochRequest, now_ms: float) -> MinilogError | None:
        """Follow the broker that we voted for, if we wait for a leader. If any other broker says that it leads, ask the
        voters first."""
        transitions, leader_id = self._transitions, request.leader_id
        is_chosen = request.epoch == self._epoch and transitions.keeper.voted_for(request.epoch) == leader_id
        if is_chosen and isinstance(transitions.state, Unattached):
            transitions.follow(request.epoch, leader_id, now_ms)
            transitions.heard(now_ms)
            return None
        if isinstance(transitions.state, Observer):
            transitions.state.turn_to(leader_id, now_ms)
        self._ask_for_epochs(now_ms)
        return UnknownLeaderEpoch(
            f"broker {self._member.node_id} asks the voters whether broker {leader_id} leads in epoch {request.epoch}"
        )

    def _begin_error(self, request: peer_pb2.BeginQuorumEpochRequest) -> MinilogError | None:
        member = self._member
        if member.settled_cluster_id not in ("", request.cluster_id):
            return InconsistentClusterId(f"broker {member.node_id} belongs to cluster {member.settled_cluster_id}")
        if request.voter_id != self._member.node_id:
            return InconsistentVoters(f"this is broker {member.node_id}, and the voters are {member.voter_ids}")
        if request.leader_id in (self._member.node_id, NO_LEADER) or not 0 <= request.epoch <= MAX_EPOCH:
            return InvalidArgument(f"broker {request.leader_id} cannot lead in epoch {request.epoch}")
        if request.epoch < self._epoch:
            return FencedLeaderEpoch(f"quorum epoch {request.epoch} is over, it is {self._epoch}")
        if request.epoch == self._epoch and self._leader_id not in (NO_LEADER, request.leader_id):
            return InvalidArgument(f"broker {self._leader_id} leads in epoch {self._epoch}")
        return None

    def leader_names(self, epoch: int, now_ms: float) -> None:
        """The broker that we fetch from speaks in `epoch`; -1: in none."""
        state = self._transitions.state
        if isinstance(state, Observer):
            if state.epoch < epoch <= MAX_EPOCH:
                self._transitions.enter_epoch(epoch, now_ms)
        elif isinstance(state, Follower) and state.only_listens and epoch <= self._epoch:
            self._transitions.listen_on(state, epoch, now_ms)
        elif epoch > self._epoch:
            self.learn(self._leader_id, epoch, self._leader_id, now_ms)

    def begin_epoch_answered(self, voter_id: int, response: peer_pb2.BeginQuorumEpochResponse, now_ms: float) -> None:
        """A voter answered our SendBeginQuorumEpoch. The leader tells it again until it fetches."""
        self.learn(voter_id, response.epoch, response.leader_id, now_ms)
