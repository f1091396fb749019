"""The states of a partition, as the controller commits them one after another. V4, V10, V17.

Small models, histories, the controller's own tests and the simulator give them, as a broker keeps them or as records.
"""

from __future__ import annotations

from typing import TypeAlias

from minilog.v1.records_pb2 import PartitionRecord
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState
from tests.judges.violation import hold

State: TypeAlias = PartitionState | PartitionRecord


def check_state(name: str, state: State, before: State | None = None, *, is_clean: bool = True) -> None:
    """A state of a partition, and the way to it (docs/spec/replication.md § Eligible leaders and damage). `is_clean`:
    no unclean election is allowed."""
    members, eligible, damaged = set(state.in_sync_replicas), set(state.eligible_leaders), set(state.damaged_replicas)
    leader_id, replicas = state.leader_id, state.replicas
    hold(bool(members), "V4", f"{name} has an empty ISR")
    hold(leader_id in (NO_LEADER, *members), "V4", f"{name}: b{leader_id} leads, and is not in the ISR {members}")
    hold(members | eligible <= set(replicas), "V4", f"{name}: {members} or {eligible} is not of {replicas}")
    hold(len(set(replicas)) == len(replicas), "V4", f"{name}: a replica stands twice in {replicas}")
    hold(
        not eligible & (members | damaged), "V6", f"{name}: {eligible} is eligible, beside {members}, damaged {damaged}"
    )
    hold(len(members) == 1 or not damaged & members, "V5", f"{name}: of the ISR {members} is {damaged} damaged")
    hold(leader_id == NO_LEADER or leader_id not in damaged, "V5", f"{name}: b{leader_id} is damaged, and leads")
    if before is None:
        return
    was, now = (before.leader_epoch, before.partition_epoch), (state.leader_epoch, state.partition_epoch)
    hold(was[0] <= now[0] and was[1] < now[1], "V10", f"{name}: its epochs go from {was} to {now}")
    lives = (before.leader_id, before.leader_broker_epoch), (leader_id, state.leader_broker_epoch)
    fewer = set(before.replicas) - set(replicas)
    hold(
        now[0] > was[0] or (lives[0] == lives[1] and not fewer),
        "V17",
        f"{name} keeps leader epoch {now[0]}; {lives[0]} led and {lives[1]} leads, replicas {fewer} went",
    )
    if is_clean:
        check_elected(name, state, before)


def check_elected(name: str, state: State, before: State) -> None:
    """Who leads in a new epoch has what was committed: an in-sync member or an eligible leader, no damaged one."""
    if state.leader_epoch > before.leader_epoch:
        could_be = electable(state, before)
        text = f"{name}: b{state.leader_id} is elected, only {sorted(could_be)} could be; damaged are "
        hold(state.leader_id in could_be | {NO_LEADER}, "V6", text + str(list(before.damaged_replicas)))


def electable(state: State, before: State) -> set[int]:
    """Who could be elected in `before`. Where replicas move, those that are in sync in the end, too."""
    members, now = set(before.in_sync_replicas), set(state.in_sync_replicas)
    was_moving, moves = (bool([*each.adding_replicas, *each.removing_replicas]) for each in (before, state))
    found = members | set(before.eligible_leaders)
    passed_by = was_moving and not members & set(state.replicas)
    if (was_moving and not moves) or passed_by or members & now:
        found |= now
    return found - (set(before.damaged_replicas) - (now - members))
