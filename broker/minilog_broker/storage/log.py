"""The log of one partition: segments and their manifest, indexes, epochs, producer snapshots and a checkpoint in one
directory.

One disk thread writes the log (append, flush, truncate, ...). Other threads read it at the same time (readable_log.py).

    append      written; readable by followers      log_end_offset
    flush       fdatasync returned                  durable_end_offset (flush.policy=os: with the append)

After an error the log is either as it was before (after a full disk it undoes the write) or *failed*. A failed log
refuses every change with an OSError. So no write ever follows torn bytes, and a failed fdatasync is never tried again.
"""

from __future__ import annotations

import contextlib
import errno
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TypeVar

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader
from minilog_broker.storage import marks, producer_snapshots
from minilog_broker.storage.checkpoint import CheckpointFile
from minilog_broker.storage.compacted_segment import CompactedSegment, swap_in, with_compacted
from minilog_broker.storage.compaction_point import COPY_NOT_COMPACTED, CompactionPoint, CopyCompaction
from minilog_broker.storage.durable_file import write_durable_file
from minilog_broker.storage.epoch_cache import EpochCache
from minilog_broker.storage.errors import NO_SPACE, DamagedCopy, passing_no_space
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.manifest import ManifestFile
from minilog_broker.storage.readable_log import ReadableLog
from minilog_broker.storage.recovery import EPOCH_FILE, Finding, Recovered, Recovery, RecoveryReport
from minilog_broker.storage.retention import (
    HeldSegment,
    first_within,
    held_by_the_future,
    is_all_below,
    is_expired,
    removable,
    roll_is_due,
)
from minilog_broker.storage.segment import BatchRun, Segment
from minilog_broker.storage.segment_name import SegmentName
from minilog_broker.storage.settings import LogSettings
from minilog_broker.storage.topic_id_file import prepare_directory

_BASE_OFFSET = attrgetter("base_offset")
_T = TypeVar("_T")


class Log(ReadableLog):
    """The log of one partition. `Log.open` makes it."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        key: PartitionKey,
        topic_name: str,
        settings: LogSettings,
        recovered: Recovered,
        checkpoint: CheckpointFile,
        manifest: ManifestFile,
    ) -> None:
        super().__init__(directory, key, recovered)
        self._files = files
        self.topic_name = topic_name
        self.settings = settings
        self.recovery: RecoveryReport = recovered.report
        self.failed: OSError | None = None
        self.has_torn_tail = recovered.report.torn  # records may be missing behind the cut
        self._checkpoint = checkpoint
        self._manifest = manifest
        self._marked = recovered.report.finding in (Finding.DAMAGED, Finding.DOUBTFUL)
        self._dirty = False
        self._epochs_stored = True  # False after a cut on a full disk: the file still has epochs above the end
        self._synced_end_offset = self.log_end_offset
        self.begins = 0  # how often this object began anew, to tell a cleaning from before it apart

    @classmethod
    def open(
        cls,
        files: FileSystem,
        directory: str,
        key: PartitionKey,
        topic_name: str,
        settings: LogSettings,
        *,
        unclean: bool,
        create: bool,
        boot_id: str = "",
    ) -> Log:
        """Open the log in `directory`. If it is missing and `create` is set, make it. `log.recovery` is the report.

        `boot_id` is that of the kernel, empty if it is not known. Raises OSError, DataDirectoryError if the directory
        belongs to another partition."""
        prepare_directory(files, directory, key, topic_name, create=create)
        recovered = Recovery(files, directory, key, settings, unclean=unclean, boot_id=boot_id).run()
        checkpoint = CheckpointFile(files, directory, recovered.checkpoint, boot_id)
        manifest = ManifestFile(files, directory, recovered.manifest)
        log = cls(files, directory, key, topic_name, settings, recovered, checkpoint, manifest)
        log._list_recovered()
        log.configure(settings)
        return log

    # the producers' state

    def load_producer_snapshot(self) -> tuple[int, bytes] | None:
        """(offset, snapshot) of the newest whole producer snapshot at or below the log's end. None if there is none."""
        return producer_snapshots.load_snapshot(self._files, self.directory, self.log_end_offset)

    def later_producer_snapshots(self) -> list[bytes]:
        """The whole producer snapshots above the log's end. They are from before the last cut."""
        return producer_snapshots.later_snapshots(self._files, self.directory, self.log_end_offset)

    def set_high_watermark(self, offset: int, last_stable_offset: int | None = None) -> None:
        """Set the high watermark in memory, at most to the durable end. Without transactions all below it is stable."""
        offset = max(self.log_start_offset, min(offset, self.durable_end_offset))
        stable = offset if last_stable_offset is None else min(offset, last_stable_offset)
        self.high_watermark, self.last_stable_offset = offset, max(self.log_start_offset, stable)

    # writing, on the disk thread

    def append(self, batches: BatchRun) -> None:
        """Write a run at the log's end. It is durable only after `flush` has returned.

        Raises ValueError if the run does not begin at the log's end, OSError if the disk fails (see the module).
        """
        self._check_usable()
        headers, flush_on_append = batches.headers, self.settings.flush_on_append
        if headers[0].base_offset != self.log_end_offset:
            raise ValueError(f"{self!r}: a run at offset {headers[0].base_offset} does not begin at the log's end")
        run_bytes = sum([header.length for header in headers])
        if run_bytes != sum(map(len, batches.buffers)):
            raise ValueError(f"{self!r}: the headers of a run name {run_bytes} bytes, and its buffers have others")
        self._clear_marks()
        if not flush_on_append and not self._checkpoint.expects_unsynced:
            self.write_checkpoint(unsynced=True)
        self._assign_epochs(headers)
        if roll_is_due(self._segments[-1], self.settings, run_bytes, headers[0].max_timestamp_us):
            self._roll()
        active = self._segments[-1]
        self._dirty = True
        try:
            active.append(batches)
        except OSError as error:
            self._take_back(active, error)
            raise
        self.log_end_offset = active.end.end_offset
        if not flush_on_append:
            self.durable_end_offset = active.end.end_offset

    def flush(self) -> None:
        """Sync as the flush policy asks: call fdatasync if an append counts only after it."""
        self._check_usable()
        if self.durable_end_offset < self.log_end_offset:
            self.sync()

    def sync(self) -> None:
        """Call fdatasync under either flush policy. After an error the log is failed."""
        self._check_usable()
        end = self.log_end_offset
        if self._dirty:
            with self._failing(passing=frozenset()):
                self._segments[-1].file.fdatasync()
            self._dirty = False
        self._synced_end_offset = end
        self.durable_end_offset = end

    def configure(self, settings: LogSettings) -> None:
        """Adopt other settings. A new flush policy is in the checkpoint before it counts. The log records the policy
        fsync only after it has synced all, so that recovery never relies on a missing sync. Raises OSError: then the
        log is failed."""
        self._check_usable()
        if settings.flush_on_append and not self.settings.flush_on_append:
            self.sync()
        self.settings = settings
        recorded = self._checkpoint.recorded
        if recorded is None or recorded.flush_on_append != settings.flush_on_append:
            with self._failing(passing=frozenset()):
                self.write_checkpoint()
        if not settings.flush_on_append:
            self.durable_end_offset = self.log_end_offset

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record, durably, that a leader's epoch starts at `start_offset`. Raises ValueError if the epoch is old."""
        self._check_usable()
        epochs = self.epochs.copy()
        if epochs.assign(epoch, start_offset):
            self._store_epochs(epochs)

    def truncate_to(self, end_offset: int) -> int:
        """Cut the log, durably, to `end_offset`, or to the beginning of the batch around it. Returns the new end.

        The log lowers the checkpoint's promises before it removes records. If the disk has no space for that, it raises
        OSError, and the log is as it was."""
        self._check_usable()
        if end_offset >= self.log_end_offset:
            return self.log_end_offset
        if end_offset < self.log_start_offset:
            self.truncate_fully_and_start_at(end_offset)
            return end_offset
        with self._failing():
            count = max(1, bisect_right(self._segments, end_offset - 1, key=_BASE_OFFSET))
            kept, dropped = self._segments[:count], self._segments[count:]
            position, end = kept[-1].position_of(end_offset)
            end = max(end, self.log_start_offset)
            if self._checkpoint.promises_above(end):
                self.write_checkpoint(end_offset=end)
            self._swap(kept)
        self._clear_marks()
        with self._failing(passing=frozenset()):
            self._lower_ends(end)
            self._remove_segments(dropped)
            self._segments = (*kept[:-1], kept[-1].cut(position, end))
            self._dirty = False
            self._cut_epochs()
        return self.log_end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records, durably. Then the log is empty and starts at `offset`."""
        self._check_usable()
        self.begins += 1
        with self._failing():
            flush_on_append = self.settings.flush_on_append
            self._checkpoint.record(
                offset, offset, offset, flush_on_append=flush_on_append, compaction=COPY_NOT_COMPACTED
            )
            self._forget_manifest()  # after a crash in this removal, recovery goes by the files
        self._clear_marks()
        with self._failing(passing=frozenset()):
            producer_snapshots.remove_snapshots(self._files, self.directory, above_offset=-1)
            self._remove_segments(self._segments)
            segment = self._new_segment(offset)
            segment.create()
            self._files.fsync_dir(self.directory)
            self._store_epochs(EpochCache())
            self._segments = (segment,)
            self._dirty = False
            self.log_start_offset = self.last_stable_offset = self.high_watermark = offset
            self._synced_end_offset = self.durable_end_offset = self.log_end_offset = offset

    def advance_log_start(self, offset: int) -> int:
        """Move the log start up to `offset`, but not above the last stable offset. Readers see the new start when it is
        durable. Returns the number of removed segments."""
        self._check_usable()
        offset = max(self.log_start_offset, min(offset, self.last_stable_offset))
        if offset == self.log_start_offset and (len(self._segments) == 1 or self._segments[0].end.end_offset > offset):
            return 0
        with self._failing():
            self.write_checkpoint(offset)
            self.log_start_offset = offset
            epochs = self.epochs.copy()
            if epochs.truncate_from_start(offset):
                self._store_epochs(epochs)
            count = sum(segment.end.end_offset <= offset for segment in self._segments[:-1])
            gone, kept = self._segments[:count], self._segments[count:]
            self._swap(kept)
            self._segments = kept
            for segment in gone:  # a crash may leave some of their files, but the manifest does not name these
                segment.remove()
            self._files.fsync_dir(self.directory)
        return count

    def apply_retention(self, now_us: int | None, most_bytes: int | None = None) -> int:
        """Remove the segments that retention selects (retention.py). Returns the number of removed segments.

        `now_us` is the wall clock, None if it is not trusted. This call removes at most `most_bytes`, but always at
        least one selected segment."""
        self._check_usable()
        active = self._segments[-1]
        gone = is_all_below(active, self.log_start_offset) or is_expired(active, self.settings, now_us)
        if gone or (now_us and roll_is_due(active, self.settings, 0, now_us)):
            self._roll()
        count = removable(self._segments, self.settings, self.last_stable_offset, now_us)
        if most_bytes is not None:
            count = first_within(self._segments[:count], most_bytes)
        return self.advance_log_start(self._segments[count].base_offset)

    @property
    def compaction(self) -> CopyCompaction:
        """The points of this copy. Any thread may read it."""
        return self._checkpoint.compaction

    def begin_compaction(self, point: CompactionPoint, snapshot_offset: int, snapshot: bytes) -> None:
        """Record, durably, that from now on records below `point` may be gone. Before that the log stores the producer
        state, because a compacted log does not show all of it. All batches below `point.clean_to` are sealed then.

        Nothing happens if the point is above the last stable offset: a cut has begun since the caller looked. Raises
        OSError."""
        self._check_usable()
        begun = self.compaction.begun.joined(point)
        if point.clean_to > min(self.last_stable_offset, snapshot_offset):
            return
        self.write_lasting_producer_snapshot(snapshot_offset, snapshot)
        self.seal_below(begun.clean_to)
        self.write_checkpoint(compaction=CopyCompaction(begun, self.compaction.done))

    def seal_below(self, offset: int) -> None:
        """Begin a new segment if batches below `offset` are in the active one. Raises OSError.

        A cut, and a start that found the active segment empty, make a sealed segment the active one again."""
        self._check_usable()
        if self.sealed_end_offset < min(offset, self.log_end_offset):
            self._roll()

    def finish_compaction(self, point: CompactionPoint, begins: int) -> None:
        """Record that this copy has carried out `point`. The copy may have begun a later point meanwhile.

        `begins` is the log's number from before the cleaning. Nothing happens if the log has begun anew since. Raises
        OSError."""
        compaction = self.compaction
        if self.begins == begins and compaction.begun.covers(point):
            self.write_checkpoint(compaction=CopyCompaction(compaction.begun, compaction.done.joined(point)))

    def replace_segments(self, former: Sequence[Segment], compacted: CompactedSegment) -> None:
        """Replace adjacent sealed segments by `compacted`, durably, and remove the former files.

        Raises ValueError if the log does not have these segments any more, or if `compacted` has other offsets or
        leader epochs. Then nothing is changed, and the caller abandons `compacted`. Raises OSError: after a full disk
        the log is as it was, and the caller tries once more with more space, or abandons `compacted`."""
        self._check_usable()
        segment = compacted.as_segment(self._files, self.directory, self.settings.index_interval_bytes)
        segments = with_compacted(self._segments, former, segment)
        if not self.epochs.agrees(compacted.epoch_starts, compacted.end.end_offset, self.log_start_offset):
            raise ValueError(f"{self!r}: the segment {compacted.name} has other leader epochs than the log")
        with self._failing():
            swap_in(self._files, self.directory, segment, self._manifest, lambda: self._swap(segments))
        self._segments = segments
        with contextlib.suppress(OSError):  # the index is a cache
            segment.write_index_files()
        with self._failing(passing=frozenset()):
            for old in former:
                old.remove()
            self._files.fsync_dir(self.directory)

    def retention_held(self, now_us: int) -> HeldSegment | None:
        """The segment that retention.ms cannot remove, because it has a record with a time stamp in the future."""
        return held_by_the_future(self._segments, self.settings, now_us)

    def delete_records(self, offset: int, snapshot_offset: int, snapshot: bytes) -> None:
        """Store the producer state, and then advance the log start. The rest of the log does not show the state
        completely.

        If the disk has no space for the state, delete all the same, because that makes space. Raises OSError."""
        with passing_no_space():
            self.write_producer_snapshot(snapshot_offset, snapshot)
        self.advance_log_start(offset)

    def replace_later_producer_snapshots(self, snapshot: bytes) -> None:
        """Replace the producer snapshots above the log's end by `snapshot`, durably, before other records take their
        offsets (producer_snapshots.py)."""
        self._check_usable()
        with self._failing():
            producer_snapshots.replace_later(self._files, self.directory, self.log_end_offset, snapshot)

    def write_producer_snapshot(self, offset: int, snapshot: bytes) -> None:
        """Store the producer state as of `offset`, durably."""
        self._check_usable()
        if offset > self.log_end_offset:
            raise ValueError(f"{self!r}: a producer snapshot at offset {offset} is above the end")
        producer_snapshots.write_snapshot(self._files, self.directory, offset, snapshot)

    def write_lasting_producer_snapshot(self, offset: int, snapshot: bytes) -> None:
        """Store what the log does not show, durably. The log syncs first, so that no crash leaves it with an end below
        the snapshot. Raises OSError."""
        self.sync()
        self.write_producer_snapshot(offset, snapshot)

    def write_checkpoint(
        self,
        log_start: int | None = None,
        *,
        end_offset: int | None = None,
        unsynced: bool = False,
        compaction: CopyCompaction | None = None,
    ) -> None:
        """Record log start, high watermark and durable end for the next life. If they are recorded, write nothing.

        `end_offset`: the log is about to be cut there. `unsynced`: records may count before they are synced
        (checkpoint.py). `compaction`: the copy's compaction changes to this."""
        self._check_usable()
        start = self.log_start_offset if log_start is None else log_start
        end = self.log_end_offset if end_offset is None else end_offset
        synced = min(self._synced_end_offset, end)
        unsynced = unsynced or not self.settings.flush_on_append or min(self.durable_end_offset, end) > synced
        with self._failing():
            ends = start, min(self.high_watermark, end), synced
            self._checkpoint.record(*ends, flush_on_append=not unsynced, compaction=compaction)

    def forget_torn_tail(self) -> None:
        """Remove the torn-tail mark: this copy is in an ISR under a leader, so it has all acknowledged records."""
        with self._failing():
            marks.remove_mark(self._files, self.directory, marks.TORN_TAIL)
        self.has_torn_tail = False

    def close(self, clean: bool) -> None:
        """Close the files. A clean close syncs all, writes the checkpoint, and keeps the index for a quick start."""
        try:
            if clean:
                self.sync()
                self.write_checkpoint()
                with contextlib.suppress(OSError):
                    self._segments[-1].write_index_files()
        finally:
            if self.failed is None:
                self.failed = OSError(errno.EBADF, f"{self!r} is closed")
            for segment in self._segments:
                segment.close(forget=not clean)

    # inside

    def _check_usable(self) -> None:
        if self.failed is not None:
            # Not the errno of the first failure: callers retry after a full disk, but this failure is final.
            raise OSError(errno.EIO, f"{self!r} takes no more writes, because one failed: {self.failed}")

    @contextlib.contextmanager
    def _failing(self, passing: frozenset[int] = NO_SPACE) -> Iterator[None]:
        """An OSError inside makes the log failed, unless its errno is in `passing` (then nothing is half done)."""
        try:
            yield
        except CorruptMessage as error:
            self.failed = DamagedCopy(str(error))
            raise self.failed from error
        except OSError as error:
            if self.failed is None and error.errno not in passing:
                self.failed = error
            raise

    def _take_back(self, active: Segment, error: OSError) -> None:
        """Undo a write that failed half way. If the disk was full, cut its bytes off. Else the log is failed."""
        if error.errno not in NO_SPACE:
            self.failed = error
            return
        with self._failing(passing=frozenset()):
            active.file.truncate(active.end.size_bytes)

    def _roll(self) -> None:
        """Begin a new segment. Sync the old one first, under either policy: recovery reads only the last segment."""
        self.sync()
        active = self._segments[-1]
        segment = self._new_segment(self.log_end_offset)
        segments = (*self._segments, segment)
        with self._failing():
            segment.create()
            try:
                self._swap(segments)  # it syncs the directory, too
            except OSError:
                segment.remove()  # the active segment may get records at the base offset of this file
                self._files.fsync_dir(self.directory)
                raise
        self._segments = segments
        with contextlib.suppress(OSError):  # the index is a cache
            active.write_index_files()
        self.write_checkpoint()

    def _swap(self, segments: tuple[Segment, ...]) -> None:
        """Make `segments` the log's segments, durably. The caller does this before it writes a record to a new one, and
        before it removes a file."""
        self._manifest.swap(segments)
        self._checkpoint.has_manifest = self._manifest.recorded is not None

    def _list_recovered(self) -> None:
        """Record the segments that recovery has left. If the disk is full, drop the old list, which may be wrong."""
        try:
            self._swap(self._segments)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._forget_manifest()

    def _forget_manifest(self) -> None:
        self._manifest.forget()
        self._checkpoint.has_manifest = False

    def _new_segment(self, base_offset: int) -> Segment:
        name, interval_bytes = SegmentName(base_offset), self.settings.index_interval_bytes
        return Segment(self._files, self.directory, name, interval_bytes=interval_bytes)

    def _assign_epochs(self, headers: tuple[BatchHeader, ...]) -> None:
        """Store the epochs that begin in a run in the epoch file, before the run is in the log."""
        latest = self.epochs.latest_epoch
        if self._epochs_stored and {header.partition_leader_epoch for header in headers} == {latest}:
            return
        epochs = self.epochs.copy()
        changed = [epochs.assign(header.partition_leader_epoch, header.base_offset) for header in headers]
        if any(changed) or not self._epochs_stored:
            self._store_epochs(epochs)

    def _cut_epochs(self) -> None:
        """Drop the epochs above the log's end. A full disk is no failure here, because recovery drops them, too. The
        log stores the change before the next record."""
        epochs = self.epochs.copy()
        if epochs.truncate_from_end(self.log_end_offset):
            self.epochs.replace(epochs)
            self._epochs_stored = False
            with passing_no_space():
                self._store_epochs(epochs)

    def _store_epochs(self, epochs: EpochCache) -> None:
        with self._failing():
            write_durable_file(self._files, f"{self.directory}/{EPOCH_FILE}", epochs.encode())
        self.epochs.replace(epochs)
        self._epochs_stored = True

    def _clear_marks(self) -> None:
        if self._marked:
            with self._failing():
                for mark in (marks.DOUBTFUL, marks.DAMAGED):
                    marks.remove_mark(self._files, self.directory, mark)
            self._marked = False

    def _lower_ends(self, end: int) -> None:
        """Lower all ends to `end`, so that readers do not see the records that the log is about to remove."""
        self.high_watermark = min(self.high_watermark, end)
        self.last_stable_offset = min(self.last_stable_offset, end)
        self._synced_end_offset = min(self._synced_end_offset, end)
        self.durable_end_offset = min(self.durable_end_offset, end)
        self.log_end_offset = end

    def _remove_segments(self, segments: tuple[Segment, ...]) -> None:
        """Remove `segments`, the last one first. So a crash leaves no gap between the segments."""
        for segment in reversed(segments):
            segment.remove()
            self._files.fsync_dir(self.directory)
