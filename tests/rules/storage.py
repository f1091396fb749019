"""Disks, clocks, and what is read from others."""

from __future__ import annotations

from tests.rules import Mutant, Rule, Section
from tests.simulation.mutants import repairs, shell, storage

SECTIONS = (
    Section(
        "Disks, clocks and what is read from others",
        (
            "docs/spec/replication.md#eligible-leaders-and-damage",
            "docs/spec/replication.md#deleting-records",
            "docs/spec/formats.md",
            "docs/spec/quorum.md#clocks-and-own-delays",
        ),
        (
            Rule(
                "DK.1", "the log, the epoch cache and producer state equal a plain model, through crashes at any point"
            ),
            Rule(
                "DK.2",
                "a later version wrote the data: recovery ends and changes no file, followers and readers end, "
                "producers get a refusal, consumers refuse. A header that is not whole is damage nevertheless",
            ),
            Rule(
                "DK.3",
                "clients and brokers without a common version of the protocol refuse each other, and name the side "
                "that is too old",
            ),
            Rule(
                "DK.4",
                "in a scrub a majority of all replicas decides, in every case of up to five. A range has one digest "
                "for any segments. The scrub repairs rot that no reader has met. It also repairs a copy that differs "
                "under right checksums, the leader's copy, too. With two of two replicas, or two of three while one "
                "is away, it changes nothing. A copy that differs again is fetched again. The tests have wrong rules, "
                "and random faults (theme `scrubbed`)",
            ),
            Rule(
                "DK.5",
                "recovery finds a copy torn above all that is recorded, or damaged below it. The copy is in doubt if "
                "it was counted without a sync and the kernel went down. The broker remembers this until it has "
                "reported it",
                wrong=(
                    Mutant(
                        "V19 a valid batch behind an invalid one is damage",
                        simulation=repairs.valid_batch_behind_is_damage,
                    ),
                ),
            ),
            Rule(
                "DK.6",
                "the manifest has the segments of a log. One write swaps them. The manifest counts only if the "
                "checkpoint refers to it",
            ),
            Rule(
                "DK.7",
                "compaction puts one segment in the place of others. Each offset stays in one batch. A crash leaves "
                "the old segments or the new one. Readers read on",
            ),
            Rule(
                "DK.8",
                "the background jobs of a broker run in slices with a budget of bytes, one at a time. They take turns",
            ),
            Rule("DK.9", "the controller's replay does not wait for the reads of the followers of the metadata log"),
            Rule(
                "DK.10",
                "if all reads hang, the disk counts as one that does not answer",
                wrong=(
                    Mutant("shell a disk that does not answer is not said", simulation=shell.stalled_disk_is_not_said),
                    Mutant(
                        "shell a controller whose disk does not answer goes on",
                        simulation=shell.controller_with_a_stalled_disk_goes_on,
                    ),
                ),
            ),
            Rule(
                "DK.11",
                "if the flush policy changes while a broker runs, the weaker policy counts for the records written "
                "meanwhile",
            ),
            Rule(
                "DK.12",
                "if one log cannot be read, its replica is offline, and the others serve. The same holds for a "
                "foreign file, an unknown owner and a stray log",
                wrong=(
                    Mutant(
                        "32 strays deleted while the image is behind",
                        simulation=storage.strays_before_the_image_is_there,
                    ),
                    Mutant(
                        "shell what a former log's disk answers is the new one's", simulation=shell.former_log_answers
                    ),
                    Mutant(
                        "V19 a log that cannot be read ends the start", simulation=repairs.unreadable_log_ends_the_start
                    ),
                ),
            ),
            Rule(
                "DK.13",
                "after a jump of the wall clock deletion by age stops, and no other deletion. When the clock is set "
                "back, it goes on",
            ),
            Rule(
                "DK.14", "the metadata log, votes and checkpoints have a reserve of disk space, which data cannot use"
            ),
            Rule(
                "DK.15",
                "if a leader's disk is full, another replica leads if it can. No ISR waits. Full brokers do not hand "
                "leadership to each other",
            ),
            Rule("DK.16", "a follower reports loudly if its leader lacks committed records"),
            Rule(
                "DK.17",
                "the memory that clients hold is bounded over all connections. The broker cuts the connections that "
                "hold too much, those of other brokers last",
            ),
            Rule("DK.18", "an idle stream keeps no message"),
            Rule(
                "DK.19",
                "a pool of few open files serves many logs. A dirty file is synced before it is closed. The owner of "
                "the file gets an error of this sync",
            ),
            Rule("DK.20", "a process without a free descriptor ends"),
            Rule(
                "DK.21",
                "every decoder of bytes from a peer or a disk reads them, or refuses them with a known error, within "
                "bounds",
            ),
            Rule("DK.22", "the cores answer senseless messages or drop them, within bounds, and go on"),
        ),
    ),
)
