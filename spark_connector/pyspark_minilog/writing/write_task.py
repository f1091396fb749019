"""The sink as Spark calls it. A write is one transaction (docs/spec/connector.md § 6). sink_protocol.py decides.

Each task sends its Arrow batches with a producer of its own, and returns when all of its rows are acknowledged. Then
the driver names the tasks that won. A task always reads all of its input (docs/spec/connector.md § 1), or an exception
ends it. With exactlyOnce=false there is no transaction: a task or batch that Spark runs again writes its rows again.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_minilog.error_display import hides_traceback
from pyspark_minilog.errors import refused
from pyspark_minilog.job_properties import BATCH_ID, CONNECT_OPERATION, QUERY_ID, RUN_ID
from pyspark_minilog.login.task_login import TaskLogin, as_task, task_login
from pyspark_minilog.options.table import SinkOptions
from pyspark_minilog.writing.checkpoint import offsets_digest, query_id
from pyspark_minilog.writing.old_rows import NEW_MS, older, oldest_us, too_old
from pyspark_minilog.writing.replay_facts import Facts, MicroBatch, facts_of_offsets, facts_of_rows, is_compared
from pyspark_minilog.writing.sink import SinkPlan
from pyspark_minilog.writing.sink_protocol import (
    SUM_BITS,
    Abort,
    End,
    TaskReport,
    abort_decision,
    batch_attempt,
    commit_decision,
    stream_attempt,
    values_of,
)
from pyspark_minilog.writing.task_part import TaskPart

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

    from minilog import Producer
    from minilog.sync.transaction import Participation
    from minilog.transactions import AlreadyCommitted, Attempt, Enlistment, Winner
    from pyspark_minilog.writing.typed_plan import TypedPlan
    from pyspark_minilog.writing.typed_sink import PlannedWrite

logger = logging.getLogger(__name__)

_OWNED_SETTINGS = {"acks": "all", "enable.idempotence": "true"}
_TRANSACTIONAL = {"transactional.id": "spark"}  # one producer serves all attempts, and names each to the coordinator
# The default time-out of a transaction. It counts from the last sign of life of any task. Each task gives one every
# 12 s. A task that has read no row for the time below begins with the signs of life.
_TIMEOUT_MS = 60_000
_EARLY_S = 10.0

CarryOut = Callable[[SinkOptions, End | Abort | None], None]


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The message of one task: its report, and the version of the schema that its rows have, 0 for none."""

    report: TaskReport
    schema_version: int = 0


@dataclass(frozen=True)
class Settlement:
    """What the driver adds to the commit of a micro-batch: `offsets` is the digest of those of all sources. A driver
    that settles the messages of a queue has a part of its own in the attempt: `begun`. `settles` is false if they are
    not settled, since their locks had ended. `settle` gives the driver's winner, and is called for a commit alone."""

    offsets: bytes
    begun: Enlistment | AlreadyCommitted | None = None
    settles: bool = True
    settle: Callable[[], Winner] | None = None

    def added_to(self, decision: End | Abort | None) -> End | Abort | None:
        """Raises LeaseLost, MinilogError."""
        if self.settle is None or not isinstance(decision, End):
            return decision
        return replace(decision, winners=(*decision.winners, self.settle()))


# Open while a micro-batch is committed. An error in between takes the driver's part back.
Settling = Callable[[SinkOptions, Sequence[TaskReport | None], int, CarryOut], AbstractContextManager[Settlement]]


@contextmanager
def without_settlement(
    options: SinkOptions, reports: Sequence[TaskReport | None], batch_id: int, carry_out: CarryOut
) -> Iterator[Settlement]:
    """The commit of a micro-batch of which no message is settled."""
    yield Settlement(offsets_digest(options.checkpoint, batch_id))


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write`. The driver has one instance for the whole write, and Spark pickles it to the tasks."""

    def __init__(self, options: SinkOptions, planned: PlannedWrite) -> None:
        self._options = options
        self._plan = planned.plan
        self._sums_rows = options.transactional_id is not None and not _knows_offsets(options)
        self._begun: Enlistment | AlreadyCommitted | None = None
        self._login: TaskLogin | None = None

    @classmethod
    def begin(cls, options: SinkOptions, planned: PlannedWrite) -> Self:
        """Begin the write, on the driver and before any task. It takes over from other writes of its name. Raises
        InvalidOption, MinilogError."""
        writer = cls(options, planned)
        writer._enlist()
        if not writer._is_committed:
            try:
                writer._plan = planned.carry_out(is_pending=options.exactly_once)
            except BaseException:
                writer.abort([])
                raise
        return writer

    @property
    def _is_committed(self) -> bool:
        from minilog.transactions import AlreadyCommitted

        return isinstance(self._begun, AlreadyCommitted)

    def _enlist(self) -> None:
        self._login = task_login(self._options)
        if self._options.exactly_once:
            from minilog.sync.transaction import Transactions
            from pyspark_minilog.login.clients import lend

            attempt = batch_attempt(
                self._options.transactional_id,
                self._options.topic,
                self._options.transaction_version,
                str(uuid.uuid4()),
                os.urandom(16),
            )
            with lend(Transactions, self._options.client) as transactions:
                self._begun = transactions.enlist(attempt, expires=True)

    @hides_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task. Raises InvalidOption, MinilogError."""
        from minilog.transactions import AlreadyCommitted

        options = as_task(self._options, self._login)
        match self._begun:
            case None:
                return Written(write_batches(options, self._plan, iterator))
            case AlreadyCommitted():
                report = drained(self._plan, iterator, self._begun)
            case begun:
                report = write_part(
                    options, self._plan, iterator, begun.attempt, expires=True, sums_rows=self._sums_rows
                )
        return Written(replace(report, micro_batch=_micro_batch_of_task()), version_of(self._plan))

    @hides_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make all rows visible. Raises MinilogError, and UnknownOutcome if the outcome is not known."""
        reports = reports_of(messages)
        options = self._options
        if not self._is_committed:
            _confirm_schema(self._plan, options, messages)
        facts = facts_of_rows(self._plan.columns, topic_ids(options, reports), values_of(reports))
        micro_batch = next((report.micro_batch for report in reports if report and report.micro_batch), None)
        if micro_batch is not None:
            facts = facts.of(facts_of_batch(micro_batch, options.checkpoint, options.transaction_version))
        _carry_out(options, commit_decision(reports, begun=self._begun, facts=facts, check_replay=options.check_replay))
        _tell_of_a_replay(reports, facts, is_stream=False)
        tell_of_old_rows(options, reports)

    @hides_traceback
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give the write up. None of its rows ever becomes visible, unless the write was committed."""
        _give_up(self._options, abort_decision(reports_of(messages), begun=self._begun))
        _withdraw_schema(self._plan, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`. Spark makes one for each micro-batch and pickles it to the tasks, which share its
    attempt id. `commit` and `abort` run on another instance. That one has the tasks' messages, and the mark with which
    the attempt id begins. `settling` is a part of each commit (option settleQueue)."""

    def __init__(
        self,
        options: SinkOptions,
        plan: SinkPlan | TypedPlan,
        login: TaskLogin | None = None,
        mark: bytes = b"",
        settling: Settling = without_settlement,
    ) -> None:
        self._options = options
        self._settling = settling
        self._plan = plan
        self._login = login
        self._mark = mark
        self._attempt_id = mark + os.urandom(16)
        self._sums_rows = not _knows_offsets(options)

    @hides_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task. Raises InvalidOption, MinilogError."""
        options = as_task(self._options, self._login)
        if not options.exactly_once:
            return Written(write_batches(options, self._plan, iterator))
        report = write_part(options, self._plan, iterator, _stream_attempt(self._attempt_id), sums_rows=self._sums_rows)
        return Written(report, version_of(self._plan))

    @hides_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Make the micro-batch visible, once. Raises MinilogError, UnknownOutcome."""
        reports, options = reports_of(messages), self._options
        if options.exactly_once:
            _confirm_schema(self._plan, options, messages)
            facts = facts_of_rows(self._plan.columns, topic_ids(options, reports), values_of(reports))
            with self._settling(options, reports, batchId, _carry_out) as settlement:
                facts = replace(facts, offsets=facts_of_offsets(settlement.offsets), settles=settlement.settles)
                decision = commit_decision(
                    reports,
                    begun=settlement.begun,
                    batch_id=batchId,
                    facts=facts,
                    check_replay=options.check_replay,
                    ends_empty=settlement.begun is not None,
                )
                _carry_out(options, settlement.added_to(decision))
            _tell_of_a_replay(reports, facts, is_stream=True)
        tell_of_old_rows(options, reports)

    @hides_traceback
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Give this attempt up. Its rows never become visible, unless it was committed."""
        if self._options.exactly_once:
            reports = reports_of(messages)
            _give_up(self._options, abort_decision(reports) or self._unreported(reports, batchId))
            _withdraw_schema(self._plan, self._options)

    def _unreported(self, reports: Sequence[TaskReport | None], batch_id: int) -> Abort | None:
        """The open attempt at the micro-batch, if no task of the attempt has reported it."""
        if not self._mark or None not in reports:
            return None
        from minilog.errors import MinilogError
        from pyspark_minilog.writing.open_attempt import open_attempt

        try:
            return open_attempt(self._options, batch_id, self._mark)
        except MinilogError as error:
            logger.warning("micro-batch %d is not aborted yet, and its time-out will abort it: %s", batch_id, error)
            return None


# -- tasks


def _stream_attempt(attempt_id: bytes) -> Attempt:
    from pyspark import TaskContext

    context = TaskContext.get()
    properties = {name: context and context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID, RUN_ID)}
    missing = [name for name, value in properties.items() if not value]
    if missing:
        raise RuntimeError(
            f"Spark does not give the task {', '.join(missing)}, and an exactly-once write needs it: is this a "
            "streaming query? A write with exactlyOnce=false does not need it"
        )
    return stream_attempt(
        str(properties[QUERY_ID]), int(str(properties[BATCH_ID])), str(properties[RUN_ID]), attempt_id
    )


def write_part(
    options: SinkOptions,
    plan: SinkPlan | TypedPlan,
    batches: Iterator[pa.RecordBatch],
    attempt: Attempt,
    *,
    expires: bool = False,
    first_task: int = 0,
    sums_rows: bool = False,
) -> TaskReport:
    """Write one task's part of a transaction. On an error it aborts its producer, and raises the first error of any
    row. `first_task` is the number of the first task of this write in its attempt. With `sums_rows` the report has the
    sum of the rows."""
    batches = (batch for batch in batches if batch.num_rows)
    with TaskPart(
        lambda stack: _open_part(options, attempt, stack, _task(first_task), expires=expires), _EARLY_S
    ) as task:
        first = next(batches, None)
        opened = task.begun(has_rows=first is not None)
        if opened is None:  # an empty task makes no connection
            return TaskReport(0, attempt=attempt)
        rest = batches if first is None else chain([first], batches)
        if opened.committed is not None:
            return drained(plan, rest, opened.committed)
        sums = _Sums(plan, rest) if sums_rows else None
        rows, oldest = _send(opened.producer, plan, rest if sums is None else sums)
        values = None if sums is None else sums.total
        return TaskReport(rows, opened.enlistment, opened.participation.finish(), oldest_us=oldest, values=values)


@dataclass(frozen=True)
class _OpenPart:
    """A task that has enlisted, or whose write is committed already."""

    producer: Producer
    participation: Participation
    enlistment: Enlistment | None
    committed: AlreadyCommitted | None


def _open_part(
    options: SinkOptions, attempt: Attempt, stack: ExitStack, task: int | None, *, expires: bool
) -> _OpenPart:
    from minilog import Producer
    from minilog.transactions import AlreadyCommitted
    from pyspark_minilog.login.clients import lend

    settings = {**with_timeout(options), **_OWNED_SETTINGS, **_TRANSACTIONAL}
    producer = stack.enter_context(lend(Producer, settings))
    participation = stack.enter_context(producer.participation())
    part = participation.begin(attempt, task=task, expires=expires)
    if isinstance(part, AlreadyCommitted):
        return _OpenPart(producer, participation, None, part)
    return _OpenPart(producer, participation, part, None)


def write_batches(options: SinkOptions, plan: SinkPlan | TypedPlan, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Send all rows and wait until each is acknowledged, without a transaction. Raises the first error of any row."""
    from minilog import Producer
    from pyspark_minilog.login.clients import lend

    first = next(batches, None)
    if first is None:  # an empty task makes no connection
        return TaskReport(0)
    # The environment of the host may have a transactional.id. It does not count here.
    with lend(Producer, {**options.client, **_OWNED_SETTINGS, "transactional.id": ""}) as producer:
        rows, oldest = _send(producer, plan, chain([first], batches))
        return TaskReport(rows, oldest_us=oldest)


def _send(
    producer: Producer, plan: SinkPlan | TypedPlan, batches: Iterable[pa.RecordBatch]
) -> tuple[int, dict[str, int]]:
    """Send all rows, and wait until each is acknowledged. The number of rows, and the time of the oldest row of each
    topic."""
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


def with_timeout(options: SinkOptions) -> dict[str, Any]:
    """The client's settings, with the connector's time-out of a transaction if no setting gives one."""
    silence = {"transaction.timeout.ms": str(_TIMEOUT_MS)} if options.has_default_timeout else {}
    return {**options.client, **silence}


def _task(first_task: int) -> int | None:
    """The number of this part of the write. Of several task attempts at one part, one can win."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else first_task + context.partitionId()


def _micro_batch_of_task() -> MicroBatch:
    """The micro-batch whose foreachBatch this task writes for, if Spark says it. Spark Connect does not say
    it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return MicroBatch()
    query_id, batch_id, run_id = (context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID, RUN_ID))
    in_connect = context.getLocalProperty(CONNECT_OPERATION) is not None
    return MicroBatch(query_id, batch_id, run_id, in_connect)


class _Sums:
    """Batches on their way, and the sum of the rows that have passed."""

    def __init__(self, plan: SinkPlan | TypedPlan, batches: Iterable[pa.RecordBatch]) -> None:
        self.total = 0
        self._plan = plan
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        from pyspark_minilog.writing.row_sums import sum_of_rows

        for batch in self._batches:
            self.total = (self.total + sum_of_rows(self._plan.written(batch))) % (1 << SUM_BITS)
            yield batch


def drained(plan: SinkPlan | TypedPlan, batches: Iterable[pa.RecordBatch], committed: AlreadyCommitted) -> TaskReport:
    """Read all rows without writing any, and report their number, sum and topics."""
    rows, topics, sums = 0, frozenset[str](), _Sums(plan, batches)
    for batch in sums:
        rows += batch.num_rows
        topics |= plan.topics(batch)
    return TaskReport(rows, committed, topics=topics, values=sums.total)


# -- the driver


def reports_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport | None]:
    return [message.report if isinstance(message, Written) else None for message in messages]


def _knows_offsets(options: SinkOptions) -> bool:
    """Whether the driver will know the offsets of the micro-batch. A sink that settles a queue reads them, or fails."""
    return options.settle_queue is not None or query_id(options.checkpoint) is not None


def facts_of_batch(micro_batch: MicroBatch, checkpoint: str | None, number: int) -> Facts:
    """The facts of the micro-batch that a write or a block is for. `checkpoint` is the option checkpointLocation, and
    `number` the number of the write or of the block. Raises InvalidOption for the checkpoint of another query."""
    of_checkpoint = query_id(checkpoint)
    if micro_batch.query_id is None and of_checkpoint is not None:
        micro_batch = MicroBatch(of_checkpoint, str(number))
    if of_checkpoint not in (None, micro_batch.query_id):
        remedy = "it is the checkpoint of another query. Give the one of the query that this write is for"
        raise refused("checkpointLocation", checkpoint, remedy)
    offsets = offsets_digest(checkpoint, int(micro_batch.batch_id)) if micro_batch.batch_id else b""
    return Facts(whose=micro_batch.whose, offsets=facts_of_offsets(offsets), run=micro_batch.run)


def topic_ids(options: SinkOptions, reports: Sequence[TaskReport | None]) -> set[bytes]:
    """The ids of the topics that the tasks wrote to. If the write is committed already: of the topics of its rows."""
    written = {
        partition.topic_id for report in reports if report and report.winner for partition in report.winner.partitions
    }
    named = sorted({name for report in reports if report is not None for name in report.topics})
    if not named:
        return written
    from minilog import Admin
    from pyspark_minilog.login.clients import lend

    with lend(Admin, options.client) as admin:
        return {uuid.UUID(topic.id).bytes for topic in admin.describe_topics(named, missing_ok=True)}


def _carry_out(options: SinkOptions, decision: End | Abort | None) -> None:
    match decision:
        case End(attempt, winners, contents, coordinator_epoch):
            from minilog.sync.transaction import Transactions
            from minilog.transactions import TransactionOutcome
            from pyspark_minilog.login.clients import lend

            with lend(Transactions, options.client) as transactions:
                outcome = transactions.commit(attempt, winners, contents, coordinator_epoch=coordinator_epoch)
            if outcome is not TransactionOutcome.COMMITTED:
                logger.warning("%s is committed, but some partitions do not show it yet", attempt)
        case Abort():
            _give_up(options, decision)


def version_of(plan: SinkPlan | TypedPlan) -> int:
    return 0 if isinstance(plan, SinkPlan) else plan.schema.version


def _confirm_schema(
    plan: SinkPlan | TypedPlan, options: SinkOptions, messages: Sequence[WriterCommitMessage | None]
) -> None:
    """Right before the commit: a reader that sees the rows sees their columns. The tasks of a stream may have had
    another plan than this one, so their versions count."""
    if not isinstance(plan, SinkPlan) and options.schema.merges:
        from pyspark_minilog.writing.typed_sink import confirm_schemas  # only the driver of such a write loads it

        written = {each.schema_version for each in messages if isinstance(each, Written) and each.report.rows}
        confirm_schemas(plan.topic, options, written or {plan.schema.version})


def _withdraw_schema(plan: SinkPlan | TypedPlan, options: SinkOptions) -> None:
    if not isinstance(plan, SinkPlan) and plan.is_pending:
        from pyspark_minilog.writing.typed_sink import withdraw_schema

        withdraw_schema(plan.topic, options, plan.schema.version)


def tell_of_old_rows(options: SinkOptions, reports: Sequence[TaskReport | None]) -> None:
    """Warn of old rows. The write is committed and correct, and must not fail here."""
    oldest: dict[str, int] = {}
    for report in reports:
        oldest = older(oldest, {} if report is None else report.oldest_us)
    now_ms = time.time_ns() // 1_000_000
    oldest = {topic: at_us for topic, at_us in oldest.items() if at_us // 1000 < now_ms - NEW_MS}
    if not oldest:
        return
    from minilog import Admin
    from minilog.errors import MinilogError
    from pyspark_minilog.login.clients import lend

    try:
        with lend(Admin, options.client) as admin:
            topics = admin.describe_topics(sorted(oldest), missing_ok=True)
    except MinilogError as error:
        logger.debug("the retention of the topics with old rows is not known: %s", error)
        return
    kept = {topic.name: int(topic.configs["retention.ms"]) for topic in topics if "retention.ms" in topic.configs}
    for sentence in too_old(oldest, kept, now_ms):
        logger.warning("%s", sentence)


def _tell_of_a_replay(reports: Sequence[TaskReport | None], facts: Facts, *, is_stream: bool) -> None:
    from minilog.transactions import AlreadyCommitted

    replayed = [
        (report.rows, report.part) for report in reports if report and isinstance(report.part, AlreadyCommitted)
    ]
    if replayed:
        rows, before = sum(count for count, _ in replayed), replayed[0][1]
        tell_of_a_replay(before, rows, is_compared=is_compared(before, facts, is_stream=is_stream))


def tell_of_a_replay(before: AlreadyCommitted, rows: int, *, is_compared: bool) -> None:
    """Warn that the rows were not written again, which is correct for a replay."""
    attempt = before.attempt
    logger.warning("an earlier run committed %s: this run does not write its %s rows again", attempt, rows)
    if rows and not is_compared:
        logger.warning(
            "neither the offsets nor the values of the rows of %s are compared with the committed ones, since an "
            "earlier version of minilog kept none of them",
            attempt,
        )


def _give_up(options: SinkOptions, decision: Abort | None) -> None:
    """Abort the attempt. If the coordinator does not answer, its time-out or the next attempt ends the transaction."""
    if decision is None:
        return
    from minilog.errors import MinilogError
    from minilog.sync.transaction import Transactions
    from minilog.transactions import TransactionOutcome
    from pyspark_minilog.login.clients import lend

    try:
        with lend(Transactions, options.client) as transactions:
            outcome = transactions.abort(decision.attempt, coordinator_epoch=decision.coordinator_epoch)
    except MinilogError as error:
        sentence = "%s is not aborted yet, and its time-out or the next attempt will abort it: %s"
        logger.warning(sentence, decision.attempt, error)
        return
    if outcome is TransactionOutcome.COMMITTED:
        logger.warning("%s was committed before the abort came: nothing has changed", decision.attempt)
