"""The calls of Spark's driver to the coordinator of a queue. They block. minilog.queues.client describes them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from minilog.config import parse_config
from minilog.errors import MinilogError, RetriableError, UnknownOutcome
from minilog.limits import MAX_SETTLEMENTS, parts_of, settlement_parts
from minilog.net.coordinators_of import QUEUES_TOPIC_NAME, coordinator_partition
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.partition_key import PartitionKey
from minilog.queues.client import Queues
from minilog.sync.loop import shared_loop
from minilog.transactions import Enlistment, WrittenPartition
from minilog.v1 import coordinator_pb2, queue_pb2

logger = logging.getLogger(__name__)

_RENEWALS = 4  # each tries for seconds. A renewal that comes twice does no harm


def requests_of(settlements: Sequence[queue_pb2.Settlement]) -> Iterator[Sequence[queue_pb2.Settlement]]:
    """The settlements in order, each part for one request."""
    return settlement_parts(settlements, lambda settlement: PartitionKey.of(settlement.partition_id))


class QueueCalls:
    """A client of queues, on the background loop of the process."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._loop = shared_loop()
        self._cluster = NetworkClient(parse_config(config), SYSTEM_RUNTIME)
        self._queues = Queues(self._cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A second call does nothing."""
        self._loop.close(self._cluster.close)

    def lease(self, request: queue_pb2.LeaseRequest) -> queue_pb2.LeaseResponse:
        """Ask for records."""
        return self._loop.run(self._queues.lease(request)).response

    def renew(self, queue: str, lease_ids: Sequence[int]) -> tuple[set[int], int]:
        """Begin the locks of leases anew. Returns the ids of those that have ended, and the time of a lock. It asks
        again while the coordinator moves to another broker."""
        ended: set[int] = set()
        lock_ms = 0
        for part in parts_of(lease_ids, MAX_SETTLEMENTS):
            response = self._renewed(queue, part)
            ended |= set(response.ended_lease_ids)
            lock_ms = response.lock_duration_ms
        return ended, lock_ms

    def _renewed(self, queue: str, lease_ids: Sequence[int]) -> queue_pb2.RenewLeasesResponse:
        for _ in range(_RENEWALS - 1):
            try:
                return self._loop.run(self._queues.renew(queue, lease_ids)).response
            except (RetriableError, UnknownOutcome) as error:
                logger.debug("the locks of queue '%s' were not renewed, and are tried again: %s", queue, error)
        return self._loop.run(self._queues.renew(queue, lease_ids)).response

    def settle(self, queue: str, settlements: Sequence[queue_pb2.Settlement]) -> list[MinilogError]:
        """Settle each of these by itself. Returns the refusals."""
        refusals: list[MinilogError] = []
        for part in requests_of(settlements):
            refusals += self._loop.run(self._queues.settle(queue, part)).refused.values()
        return refusals

    def settle_in_transaction(
        self, queue: str, settlements: Sequence[queue_pb2.Settlement], enlistment: Enlistment, sequence: int
    ) -> WrittenPartition:
        """Settle all of these with the transaction, or none if this raises. `sequence` counts the requests of this
        producer. Returns what its winner must name."""
        part = coordinator_pb2.TransactionalCommit(
            transactional_id=enlistment.attempt.transactional_id,
            producer_id=enlistment.producer_id,
            sequence=sequence,
            producer_proof=enlistment.producer_proof,
        )
        self._loop.run(self._queues.settle_in_transaction(queue, settlements, part))
        topic_id = self._cluster.cache.topics[QUEUES_TOPIC_NAME].topic_id
        return WrittenPartition(topic_id, coordinator_partition(queue), sequence)
