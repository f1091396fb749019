"""Programs that write in transactions, and readers of what is committed: V15, from the outside.

A transaction is committed where its block ended without an error, aborted where the program raised one of its own in
it, and unknown where ending it failed or its program was killed: then it is seen as a whole or not at all.
"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minilog.aio import Consumer, Producer
from minilog.errors import MinilogError, OffsetOutOfRange
from minilog.types import Record, TopicPartition
from tests.simulation.invariants.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.whole.cluster import SimulatedCluster
    from tests.simulation.whole.machine import ClientMachine
    from tests.simulation.whole.workload import Workload

TOPIC = "x0"
MOST_RECORDS = 12
ABORTED_SHARE = 0.3
TIMEOUT_MS = 5_000
PAUSE_S = 0.05


class TransactionEnd(enum.Enum):
    """What is known of a transaction."""

    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


class _Abort(Exception):
    """The program's own."""


@dataclass(slots=True)
class _Transaction:
    records: int
    end: TransactionEnd = TransactionEnd.UNKNOWN
    seen: dict[int, tuple[int, int]] = field(default_factory=dict)  # record: its partition and offset


class Transacting:
    """See the module's text. `readers`: how far each has read, by partition."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload
        self._transactions: dict[str, _Transaction] = {}
        self._number = 0
        self.writers: list[str] = []
        self.positions: dict[str, dict[int, int]] = {}

    # -- writing

    def add_writer(self, transactional_id: str) -> None:
        """A new life of the program of this name."""
        self._number += 1
        name = f"{transactional_id}-{self._number}"
        process, machine = self._cluster.client(name)
        self.writers.append(name)
        self._cluster.run_client(process, self._write(name, transactional_id, machine))

    async def _write(self, name: str, transactional_id: str, machine: ClientMachine) -> None:
        settings = self._workload.settings(
            transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS, delivery_timeout_ms=TIMEOUT_MS
        )
        while self._workload.writing:
            try:
                async with Producer(settings, machine) as producer:
                    while self._workload.writing:
                        await self._transact(name, producer, machine)
                        await asyncio.sleep(PAUSE_S)
            except MinilogError as error:
                self._cluster.note(f"{name}: {type(error).__name__}: {error}")
                await asyncio.sleep(PAUSE_S)

    async def _transact(self, name: str, producer: Producer, machine: ClientMachine) -> None:
        chance = machine.chance()
        self._number += 1
        label = f"{name}/{self._number}"
        transaction = self._transactions[label] = _Transaction(chance.randint(1, MOST_RECORDS))
        try:
            async with producer.transaction():
                for record in range(transaction.records):
                    partition = chance.randrange(self._cluster.plan.partitions)
                    await producer.send(TOPIC, f"{label}:{record}".encode(), partition=partition)
                    if chance.random() < 0.2:
                        await asyncio.sleep(chance.uniform(0.0, 0.2))
                if chance.random() < ABORTED_SHARE:
                    raise _Abort
        except _Abort:
            transaction.end = TransactionEnd.ABORTED
            self._check_unseen(label, transaction)
        else:
            transaction.end = TransactionEnd.COMMITTED

    # -- reading

    def add_reader(self) -> str:
        self._number += 1
        name = f"r{self._number}"
        process, machine = self._cluster.client(name)
        self.positions[name] = dict.fromkeys(range(self._cluster.plan.partitions), 0)
        self._cluster.run_client(process, self._read(name, machine))
        return name

    async def _read(self, name: str, machine: ClientMachine) -> None:
        settings = self._workload.settings(isolation_level="read_committed", auto_offset_reset="earliest")
        async with Consumer(settings, machine) as consumer:
            await consumer.assign([TopicPartition(TOPIC, each, 0) for each in self.positions[name]])
            while True:
                for record in await self._polled(consumer):
                    self._saw(record.value or b"", record.partition, record.offset)
                for partition in self.positions[name]:
                    self.positions[name][partition] = consumer.position(TopicPartition(TOPIC, partition)) or 0

    @staticmethod
    async def _polled(consumer: Consumer) -> list[Record]:
        """Who is told that what it has read is not in the log any more has found a loss."""
        try:
            return await consumer.poll(0.5)
        except OffsetOutOfRange as error:
            raise Violation("V14", str(error)) from error

    def _saw(self, value: bytes, partition: int, offset: int) -> None:
        label, _, record = value.decode().rpartition(":")
        transaction = self._transactions[label]
        first = transaction.seen.setdefault(int(record), (partition, offset))
        if first != (partition, offset):
            raise Violation("V15", f"{value!r} is read at {(partition, offset)} and at {first}")
        self._check_unseen(label, transaction)

    def _check_unseen(self, label: str, transaction: _Transaction) -> None:
        if transaction.end is TransactionEnd.ABORTED and transaction.seen:
            raise Violation("V15", f"{label} was aborted, and of it is read {transaction.seen}")

    # -- the end

    def missing(self) -> str | None:
        """What is committed, or was seen in part, and not seen as a whole; None where there is nothing like that."""
        for label, transaction in self._transactions.items():
            lacks = transaction.records - len(transaction.seen)
            if lacks and (transaction.end is TransactionEnd.COMMITTED or transaction.seen):
                return (
                    f"{label} is {transaction.end.value}, and {lacks} of its {transaction.records} records are not seen"
                )
        return None

    def counts(self) -> dict[str, int]:
        """How many transactions ended how."""
        ends = [transaction.end.value for transaction in self._transactions.values()]
        return {f"transactions {end.value}": ends.count(end.value) for end in TransactionEnd}
