"""A world with a coordinator of transactions: drivers, tasks, leaders, people, and the partitions' markers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from minilog.partition_key import PartitionKey
from minilog.v1 import common_pb2, coordinator_pb2
from minilog_broker.coordinators.coordinator_effects import WriteMarkers
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.coordinators.transactions.enlisting import TransactionSettings
from tests.unit.coordinators.cluster import ORDERS, PAYMENTS, CoordinatorCluster, error_of

T = "spark-query"
ORDERS_0, ORDERS_1, PAYMENTS_0 = PartitionKey(ORDERS, 0), PartitionKey(ORDERS, 1), PartitionKey(PAYMENTS, 0)
TIMEOUT_MS = 60_000
REQUEST_TIMEOUT_MS = 5_000

COMMITTED = coordinator_pb2.TRANSACTION_OUTCOME_COMMITTED
BECOMING_VISIBLE = coordinator_pb2.TRANSACTION_OUTCOME_COMMITTED_BECOMING_VISIBLE
ABORTED = coordinator_pb2.TRANSACTION_OUTCOME_ABORTED
ENLISTED = coordinator_pb2.ENLIST_OUTCOME_ENLISTED
ALREADY = coordinator_pb2.ENLIST_OUTCOME_ALREADY_COMMITTED
OPEN = coordinator_pb2.TRANSACTION_STATE_OPEN


def partition_id(key: PartitionKey) -> common_pb2.PartitionId:
    return common_pb2.PartitionId(topic_id=key.topic_id, partition=key.partition)


def winner(producer_id: int, written: Mapping[PartitionKey, int] | None = None) -> coordinator_pb2.Winner:
    partitions = [
        coordinator_pb2.WrittenPartition(partition_id=partition_id(key), last_sequence=sequence)
        for key, sequence in (written or {}).items()
    ]
    return coordinator_pb2.Winner(producer_id=producer_id, partitions=partitions)


class TransactionCalls(CoordinatorCluster[TransactionCoordinator]):
    """See the module's text. Calls commit what they wrote, unless they are begun by `ask_...`."""

    def __init__(self, *, lead: bool = True) -> None:
        self.producer_ids = itertools.count(100)
        super().__init__()
        self.marked: list[tuple[PartitionKey, int, bool, int]] = []  # (partition, producer, committed, last sequence)
        if lead:
            self.begin()

    def make(self) -> TransactionCoordinator:
        settings = TransactionSettings(transaction_timeout_ms=TIMEOUT_MS)
        return TransactionCoordinator("__transactions-3", settings, self, lambda topic: topic in self.topics)

    # -- writers

    def ask_to_enlist(
        self,
        generation: int | None = 0,
        attempt: str = "a",
        run: str = "r",
        *,
        name: str = T,
        task: int | None = None,
        timeout_ms: int = 0,
        expires: bool = False,
        coordinator_epoch: int = 0,
    ) -> int:
        request = coordinator_pb2.EnlistRequest(
            transactional_id=name,
            generation=generation,
            attempt_id=attempt.encode(),
            run_id=run.encode(),
            task=task,
            timeout_ms=timeout_ms,
            expires=expires,
            coordinator_epoch=coordinator_epoch,
        )
        ticket, self.last_producer_id = self.ticket(), next(self.producer_ids)
        self.coordinator.enlist(ticket, request, self.last_producer_id, self.now)
        return ticket

    def enlist(self, *arguments: object, **named: object) -> coordinator_pb2.EnlistResponse:
        ticket = self.ask_to_enlist(*arguments, **named)  # type: ignore[arg-type]
        self.commit()
        return self.answer(ticket, coordinator_pb2.EnlistResponse)

    def enlisted(self, *arguments: object, **named: object) -> int:
        """The producer id of a writer that takes part."""
        response = self.enlist(*arguments, **named)
        assert error_of(response) is None, error_of(response)
        assert response.outcome == ENLISTED
        return response.producer_id

    def ask_to_register(self, producer_id: int, *partitions: PartitionKey, name: str = T) -> int:
        request = coordinator_pb2.RegisterPartitionsRequest(
            transactional_id=name, producer_id=producer_id, partitions=[partition_id(key) for key in partitions]
        )
        ticket = self.ticket()
        self.coordinator.register(ticket, request, self.now)
        return ticket

    def register(
        self, producer_id: int, *partitions: PartitionKey, name: str = T
    ) -> coordinator_pb2.RegisterPartitionsResponse:
        ticket = self.ask_to_register(producer_id, *partitions, name=name)
        self.commit()
        return self.answer(ticket, coordinator_pb2.RegisterPartitionsResponse)

    def writer(self, *partitions: PartitionKey, **named: object) -> int:
        """One that is enlisted, and registered in these partitions."""
        producer_id = self.enlisted(**named)
        assert error_of(self.register(producer_id, *partitions, name=str(named.get("name", T)))) is None
        return producer_id

    def keep_alive(self, producer_id: int, name: str = T) -> coordinator_pb2.KeepAliveResponse:
        ticket = self.ticket()
        request = coordinator_pb2.KeepAliveRequest(transactional_id=name, producer_id=producer_id)
        self.coordinator.keep_alive(ticket, request, self.now)
        return self.answer(ticket, coordinator_pb2.KeepAliveResponse)

    # -- the end

    def ask_to_end(
        self,
        winners: Iterable[coordinator_pb2.Winner | int],
        generation: int = 0,
        attempt: str = "a",
        run: str = "r",
        *,
        name: str = T,
        contents: coordinator_pb2.GenerationContents | None = None,
    ) -> int:
        request = coordinator_pb2.EndTransactionRequest(
            transactional_id=name,
            generation=generation,
            attempt_id=attempt.encode(),
            run_id=run.encode(),
            winners=[winner(each) if isinstance(each, int) else each for each in winners],
            contents=contents,
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        ticket = self.ticket()
        self.coordinator.end(ticket, request, self.now)
        return ticket

    def end(self, *arguments: object, **named: object) -> coordinator_pb2.EndTransactionResponse:
        """Markers included."""
        ticket = self.ask_to_end(*arguments, **named)  # type: ignore[arg-type]
        self.commit()
        self.write_markers()
        return self.answer(ticket, coordinator_pb2.EndTransactionResponse)

    # -- markers

    def asked_markers(self) -> list[WriteMarkers]:
        return [effect for effect in self.take(WriteMarkers) if isinstance(effect, WriteMarkers)]

    def write_markers(self) -> None:
        """All that are asked for are written, and what follows is committed."""
        while asked := self.asked_markers():
            for effect in asked:
                self.write(effect)
        self.commit()

    def write(self, effect: WriteMarkers) -> None:
        self.marked += [
            (effect.target, each.producer_id, each.committed, each.last_sequence) for each in effect.markers
        ]
        self.coordinator.markers_written(effect, self.now)

    def marks(self) -> dict[tuple[PartitionKey, int], bool]:
        """(partition, producer) -> committed; no producer has two ends."""
        found: dict[tuple[PartitionKey, int], bool] = {}
        for partition, producer_id, committed, _ in self.marked:
            assert found.setdefault((partition, producer_id), committed) == committed
        return found

    # -- people and time

    def describe(self, name: str = T) -> coordinator_pb2.DescribeTransactionResponse:
        ticket = self.ticket()
        request = coordinator_pb2.DescribeTransactionRequest(transactional_id=name)
        self.coordinator.describe(ticket, request, self.now)
        self.commit()
        return self.answer(ticket, coordinator_pb2.DescribeTransactionResponse)

    def wait(self, by_ms: float) -> None:
        """Time passes, with ticks when they are due."""
        until_ms = self.now_ms + by_ms
        while (due_ms := self.coordinator.next_tick_ms) <= until_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.coordinator.tick(self.now)
            self.commit()
        self.now_ms = until_ms
