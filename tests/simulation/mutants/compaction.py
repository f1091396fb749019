"""Wrong rules of compaction: what is decided, in which order it is carried out, what is kept beside it. K1 to K6."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from minilog.errors import OffsetOutOfRange
from minilog.record_batch.gaps import from_offset, joined_gap_batch
from minilog.record_batch.header import BatchHeader, Buffer, decode_header
from minilog_broker.replication.leader.expiring_deletions import ExpiringDeletions
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.replica_effects import BeginCompaction
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.replication.sessions import session
from minilog_broker.storage import cleaning, log, producer_state, retention
from minilog_broker.storage.cleaning import Cleaning, Replacement
from minilog_broker.storage.compacted_segment import CompactedSegment, CompactedSegmentWriter
from minilog_broker.storage.compaction import due
from minilog_broker.storage.compaction.newest_offsets import NewestOffsets, NewestOffsetsBuilder
from minilog_broker.storage.compaction.removals import RemovalSearch
from minilog_broker.storage.compaction.stored_batches import is_gap
from minilog_broker.storage.compaction_point import CompactionPoint, CopyCompaction
from minilog_broker.storage.log import Log
from minilog_broker.storage.segment import Segment
from minilog_broker.storage.settings import LogSettings
from tests.rules import Patches


def _begin_at_once(self: Log, point: CompactionPoint, snapshot_offset: int, snapshot: bytes) -> None:
    """As Log.begin_compaction, wherever the last stable offset is."""
    self._check_usable()
    begun = self.compaction.begun.joined(point)
    self.sync()
    self.write_producer_snapshot(snapshot_offset, snapshot)
    if self.sealed_end_offset < begun.clean_to:
        self._roll()
    self.write_checkpoint(compaction=CopyCompaction(begun, self.compaction.done))


def _due_below(bound: str) -> Any:
    """As ReplicaLog.due_compaction, under another bound."""

    def mutant(self: ReplicaLog, key: Any) -> BeginCompaction | None:
        point = self.compaction
        if point == self.asked_compaction or self.truncating or point.clean_to > getattr(self, bound):
            return None
        self.asked_compaction = point
        return BeginCompaction(key, point, self.appended_end, self.producers.snapshot())

    return mutant


def bound_by_the_high_watermark() -> Patches:
    """A leader cleans up to its high watermark, whether a transaction is open below it or not."""

    def compact(self: LeaderPartition, point: CompactionPoint, now_ms: float) -> None:
        self.log.learn_compaction(point)
        self.begin_compaction()
        self._tell_subscribers(now_ms, news=True)

    below = due._below

    def mutant(log: Log, offset: int) -> Any:
        return below(log, log.high_watermark)

    return [
        (due, "_below", mutant),
        (LeaderPartition, "compact", compact),
        (ReplicaLog, "due_compaction", _due_below("high_watermark")),
        (Log, "begin_compaction", _begin_at_once),
    ]


def deletion_dropped_at_once() -> Patches:
    """Deletions go as soon as the records before them do: who has seen such a record may never hear of it."""

    def mutant(self: ExpiringDeletions, now_ms: float, delete_retention_ms: float) -> int:
        return self._cleaned[-1][0] if self._cleaned else self._deletes_before

    return [(ExpiringDeletions, "deletes_before", mutant)]


def swap_before_sync() -> Patches:
    """A compacted segment gets its name, and the former ones go, while its content is on no disk."""

    def mutant(self: CompactedSegmentWriter) -> CompactedSegment:
        file = self._open_file()
        self._file = None
        file.close()
        return CompactedSegment(self._name, self._tracker.end, self._tracker.index, tuple(self._epoch_starts))

    return [(CompactedSegmentWriter, "finish", mutant)]


def marker_before_its_data() -> Patches:
    """Segments change from the newest to the oldest: a marker, or a deletion, is gone before what it speaks of."""

    def mutant(self: Cleaning, newest: NewestOffsets) -> Iterator[Replacement]:
        segments = [segment for segment in self._log.sealed_segments if segment.base_offset < newest.end_offset]
        if not segments:
            return
        start, aborted = segments[0].base_offset, self._aborted_producer_ids
        before = self.point.deletes_before
        search = RemovalSearch(self._reader, newest, aborted, before, log_start_offset=start)
        groups = list(cleaning.joined(segments, self._log.settings.segment_bytes))
        removals = [search.search(self._read(group)) for group in groups]
        for group, gone in reversed(list(zip(groups, removals, strict=True))):
            if gone or len(group) > 1:
                yield self._rewrite(group, gone)

    return [(Cleaning, "_pass", mutant)]


def follower_cleans_ahead() -> Patches:
    """A copy carries out a point as soon as it hears of it, however far its own log is."""

    def mutant(self: ReplicaLog, key: Any) -> BeginCompaction | None:
        point = self.compaction
        if point == self.asked_compaction or self.truncating:
            return None
        self.asked_compaction = point
        return BeginCompaction(key, point, self.appended_end, self.producers.snapshot())

    return [(ReplicaLog, "due_compaction", mutant), (Log, "begin_compaction", _begin_at_once)]


def part_of_the_range_is_all() -> Patches:
    """A table that is full is taken for that of the whole range: a cleaning is done after its first pass."""

    def mutant(self: Cleaning) -> Iterator[Replacement | None]:
        newest = yield from self._table(min(self._dirty_from, self.point.clean_to), self.point.clean_to)
        yield from self._pass(newest)

    return [(Cleaning, "steps", mutant)]


def aborted_are_newest() -> Patches:
    """A record of an aborted transaction takes away the record that was committed before it."""

    def mutant(self: NewestOffsetsBuilder, header: BatchHeader, batch: Buffer) -> None:
        aborted, self._aborted_producer_ids = self._aborted_producer_ids, frozenset()
        add(self, header, batch)
        self._aborted_producer_ids = aborted

    add = NewestOffsetsBuilder.add
    return [(NewestOffsetsBuilder, "add", mutant)]


def gap_with_a_wrong_end() -> Patches:
    """Of a gap that begins below a follower's end it gets the rest, which ends as far behind as the whole one."""

    def mutant(topic_id: bytes, partition: int, batches: Buffer, offset: int) -> Buffer:
        header = decode_header(batches)
        if not is_gap(header) or not header.base_offset < offset < header.next_offset:
            return from_offset(topic_id, partition, batches, offset)
        rest = replace(header, base_offset=offset)
        return b"".join((joined_gap_batch(topic_id, partition, rest, rest), memoryview(batches)[header.length :]))

    return [(session, "from_offset", mutant)]


def producers_are_forgotten() -> Patches:
    """What a compacted log does not show of its producers is told to no follower, and stored by no copy."""

    def hidden(self: LeaderPartition, position: Any) -> Any:
        return None if position.HasField("last_fetched_epoch") else self.producers.below(position.fetch_offset)

    def begin(self: Log, point: CompactionPoint, snapshot_offset: int, snapshot: bytes) -> None:
        self._check_usable()
        self.sync()
        begun = self.compaction.begun.joined(point)
        if self.sealed_end_offset < begun.clean_to:
            self._roll()
        self.write_checkpoint(compaction=CopyCompaction(begun, self.compaction.done))

    return [(LeaderPartition, "_hidden_producers", hidden), (Log, "begin_compaction", begin)]


def unmarked_stay_open() -> Patches:
    """A follower waits for ever for markers that its leader has removed."""
    return [(ReplicaLog, "due_abort", lambda self, key, stable_offset: None)]


def cut_opens_what_was_removed() -> Patches:
    """A log that a cut left with an old snapshot alone takes that snapshot's word for what is open."""
    return [(producer_state, "_without_records", lambda transactions, log: [])]


def cleaning_seals_nothing() -> Patches:
    """A log seals only when it begins a point, and its cleaner takes sealed segments for all that there is."""
    seal_below, own = Log.seal_below, Cleaning._pass

    def seal(self: Log, offset: int) -> None:
        if self.compaction.begun.clean_to < offset:
            seal_below(self, offset)

    def unchecked(self: Cleaning, newest: NewestOffsets) -> Iterator[Replacement | None]:
        try:
            yield from own(self, newest)
        except OffsetOutOfRange:
            return

    return [(Log, "seal_below", seal), (Cleaning, "_pass", unchecked)]


def retention_deletes_the_young() -> Patches:
    """Retention takes half of retention.ms for all of it."""
    own = retention.is_expired

    def mutant(segment: Segment, settings: LogSettings, now_us: int | None) -> bool:
        return own(segment, replace(settings, retention_ms=settings.retention_ms // 2), now_us)

    return [(retention, "is_expired", mutant), (log, "is_expired", mutant)]
