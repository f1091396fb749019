"""The redrive of dead letters, in the log of a queue's coordinator and in that of the dead-letter topic.

rule  what must be
Q8    a settled offset is ready again only in one batch with a place that passes over its letter, once for each letter,
      and as if it was never delivered. A place never goes back, and passes over no letter whose record is settled
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from minilog.partition_key import PartitionKey
from minilog.queues.dead_letters import HEADER_NAMES, OFFSET_HEADER, PARTITION_HEADER, TOPIC_ID_HEADER
from minilog.record_batch.header import BatchHeader
from minilog.record_batch.reader import read_payload
from minilog.v1 import coordinator_records_pb2 as records_pb2
from tests.judges.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.judge.partition import JudgedPartition
    from tests.simulation.judge.truth import Truth

Place: TypeAlias = tuple[PartitionKey, int]
"""Of a record of the queue: its partition and its offset."""
Row: TypeAlias = tuple[Any, bytes | None]
"""A key and a value of the coordinator's log."""


class Letter(NamedTuple):
    """A committed letter, and the place of its record."""

    offset: int
    place: Place


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


@dataclass(slots=True)
class Redrives:
    """Of one queue. `again`: how often each offset was made ready again."""

    truth: Truth
    queue: str
    places: dict[PartitionKey, int] = field(default_factory=dict)
    again: Counter[Place] = field(default_factory=Counter)
    anew: Counter[Place] = field(default_factory=Counter)  # the same, of the batches that came again

    def passed(self, rows: Iterable[Row]) -> Counter[Place]:
        """The records of the letters that a batch passes over. Each may be ready again, so often."""
        passed: Counter[Place] = Counter()
        for key, value in rows:
            if key.queue != self.queue or not key.HasField("letters_partition_id") or value is None:
                continue
            at, record = PartitionKey.of(key.letters_partition_id), records_pb2.QueueRedriveRecord.FromString(value)
            before = self.places.get(at, 0)
            if record.next_offset < before:
                text = f"the letters of partition {at.partition} were redriven to {before}, and are to "
                raise Violation("Q8", f"{text}{record.next_offset}")
            passed.update(place for place in self._between(at, before, record.next_offset))
            self.places[at] = record.next_offset
        return passed

    def begin_anew(self) -> None:
        """Batches come again from the first that there is."""
        self.places.clear()
        self.anew.clear()

    def take(self, rows: Iterable[Row]) -> None:
        """A batch, unchecked: its letters have made their records ready."""
        self.anew += self.passed(rows)
        self.again |= self.anew

    def _between(self, key: PartitionKey, first: int, end: int) -> Iterator[Place]:
        partition = self.truth.partition(key)
        if partition is not None and first < end:
            yield from (letter.place for letter in letters(partition, self.truth) if first <= letter.offset < end)

    def check(self, passed: Counter[Place], ready: Counter[Place]) -> None:
        """`ready`: what a batch has made ready again. Raises Violation."""
        if more := sorted(offset for (_, offset) in ready - passed):
            raise Violation("Q8", f"offset {more[0]} is settled, and then ready, and no letter of it is redriven")
        if lost := sorted(offset for (_, offset) in passed - ready):
            raise Violation("Q8", f"a letter of offset {lost[0]} is passed over, and the record stays settled")
        self.again += ready
