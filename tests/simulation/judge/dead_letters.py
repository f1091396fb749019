"""The dead letters of a queue, as the log of their topic has them: Q5.

Each dead record that a transaction carried has one committed letter, and no other record has any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from minilog.partition_key import PartitionKey
from minilog.queues.dead_letters import HEADER_NAMES, OFFSET_HEADER, PARTITION_HEADER, TOPIC_ID_HEADER
from minilog.record_batch.header import BatchHeader
from minilog.record_batch.reader import read_payload
from minilog.types import TopicPartition
from tests.judges.queues import RecordPlace, check_bare, compare_letters
from tests.judges.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.clients.queuing import Queuing
    from tests.simulation.judge.judge import Judge
    from tests.simulation.judge.partition import JudgedPartition
    from tests.simulation.judge.queue_records import QueueRecords
    from tests.simulation.judge.truth import Truth


def check_dead_letters(queuing: Queuing, records: QueueRecords, judge: Judge) -> None:
    """At the end, when all is settled. Raises Violation."""
    partitions = [judge.truth.partition(key) for key in queuing.dead_letter_keys()]
    known = [partition for partition in partitions if partition is not None]
    if any(partition.exempt for partition in known):
        return
    keys = queuing.keys()
    places = [letter.place for partition in known for letter in letters(partition, judge.truth)]
    compare_letters(places, records.carried())
    acknowledged = queuing.acknowledged()
    had_records = {(keys[TopicPartition(topic, number)], offset) for topic, number, offset in acknowledged}
    check_bare(had_records, records.bare())


class Letter(NamedTuple):
    """A committed letter, and the place of its record."""

    offset: int
    place: RecordPlace


def letters(partition: JudgedPartition, truth: Truth) -> Iterator[Letter]:
    """All of a partition of the dead-letter topic."""
    for header in partition.batches:
        if header.is_control or not truth.fates.get(header.producer_id, False):
            continue
        for offset, headers in enumerate(_headers(partition, header, truth), header.base_offset):
            marks = {mark["key"]: mark["value"] for mark in headers if mark["key"] in HEADER_NAMES}
            key = PartitionKey(bytes.fromhex(marks[TOPIC_ID_HEADER].decode()), int(marks[PARTITION_HEADER]))
            yield Letter(offset, (key, int(marks[OFFSET_HEADER])))


def _headers(partition: JudgedPartition, header: BatchHeader, truth: Truth) -> list[Any]:
    """Of each record of a batch."""
    for copy in truth.copies.all_of(partition.name):
        if next(iter(copy.live.from_offset(header.base_offset)), None) == header:
            content = copy.live.content(header.base_offset)
            headers: list[Any] = read_payload(content, header).column("headers").to_pylist()
            return headers
    raise Violation("Q5", f"no copy of {partition.name} has the batch at {header.base_offset}")


def places_between(truth: Truth, key: PartitionKey, first: int, end: int) -> Iterator[RecordPlace]:
    """The records of the letters of a partition from one offset to another."""
    partition = truth.partition(key)
    if partition is not None and first < end:
        yield from (letter.place for letter in letters(partition, truth) if first <= letter.offset < end)
