"""The states of a queue's partitions, as the log of its coordinator has them: put together from their pieces.

The judge reads the records by itself, without the code of the coordinator. The record of a partition ends a decision
about it. Before that the pieces may be those of half a decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from minilog.partition_key import PartitionKey
from minilog.record_batch.header import decode_header
from minilog.record_batch.reader import read_payload
from minilog.v1 import coordinator_records_pb2 as records_pb2
from tests.judges.violation import Violation

_OFFSETS = 32  # that begin in one block


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Offsets that are alike. `death_reason`: the digest."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int
    lease_id: int = 0
    death_reason: bytes | None = None


@dataclass(frozen=True, slots=True)
class QueuePartition:
    """What is known of one partition after a decision."""

    next_offset: int = 0
    leader_epoch: int = 0
    ranges: Sequence[QueueRange] = ()


@lru_cache(maxsize=4_096)
def rows_in(content: bytes) -> list[tuple[Any, bytes | None]]:
    """The keys and values of a batch."""
    header = decode_header(content)
    if header.is_control:
        return []
    rows = read_payload(content, header)
    keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
    return [(records_pb2.QueueLogKey.FromString(key), value) for key, value in zip(keys, values, strict=True)]


def ranges_of(record: records_pb2.QueueBlockRecord) -> Iterator[QueueRange]:
    """The ranges of a block."""
    numbers, end = iter(record.ranges), 0
    for gap, more, place in zip(numbers, numbers, numbers, strict=True):
        kind = record.kinds[place]
        reason = kind.death_reason if kind.HasField("death_reason") else None
        yield QueueRange(end + gap, end + gap + more, kind.state, kind.delivery_count, kind.lease_id, reason)
        end += gap + more + 1


def leases_in(content: bytes, queue: str) -> set[int]:
    """The leases that a batch names."""
    blocks = (value for key, value in rows_in(content) if key.queue == queue and key.HasField("block") and value)
    return {kind.lease_id for value in blocks for kind in records_pb2.QueueBlockRecord.FromString(value).kinds}


@dataclass(slots=True)
class _Pieces:
    blocks: dict[int, list[QueueRange]] = field(default_factory=dict)
    reasons: set[bytes] = field(default_factory=set)

    def whole(self, head: records_pb2.QueuePartitionRecord) -> QueuePartition:
        """Raises Violation where the pieces do not fit together."""
        ranges = [each for _, block in sorted(self.blocks.items()) for each in block]
        end = -1
        for each in ranges:
            is_in_order = end < each.first_offset <= each.last_offset < head.next_offset
            if not is_in_order or (each.death_reason is not None and each.death_reason not in self.reasons):
                raise Violation("Q2", f"{each} does not fit to the range before, or has no reason: {head}")
            end = each.last_offset
        if unused := self.reasons - {each.death_reason for each in ranges}:
            raise Violation("Q2", f"reasons are kept that no range has: {unused}")
        return QueuePartition(head.next_offset, head.leader_epoch, ranges)


class QueuePieces:
    """Of one queue, batch by batch."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._of: dict[PartitionKey, _Pieces] = {}

    def take(self, content: bytes) -> Iterator[tuple[PartitionKey, QueuePartition]]:
        """The state of a partition after each decision of the next batch."""
        for key, value in rows_in(content):
            if key.queue != self._queue:
                continue
            match key.WhichOneof("of"):
                case "partition_id" if value is not None:
                    of = PartitionKey.of(key.partition_id)
                    yield of, self._pieces(of).whole(records_pb2.QueuePartitionRecord.FromString(value))
                case "block":
                    self._take_block(key.block, value)
                case "reason":
                    reasons = self._pieces(PartitionKey.of(key.reason.partition_id)).reasons
                    (reasons.discard if value is None else reasons.add)(key.reason.digest)

    def _take_block(self, key: records_pb2.QueueBlockKey, value: bytes | None) -> None:
        blocks = self._pieces(PartitionKey.of(key.partition_id)).blocks
        blocks.pop(key.number, None)
        if value is not None:
            ranges = list(ranges_of(records_pb2.QueueBlockRecord.FromString(value)))
            if {each.first_offset // _OFFSETS for each in ranges} != {key.number}:
                raise Violation("Q2", f"block {key.number} has {ranges}")
            blocks[key.number] = ranges

    def _pieces(self, key: PartitionKey) -> _Pieces:
        return self._of.setdefault(key, _Pieces())
