"""The decisions of a transaction block, without I/O and without Spark: docs/spec/connector.md § 6.7.

    caller                          call, and time of it                      then
    the block, at its begin         Enlist: the attempt has begun             ALREADY: no task of the block writes
    a write, `writer()`             it takes a number in the block
    a task                          Enlist, in the block's attempt            as in sink_protocol.py
    a write, `commit`               no call: it hands its winners over        (hand_over)
    the block, at its end           End, with the winners of all writes       (joint_end)
                                    nothing, after ALREADY                    it raises unless this is a replay
    the block, after an exception   Abort of the attempt

The winners of a write are in the hand-over that Spark's commit of the write makes. So a write that failed, or that is
not over, has none. The block knows how many writes have begun. It commits nothing if a hand-over is missing.

A task number of the coordinator names one part of the attempt's work, and of several producers with one number one can
win. So each write of the block has task numbers of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from minilog.transactions import AlreadyCommitted, Attempt, Contents, Winner, WrittenPartition
from pyspark_minilog.errors import InconsistentWrite, NotAReplay
from pyspark_minilog.writing.replay_facts import NO_FACTS, Facts, check_same, facts_of_block
from pyspark_minilog.writing.sink_protocol import End, TaskReport, commit_decision

TASKS_PER_WRITE = 2**20
MAX_WRITES = 2**11 - 1  # the coordinator's task numbers are below 2**31
FUNCTION = "pyspark_minilog.transaction"


@dataclass(frozen=True, slots=True)
class BegunBlock:
    """The facts of a block that its writes need. With `is_committed` no task writes anything. `servers` are those of
    the block, sorted: a write to another cluster is none of its transaction. With `sums_rows` the tasks sum their rows,
    since the block does not know the offsets of these."""

    attempt: Attempt
    is_committed: bool
    servers: tuple[str, ...]
    sums_rows: bool = True

    def to_json(self) -> str:
        return json.dumps(
            {
                "transactional_id": self.attempt.transactional_id,
                "generation": self.attempt.generation,
                "attempt_id": self.attempt.attempt_id.hex(),
                "run_id": self.attempt.run_id.hex(),
                "is_committed": self.is_committed,
                "servers": self.servers,
                "sums_rows": self.sums_rows,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> BegunBlock:
        named = json.loads(text)
        attempt_id, run_id = (bytes.fromhex(named[name]) for name in ("attempt_id", "run_id"))
        attempt = Attempt(named["transactional_id"], named["generation"], attempt_id, run_id)
        return cls(attempt, named["is_committed"], tuple(named["servers"]), named["sums_rows"])


@dataclass(frozen=True, slots=True)
class HandOver:
    """The result of one write. `facts` are the `facts_of_rows` of the write. `pending` is the version of a topic's
    schema that the write wants, and that the block makes the latest."""

    rows: int
    facts: Facts
    winners: tuple[Winner, ...] = ()
    coordinator_epoch: int = 0
    pending: tuple[str, int] | None = None

    def to_json(self) -> str:
        winners = [
            [winner.producer_id, [[at.topic_id.hex(), at.partition, at.last_sequence] for at in winner.partitions]]
            for winner in self.winners
        ]
        named = {"rows": self.rows, "facts": self.facts.to_hex(), "winners": winners, "epoch": self.coordinator_epoch}
        return json.dumps({**named, "pending": self.pending})

    @classmethod
    def from_json(cls, text: str) -> HandOver:
        named = json.loads(text)
        winners = tuple(
            Winner(producer_id, tuple(WrittenPartition(bytes.fromhex(topic_id), *rest) for topic_id, *rest in places))
            for producer_id, places in named["winners"]
        )
        pending = named["pending"] and (named["pending"][0], named["pending"][1])
        return cls(named["rows"], Facts.from_hex(named["facts"]), winners, named["epoch"], pending)


def block_attempt(name: str, batch_id: int, run_id: str, attempt_id: bytes) -> Attempt:
    """One attempt at a block. In a foreachBatch the run id is that of the query, and otherwise a random one."""
    return Attempt(name, batch_id, attempt_id, run_id.encode())


def hand_over(reports: Sequence[TaskReport | None], block: BegunBlock, facts: Facts) -> HandOver:
    """The result of a write whose tasks have all reported. Raises InconsistentWrite if the reports are not those of one
    write in the block's attempt."""
    begun = AlreadyCommitted(block.attempt, None) if block.is_committed else None
    decision = commit_decision(reports, begun=begun, check_replay=False)
    rows = sum(report.rows for report in reports if report is not None)
    if not isinstance(decision, End):
        if rows and not block.is_committed:
            raise InconsistentWrite(f"another run has committed {block.attempt} while this block was writing")
        return HandOver(rows, facts)
    if decision.attempt != block.attempt:
        raise InconsistentWrite(f"tasks wrote in different attempts: {block.attempt}, and {decision.attempt}")
    return HandOver(rows, facts, decision.winners, decision.coordinator_epoch)


def joint_end(
    attempt: Attempt,
    begun_count: int,
    writes: Mapping[int, HandOver],
    offsets: Iterable[tuple[str, str, int, int]],
    of_batch: Facts = NO_FACTS,
) -> tuple[End, Facts]:
    """The commit of a block, and its facts. `writes` are the hand-overs by the number of the write, of `begun_count`
    writes. `offsets` are (group, topic, partition, offset). `of_batch` has what Spark says of the micro-batch. Raises
    InconsistentWrite if a hand-over is missing."""
    if missing := [number + 1 for number in range(begun_count) if number not in writes]:
        raise InconsistentWrite(
            f"{attempt} has {begun_count} writes, and number {', '.join(map(str, missing))} of them failed, or is not "
            f"over: let its exception leave the block of {FUNCTION}, and end all writes inside of the block. Nothing "
            "of the block is committed"
        )
    results = [writes[number] for number in range(begun_count)]
    winners = tuple(winner for result in results for winner in result.winners)
    facts = facts_of_block((result.facts for result in results if result.rows), offsets, of_batch)
    contents = Contents(sum(result.rows for result in results), facts.stored())
    return End(attempt, winners, contents, max((result.coordinator_epoch for result in results), default=0)), facts


def pending_versions(writes: Mapping[int, HandOver]) -> list[tuple[str, int]]:
    """The versions of schemas that the writes want, each once."""
    return sorted({write.pending for write in writes.values() if write.pending is not None})


def check_replayed_block(before: AlreadyCommitted, now: Facts, rows: int | None) -> None:
    """Raises NotAReplay if a committed block is another one than this. `rows` is None at the begin of a block."""
    if before.contents is None:  # each block has told what it has
        raise NotAReplay(
            f"{before.attempt} is committed already, by a program that is no block of {FUNCTION}. Nothing is written "
            "now. Give the block a name of its own"
        )
    advice = f"Perhaps another block of {FUNCTION} has the same name: give each block a name of its own"
    check_same(before, now, rows, is_stream=False, advice=advice)


def check_left_out(before: AlreadyCommitted) -> None:
    """Raises NotAReplay if the program has left out all writes of a committed block with rows, and nothing but these
    rows would show that it is a replay."""
    if before.contents is not None and before.contents.rows:
        raise NotAReplay(
            f"{before.attempt} is committed already, with {before.contents.rows} rows, and nothing shows that this "
            f"block of {FUNCTION} is its replay: it has left out its writes, and does not know the offsets of its "
            "micro-batch. Give the block the option checkpointLocation: the checkpoint of the query, as a folder that "
            "Spark's driver can read. Or let the block write its rows: the sink compares them, and does not write them "
            "again. Or, if this is a replay, set checkReplay to false"
        )
