"""Internal topics, coordinators, groups, and transactions in a partition."""

from __future__ import annotations

from tests.rules import Mutant, Rule, Section
from tests.simulation.mutants import coordinating, copies, repairs, shell, transactions

SECTIONS = (
    Section(
        "Internal topics and coordinators",
        (
            "docs/spec/transactions.md#internal-topics",
            "docs/spec/transactions.md#coordinators",
            "docs/spec/transactions.md#enlist",
            "docs/spec/transactions.md#end",
        ),
        (
            Rule(
                "CO.1",
                "an internal topic is created as soon as min(3, voters) brokers run. It has 16 partitions and fsync. "
                "It has no unclean election and no retention, for any defaults",
            ),
            Rule("CO.2", "clients may not create, alter, grow, delete or write them. Replicas and leaders may move"),
            Rule(
                "CO.3",
                "an append of the broker itself has its offset at once. The broker decides nothing below min, and "
                "learns that a batch is committed or dropped",
            ),
            Rule(
                "CO.4",
                "decisions that come while a batch is on its way go into the next batch. No decision is split, and "
                "their order stays. When its term ends, a coordinator drops the decisions that still wait",
            ),
            Rule(
                "CO.5",
                "a notice of committed records has the leader epoch. A new leader knows where its log ended",
                wrong=(
                    Mutant(
                        "12 a deposed coordinator takes later HW moves for its own",
                        simulation=transactions.deposed_coordinator_goes_on,
                    ),
                ),
            ),
            Rule(
                "CO.6",
                "a coordinator loads everything below the start of its epoch. Foreign data in the log counts as "
                "damage of the replica",
                wrong=(
                    Mutant(
                        "12 a coordinator acts before its HW reached its epoch",
                        simulation=transactions.acts_before_its_epoch_is_committed,
                    ),
                ),
            ),
            Rule(
                "CO.7",
                'a coordinator that was deposed, and has not heard of it, answers neither "registered" nor "marked"',
                wrong=(
                    Mutant(
                        "12 a group's offsets are told without a decision",
                        simulation=coordinating.told_without_a_decision,
                    ),
                ),
            ),
            Rule(
                "CO.8",
                "a partition of a group goes to its next member when the former member gave it back, left, or is "
                "fenced (M1)",
            ),
            Rule(
                "CO.9",
                "the heartbeat interval is longer in a large group, and leaves a member half of its session. A member "
                "takes the interval of each answer, and doubts a coordinator that confirms nothing for half of it",
            ),
            Rule(
                "CO.10",
                "a deposed coordinator confirms no heartbeat. After a fail-over each member has a whole session",
            ),
            Rule(
                "CO.11",
                "a group with members takes commits only from its members, and only for the partitions that they have "
                "(M3)",
            ),
            Rule(
                "CO.12",
                "a commit names the epoch whose assignment the program has learned. So one from before a loss is "
                "refused, although the member has the partition again (M3)",
            ),
            Rule("CO.13", "members have equal shares, few partitions move, and racks count if possible (M4)"),
            Rule(
                "CO.14",
                "a coordinator that finds itself deposed has nothing due any more",
                wrong=(
                    Mutant(
                        "shell a coordinator does not hear that it is deposed", simulation=shell.coordinator_goes_on
                    ),
                ),
            ),
            Rule(
                "CO.15",
                "the coordinator keeps the contents of the last committed generation. It gives them to a run that asks "
                "for that generation again. A write with other rows is no replay",
                wrong=(
                    Mutant(
                        "17 a set-back checkpoint is taken for a replay",
                        simulation=transactions.committed_without_contents,
                    ),
                ),
            ),
            Rule(
                "CO.16",
                "answered decisions survive SIGKILL of the coordinator, and a restart of all brokers",
                wrong=(
                    Mutant(
                        "15 a decision takes effect before it is committed",
                        simulation=transactions.decided_before_committed,
                    ),
                ),
            ),
        ),
    ),
    Section(
        "Transactions in a partition",
        (
            "docs/spec/transactions.md#registration",
            "docs/spec/transactions.md#markers",
            "docs/spec/transactions.md#last-stable-offset",
        ),
        (
            Rule(
                "TX.1",
                "the leader registers a producer before its first record, once and durably. It refuses a producer "
                "that has ended. A new leader without state asks again, and one with state does not",
                wrong=(
                    Mutant(
                        "17 a late append after its producer ended",
                        simulation=transactions.refused_registration_is_none,
                    ),
                ),
            ),
            Rule(
                "TX.2",
                "waiting batches are bounded. They time out, and are answered when leadership is lost. A late answer "
                "writes nothing",
            ),
            Rule(
                "TX.3",
                "transactional appends are always acks=all. Batch and entry agree. An unknown producer begins at "
                "sequence 0",
            ),
            Rule(
                "TX.4",
                "a marker that comes meanwhile cancels the waiting batches. A producer that has ended, or is ending, "
                "is fenced",
                wrong=(
                    Mutant(
                        "17 a producer writes while its marker is on its way",
                        simulation=copies.writes_while_its_marker_is_on_its_way,
                    ),
                ),
            ),
            Rule(
                "TX.5",
                "all markers of a call are one control batch. They are idempotent in the log, in the queue and after "
                "a failover. The call is answered when they are below the HW",
                wrong=(
                    Mutant("18 markers not idempotent", simulation=transactions.markers_not_idempotent),
                    Mutant(
                        "shell markers that were not answered count as written", simulation=shell.no_answer_is_a_yes
                    ),
                ),
            ),
            Rule("TX.6", "the leader refuses a whole commit if it does not match the state (and queue)"),
            Rule(
                "TX.7",
                "the leader takes markers from the coordinator of the transactional id, in the epoch that its image "
                "has as the present one, and for producer ids that were given out",
            ),
            Rule(
                "TX.8",
                "the control batches and the producer snapshot have the highest epoch of each coordinator. Every "
                "leader fences a lower epoch",
            ),
            Rule(
                "TX.9",
                "for a commit marker of a forgotten producer the leader searches the log. The call is done if the log "
                "has the marker, or if the marker was trimmed with its records. The call is never done for records "
                "that were lost",
                wrong=(
                    Mutant("V19 an end that was forgotten is refused", simulation=repairs.forgotten_ends_are_refused),
                ),
            ),
            Rule("TX.10", "state changes only when the append is in the log"),
            Rule(
                "TX.11",
                "the LSO is the first offset of a transaction that is open, or whose marker is not below the HW. It "
                "is never above the HW, on every replica",
                wrong=(
                    Mutant("16 LSO inclusive", simulation=transactions.stable_offset_inclusive),
                    Mutant("16 LSO above HW", simulation=transactions.stable_offset_above_high_watermark),
                    Mutant(
                        "16 LSO moved by an uncommitted marker",
                        simulation=transactions.uncommitted_marker_moves_stable_offset,
                    ),
                ),
            ),
            Rule(
                "TX.12",
                "a read_committed reader gets nothing above the LSO. It is woken when the LSO moves, and learns which "
                "records were aborted. A follower serves it in the same way. Other readers see no difference",
            ),
            Rule(
                "TX.13", "transactions are rebuilt from snapshot and log, truncated with the log, and survive a restart"
            ),
            Rule(
                "TX.14",
                "the index of aborted transactions equals a scan of the log. A read looks no further than its range. "
                "Retention stays below the LSO",
            ),
            Rule("TX.15", "an older snapshot does not reopen a transaction that has ended, and was deleted, since"),
            Rule(
                "TX.16",
                "compaction has removed the marker of an open transaction. A follower aborts it when it has all below "
                "the leader's high watermark of one moment. A recovery aborts it after a cut",
            ),
            Rule("TX.17", "a log of many transactions opens without a stall"),
            Rule("TX.18", "all brokers killed, a topic deleted, partitions moved while a transaction is open"),
            Rule("TX.19", "offsets whose commit was given up abort. The end of a block waits for them"),
            Rule("TX.20", "markers and aborted records are gaps to a query"),
            Rule("TX.21", "an open producer is never dropped for silence or room"),
        ),
    ),
)
