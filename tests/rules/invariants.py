"""What is true after every event, at every replica."""

from __future__ import annotations

from tests.rules import Mutant, Rule, Section
from tests.simulation.mutants import (
    access,
    answers,
    clients,
    compaction,
    controlling,
    coordinating,
    copies,
    programs,
    queues,
    quorum,
    recovery,
    replication,
    settings,
    sharing,
    shell,
    typed,
)
from tests.unit.quorum import mutants as quorum_mutants
from tests.unit.replication import small_model_mutants as small_mutants

SECTIONS = (
    Section(
        "At every replica",
        ("docs/spec/invariants.md",),
        (
            Rule("V1", "log start <= LSO <= HW <= durable end <= log end"),
            Rule(
                "V2", "Each offset from the log start to the log end is in exactly one batch, as a record or as a gap"
            ),
            Rule(
                "V3",
                "Leader epochs never decrease along a log",
                wrong=(
                    Mutant(
                        "V3 an epoch begins at the high watermark", simulation=copies.epoch_begins_at_the_high_watermark
                    ),
                ),
            ),
        ),
    ),
    Section(
        "Replication",
        ("docs/spec/invariants.md",),
        (
            Rule(
                "V4",
                "The leader is in its own ISR, in each of its proposals, and in every committed ISR. An ISR is never "
                "empty",
                wrong=(
                    Mutant("26 a proposal without the leader", simulation=replication.proposal_without_leader),
                    Mutant("27 the last ISR member is fenced out", simulation=quorum.last_member_fenced_out),
                ),
            ),
            Rule(
                "V5",
                "Below the HW of any replica that believes to lead, all records are identical, and durable, on every "
                "member of the controller's ISR",
                wrong=(Mutant("V5 the HW is where min members are", simulation=copies.high_watermark_at_min_members),),
            ),
            Rule(
                "V6",
                "Each replica that could be elected has a log that reaches the true HW, the highest that any leader "
                "ever had",
                wrong=(
                    Mutant(
                        "V6 a checkpoint is not lowered before a truncation",
                        simulation=recovery.checkpoint_stays_at_a_truncation,
                    ),
                    Mutant(
                        "V6 the first live replica leads, in the ISR or not",
                        simulation=controlling.first_live_replica_leads,
                    ),
                    Mutant(
                        "V6 the preferred leader need not be in sync",
                        simulation=controlling.preferred_leads_out_of_sync,
                    ),
                    Mutant(
                        "V6 a reassignment is done with the first of its replicas",
                        simulation=controlling.reassigned_with_the_first,
                    ),
                    Mutant("V6 anybody is elected", small_model=small_mutants.anybody_is_elected),
                ),
            ),
            Rule(
                "V7",
                "A record that was acknowledged under `acks=all` is not lost while one member of its ISR, or one of "
                "its eligible leaders, comes back with its disk",
            ),
            Rule(
                "V8",
                "A leader's HW never decreases within its epoch",
                wrong=(
                    Mutant("V8 older metadata is believed", simulation=programs.older_metadata_is_believed),
                    Mutant("V8 HW goes back", small_model=small_mutants.goes_back),
                ),
            ),
            Rule(
                "V9",
                "The logs of two replicas are equal below the smaller of their HWs",
                wrong=(
                    Mutant(
                        "V9 an epoch that is known is no divergence", simulation=copies.known_epoch_is_no_divergence
                    ),
                ),
            ),
            Rule("V10", "The maximal ISR of the leader in the controller's leader epoch contains the controller's ISR"),
            Rule(
                "V17",
                "In a leader epoch at most one life (broker, broker epoch) leads a partition",
                wrong=(
                    Mutant(
                        "V17 who registers again goes on as the same life",
                        simulation=controlling.registered_again_is_the_same_life,
                    ),
                ),
            ),
            Rule("V18", "The HW moves only while the committed ISR has at least min members"),
        ),
    ),
    Section(
        "Compaction",
        ("docs/spec/invariants.md",),
        (
            Rule(
                "K1",
                "The last value of each key below the HW is readable, unless it is a deletion below `deletes_before`",
                wrong=(
                    Mutant("K1 a deletion is dropped at once", simulation=compaction.deletion_dropped_at_once),
                    Mutant("K1 retention deletes what is younger", simulation=compaction.retention_deletes_the_young),
                    Mutant(
                        "K1 a compacted segment is swapped in before it is synced",
                        simulation=compaction.swap_before_sync,
                    ),
                ),
            ),
            Rule(
                "K2",
                "Compaction changes no offset, no order and no content of a record that stays",
                wrong=(Mutant("K2 a gap has a wrong end", simulation=compaction.gap_with_a_wrong_end),),
            ),
            Rule("K3", "A reader that saw a record as the latest of its key sees no older one behind it"),
            Rule(
                "K4",
                "A copy begins a point only below its own LSO. A record of an aborted transaction never counts as the "
                "newest of its key",
                wrong=(
                    Mutant("K4 a leader cleans up to its HW", simulation=compaction.bound_by_the_high_watermark),
                    Mutant("K4 a marker goes before its data", simulation=compaction.marker_before_its_data),
                    Mutant("K4 a follower cleans above its LSO", simulation=compaction.follower_cleans_ahead),
                    Mutant("K4 an aborted record counts as the newest", simulation=compaction.aborted_are_newest),
                    Mutant("K4 a transaction without a marker stays open", simulation=compaction.unmarked_stay_open),
                    Mutant("K4 a cut opens what compaction removed", simulation=compaction.cut_opens_what_was_removed),
                ),
            ),
            Rule(
                "K5",
                "Copies that have carried out one point are equal as records below its `clean_to`: they have the "
                "records that the rule lets stay, and no others",
                wrong=(
                    Mutant(
                        "K5 a part of the range is taken for all of it", simulation=compaction.part_of_the_range_is_all
                    ),
                    Mutant(
                        "K5 a cleaning seals nothing that a cut has opened",
                        simulation=compaction.cleaning_seals_nothing,
                    ),
                ),
            ),
            Rule(
                "K6",
                "Log end, sequences and the answer to a batch that is sent again are those of a log that was never "
                "compacted",
                wrong=(
                    Mutant(
                        "K6 producers are forgotten after compaction", simulation=compaction.producers_are_forgotten
                    ),
                ),
            ),
        ),
    ),
    Section(
        "Metadata quorum",
        ("docs/spec/invariants.md",),
        (
            Rule(
                "V11",
                "In a quorum epoch there is at most one leader",
                wrong=(
                    Mutant(
                        "V11 whom a voter voted for is forgotten at a restart",
                        simulation=recovery.vote_forgotten_at_a_restart,
                    ),
                ),
            ),
            Rule(
                "V12",
                "A committed entry is on the disks of a majority of the voters",
                wrong=(
                    Mutant(
                        "V12 votes without comparing logs",
                        simulation=quorum.votes_without_comparing_logs,
                        quorum=quorum_mutants.no_log_comparison,
                    ),
                    Mutant("shell metadata counts before it is synced", simulation=shell.metadata_counts_unsynced),
                    Mutant(
                        "V12 a controller answers brokers before it is committed",
                        simulation=controlling.answers_before_it_is_committed,
                    ),
                    Mutant(
                        "V12 operators are answered before it is committed",
                        simulation=answers.answered_before_it_is_committed,
                    ),
                    Mutant(
                        "V12 a lost race of two who evolve is a yes", simulation=answers.lost_race_is_answered_with_yes
                    ),
                    Mutant("V12 rules are taken away in words", simulation=answers.rules_are_taken_away_in_words),
                    Mutant("V12 the copy of who only listens counts", quorum=quorum_mutants.listener_counts),
                ),
            ),
            Rule(
                "V13",
                "Each broker's image is the replay of a committed prefix of the one metadata log",
                wrong=(
                    Mutant("V13 the id of a dropped field is given again", simulation=typed.dropped_id_is_given_again),
                ),
            ),
            Rule(
                "V20",
                "A quorum leader that a majority hears is not deposed",
                wrong=(
                    Mutant(
                        "V20 a new controller gives nobody time", simulation=controlling.no_time_from_a_new_controller
                    ),
                ),
            ),
            Rule(
                "V21",
                "A quorum leader that hears no majority resigns, and answers nothing, at the end of "
                "`quorum.fetch.timeout.ms`",
            ),
        ),
    ),
    Section(
        "Clients",
        ("docs/spec/invariants.md",),
        (
            Rule(
                "V14",
                "A write acknowledged under `acks=all` is seen by a last read of everything",
                wrong=(
                    Mutant(
                        "28 a client's buffer reused while its request is in flight", simulation=clients.buffer_reused
                    ),
                    Mutant(
                        "V14 producer ids are told before they are committed",
                        simulation=controlling.producer_ids_before_they_are_committed,
                    ),
                    Mutant(
                        "V14 what is unknown goes out under another producer id",
                        simulation=programs.unknown_goes_out_under_another_id,
                    ),
                    Mutant(
                        "V14 a batch that is sent again has a new sequence",
                        simulation=programs.sent_again_is_numbered_anew,
                    ),
                    Mutant("V14 a damaged run is skipped", simulation=programs.damaged_run_is_skipped),
                    Mutant(
                        "V14 broken runs are set back in turn", simulation=programs.broken_runs_are_set_back_in_turn
                    ),
                    Mutant("V14 a running reader is bound anew by names", simulation=programs.reader_is_bound_anew),
                    Mutant("V14 a reset goes back behind where a consumer was", simulation=programs.reset_goes_back),
                    Mutant("V14 a version that nobody made is accepted", simulation=typed.unknown_version_is_accepted),
                    Mutant("V14 a highest value is cut as a lowest one", simulation=typed.highest_is_cut),
                    Mutant("V14 statistics ignore nulls", simulation=typed.nulls_are_ignored),
                    Mutant("V14 an edge of a batch is outside of it", simulation=typed.edges_are_outside),
                    Mutant(
                        "V14 a column that was not there yet has no nulls", simulation=typed.missing_column_has_values
                    ),
                    Mutant("V14 a batch is cut as another version", simulation=typed.cut_as_another_version),
                    Mutant("V14 columns are read by name", simulation=typed.columns_by_name),
                    Mutant("V14 a batch that is left out loses its offsets", simulation=typed.left_out_without_offsets),
                    Mutant(
                        "V14 headers alone forget their transaction", simulation=typed.headers_forget_their_transaction
                    ),
                ),
            ),
            Rule(
                "V15",
                "In one partition `read_committed` shows all of a transaction or nothing",
                wrong=(
                    Mutant(
                        "V15 a producer snapshot forgets what was aborted",
                        simulation=recovery.snapshot_forgets_the_aborted,
                    ),
                    Mutant(
                        "V15 a run names those whose abort markers it has",
                        simulation=copies.aborted_by_markers_in_the_run,
                    ),
                    Mutant(
                        "V15 a commit is answered when it is decided", simulation=coordinating.answered_when_decided
                    ),
                    Mutant(
                        "V15 a new coordinator does not finish what was decided",
                        simulation=coordinating.decided_is_not_finished,
                    ),
                ),
            ),
            Rule(
                "V16",
                "An outcome that is unknown is reported as unknown, never as failed",
                wrong=(
                    Mutant(
                        "13 an unknown outcome reported with the last refusal",
                        simulation=clients.unknown_reported_as_failed,
                    ),
                    Mutant("13 a lost connection taken for a refusal", simulation=clients.lost_connection_is_a_refusal),
                    Mutant("13 a deposed leader refuses what waits", simulation=clients.deposed_leader_refuses),
                    Mutant("V16 an ISR below min refuses what was appended", simulation=copies.below_min_is_a_refusal),
                    Mutant("V16 the last attempt counts alone", simulation=programs.last_attempt_counts),
                    Mutant(
                        "V16 what is out when a producer closes is failed", simulation=programs.closed_with_what_is_out
                    ),
                ),
            ),
        ),
    ),
    Section(
        "Groups with members",
        ("docs/spec/invariants.md",),
        (
            Rule(
                "M1",
                "No partition is held by two members at one moment: from when a member's program is told of it until "
                "the member has given it back, is fenced, or its session is over by its own clock",
                wrong=(
                    Mutant(
                        "M1 a partition is given before it was given back", simulation=sharing.given_before_given_back
                    ),
                    Mutant("M1 a fail-over begins no session anew", simulation=sharing.no_new_session),
                    Mutant("M1 a member does not fence itself", simulation=sharing.no_self_fence),
                    Mutant("M1 a heartbeat is confirmed when it comes", simulation=sharing.confirmed_at_once),
                    Mutant("M1 a static member lives twice", simulation=sharing.a_second_life),
                ),
            ),
            Rule("M2", "5 s after the last fault each partition that is subscribed to has one reader, and keeps one"),
            Rule(
                "M3",
                "No commit of an older epoch lands after one of a newer, and none of a member while another holds the "
                "partition",
                wrong=(Mutant("M3 a commit is taken in any epoch", simulation=sharing.any_epoch_commits),),
            ),
            Rule(
                "M4",
                "Under `uniform` a leave moves only the partitions of the member that left, give or take one of each "
                "member",
                wrong=(Mutant("M4 an assignor moves all", simulation=sharing.moves_all),),
            ),
            Rule(
                "M5",
                "A partition whose reader committed before it gave it back is read on from there: nothing is skipped, "
                "and nothing read twice",
            ),
        ),
    ),
    Section(
        "Queues",
        ("docs/spec/invariants.md",),
        (
            Rule(
                "Q1",
                "A message is leased by one worker at a time: from when a worker's program is handed it until the "
                "worker settles it, or its lock ends by the worker's own clock",
                wrong=(
                    Mutant(
                        "Q1 a lease is answered before it is committed",
                        simulation=queues.answered_before_it_is_committed,
                    ),
                    Mutant("Q1 a renewal is answered without a record", simulation=queues.renewed_without_a_record),
                    Mutant("Q1 a new coordinator takes all locks for ended", simulation=queues.no_new_locks),
                    Mutant("Q1 a worker counts its lock from the answer", simulation=queues.counted_from_the_answer),
                ),
            ),
            Rule(
                "Q2",
                "What a worker was told is accepted or rejected, by a `flush` without an error, is handed to nobody "
                "any more",
                wrong=(
                    Mutant(
                        "Q2 any refusal of a second attempt means that it is done",
                        simulation=queues.any_second_refusal_is_done,
                    ),
                    Mutant(
                        "Q2 a block of ranges that is empty stays in the log", simulation=queues.emptied_blocks_stay
                    ),
                ),
            ),
            Rule(
                "Q3",
                "A lock that nobody renews ends: where all is calm, a record is not leased for longer than its lock "
                "and 2 s, and a lock more for each new coordinator",
                wrong=(
                    Mutant(
                        "Q3 a delivery is not counted when its lock ends", simulation=queues.uncounted_when_a_lock_ends
                    ),
                    Mutant("Q3 a release forgets its delay", simulation=queues.delay_is_forgotten),
                ),
            ),
            Rule(
                "Q4",
                "Nothing is leased at or above the last stable offset: no record that is not committed, and none of "
                "an open transaction",
                wrong=(
                    Mutant(
                        "Q4 a lease goes up to the high watermark", simulation=queues.leased_up_to_the_high_watermark
                    ),
                ),
            ),
            Rule(
                "Q5",
                "What a transaction writes and the messages that it settles are both committed, or neither",
                wrong=(
                    Mutant(
                        "Q5 a dead letter is written outside of the transaction",
                        simulation=queues.dead_letter_outside_of_the_transaction,
                    ),
                    Mutant(
                        "Q5 what a transaction accepts is settled before the decision",
                        simulation=queues.settled_before_the_decision,
                    ),
                    Mutant("Q5 retention ends leases", simulation=queues.retention_ends_leases),
                ),
            ),
            Rule(
                "Q6",
                "`settled_to` never goes back in the coordinator's log, except by the cut after an unclean election, "
                "and by a redrive",
            ),
            Rule(
                "Q7",
                "In calm all that is committed from the queue's begin on is settled: by its worker's verdict, by the "
                "delivery limit, or by retention",
                wrong=(
                    Mutant("Q7 the dead live again", simulation=queues.the_dead_live_again),
                    Mutant("Q7 a settlement is taken whoever has the records", simulation=queues.settled_by_anybody),
                ),
            ),
            Rule(
                "Q8",
                "A redrive brings each letter once: a settled offset is ready again only in one batch with a place "
                "that passes over its letter. A place never goes back, and passes over no letter whose record stays "
                "settled, unless it is written anew",
                wrong=(
                    Mutant(
                        "Q8 a redrive that comes again makes ready again",
                        simulation=queues.redriven_twice,
                    ),
                    Mutant(
                        "Q8 the place moves before the records are ready",
                        simulation=queues.place_before_the_records,
                    ),
                    Mutant(
                        "Q8 a letter is passed over while its transaction ends",
                        simulation=queues.letter_is_passed_over,
                    ),
                ),
            ),
        ),
    ),
    Section(
        "Access",
        ("docs/spec/invariants.md",),
        (
            Rule(
                "V22",
                "Where brokers know their users, a right ends when its rule is removed: at the latest after a "
                "broker's session and `quorum.fetch.timeout.ms` together, no broker acknowledges the user's writes or "
                "answers the user's reads without a rule",
                wrong=(
                    Mutant("V22 streams outlive their rules", simulation=access.streams_outlive_their_rules),
                    Mutant("V22 rules are never taken away", simulation=access.rules_are_never_taken_away),
                    Mutant("V22 what a request names is not looked at", simulation=access.requests_are_not_looked_into),
                    Mutant("V22 everybody may describe everything", simulation=access.all_topics_are_shown),
                    Mutant("V22 the age of rules plays no part", simulation=access.age_of_rules_plays_no_part),
                    Mutant(
                        "V22 a stream goes on while anything that it used is allowed",
                        simulation=access.streams_go_on_with_what_is_left,
                    ),
                    Mutant("V22 what is allowed counts though it is denied", simulation=access.allowed_though_denied),
                    Mutant("V22 a rule of one host is of all", simulation=access.rules_of_a_host_are_of_all),
                    Mutant("V22 a name of a rule is a prefix", simulation=access.names_are_prefixes),
                    Mutant("V22 sessions outlive their password", simulation=access.sessions_outlive_their_password),
                    Mutant(
                        "V22 sessions outlive their delegation token", simulation=access.sessions_outlive_their_token
                    ),
                    Mutant("V22 who has shown a delegation token gets others", simulation=access.tokens_make_tokens),
                    Mutant("V22 the first of several rights is enough", simulation=access.first_part_is_enough),
                    Mutant(
                        "V22 who may look at a group is told of all its topics",
                        simulation=access.groups_tell_all_topics,
                    ),
                ),
            ),
        ),
    ),
    Section(
        "Liveness",
        ("docs/spec/invariants.md",),
        (
            Rule(
                "V19",
                "There is one active controller, and every live broker is registered",
                wrong=(
                    Mutant("V19 an unsynced word is dropped", simulation=settings.unsynced_word_is_dropped),
                    Mutant(
                        "V19 a checkpoint promises what is not synced", simulation=recovery.checkpoint_promises_unsynced
                    ),
                    Mutant(
                        "V19 the mark of a clean stop outlives its life",
                        simulation=recovery.clean_stop_outlives_its_life,
                    ),
                    Mutant("V19 nobody is put out for its lag", simulation=copies.nobody_is_put_out),
                    Mutant("V19 who lags joins to be put out", simulation=replication.who_lags_joins),
                    Mutant("V19 credit comes back twice", simulation=copies.written_bytes_are_given_back_twice),
                    Mutant("V19 a take-over leaves open what was open", simulation=coordinating.taken_over_stays_open),
                    Mutant("V19 no transaction times out", simulation=coordinating.no_time_out),
                    Mutant("V19 a refusal teaches a producer nothing", simulation=programs.refusals_teach_nothing),
                    Mutant("V19 runs that are dropped cost credit", simulation=programs.dropped_runs_cost_credit),
                ),
            ),
        ),
    ),
)
