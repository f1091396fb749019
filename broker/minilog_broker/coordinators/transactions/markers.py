"""The markers that still have to be written, to exactly the partitions in which a producer was registered.

    a (transactional id, partition) has   because                                  left by
    markers waiting                       a decision on producers was committed    sent, all in one WriteMarkers
    markers in flight                     one WriteMarkers is under way            written: done; failed: waiting again
    (nothing)                             all are below the high watermark there, or the topic is gone

One WriteMarkers at a time is under way for a transaction and partition. A producer's end is decided once. So a marker
that is written counts, whichever term sent it. The next coordinator builds all of this again from the committed table,
and writes the same markers once more: markers are idempotent. (Kafka lost markers in flight when a coordinator loaded
again: KAFKA-16352.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from minilog.partition_key import PartitionKey
from minilog_broker.coordinators.coordinator_effects import MarkerToWrite, WriteMarkers
from minilog_broker.coordinators.transactions.records import Fate, Registered, TransactionProducer

_REFUSED_RETRY_MS = 10_000.0  # it takes an operator, or the copy that was lost, to change it

_Target: TypeAlias = tuple[str, PartitionKey]


class Markers:
    """The markers by partition. The coordinator sends each one until the leader of its partition has it."""

    def __init__(self, retry_ms: float, knows_topic: Callable[[bytes], bool]) -> None:
        self._retry_ms = retry_ms
        self._knows_topic = knows_topic
        self._waiting: dict[_Target, dict[int, MarkerToWrite]] = {}
        self._in_flight: dict[_Target, WriteMarkers] = {}
        self._retry_at: dict[_Target, float] = {}
        # By transactional id and producer: (generation, partitions that lack the marker).
        self._missing: dict[str, dict[int, tuple[int, set[PartitionKey]]]] = {}
        self._done: set[tuple[str, int]] = set()

    def clear(self) -> None:
        self._waiting.clear()
        self._in_flight.clear()
        self._retry_at.clear()
        self._missing.clear()
        self._done.clear()

    def decided(self, transactional_id: str, producer_id: int, producer: TransactionProducer) -> None:
        """Note that the end of a producer is committed."""
        partitions = {registered.partition for registered in producer.partitions}
        self._missing.setdefault(transactional_id, {})[producer_id] = (producer.generation, partitions)
        for registered in producer.partitions:
            marker = _marker(producer_id, producer, registered)
            self._waiting.setdefault((transactional_id, registered.partition), {})[producer_id] = marker

    def forgotten(self, transactional_id: str, producer_id: int) -> None:
        """Note that the removal of a producer is committed."""
        self._done.discard((transactional_id, producer_id))

    def visible(self, transactional_id: str, generation: int) -> bool:
        """Whether no producer that ended in this generation, or before, lacks a marker."""
        return all(ended > generation for ended, _ in self._missing.get(transactional_id, {}).values())

    @property
    def done(self) -> list[tuple[str, int]]:
        """The producers that have all their markers. The coordinator may remove them from the table."""
        return sorted(self._done)

    def send(self, now_ms: float, coordinator_epoch: int) -> list[WriteMarkers]:
        """The calls to make now, in the epoch in which this coordinator leads."""
        sent = []
        for target in list(self._waiting):
            transactional_id, partition = target
            if target in self._in_flight or self._retry_at.get(target, now_ms) > now_ms:
                continue
            self._retry_at.pop(target, None)
            if not self._knows_topic(partition.topic_id):
                self._have(target, list(self._waiting[target]))
                continue
            markers = tuple(self._waiting[target][producer_id] for producer_id in sorted(self._waiting[target]))
            effect = WriteMarkers(partition, transactional_id, markers, coordinator_epoch)
            self._in_flight[target] = effect
            sent.append(effect)
        return sent

    def written(self, effect: WriteMarkers) -> None:
        """Note that these markers are below the high watermark."""
        target = (effect.transactional_id, effect.target)
        self._landed(target, effect)
        self._have(target, [marker.producer_id for marker in effect.markers])

    def failed(self, effect: WriteMarkers, now_ms: float, *, refused: bool = False) -> None:
        """Note that the outcome is unknown. The same call goes out again after a while, and after a longer one if a
        leader refused it."""
        target = (effect.transactional_id, effect.target)
        if self._landed(target, effect) and target in self._waiting:
            self._retry_at[target] = now_ms + (_REFUSED_RETRY_MS if refused else self._retry_ms)

    def next_due_ms(self) -> float:
        """The time of the next attempt."""
        return min(self._retry_at.values(), default=math.inf)

    def _landed(self, target: _Target, effect: WriteMarkers) -> bool:
        """Whether it was the one under way, and not one of a former term."""
        if self._in_flight.get(target) is not effect:
            return False
        del self._in_flight[target]
        return True

    def _have(self, target: _Target, producer_ids: list[int]) -> None:
        transactional_id, partition = target
        waiting, missing = self._waiting.get(target, {}), self._missing.get(transactional_id, {})
        for producer_id in producer_ids:
            if waiting.pop(producer_id, None) is None:
                continue
            partitions = missing[producer_id][1]
            partitions.discard(partition)
            if not partitions:
                del missing[producer_id]
                self._done.add((transactional_id, producer_id))
        if not waiting:
            self._waiting.pop(target, None)
            self._retry_at.pop(target, None)
        if not missing:
            self._missing.pop(transactional_id, None)


def _marker(producer_id: int, producer: TransactionProducer, registered: Registered) -> MarkerToWrite:
    return MarkerToWrite(producer_id, producer.fate is Fate.COMMITTING, registered.last_sequence)
