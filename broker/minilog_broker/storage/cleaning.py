"""One cleaning of one log: it carries out the point that the copy has begun (compaction_point.py).

    table     the keys of the dirty range, as far as the buffer holds them            newest_offsets.py
    search    the records that go, over all segments below the end of the table       removals.py
    rewrite   adjacent segments together, as long as they fit into one segment        rewrite.py, compacted_segment.py
    swap      the caller gives the new segment to the log, on the disk thread         Log.replace_segments
    done      after the last pass: Log.finish_compaction

Segments change in the order of offsets. A crash at any time leaves the lower ones cleaned and the others not. So no
record that a deletion or a newer record has removed can be seen again, and a marker goes only after its records. The
next life begins the cleaning anew, from the last point that is done.

The cleaning reads and writes on a thread of its own. It changes nothing of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from minilog.errors import OffsetOutOfRange
from minilog.record_batch.header import Buffer, iterate_headers
from minilog_broker.storage.compacted_segment import CompactedSegment, CompactedSegmentWriter
from minilog_broker.storage.compaction.key_reader import KeyReader
from minilog_broker.storage.compaction.newest_offsets import NewestOffsets, NewestOffsetsBuilder
from minilog_broker.storage.compaction.removals import Removals, RemovalSearch
from minilog_broker.storage.compaction.rewrite import rewritten_batches
from minilog_broker.storage.compaction.stored_batches import StoredBatch
from minilog_broker.storage.compaction_point import CompactionPoint
from minilog_broker.storage.files import PIECE_BYTES, FileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class Replacement:
    """Adjacent segments, and the whole and synced segment that takes their place. `abandon` removes it instead."""

    former: tuple[Segment, ...]
    compacted: CompactedSegment
    abandon: Callable[[], None]


class Cleaning:
    """See the module. The log has begun `point`, and `aborted_producer_ids` has all of the aborted producers below it.

    `files` is a file system of the cleaner's own. `use(size_bytes)` is called behind each piece that was read or
    written: there the thread may rest, and there a stop of the broker may raise."""

    def __init__(
        self,
        log: Log,
        point: CompactionPoint,
        files: FileSystem,
        reader: KeyReader,
        aborted_producer_ids: AbstractSet[int],
        buffer_bytes: int,
        use: Callable[[int], None],
    ) -> None:
        self.point = point
        self.begins = log.begins
        self._dirty_from = max(log.log_start_offset, log.compaction.done.clean_to)
        self._log = log
        self._files = files
        self._reader = reader
        self._aborted_producer_ids = aborted_producer_ids
        self._buffer_bytes = buffer_bytes
        self._use = use
        self.read_at = self._dirty_from
        """The offset of the piece that was read last. After an error the damage is there."""

    def is_of(self, log: Log) -> bool:
        """Whether this is a cleaning of this log as it is now. A later point may have begun meanwhile."""
        return self._log is log and self.begins == log.begins

    def steps(self) -> Iterator[Replacement | None]:
        """The replacements. The log must have taken each before the caller asks for the next. None comes
        after each piece of the table, and after each group of segments: the caller may turn to another log.

        Raises OffsetOutOfRange if retention or a truncation has removed segments meanwhile, CorruptMessage,
        UnsupportedVersion, UnknownSchemaVersion, OSError."""
        dirty_from, clean_to = self._dirty_from, self.point.clean_to
        while True:
            newest = yield from self._table(min(dirty_from, clean_to), clean_to)
            yield from self._pass(newest)
            if newest.end_offset >= clean_to:
                return
            dirty_from = newest.end_offset

    def _table(self, dirty_from: int, clean_to: int) -> Generator[None, None, NewestOffsets]:
        ids, buffer_bytes = self._aborted_producer_ids, self._buffer_bytes
        builder, offset = NewestOffsetsBuilder(self._reader, dirty_from, ids, buffer_bytes), dirty_from
        while offset < clean_to:
            self.read_at = offset
            run = self._log.read(offset, PIECE_BYTES, clean_to, _no_pause)
            if not run:
                raise OffsetOutOfRange(f"{self._log!r} has no batch from offset {offset} on that ends at {clean_to}")
            for header, batch in _batches(run):
                builder.add(header, batch)
                offset = header.next_offset
                if builder.is_full:
                    return builder.build()
            self._use(len(run))
            yield None
        return builder.build()

    def _pass(self, newest: NewestOffsets) -> Iterator[Replacement | None]:
        if self._log.sealed_end_offset < newest.end_offset:
            raise OffsetOutOfRange(f"{self._log!r} was cut, and not all below {newest.end_offset} is sealed any more")
        segments = deque(segment for segment in self._log.sealed_segments if segment.base_offset < newest.end_offset)
        if not segments:
            return
        search = RemovalSearch(
            self._reader,
            newest,
            self._aborted_producer_ids,
            self.point.deletes_before,
            log_start_offset=segments[0].base_offset,
        )
        for group in joined(_drained(segments), self._log.settings.segment_bytes):
            removals = search.search(self._read(group))
            if removals or len(group) > 1:
                yield self._rewrite(group, removals)
            yield None

    def _read(self, group: Iterable[Segment]) -> Iterator[StoredBatch]:
        for segment in group:
            offset, end_offset = segment.base_offset, segment.end.end_offset
            while offset < end_offset:
                self.read_at = offset
                run = segment.read(offset, PIECE_BYTES, end_offset, _no_pause)
                for header, batch in _batches(run):
                    yield header, batch
                    offset = header.next_offset
                self._use(len(run))

    def _rewrite(self, group: tuple[Segment, ...], removals: Removals) -> Replacement:
        log = self._log
        writer = CompactedSegmentWriter(
            self._files,
            log.directory,
            log.key,
            group[0].name.next_generation(),
            group[-1].end.end_offset,
            interval_bytes=log.settings.index_interval_bytes,
        )
        try:
            for run in _runs(rewritten_batches(self._reader, self._read(group), removals)):
                writer.write(run)
                self._use(len(run))
            return Replacement(group, writer.finish(), writer.abandon)
        except BaseException:
            writer.abandon()
            raise


def joined(segments: Iterable[Segment], segment_bytes: int) -> Iterator[tuple[Segment, ...]]:
    """Adjacent segments in groups. A group has at most `segment_bytes`, or one segment."""
    group, size_bytes = list[Segment](), 0
    for segment in segments:
        if group and size_bytes + segment.end.size_bytes > segment_bytes:
            yield tuple(group)
            group, size_bytes = [], 0
        group.append(segment)
        size_bytes += segment.end.size_bytes
    if group:
        yield tuple(group)


def _no_pause() -> None:
    """Do nothing between two pieces of a read. A cleaning reads quietly: read-ahead would hold up others' syncs."""


def _drained(segments: deque[Segment]) -> Iterator[Segment]:
    """The segments, which the deque does not keep: the space of a replaced one is free when nobody reads it."""
    while segments:
        yield segments.popleft()


def _batches(run: bytes) -> Iterator[StoredBatch]:
    view = memoryview(run)
    for position, header in iterate_headers(run):
        yield header, view[position : position + header.length]


def _runs(batches: Iterable[StoredBatch]) -> Iterator[Buffer]:
    """The batches back to back, in runs of about a piece."""
    parts, size_bytes = list[Buffer](), 0
    for _, batch in batches:
        parts.append(batch)
        size_bytes += len(batch)
        if size_bytes >= PIECE_BYTES:
            yield b"".join(parts)
            parts, size_bytes = [], 0
    if parts:
        yield b"".join(parts)
