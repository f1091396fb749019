"""Sessions, reading, the high watermark, in-sync replicas."""

from __future__ import annotations

from tests.rules import Mutant, Rule, Section
from tests.simulation.mutants import controlling, copies, quorum, repairs, replication, shell, storage
from tests.unit.replication import mutants as history_mutants
from tests.unit.replication import small_model_mutants as small_mutants

SECTIONS = (
    Section(
        "Sessions: position, progress, pushes",
        ("docs/spec/replication.md#sessions",),
        (
            Rule("SE.1", "a position is (number, offset, epoch before it). It has no epoch if the log is empty"),
            Rule(
                "SE.2",
                "a follower sends a position when it opens a session, after a truncation, and after it drops a run",
            ),
            Rule(
                "SE.3",
                "progress is the durable end and the epoch below it. It never moves the position",
                wrong=(
                    Mutant(
                        "24 progress before fsync",
                        simulation=replication.progress_before_sync,
                        histories=history_mutants.progress_before_sync,
                    ),
                ),
            ),
            Rule(
                "SE.4",
                "a run passes three checks, and begins at the log end. A follower never merges an overlap",
                wrong=(
                    Mutant("3 runs appended without their checks", simulation=replication.no_check_of_runs),
                    Mutant(
                        "3 runs appended without the check of the epoch before",
                        histories=history_mutants.no_check_of_previous_epoch,
                    ),
                ),
            ),
            Rule(
                "SE.5",
                "any change of the leader epoch discards all positions and progress. The leader pushes nothing before "
                "it has a new position",
                wrong=(
                    Mutant("3 progress counted from another epoch", simulation=replication.progress_of_another_epoch),
                    Mutant(
                        "3 progress counted from another epoch or a diverging position",
                        histories=history_mutants.progress_without_position,
                    ),
                ),
            ),
            Rule(
                "SE.6",
                "the leader checks in this order: epoch (a lower one is fenced, a higher one is not known yet), log "
                "start, divergence",
                wrong=(
                    Mutant(
                        "3 a position is judged by its offset alone", small_model=small_mutants.position_by_offset_alone
                    ),
                ),
            ),
            Rule(
                "SE.7",
                "an offset above the end is a divergence. No replica truncates to the high watermark",
                wrong=(
                    Mutant(
                        "1 truncate to the high watermark when the leader changes",
                        simulation=replication.truncate_to_high_watermark,
                    ),
                    Mutant("1 truncate to the high watermark", histories=history_mutants.truncate_to_high_watermark),
                ),
            ),
            Rule(
                "SE.8",
                "a follower that diverged sends no progress",
                wrong=(
                    Mutant(
                        "3 progress counted from a diverging position", simulation=replication.progress_without_position
                    ),
                ),
            ),
            Rule(
                "SE.9",
                "a follower truncates to the minimum of three ends. If it lacks the epoch, it truncates to the end of "
                "the epoch below",
                wrong=(
                    Mutant(
                        "2 one epoch look-up, then the high watermark",
                        simulation=storage.one_lookup_then_high_watermark,
                    ),
                    Mutant(
                        "2 truncation to the leader's end only",
                        small_model=small_mutants.truncate_to_the_leaders_end_only,
                    ),
                ),
            ),
            Rule(
                "SE.10",
                "a follower with later epochs alone truncates to its own log start. It begins anew only if the leader "
                "lacks what it has deleted",
                wrong=(
                    Mutant(
                        "V5 a follower with later epochs alone begins anew", simulation=copies.later_epochs_begin_anew
                    ),
                ),
            ),
            Rule("SE.11", "the seven shapes of divergence"),
            Rule(
                "SE.12",
                "the start of an epoch is recorded before its first append",
                wrong=(
                    Mutant(
                        "2 the epoch start not recorded before the first append",
                        simulation=storage.epoch_start_not_recorded,
                    ),
                ),
            ),
            Rule(
                "SE.13",
                "credit is an absolute number. With any credit left the leader may send one batch of any size. The "
                "follower gives every byte back",
            ),
            Rule("SE.14", "news needs no credit. It wakes a session at most every 5 ms"),
            Rule("SE.15", "ready partitions take turns. A message carries about 4 MiB, or everything that is ready"),
            Rule(
                "SE.16",
                "both sides send a keep-alive in each interval. After five silent intervals a session is dropped, and "
                "opened anew",
                wrong=(Mutant("shell a session stays when its stream ends", simulation=shell.ended_session_stays),),
            ),
            Rule("SE.17", "the back-off is at most 500 ms. Each pair has one stream"),
            Rule(
                "SE.18",
                "nothing polls",
                wrong=(Mutant("shell a wake-up between two looks is lost", simulation=shell.wake_up_is_lost),),
            ),
            Rule("SE.19", "a message names a bounded number of partitions. The next message has the rest"),
            Rule(
                "SE.20",
                "a follower drops a corrupt batch, and asks again after a pause. After three corrupt batches it "
                "reports them. A leader whose own copy is bad resigns",
            ),
            Rule(
                "SE.21",
                "a replica fetches a bad copy again as soon as the controller has recorded the damage. A consumer "
                "reports a batch that arrived damaged",
                wrong=(Mutant("shell damage that was met is not recorded", simulation=shell.damage_is_not_recorded),),
            ),
            Rule("SE.22", "a follower below the leader's log start begins anew at this log start"),
        ),
    ),
    Section(
        "Reading the log",
        ("docs/spec/replication.md#reading-the-log",),
        (
            Rule(
                "RD.1",
                "a range that is in memory as a whole is read at once. If the broker has to wait for a part of it, or "
                "cannot tell, it reads none of it at once",
                wrong=(Mutant("shell the loop waits for the disk", simulation=shell.loop_waits_for_the_disk),),
            ),
            Rule(
                "RD.2",
                "a few threads read cold data, in order. A session has one read at a time. Its partitions take turns",
                wrong=(
                    Mutant(
                        "shell what a reader's thread has read is not told",
                        simulation=shell.readers_threads_are_told_nothing,
                    ),
                ),
            ),
            Rule("RD.3", "a cold read has half of the credit that is left. Data in memory is sent meanwhile"),
            Rule(
                "RD.4",
                "if a position is given up, the broker drops the result of its read, or the error. It does not begin "
                "a read that nobody waits for",
                wrong=(
                    Mutant(
                        "33 what is read for a position that was given up is sent",
                        simulation=replication.given_up_read_is_sent,
                    ),
                ),
            ),
            Rule(
                "RD.5",
                "records that were cut or deleted after the read was requested are not sent. An error of a read that "
                "overlapped a cut is ignored",
                wrong=(Mutant("33 what was cut while it was read is sent", simulation=replication.cut_read_is_sent),),
            ),
            Rule("RD.6", "a run has whole batches, or the read ends with an error"),
            Rule("RD.7", "a session sends keep-alives while its read is under way"),
            Rule("RD.8", "a cold read makes no other session wait"),
        ),
    ),
    Section(
        "High watermark",
        (
            "docs/spec/replication.md#high-watermark",
            "docs/spec/replication.md#reading",
        ),
        (
            Rule(
                "HW.1",
                "the high watermark is the minimum of the durable ends over the maximal ISR, with the leader's own",
            ),
            Rule(
                "HW.2",
                "a member that the leader has not heard in this leader epoch and broker epoch holds the high "
                "watermark back",
                wrong=(
                    Mutant(
                        "5 HW leaves out a member not heard",
                        simulation=replication.unheard_left_out,
                        histories=history_mutants.unheard_left_out,
                        small_model=small_mutants.unheard_left_out,
                    ),
                ),
            ),
            Rule(
                "HW.3",
                "it waits for an eligible, caught-up joiner, but no longer than the lag time",
                wrong=(Mutant("29 no joiner is waited for", simulation=replication.no_joiner_waited_for),),
            ),
            Rule(
                "HW.4",
                "it moves only while the ISR has min members",
                wrong=(
                    Mutant(
                        "6 HW moves below min",
                        simulation=replication.below_min,
                        histories=history_mutants.below_min,
                        small_model=small_mutants.below_min,
                    ),
                ),
            ),
            Rule(
                "HW.5",
                "a follower first truncates, and then adopts the high watermark, bounded by its own log. At its start "
                "it takes the checkpoint's",
                wrong=(
                    Mutant(
                        "9 the high watermark adopted before truncating",
                        simulation=replication.high_watermark_before_truncation,
                    ),
                ),
            ),
            Rule(
                "HW.6",
                'an answer about offsets is one snapshot. The leader answers "latest" only after the high watermark '
                "has reached the start of the epoch",
                wrong=(
                    Mutant(
                        "10 latest answered with a lagging HW",
                        simulation=replication.latest_at_once,
                        histories=history_mutants.latest_at_once,
                    ),
                ),
            ),
            Rule(
                "HW.7",
                "a read above the high watermark waits. A position is out of range only below the start, or above a "
                "known end",
            ),
            Rule(
                "HW.8",
                "a follower serves the records below its own high watermark. It waits above it. The leader makes "
                "every other decision",
                wrong=(
                    Mutant(
                        "11 a read ahead of a follower's HW is out of range",
                        simulation=replication.ahead_of_follower_is_out_of_range,
                    ),
                    Mutant(
                        "11 a read ahead of a follower's HW answered as out of range",
                        histories=history_mutants.out_of_range_above_the_high_watermark,
                    ),
                    Mutant("a follower shows what is not committed", histories=history_mutants.shown_up_to_the_end),
                    Mutant("a follower never answers", histories=history_mutants.silent_for_good),
                ),
            ),
            Rule(
                "HW.9",
                "a follower sends its readers away when it does not hear its leader, truncates, or is out of the ISR",
            ),
            Rule(
                "HW.10",
                "a client goes back to the leader if its follower fails, dies, hangs, or makes no progress below a "
                "known end",
            ),
        ),
    ),
    Section(
        "Stable offsets for coordinators",
        ("docs/spec/replication.md#stable-offsets-for-coordinators",),
        (
            Rule(
                "SO.1",
                "the leader answers at once if the leader epoch, the LSO or the log start differs. Otherwise it waits "
                "for news",
            ),
            Rule("SO.2", "the leader gives no news before it knows its end"),
            Rule("SO.3", "the end of the asker's epoch shows whether an election took records back"),
            Rule(
                "SO.4",
                "it refuses if it does not lead, is not ready or is cut off, or if the asker knows a later epoch",
            ),
            Rule(
                "SO.5",
                "it looks again only for partitions that a call waits for. A cancelled call leaves nothing behind",
            ),
            Rule(
                "SO.6",
                "the asker gathers questions by leader, asks again without news, and does not wait for a leader that "
                "another has replaced",
            ),
        ),
    ),
    Section(
        "In-sync replicas",
        (
            "docs/spec/replication.md#in-sync-replicas",
            "docs/spec/replication.md#a-leader-that-is-cut-off",
        ),
        (
            Rule(
                "ISR.1",
                "marks decide whether a follower has caught up. A follower stays healthy under a full pipe. Idle "
                "followers stay in the ISR",
            ),
            Rule(
                "ISR.2",
                "a member leaves the ISR after the lag time, or if two checks in a row find too many records of lag",
            ),
            Rule(
                "ISR.3",
                "a replica joins the ISR under all conditions of the section",
                wrong=(
                    Mutant(
                        "4 ISR grows against a lagging high watermark",
                        simulation=replication.join_against_lagging_high_watermark,
                        histories=history_mutants.join_against_lagging_high_watermark,
                    ),
                    Mutant(
                        "4 the ISR grows against a lagging high watermark",
                        small_model=small_mutants.join_against_lagging_high_watermark,
                    ),
                    Mutant(
                        "4 the ISR grows below the high watermark", small_model=small_mutants.join_below_high_watermark
                    ),
                ),
            ),
            Rule(
                "ISR.4",
                "a replica joins only by progress that it sent in an open session after it was put out, or after its "
                "copy was cut. Late messages do not count",
                wrong=(
                    Mutant(
                        "V5 a copy that was cut joins by what it told before",
                        simulation=repairs.old_progress_of_a_copy_that_was_cut,
                    ),
                    Mutant(
                        "V19 who is not heard is put out and taken in for ever",
                        simulation=repairs.put_out_and_taken_in_for_ever,
                    ),
                    Mutant(
                        "progress survives being put out", histories=history_mutants.progress_survives_being_put_out
                    ),
                ),
            ),
            Rule(
                "ISR.5",
                "a leader does not wait for a joiner whose session is closed, or whose disk failed or is full",
                wrong=(
                    Mutant(
                        "V19 a joiner whose session is closed is waited for",
                        simulation=repairs.closed_joiner_is_waited_for,
                    ),
                ),
            ),
            Rule(
                "ISR.6",
                "a proposal is one snapshot. The leader counts a joiner at once, and a leaver until the commit. One "
                "proposal is in flight",
                wrong=(
                    Mutant(
                        "5 HW over the committed ISR while a growth is pending",
                        simulation=replication.over_committed_only,
                        histories=history_mutants.over_committed_only,
                        small_model=small_mutants.over_committed_only,
                    ),
                    Mutant(
                        "5 HW over the shrunk ISR before the commit",
                        simulation=replication.over_proposal_only,
                        histories=history_mutants.over_proposal_only,
                        small_model=small_mutants.over_proposal_only,
                    ),
                ),
            ),
            Rule(
                "ISR.7",
                "if a proposal is refused as ineligible, the leader goes back to the former ISR when the refusal is "
                "committed. The controller refuses late copies of the proposal, too. Without an answer the leader "
                "sends the same proposal again. A higher partition epoch ends a proposal",
                wrong=(
                    Mutant("27 a refused growth is never taken back", simulation=replication.refused_growth_kept),
                    Mutant(
                        "V10 a lost proposal is forgotten",
                        simulation=replication.forgotten_proposal,
                        histories=history_mutants.forgotten_proposal,
                    ),
                    Mutant(
                        "shell a proposal without an answer is never sent again",
                        simulation=shell.lost_proposal_is_not_told,
                    ),
                    Mutant(
                        "V10 a proposal from an older partition epoch is accepted",
                        simulation=controlling.any_partition_epoch,
                    ),
                ),
            ),
            Rule(
                "ISR.8",
                "when a replica is removed, its credit is given back. A replica that is added keeps to its rate, and "
                "delays no other replica",
            ),
            Rule(
                "ISR.9",
                "a new leader gives every replica a full lag period. Repeated metadata resets nothing. The leader "
                "knows nothing of a replica that was removed and added again",
                wrong=(
                    Mutant("26 repeated metadata resets progress", simulation=replication.metadata_resets_progress),
                ),
            ),
            Rule(
                "ISR.10",
                "if the tick of a leader or controller is late, it excuses the others for the length of its own "
                "delay, and for no more",
                wrong=(
                    Mutant(
                        "30 a late tick of a leader excuses for a full period",
                        simulation=replication.late_ticks_excuse_for_a_full_period,
                    ),
                    Mutant(
                        "30 a late tick of a controller excuses for a full period",
                        simulation=quorum.late_ticks_excuse_everybody,
                    ),
                    Mutant(
                        "V19 who is late excuses for a full period", simulation=repairs.late_excuses_for_a_full_period
                    ),
                ),
            ),
            Rule("ISR.11", "a leader takes min.insync.replicas and the ISR from one offset of the metadata"),
            Rule(
                "ISR.12",
                "the log has the flush policy. Before it counts as fsync, the log is synced, and then records the "
                "policy. It records os before os counts. A leader under fsync counts no progress that was sent under "
                "os",
            ),
            Rule(
                "ISR.13",
                "a leader that is cut off from the controller goes on. Under unclean election it stops a session "
                "after it sent the last answered heartbeat. It serves again when a heartbeat is answered and all "
                "metadata is replayed",
                wrong=(
                    Mutant("shell a session lasts from its answer", simulation=shell.session_lasts_from_its_answer),
                ),
            ),
            Rule(
                "ISR.14",
                "a leader epoch belongs to one life (V17)",
                wrong=(
                    Mutant(
                        "7 progress of an earlier life counts",
                        simulation=replication.progress_of_an_earlier_life,
                        small_model=small_mutants.end_of_an_earlier_life,
                    ),
                    Mutant(
                        "7 a leader epoch spans two lives",
                        simulation=replication.epoch_spans_lives,
                        histories=history_mutants.epoch_spans_lives,
                    ),
                    Mutant("7 a follower joins without a session", simulation=replication.joins_without_a_session),
                    Mutant("7 a damaged copy is cut at once", simulation=replication.cut_at_once),
                    Mutant(
                        "7 an election keeps the leader epoch",
                        small_model=small_mutants.election_keeps_the_leader_epoch,
                    ),
                ),
            ),
            Rule(
                "ISR.15",
                "without disk space a leader refuses writes, and reading goes on. After an I/O error the replica is "
                "offline",
            ),
        ),
    ),
)
