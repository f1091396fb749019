"""The leader, the ISR and the eligible leaders of a partition: pure functions of its committed state. Rules V4, V10,
V17.

    event of the broker               its replica
    Departure(OUT)                    leaves an ISR that has another member (fenced, stopping, a start of a whole copy)
    Departure(UNCLEAN)                the same, and is no eligible leader any more (a doubtful copy, an I/O error)
    Departure(DAMAGED)                the same, and cannot be elected until it has joined an ISR again

The ISR is never empty: its last member stays, whatever happens to it. A member that leaves stays an eligible leader as
long as the high watermark cannot move without it. That is while |ISR| < min, and while there is no leader: the former
leader counts the former members of the ISR, until it learns that it leads no more. Elections choose the first electable
replica of the ISR, in the order of the replicas. Else they choose among the eligible ones, and the ISR begins with that
one alone. Else, only where it is configured, they choose among all (KIP-966).

min.insync.replicas may change at any time, in one decision with the states that follow from it. Raised above |ISR|, the
high watermark stands still until others have joined, and no former leaver is eligible. Lowered to |ISR|, a leader goes
on without the eligible ones, so they are none any more. Without a leader nothing can be committed without them, and
they stay eligible until there is one.

A copy with a torn tail (torn_tails.py) leads where no other can. It has to be the longest, by epoch and end, of at
least two that are back, or the only one that counts at all.

The partition epoch rises with every change, with every proposal that is refused for good, and with every copy that went
offline. The leader epoch rises with another leader, another life of the leader, the loss of the leader, and the loss of
a replica.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from minilog_broker.controller.assignment import advanced, begun
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState

NO_BROKER_EPOCH = -1


class Departure(enum.Enum):
    """The ways in which a broker leaves the ISR of a partition, with their effects on its replica (the table above)."""

    OUT = enum.auto()
    UNCLEAN = enum.auto()
    DAMAGED = enum.auto()


def _always(_: int) -> bool:
    return True


def _whole(_: int) -> tuple[int, int] | None:
    return None


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """The facts on the topic and on the brokers that an election needs.

    `electable`: unfenced, not stopping, and the replica's disk has not failed. `is_current_incarnation`: (broker id,
    broker epoch) is the current life, unfenced, and its disk has not failed; it may be stopping. Such a leader need not
    be replaced. `has_spoken`: the broker was heard in this controller's term. Only such a broker is elected, for it is
    there. `torn_end`: (epoch, end) of a copy with a torn tail, None for any other.
    """

    min_in_sync_replicas: int
    unclean_election: bool
    electable: Callable[[int], bool]
    is_current_incarnation: Callable[[int, int], bool]
    broker_epoch: Callable[[int], int]
    has_spoken: Callable[[int], bool] = _always
    torn_end: Callable[[int], tuple[int, int] | None] = _whole

    def effective_min(self, state: PartitionState) -> int:
        return min(self.min_in_sync_replicas, state.replication_factor)


@dataclass(frozen=True, slots=True)
class ElectionOutcome:
    """The new state, with raised epochs where it changed. `unclean`: an unclean election led to it."""

    state: PartitionState
    unclean: bool = False


def depart(state: PartitionState, broker_id: int, departure: Departure, rules: ElectionRules) -> ElectionOutcome:
    """The state after `departure` of `broker_id`, one of the replicas. A new leader is elected where one is needed."""
    gone = frozenset({broker_id})
    remaining = tuple(member for member in state.in_sync_replicas if member != broker_id) or state.in_sync_replicas
    barred = gone if departure is not Departure.OUT else frozenset[int]()
    damaged = frozenset(state.damaged_replicas) | (gone if departure is Departure.DAMAGED else frozenset())
    changed = replace(
        state,
        in_sync_replicas=remaining,
        eligible_leaders=_eligible(state, remaining, barred),
        damaged_replicas=_ordered(state, damaged),
    )
    return _settle(state, changed, barred, rules)


def with_in_sync_replicas(state: PartitionState, members: frozenset[int], rules: ElectionRules) -> ElectionOutcome:
    """The state after an accepted proposal of the leader. A member of the ISR is damaged no more."""
    in_sync = _ordered(state, members)
    changed = replace(
        state,
        in_sync_replicas=in_sync,
        eligible_leaders=_eligible(state, in_sync),
        damaged_replicas=tuple(broker for broker in state.damaged_replicas if broker not in members),
    )
    return _settle(state, changed, frozenset(), rules)


def reconsider(state: PartitionState, rules: ElectionRules) -> ElectionOutcome:
    """The state after a change of brokers or of the topic's configuration: with a leader, where none was and one can
    lead."""
    return _settle(state, state, frozenset(), rules)


def reassign(
    state: PartitionState, target: Sequence[int], throttle_bytes_per_second: int, rules: ElectionRules
) -> ElectionOutcome:
    """The state after a reassignment began: under way, or done where nothing is left to wait for."""
    return _settle(state, begun(state, target, throttle_bytes_per_second), frozenset(), rules)


def overtaking(state: PartitionState) -> ElectionOutcome:
    """The same state with a higher partition epoch. So every proposal from the former one, and every copy of it, is
    older."""
    return ElectionOutcome(replace(state, partition_epoch=state.partition_epoch + 1))


def can_be_led_by_another(state: PartitionState, broker_id: int, rules: ElectionRules) -> bool:
    """Whether a clean election would find a leader other than `broker_id`."""
    candidates = {*state.in_sync_replicas, *state.eligible_leaders} - {broker_id}
    return any(can_lead(state, candidate, rules) for candidate in candidates)


def can_lead(state: PartitionState, broker_id: int, rules: ElectionRules) -> bool:
    """Whether this replica could be elected, where it is in the ISR or eligible, without asking another."""
    return rules.torn_end(broker_id) is None and _is_there(state, broker_id, rules)


def _is_there(state: PartitionState, broker_id: int, rules: ElectionRules) -> bool:
    there = rules.electable(broker_id) and rules.has_spoken(broker_id)
    return there and broker_id not in state.damaged_replicas


def led_by_preferred(state: PartitionState, rules: ElectionRules) -> ElectionOutcome:
    """The state after the election of the first replica, which is in the ISR and can lead."""
    return ElectionOutcome(_with_epochs(state, _led_by(state, state.preferred_leader, rules)))


def _eligible(state: PartitionState, in_sync: tuple[int, ...], barred: frozenset[int] = frozenset()) -> tuple[int, ...]:
    """The replicas outside of the ISR with all that is committed. They stay until there is a leader that needs none of
    them."""
    former = set(state.eligible_leaders) | set(state.in_sync_replicas)
    return _ordered(state, frozenset(former) - frozenset(in_sync) - barred - frozenset(state.damaged_replicas))


def _settle(
    before: PartitionState, state: PartitionState, barred: frozenset[int], rules: ElectionRules
) -> ElectionOutcome:
    """Advance a reassignment, keep the leader where it may stay, or elect one, and raise the epochs."""
    state = advanced(state, rules.effective_min(state))
    unclean = False
    if not _stays(state, rules):
        state, unclean = _elect(state, barred, rules)
        state = advanced(state, rules.effective_min(state))  # the new leader may be the only member of the ISR
    if state.leader_id != NO_LEADER and len(state.in_sync_replicas) >= rules.effective_min(state):
        state = replace(state, eligible_leaders=())
    return ElectionOutcome(_with_epochs(before, state), unclean)


def _with_epochs(before: PartitionState, state: PartitionState) -> PartitionState:
    """`state` with the epochs that follow those of `before`."""
    if state == before:
        return before
    moved = (state.leader_id, state.leader_broker_epoch) != (before.leader_id, before.leader_broker_epoch)
    forgets = not set(before.replicas) <= set(state.replicas)
    return replace(
        state,
        leader_epoch=before.leader_epoch + (moved or forgets),
        partition_epoch=before.partition_epoch + 1,
    )


def _stays(state: PartitionState, rules: ElectionRules) -> bool:
    """Whether the leader may go on: it is in its current life and in sync. If it stops, no other broker could take
    over."""
    leader = state.leader_id
    if leader == NO_LEADER or leader not in state.in_sync_replicas or leader in state.damaged_replicas:
        return False
    if not rules.is_current_incarnation(leader, state.leader_broker_epoch):
        return False
    return rules.electable(leader) or not can_be_led_by_another(state, leader, rules)


def _elect(state: PartitionState, barred: frozenset[int], rules: ElectionRules) -> tuple[PartitionState, bool]:
    in_sync = [broker for broker in state.replicas if broker in state.in_sync_replicas]
    eligible = [broker for broker in state.replicas if broker in state.eligible_leaders]
    if leader := _first(in_sync, state, rules):
        return _led_by(state, leader[0], rules), False
    if leader := _first(eligible, state, rules) or _longest_torn(state, rules):
        alone = state.in_sync_replicas if leader[0] in state.in_sync_replicas else (leader[0],)
        chosen = replace(state, in_sync_replicas=alone, eligible_leaders=_eligible(state, alone, barred))
        return _led_by(chosen, leader[0], rules), False
    if rules.unclean_election and (leader := _least_bad(state, rules)):
        damaged = tuple(broker for broker in state.damaged_replicas if broker != leader[0])
        chosen = replace(state, in_sync_replicas=tuple(leader), eligible_leaders=(), damaged_replicas=damaged)
        return _led_by(chosen, leader[0], rules), True
    return replace(state, leader_id=NO_LEADER, leader_broker_epoch=NO_BROKER_EPOCH), False


def _first(candidates: list[int], state: PartitionState, rules: ElectionRules) -> list[int]:
    return [broker for broker in candidates if can_lead(state, broker, rules)][:1]


def _longest_torn(state: PartitionState, rules: ElectionRules) -> list[int]:
    """The longest of the copies with torn tails, where there is another one to compare it with: one of them may be
    rotten."""
    counted = {*state.in_sync_replicas, *state.eligible_leaders} - set(state.damaged_replicas)
    back = [broker for broker in state.replicas if broker in counted and _is_there(state, broker, rules)]
    if len(back) < 2 and len(counted) > 1:
        return []
    return sorted(back, key=lambda broker: rules.torn_end(broker) or (-1, -1), reverse=True)[:1]


def _least_bad(state: PartitionState, rules: ElectionRules) -> list[int]:
    """Any live replica. Damaged ones, and those that have just begun to fetch, come last."""
    live = [broker for broker in state.replicas if rules.electable(broker)]
    return sorted(live, key=lambda broker: (broker in state.damaged_replicas, broker in state.adding_replicas))[:1]


def _led_by(state: PartitionState, leader_id: int, rules: ElectionRules) -> PartitionState:
    return replace(state, leader_id=leader_id, leader_broker_epoch=rules.broker_epoch(leader_id))


def _ordered(state: PartitionState, brokers: frozenset[int]) -> tuple[int, ...]:
    """`brokers` in the order of the replicas, so that equal states are equal records."""
    return tuple(broker for broker in state.replicas if broker in brokers)
