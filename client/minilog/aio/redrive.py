"""Redrive: the dead letters of a queue become records of their topics again, and so new messages of the queue.

Each letter is written in a transaction that commits the place behind it for the group `QUEUE-redrive`. So a redrive
that is interrupted goes on where it was, and no letter is redriven twice. A letter without its record is redriven as
the record itself, as long as retention keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minilog.aio.consumer import Consumer
from minilog.aio.dead_letters import TRANSACTION_TIMEOUT_MS
from minilog.aio.producer import Producer
from minilog.errors import InvalidArgument, UnknownTopicOrPartition
from minilog.net.runtime import Runtime
from minilog.queues.dead_letters import HEADER_NAMES, Origin, origin_of
from minilog.types import QueueDescription, Record, Redriven, TopicPartition

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
_BATCH = 500  # letters of one transaction
_POLL_S = 1.0


def redrive_name(queue: str) -> str:
    """The group of a redrive, and its transactional.id: so two at a time do not redrive a letter twice."""
    return f"{queue}-redrive"


class Redrive:
    """One redrive of a queue. Lives on one event loop."""

    def __init__(self, config: Mapping[str, object], runtime: Runtime, description: QueueDescription) -> None:
        topic = description.settings.get(DEAD_LETTER_TOPIC)
        if topic is None:
            raise InvalidArgument(f"queue {description.queue!r} has no dead-letter topic: set {DEAD_LETTER_TOPIC}")
        self._queue, self._topic = description.queue, topic
        name = redrive_name(description.queue)
        reading = {**config, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        self._letters = Consumer({**reading, "group.id": name}, runtime)
        self._originals = Consumer(reading, runtime)
        writing = {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, **config, "transactional.id": name}
        self._producer = Producer(writing, runtime)
        self._written = self._gone = 0

    async def run(self, max_letters: int | None) -> Redriven:
        """Redrive the letters that are there now, at most so many. Raises UnknownTopicOrPartition, InvalidRecord for a
        topic with a schema, and the errors of a transaction."""
        async with self._letters, self._originals, self._producer:
            partitions = await self._letters.partitions_for(self._topic)
            if not partitions:
                raise UnknownTopicOrPartition(f"the dead-letter topic {self._topic!r} does not exist")
            async with self._producer.transaction():
                pass  # an earlier redrive commits nothing from here on, so the places that are read now are the last
            ends = await self._letters.end_offsets(partitions)
            committed = await self._letters.committed(partitions)
            left = max_letters
            for partition, end in ends.items():
                begin = committed.get(partition)
                if (begin is None or begin < end) and left != 0:
                    taken = await self._redrive(partition, begin, end, left)
                    left = None if left is None else left - taken
        return Redriven(self._written, self._gone)

    async def _redrive(self, partition: TopicPartition, begin: int | None, end: int, most: int | None) -> int:
        """The letters of one partition below `end`. How many there were."""
        bounded = TopicPartition(partition.topic, partition.partition, offset=begin, end_offset=end)
        await self._letters.assign([bounded])
        taken = 0
        while most is None or taken < most:
            records = await self._letters.poll(_POLL_S)
            if not records and self._letters.finished():
                break
            records = records[: None if most is None else most - taken]
            for first in range(0, len(records), _BATCH):
                await self._write(partition, records[first : first + _BATCH])
            taken += len(records)
        return taken

    async def _write(self, partition: TopicPartition, letters: Sequence[Record]) -> None:
        written = gone = 0
        async with self._producer.transaction() as transaction:
            for letter in letters:
                origin = origin_of(letter.headers, self._queue)
                if origin is None:
                    continue
                record = letter if letter.key is not None or letter.value else await self._original(origin)
                if record is None:
                    gone += 1
                    continue
                headers = [(name, content) for name, content in record.headers if name not in HEADER_NAMES]
                await self._producer.send(
                    origin.topic, record.value, key=record.key, partition=origin.partition, headers=headers
                )
                written += 1
            at = TopicPartition(partition.topic, partition.partition)
            await transaction.commit_offsets(redrive_name(self._queue), {at: letters[-1].offset + 1})
        self._written += written
        self._gone += gone

    async def _original(self, origin: Origin) -> Record | None:
        """The record of a letter without it. None: it is not there any more."""
        at = TopicPartition(origin.topic, origin.partition, offset=origin.offset, end_offset=origin.offset + 1)
        await self._originals.assign([at])
        while not self._originals.finished():
            for record in await self._originals.poll(_POLL_S):
                return record
        return None
