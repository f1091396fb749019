"""Workers of a queue, and what they were handed.

    queuing.py             who works, and what was handed to whom
    queuing_program.py     what the user of a worker wrote: it takes messages, works, and settles them
    queuing_troubles.py    what befalls workers
    redriving.py           redrives of the queue's dead letters, two at a time

The queue has the topic that is written to, and that of the programs with transactions. What is judged of it from the
outside: judge/queues.py. What its coordinator writes: judge/queue_records.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from minilog.aio import Admin, QueueConsumer
from minilog.errors import MinilogError
from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from tests.judges.queues import Deliveries
from tests.judges.violation import Violation
from tests.simulation.clients import transacting
from tests.simulation.clients.queue_settings import DEAD_LETTERS, QUEUE, drawn
from tests.simulation.clients.queuing_program import Program, Worker
from tests.simulation.clients.queuing_troubles import Troubles
from tests.simulation.clients.redriving import Redrivers
from tests.simulation.clients.transacting import Transacting, TransactionEnd
from tests.simulation.machines.identities import ADMIN

if TYPE_CHECKING:
    from minilog.queues.message import Message
    from tests.simulation.clients.history import History
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine

MAX_POLL_INTERVAL_MS = 2_000  # some work longer on what they were handed
MAX_POLL_RECORDS = (1, 5, 20)
AGAIN_S = 0.2


class Queuing:
    """The queue of the simulation."""

    def __init__(
        self, cluster: SimulatedCluster, workload: Workload, history: History, transactions: Transacting
    ) -> None:
        self.cluster = cluster
        self.settings = drawn(cluster.seed, has_letters=cluster.plan.redriving)
        self.deliveries = Deliveries(self.settings.limit)
        self.workers: list[Worker] = []
        self._workload, self._history, self._transactions = workload, history, transactions
        self._number = 0
        self._in_transactions: list[bytes] = []  # values that were handed out
        self._tasks: list[asyncio.Task[None]] = []
        self.redrivers = Redrivers(cluster, workload)

    @property
    def topics(self) -> list[str]:
        """Of the queue."""
        return ["t0", *([transacting.TOPIC] if self.cluster.plan.writers else [])]

    def keys(self) -> dict[TopicPartition, PartitionKey]:
        """The partitions of the queue."""
        keys = dict(self._workload.keys)
        if self.cluster.plan.writers:
            of_transactions = self._workload.keys_of_special(transacting.TOPIC)
            keys |= {TopicPartition(transacting.TOPIC, number): key for number, key in of_transactions.items()}
        return keys

    def dead_letter_keys(self) -> list[PartitionKey]:
        """The partitions of the dead-letter topic."""
        return list(self._workload.keys_of_special(DEAD_LETTERS).values())

    async def begin(self) -> None:
        """The settings, the workers, and what befalls them."""
        await self.set_up()
        for _ in range(self.cluster.plan.queuing):
            self.add()
        self._tasks = [asyncio.get_running_loop().create_task(Troubles(self).befall())]
        if self.cluster.plan.redriving:
            self._tasks.append(asyncio.get_running_loop().create_task(self.redrivers.run()))

    async def set_up(self) -> None:
        """The queue has its settings."""
        process, machine = self.cluster.client("queue-admin")
        task = self.cluster.loop.spawn(process, self._set(machine))
        await asyncio.wait([task])
        task.result()

    async def _set(self, machine: ClientMachine) -> None:
        async with Admin(self._workload.settings_of(ADMIN, request_timeout_ms=3_000), machine) as admin:
            while True:
                try:
                    await admin.alter_queue(QUEUE, set=self.settings.texts())
                except MinilogError:
                    await asyncio.sleep(AGAIN_S)
                else:
                    return

    def end(self) -> None:
        """Nothing befalls them any more."""
        for task in self._tasks:
            task.cancel()

    # -- workers come and go

    def add(self) -> None:
        """One more process."""
        self._number += 1
        process, machine = self.cluster.client(f"worker-{self._number}")
        worker = Worker(process.name, process)
        self.workers.append(worker)
        self.cluster.run_client(process, self._work(worker, machine))

    async def _work(self, worker: Worker, machine: ClientMachine) -> None:
        chance = machine.chance()
        settings = self._workload.settings(
            queue=QUEUE,
            isolation_level="read_committed",
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            max_poll_records=chance.choice(MAX_POLL_RECORDS),
            request_timeout_ms=3_000,
            transaction_timeout_ms=transacting.TIMEOUT_MS,  # of dead letters whose worker dies
        )
        consumer = QueueConsumer(settings, machine)
        program = Program(self, worker, consumer, chance)
        await program.subscribe(self.topics)
        while not worker.leaves:
            await program.turn()
        await program.leave()
        worker.is_gone = True

    def living(self) -> list[Worker]:
        """Those that neither ended nor are about to."""
        return [worker for worker in self.workers if not (worker.process.dead or worker.is_gone or worker.leaves)]

    def die(self, worker: Worker) -> None:
        """SIGKILL. Another process comes in its place."""
        if worker.name in self.cluster.clients:
            self.cluster.note(f"{worker.name} dies with {len(worker.held)} messages")
            self.cluster.kill_client(worker.name)
            self.add()

    def stall(self, worker: Worker, for_s: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        if worker.name in self.cluster.clients:
            self.cluster.loop.stand_still(worker.process)
            self.cluster.loop.after(for_s, self.cluster.loop.go_on, worker.process)

    # -- what they are handed

    def saw(self, worker: Worker, message: Message) -> None:
        """A message was handed out. Raises Violation where it holds what nobody may see."""
        if message.topic == transacting.TOPIC:
            value = message.value or b""
            self._in_transactions.append(value)
            if self._transactions.end_of(value) is TransactionEnd.ABORTED:
                raise Violation("Q4", f"{worker.name} is handed {value!r} of a transaction that was aborted")
            return
        key = self._workload.keys[TopicPartition(message.topic, message.partition)]
        self._history.read_by_chance(worker.name, key, message.offset, message.value or b"")

    def check_aborted(self) -> None:
        """At the end the ends of all transactions are known."""
        for value in self._in_transactions:
            if self._transactions.end_of(value) is TransactionEnd.ABORTED:
                raise Violation("Q4", f"{value!r} was handed out, and its transaction was aborted")

    def acknowledged(self) -> set[tuple[str, int, int]]:
        """The places of what is committed for sure, and is not deleted: each has to be handed out."""
        places = set(self._transactions.committed_places()) if self.cluster.plan.writers else set()
        at_of = {key: at for at, key in self._workload.keys.items()}
        gone = {key: self._workload.may_be_gone(key) for key in at_of}
        for key, offset in self._history.acknowledged():
            if offset >= gone[key] and not self._history.is_exempt(key):
                places.add((at_of[key].topic, at_of[key].partition, offset))
        return places

    def is_deleted(self, message: Message) -> bool:
        """Whether retention, or an operator, may have deleted the record."""
        return message.offset < self.may_be_gone(TopicPartition(message.topic, message.partition))

    def may_be_gone(self, at: TopicPartition) -> int:
        """The offset below which retention may have taken records."""
        key = self._workload.keys.get(at)
        return 0 if key is None else self._workload.may_be_gone(key)
