"""A producer's real core joined to the model of the brokers, on virtual time. No sockets, no threads, no sleep."""

from __future__ import annotations

import random
from concurrent.futures import Future
from typing import Any, TypeAlias

from minilog.client_config import ClientConfig
from minilog.config import parse_config
from minilog.errors import MinilogError
from minilog.net.metadata_cache import MetadataCache
from minilog.producer.accumulator import Accumulator, Taken
from minilog.producer.batch import Batch
from minilog.producer.producer_effects import (
    Connect,
    Delivered,
    Failed,
    LostRecords,
    NeedProducerId,
    RefreshMetadata,
    Send,
)
from minilog.producer.sender import Sender
from minilog.record_batch.header import Buffer
from minilog.stream_messages import StreamMessage
from minilog.types import RecordMetadata
from minilog.v1 import common_pb2, data_pb2
from tests.unit.client.brokers import TOPIC, Brokers


def config_of(**settings: object) -> ClientConfig:
    """Nothing lingers; None: as where it is not set."""
    named = {"linger.ms": 0} | {name.replace("_", "."): value for name, value in settings.items()}
    given = {name: value for name, value in named.items() if value is not None}
    return parse_config({"bootstrap.servers": "127.0.0.1:9001", **given})


Out: TypeAlias = tuple[int, data_pb2.ProduceEntry, Buffer]
"""To which broker, what its entry says, and the batch."""


class Producing:
    """`hold` keeps requests from the brokers (they are out), `mute` lets them be written and loses the answers;
    `clogged` connections take nothing: what is sent stays in this process, and is lost with the connection."""

    def __init__(self, brokers: Brokers, **settings: object) -> None:
        self.brokers = brokers
        self.config = config_of(**settings)
        self.cache = MetadataCache()
        self.cache.apply(brokers.metadata())
        chance = random.Random(1)
        self.accumulator = Accumulator(
            batch_size=self.config.batch_size,
            linger_ms=self.config.linger_ms,
            buffer_memory=self.config.buffer_memory,
            chance=chance,
            available=self.cache.available_partitions,
        )
        self.sender = Sender(self.config, self.accumulator, self.cache, chance)
        self.now = 1000.0
        self.hold = self.mute = self.clogged = False
        self.down: set[int] = set()
        self.held: list[Out] = []
        self.requests: list[data_pb2.ProduceRequest] = []
        self.lost: list[MinilogError] = []
        self.sent: list[Out] = []
        self.ids_given = 0
        self.refuses_ids: MinilogError | None = None

    def send(
        self, value: bytes = b"v", *, key: bytes | None = None, partition: int | None = 0
    ) -> Future[RecordMetadata]:
        """One record, its batch closed at once."""
        future = self.append(value, key=key, partition=partition)
        self.accumulator.begin_flush()
        return future

    def append(self, value: bytes, *, key: bytes | None = None, partition: int | None = 0) -> Future[RecordMetadata]:
        future: Future[RecordMetadata] = Future()
        topic = self.cache.topics[TOPIC]
        taken = self.accumulator.append(topic, partition, key, value, None, 7_000, future, self.now)
        assert taken is not Taken.NO_SPACE
        return future

    def step(self) -> int:
        """One round; how many effects there were."""
        effects = self.sender.poll(self.now, 5_000_000)
        for effect in effects:
            match effect:
                case Connect(broker):
                    self._connect(broker)
                case Send(broker, request):
                    self._deliver(broker, request)
                case RefreshMetadata():
                    self.cache.apply(self.brokers.metadata())
                    self.sender.metadata_changed(self.now)
                case NeedProducerId() if self.refuses_ids is not None:
                    self.sender.producer_id_refused(self.refuses_ids, self.now)
                case NeedProducerId():
                    self.ids_given += 1
                    self.brokers.next_producer_id += 1
                    self.sender.producer_id_given(self.brokers.next_producer_id, 0, b"proof")
                case LostRecords(error):
                    self.lost.append(error)
                case Delivered(batch, offset):
                    self._settle(batch, lambda batch=batch, offset=offset: batch.completion.delivered(offset))
                case Failed(batch, error):
                    self._settle(batch, lambda batch=batch, error=error: batch.completion.failed(error))
        return len(effects)

    def run(self, for_ms: float = 0.0, step_ms: float = 10.0) -> None:
        """Let `for_ms` of virtual time pass."""
        end = self.now + for_ms
        while True:
            for _ in range(50):
                if not self.step():
                    break
            if self.now >= end:
                return
            self.now = min(self.now + step_ms, end)

    def release(self) -> None:
        """What was held arrives now, in order."""
        held, self.held, self.hold = self.held, [], False
        for broker, entry, batch in held:
            self._answer(broker, entry, batch)

    def lose_connection(self, broker: int) -> None:
        self.held = [out for out in self.held if out[0] != broker]
        self.sender.connection_lost(broker, self.now)

    def _connect(self, broker: int) -> None:
        if broker in self.down:
            self.sender.connection_lost(broker, self.now)
        else:
            self.sender.connection_opened(broker)

    def _deliver(self, broker: int, sent: StreamMessage[data_pb2.ProduceRequest]) -> None:
        request = sent.message
        self.requests.append(request)
        if self.clogged:
            return
        self.sender.written(request)
        for entry, batch in zip(request.entries, sent.payloads, strict=True):
            self.sent.append((broker, entry, batch))
            if self.hold:
                self.held.append((broker, entry, batch))
            else:
                self._answer(broker, entry, batch, request.acks)

    def _answer(self, broker: int, entry: data_pb2.ProduceEntry, batch: Buffer, acks: int = -1) -> None:
        result = self.brokers.produce(broker, entry, batch)
        refused = result.error.code != common_pb2.ERROR_CODE_NONE
        if not self.mute and (acks != 0 or refused):
            self.sender.answered(broker, data_pb2.ProduceResponse(results=[result]), self.now)

    def _settle(self, batch: Batch, complete: Any) -> None:
        complete()
        self.accumulator.settled(batch)
