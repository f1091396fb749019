"""The sink in Spark's hands: a write is one transaction (docs/spec/connector.md § 6). sink_protocol.py decides.

Each task sends its Arrow batches with a producer of its own, and returns when all of its rows are acknowledged; the
driver then names the tasks that won. The input is always drained (docs/spec/connector.md § 1), or an exception ends the
task. With exactlyOnce=false there is no transaction: a task or batch that Spark runs again writes its rows again.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_minilog.checkpoint import offsets_digest
from pyspark_minilog.error_display import hides_traceback
from pyspark_minilog.old_rows import NEW_MS, older, oldest_us, too_old
from pyspark_minilog.options import SinkOptions
from pyspark_minilog.sink import SinkPlan
from pyspark_minilog.sink_protocol import (
    Abort,
    End,
    TaskReport,
    abort_decision,
    batch_attempt,
    commit_decision,
    stream_attempt,
    written_digest,
)
from pyspark_minilog.task_login import TaskLogin, as_task, task_login
from pyspark_minilog.task_part import TaskPart

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

    from minilog import Producer
    from minilog.sync.transaction import Participation
    from minilog.transactions import AlreadyCommitted, Attempt, Enlistment
    from pyspark_minilog.typed_plan import TypedPlan

logger = logging.getLogger(__name__)

_OWNED_SETTINGS = {"acks": "all", "enable.idempotence": "true"}
_TRANSACTIONAL = {"transactional.id": "spark"}  # one producer for all attempts: each says its own to the coordinator
# Of silence of all tasks, after which what they have open is aborted, where nothing else is said. Each gives a sign of
# life every 12 s; who has read no row for so long as below begins with that.
_TIMEOUT_MS = 60_000
_EARLY_S = 10.0
_QUERY_ID, _BATCH_ID, _RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    report: TaskReport


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: one instance on the driver throughout, pickled to the tasks."""

    def __init__(self, options: SinkOptions, plan: SinkPlan | TypedPlan) -> None:
        self._options = options
        self._plan = plan
        self._begun: Enlistment | AlreadyCommitted | None = None
        self._login: TaskLogin | None = None

    def begin(self) -> Self:
        """On the driver, before any task: this write takes over from others of its name. Raises InvalidOption,
        MinilogError."""
        self._login = task_login(self._options)
        if self._options.exactly_once:
            from minilog.sync.transaction import Transactions
            from pyspark_minilog.clients import lend

            attempt = batch_attempt(
                self._options.transactional_id,
                self._options.topic,
                self._options.transaction_version,
                str(uuid.uuid4()),
                os.urandom(16),
            )
            with lend(Transactions, self._options.client) as transactions:
                self._begun = transactions.enlist(attempt, expires=True)
        return self

    @hides_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send one task's rows. Raises InvalidOption, MinilogError."""
        from minilog.transactions import AlreadyCommitted

        options = as_task(self._options, self._login)
        match self._begun:
            case None:
                return Written(write_batches(options, self._plan, iterator))
            case AlreadyCommitted():
                return Written(_drained(self._plan, iterator, self._begun))
            case begun:
                return Written(write_part(options, self._plan, iterator, begun.attempt, expires=True))

    @hides_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All of it becomes visible. Raises MinilogError, UnknownOutcome where nobody can say whether it did."""
        reports = _reports(messages)
        options = self._options
        digest = written_digest(self._plan.columns, _topic_ids(options, reports))
        _carry_out(
            options, commit_decision(reports, begun=self._begun, digest=digest, check_replay=options.check_replay)
        )
        _tell_of_a_replay(reports)
        _tell_of_old_rows(options, reports)

    @hides_traceback
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """None of it ever does, unless it was committed."""
        _give_up(self._options, abort_decision(_reports(messages), begun=self._begun))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`, made once for each micro-batch and pickled to its tasks: its attempt id is theirs. `commit` and
    `abort` run on another instance, which knows the tasks' messages, and the mark that the attempt's id begins with."""

    def __init__(
        self, options: SinkOptions, plan: SinkPlan | TypedPlan, login: TaskLogin | None = None, mark: bytes = b""
    ) -> None:
        self._options = options
        self._plan = plan
        self._login = login
        self._mark = mark
        self._attempt_id = mark + os.urandom(16)

    @hides_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send one task's rows. Raises InvalidOption, MinilogError."""
        options = as_task(self._options, self._login)
        if not options.exactly_once:
            return Written(write_batches(options, self._plan, iterator))
        return Written(write_part(options, self._plan, iterator, _stream_attempt(self._attempt_id)))

    @hides_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """The micro-batch becomes visible, once. Raises MinilogError, UnknownOutcome."""
        reports, options = _reports(messages), self._options
        if options.exactly_once:
            decision = commit_decision(
                reports,
                batch_id=batchId,
                digest=offsets_digest(options.checkpoint, batchId),
                check_replay=options.check_replay,
            )
            _carry_out(options, decision)
            _tell_of_a_replay(reports)
        _tell_of_old_rows(options, reports)

    @hides_traceback
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """This attempt at it never does, unless it was committed."""
        if self._options.exactly_once:
            reports = _reports(messages)
            _give_up(self._options, abort_decision(reports) or self._unreported(reports, batchId))

    def _unreported(self, reports: Sequence[TaskReport | None], batch_id: int) -> Abort | None:
        """The attempt, where no task that was in it has come to report it."""
        if not self._mark or None not in reports:
            return None
        from minilog.errors import MinilogError
        from pyspark_minilog.open_attempt import open_attempt

        try:
            return open_attempt(self._options, batch_id, self._mark)
        except MinilogError as error:
            logger.warning("micro-batch %d is not aborted yet, and its time-out will abort it: %s", batch_id, error)
            return None


# -- tasks


def _stream_attempt(attempt_id: bytes) -> Attempt:
    from pyspark import TaskContext

    context = TaskContext.get()
    properties = {name: context and context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID, _RUN_ID)}
    missing = [name for name, value in properties.items() if not value]
    if missing:
        raise RuntimeError(
            f"Spark does not give the task {', '.join(missing)}, and an exactly-once write needs it: is this a "
            "streaming query? A write with exactlyOnce=false does not need it"
        )
    return stream_attempt(
        str(properties[_QUERY_ID]), int(str(properties[_BATCH_ID])), str(properties[_RUN_ID]), attempt_id
    )


def write_part(
    options: SinkOptions,
    plan: SinkPlan | TypedPlan,
    batches: Iterator[pa.RecordBatch],
    attempt: Attempt,
    *,
    expires: bool = False,
) -> TaskReport:
    """One task's part of a transaction. Raises the first error of any row, its producer aborted."""
    batches = (batch for batch in batches if batch.num_rows)
    with TaskPart(lambda stack: _open_part(options, attempt, stack, expires=expires), _EARLY_S) as task:
        first = next(batches, None)
        opened = task.begun(has_rows=first is not None)
        if opened is None:  # an empty task connects to nobody
            return TaskReport(0)
        rest = batches if first is None else chain([first], batches)
        if opened.committed is not None:
            return _drained(plan, rest, opened.committed)
        rows, oldest = _send(opened.producer, plan, rest)
        return TaskReport(rows, opened.enlistment, opened.participation.finish(), oldest_us=oldest)


@dataclass(frozen=True)
class _OpenPart:
    """A task that has enlisted, or was told that all of it is committed."""

    producer: Producer
    participation: Participation
    enlistment: Enlistment | None
    committed: AlreadyCommitted | None


def _open_part(options: SinkOptions, attempt: Attempt, stack: ExitStack, *, expires: bool) -> _OpenPart:
    from minilog import Producer
    from minilog.transactions import AlreadyCommitted
    from pyspark_minilog.clients import lend

    silence = {"transaction.timeout.ms": str(_TIMEOUT_MS)} if options.has_default_timeout else {}
    settings = {**options.client, **silence, **_OWNED_SETTINGS, **_TRANSACTIONAL}
    producer = stack.enter_context(lend(Producer, settings))
    participation = stack.enter_context(producer.participation())
    part = participation.begin(attempt, task=_task(), expires=expires)
    if isinstance(part, AlreadyCommitted):
        return _OpenPart(producer, participation, None, part)
    return _OpenPart(producer, participation, part, None)


def write_batches(options: SinkOptions, plan: SinkPlan | TypedPlan, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Send all rows and wait until each is acknowledged, without a transaction. Raises the first error of any."""
    from minilog import Producer
    from pyspark_minilog.clients import lend

    first = next(batches, None)
    if first is None:  # an empty task connects to nobody
        return TaskReport(0)
    # A transactional.id of the host's environment is none of ours.
    with lend(Producer, {**options.client, **_OWNED_SETTINGS, "transactional.id": ""}) as producer:
        rows, oldest = _send(producer, plan, chain([first], batches))
        return TaskReport(rows, oldest_us=oldest)


def _send(
    producer: Producer, plan: SinkPlan | TypedPlan, batches: Iterator[pa.RecordBatch]
) -> tuple[int, dict[str, int]]:
    """How many rows there were, and when the oldest one of each topic was, when each is acknowledged."""
    rows = 0
    oldest: dict[str, int] = {}
    waiting: deque[Future[Any]] = deque()  # bounded by the producer's buffer.memory, which send_batch waits for
    for batch in batches:
        for payload in plan.payloads(batch):
            topic, partition, columns, schema = payload
            if (at_us := oldest_us(payload)) is not None:
                oldest = older(oldest, {topic: at_us})
            waiting.append(producer.send_batch(topic, columns, partition, schema=schema))
        rows += batch.num_rows
        while waiting and waiting[0].done():
            waiting.popleft().result()
    producer.flush()
    for sent in waiting:
        sent.result()
    return rows, oldest


def _task() -> int | None:
    """Which part of the write this is; of several task attempts at it one can win."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.partitionId()


def _drained(plan: SinkPlan | TypedPlan, batches: Iterable[pa.RecordBatch], committed: AlreadyCommitted) -> TaskReport:
    """What there was, of which nothing is written."""
    rows, topics = 0, frozenset[str]()
    for batch in batches:
        rows += batch.num_rows
        topics |= plan.topics(batch)
    return TaskReport(rows, committed, topics=topics)


# -- the driver


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport | None]:
    return [message.report if isinstance(message, Written) else None for message in messages]


def _topic_ids(options: SinkOptions, reports: Sequence[TaskReport | None]) -> set[bytes]:
    """Of the topics that the rows were written to; where they are committed already, of those that they would go to."""
    written = {
        partition.topic_id for report in reports if report and report.winner for partition in report.winner.partitions
    }
    named = sorted({name for report in reports if report is not None for name in report.topics})
    if not named:
        return written
    from minilog import Admin
    from pyspark_minilog.clients import lend

    with lend(Admin, options.client) as admin:
        return {uuid.UUID(topic.id).bytes for topic in admin.describe_topics(named, missing_ok=True)}


def _carry_out(options: SinkOptions, decision: End | Abort | None) -> None:
    match decision:
        case End(attempt, winners, contents, coordinator_epoch):
            from minilog.sync.transaction import Transactions
            from minilog.transactions import TransactionOutcome
            from pyspark_minilog.clients import lend

            with lend(Transactions, options.client) as transactions:
                outcome = transactions.commit(attempt, winners, contents, coordinator_epoch=coordinator_epoch)
            if outcome is not TransactionOutcome.COMMITTED:
                logger.warning("%s is committed, but some partitions do not show it yet", attempt)
        case Abort():
            _give_up(options, decision)


def _tell_of_old_rows(options: SinkOptions, reports: Sequence[TaskReport | None]) -> None:
    """Nothing is wrong with the write, which is committed; nor may it fail by this."""
    oldest: dict[str, int] = {}
    for report in reports:
        oldest = older(oldest, {} if report is None else report.oldest_us)
    now_ms = time.time_ns() // 1_000_000
    oldest = {topic: at_us for topic, at_us in oldest.items() if at_us // 1000 < now_ms - NEW_MS}
    if not oldest:
        return
    from minilog import Admin
    from minilog.errors import MinilogError
    from pyspark_minilog.clients import lend

    try:
        with lend(Admin, options.client) as admin:
            topics = admin.describe_topics(sorted(oldest), missing_ok=True)
    except MinilogError as error:
        logger.debug("the retention of the topics with old rows is not known: %s", error)
        return
    kept = {topic.name: int(topic.configs["retention.ms"]) for topic in topics if "retention.ms" in topic.configs}
    for sentence in too_old(oldest, kept, now_ms):
        logger.warning("%s", sentence)


def _tell_of_a_replay(reports: Sequence[TaskReport | None]) -> None:
    """Not to write is right then, and worth a line."""
    from minilog.transactions import AlreadyCommitted

    replayed = [
        (report.rows, report.part.attempt) for report in reports if report and isinstance(report.part, AlreadyCommitted)
    ]
    if replayed:
        rows, attempt = sum(count for count, _ in replayed), replayed[0][1]
        logger.warning("an earlier run committed %s: this run does not write its %s rows again", attempt, rows)


def _give_up(options: SinkOptions, decision: Abort | None) -> None:
    """Where the coordinator cannot be told, it will find out: by the time-out, or when the next attempt takes over."""
    if decision is None:
        return
    from minilog.errors import MinilogError
    from minilog.sync.transaction import Transactions
    from minilog.transactions import TransactionOutcome
    from pyspark_minilog.clients import lend

    try:
        with lend(Transactions, options.client) as transactions:
            outcome = transactions.abort(decision.attempt, coordinator_epoch=decision.coordinator_epoch)
    except MinilogError as error:
        sentence = "%s is not aborted yet, and its time-out or the next attempt will abort it: %s"
        logger.warning(sentence, decision.attempt, error)
        return
    if outcome is TransactionOutcome.COMMITTED:
        logger.warning("%s was committed before the abort came: nothing has changed", decision.attempt)
