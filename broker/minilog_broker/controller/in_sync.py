"""ISR proposals: the controller's side of docs/spec/replication.md § In-sync replicas.

    refused with             unless
    UNKNOWN_TOPIC_ID         the partition exists
    FENCED_LEADER_EPOCH      the proposer leads it, in this leader epoch
    INVALID_UPDATE_VERSION   the proposal was made from the current partition epoch
    INVALID_REQUEST          members are replicas, once each, the leader among them (V4)
    INELIGIBLE_REPLICA       each member's broker epoch is current and unfenced; a joiner neither stops, nor is
                             offline, nor has a disk that is full or does not answer

INELIGIBLE_REPLICA ends the proposal: the controller commits it as a higher partition epoch. Else a delayed copy of the
proposal could be accepted when the joiner is eligible again, after the leader went back to the committed ISR (V10). And
a controller that is deposed without notice could make the leader go back from an ISR that its successor has accepted.

A damaged joiner may join: the leader has checked its position in this epoch, and the joiner truncated its copy and
fetched the rest. That ends the damage. Reports of the joiner from before the cut are no ground for a proposal. A copy
that goes offline, damaged or not, raises the partition epoch, so that every earlier proposal is refused. A later
proposal rests on later reports of the joiner (replication/rules/in_sync.py).
"""

from __future__ import annotations

from minilog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidArgument,
    InvalidUpdateVersion,
    MinilogError,
    UnknownTopicId,
    wire_error,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.controller.brokers import require_incarnation
from minilog_broker.controller.election import overtaking, with_in_sync_replicas
from minilog_broker.controller.ledger import Ledger
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState


def propose_in_sync_replicas(
    ledger: Ledger, request: peer_pb2.ProposeInSyncReplicasRequest
) -> peer_pb2.ProposeInSyncReplicasResponse:
    """Answer each proposal for itself. The accepted ones are one decision. Raises for a proposer whose life is not
    current."""
    require_incarnation(ledger, request.broker_id, request.broker_epoch)
    return peer_pb2.ProposeInSyncReplicasResponse(
        answers=[_answer(ledger, request.broker_id, proposal) for proposal in request.proposals]
    )


def _answer(ledger: Ledger, leader_id: int, proposal: peer_pb2.InSyncReplicasProposal) -> peer_pb2.InSyncReplicasAnswer:
    key = PartitionKey.of(proposal.partition_id)
    error: MinilogError | None = None
    try:
        _accept(ledger, leader_id, key, proposal)
    except MinilogError as refused:
        error = refused
        if isinstance(refused, IneligibleReplica):
            ledger.write_outcome(overtaking(ledger.image.partitions[key]))
    state = ledger.image.partitions.get(key)
    return peer_pb2.InSyncReplicasAnswer(
        partition_id=proposal.partition_id,
        error=wire_error(error) if error else common_pb2.Error(),
        leader_id=state.leader_id if state else NO_LEADER,
        leader_epoch=state.leader_epoch if state else -1,
        partition_epoch=state.partition_epoch if state else -1,
        in_sync_replicas=state.in_sync_replicas if state else (),
    )


def _accept(ledger: Ledger, leader_id: int, key: PartitionKey, proposal: peer_pb2.InSyncReplicasProposal) -> None:
    state = ledger.image.partitions.get(key)
    if state is None:
        raise UnknownTopicId(
            f"partition {key.partition} of topic id {key.topic_id.hex()} does not exist: it was deleted"
        )
    where = f"partition {key.partition} of {state.topic_name}"
    if state.leader_id != leader_id or state.leader_epoch != proposal.leader_epoch:
        raise FencedLeaderEpoch(
            f"broker {leader_id} does not lead {where} in leader epoch {proposal.leader_epoch}: "
            f"broker {state.leader_id} does, in epoch {state.leader_epoch}"
        )
    if state.partition_epoch != proposal.partition_epoch:
        raise InvalidUpdateVersion(
            f"the ISR of {where} was proposed from partition epoch {proposal.partition_epoch}, "
            f"and the current one is {state.partition_epoch}"
        )
    members = [member.broker_id for member in proposal.in_sync_replicas]
    if leader_id not in members or len(set(members)) < len(members) or not set(members) <= set(state.replicas):
        raise InvalidArgument(
            f"{members} cannot be the ISR of {where}: it names some of the replicas {list(state.replicas)}, "
            f"once each, the leader {leader_id} among them"
        )
    for member in proposal.in_sync_replicas:
        _check_member(ledger, state, member, where)
    ledger.write_outcome(with_in_sync_replicas(state, frozenset(members), ledger.rules(key)))


def _check_member(ledger: Ledger, state: PartitionState, member: peer_pb2.InSyncReplica, where: str) -> None:
    broker = ledger.image.brokers.get(member.broker_id)
    joins = member.broker_id not in state.in_sync_replicas
    if broker is None or broker.broker_epoch != member.broker_epoch:
        reason = f"its broker epoch {member.broker_epoch} is not its current life"
    elif broker.fenced:
        reason = "it is fenced"
    elif joins and broker.stopping:
        reason = "it is stopping"
    elif joins and state.key in ledger.offline.get(member.broker_id, ()):
        reason = "its replica is offline"
    elif joins and member.broker_id in ledger.full:
        reason = "its disk is full"
    elif joins and member.broker_id in ledger.stalled:
        reason = "its disk does not answer"
    else:
        return
    raise IneligibleReplica(f"broker {member.broker_id} cannot be in the ISR of {where}: {reason}")
