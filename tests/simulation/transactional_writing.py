"""One writer's part in a transaction, as minilog/transactions/participation.py: the client's real accumulator and
sender."""

from __future__ import annotations

import random
from collections.abc import Iterable

from minilog.config import ClientConfig
from minilog.errors import InvalidTxnState, MinilogError, ProducerFenced, TimedOut
from minilog.producer.accumulator import Taken
from minilog.transactions.messages import Enlistment, Winner, WrittenPartition
from minilog.types import RecordMetadata
from minilog_broker.replication.partition_state import PartitionKey
from tests.simulation.clients import ClientProcess
from tests.simulation.coordinators_of_clients import CoordinatorsAsked
from tests.simulation.coroutines import Promise, first_of, sleep, spawn
from tests.simulation.history import History, Outcome, Write
from tests.simulation.producing import Settled, SimulatedProducer
from tests.simulation.transaction_history import Copy, Generation

LOOK_MS = 20.0


class TransactionalWriter(SimulatedProducer):
    """See the module's text. `begin`, `put` rows, then `finish` or `drop`; once."""

    def __init__(
        self,
        name: str,
        client: ClientProcess,
        config: ClientConfig,
        node_ids: Iterable[int],
        history: History,
        rng: random.Random,
        asked: CoordinatorsAsked,
    ) -> None:
        super().__init__(name, client, config, node_ids, history, rng)
        self._asked = asked
        self._enlistment: Enlistment | None = None
        self._all_settled: Promise[None] = Promise()

    def begin(self, enlistment: Enlistment) -> None:
        """All that is put from now on is of this transaction."""
        self._enlistment = enlistment
        self._sender.begin(enlistment)
        self._keep_alive(None)

    def _keep_alive(self, _: object) -> None:
        if self._enlistment is not None:
            spawn(self._client.process, self._one_keep_alive(self._enlistment))

    async def _one_keep_alive(self, enlistment: Enlistment) -> None:
        await sleep(self._client.process, enlistment.keep_alive_ms)
        if self._enlistment is None:
            return
        try:
            await self._asked.keep_alive(enlistment)
        except ProducerFenced as error:
            self._sender.identity.fail(error)
            self._run()
            return
        except MinilogError:
            pass  # tried again
        self._keep_alive(None)

    async def put(self, row: int, topic_name: str, generation: Generation) -> None:
        """Send one row somewhere. Raises where the transaction has failed."""
        enlistment, client = self._enlistment, self._client
        assert enlistment is not None
        while (topic := self.cache.topics.get(topic_name)) is None:
            self._picture.refresh()
            await sleep(client.process, LOOK_MS)
        partition = self._rng.randrange(topic.partition_count)
        copy = Copy(generation, row, enlistment.producer_id)
        value = f"{generation.transactional_id}/{generation.number}/{row}/{enlistment.producer_id}".encode()
        key = PartitionKey(topic.topic_id, partition)
        now_ms = client.process.scheduler.now_ms
        self._history.began(Write(value, key, self.name, True, 0, now_ms, transaction=copy))
        self.pending += 1
        try:
            taken = self._put(topic, partition, value, self._settled(value))
        except MinilogError as error:
            self._settled(value)(None, error)
            raise
        assert taken is not Taken.NO_SPACE
        self._run()

    def _settled(self, value: bytes) -> Settled:
        """What is written of a transaction is seen or not by its end; its writer is told only of its writing."""

        def settled(result: RecordMetadata | None, error: MinilogError | None) -> None:
            self.pending -= 1
            outcome = Outcome.UNKNOWN if result is None else Outcome.OK
            now_ms, offset = self._client.process.scheduler.now_ms, -1 if result is None else result.offset
            self._history.ended(value, outcome, now_ms, offset=offset, error=repr(error))
            if not self.pending:
                self._all_settled.keep(None)

        return settled

    async def finish(self) -> Winner:
        """Everything is acknowledged. Raises why something is not: then it is to be dropped, and aborted."""
        process, enlistment = self._client.process, self._enlistment
        assert enlistment is not None
        self._accumulator.refuse(InvalidTxnState("the transaction is about to be committed"))
        self._accumulator.begin_flush()
        self._run()
        within_ms = self.config.delivery_timeout_ms + 1_000.0
        if self.pending:
            self._all_settled = Promise()
            await first_of(self._all_settled, sleep(process, within_ms))
        if self.pending:
            raise TimedOut(f"not all that was sent was acknowledged within {within_ms} ms")
        if (failure := self._sender.identity.failure) is not None:
            kind = ProducerFenced if isinstance(failure, ProducerFenced) else InvalidTxnState
            raise kind(f"the transaction has failed: {failure}")
        written: tuple[WrittenPartition, ...] = self._sender.end()
        self._enlistment = None
        return Winner(enlistment.producer_id, written)

    def drop(self) -> None:
        """Leave the transaction without its being committed."""
        self._enlistment = None
        if self._sender.identity.transaction is not None:
            self._sender.identity.fail(InvalidTxnState("it was aborted"))
            self._run()
            self._sender.end()
