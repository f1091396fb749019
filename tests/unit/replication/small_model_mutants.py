"""Wrong versions of the production's functions, one known mistake each: the search must find every one of them.

The numbers are those of docs/spec/wrong-rules.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minilog_broker.controller import election
from minilog_broker.replication.rules import divergence, high_watermark, in_sync
from minilog_broker.replication.rules.divergence import Accepted, Diverged, TruncateTo
from tests.rules import Patches
from tests.unit.replication.small_model_state import ReplicationBounds


def _high_watermark(change: Callable[[dict[str, Any]], None]) -> Patches:
    original = high_watermark.next_high_watermark

    def mutant(current: int, **given: Any) -> int:
        change(given)
        return original(current, **given)

    return [(high_watermark, "next_high_watermark", mutant)]


def unheard_left_out() -> Patches:
    return _high_watermark(lambda given: given.update(member_ends=[e for e in given["member_ends"] if e is not None]))


def below_min() -> Patches:
    return _high_watermark(lambda given: given.update(min_in_sync=0))


def goes_back() -> Patches:
    original = high_watermark.next_high_watermark
    return [(high_watermark, "next_high_watermark", lambda current, **given: original(0, **given))]


def over_committed_only() -> Patches:
    return [(in_sync, "maximal_in_sync", lambda committed, proposal: committed)]


def over_proposal_only() -> Patches:
    return [(in_sync, "maximal_in_sync", lambda committed, proposal: proposal.broker_ids if proposal else committed)]


def end_of_an_earlier_life() -> Patches:
    return [(in_sync, "known_end", lambda view, life: view.durable_end)]


def join_against_lagging_high_watermark() -> Patches:
    original = in_sync.eligible_end
    return [(in_sync, "eligible_end", lambda view, life, *, epoch_start: original(view, life, epoch_start=0))]


def join_below_high_watermark() -> Patches:
    original = in_sync.may_join

    def mutant(*args: Any, **given: Any) -> bool:
        return original(*args, **{**given, "high_watermark": 0, "epoch_start": 0})

    return [(in_sync, "may_join", mutant)]


def position_by_offset_alone() -> Patches:
    original = divergence.compare_position

    def mutant(epochs: Any, *, log_end: int, fetch_offset: int, **given: Any) -> Any:
        if fetch_offset <= log_end:
            return Accepted()
        return original(epochs, log_end=log_end, fetch_offset=fetch_offset, **given)

    return [(divergence, "compare_position", mutant)]


def truncate_to_the_leaders_end_only() -> Patches:
    def mutant(epochs: Any, *, log_start: int, log_end: int, diverged: Diverged, leader_log_start: int) -> TruncateTo:
        return TruncateTo(min(diverged.end_offset, log_end))

    return [(divergence, "truncation", mutant)]


def anybody_is_elected() -> Patches:
    original = election._elect

    def mutant(state: Any, barred: Any, rules: Any) -> Any:
        return original(state, barred, replace(rules, unclean_election=True))

    return [(election, "_elect", mutant)]


def election_keeps_the_leader_epoch() -> Patches:
    original = election._with_epochs

    def mutant(before: Any, state: Any) -> Any:
        return replace(original(before, state), leader_epoch=before.leader_epoch)

    return [(election, "_with_epochs", mutant)]


def damaged_leads() -> Patches:
    return [(election, "can_lead", lambda state, broker_id, rules: rules.electable(broker_id))]


_SMALL = ReplicationBounds()
_FORKED = ReplicationBounds(leader_epochs=2, partition_epochs=2, records=3, unsynced=False, delayed=False)
_AT_ONCE = ReplicationBounds(leader_epochs=2, partition_epochs=3, unsynced=False, delayed=False)
_DAMAGED = ReplicationBounds(leader_epochs=0, restarts=1, damages=1, unsynced=False, delayed=False)

BOUNDS: dict[str, ReplicationBounds] = {
    "2 truncation to the leader's end only": _FORKED,
    "3 a position is judged by its offset alone": replace(_FORKED, records=2),
    "4 the ISR grows against a lagging high watermark": ReplicationBounds(partition_epochs=3, delayed=False),
    "4 the ISR grows below the high watermark": replace(_SMALL, delayed=False),
    "5 HW over the committed ISR while a growth is pending": _SMALL,
    "5 HW over the shrunk ISR before the commit": _SMALL,
    "5 HW leaves out a member not heard": _SMALL,
    "6 HW moves below min": _SMALL,
    "7 progress of an earlier life counts": _DAMAGED,
    "7 an election keeps the leader epoch": _SMALL,
    "25 a damaged replica leads": replace(_DAMAGED, leader_epochs=2, partition_epochs=4, min_in_sync=1),
    "V6 anybody is elected": _AT_ONCE,
    "V8 HW goes back": _AT_ONCE,
}
"""Within which the search finds each of them."""
