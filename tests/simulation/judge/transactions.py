"""Transactions on the disks and wires of partitions. V15.

Of a producer there are in what is committed its transactional batches and then one marker, and nothing behind that; of
one producer all markers say the same. A last stable offset that is told is at most the first offset of the earliest
transaction whose marker is not below the high watermark that is told with it. Whoever writes was registered for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, decode_header
from minilog_broker.storage.markers import read_markers

if TYPE_CHECKING:
    from tests.simulation.judge.copies import Copy
    from tests.simulation.judge.partition import JudgedPartition

SETTLED = 1_000  # records behind a marker


@dataclass(slots=True)
class _Span:
    """One producer's batches: where they begin, where the last ends, and where its marker ends."""

    first: int
    end: int
    marked: float = math.inf


@dataclass(slots=True)
class _OfPartition:
    spans: dict[int, _Span] = field(default_factory=dict)
    fates: dict[int, bool] = field(default_factory=dict)
    unsettled: set[int] = field(default_factory=set)  # whose markers some told high watermark may not cover


def is_marked(copy: Copy, producer_id: int) -> bool:
    """Whether the copy has a marker of that producer."""
    for header in reversed(copy.live.batches):
        if header.is_control:
            content = copy.live.content(header.base_offset)
            if any(each == producer_id for each, _, _ in read_markers(content, decode_header(content))):
                return True
    return False


class Transactions:
    """See the module's text. `fates`: of each producer that has a marker anywhere, whether it is committed."""

    def __init__(self, may_write: Callable[[int, PartitionKey], bool], fates: dict[int, bool]) -> None:
        self._may_write = may_write
        self._of: dict[PartitionKey, _OfPartition] = {}
        self.fates = fates

    def committed(self, partition: JudgedPartition, number: int, batches: list[BatchHeader]) -> None:
        """More is committed; the copy of host `number` has it."""
        for header in batches:
            if header.is_control:
                self._mark(partition, number, header)
            elif header.is_transactional:
                self._written(partition, header)

    def _written(self, partition: JudgedPartition, header: BatchHeader) -> None:
        of = self._of.setdefault(partition.key, _OfPartition())
        producer_id = header.producer_id
        if producer_id in of.fates:
            raise partition.fail("V15", f"producer {producer_id} has ended, and writes at {header.base_offset}")
        span = of.spans.get(producer_id)
        if span is None:
            if not self._may_write(producer_id, partition.key):
                text = f"producer {producer_id} writes at {header.base_offset}, and was not registered there"
                raise partition.fail("V15", text)
            of.spans[producer_id] = _Span(header.base_offset, header.next_offset)
            of.unsettled.add(producer_id)
        else:
            span.end = header.next_offset

    def _mark(self, partition: JudgedPartition, number: int, header: BatchHeader) -> None:
        of = self._of.setdefault(partition.key, _OfPartition())
        copy = partition.sound_copy(number)
        if copy is None:  # nobody can say whose markers these are
            of.unsettled.clear()
            return
        content = copy.live.content(header.base_offset)
        for producer_id, committed, _ in read_markers(content, decode_header(content)):
            if producer_id in of.fates:
                raise partition.fail("V15", f"producer {producer_id} is marked again at {header.base_offset}")
            of.fates[producer_id] = committed
            if self.fates.setdefault(producer_id, committed) != committed:
                text = f"producer {producer_id} is committed in one partition, and aborted in another"
                raise partition.fail("V15", text)
            if (span := of.spans.get(producer_id)) is not None:
                span.marked = header.next_offset

    def first_open(self, key: PartitionKey) -> int | None:
        """The first offset of the transactions without a marker in what is committed; None where there are none."""
        of = self._of.get(key)
        if of is None:
            return None
        return min((span.first for span in of.spans.values() if span.marked == math.inf), default=None)

    def open_producers(self, key: PartitionKey, last: int) -> set[int]:
        """The producers of transactions that begin at `last` or before, and have no marker in what is committed."""
        of = self._of.get(key)
        spans = {} if of is None else of.spans
        return {each for each, span in spans.items() if span.marked == math.inf and span.first <= last}

    def check_stable(self, partition: JudgedPartition, number: int, told: Any) -> None:
        """Of a last stable offset that is told with a high watermark."""
        of = self._of.get(partition.key)
        if of is None or partition.exempt:
            return
        stable, high_watermark = told.last_stable_offset, told.high_watermark
        start = told.log_start_offset
        for producer_id in list(of.unsettled):
            span = of.spans[producer_id]
            if span.marked + SETTLED < partition.end:  # nobody is so far behind
                of.unsettled.discard(producer_id)
            elif max(span.first, start) < stable and span.end > start and span.marked > high_watermark:
                text = f"b{number} tells LSO {stable} with HW {high_watermark}; the transaction of producer "
                raise partition.fail("V15", f"{text}{producer_id} is open from {span.first} on")
