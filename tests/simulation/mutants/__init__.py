"""Each known way to get it wrong, as a switch (docs/spec/wrong-rules.md). `--mutant all` shows that they are found.

A search that does not kill a mutant proves nothing. The wrong rules are beside this; nothing in the simulator or in its
fault plans knows which is on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tests.simulation.mutants import (
    access,
    answers,
    clients,
    compaction,
    controlling,
    coordinating,
    copies,
    delete_records,
    programs,
    quorum,
    recovery,
    repairs,
    replication,
    settings,
    sharing,
    shell,
    storage,
    transactions,
    typed,
)
from tests.simulation.mutants.replication import Patches

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
    "31 the voters of a start count": quorum.given_voters_count,
    "31 a voter with an emptied disk votes": quorum.emptied_voter_votes,
    "32 strays deleted while the image is behind": storage.strays_before_the_image_is_there,
    "V6 a torn copy leads and no other is asked": storage.torn_copy_leads_alone,
    "V19 a torn tail is damage": storage.torn_tail_is_damage,
    "V19 an unclean start loses eligibility": storage.unclean_start_loses_eligibility,
    "KIP-107 answered before the others have deleted": delete_records.answered_before_the_others_have_it,
    "KIP-107 a trim above HW is done": delete_records.above_the_high_watermark,
    "KIP-107 a joiner does not know the log start": delete_records.joiner_without_log_start,
    "KIP-107 the log start is not recorded": delete_records.log_start_not_recorded,
    "KIP-107 an empty copy starts inside a batch": delete_records.inside_the_first_batch_only,
    "KIP-107 an emptied copy begins anew": delete_records.emptied_copy_begins_anew,
    "KIP-107 a coordinator carries nothing along": delete_records.coordinator_carries_nothing,
    "KIP-226 that of all brokers counts first": settings.that_of_all_counts_first,
    "KIP-226 a snapshot tells nobody": settings.a_snapshot_tells_nobody,
    "KIP-966 the broker's own default counts": settings.own_default_counts,
    "KIP-966 min is lowered and the eligible stay": settings.eligible_stay,
    "V19 an unsynced word is dropped": settings.unsynced_word_is_dropped,
    "V12 votes without comparing logs": quorum.votes_without_comparing_logs,
    "V20 an epoch is adopted without proof": quorum.epoch_adopted_without_proof,
    "V19 a plausible refusal strands": quorum.plausible_refusal_strands,
    "V10 a lost proposal is forgotten": replication.forgotten_proposal,
    "shell the loop waits for the disk": shell.loop_waits_for_the_disk,
    "shell what a reader's thread has read is not told": shell.readers_threads_are_told_nothing,
    "33 what is read for a position that was given up is sent": replication.given_up_read_is_sent,
    "33 what was cut while it was read is sent": replication.cut_read_is_sent,
    "shell a life begins before its registration is replayed": shell.nobody_waits_for_the_replay,
    "shell metadata counts before it is synced": shell.metadata_counts_unsynced,
    "shell a controller hears last that it was deposed": shell.deposed_hears_it_last,
    "shell a session lasts from its answer": shell.session_lasts_from_its_answer,
    "shell markers that were not answered count as written": shell.no_answer_is_a_yes,
    "shell what a former log's disk answers is the new one's": shell.former_log_answers,
    "shell a proposal without an answer is never sent again": shell.lost_proposal_is_not_told,
    "shell a stream that broke is not told": shell.broken_stream_is_not_told,
    "shell a session stays when its stream ends": shell.ended_session_stays,
    "shell a replica that failed is not said": shell.failed_replica_is_not_said,
    "shell a disk that does not answer is not said": shell.stalled_disk_is_not_said,
    "shell a controller whose disk does not answer goes on": shell.controller_with_a_stalled_disk_goes_on,
    "shell an error of a disk is logged and goes no further": shell.disk_error_is_logged_only,
    "shell damage that was met is not recorded": shell.damage_is_not_recorded,
    "shell a coordinator does not hear that it is deposed": shell.coordinator_goes_on,
    "shell a wake-up between two looks is lost": shell.wake_up_is_lost,
    "shell a broker that stops does not hand over": shell.no_hand_over,
    "20 a rolled segment is not synced": recovery.rolled_segment_not_synced,
    "20 recovery believes whole headers": recovery.headers_only,
    "V6 a checkpoint is not lowered before a truncation": recovery.checkpoint_stays_at_a_truncation,
    "V19 a checkpoint promises what is not synced": recovery.checkpoint_promises_unsynced,
    "14 a producer snapshot of what was cut is believed": recovery.snapshot_of_what_was_cut,
    "14 what is behind a producer snapshot is not read": recovery.snapshot_is_all,
    "V15 a producer snapshot forgets what was aborted": recovery.snapshot_forgets_the_aborted,
    "V19 the mark of a clean stop outlives its life": recovery.clean_stop_outlives_its_life,
    "V11 whom a voter voted for is forgotten at a restart": recovery.vote_forgotten_at_a_restart,
    "V5 the HW is where min members are": copies.high_watermark_at_min_members,
    "V9 an epoch that is known is no divergence": copies.known_epoch_is_no_divergence,
    "V3 an epoch begins at the high watermark": copies.epoch_begins_at_the_high_watermark,
    "V19 nobody is put out for its lag": copies.nobody_is_put_out,
    "V19 who lags joins to be put out": replication.who_lags_joins,
    "V16 an ISR below min refuses what was appended": copies.below_min_is_a_refusal,
    "17 a producer writes while its marker is on its way": copies.writes_while_its_marker_is_on_its_way,
    "V15 a run names those whose abort markers it has": copies.aborted_by_markers_in_the_run,
    "KIP-107 followers keep what their leader deleted": copies.followers_keep_what_was_deleted,
    "V19 credit comes back twice": copies.written_bytes_are_given_back_twice,
    "KIP-107 eligible leaders are not asked": copies.eligible_leaders_are_not_asked,
    "V12 a controller answers brokers before it is committed": controlling.answers_before_it_is_committed,
    "V14 producer ids are told before they are committed": controlling.producer_ids_before_they_are_committed,
    "V10 a proposal from an older partition epoch is accepted": controlling.any_partition_epoch,
    "V6 the first live replica leads, in the ISR or not": controlling.first_live_replica_leads,
    "V6 the preferred leader need not be in sync": controlling.preferred_leads_out_of_sync,
    "V17 who registers again goes on as the same life": controlling.registered_again_is_the_same_life,
    "V6 a reassignment is done with the first of its replicas": controlling.reassigned_with_the_first,
    "34 a cordoned broker gets new replicas": controlling.cordons_are_not_looked_at,
    "34 a broker that goes has all moved at once": controlling.all_moves_at_once,
    "34 a broker is forgotten with its replicas": controlling.forgotten_with_replicas,
    "34 a decommission ends with the controller": controlling.another_controller_does_not_go_on,
    "V20 a new controller gives nobody time": controlling.no_time_from_a_new_controller,
    "V15 a commit is answered when it is decided": coordinating.answered_when_decided,
    "V15 a new coordinator does not finish what was decided": coordinating.decided_is_not_finished,
    "V19 a take-over leaves open what was open": coordinating.taken_over_stays_open,
    "12 a group's offsets are told without a decision": coordinating.told_without_a_decision,
    "V19 no transaction times out": coordinating.no_time_out,
    "V14 what is unknown goes out under another producer id": programs.unknown_goes_out_under_another_id,
    "V16 the last attempt counts alone": programs.last_attempt_counts,
    "V14 a batch that is sent again has a new sequence": programs.sent_again_is_numbered_anew,
    "V19 a refusal teaches a producer nothing": programs.refusals_teach_nothing,
    "V16 what is out when a producer closes is failed": programs.closed_with_what_is_out,
    "V8 older metadata is believed": programs.older_metadata_is_believed,
    "V14 a damaged run is skipped": programs.damaged_run_is_skipped,
    "V14 broken runs are set back in turn": programs.broken_runs_are_set_back_in_turn,
    "V14 a running reader is bound anew by names": programs.reader_is_bound_anew,
    "V19 runs that are dropped cost credit": programs.dropped_runs_cost_credit,
    "V14 a reset goes back behind where a consumer was": programs.reset_goes_back,
    "V14 a version that nobody made is accepted": typed.unknown_version_is_accepted,
    "V14 a highest value is cut as a lowest one": typed.highest_is_cut,
    "V14 statistics ignore nulls": typed.nulls_are_ignored,
    "V14 an edge of a batch is outside of it": typed.edges_are_outside,
    "V14 a column that was not there yet has no nulls": typed.missing_column_has_values,
    "V13 the id of a dropped field is given again": typed.dropped_id_is_given_again,
    "V14 a batch is cut as another version": typed.cut_as_another_version,
    "V14 columns are read by name": typed.columns_by_name,
    "V14 a batch that is left out loses its offsets": typed.left_out_without_offsets,
    "V14 headers alone forget their transaction": typed.headers_forget_their_transaction,
    "V22 streams outlive their rules": access.streams_outlive_their_rules,
    "V22 rules are never taken away": access.rules_are_never_taken_away,
    "V22 what a request names is not looked at": access.requests_are_not_looked_into,
    "V22 everybody may describe everything": access.all_topics_are_shown,
    "V22 the age of rules plays no part": access.age_of_rules_plays_no_part,
    "V22 a stream goes on while anything that it used is allowed": access.streams_go_on_with_what_is_left,
    "V22 what is allowed counts though it is denied": access.allowed_though_denied,
    "V22 a rule of one host is of all": access.rules_of_a_host_are_of_all,
    "V22 a name of a rule is a prefix": access.names_are_prefixes,
    "V22 sessions outlive their password": access.sessions_outlive_their_password,
    "V22 sessions outlive their delegation token": access.sessions_outlive_their_token,
    "V22 who has shown a delegation token gets others": access.tokens_make_tokens,
    "V22 the first of several rights is enough": access.first_part_is_enough,
    "R56 calls and messages cost nothing": access.calls_and_messages_cost_nothing,
    "R56 bytes that are written count nothing": access.bytes_that_are_written_count_nothing,
    "R56 bytes that are read are waited for by nobody": access.bytes_that_are_read_are_waited_for_by_nobody,
    "V22 who may look at a group is told of all its topics": access.groups_tell_all_topics,
    "V12 operators are answered before it is committed": answers.answered_before_it_is_committed,
    "V12 a lost race of two who evolve is a yes": answers.lost_race_is_answered_with_yes,
    "V12 rules are taken away in words": answers.rules_are_taken_away_in_words,
    "shell a controller writes what its level does not allow": answers.written_below_its_level,
    "shell a level counts before the disk says so": answers.level_counts_before_the_disk_says_so,
    "R1 a copy that was cut joins by what it told before": repairs.old_progress_of_a_copy_that_was_cut,
    "R2 a broker's own configuration counts": repairs.own_configuration_counts,
    "R3 whole copies are not eligible after an unclean stop": repairs.whole_copies_are_not_eligible,
    "R4 who is late excuses for a full period": repairs.late_excuses_for_a_full_period,
    "R5 who is not heard is put out and taken in for ever": repairs.put_out_and_taken_in_for_ever,
    "R6 a joiner whose session is closed is waited for": repairs.closed_joiner_is_waited_for,
    "R7 a log that cannot be read ends the start": repairs.unreadable_log_ends_the_start,
    "R8 a valid batch behind an invalid one is damage": repairs.valid_batch_behind_is_damage,
    "R9 an end that was forgotten is refused": repairs.forgotten_ends_are_refused,
    "R11 every plausible epoch is adopted": repairs.every_plausible_epoch_is_adopted,
    "R55 nobody asks whose a producer id is": access.nobody_asks_whose_a_producer_id_is,
    "R55 one proof is taken for all producer ids": access.one_proof_is_taken_for_all_ids,
    "R55 producer ids that were given are everybody's": access.ids_that_were_given_are_everybodys,
    "M1 a partition is given before it was given back": sharing.given_before_given_back,
    "M1 a fail-over begins no session anew": sharing.no_new_session,
    "M1 a member does not fence itself": sharing.no_self_fence,
    "M1 a heartbeat is confirmed when it comes": sharing.confirmed_at_once,
    "M1 a static member lives twice": sharing.a_second_life,
    "M3 a commit is taken in any epoch": sharing.any_epoch_commits,
    "M4 an assignor moves all": sharing.moves_all,
    "K4 a leader cleans up to its HW": compaction.bound_by_the_high_watermark,
    "K1 a deletion is dropped at once": compaction.deletion_dropped_at_once,
    "K1 a compacted segment is swapped in before it is synced": compaction.swap_before_sync,
    "K4 a marker goes before its data": compaction.marker_before_its_data,
    "K4 a follower cleans above its LSO": compaction.follower_cleans_ahead,
    "K5 a part of the range is taken for all of it": compaction.part_of_the_range_is_all,
    "K4 an aborted record counts as the newest": compaction.aborted_are_newest,
    "K2 a gap has a wrong end": compaction.gap_with_a_wrong_end,
    "K6 producers are forgotten after compaction": compaction.producers_are_forgotten,
}


def named(text: str, table: Collection[str] = MUTANTS.keys()) -> list[str]:
    """The mutants of `table` meant by `text`: all, a number, or the beginning of a name. Raises SystemExit for none."""
    found = [name for name in table if text in ("all", name, name.split()[0]) or name.startswith(text)]
    if not found:
        raise SystemExit(f"there is no mutant {text!r}; there are: " + "; ".join(table))
    return found


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """The wrong rule, for the length of the block; None: the true ones."""
    make = MUTANTS[name] if name is not None else list
    patches = [patch.object(*each) for each in make()]
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
