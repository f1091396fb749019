"""Producing, and deleting records."""

from __future__ import annotations

from tests.rules import Mutant, Rule, Section
from tests.simulation.mutants import access, copies, delete_records, recovery, replication
from tests.unit.replication import mutants as history_mutants

SECTIONS = (
    Section(
        "Producing",
        ("docs/spec/replication.md#producing",),
        (
            Rule("PR.1", "acks 0, 1 and all: the moment of each answer, and acks=0 when the write is refused"),
            Rule(
                "PR.2",
                "below min a write is refused before it is written. If the ISR falls below min after the append, the "
                "outcome is unknown. With acks=1 the record is stored, but not visible",
            ),
            Rule(
                "PR.3",
                "a pending write ends when the HW reaches it, at its time-out (unknown), or when leadership is lost "
                "(unknown)",
            ),
            Rule(
                "PR.4",
                "sequences are checked against the state and the queue. Five batches are in flight. A failed append "
                "drops the rest",
                wrong=(
                    Mutant("15 producer state changed before the append", simulation=replication.state_before_append),
                ),
            ),
            Rule(
                "PR.5",
                "a duplicate gets the original's offsets, under the original's condition",
                wrong=(
                    Mutant(
                        "14 a duplicate acknowledged before it is replicated",
                        simulation=replication.duplicate_answered_at_once,
                        histories=history_mutants.duplicate_answered_at_once,
                    ),
                ),
            ),
            Rule("PR.6", "sequences wrap. A new epoch starts at 0. Unknown producers are handled"),
            Rule(
                "PR.7",
                "the owner of a producer id is proven by id, epoch, transactional id and principal. There are rules "
                "for ids from before the key, and for ids that were never given out",
                wrong=(
                    Mutant(
                        "V14 nobody asks whose a producer id is", simulation=access.nobody_asks_whose_a_producer_id_is
                    ),
                    Mutant(
                        "V14 one proof is taken for all producer ids", simulation=access.one_proof_is_taken_for_all_ids
                    ),
                    Mutant(
                        "V14 producer ids that were given are everybody's",
                        simulation=access.ids_that_were_given_are_everybodys,
                    ),
                ),
            ),
            Rule("PR.8", "the first block of level 4 brings the only key. Snapshots keep it"),
            Rule(
                "PR.9",
                "producer state is rebuilt, truncated and replicated, and survives failover",
                wrong=(
                    Mutant("14 followers know no producers", simulation=replication.followers_know_no_producers),
                    Mutant("14 producer state not truncated", simulation=replication.producers_not_truncated),
                    Mutant(
                        "14 a producer snapshot of what was cut is believed",
                        simulation=recovery.snapshot_of_what_was_cut,
                    ),
                    Mutant("14 what is behind a producer snapshot is not read", simulation=recovery.snapshot_is_all),
                    Mutant("14 producer state not rebuilt", histories=history_mutants.producers_not_rebuilt),
                ),
            ),
            Rule(
                "PR.10",
                "in a compacted topic each record has a key, and each row a value in its only key column. Old records "
                "stay",
            ),
            Rule("PR.11", "the crc covers topic id and partition"),
        ),
    ),
    Section(
        "Deleting records (KIP-107)",
        ("docs/spec/replication.md#deleting-records",),
        (
            Rule(
                "DEL.1",
                "a deletion above the high watermark, or above the last stable offset, is refused as a whole",
                wrong=(Mutant("KIP-107 a trim above HW is done", simulation=delete_records.above_the_high_watermark),),
            ),
            Rule(
                "DEL.2",
                "the leader answers when the start is durable on all replicas that could be elected",
                wrong=(
                    Mutant(
                        "KIP-107 answered before the others have deleted",
                        simulation=delete_records.answered_before_the_others_have_it,
                    ),
                    Mutant("KIP-107 the log start is not recorded", simulation=delete_records.log_start_not_recorded),
                    Mutant(
                        "KIP-107 a coordinator carries nothing along",
                        simulation=delete_records.coordinator_carries_nothing,
                    ),
                    Mutant("KIP-107 eligible leaders are not asked", simulation=copies.eligible_leaders_are_not_asked),
                ),
            ),
            Rule(
                "DEL.3",
                "a replica that joins the ISR has the leader's start before",
                wrong=(
                    Mutant(
                        "KIP-107 a joiner does not know the log start",
                        simulation=delete_records.joiner_without_log_start,
                    ),
                ),
            ),
            Rule("DEL.4", "after the answer no leader starts lower, and no leader sends records below the start"),
            Rule(
                "DEL.5",
                "followers follow the leader's start, also after retention. A log start never goes back, except when "
                "a log begins anew",
                wrong=(
                    Mutant(
                        "KIP-107 followers keep what their leader deleted",
                        simulation=copies.followers_keep_what_was_deleted,
                    ),
                ),
            ),
            Rule(
                "DEL.6",
                "the log of an empty follower begins with the whole batch around its position. The trim may lie inside "
                "that batch",
                wrong=(
                    Mutant(
                        "KIP-107 an empty copy starts inside a batch",
                        simulation=delete_records.inside_the_first_batch_only,
                    ),
                ),
            ),
            Rule(
                "DEL.7",
                "a consumer at the log start goes on. A consumer below it follows auto.offset.reset, and reads nothing "
                "twice",
            ),
            Rule(
                "DEL.8",
                "the state of producers outlives their records. An emptied log keeps it under the next leader. A "
                "follower that begins at a log start has it, too",
                wrong=(
                    Mutant("KIP-107 an emptied copy begins anew", simulation=delete_records.emptied_copy_begins_anew),
                ),
            ),
        ),
    ),
)
