"""What lies on a disk of one log: its batches' headers, read again only where the files changed."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from itertools import islice

from minilog.errors import CorruptMessage
from minilog.record_batch.header import HEADER_BYTES, BatchHeader, decode_header
from tests.world.disk import NEVER, SEGMENT_SUFFIX, Inode


def _base_offset(header: BatchHeader) -> int:
    return header.base_offset


def _next_offset(header: BatchHeader) -> int:
    return header.next_offset


def first_from(batches: list[BatchHeader], offset: int) -> int:
    """The index of the first that ends above `offset`, of batches in their order."""
    return bisect.bisect_right(batches, offset, key=_next_offset)


class _Segment:
    """One file of a log, as one of the two views has it."""

    def __init__(self, name: str, inode: Inode, *, durable: bool) -> None:
        self.base_offset, self.generation = _place_of(name)
        self.inode = inode
        self._durable = durable
        self.is_new = True  # not looked at yet
        self.cut_at: int | None = None
        self.batches: list[BatchHeader] = []
        self.positions: list[int] = []
        self._size_bytes = 0

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.base_offset

    def look(self) -> int | None:
        """Read what is new. The lowest offset that changed, None where nothing did."""
        self.is_new = False
        inode = self.inode
        if not self._durable and inode.cut_to < NEVER:
            self._look_at_cut()
        if self._durable:
            content, changed_from = inode.durable, inode.durable_from
            inode.durable_from = NEVER
        else:
            content, changed_from = inode.live, inode.live_from
            inode.live_from = NEVER
        if changed_from >= self._size_bytes and len(content) <= self._size_bytes:
            return None
        cut = None
        while self.batches and self.positions[-1] + self.batches[-1].length > changed_from:
            cut = self.batches.pop().base_offset
            self._size_bytes = self.positions.pop()
        known = len(self.batches)
        self._read(content)
        if cut is None and len(self.batches) > known:
            cut = self.batches[known].base_offset
        return cut

    def _look_at_cut(self) -> None:
        for header, position in zip(self.batches, self.positions, strict=True):
            if position + header.length > self.inode.cut_to:
                self.cut_at = header.base_offset if self.cut_at is None else min(self.cut_at, header.base_offset)
                break
        self.inode.cut_to = NEVER

    def _read(self, content: bytearray) -> None:
        position, end = self._size_bytes, len(content)
        while end - position >= HEADER_BYTES:
            try:
                header = decode_header(content, position)
            except CorruptMessage:
                break
            if position + header.length > end:
                break
            self.batches.append(header)
            self.positions.append(position)
            position += header.length
        self._size_bytes = position

    def content(self, index: int) -> bytes:
        """The bytes of one batch."""
        position, length = self.positions[index], self.batches[index].length
        content = self.inode.durable if self._durable else self.inode.live
        return bytes(content[position : position + length])


class View:
    """One of the two views of a copy: whole batches in their order, up to the first gap. A gap below the log's start is
    none: a crash left there what was being deleted, and what is before it does not count. From the time
    on at which a compacted segment has its name, it counts in the place of all that it replaces.

    `agreed`: what it was found to share with the truth about its partition; it goes back where the copy changes.
    `unchanged_to`: below it nothing has changed since whoever judges compaction has looked.
    `epochs`: where each leader epoch begins, as the batches say."""

    def __init__(self, *, durable: bool) -> None:
        self.durable = durable
        self.agreed = 0
        self.unchanged_to = math.inf
        self.batches: list[BatchHeader] = []
        self.epochs: list[tuple[int, int]] = []  # (epoch, offset)
        self._segments: dict[str, _Segment] = {}
        self._counting: list[_Segment] = []
        self._cuts: dict[str, int | None] = {}

    def look(self, files: dict[str, Inode] | None, log_start: int) -> None:
        """`files`: the log's segments where names may have changed, else None."""
        lowest = None if files is None else self._take(files)
        if self.durable:
            changed = [each for each in self._segments.values() if each.inode.durable_from != NEVER or each.is_new]
        else:
            changed = [each for each in self._segments.values() if each.inode.live_from != NEVER or each.is_new]
        for segment in changed:
            lowest = _least(lowest, segment.look())
        if lowest is not None:
            self._join(lowest, log_start)

    def _take(self, files: dict[str, Inode]) -> int | None:
        """The lowest offset of a segment that came or went; None where none did."""
        lowest: int | None = None
        known = self._segments
        self._segments = {}
        for name in sorted(files, key=_place_of):
            segment = known.get(name)
            if segment is None or segment.inode is not files[name]:
                segment = _Segment(name, files[name], durable=self.durable)
                lowest = _least(lowest, segment.base_offset)
            self._segments[name] = segment
        for name in known.keys() - self._segments.keys():
            lowest = _least(lowest, known[name].base_offset)
        return lowest

    def _join(self, changed_from: int, log_start: int) -> None:
        self.agreed, self.unchanged_to = min(self.agreed, changed_from), min(self.unchanged_to, changed_from)
        batches, epochs = self.batches, self.epochs
        while batches and batches[-1].next_offset > changed_from:
            batches.pop()
        while epochs and epochs[-1][1] >= self.end:
            epochs.pop()
        self._counting = self._without_replaced()
        for segment in self._counting:
            if not segment.batches or (batches and segment.end <= batches[-1].next_offset):
                continue
            first = bisect.bisect_left(segment.batches, batches[-1].next_offset, key=_base_offset) if batches else 0
            for header in segment.batches[first:]:
                if batches and header.base_offset > batches[-1].next_offset:
                    if header.base_offset > log_start:
                        return
                    batches.clear()
                    epochs.clear()
                batches.append(header)
                if not epochs or epochs[-1][0] != header.partition_leader_epoch:
                    epochs.append((header.partition_leader_epoch, header.base_offset))

    def _without_replaced(self) -> list[_Segment]:
        """The segments without those that compaction has replaced: docs/spec/formats.md, Generations. A copy is never a
        part of a former segment, and behind it the new one."""
        counting: list[_Segment] = []
        for segment in self._segments.values():
            last = counting[-1] if counting else None
            if last is not None and last.base_offset == segment.base_offset:
                counting.pop()
            elif last is not None and last.generation and segment.base_offset < last.end:
                continue
            counting.append(segment)
        return counting

    def take_cut(self, asker: str) -> int | None:
        """The lowest offset that was cut away from the end since it was asked last; None where none was."""
        self._cuts.setdefault(asker, None)
        for segment in self._segments.values():
            if segment.cut_at is not None:
                self._cuts = {each: _least(cut, segment.cut_at) for each, cut in self._cuts.items()}
                segment.cut_at = None
        cut, self._cuts[asker] = self._cuts[asker], None
        return cut

    @property
    def files(self) -> list[Inode]:
        """Of its segments."""
        return [segment.inode for segment in self._segments.values()]

    @property
    def start(self) -> int:
        """Where its first batch begins, or would; 0 where there is no file."""
        if self.batches:
            return self.batches[0].base_offset
        return min((segment.base_offset for segment in self._segments.values()), default=0)

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def from_offset(self, offset: int) -> Iterator[BatchHeader]:
        """The batches that end above `offset`."""
        return islice(self.batches, first_from(self.batches, offset), None)

    def content(self, base_offset: int) -> bytes:
        """The bytes of the batch that begins there."""
        for segment in self._counting:
            if segment.batches and segment.batches[0].base_offset <= base_offset < segment.end:
                index = bisect.bisect_left(segment.batches, base_offset, key=_base_offset)
                if index < len(segment.batches) and segment.batches[index].base_offset == base_offset:
                    return segment.content(index)
        raise KeyError(base_offset)


def is_same(one: BatchHeader, other: BatchHeader | None) -> bool:
    """The same batch, as far as its header says: the crc covers the rest."""
    return (
        other is not None
        and one.base_offset == other.base_offset
        and one.crc == other.crc
        and one.partition_leader_epoch == other.partition_leader_epoch
        and one.last_offset_delta == other.last_offset_delta
    )


def _place_of(name: str) -> tuple[int, int]:
    """The base offset and the generation in the name of a segment's file."""
    base_offset, *generation = name.removesuffix(SEGMENT_SUFFIX).split(".")
    return int(base_offset), int(generation[0]) if generation else 0


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
