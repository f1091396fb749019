"""Redrive: the dead letters of a queue are its messages again.

    the record of a letter     what becomes of it
    is there                   its offset is ready again in this queue, and nobody else sees it
    is gone, with a copy       the copy is a new record of the topic: every reader of the topic gets it
    is gone, without one       nothing: it is counted

The coordinator of the queue keeps the place up to which letters are redriven. It moves the place in one decision with
the offsets, or in the transaction that writes new records. So no letter is redriven twice, whatever is interrupted.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

from minilog.aio.consumer import Consumer
from minilog.aio.dead_letters import TRANSACTION_TIMEOUT_MS
from minilog.aio.producer import Producer
from minilog.errors import InvalidArgument, InvalidRecordState, UnknownTopicOrPartition, UnstableOffsetCommit
from minilog.limits import MAX_LETTERS, parts_of
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_s
from minilog.partition_key import PartitionKey
from minilog.queues.client import Queues
from minilog.queues.dead_letters import HEADER_NAMES, RecordOrigin, origin_of
from minilog.types import Record, Redriven, TopicPartition
from minilog.v1 import queue_pb2

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
_POLL_S = 1.0
_AGAIN_S = 0.1


def redrive_name(queue: str) -> str:
    """The transactional.id of a redrive that writes new records: the next one ends the transaction of the last."""
    return f"{queue}-redrive"


class LocatedLetter(NamedTuple):
    """A dead letter of the queue, and where its record was."""

    record: Record
    origin: RecordOrigin

    @property
    def has_copy(self) -> bool:
        return self.record.key is not None or self.record.value != b""


class _Full(Exception):
    """A partition of the queue has no room for the next letter."""


@dataclass(slots=True)
class _Counts:
    made_ready: int = 0
    gone: int = 0
    unsettled: int = 0
    passed_over: int = 0
    written_to: Counter[str] = field(default_factory=Counter)
    is_full: bool = False

    def redriven(self) -> Redriven:
        return Redriven(
            made_ready_count=self.made_ready,
            written_to=dict(self.written_to),
            gone_count=self.gone,
            unsettled_count=self.unsettled,
            passed_over_count=self.passed_over,
            is_full=self.is_full,
        )


@dataclass(slots=True)
class _Part:
    """A partition of the dead-letter topic. `place`: all letters below are redriven."""

    key: PartitionKey
    place: int


class Redrive:
    """One redrive of a queue. Lives on one event loop."""

    def __init__(self, config: Mapping[str, object], cluster: NetworkClient, queue: str) -> None:
        self._queue, self._cluster, self._queues = queue, cluster, Queues(cluster)
        reading = {**config, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        self._letters = Consumer(reading, cluster.runtime)
        writing = {
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            **config,
            "transactional.id": redrive_name(queue),
        }
        self._producer = Producer(writing, cluster.runtime)
        self._counts = _Counts()
        self._waits_until_s: float | None = None  # for the marker of a letter's transaction
        self._starts: dict[PartitionKey, int] = {}  # the first offsets of partitions with records of letters

    async def run(self, max_letters: int | None) -> Redriven:
        """Redrive the letters that are there now, at most so many."""
        async with self._letters, self._producer:
            description = await self._queues.describe(self._queue)
            topic = description.settings.get(DEAD_LETTER_TOPIC)
            if not topic:
                raise InvalidArgument(f"queue {self._queue!r} has no dead-letter topic: set {DEAD_LETTER_TOPIC}")
            partitions = await self._letters.partitions_for(topic)
            if not partitions:
                raise UnknownTopicOrPartition(f"the dead-letter topic {topic!r} does not exist")
            begins = await self._letters.beginning_offsets(partitions)
            ends = await self._letters.end_offsets(partitions)
            left = max_letters
            try:
                for at in partitions:
                    part = _Part(await self._key(at), 0)
                    part.place = await self._place(part.key)
                    begin, end = max(part.place, begins[at]), ends[at]
                    if begin < end and left != 0:
                        bounded = TopicPartition(at.topic, at.partition, offset=begin, end_offset=end)
                        taken = await self._redrive(part, bounded, left)
                        left = None if left is None else left - taken
            except _Full:
                self._counts.is_full = True
        return self._counts.redriven()

    async def _key(self, partition: TopicPartition) -> PartitionKey:
        topic = await self._cluster.topic(partition.topic, self._cluster.deadline(), partition.partition)
        return PartitionKey(topic.topic_id, partition.partition)

    async def _place(self, key: PartitionKey) -> int:
        """The place of a partition of letters, when no transaction moves it. One of an earlier redrive is ended."""
        until_s, has_fenced = self._cluster.deadline(), False
        while True:
            described = (await self._queues.describe(self._queue)).redriven
            places = {PartitionKey.of(part.letters_partition_id): part for part in described}
            place = places.get(key, queue_pb2.RedrivenPartition())
            if not place.is_settling:
                return place.next_offset
            if now_s() >= until_s:
                raise UnstableOffsetCommit(
                    f"a transaction of another redrive of queue {self._queue!r} does not end: "
                    f"`minilog transaction describe {redrive_name(self._queue)}`"
                )
            if not has_fenced:
                async with self._producer.transaction():
                    has_fenced = True
            await asyncio.sleep(_AGAIN_S)

    async def _redrive(self, part: _Part, bounded: TopicPartition, most: int | None) -> int:
        """The letters of one partition, and how many there were."""
        await self._letters.assign([bounded])
        taken = 0
        while most is None or taken < most:
            records = await self._letters.poll(_POLL_S)
            if not records and self._letters.finished():
                break
            letters, read_to = self._letters_of(records, None if most is None else most - taken)
            taken += len(letters)
            for batch in parts_of(letters, MAX_LETTERS):
                end = read_to if batch[-1] is letters[-1] else batch[-1].record.offset + 1
                await self._redrive_batch(part, batch, end)
            if read_to > part.place:  # records that are no letters
                await self._make_ready(part, [], read_to)
        return taken

    def _letters_of(self, records: Sequence[Record], most: int | None) -> tuple[list[LocatedLetter], int]:
        """The letters among these records, at most so many, and the offset behind them."""
        letters: list[LocatedLetter] = []
        read_to = 0
        for record in records:
            if len(letters) == most:
                break
            read_to = record.offset + 1
            origin = origin_of(record.headers, self._queue)
            if origin is None:
                self._counts.passed_over += 1
            else:
                letters.append(LocatedLetter(record, origin))
        return letters, read_to

    async def _redrive_batch(self, part: _Part, letters: Sequence[LocatedLetter], end: int) -> None:
        """Letters in their order, in runs whose records are all there, or all gone."""
        await self._look_up({letter.origin.key: letter.origin.topic for letter in letters})
        left = list(letters)
        while left:
            is_gone = self._is_gone(left[0])
            run = list(takewhile(self._is_gone if is_gone else self._is_there, left))
            run_end = left[len(run)].record.offset if len(run) < len(left) else end
            done = await (self._write_anew if is_gone else self._make_ready)(part, run, run_end)
            left = left[done:]

    async def _look_up(self, topics: Mapping[PartitionKey, str]) -> None:
        """Where the logs of these partitions begin. Raises UnknownTopicOrPartition where no topic has the name."""
        new = {key: topic for key, topic in topics.items() if key not in self._starts}
        if not new:
            return
        answer = await self._cluster.refresh(sorted(set(new.values())))
        ids = {topic.name: topic.topic_id for topic in answer.topics if not topic.error.code}
        if missing := sorted(set(new.values()) - ids.keys()):
            raise UnknownTopicOrPartition(
                f"letters of queue {self._queue!r} are of topic {missing[0]!r}, which does not exist, or which this "
                "user may not see. Create it again: letters with a copy of their record are written to it. The letters "
                "before are redriven"
            )
        there = {key: TopicPartition(topic, key.partition) for key, topic in new.items() if ids[topic] == key.topic_id}
        starts = await self._letters.beginning_offsets(there.values())
        self._starts |= {key: starts[at] for key, at in there.items()}
        self._starts |= {key: 1 << 63 for key in new if key not in there}  # a topic that is gone

    def _is_gone(self, letter: LocatedLetter) -> bool:
        return letter.origin.offset < self._starts[letter.origin.key]

    def _is_there(self, letter: LocatedLetter) -> bool:
        return not self._is_gone(letter)

    async def _make_ready(self, part: _Part, letters: Sequence[LocatedLetter], end: int) -> int:
        """Records that are there. How many of the letters are done."""
        request = queue_pb2.RedriveRequest(
            queue=self._queue,
            letters_partition_id=part.key.to_wire(),
            first_offset=part.place,
            next_offset=end,
            letters=[
                queue_pb2.Letter(
                    letter_offset=letter.record.offset,
                    partition_id=letter.origin.key.to_wire(),
                    offset=letter.origin.offset,
                )
                for letter in letters
            ],
        )
        response, is_repeat = await self._queues.redrive(request)
        part.place = response.next_offset
        outcomes = Counter(response.outcomes)
        self._counts.made_ready += outcomes[queue_pb2.REDRIVE_OUTCOME_MADE_READY]
        self._counts.made_ready += outcomes[queue_pb2.REDRIVE_OUTCOME_DONE_BEFORE] if is_repeat else 0
        self._counts.unsettled += outcomes[queue_pb2.REDRIVE_OUTCOME_UNSETTLED]
        if not response.outcomes:
            return len(letters)
        last = letters[len(response.outcomes) - 1].origin
        if response.outcomes[0] != queue_pb2.REDRIVE_OUTCOME_NOT_YET:
            self._waits_until_s = None
        match response.outcomes[-1]:
            case queue_pb2.REDRIVE_OUTCOME_GONE:
                self._starts[last.key] = last.offset + 1
                return len(response.outcomes) - 1
            case queue_pb2.REDRIVE_OUTCOME_NOT_YET:
                await self._wait_for_the_carrier()
                return len(response.outcomes) - 1
            case queue_pb2.REDRIVE_OUTCOME_NO_ROOM:
                raise _Full
            case queue_pb2.REDRIVE_OUTCOME_NOT_BEGUN:
                raise InvalidRecordState(
                    f"queue {self._queue!r} has no place in partition {last.key.partition} of topic {last.topic!r}: it "
                    "was deleted, or restored. Let a worker begin there, and redrive again. Letters before are redriven"
                )
        return len(letters)

    async def _wait_for_the_carrier(self) -> None:
        """The transaction that carried a letter is about to end at the queue."""
        if self._waits_until_s is None:
            self._waits_until_s = self._cluster.deadline()
        if now_s() >= self._waits_until_s:
            raise UnstableOffsetCommit(
                f"the transaction of a letter of queue {self._queue!r} does not end: `minilog transaction list`"
            )
        await asyncio.sleep(_AGAIN_S)

    async def _write_anew(self, part: _Part, letters: Sequence[LocatedLetter], end: int) -> int:
        """Records that are gone: the copies in their letters become new records. How many letters are done: all."""
        copies = [letter for letter in letters if letter.has_copy]
        if copies:
            async with self._producer.transaction() as transaction:
                futures = [await self._send(letter) for letter in copies]
                await asyncio.gather(*futures)
                rewritten = queue_pb2.RewrittenLetters(
                    letters_partition_id=part.key.to_wire(), first_offset=part.place, next_offset=end
                )
                await transaction._rewrite_letters(self._queue, rewritten)  # it is not for programs
            part.place = end
        else:
            await self._make_ready(part, [], end)
        self._counts.written_to.update(letter.origin.topic for letter in copies)
        self._counts.gone += len(letters) - len(copies)
        return len(letters)

    async def _send(self, letter: LocatedLetter) -> asyncio.Future[Any]:
        record, origin = letter
        headers = [(name, content) for name, content in record.headers if name not in HEADER_NAMES]
        topic = await self._cluster.topic(origin.topic, self._cluster.deadline())
        partition = origin.key.partition if origin.key.partition < topic.partition_count else None
        if topic.told_schemas is None:
            return await self._producer.send(
                origin.topic, record.value, key=record.key, partition=partition, headers=headers
            )
        # A row is in its letter as JSON. A column that JSON has no value for (a date, say) refuses it.
        row = json.loads(record.value or b"null")
        return await self._producer.send(origin.topic, row, partition=partition, headers=headers)
