"""The sink's part of a queue: it settles the messages of a micro-batch in the transaction of its rows.

    the checkpoint     says which leases the batch has: Spark writes its offsets before the batch runs
    planned_batches    says whether the source has read them, or whether their locks had ended
    Enlist             the driver gets a producer of its own in the attempt of the tasks, also where no task has a row
    Settle             with that producer: the messages are settled at the commit
    End                the producers of the tasks, and that of the driver

A batch whose locks had ended for the source is committed without a settlement. Its facts say so (replay.py). A
batch that was read, and cannot be settled any more, fails: its rows must not become visible. A restart finds that the
locks have ended. So a message is settled here if it was read here, and only then.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from minilog.transactions import Enlistment, Winner
from pyspark_minilog.errors import InconsistentWrite, InvalidOption, LeaseLost, refused
from pyspark_minilog.options.offsets import QUEUE_KEY
from pyspark_minilog.options.queue_options import SETTLE_QUEUE
from pyspark_minilog.options.table import SinkOptions
from pyspark_minilog.queues.offset import QueueOffset
from pyspark_minilog.queues.planned_batches import BatchState, note_batch, noted_batch
from pyspark_minilog.writing.checkpoint import BatchOffsets, UnknownForm, batch_offsets
from pyspark_minilog.writing.sink_protocol import Abort, TaskReport
from pyspark_minilog.writing.write_task import Settlement

if TYPE_CHECKING:
    from minilog.transactions import Attempt, WrittenPartition
    from minilog.v1 import queue_pb2
    from pyspark_minilog.queues.calls import QueueCalls
    from pyspark_minilog.writing.write_task import CarryOut

logger = logging.getLogger(__name__)

# The marker of an earlier driver's transaction may be on its way: until then its messages are settling.
_MARKERS_S = 15.0
_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class QueueBatch:
    """What a micro-batch has of the queue: the leases, or None without new messages. `digest`: of the offsets of all
    sources."""

    leased: QueueOffset | None
    digest: bytes


def queue_batch(queue: str, now: BatchOffsets, before: BatchOffsets | None) -> QueueBatch:
    """The messages of a micro-batch, from its offsets and those of the batch before. A source without new messages
    repeats its offset. Raises InvalidOption unless one source reads the queue."""
    own = [offset for offset in now.offsets if _is_of(offset, queue)]
    if len(own) != 1:
        remedy = (
            "no source of the query reads this queue. Give the source the option 'queue', too"
            if not own
            else f"{len(own)} sources of the query read this queue. Read it once, and use that DataFrame twice"
        )
        raise refused(SETTLE_QUEUE, queue, remedy)
    offset = QueueOffset.from_json(json.loads(own[0]))
    is_new = bool(offset.leases) and (before is None or own[0] not in before.offsets)
    return QueueBatch(offset if is_new else None, now.digest)


def _is_of(text: str, queue: str) -> bool:
    try:
        offset = json.loads(text)
    except ValueError:  # no offset, or that of another kind of source
        return False
    return isinstance(offset, dict) and offset.get(QUEUE_KEY) == queue


@contextmanager
def settling(
    options: SinkOptions, reports: Sequence[TaskReport | None], batch_id: int, carry_out: CarryOut
) -> Iterator[Settlement]:
    """Open while a micro-batch is committed: its messages are settled, and its rows are committed, both or neither.
    Raises LeaseLost, InvalidOption, MinilogError."""
    batch = _read_batch(options, batch_id)
    leased = batch.leased
    if leased is None or None in reports:
        yield Settlement(batch.digest)
        return
    from minilog.sync.transaction import Transactions
    from pyspark_minilog.login.clients import lend

    reads, attempt = _was_read(leased), _attempt(reports)
    with lend(Transactions, options.client) as transactions:
        begun = transactions.enlist(attempt)
    settle = partial(_winner, options, begun, leased, reads) if isinstance(begun, Enlistment) else None
    try:
        yield Settlement(batch.digest, begun, settles=reads, settle=settle)
        note_batch(leased.name(), BatchState.SETTLED)
    except BaseException:
        if isinstance(begun, Enlistment):
            carry_out(options, Abort(begun.attempt, begun.coordinator_epoch))
        raise


def _winner(options: SinkOptions, begun: Enlistment, leased: QueueOffset, reads: bool) -> Winner:
    return _settled(options, begun, leased) if reads else Winner(begun.producer_id, ())


def _read_batch(options: SinkOptions, batch_id: int) -> QueueBatch:
    assert options.settle_queue is not None
    assert options.checkpoint is not None
    try:
        now = batch_offsets(options.checkpoint, batch_id)
        before = batch_offsets(options.checkpoint, batch_id - 1)
    except UnknownForm as error:
        raise refused(
            SETTLE_QUEUE,
            options.settle_queue,
            f"the file offsets/{batch_id} of checkpoint {options.checkpoint} has a form of Spark that this version of "
            f"minilog does not know ('{error}'). Upgrade pyspark-minilog, or begin with a new checkpoint and the form "
            "that spark.sql.streaming.offsetLog.formatVersion=1 gives",
        ) from error
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's errors are of these kinds
        raise _unreadable(options.checkpoint, batch_id, str(error)) from error
    if now is None:
        raise _unreadable(options.checkpoint, batch_id, "there is no such file")
    return queue_batch(options.settle_queue, now, before)


def _unreadable(checkpoint: str, batch_id: int, why: str) -> InvalidOption:
    remedy = (
        f"the driver cannot read offsets/{batch_id} there ({why}), and settleQueue needs it. Give the folder with its "
        "scheme, such as s3://bucket/folder or hdfs://host/folder, and give the driver the right to read it"
    )
    return refused("checkpointLocation", checkpoint, remedy)


def _was_read(leased: QueueOffset) -> bool:
    state = noted_batch(leased.name())
    if state is None:
        raise InconsistentWrite(
            f"the source of queue '{leased.queue}' has left no note in SPARK_LOCAL_DIRS of this driver about leases "
            f"{leased.lease_ids}: do the Python processes of the driver have other folders? Nothing is committed"
        )
    return state is not BatchState.LOST


def _attempt(reports: Sequence[TaskReport | None]) -> Attempt:
    """The attempt of the tasks. A task without rows has reported it, too."""
    for report in reports:
        if report is not None and report.part is not None:
            return report.part.attempt
    for report in reports:
        if report is not None and report.attempt is not None:
            return report.attempt
    raise InconsistentWrite("no task of the micro-batch has reported its attempt. Nothing is committed")


def _settled(options: SinkOptions, begun: Enlistment, leased: QueueOffset) -> Winner:
    """Accept all messages of the batch within the transaction. Raises LeaseLost, MinilogError."""
    from minilog.v1 import queue_pb2
    from pyspark_minilog.login.clients import lend
    from pyspark_minilog.queues.calls import QueueCalls, requests_of

    until_s = time.monotonic() + _MARKERS_S
    with lend(QueueCalls, options.client) as calls:
        written = [
            _settle_part(calls, leased, part, begun, sequence, until_s)
            for sequence, part in enumerate(requests_of(leased.settlements(queue_pb2.VERDICT_ACCEPT)))
        ]
    return Winner(begun.producer_id, (written[-1],))


def _settle_part(
    calls: QueueCalls,
    leased: QueueOffset,
    part: Sequence[queue_pb2.Settlement],
    begun: Enlistment,
    sequence: int,
    until_s: float,
) -> WrittenPartition:
    """One request. Messages that an aborted transaction settles come back with its marker: until then ask again."""
    from minilog.errors import InvalidRecordState

    while True:
        try:
            return calls.settle_in_transaction(leased.queue, part, begun, sequence)
        except InvalidRecordState as error:
            ended, _ = calls.renew(leased.queue, leased.lease_ids)
            if ended or time.monotonic() > until_s:
                raise LeaseLost(
                    f"the lock on messages of queue '{leased.queue}' ended while {begun.attempt} ran, so nothing of "
                    "this micro-batch is committed. The messages are delivered again, in a later micro-batch or to "
                    "another worker: start the query again. If its driver stands still for longer than a lock lasts, "
                    f"lengthen group.share.record.lock.duration.ms of the queue ({error})"
                ) from error
            logger.debug("queue '%s' still has messages in an earlier transaction: %s", leased.queue, error)
            time.sleep(_AGAIN_S)
