"""Votes on the wire: what a candidate asks, and what a voter refuses in every role. No state of its own."""

from __future__ import annotations

from minilog.errors import InconsistentClusterId, InconsistentVoters, InvalidArgument, MinilogError
from minilog.v1 import peer_pb2
from minilog_broker.quorum.member import MAX_EPOCH, QuorumMember
from minilog_broker.quorum.voters import VoterKey


def vote_request(member: QuorumMember, voter: VoterKey, epoch: int, *, pre_vote: bool) -> peer_pb2.VoteRequest:
    """The question of `member` to `voter`. It stands in `epoch`, or asks in a pre-vote whether it could."""
    last_epoch, end_offset = member.log.last_entry
    return peer_pb2.VoteRequest(
        cluster_id=member.cluster_id,
        candidate_id=member.node_id,
        candidate_directory_id=member.directory_id,
        epoch=epoch,
        pre_vote=pre_vote,
        last_end_offset=end_offset,
        last_epoch=last_epoch,
        voter_id=voter.broker_id,
        voter_directory_id=voter.directory_id,
        voter_ids=member.given_ids,
    )


def request_error(member: QuorumMember, own_epoch: int, request: peer_pb2.VoteRequest) -> MinilogError | None:
    """The error of the request as such. A request with an error changes nothing here."""
    if request.cluster_id and member.settled_cluster_id not in ("", request.cluster_id):
        return InconsistentClusterId(
            f"broker {member.node_id} belongs to cluster {member.settled_cluster_id}, candidate "
            f"{request.candidate_id} to {request.cluster_id}: one of the two was started with the addresses of "
            f"the wrong voters"
        )
    if is_founding(member, request) and sorted(request.voter_ids) != member.given_ids:
        return InconsistentVoters(
            f"candidate {request.candidate_id} was started with voters {sorted(request.voter_ids)}, broker "
            f"{member.node_id} with {member.given_ids}: start all brokers with the same"
        )
    if request.voter_id != member.node_id or request.candidate_id == member.node_id:
        return InconsistentVoters(
            f"candidate {request.candidate_id} asked broker {request.voter_id} for its vote and reached broker "
            f"{member.node_id}: give every broker an id and an address of its own"
        )
    is_possible = request.candidate_id >= 0 and 0 <= candidates_epoch(request) <= MAX_EPOCH
    if not is_possible or (is_founding(member, request) and request.candidate_id not in member.given_ids):
        return InvalidArgument(
            f"broker {request.candidate_id} cannot stand in epoch {request.epoch}: it is {own_epoch} here, and the "
            f"voters are {member.voter_ids}"
        )
    return None


def is_founding(member: QuorumMember, request: peer_pb2.VoteRequest) -> bool:
    """Whether neither side has a log that records voters.

    Later a voter answers every candidate, also one that its own log does not name. That log may be behind (Raft thesis
    4.1).
    """
    return not request.cluster_id and not member.cluster_id


def candidates_epoch(request: peer_pb2.VoteRequest) -> int:
    """The epoch that the candidate is in. A pre-vote names the epoch behind it."""
    return request.epoch - 1 if request.pre_vote else request.epoch


def is_addressed(member: QuorumMember, request: peer_pb2.VoteRequest) -> bool:
    """Whether the request asks for this node's vote: it names our directory, or the cluster is new."""
    if request.voter_directory_id:
        return request.voter_directory_id == member.directory_id
    return is_founding(member, request)


def is_up_to_date(member: QuorumMember, request: peer_pb2.VoteRequest) -> bool:
    """Whether the candidate's log has all that ours has (Raft 5.4.1)."""
    return (request.last_epoch, request.last_end_offset) >= member.log.last_entry
