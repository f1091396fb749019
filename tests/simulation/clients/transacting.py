"""Programs that write in transactions, and readers of what is committed: V15, from the outside.

A transaction is committed where its block ended without an error, aborted where the program raised one of its own in
it, and unknown where ending it failed or its program was killed: then it is seen as a whole or not at all.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minilog.aio import Producer
from minilog.errors import MinilogError
from minilog.partition_key import PartitionKey
from minilog.types import Record
from tests.judges.violation import Violation
from tests.simulation.clients.committed_reading import read_committed
from tests.simulation.clients.keyed import identity_of, keyed

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine

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
        self.may_miss: Callable[[Mapping[int, PartitionKey], bytes], bool] = lambda keys, value: False

    # -- writing

    def add_writer(self, transactional_id: str | None) -> None:
        """A new life of the program of this name; None: a program of a new name, which ends nobody's transactions."""
        self._number += 1
        transactional_id = f"v{self._number}" if transactional_id is None else transactional_id
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
                    value = f"{label}:{record}".encode()
                    sent = keyed(value, chance) if self._cluster.plan.compacted else {"value": value}
                    await producer.send(TOPIC, partition=partition, **sent)
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
        work = read_committed(self._workload.settings(), machine, TOPIC, self.positions[name], self._saw)
        self._cluster.run_client(process, work)
        return name

    def _saw(self, record: Record) -> None:
        label, _, number = identity_of(record).decode().rpartition(":")
        transaction, place = self._transactions[label], (record.partition, record.offset)
        first = transaction.seen.setdefault(int(number), place)
        if first != place:
            raise Violation("V15", f"{record.value!r} is read at {place} and at {first}")
        self._check_unseen(label, transaction)

    def _check_unseen(self, label: str, transaction: _Transaction) -> None:
        if transaction.end is TransactionEnd.ABORTED and transaction.seen:
            raise Violation("V15", f"{label} was aborted, and of it is read {transaction.seen}")

    def end_of(self, value: bytes) -> TransactionEnd:
        """What is known of the transaction of this value by now."""
        return self._transactions[value.decode().rpartition(":")[0]].end

    # -- the end

    def committed_places(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of what is committed, as readers have seen it."""
        committed = (each for each in self._transactions.values() if each.end is TransactionEnd.COMMITTED)
        return [(TOPIC, *place) for transaction in committed for place in transaction.seen.values()]

    def missing(self) -> str | None:
        """What is committed, or was seen in part, and not seen as a whole; None where there is nothing like that."""
        for label, transaction in self._transactions.items():
            lacks = sum(
                number not in transaction.seen and not self._may_miss(f"{label}:{number}".encode())
                for number in range(transaction.records)
            )
            if lacks and (transaction.end is TransactionEnd.COMMITTED or transaction.seen):
                return (
                    f"{label} is {transaction.end.value}, and {lacks} of its {transaction.records} records are not seen"
                )
        return None

    def _may_miss(self, value: bytes) -> bool:
        keys = self._workload.keys_of_special(TOPIC) if self._cluster.plan.compacted else {}
        return self.may_miss(keys, value)

    def counts(self) -> dict[str, int]:
        """How many transactions ended how."""
        ends = [transaction.end.value for transaction in self._transactions.values()]
        return {f"transactions {end.value}": ends.count(end.value) for end in TransactionEnd}
