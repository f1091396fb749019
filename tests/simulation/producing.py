"""A simulated producer: the client's real accumulator and sender, its writes and their outcomes in the history."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from minilog.config import ClientConfig
from minilog.errors import MinilogError, UnknownOutcome
from minilog.net.metadata_cache import CachedTopic
from minilog.producer.accumulator import Accumulator, Taken
from minilog.producer.batch import Batch
from minilog.producer.producer_effects import (
    Connect,
    Delivered,
    Effect,
    Failed,
    Lost,
    NeedProducerId,
    RefreshMetadata,
    Send,
)
from minilog.producer.sender import Sender
from minilog.types import RecordMetadata
from minilog.v1 import data_pb2, metadata_pb2
from minilog_broker.replication.partition_state import PartitionKey
from tests.simulation.clients import ClientProcess
from tests.simulation.history import History, Outcome, Write
from tests.simulation.talking import Picture, Talk

Settled: TypeAlias = Callable[[RecordMetadata | None, MinilogError | None], None]
MAX_PENDING = 60  # values of one producer that nobody has answered: a user who waits


class _Future:
    """What the accumulator completes for one value."""

    __slots__ = ("_done", "_settled")

    def __init__(self, settled: Settled) -> None:
        self._settled = settled
        self._done = False

    def set_result(self, result: Any) -> None:
        self._done = True
        self._settled(result, None)

    def set_exception(self, error: Any) -> None:
        self._done = True
        self._settled(None, error)

    def done(self) -> bool:
        return self._done


class SimulatedProducer:
    """See the module's text. `write` begins a value; what becomes of it is in the history."""

    def __init__(
        self,
        name: str,
        client: ClientProcess,
        config: ClientConfig,
        node_ids: Iterable[int],
        history: History,
        rng: random.Random,
    ) -> None:
        self.name, self.config = name, config
        self.pending = 0
        self._client, self._history, self._rng = client, history, rng
        self._picture = Picture(client, config, node_ids, rng, lambda: None, self._metadata_changed)
        self.cache = self._picture.cache
        self._accumulator = Accumulator(
            batch_size=config.batch_size,
            linger_ms=config.linger_ms,
            buffer_memory=config.buffer_memory,
            chance=rng,
            available=self.cache.available_partitions,
        )
        self._sender = Sender(config, self._accumulator, self.cache, rng)
        self._talks: dict[int, Talk] = {}
        self._numbers = 0
        self._wake_ms = float("inf")
        self._picture.refresh()

    # -- the user

    def write(self, topics: Iterable[str]) -> bool:
        """Send a few records to a partition of one of `topics`, as far as they are known; False where none is."""
        known = [topic for name in topics if (topic := self.cache.topics.get(name)) is not None]
        if not known:
            self._picture.refresh()
        if not known or self.pending >= MAX_PENDING:
            return False
        topic = self._rng.choice(known)
        partition = self._rng.randrange(topic.partition_count)
        key = PartitionKey(topic.topic_id, partition)
        for _ in range(self._rng.choice((1, 1, 2, 5))):
            self._numbers += 1
            value = f"{self.name}-{self._numbers}".encode()
            idempotent = self.config.enable_idempotence
            now_ms = self._client.process.scheduler.now_ms
            self._history.began(Write(value, key, self.name, idempotent, self.config.acks, now_ms))
            self.pending += 1
            taken = self._put(topic, partition, value, self._settled(value))
            assert taken is not Taken.NO_SPACE, "buffer.memory holds what MAX_PENDING allows"
        self._run()
        return True

    def _put(self, topic: CachedTopic, partition: int, value: bytes, settled: Settled) -> Taken:
        return self._accumulator.append(
            topic, partition, None, value, None, self._client.now_us, _Future(settled), self._client.now_ms
        )

    def _settled(self, value: bytes) -> Settled:
        def settled(result: RecordMetadata | None, error: MinilogError | None) -> None:
            self.pending -= 1
            now_ms = self._client.process.scheduler.now_ms
            if result is not None:
                self._history.ended(value, Outcome.OK, now_ms, offset=result.offset)
            else:
                outcome = Outcome.UNKNOWN if isinstance(error, UnknownOutcome) else Outcome.FAILED
                self._history.ended(value, outcome, now_ms, error=repr(error))

        return settled

    # -- the shell

    def _run(self, _: Any = None) -> None:
        """What the core wants now, and when it wants to be asked again."""
        client = self._client
        settled = True
        while settled:  # a batch that is settled makes room for the next
            effects = self._sender.poll(client.now_ms, client.now_us)
            for effect in effects:
                self._carry_out(effect)
            settled = any(_settles(effect) for effect in effects)
        wake_ms = max(self._sender.next_wake_ms(client.now_ms), client.now_ms + 1.0)
        if wake_ms < self._wake_ms - 0.5 or self._wake_ms <= client.now_ms:
            self._wake_ms = wake_ms
            if wake_ms != float("inf"):
                client.after(wake_ms - client.now_ms, self._woken, wake_ms)

    def _woken(self, due_ms: float) -> None:
        if due_ms == self._wake_ms:
            self._wake_ms = float("inf")
            self._run()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Connect(broker_id):
                self._connect(broker_id)
            case Send(broker_id, request):
                if (talk := self._talks.get(broker_id)) is not None:
                    talk.send(request)
                    self._sender.written(request.message)
            case RefreshMetadata():
                self._picture.refresh()
            case NeedProducerId():
                self._ask_for_id()
            case Delivered(batch, base_offset):
                self._complete(batch, lambda: batch.completion.delivered(base_offset))
            case Failed(batch, error):
                self._complete(batch, lambda: batch.completion.failed(error))
            case Lost():
                pass  # under acks=0: the shell's log tells

    def _complete(self, batch: Batch, complete: Callable[[], None]) -> None:
        complete()
        self._accumulator.settled(batch)

    def _connect(self, broker_id: int) -> None:
        first = data_pb2.ProduceRequest(client=self.config.identity(), acks=self.config.acks)

        def opened() -> None:
            talk.send(first)
            self._sender.connection_opened(broker_id)
            self._run()

        def received(response: data_pb2.ProduceResponse) -> None:
            if response.results:
                self._sender.answered(broker_id, response, self._client.now_ms)
                self._run()

        def lost() -> None:
            if self._talks.get(broker_id) is talk:
                del self._talks[broker_id]
                self._sender.connection_lost(broker_id, self._client.now_ms)
                self._run()

        talk = self._talks[broker_id] = Talk(
            self._client,
            broker_id,
            "Produce",
            lambda: data_pb2.ProduceRequest(acks=self.config.acks),
            keepalive_ms=self.config.session_keepalive_ms,
            opened=opened,
            received=received,
            lost=lost,
        )

    def _ask_for_id(self) -> None:
        def answered(answer: metadata_pb2.InitProducerIdResponse | None) -> None:
            if answer is None or answer.error.code:
                self._sender.producer_id_refused(self._client.now_ms)
            else:
                self._sender.producer_id_given(answer.producer_id, answer.producer_epoch)
            self._run()

        request = metadata_pb2.InitProducerIdRequest(client=self.config.identity())
        self._picture.ask_any("InitProducerId", request, answered, self.config.request_timeout_ms)

    def _metadata_changed(self) -> None:
        self._sender.metadata_changed(self._client.now_ms)
        self._run()


def _settles(effect: Effect) -> bool:
    """Does carrying it out make room for another batch, or settle one (what is sent under acks=0 is done)?"""
    return isinstance(effect, Delivered | Failed) or (isinstance(effect, Send) and effect.request.message.acks == 0)
