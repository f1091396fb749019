"""Reassignments of a partition's replicas, as steps of its committed state (KIP-455). Pure.

    step       the state
    begun      replicas = the target's, then those that are to go; adding_replicas: all that were not there before;
               removing_replicas: all that are not in the target
    advanced   a replica that was added and is not wanted any more (it is in both, after another target or a cancel)
               goes as soon as the ISR can spare it; when all of the target are in the ISR, the reassignment is done,
               and the others go, also the leader

Until the end, min.insync.replicas is bounded by the number of replicas before the reassignment. So half a reassignment
demands no more and promises no less. The departure of a replica raises the leader epoch (election.py). Nothing known of
the replica may count when it comes back with an empty disk, even for a leader that sees only the end of both (mutant
8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minilog_broker.replication.partition_state import PartitionState


def begun(state: PartitionState, target: Sequence[int], throttle_bytes_per_second: int = 0) -> PartitionState:
    """The state at the begin of a reassignment to `target`. It replaces a reassignment that is under way."""
    unwanted = tuple(broker for broker in state.replicas if broker not in target)
    original = state.original_replicas
    replicas = (*target, *unwanted)
    adding = tuple(broker for broker in replicas if broker not in original)
    changed = replace(
        state,
        adding_replicas=adding,
        removing_replicas=unwanted,
        throttle_bytes_per_second=throttle_bytes_per_second if adding else 0,
    )
    return _with_replicas(changed, replicas)


def advanced(state: PartitionState, effective_min: int) -> PartitionState:
    """The state after the steps that the ISR allows by now."""
    if not state.reassigning:
        return state
    state = _with_replicas(state, _without_unwanted(state, effective_min))
    target = state.target_replicas
    if state.reassigning and set(target) <= set(state.in_sync_replicas):
        state = _with_replicas(state, target)
        state = replace(state, adding_replicas=(), removing_replicas=())
    return state if state.reassigning else replace(state, throttle_bytes_per_second=0)


def _without_unwanted(state: PartitionState, effective_min: int) -> tuple[int, ...]:
    """The replicas that stay. One of the ISR goes where enough members remain, as at a shrink. An eligible leader
    stays."""
    unwanted = set(state.adding_replicas) & set(state.removing_replicas)
    kept = set(state.in_sync_replicas) - unwanted
    gone = unwanted - set(state.in_sync_replicas) - set(state.eligible_leaders)
    if len(kept) >= effective_min:
        gone = unwanted
    return tuple(broker for broker in state.replicas if broker not in gone)


def _with_replicas(state: PartitionState, replicas: tuple[int, ...]) -> PartitionState:
    """`state` with these replicas, and its other lists in their order."""

    def among(brokers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(broker for broker in replicas if broker in brokers)

    return replace(
        state,
        replicas=replicas,
        in_sync_replicas=among(state.in_sync_replicas),
        eligible_leaders=among(state.eligible_leaders),
        damaged_replicas=among(state.damaged_replicas),
        adding_replicas=among(state.adding_replicas),
        removing_replicas=among(state.removing_replicas),
    )
