"""What the sink decides, without I/O and without Spark: docs/spec/connector.md § 6.

    who                       calls, and when                                   then
    the driver of a batch     Enlist, in `writer()`: the attempt has begun      ALREADY: no task writes anything
    a task                    Enlist, at its first row                          ALREADY: it drains its input
                              Abort of its own producer, where it fails         it raises
                              nothing else: it reports what it wrote            when all of it is acknowledged
    the driver, commit        End, naming the producers that reported           (commit_decision)
                              nothing, where tasks were told ALREADY            it raises unless this is a replay
    the driver, abort         Abort of the attempt; where no task has reported  (abort_decision)
                              it, of that which carries the driver's mark

Spark hands `commit` one report for each partition, of the task attempt that it let win; what others wrote is aborted
since nobody names it. Names come from Spark where it has one that lives as long as what it names: T and G from the
query and the batch, R from the run. Task and stage attempts have none: (partition, attempt) repeats, and so a task is
known by the producer id that it was given. A batch write to one topic has the topic in T: several writes of one name
and version, to a topic each, are each written once, as with tables of Delta.

A checkpoint that was set back by one batch asks for the generation that is committed, as a replay does. What both have
the same, however Spark cuts and orders the rows and whatever a function like uuid() puts into them, is kept with the
generation: how many rows there were, and a digest. That of a stream is of the offsets that the rows were read from,
where those are known, and that of a batch write of the topics and the columns that were written.

Spark makes a stream's writer twice in a micro-batch, in two processes that share nothing: one for the tasks, and one
that commits or aborts. So that the second can name an attempt of which no task has reported anything (`query.stop()`
kills them all), its id begins with a mark that both can make: of this driver's life, and of the query's options.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minilog.transactions import AlreadyCommitted, Attempt, Contents, Enlistment, Winner
from pyspark_minilog.errors import InconsistentWrite, NotAReplay

STREAM_PREFIX = "spark-"
BATCH_PREFIX = "spark-write-"
_MARK_BYTES = 16
# Options of which no two queries that run in one driver have the same: Spark refuses it.
_ONE_QUERY = ("checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task attempt did with its rows. Without a part it has not enlisted, and names nobody. `topics`: where
    rows would go that are committed already. `oldest_us`: by topic, when the oldest row that it wrote was."""

    rows: int
    part: Enlistment | AlreadyCommitted | None = None
    winner: Winner | None = None
    topics: frozenset[str] = frozenset()
    oldest_us: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class End:
    """Commit: these producers won."""

    attempt: Attempt
    winners: tuple[Winner, ...]
    contents: Contents
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class Abort:
    """All of the attempt is aborted, and it is over."""

    attempt: Attempt
    coordinator_epoch: int


def stream_attempt(query_id: str, batch_id: int, run_id: str, attempt_id: bytes) -> Attempt:
    """One attempt at a micro-batch. The query id is the checkpoint's, and the run id new at every start."""
    return Attempt(STREAM_PREFIX + query_id, batch_id, attempt_id, run_id.encode())


def batch_attempt(
    transactional_id: str | None, topic: str | None, version: int, random_id: str, attempt_id: bytes
) -> Attempt:
    """One attempt at a batch write, which is a run of its own; without a transactional id it has one that is never
    used again. `topic`: None where each row names its own. No topic has a colon in its name."""
    name = BATCH_PREFIX + random_id if transactional_id is None else f"{transactional_id}:{topic or ''}"
    return Attempt(name, version, attempt_id, random_id.encode())


def attempt_mark(driver: str | None, options: Mapping[str, str]) -> bytes:
    """What the ids of all attempts of one query in one life of a driver begin with; empty where nothing tells the query
    from others. `driver`: a name that no other driver has."""
    named = {key.lower(): value for key, value in options.items()}
    if not driver or not any(option in named for option in _ONE_QUERY):
        return b""
    return hashlib.sha256(json.dumps([driver, sorted(named.items())]).encode()).digest()[:_MARK_BYTES]


def written_digest(columns: Iterable[str], topic_ids: Iterable[bytes]) -> bytes:
    """Of what a batch write has written: which columns, to which topics. A topic that was deleted and created again is
    another one."""
    written = [sorted(columns), sorted(topic_id.hex() for topic_id in set(topic_ids))]
    return hashlib.sha256(json.dumps(written).encode()).digest()


def commit_decision(
    reports: Sequence[TaskReport | None],
    *,
    begun: Enlistment | AlreadyCommitted | None = None,
    batch_id: int | None = None,
    digest: bytes = b"",
    check_replay: bool = True,
) -> End | Abort | None:
    """What the driver calls once all tasks have reported; None: nothing is to be called.

    `begun`: what the driver was answered itself, of a batch write. `batch_id`: which micro-batch Spark commits.
    `digest`: of a micro-batch the offsets that it was read from, of a batch write `written_digest`; empty: not known.
    `check_replay`: whether what is committed already must be the same. Raises InconsistentWrite: nothing may be
    committed, since what was reported is not one attempt, and whole; NotAReplay: what is committed is something else.
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
        if check_replay:
            before = next(part for part in (begun, *parts) if isinstance(part, AlreadyCommitted))
            _check_replay(before, Contents(_rows(reports), digest), is_stream=batch_id is not None)
        return None  # it was committed before, by another run
    if not enlistments or not _rows(reports):  # a task that waited for long has enlisted before it had any row
        return next((_abort(part) for part in (begun, *enlistments) if isinstance(part, Enlistment)), None)
    attempt = _one_attempt([*enlistments, *([begun] if isinstance(begun, Enlistment) else [])])
    if batch_id is not None and attempt.generation != batch_id:
        raise InconsistentWrite(f"Spark commits micro-batch {batch_id}, but its tasks wrote {attempt}")
    winners = tuple(report.winner for report in reports if report is not None and report.winner is not None)
    if [participant.producer_id for participant in winners] != [participant.producer_id for participant in enlistments]:
        raise InconsistentWrite(f"not every task of {attempt} has reported what it wrote")
    epochs = [part.coordinator_epoch for part in (*enlistments, begun) if isinstance(part, Enlistment)]
    return End(attempt, winners, Contents(_rows(reports), digest), max(epochs))


def _rows(reports: Sequence[TaskReport | None]) -> int:
    return sum(report.rows for report in reports if report is not None)


def _check_replay(before: AlreadyCommitted, now: Contents, *, is_stream: bool) -> None:
    """Raises NotAReplay. What nobody knows of one of the two is not compared."""
    held = before.contents
    if held is None:
        return
    if held.rows != now.rows:
        differs = f"the committed write has {held.rows} rows, and this write has {now.rows} rows"
    elif held.offsets_digest and now.offsets_digest and held.offsets_digest != now.offsets_digest:
        those = "come from other offsets" if is_stream else "went to other topics, or have other columns,"
        differs = f"the {held.rows} committed rows {those} than the rows of this write"
    else:
        return
    raise NotAReplay(
        f"{before.attempt} is committed already, and this write is no replay of it: {differs}. Nothing is written now. "
        "Perhaps somebody set the checkpoint back, or restored it: put the checkpoint back as it was after that "
        "batch, or begin with a new checkpoint behind the written records. Perhaps another write has the same "
        "version: give it another transactionVersion or transactionalId. If this is the same work, and it does not "
        "have the same number of rows each time, set checkReplay to false"
    )


def abort_decision(
    reports: Sequence[TaskReport | None], *, begun: Enlistment | AlreadyCommitted | None = None
) -> Abort | None:
    """What the driver calls where the write has failed, perhaps in its commit. None: nobody is known who could be
    named; take-over and time-out will end what is open."""
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
