"""Reassignments by command: what may be asked for. How they go on from there: assignment.py."""

from __future__ import annotations

from collections.abc import Sequence

from minilog.errors import InvalidReplicaAssignment, MinilogError, NoReassignmentInProgress, wire_error
from minilog.v1 import admin_pb2
from minilog_broker.controller.election import reassign
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.preferred import partition_state
from minilog_broker.replication.partition_state import PartitionState


def alter_reassignments(
    ledger: Ledger, request: admin_pb2.AlterPartitionReassignmentsRequest
) -> admin_pb2.AlterPartitionReassignmentsResponse:
    """Each partition for itself; all that are accepted are one decision."""
    return admin_pb2.AlterPartitionReassignmentsResponse(
        results=[_result(ledger, reassignment) for reassignment in request.reassignments]
    )


def _result(ledger: Ledger, asked: admin_pb2.PartitionReassignment) -> admin_pb2.PartitionResult:
    try:
        state = partition_state(ledger, asked.name, asked.partition)
        target = tuple(asked.replicas) or _to_go_back_to(state)
        _check_target(ledger, state, target)
        ledger.write_outcome(reassign(state, target, asked.throttle_bytes_per_second, ledger.rules(state.key)))
    except MinilogError as error:
        return admin_pb2.PartitionResult(
            error=wire_error(error), name=asked.name, partition=asked.partition, leader_id=-1
        )
    leader_id = ledger.image.partitions[state.key].leader_id
    return admin_pb2.PartitionResult(name=asked.name, partition=asked.partition, leader_id=leader_id)


def _to_go_back_to(state: PartitionState) -> tuple[int, ...]:
    """The replicas before the reassignment that is cancelled."""
    if not state.reassigning:
        raise NoReassignmentInProgress(
            f"the replicas of partition {state.key.partition} of {state.topic_name}, {list(state.replicas)}, are not "
            f"being reassigned: there is nothing to cancel"
        )
    return state.original_replicas


def _check_target(ledger: Ledger, state: PartitionState, target: Sequence[int]) -> None:
    where = f"partition {state.key.partition} of {state.topic_name} cannot have the replicas {list(target)}"
    if len(set(target)) < len(target):
        raise InvalidReplicaAssignment(f"{where}: give each broker once")
    brokers = ledger.image.brokers
    if unknown := [broker_id for broker_id in target if broker_id not in brokers]:
        raise InvalidReplicaAssignment(f"{where}: brokers {unknown} are not known; known are {sorted(brokers)}")
    joining = [brokers[broker_id] for broker_id in target if broker_id not in state.replicas]
    if absent := [broker.broker_id for broker in joining if broker.fenced or broker.stopping]:
        raise InvalidReplicaAssignment(f"{where}: brokers {absent} are not running: start them, or choose others")
    if cordoned := [broker.broker_id for broker in joining if broker.broker_id in ledger.image.cordons]:
        raise InvalidReplicaAssignment(
            f"{where}: brokers {cordoned} are cordoned: choose others, or `minilog broker uncordon` them"
        )
    least = ledger.image.topic_config(state.key.topic_id).get("min.insync.replicas")
    if least is not None and len(target) < int(least):
        raise InvalidReplicaAssignment(f"{where}: the topic's min.insync.replicas={least} asks for more")
