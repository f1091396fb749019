"""Each known way to get it wrong, as a switch (docs/spec/wrong-rules.md). `--mutant all` shows that they are found.

A search that does not kill a mutant proves nothing. The wrong rules are in `wrong/`; nothing in the simulator or in its
fault plans knows which is on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tests.simulation.wrong import clients, quorum, replication, settings, storage, transactions, trimming
from tests.simulation.wrong.replication import Patches

MUTANTS: dict[str, Callable[[], Patches]] = {
    "1 truncate to the high watermark when the leader changes": replication.truncate_to_high_watermark,
    "2 one epoch look-up, then the high watermark": storage.one_lookup_then_high_watermark,
    "2 the epoch start not recorded before the first append": storage.epoch_start_not_recorded,
    "3 progress counted from a diverging position": replication.progress_without_position,
    "3 progress counted from another epoch": replication.progress_of_another_epoch,
    "3 runs appended without their checks": replication.no_check_of_runs,
    "4 ISR grows against a lagging high watermark": replication.join_against_lagging_high_watermark,
    "5 HW over the committed ISR while a growth is pending": replication.over_committed_only,
    "5 HW over the shrunk ISR before the commit": replication.over_proposal_only,
    "5 HW leaves out a member not heard": replication.unheard_left_out,
    "6 HW moves below min": replication.below_min,
    "7 progress of an earlier life counts": replication.progress_of_an_earlier_life,
    "7 a leader epoch spans two lives": replication.epoch_spans_lives,
    "7 a follower joins without a session": replication.joins_without_a_session,
    "7 a damaged copy is cut at once": replication.cut_at_once,
    "8 a replica removed and added again keeps its progress": replication.removed_replica_keeps_progress,
    "9 the high watermark adopted before truncating": replication.high_watermark_before_truncation,
    "10 latest answered with a lagging HW": replication.latest_at_once,
    "11 a read ahead of a follower's HW is out of range": replication.ahead_of_follower_is_out_of_range,
    "12 a deposed coordinator takes later HW moves for its own": transactions.deposed_coordinator_goes_on,
    "12 a coordinator acts before its HW reached its epoch": transactions.acts_before_its_epoch_is_committed,
    "13 an unknown outcome reported with the last refusal": clients.unknown_reported_as_failed,
    "13 a lost connection taken for a refusal": clients.lost_connection_is_a_refusal,
    "13 a deposed leader refuses what waits": clients.deposed_leader_refuses,
    "14 followers know no producers": replication.followers_know_no_producers,
    "14 producer state not truncated": replication.producers_not_truncated,
    "14 a duplicate acknowledged before it is replicated": replication.duplicate_answered_at_once,
    "15 producer state changed before the append": replication.state_before_append,
    "15 a decision takes effect before it is committed": transactions.decided_before_committed,
    "16 LSO inclusive": transactions.stable_offset_inclusive,
    "16 LSO above HW": transactions.stable_offset_above_high_watermark,
    "16 LSO moved by an uncommitted marker": transactions.uncommitted_marker_moves_stable_offset,
    "17 a late append after its producer ended": transactions.refused_registration_is_none,
    "17 attempts named by the client win": transactions.attempts_win_not_producers,
    "17 a set-back checkpoint is taken for a replay": transactions.committed_without_contents,
    "18 markers not idempotent": transactions.markers_not_idempotent,
    "19 vote not synced": storage.vote_not_synced,
    "19 vote answered before it is written": quorum.vote_answered_before_it_is_written,
    "19 epoch file not synced": storage.epoch_file_not_synced,
    "19 directory entries not synced": storage.directory_entries_not_synced,
    "20 recovery serves a tail that was not synced": storage.unsynced_tail_served,
    "21 no check-quorum": quorum.no_check_quorum,
    "22 no pre-vote": quorum.no_pre_vote,
    "22 pre-vote granted beside a live leader": quorum.pre_vote_beside_a_live_leader,
    "23 an old epoch's entry committed by counting": quorum.old_epoch_committed_by_counting,
    "24 progress before fsync": replication.progress_before_sync,
    "25 damage is not said at registration": storage.damage_not_said,
    "25 damage is not heeded by the controller": storage.damage_not_heeded,
    "26 a proposal without the leader": replication.proposal_without_leader,
    "26 repeated metadata resets progress": replication.metadata_resets_progress,
    "27 the last ISR member is fenced out": quorum.last_member_fenced_out,
    "27 a refused growth is never taken back": replication.refused_growth_kept,
    "28 a client's buffer reused while its request is in flight": clients.buffer_reused,
    "29 no joiner is waited for": replication.no_joiner_waited_for,
    "30 a late tick of a leader excuses for a full period": replication.late_ticks_excuse_for_a_full_period,
    "30 a late tick of a controller excuses for a full period": quorum.late_ticks_excuse_everybody,
    "30 a paused controller fences everyone when it wakes": quorum.paused_controller_fences,
    "31 other voters accepted at a restart": quorum.other_voters_accepted,
    "31 a voter with an emptied disk votes": quorum.emptied_voter_votes,
    "32 strays deleted while the image is behind": storage.strays_before_the_image_is_there,
    "V6 a torn copy leads and no other is asked": storage.torn_copy_leads_alone,
    "V19 a torn tail is damage": storage.torn_tail_is_damage,
    "V19 an unclean start loses eligibility": storage.unclean_start_loses_eligibility,
    "KIP-107 answered before the others have deleted": trimming.answered_before_the_others_have_it,
    "KIP-107 a trim above HW is done": trimming.above_the_high_watermark,
    "KIP-107 a joiner does not know the log start": trimming.joiner_without_log_start,
    "KIP-107 the log start is not recorded": trimming.log_start_not_recorded,
    "KIP-107 an empty copy starts inside a batch": trimming.inside_the_first_batch_only,
    "KIP-107 an emptied copy begins anew": trimming.emptied_copy_begins_anew,
    "KIP-107 a coordinator carries nothing along": trimming.coordinator_carries_nothing,
    "KIP-966 the broker's own default counts": settings.own_default_counts,
    "KIP-966 min is lowered and the eligible stay": settings.eligible_stay,
    "V19 an unsynced word is dropped": settings.unsynced_word_is_dropped,
    "V12 votes without comparing logs": quorum.votes_without_comparing_logs,
    "V20 an epoch is adopted without proof": quorum.epoch_adopted_without_proof,
    "V19 a plausible refusal strands": quorum.plausible_refusal_strands,
    "V10 a lost proposal is forgotten": replication.forgotten_proposal,
}

OF_WHOLE_BROKERS: dict[str, Callable[[], Patches]] = {  # that the judge of whole/ alone finds
    "V14 producer ids are given before they are committed": quorum.producer_ids_given_at_once,
}


def named(text: str) -> list[str]:
    """The mutants meant by `text`: all, a number, or the beginning of a name. Raises SystemExit for none."""
    found = [name for name in MUTANTS if text in ("all", name, name.split()[0]) or name.startswith(text)]
    if not found:
        raise SystemExit(f"there is no mutant {text!r}; there are: " + "; ".join(MUTANTS))
    return found


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """The wrong rule, for the length of the block; None: the true ones."""
    patches = [] if name is None else [patch.object(*each) for each in (MUTANTS | OF_WHOLE_BROKERS)[name]()]
    _active.extend(patches)
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()
            _active.remove(each)


_active: list[Any] = []  # the patches that are in force


@contextmanager
def unmutated() -> Iterator[None]:
    """The true rules again, for the length of a block within `mutated`."""
    for each in reversed(_active):
        each.stop()
    try:
        yield
    finally:
        for each in _active:
            each.start()
