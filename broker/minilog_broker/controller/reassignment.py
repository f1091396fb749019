"""Reassignments by command: the checks of a request. Their further steps: assignment.py."""

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
    """Begin or cancel the reassignment of each partition. All accepted ones are one decision."""
    return admin_pb2.AlterPartitionReassignmentsResponse(
        results=[_result(ledger, reassignment) for reassignment in request.reassignments]
    )


def _result(ledger: Ledger, change: admin_pb2.PartitionReassignment) -> admin_pb2.PartitionResult:
    try:
        state = partition_state(ledger, change.name, change.partition)
        target = tuple(change.replicas) or _to_go_back_to(state)
        _check_target(ledger, state, target)
        ledger.write_outcome(reassign(state, target, change.throttle_bytes_per_second, ledger.rules(state.key)))
    except MinilogError as error:
        return admin_pb2.PartitionResult(
            error=wire_error(error), name=change.name, partition=change.partition, leader_id=-1
        )
    leader_id = ledger.image.partitions[state.key].leader_id
    return admin_pb2.PartitionResult(name=change.name, partition=change.partition, leader_id=leader_id)


def _to_go_back_to(state: PartitionState) -> tuple[int, ...]:
    """The replicas before the reassignment that this request cancels."""
    if not state.reassigning:
        raise NoReassignmentInProgress(
            f"partition {state.key.partition} of {state.topic_name} has no reassignment to cancel: its replicas "
            f"{list(state.replicas)} stay"
        )
    return state.original_replicas


def _check_target(ledger: Ledger, state: PartitionState, target: Sequence[int]) -> None:
    where = f"partition {state.key.partition} of {state.topic_name} cannot have the replicas {list(target)}"
    if len(set(target)) < len(target):
        raise InvalidReplicaAssignment(f"{where}: give each broker once")
    brokers = ledger.image.brokers
    if unknown := [broker_id for broker_id in target if broker_id not in brokers]:
        raise InvalidReplicaAssignment(
            f"{where}: brokers {unknown} are not registered. Registered are {sorted(brokers)}"
        )
    joining = [brokers[broker_id] for broker_id in target if broker_id not in state.replicas]
    if absent := [broker.broker_id for broker in joining if broker.fenced or broker.stopping]:
        raise InvalidReplicaAssignment(f"{where}: brokers {absent} are not running: start them, or choose others")
    if cordoned := [broker.broker_id for broker in joining if broker.broker_id in ledger.image.cordons]:
        raise InvalidReplicaAssignment(
            f"{where}: brokers {cordoned} are cordoned: choose others, or `minilog broker uncordon` them"
        )
    least = ledger.image.topic_config(state.key.topic_id).get("min.insync.replicas")
    if least is not None and len(target) < int(least):
        raise InvalidReplicaAssignment(f"{where}: the topic's min.insync.replicas={least} demands more")
