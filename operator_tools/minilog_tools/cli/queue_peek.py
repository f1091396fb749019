"""`minilog queue peek`: the records of a queue that are not settled. It leases nothing, and changes nothing."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from minilog import TopicPartition
from minilog.types import QueueDescription, QueuePosition, Record
from minilog_tools.cli.common import attributes
from minilog_tools.cli.record_text import json_line, value_line

if TYPE_CHECKING:
    from minilog import Consumer

_POLL_S = 0.5
_OF_GROUPS = ("group.id", "group.protocol", "group.instance.id")  # a look commits nothing


class Peeked(enum.StrEnum):
    """Which records the command shows."""

    READY = "ready"
    LEASED = "leased"
    SETTLING = "settling"
    DEAD = "dead"
    FRESH = "fresh"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets of one partition with the same state."""

    partition: TopicPartition
    """With the first offset and the end."""
    state: str
    delivery_count: int = 0
    worker_id: str = ""
    death_reason: str | None = None


def pieces(description: QueueDescription, ends: Mapping[TopicPartition, int], shown: Peeked) -> Iterator[Piece]:
    """What to read, in the order of partitions and offsets. What was never leased is fresh. `ends`: the last stable
    offsets, from the leaders. The coordinator may have old ones, if no worker waits."""
    for position in description.partitions:
        for part in position.ranges:
            if shown in (Peeked.ALL, part.state):
                bounds = _bounded(position, part.first_offset, part.last_offset + 1)
                yield Piece(bounds, part.state, part.delivery_count, part.worker_id, part.death_reason)
        end = ends[partition_of(position)]
        if shown in (Peeked.ALL, Peeked.FRESH) and position.next_offset < end:
            yield Piece(_bounded(position, position.next_offset, end), Peeked.FRESH.value)


def partition_of(position: QueuePosition) -> TopicPartition:
    """The partition of a position."""
    return TopicPartition(position.topic, position.partition)


def _bounded(position: QueuePosition, first: int, end: int) -> TopicPartition:
    return TopicPartition(position.topic, position.partition, first, end)


def print_peeked(config: dict[str, Any], every: Iterator[Piece], count: int, *, as_json: bool) -> None:
    """Print at most `count` records."""
    from minilog import Consumer  # it loads Arrow, which no other verb of queues needs

    of_reader = {name: value for name, value in config.items() if name not in _OF_GROUPS}
    of_reader["auto.offset.reset"] = "earliest"  # retention may have taken the first records of a piece
    with Consumer(of_reader) as consumer:
        for piece, record in islice(_records(consumer, every), count):
            sys.stdout.buffer.write(_json_line(piece, record) if as_json else _text_line(piece, record))
    sys.stdout.flush()


def _records(consumer: Consumer, every: Iterator[Piece]) -> Iterator[tuple[Piece, Record]]:
    for piece in every:
        consumer.assign([piece.partition])
        while not consumer.finished():
            for record in consumer.poll(_POLL_S):
                yield piece, record


def _text_line(piece: Piece, record: Record) -> bytes:
    words = (piece.state, piece.delivery_count, record.topic, record.partition, record.offset)
    return "\t".join(map(str, words)).encode() + b"\t" + value_line(record)


def _json_line(piece: Piece, record: Record) -> bytes:
    return json_line(record, **attributes(piece, "state", "delivery_count", "worker_id", "death_reason"))
