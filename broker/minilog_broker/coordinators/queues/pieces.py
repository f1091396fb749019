"""The state of a partition in pieces, each a record of its own: a decision writes what it changes, and not all ranges.

    piece           key                                what it has
    PartitionHead   (queue, partition)                 the bounds and the count of the dead
    Block           (queue, partition, number)         the ranges that begin in the same 32 offsets
    DeathReason     (queue, partition, digest)         the text of a reason, once for all ranges with it

The pieces follow from the state alone, so the last record of each key is the state, whatever the log has lost of
earlier ones. All pieces of a decision are in one batch. The head is written with each decision, and comes last. Pure.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog_broker.coordinators.queues.partition_queue import PartitionQueue
from minilog_broker.coordinators.queues.ranges import Range
from minilog_broker.coordinators.table import Change

BLOCK_OFFSETS = 32  # a settlement changes two blocks at most. The worst ones have 0.7 KB: each offset another's


class QueueKey(NamedTuple):
    """`owner` is the queue. The partition, the producer id or `letters` is given, or none of them. `letters`: a
    partition of a dead-letter topic. With the partition: the number of a block, or the digest of a reason, or neither.
    """

    owner: str
    partition: PartitionKey | None = None
    producer_id: int | None = None
    letters: PartitionKey | None = None
    block: int | None = None
    reason: str | None = None

    @property
    def is_partition(self) -> bool:
        """Whether it is the key of a partition, and of no piece beside its head."""
        return self.partition is not None and self.block is None and self.reason is None


@dataclass(frozen=True, slots=True)
class PartitionHead:
    """A partition's state without its ranges (partition_queue.py)."""

    next_offset: int
    leader_epoch: int
    dead_count: int


@dataclass(frozen=True, slots=True)
class Block:
    """Ranges, at least one. Each has the digest of its reason in the place of the text."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class DeathReason:
    """Why records have died."""

    text: str


_COMPARED = 1 << 12  # ranges at once

Piece = PartitionHead | Block | DeathReason
PieceChange = Change[QueueKey, Piece]


def digest(reason: str) -> str:
    """The name of a reason: hexadecimal."""
    return hashlib.blake2b(reason.encode(), digest_size=16).hexdigest()


def changed_pieces(key: QueueKey, before: PartitionQueue | None, after: PartitionQueue | None) -> list[PieceChange]:
    """The pieces that a decision about the partition writes. None: there is no state of it."""
    old, new = (() if state is None else state.ranges for state in (before, after))
    gone, come = changed_ranges(old, new)
    changes = _changed_reasons(key, gone, come, new)
    for number in sorted({current.first // BLOCK_OFFSETS for current in (*gone, *come)}):
        block = _block(new, number)
        if block != _block(old, number):
            changes.append(Change(key._replace(block=number), block))
    head = None if after is None else PartitionHead(after.next_offset, after.leader_epoch, after.dead_count)
    return [*changes, Change(key, head)]


class ChangedRanges(NamedTuple):
    """The ranges that only the former state has, and those that only the latter has."""

    gone: Sequence[Range]
    come: Sequence[Range]


def changed_ranges(old: Sequence[Range], new: Sequence[Range]) -> ChangedRanges:
    """Most ranges of two states are the same objects, and are compared as fast as their addresses."""
    begin = _alike(old, new)
    behind = _alike(old[begin:][::-1], new[begin:][::-1])
    gone, come = old[begin : len(old) - behind], new[begin : len(new) - behind]
    old_ids, new_ids = set(map(id, gone)), set(map(id, come))
    return ChangedRanges(
        [current for current in gone if id(current) not in new_ids],
        [current for current in come if id(current) not in old_ids],
    )


def _alike(old: Sequence[Range], new: Sequence[Range]) -> int:
    """How many ranges at the begin are the same."""
    at, size = 0, _COMPARED
    while size:
        while old[at : at + size] == new[at : at + size] and at + size <= min(len(old), len(new)):
            at += size
        size //= 2
    return at


def _changed_reasons(
    key: QueueKey, gone: Iterable[Range], come: Sequence[Range], ranges: Iterable[Range]
) -> list[PieceChange]:
    """The reasons that no range had before, and those that no range has any more."""
    old, new = _reasons(gone), _reasons(come)
    if old == new:
        return []
    ids = set(map(id, come))
    kept = _reasons(current for current in ranges if id(current) not in ids)
    return [
        Change(key._replace(reason=digest(text)), DeathReason(text) if text in new else None)
        for text in sorted((old ^ new) - kept)
    ]


def _reasons(ranges: Iterable[Range]) -> set[str]:
    return {current.death_reason for current in ranges if current.death_reason is not None}


def _block(ranges: Sequence[Range], number: int) -> Block | None:
    begin = bisect_left(ranges, number * BLOCK_OFFSETS, key=lambda current: current.first)
    end = bisect_left(ranges, (number + 1) * BLOCK_OFFSETS, begin, key=lambda current: current.first)
    return Block(tuple(map(_with_digest, ranges[begin:end]))) if begin < end else None


def _with_digest(current: Range) -> Range:
    return current if current.death_reason is None else replace(current, death_reason=digest(current.death_reason))


def assembled(pieces: Iterable[tuple[QueueKey, object]]) -> dict[QueueKey, PartitionQueue]:
    """The state of each partition. Raises CorruptMessage where pieces do not belong together."""
    heads: dict[QueueKey, PartitionHead] = {}
    blocks: dict[QueueKey, list[tuple[int, Block]]] = {}
    texts: dict[QueueKey, str] = {}
    for key, piece in pieces:
        match piece:
            case PartitionHead():
                heads[key] = piece
            case Block():
                assert key.block is not None
                blocks.setdefault(key._replace(block=None), []).append((key.block, piece))
            case DeathReason(text=text):
                texts[key] = text
    if orphans := blocks.keys() - heads.keys():
        raise CorruptMessage(f"the log of queues has ranges of {min(orphans)}, and nothing else of it")
    return {key: _assembled(key, head, sorted(blocks.get(key, []), key=_number), texts) for key, head in heads.items()}


def _number(numbered: tuple[int, Block]) -> int:
    return numbered[0]


def _assembled(
    key: QueueKey, head: PartitionHead, blocks: Iterable[tuple[int, Block]], texts: dict[QueueKey, str]
) -> PartitionQueue:
    ranges: list[Range] = []
    end = -1
    for number, block in blocks:
        for current in block.ranges:
            if not end < current.first <= current.last < head.next_offset or current.first // BLOCK_OFFSETS != number:
                raise CorruptMessage(f"the log of queues has ranges of {key} that do not fit together: {current}")
            end = current.last
            ranges.append(_with_text(key, current, texts))
    return PartitionQueue(head.next_offset, head.leader_epoch, tuple(ranges), head.dead_count)


def _with_text(key: QueueKey, current: Range, texts: dict[QueueKey, str]) -> Range:
    if current.death_reason is None:
        return current
    text = texts.get(key._replace(reason=current.death_reason))
    if text is None:
        raise CorruptMessage(f"the log of queues lacks the reason for which {current} of {key} died")
    return replace(current, death_reason=text)
