"""The decisions of the sink, without I/O and without Spark: docs/spec/connector.md § 6.

    caller                    call, and time of it                              then
    the driver of a batch     Enlist, in `writer()`: the attempt has begun      ALREADY: no task writes anything
    a task                    Enlist, at its first row                          ALREADY: it drains its input
                              Abort of its own producer, if it fails            it raises
                              nothing else: it reports its rows                 when all of them are acknowledged
    the driver, commit        End, with the producers that reported             (commit_decision)
                              nothing, if tasks got ALREADY                     it raises unless this is a replay
    the driver, abort         Abort of the attempt, or, if no task has          (abort_decision)
                              reported it, of the one with the driver's mark

Spark hands `commit` one report for each partition, from the task attempt that won. The driver names no other producer,
so the rows of the other attempts are aborted. Spark's own names are used where they live long enough: T and G come from
the query and the batch, R from the run. Task and stage attempts have no such name, because (partition, attempt)
repeats. So the producer id identifies a task. A batch write to one topic has the topic in T. So several writes of one
name and version, each to a topic of its own, are each written once, as with tables of Delta.

A checkpoint that was set back by one batch asks for the committed generation, as a replay does. So the coordinator
keeps facts with a generation that a replay has in common with the first write, however Spark cuts and orders the rows
and whatever a function like uuid() puts into them: the number of rows, and those of replay_facts.py.

Spark makes a stream's writer twice in a micro-batch, in two processes that share nothing. One is for the tasks, and the
other commits or aborts. The second must name an attempt even if no task has reported it (`query.stop()` kills all
tasks). So the attempt's id begins with a mark that both can make, of this driver's life and of the query's options.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from minilog.transactions import AlreadyCommitted, Attempt, Contents, Enlistment, Winner
from pyspark_minilog.errors import InconsistentWrite
from pyspark_minilog.writing.replay_facts import NO_FACTS, Facts, MicroBatch, check_other_run, check_same

STREAM_PREFIX = "spark-"
BATCH_PREFIX = "spark-write-"
_MARK_BYTES = 16
SUM_BITS = 64  # of a sum of rows
_OTHER_WRITE = (
    "Perhaps another write has the same version: give it another transactionVersion or transactionalId, or write both "
    "in one block of pyspark_minilog.transaction"
)
# Spark refuses two running queries of one driver with the same value of one of these options.
_ONE_QUERY = ("checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of one task attempt. Without a part the attempt has not enlisted, and names no producer: `attempt` is
    the one in which it would have. `topics` has the topics of rows that are committed already. `oldest_us` has the time
    of the oldest written row, by topic. `micro_batch` says where a batch write runs. `values` is the sum of the rows
    (row_sums.py), None if nobody has summed them."""

    rows: int
    part: Enlistment | AlreadyCommitted | None = None
    winner: Winner | None = None
    topics: frozenset[str] = frozenset()
    oldest_us: Mapping[str, int] = field(default_factory=dict)
    attempt: Attempt | None = None
    micro_batch: MicroBatch | None = None
    values: int | None = None


@dataclass(frozen=True, slots=True)
class End:
    """Commit the rows of these producers."""

    attempt: Attempt
    winners: tuple[Winner, ...]
    contents: Contents
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Abort all of the attempt, and end it."""

    attempt: Attempt
    coordinator_epoch: int


def stream_attempt(query_id: str, batch_id: int, run_id: str, attempt_id: bytes) -> Attempt:
    """One attempt at a micro-batch. The checkpoint has the query id, and the run id is new at each start."""
    return Attempt(STREAM_PREFIX + query_id, batch_id, attempt_id, run_id.encode())


def batch_attempt(
    transactional_id: str | None, topic: str | None, version: int, random_id: str, attempt_id: bytes
) -> Attempt:
    """One attempt at a batch write, which is a run of its own. Without a transactional id it gets a random one that no
    other write uses. `topic` is None if each row names its own topic. No topic has a colon in its name."""
    name = BATCH_PREFIX + random_id if transactional_id is None else f"{transactional_id}:{topic or ''}"
    return Attempt(name, version, attempt_id, random_id.encode())


def attempt_mark(driver: str | None, options: Mapping[str, str]) -> bytes:
    """The beginning of the ids of all attempts of one query in one life of a driver. Empty if no option distinguishes
    the query from others. `driver` is a name that no other driver has."""
    named = {key.lower(): value for key, value in options.items()}
    if not driver or not any(option in named for option in _ONE_QUERY):
        return b""
    return hashlib.sha256(json.dumps([driver, sorted(named.items())]).encode()).digest()[:_MARK_BYTES]


def commit_decision(
    reports: Sequence[TaskReport | None],
    *,
    begun: Enlistment | AlreadyCommitted | None = None,
    batch_id: int | None = None,
    facts: Facts = NO_FACTS,
    check_replay: bool = True,
    ends_empty: bool = False,
) -> End | Abort | None:
    """The driver's call after the reports of all tasks. None means no call.

    `begun` is the coordinator's answer to the driver itself, in a batch write, or in a stream that settles a queue. The
    latter `ends_empty`: it also commits a micro-batch without rows. `batch_id` is the micro-batch that Spark commits.
    `facts` are those that a replay of this write has, too. With `check_replay`, a committed generation must have the
    same ones. Raises InconsistentWrite if the reports are not one whole attempt, and NotAReplay if the committed write
    is another one. In both cases nothing is committed.
    """
    parts = [report.part for report in reports if report is not None and report.part is not None]
    if any(report is None for report in reports):
        raise InconsistentWrite(f"{reports.count(None)} of {len(reports)} tasks have reported nothing")
    enlistments = [part for part in parts if isinstance(part, Enlistment)]
    if len(enlistments) < len(parts) or isinstance(begun, AlreadyCommitted):
        if enlistments:
            raise InconsistentWrite(
                f"the coordinator answered {len(parts) - len(enlistments)} tasks that {enlistments[0].attempt} is "
                f"committed, and {len(enlistments)} tasks that it is open: did a command forget it meanwhile? Nothing "
                "more is committed"
            )
        before = next(part for part in (begun, *parts) if isinstance(part, AlreadyCommitted))
        if batch_id is None:
            check_other_run(before, facts)
        if check_replay:
            advice = _OTHER_WRITE if batch_id is None else ""
            check_same(before, facts, _rows(reports), is_stream=batch_id is not None, advice=advice)
        return None  # it was committed before, by another run
    if not ends_empty and (
        not enlistments or not _rows(reports)
    ):  # a task that waits for long enlists before its first row
        return next((_abort(part) for part in (begun, *enlistments) if isinstance(part, Enlistment)), None)
    attempt = _one_attempt([*enlistments, *([begun] if isinstance(begun, Enlistment) else [])])
    if batch_id is not None and attempt.generation != batch_id:
        raise InconsistentWrite(f"Spark commits micro-batch {batch_id}, but its tasks wrote {attempt}")
    winners = tuple(report.winner for report in reports if report is not None and report.winner is not None)
    if [participant.producer_id for participant in winners] != [participant.producer_id for participant in enlistments]:
        raise InconsistentWrite(f"not every task of {attempt} has reported what it wrote")
    epochs = [part.coordinator_epoch for part in (*enlistments, begun) if isinstance(part, Enlistment)]
    return End(attempt, winners, Contents(_rows(reports), facts.stored()), max(epochs))


def values_of(reports: Sequence[TaskReport | None]) -> int | None:
    """The sum of the rows of all tasks, if each task with rows has one."""
    sums = [report.values for report in reports if report is not None and report.rows]
    known = [each for each in sums if each is not None]
    return sum(known) % (1 << SUM_BITS) if len(known) == len(sums) else None


def _rows(reports: Sequence[TaskReport | None]) -> int:
    return sum(report.rows for report in reports if report is not None)


def abort_decision(
    reports: Sequence[TaskReport | None], *, begun: Enlistment | AlreadyCommitted | None = None
) -> Abort | None:
    """The driver's call after a failed write, perhaps a failed commit. None if no attempt is known. Then a take-over or
    the time-out ends the open transaction."""
    reported = [report.part for report in reports if report is not None]
    for part in (begun, *reported):
        if isinstance(part, Enlistment):
            return _abort(part)
    return None


def _abort(part: Enlistment) -> Abort:
    return Abort(part.attempt, part.coordinator_epoch)


def _one_attempt(enlistments: Sequence[Enlistment]) -> Attempt:
    attempts = list(dict.fromkeys(enlistment.attempt for enlistment in enlistments))
    if len(attempts) > 1:
        raise InconsistentWrite(f"tasks wrote in different attempts: {attempts[0]}, and {attempts[1]}")
    return attempts[0]
