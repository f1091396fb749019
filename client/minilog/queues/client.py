"""The calls to the coordinators of queues. Lives on one event loop."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import grpc

from minilog.errors import MinilogError, error_from_wire
from minilog.net.coordinator_client import CoordinatorClient
from minilog.net.coordinators_of import QUEUES_TOPIC_NAME
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_ms
from minilog.v1 import coordinator_pb2, queue_pb2
from minilog.v1.queue_pb2_grpc import QueueServiceStub

# A call of a worker tries for so long: then the worker looks again at what it still needs.
_WORKER_CALL_MS = 5_000


class LeaseAnswer(NamedTuple):
    """An answer with records, or without. Locks count from `sent_ms`, the time before its request was sent."""

    response: queue_pb2.LeaseResponse
    sent_ms: float


class Renewed(NamedTuple):
    """An answer to a renewal, and the time before its request was sent."""

    response: queue_pb2.RenewLeasesResponse
    sent_ms: float


class SettlementAnswer(NamedTuple):
    """The refused settlements by their place. `is_repeat`: an earlier attempt of this call may have been done."""

    refused: Mapping[int, MinilogError]
    is_repeat: bool


class RedriveAnswer(NamedTuple):
    """An answer to a redrive. `is_repeat`: an earlier attempt of this call may have been done."""

    response: queue_pb2.RedriveResponse
    is_repeat: bool


class _SentAt:
    """The time of the last attempt of a call. Attempts without an answer are cancelled before the next."""

    def __init__(self) -> None:
        self.ms = now_ms()

    def noting(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        self.ms = now_ms()
        return method


class Queues:
    """Calls of people end within request.timeout.ms, and those of a worker within some seconds. They raise the errors
    of minilog.net.coordinator_client."""

    def __init__(self, cluster: NetworkClient) -> None:
        self._coordinators = CoordinatorClient(cluster)
        self._timeout_ms = cluster.config.request_timeout_ms

    async def lease(self, request: queue_pb2.LeaseRequest) -> LeaseAnswer:
        """Ask for records. The answer may take `max_wait_ms`, and has no records if there were none.

        A call without an answer may have leased. Those records come again when their lock has ended, so it is safe to
        ask again. Raises UnknownTopicId, LevelNotReached."""
        sent = _SentAt()
        response = await self._coordinators.call(
            QUEUES_TOPIC_NAME,
            request.queue,
            lambda channel: sent.noting(QueueServiceStub(channel).Lease),
            request,
            timeout_ms=request.max_wait_ms + min(_WORKER_CALL_MS, self._timeout_ms),
            waits_ms=request.max_wait_ms,
        )
        return LeaseAnswer(response, sent.ms)

    async def renew(self, queue: str, lease_ids: Sequence[int]) -> Renewed:
        """Begin the locks of these leases anew."""
        sent = _SentAt()
        response = await self._coordinators.call(
            QUEUES_TOPIC_NAME,
            queue,
            lambda channel: sent.noting(QueueServiceStub(channel).RenewLeases),
            queue_pb2.RenewLeasesRequest(queue=queue, lease_ids=lease_ids),
            timeout_ms=min(_WORKER_CALL_MS, self._timeout_ms),
        )
        return Renewed(response, sent.ms)

    async def settle(self, queue: str, settlements: Sequence[queue_pb2.Settlement]) -> SettlementAnswer:
        """Settle each of these, or none if this raises. Raises UnknownOutcome if all may be settled."""
        answer = await self._coordinators.answer(
            QUEUES_TOPIC_NAME,
            queue,
            lambda channel: QueueServiceStub(channel).Settle,
            queue_pb2.SettleRequest(queue=queue, settlements=settlements),
            timeout_ms=min(_WORKER_CALL_MS, self._timeout_ms),
        )
        refused = {refusal.index: error_from_wire(refusal.error) for refusal in answer.response.refused}
        errors = {index: error for index, error in refused.items() if error is not None}
        return SettlementAnswer(errors, answer.maybe_done_before)

    async def settle_in_transaction(
        self,
        queue: str,
        settlements: Sequence[queue_pb2.Settlement],
        transaction: coordinator_pb2.TransactionalCommit,
    ) -> None:
        """Settle all of these with the transaction, or none if this raises. Raises UnknownOutcome, InvalidRecordState,
        ProducerFenced."""
        await self._coordinators.call(
            QUEUES_TOPIC_NAME,
            queue,
            lambda channel: QueueServiceStub(channel).Settle,
            queue_pb2.SettleRequest(queue=queue, settlements=settlements, transaction=transaction),
            timeout_ms=self._timeout_ms,
        )

    async def redrive(self, request: queue_pb2.RedriveRequest) -> RedriveAnswer:
        """Redrive letters, up to the first that cannot be. A repetition redrives none twice. Raises ResourceNotFound,
        UnknownTopicId, InvalidRecordState, UnstableOffsetCommit, LevelNotReached."""
        answer = await self._coordinators.answer(
            QUEUES_TOPIC_NAME,
            request.queue,
            lambda channel: QueueServiceStub(channel).Redrive,
            request,
            timeout_ms=self._timeout_ms,
        )
        return RedriveAnswer(answer.response, answer.maybe_done_before)

    async def rewrite_letters(
        self, queue: str, letters: queue_pb2.RewrittenLetters, transaction: coordinator_pb2.TransactionalCommit
    ) -> None:
        """Redrive these letters with the transaction, which writes them anew. Raises as `settle_in_transaction`."""
        await self._coordinators.call(
            QUEUES_TOPIC_NAME,
            queue,
            lambda channel: QueueServiceStub(channel).Settle,
            queue_pb2.SettleRequest(queue=queue, rewritten=letters, transaction=transaction),
            timeout_ms=self._timeout_ms,
        )

    async def list(self) -> builtins.list[queue_pb2.QueueListing]:
        """All queues, by name."""
        answers = await self._coordinators.call_all(
            QUEUES_TOPIC_NAME,
            lambda channel: QueueServiceStub(channel).ListQueues,
            queue_pb2.ListQueuesRequest(),
            timeout_ms=self._timeout_ms,
        )
        listings = {listing.queue: listing for answer in answers for listing in answer.queues}
        return [listings[queue] for queue in sorted(listings)]

    async def describe(self, queue: str) -> queue_pb2.DescribeQueueResponse:
        """The settings of a queue, and its state in each partition. Raises ResourceNotFound."""
        response: queue_pb2.DescribeQueueResponse = await self._call(
            queue,
            lambda channel: QueueServiceStub(channel).DescribeQueue,
            queue_pb2.DescribeQueueRequest(queue=queue),
            changes=False,
        )
        return response

    async def alter(self, queue: str, set_configs: Mapping[str, str], unset_configs: Sequence[str]) -> None:
        """Set and unset settings of a queue, which need not exist. Raises InvalidConfig."""
        await self._call(
            queue,
            lambda channel: QueueServiceStub(channel).AlterQueue,
            queue_pb2.AlterQueueRequest(queue=queue, set_configs=set_configs, unset_configs=unset_configs),
        )

    async def delete(self, queue: str) -> None:
        """Forget a queue. Raises ResourceNotFound, NonEmptyQueue."""
        await self._call(
            queue,
            lambda channel: QueueServiceStub(channel).DeleteQueue,
            queue_pb2.DeleteQueueRequest(queue=queue),
        )

    async def _call(
        self, queue: str, method: Callable[[grpc.aio.Channel], Any], request: Any, *, changes: bool = True
    ) -> Any:
        return await self._coordinators.call(
            QUEUES_TOPIC_NAME, queue, method, request, timeout_ms=self._timeout_ms, changes=changes
        )
