"""The leases of a stream that reads a queue: what the driver asks the queue's coordinator. reader.py is Spark's.

lease     records for the next batch, until there are no more or a limit is reached
take_up   the batch begins, or begins again after a restart: its locks begin anew, or have ended
finish    the batch is done. Unless the sink has settled it, the driver accepts it now: at least once
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_minilog.login.clients import lend
from pyspark_minilog.queues.calls import QueueCalls
from pyspark_minilog.queues.locks import LockKeeper
from pyspark_minilog.queues.offset import MAX_RANGES, QueueLease, QueueOffset, leased_ranges

if TYPE_CHECKING:
    from pyspark_minilog.options.table import SourceOptions

logger = logging.getLogger(__name__)

_MAX_LEASED = 2**31 - 1  # of one request: the coordinator bounds it by the locks of each partition
_MAX_UNACCEPTED = 100  # batches whose acceptance failed. Their messages are delivered again when their locks end
_WORKER_CHARACTERS = 200


class QueueSource:
    """The leases of one query, in the process of its source."""

    def __init__(self, options: SourceOptions, host: str) -> None:
        assert options.queue is not None
        self._client = options.client
        self._queue = options.queue
        self._attempts = options.retries + 1
        self._worker_id = f"spark-{host}-{uuid.uuid4().hex[:8]}"[:_WORKER_CHARACTERS]
        self._locks = LockKeeper(options.client, options.queue)
        self._unaccepted: dict[str, QueueOffset] = {}

    def lease(self, topic_ids: Mapping[str, str], max_offsets: int | None, wait_ms: int) -> QueueOffset:
        """Lease up to so many records of these topics. Without any, wait for them once. Raises MinilogError."""
        from minilog.errors import MinilogError

        names = {uuid.UUID(topic_id).bytes: name for name, topic_id in topic_ids.items()}
        leases: list[QueueLease] = []
        left = _MAX_LEASED if max_offsets is None else min(max_offsets, _MAX_LEASED)
        while left > 0 and sum(len(lease.ranges) for lease in leases) < MAX_RANGES:
            try:
                lease, lock_ms = self._lease(names, left, 0 if leases else wait_ms)
            except MinilogError as error:
                if not leases:
                    raise
                logger.debug("queue '%s' gives no more now: %s", self._queue, error)
                break
            if not lease.ranges:
                break
            self._locks.hold([lease.lease_id], lock_ms)
            leases.append(lease)
            left -= sum(leased.size for leased in lease.ranges)
            if any(leased.delivery_count > 1 for leased in lease.ranges):
                break  # it may have ended its batch before: the coordinator gives few of these together
        return QueueOffset(self._queue, tuple(leases), dict(topic_ids) if leases else {})

    def _lease(self, names: Mapping[bytes, str], most: int, wait_ms: int) -> tuple[QueueLease, int]:
        """One lease. An attempt without an answer may have leased: those records come again after their locks."""
        from minilog.errors import LevelNotReached, RetriableError, UnknownOutcome
        from minilog.v1 import queue_pb2

        request = queue_pb2.LeaseRequest(
            queue=self._queue,
            topic_ids=list(names),
            max_records=most,
            max_wait_ms=wait_ms,
            worker_id=self._worker_id,
        )
        for attempt in range(self._attempts):
            try:
                with lend(QueueCalls, self._client) as calls:
                    response = calls.lease(request)
                return leased_ranges(response, names), response.lock_duration_ms
            except (RetriableError, UnknownOutcome) as error:
                if attempt + 1 == self._attempts or isinstance(error, LevelNotReached):
                    raise
                logger.debug("queue '%s' gave no lease, and is asked again: %s", self._queue, error)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def take_up(self, batch: QueueOffset) -> bool:
        """Whether all messages of the batch are this query's still. Then their locks are renewed from now on. Else it
        gives back what it has of them. Raises MinilogError."""
        with lend(QueueCalls, self._client) as calls:
            ended, lock_ms = calls.renew(batch.queue, batch.lease_ids)
        if not ended:
            self._locks.hold(batch.lease_ids, lock_ms)
            return True
        self._locks.let_go(batch.lease_ids)
        logger.warning(
            "%d of the %d leases of a micro-batch of queue '%s' have ended, because it is settled, or because its "
            "locks ended. It reads nothing, unless the query has committed it before. Messages that are not settled "
            "are delivered again, in a later micro-batch or to another worker",
            len(ended),
            len(batch.leases),
            batch.queue,
        )
        held = [lease for lease in batch.leases if lease.lease_id not in ended]
        self._give_back(QueueOffset(batch.queue, tuple(held), batch.topic_ids), ran=True)
        return False

    def return_unread(self, batch: QueueOffset) -> None:
        """The query stops before this batch began: no delivery of its messages counts."""
        self._locks.let_go(batch.lease_ids)
        self._give_back(batch, ran=False)

    def _give_back(self, held: QueueOffset, *, ran: bool) -> None:
        """`ran`: the batch may have begun, perhaps in an earlier driver."""
        from minilog.errors import MinilogError
        from minilog.v1 import queue_pb2

        if not held.leases:
            return
        try:
            with lend(QueueCalls, self._client) as calls:
                verdict = queue_pb2.VERDICT_RELEASE if ran else queue_pb2.VERDICT_RETURN
                refusals = calls.settle(held.queue, held.settlements(verdict))
        except MinilogError as error:
            logger.debug(
                "queue '%s': the locks of %d leases end by themselves: %s", held.queue, len(held.leases), error
            )
            return
        for refusal in refusals:
            logger.debug("queue '%s': nothing to give back: %s", held.queue, refusal)

    def finish(self, batch: QueueOffset, *, accepts: bool) -> None:
        """The batch is done."""
        if accepts:
            self._unaccepted[batch.name()] = batch
        else:
            self._locks.let_go(batch.lease_ids)
        self.accept_finished()

    def accept_finished(self) -> None:
        """Accept the messages of finished batches, also those whose acceptance has failed before."""
        from minilog.errors import MinilogError
        from minilog.v1 import queue_pb2

        for name, batch in list(self._unaccepted.items()):
            try:
                with lend(QueueCalls, self._client) as calls:
                    refusals = calls.settle(batch.queue, batch.settlements(queue_pb2.VERDICT_ACCEPT))
            except MinilogError as error:
                logger.warning("queue '%s': a finished batch is not accepted yet: %s", batch.queue, error)
                if len(self._unaccepted) <= _MAX_UNACCEPTED:
                    return
            else:
                for refusal in refusals:
                    logger.warning(
                        "queue '%s': these messages are delivered again, since their lock ended: %s",
                        batch.queue,
                        refusal,
                    )
            self._locks.let_go(batch.lease_ids)
            del self._unaccepted[name]

    def stop(self) -> None:
        """Renew no lock any more."""
        self._locks.stop()
