"""The quorum and the controller."""

from __future__ import annotations

from tests.rules import Mutant, Rule, Section
from tests.simulation.mutants import (
    access,
    answers,
    controlling,
    quorum,
    recovery,
    repairs,
    replication,
    settings,
    shell,
    storage,
    typed,
)
from tests.unit.quorum import mutants as quorum_mutants
from tests.unit.replication import small_model_mutants as small_mutants

SECTIONS = (
    Section(
        "Metadata: each rule and its tests",
        (
            "docs/spec/quorum.md",
            "docs/spec/replication.md#eligible-leaders-and-damage",
            "docs/spec/invariants.md",
            "docs/spec/wrong-rules.md",
        ),
        (
            Rule("MD.1", "V4: the leader is in its ISR. An ISR is never empty"),
            Rule("MD.2", "V6 as far as elections decide it"),
            Rule("MD.3", "V10: the controller judges a proposal by the current state only"),
            Rule(
                "MD.4",
                "V11: epoch and vote are durable before a voter acts on them, and never go back. An epoch has one "
                "leader",
                wrong=(
                    Mutant(
                        "19 vote not synced", simulation=storage.vote_not_synced, quorum=quorum_mutants.vote_not_synced
                    ),
                    Mutant(
                        "19 vote answered before it is written",
                        simulation=quorum.vote_answered_before_it_is_written,
                        quorum=quorum_mutants.vote_answered_before_it_is_written,
                    ),
                    Mutant("19 epoch file not synced", simulation=storage.epoch_file_not_synced),
                    Mutant("19 directory entries not synced", simulation=storage.directory_entries_not_synced),
                ),
            ),
            Rule(
                "MD.5",
                "V12: a commit needs a majority, and an entry of the leader's own epoch",
                wrong=(
                    Mutant("20 recovery serves a tail that was not synced", simulation=storage.unsynced_tail_served),
                    Mutant(
                        "23 an old epoch's entry committed by counting",
                        simulation=quorum.old_epoch_committed_by_counting,
                    ),
                    Mutant("20 a rolled segment is not synced", simulation=recovery.rolled_segment_not_synced),
                    Mutant("20 recovery believes whole headers", simulation=recovery.headers_only),
                    Mutant("20 unsynced tail served", quorum=quorum_mutants.unsynced_tail_served),
                    Mutant("23 old epoch committed by counting", quorum=quorum_mutants.old_epoch_committed_by_counting),
                ),
            ),
            Rule("MD.6", "V13: every image is the replay of a committed prefix"),
            Rule("MD.7", "V17: a leader epoch belongs to one life"),
            Rule("MD.8", "the epoch's start is recorded before its first append"),
            Rule(
                "MD.9",
                "V20: a quorum leader that a majority hears is not deposed",
                wrong=(
                    Mutant("22 no pre-vote", simulation=quorum.no_pre_vote, quorum=quorum_mutants.no_pre_vote),
                    Mutant("22 pre-vote granted beside a live leader", simulation=quorum.pre_vote_beside_a_live_leader),
                    Mutant("22 pre-vote beside a live leader", quorum=quorum_mutants.pre_vote_beside_a_live_leader),
                ),
            ),
            Rule("MD.10", "V22: each access needs a rule that allows it"),
            Rule(
                "MD.11",
                "V22: a broker uses its users and rules for one session time-out after the last answer of a controller",
            ),
            Rule(
                "MD.12",
                "V21: a quorum leader that hears no majority answers nothing after its time-out",
                wrong=(
                    Mutant(
                        "21 no check-quorum", simulation=quorum.no_check_quorum, quorum=quorum_mutants.no_check_quorum
                    ),
                ),
            ),
            Rule("MD.13", "followers notice a killed leader at once, and a hung one after the fetch time-out"),
            Rule(
                "MD.14",
                "the first entry has the cluster id, the voters and their directory ids. Later the recorded voters "
                "count, whatever voters a broker was started with",
                wrong=(
                    Mutant("31 the voters of a start count", simulation=quorum.given_voters_count),
                    Mutant("31 the voters given count", quorum=quorum_mutants.given_voters_count),
                ),
            ),
            Rule(
                "MD.15",
                "commands add, remove and move voters, one at a time. A change needs the majority of the voters that "
                "are there after it",
                wrong=(
                    Mutant(
                        "31 a change of the voters counts when it is committed",
                        quorum=quorum_mutants.added_while_one_is_added,
                    ),
                    Mutant("31 a removed voter takes no part at once", quorum=quorum_mutants.removed_at_once),
                    Mutant("31 an observer votes for nobody", quorum=quorum_mutants.observers_vote_for_nobody),
                    Mutant(
                        "31 the vote of an observer is forgotten", quorum=quorum_mutants.vote_of_an_observer_forgotten
                    ),
                    Mutant("31 only voters of the own log are asked", quorum=quorum_mutants.known_voters_only),
                ),
            ),
            Rule("MD.16", "all voters found a cluster together. Emptied disks never found a second one"),
            Rule(
                "MD.17",
                "a voter with an emptied disk neither votes nor counts until it is replaced. Both majorities commit "
                "the replacement",
                wrong=(
                    Mutant("31 a voter with an emptied disk votes", simulation=quorum.emptied_voter_votes),
                    Mutant("31 emptied voter votes", quorum=quorum_mutants.emptied_voter_votes),
                    Mutant("31 replaced by its own majority", quorum=quorum_mutants.replaced_by_its_own_majority),
                ),
            ),
            Rule(
                "MD.18",
                "a node adopts a later epoch only with proof: a majority of voters names it on this node's own "
                "channels. A node that hears no leader believes one voter",
                wrong=(
                    Mutant("V20 an epoch is adopted without proof", simulation=quorum.epoch_adopted_without_proof),
                    Mutant("V19 every plausible epoch is adopted", simulation=repairs.every_plausible_epoch_is_adopted),
                ),
            ),
            Rule(
                "MD.19",
                "a majority of voters reaches the highest epoch on the disk of any of them. One voter alone seldom "
                "moves the others",
                wrong=(Mutant("V19 a plausible refusal strands", simulation=quorum.plausible_refusal_strands),),
            ),
            Rule(
                "MD.20",
                "an observer has the epoch of its leader, and makes no promise by it. No invented epoch keeps it from "
                "the leader",
            ),
            Rule(
                "MD.21", "an impossible epoch, or a request that does not belong here, is refused, and changes nothing"
            ),
            Rule(
                "MD.22",
                "a cluster is founded at the highest level of all voters. A command raises the level, if all "
                "registered brokers and the controller support the new one. The level never goes down. A broker that "
                "does not support it is not registered",
                wrong=(
                    Mutant(
                        "shell a controller writes what its level does not allow",
                        simulation=answers.written_below_its_level,
                    ),
                    Mutant(
                        "shell a level counts before the disk says so",
                        simulation=answers.level_counts_before_the_disk_says_so,
                    ),
                ),
            ),
            Rule(
                "MD.23",
                "replicas of new partitions are spread over racks first, then over hosts, then over brokers by the "
                "number that each has already. Without host labels placement is as if there were no hosts. Host "
                "labels wait for level 3",
            ),
            Rule(
                "MD.24",
                "a client gets, for each broker, the address of the listener that the client uses. It never gets the "
                "address of another listener. The answer lists the brokers without this listener apart. The client "
                "waits for them, and its errors name them. Brokers connect to each other by no listener that has a "
                "name",
            ),
            Rule(
                "MD.25",
                "a typed topic needs level 2 or above. The controller gives the ids. Versions follow each other "
                "without a gap. If two operators evolve a schema at once, one is refused. A request for a version "
                "that exists with exactly the same content succeeds",
                wrong=(
                    Mutant("V13 a pending version is the latest", simulation=typed.pending_is_the_latest),
                    Mutant("V13 the columns of a withdrawn version stay", simulation=typed.withdrawn_columns_stay),
                    Mutant("V13 a withdrawn version is confirmed", simulation=typed.withdrawn_is_confirmed),
                ),
            ),
            Rule(
                "MD.26",
                "users, access rules and quotas change at level 3 and above. A request is one decision. Adding a "
                "thing that exists exactly so succeeds. The answer names each thing that was to be removed and does "
                "not exist. There are at most 10,000 of each kind",
                wrong=(
                    Mutant("shell calls and messages cost nothing", simulation=access.calls_and_messages_cost_nothing),
                    Mutant(
                        "shell bytes that are written count nothing",
                        simulation=access.bytes_that_are_written_count_nothing,
                    ),
                    Mutant(
                        "shell bytes that are read are waited for by nobody",
                        simulation=access.bytes_that_are_read_are_waited_for_by_nobody,
                    ),
                ),
            ),
            Rule(
                "MD.27",
                "a request may change several settings of running brokers. The controller checks the whole request by "
                "the table of settings. Then it keeps the settings. Each broker uses them as soon as it has replayed "
                "them. Its own setting goes before the setting of all brokers, and both go before its file. Each "
                "dynamic setting has a subscriber",
                wrong=(
                    Mutant("KIP-226 that of all brokers counts first", simulation=settings.that_of_all_counts_first),
                    Mutant("KIP-226 a snapshot tells nobody", simulation=settings.a_snapshot_tells_nobody),
                ),
            ),
            Rule(
                "MD.28",
                "a delegation token changes at level 3 and above, by its owner or a renewer. A user who may alter the "
                "cluster can also expire it. A token can be renewed while it lives, up to its maximum. The controller "
                "removes expired tokens now and then, and the tokens of a deleted user with the user. There are at "
                "most 10,000 tokens, and 1,000 of one owner. The log has no secret",
            ),
            Rule(
                "MD.29",
                "a client that logs in with a delegation token is its owner until the token ends by the broker's "
                "clock. An expired token ends its sessions. With a token no other token can be made. A wrong token, "
                "an unknown token and an unknown user get the same answer",
            ),
            Rule(
                "MD.30",
                "a process that meets a record, a snapshot or a level of a later version ends. It skips nothing, and "
                "takes no snapshot without it",
            ),
            Rule(
                "MD.31",
                "the log is trimmed behind snapshots. A node that is far behind, or that starts, goes on from a "
                "snapshot",
            ),
            Rule("MD.32", "an active controller decides when an entry of its epoch is committed and replayed"),
            Rule(
                "MD.33",
                "every answer waits for its commit. A deposed controller drops the rest",
                wrong=(
                    Mutant("shell a controller hears last that it was deposed", simulation=shell.deposed_hears_it_last),
                ),
            ),
            Rule("MD.34", "what is committed is never truncated"),
            Rule(
                "MD.35",
                "silent streams are dropped, and opened anew. A process that stood still blames no other process",
                wrong=(Mutant("shell a stream that broke is not told", simulation=shell.broken_stream_is_not_told),),
            ),
            Rule("MD.36", "silence fences a broker. A killed process is fenced at once"),
            Rule(
                "MD.37",
                "a process that judges others by a timer first checks its own delay. Its own pause does not count as "
                "silence of the others. Only the length of the pause is excused",
                wrong=(
                    Mutant(
                        "30 a paused controller fences everyone when it wakes",
                        simulation=quorum.paused_controller_fences,
                    ),
                ),
            ),
            Rule("MD.38", "every registration ends the former life"),
            Rule(
                "MD.39",
                "new lives begin fenced, until they have replayed their registration",
                wrong=(
                    Mutant(
                        "shell a life begins before its registration is replayed",
                        simulation=shell.nobody_waits_for_the_replay,
                    ),
                ),
            ),
            Rule(
                "MD.40",
                "a start with the same directory replaces the old life at once. A start with another directory is "
                "refused while the first life is alive",
            ),
            Rule(
                "MD.41",
                "after an unclean start a broker leaves every ISR that has another member. What recovery found of its "
                "copy decides the rest, and not today's settings: whether the copy is eligible, and whether it leads "
                "as the only member",
                wrong=(
                    Mutant(
                        "V19 an unclean start loses eligibility", simulation=storage.unclean_start_loses_eligibility
                    ),
                ),
            ),
            Rule(
                "MD.42",
                "after a loss of power of all brokers whole copies lead, in every order of starts, and whichever "
                "brokers stay away. Of torn copies the longest of two leads. A replica that left long before never "
                "leads",
                wrong=(
                    Mutant("V6 a torn copy leads and no other is asked", simulation=storage.torn_copy_leads_alone),
                    Mutant("V19 a torn tail is damage", simulation=storage.torn_tail_is_damage),
                    Mutant(
                        "V19 whole copies are not eligible after an unclean stop",
                        simulation=repairs.whole_copies_are_not_eligible,
                    ),
                ),
            ),
            Rule(
                "MD.43",
                "a log that is gone counts as no copy while other replicas may have one. A log that cannot be read "
                "counts again when it can be read",
            ),
            Rule(
                "MD.44",
                "damaged replicas leave the ISR before any election. If the only member is damaged, its partition "
                "waits, and reports it loudly",
                wrong=(
                    Mutant("25 damage is not said at registration", simulation=storage.damage_not_said),
                    Mutant("25 damage is not heeded by the controller", simulation=storage.damage_not_heeded),
                    Mutant("25 a damaged replica leads", small_model=small_mutants.damaged_leads),
                ),
            ),
            Rule("MD.45", "eligible leaders below min, and while no replica leads"),
            Rule("MD.46", "a final refusal of a proposal counts for every controller and every copy of the proposal"),
            Rule(
                "MD.47",
                "a new controller probes all brokers that are not fenced, and gives those that do not refuse a full "
                "period",
            ),
            Rule("MD.48", "if the controller is deposed before a decision is committed, the decision never happened"),
            Rule(
                "MD.49",
                "a command replaces a voter's lost directory, one at a time. The quorum never does it by itself",
            ),
            Rule("MD.50", "a preferred leader leads again if it is in the ISR and alive"),
            Rule(
                "MD.51",
                "a cordoned broker gets no replica. A decommission moves the broker's replicas by the rules of "
                "placement, 20 at once. It goes on after fail-over and deaths, and ends in forget. The controller "
                "refuses a forbidden request and gives the reason",
                wrong=(
                    Mutant("34 a cordoned broker gets new replicas", simulation=controlling.cordons_are_not_looked_at),
                    Mutant("34 a broker that goes has all moved at once", simulation=controlling.all_moves_at_once),
                    Mutant(
                        "34 a broker is forgotten with its replicas", simulation=controlling.forgotten_with_replicas
                    ),
                    Mutant(
                        "34 a decommission ends with the controller",
                        simulation=controlling.another_controller_does_not_go_on,
                    ),
                ),
            ),
            Rule(
                "MD.52",
                "during a reassignment the replicas are the old and the new ones. It is done when all replicas of the "
                "target are in the ISR. It can be cancelled or replaced. Any controller resumes it",
            ),
            Rule(
                "MD.53",
                "the removal of a replica raises the leader epoch",
                wrong=(
                    Mutant(
                        "8 a replica removed and added again keeps its progress",
                        simulation=replication.removed_replica_keeps_progress,
                    ),
                ),
            ),
            Rule(
                "MD.54",
                "an unclean election happens only where a topic allows it. The controller counts it and logs it",
            ),
            Rule(
                "MD.55",
                "controlled shutdown. It waits for a joiner if an ISR would fall below min.insync.replicas",
                wrong=(Mutant("shell a broker that stops does not hand over", simulation=shell.no_hand_over),),
            ),
            Rule(
                "MD.56",
                "a setting of a topic has one value for all brokers: the value that was set, else the value that the "
                "topic was made with, else the built-in one",
                wrong=(
                    Mutant("KIP-966 the broker's own default counts", simulation=settings.own_default_counts),
                    Mutant("V18 a broker's own configuration counts", simulation=repairs.own_configuration_counts),
                ),
            ),
            Rule(
                "MD.57",
                "a change of min.insync.replicas and the states that follow from it are one decision. If the new "
                "value is at most the size of the ISR, a partition with a leader has no eligible replica any more, "
                "and a partition without one keeps all of its eligible replicas. A higher value makes no replica "
                "eligible",
                wrong=(Mutant("KIP-966 min is lowered and the eligible stay", simulation=settings.eligible_stay),),
            ),
            Rule(
                "MD.58",
                "a replica whose disk failed leaves the ISR, and another replica leads. It stays eligible. A later "
                "life reports what it found",
                wrong=(
                    Mutant("shell a replica that failed is not said", simulation=shell.failed_replica_is_not_said),
                    Mutant(
                        "shell an error of a disk is logged and goes no further",
                        simulation=shell.disk_error_is_logged_only,
                    ),
                ),
            ),
            Rule("MD.59", "settings of compaction have their level, and a compacted typed topic has key columns"),
            Rule("MD.60", "a refused request changes nothing"),
        ),
    ),
)
