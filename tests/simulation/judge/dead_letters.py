"""The dead letters of a queue, as the log of their topic has them: Q5.

Each dead record that a transaction carried has one committed letter, and no other record has any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from minilog.partition_key import PartitionKey
from minilog.queues.dead_letters import HEADER_NAMES, OFFSET_HEADER, PARTITION_HEADER, TOPIC_HEADER
from minilog.record_batch.header import BatchHeader
from minilog.record_batch.reader import read_payload
from minilog.types import TopicPartition
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.clients.queuing import Queuing
    from tests.simulation.judge.judge import Judge
    from tests.simulation.judge.partition import JudgedPartition
    from tests.simulation.judge.queue_records import QueueRecords

Place: TypeAlias = tuple[PartitionKey, int]
"""Of a record of the queue: its partition and its offset."""


def check_dead_letters(queuing: Queuing, records: QueueRecords, judge: Judge) -> None:
    """At the end, when all is settled. Raises Violation."""
    partitions = [judge.truth.partition(key) for key in queuing.dead_letter_keys()]
    known = [partition for partition in partitions if partition is not None]
    if any(partition.exempt for partition in known):
        return
    keys = queuing.keys()
    places = [place for partition in known for place in _letters(partition, judge, keys)]
    compare(places, records.carried())
    acknowledged = queuing.acknowledged()
    had_records = {(keys[TopicPartition(topic, number)], offset) for topic, number, offset in acknowledged}
    check_bare(had_records, records.bare())


def compare(letters: Iterable[Place], carried: set[Place]) -> None:
    """The places of all committed letters, and of what was carried. Raises Violation."""
    counts = Counter(letters)
    if twice := sorted(place[1] for place, count in counts.items() if count > 1):
        raise Violation("Q5", f"{len(twice)} dead records have more than one letter, such as offset {twice[0]}")
    if lost := sorted(offset for key, offset in carried - counts.keys()):
        raise Violation("Q5", f"{len(lost)} dead records are settled without a letter, such as offset {lost[0]}")
    if unsettled := sorted(offset for key, offset in counts.keys() - carried):
        raise Violation("Q5", f"{len(unsettled)} letters are of records that are not settled, such as {unsettled[0]}")


def check_bare(acknowledged: set[Place], bare: set[Place]) -> None:
    """Only offsets without a record are settled without a letter. Raises Violation."""
    if lost := sorted(offset for _, offset in acknowledged & bare):
        raise Violation("Q5", f"{len(lost)} dead records are accepted without a letter, such as offset {lost[0]}")


def _letters(partition: JudgedPartition, judge: Judge, keys: dict[TopicPartition, PartitionKey]) -> Iterator[Place]:
    for header in partition.batches:
        if header.is_control or not judge.truth.fates.get(header.producer_id, False):
            continue
        for headers in _headers(partition, header, judge):
            marks = {mark["key"]: mark["value"] for mark in headers if mark["key"] in HEADER_NAMES}
            at = TopicPartition(marks[TOPIC_HEADER].decode(), int(marks[PARTITION_HEADER]))
            yield keys[at], int(marks[OFFSET_HEADER])


def _headers(partition: JudgedPartition, header: BatchHeader, judge: Judge) -> list[Any]:
    """Of each record of a batch."""
    for copy in judge.truth.copies.all_of(partition.name):
        if next(iter(copy.live.from_offset(header.base_offset)), None) == header:
            content = copy.live.content(header.base_offset)
            headers: list[Any] = read_payload(content, header).column("headers").to_pylist()
            return headers
    raise Violation("Q5", f"no copy of {partition.name} has the batch at {header.base_offset}")
