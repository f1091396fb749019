"""The calls of leaders to the coordinators of transactions, which register the partitions of a producer.

This carries out RegisterPartition. One call has all partitions of a producer that wait at the same time. After a
temporary failure (no coordinator yet, an election, an unknown topic, no answer) the leader calls again, with pauses, as
long as an entry waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, Protocol

import structlog

from minilog.errors import MinilogError, error_from_wire
from minilog.v1 import coordinator_pb2
from minilog_broker.replication.manager import ReplicaManager
from minilog_broker.replication.replica_effects import RegisterPartition
from minilog_broker.server.runtime.timer import now_ms

logger = structlog.get_logger()

FIRST_PAUSE_S = 0.02  # doubled each time ...
LONGEST_PAUSE_S = 0.5  # ... up to this: an election takes less
CALLS_AT_ONCE = 64  # of all producers: more would not be answered sooner

Request = coordinator_pb2.RegisterPartitionsRequest
Response = coordinator_pb2.RegisterPartitionsResponse


class Leading(Protocol):
    """The part that leads partitions here: Replicas."""

    manager: ReplicaManager

    def run(self) -> None: ...


class _Producer(NamedTuple):
    transactional_id: str
    producer_id: int
    coordinator_epoch: int


class PartitionRegistrations:
    """The calls of leaders that register a producer's partitions with the coordinator of its transaction.

    `call` asks the coordinator of the request's transactional id once, and raises MinilogError where it cannot be
    asked. `spawn` runs a task of the broker's.
    """

    def __init__(
        self,
        replicas: Leading,
        call: Callable[[Request], Awaitable[Response]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        *,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._replicas = replicas
        self._call = call
        self._spawn = spawn
        self._first_pause_s = first_pause_s
        self._waiting: dict[_Producer, list[RegisterPartition]] = {}
        self._turns = asyncio.Semaphore(CALLS_AT_ONCE)

    def ask(self, effect: RegisterPartition) -> None:
        """Carry out RegisterPartition."""
        producer = _Producer(effect.transactional_id, effect.producer_id, effect.coordinator_epoch)
        if producer in self._waiting:
            self._waiting[producer].append(effect)
        else:
            self._waiting[producer] = [effect]
            self._spawn(self._ask_for(producer))

    async def _ask_for(self, producer: _Producer) -> None:
        pause_s = self._first_pause_s
        while effects := self._still_waited_for(producer):
            error = await self._ask_once(producer, effects)
            if error is None or not error.retriable:
                self._answer(producer, effects, error)
                continue
            logger.debug(
                "the coordinator has not registered a producer yet",
                transactional_id=producer.transactional_id,
                error=str(error),
            )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _still_waited_for(self, producer: _Producer) -> list[RegisterPartition]:
        """The effects that still wait. Without any, the producer is dropped here, in the same step."""
        manager = self._replicas.manager
        effects = [effect for effect in self._waiting[producer] if manager.is_registering(effect.key, effect.number)]
        if effects:
            self._waiting[producer] = effects
        else:
            del self._waiting[producer]
        return list(effects)

    async def _ask_once(self, producer: _Producer, effects: list[RegisterPartition]) -> MinilogError | None:
        request = Request(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            partitions=[effect.key.to_wire() for effect in effects],
            coordinator_epoch=producer.coordinator_epoch,
        )
        try:
            async with self._turns:
                return error_from_wire((await self._call(request)).error)
        except MinilogError as error:
            return error

    def _answer(self, producer: _Producer, effects: list[RegisterPartition], error: MinilogError | None) -> None:
        self._waiting[producer] = [effect for effect in self._waiting[producer] if effect not in effects]
        for effect in effects:
            self._replicas.manager.registered(effect.key, effect.number, error, now_ms())
        self._replicas.run()
