"""What people ask of transactions: which there are, what is open, and ending or forgetting one."""

from __future__ import annotations

from minilog.net.coordinator_client import CoordinatorClient
from minilog.net.coordinators_of import TRANSACTIONS_TOPIC_NAME
from minilog.net.network_client import NetworkClient
from minilog.transactions.descriptions import transaction_description, transaction_listing
from minilog.types import TransactionDescription, TransactionListing
from minilog.v1 import coordinator_pb2
from minilog.v1.coordinator_pb2_grpc import TransactionServiceStub


class TransactionAdmin:
    """The methods of Admin: minilog.aio.admin describes them. Every call is bounded by request.timeout.ms."""

    def __init__(self, cluster: NetworkClient) -> None:
        self._cluster = cluster
        self._coordinators = CoordinatorClient(cluster)
        self._timeout_ms = cluster.config.request_timeout_ms

    async def list(self) -> list[TransactionListing]:
        answers = await self._coordinators.call_all(
            TRANSACTIONS_TOPIC_NAME,
            lambda channel: TransactionServiceStub(channel).ListTransactions,
            coordinator_pb2.ListTransactionsRequest(),
            timeout_ms=self._timeout_ms,
        )
        by_id = {listing.transactional_id: listing for answer in answers for listing in answer.transactions}
        return [transaction_listing(by_id[transactional_id]) for transactional_id in sorted(by_id)]

    async def describe(self, transactional_id: str) -> TransactionDescription:
        answer = await self._coordinators.call(
            TRANSACTIONS_TOPIC_NAME,
            transactional_id,
            lambda channel: TransactionServiceStub(channel).DescribeTransaction,
            coordinator_pb2.DescribeTransactionRequest(transactional_id=transactional_id),
            timeout_ms=self._timeout_ms,
            changes=False,
        )
        metadata = await self._cluster.refresh(None)
        names = {topic.topic_id: topic.name for topic in metadata.topics if not topic.error.code}
        return transaction_description(answer, names)

    async def abort(self, transactional_id: str) -> int:
        answer = await self._coordinators.call(
            TRANSACTIONS_TOPIC_NAME,
            transactional_id,
            lambda channel: TransactionServiceStub(channel).AbortTransaction,
            coordinator_pb2.AbortTransactionRequest(transactional_id=transactional_id),
            timeout_ms=self._timeout_ms,
        )
        return answer.aborted_producers

    async def forget(self, transactional_id: str) -> None:
        await self._coordinators.call(
            TRANSACTIONS_TOPIC_NAME,
            transactional_id,
            lambda channel: TransactionServiceStub(channel).ForgetTransaction,
            coordinator_pb2.ForgetTransactionRequest(transactional_id=transactional_id),
            timeout_ms=self._timeout_ms,
        )
