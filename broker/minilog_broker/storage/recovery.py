"""Recovery makes a log that the broker may serve from the files of a log, and reports the losses.

    the files                                                  recovery's verdict
    the last segment ends in bytes that are no whole batch,    a torn tail: cut, and marked (an unsynced write reaches
    with or without a valid batch behind them                  the disk in any part and in any order)
    written under flush.policy=os before another boot of the   doubt: acknowledged but unsynced records may be missing,
    kernel, or no checkpoint names the flush policy            and nothing would show it
    an earlier segment is not whole, or is missing             damage: it was synced before the next one was made
    a segment that the manifest does not name                  removed: a change of segments was cut short (manifest.py)
    without a manifest, what a segment written anew holds too  removed: the change had not removed it yet
    an end below the recorded high watermark or durable end    damage: the log had promised these records
    a tail to cut and no checkpoint to compare it with         damage: nothing shows which records were promised
    index, time index or epoch file missing, stale or wrong    no loss: recovery rebuilds it from the batches
    a manifest missing or wrong                                no loss: recovery lists the files
    `*.tmp`, snapshots above the end                           removed
    a whole batch of a later version, a later manifest         UnsupportedVersion: recovery changes and serves nothing

After an unclean stop recovery reads the last segment with every checksum. The log had synced all other segments before
it made the last one. Recovery reads them only if their index does not vouch for their size and end. It syncs the files
before they count as durable.

A torn tail stands above all recorded ends. But the recorded ends lag behind the syncs by up to a checkpoint. If a disk
damages records in between, its copy looks torn, and lacks acknowledged records. This log alone cannot show that. So the
controller compares copies before it relies on one with a torn tail (controller/election.py).

Recovery writes its verdict durably (marks.py) before it cuts anything, so that a crash does not make the replica look
better. It keeps the bytes that a damaged log loses beside the log (`*.log.damaged`), for an operator.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from minilog.partition_key import PartitionKey
from minilog_broker.storage import checkpoint as checkpoint_file
from minilog_broker.storage import marks
from minilog_broker.storage.batch_scan import SCAN_CHUNK_BYTES, BatchScan, has_batch_above, scan_segment
from minilog_broker.storage.checkpoint import Checkpoint
from minilog_broker.storage.durable_file import TEMPORARY_SUFFIX, read_durable_file, write_durable_file
from minilog_broker.storage.epoch_cache import EpochCache
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.index import SegmentEnd, SparseIndex, read_stamp, remove_index_files
from minilog_broker.storage.manifest import Manifest, read_manifest
from minilog_broker.storage.segment import Segment
from minilog_broker.storage.segment_name import SegmentName, segment_names
from minilog_broker.storage.settings import LogSettings

EPOCH_FILE = "leader-epoch"
_DAMAGED_SUFFIX = ".damaged"
_BASE_OFFSET = attrgetter("base_offset")


def mark_damaged(files: FileSystem, directory: str, reason: str) -> None:
    """Record, durably, that a reader met a damaged batch of this log. So the next start reads the whole log."""
    marks.write_mark(files, directory, marks.DAMAGED, reason)


class Finding(enum.Enum):
    """The verdict on a copy, by the module's table. If several apply, the worst one counts."""

    WHOLE = "whole"
    TORN = "torn"
    DOUBTFUL = "doubtful"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of opening a log. `reason` is for people. `torn`: recovery has cut a torn tail, even if the finding is
    a worse one."""

    finding: Finding
    torn: bool
    reason: str
    cut_bytes: int
    scanned_bytes: int

    @property
    def damaged(self) -> bool:
        return self.finding is Finding.DAMAGED


@dataclass(frozen=True, slots=True)
class Recovered:
    """A log that the broker may serve. All of it is on the disk."""

    segments: tuple[Segment, ...]
    epochs: EpochCache
    log_start_offset: int
    high_watermark: int
    checkpoint: Checkpoint | None
    manifest: Manifest | None
    report: RecoveryReport


@dataclass(slots=True)
class FoundSegment:
    """A segment file. `scan` is None if its index vouches for it."""

    name: SegmentName
    end: SegmentEnd
    index: SparseIndex | None = None
    scan: BatchScan | None = None


@dataclass(frozen=True, slots=True)
class RecoveryLook:
    """The result of a recovery's look, before it changes anything. `unreachable` are the segments behind damage."""

    segments: tuple[FoundSegment, ...]
    unreachable: tuple[SegmentName, ...]
    damage: tuple[str, ...]
    doubt: tuple[str, ...]
    log_start: int
    end_offset: int
    checkpoint: Checkpoint | None
    manifest: Manifest | None  # also None if the manifest does not count


class Recovery:
    """One recovery of one log. `run` looks first, decides, and only then changes files. `look` only looks.

    If `scan` is given, recovery reads each segment with it, even if an index vouches for the segment."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        key: PartitionKey,
        settings: LogSettings,
        *,
        unclean: bool,
        boot_id: str,
        scan: Callable[[SegmentName], BatchScan] | None = None,
    ) -> None:
        self._scan = scan
        self._files = files
        self._directory = directory
        self._key = key
        self._interval_bytes = settings.index_interval_bytes
        self._unclean = unclean
        self._boot_id = boot_id
        self._marks: dict[str, str] = {}
        self._damage: list[str] = []
        self._doubt: list[str] = []
        self._notes: list[str] = []
        self._found: list[FoundSegment] = []
        self._unreachable: list[SegmentName] = []  # behind damage
        self._obsolete: list[SegmentName] = []  # below the log's start, or left by a change
        self._checkpoint: Checkpoint | None = None
        self._checkpoint_is_corrupt = False
        self._manifest: Manifest | None = None

    def look(self) -> RecoveryLook:
        """Find the segments and the losses. Changes nothing. Raises UnsupportedVersion, OSError."""
        self._read_marks()
        self._checkpoint = self._read_checkpoint()
        self._manifest = self._read_manifest()
        self._look_at_segments()
        log_start, end_offset = self._bounds()
        self._look_at_promises(log_start, end_offset)
        return RecoveryLook(
            tuple(self._found),
            tuple(self._unreachable),
            tuple(self._damage),
            tuple(self._doubt),
            log_start,
            end_offset,
            self._checkpoint,
            self._manifest,
        )

    def run(self) -> Recovered:
        looked = self.look()
        log_start, end_offset = looked.log_start, looked.end_offset
        self._remove_temporaries()
        self._mark()
        scanned = sum(segment.scan.file_bytes for segment in self._found if segment.scan)
        cut = self._cut()
        self._sync()
        segments = self._segments(log_start)
        epochs = self._recover_epochs(segments, log_start, max(end_offset, log_start))
        report = RecoveryReport(
            finding=self._finding(),
            torn=marks.TORN_TAIL in self._marks,
            reason="; ".join(dict.fromkeys([*self._marks.values(), *self._notes])),
            cut_bytes=cut,
            scanned_bytes=scanned,
        )
        recorded = self._checkpoint.high_watermark if self._checkpoint else log_start
        high_watermark = max(log_start, min(recorded, segments[-1].end.end_offset))
        return Recovered(segments, epochs, log_start, high_watermark, self._checkpoint, self._manifest, report)

    # looking

    def _read_marks(self) -> None:
        for mark in (marks.DAMAGED, marks.DOUBTFUL, marks.TORN_TAIL):
            if (reason := marks.read_mark(self._files, self._directory, mark)) is not None:
                self._marks[mark] = reason

    def _read_checkpoint(self) -> Checkpoint | None:
        try:
            return checkpoint_file.read_checkpoint(self._files, self._directory)
        except CorruptFile as error:
            self._notes.append(str(error))
            self._checkpoint_is_corrupt = True
            return None

    def _read_manifest(self) -> Manifest | None:
        """The manifest. None if it is missing or damaged, or does not count."""
        if self._checkpoint is None or not self._checkpoint.has_manifest:
            return None
        try:
            return read_manifest(self._files, self._directory)
        except CorruptFile as error:
            self._notes.append(str(error))
            return None

    def _look_at_segments(self) -> None:
        names = segment_names(self._files.list(self._directory))
        self._obsolete = self._left_behind(names) if self._manifest is not None else self._replaced(names)
        names = [name for name in names if name not in self._obsolete]
        log_start = self._checkpoint.log_start_offset if self._checkpoint else 0
        # Retention may have been removing the segments below the one with the log start: gaps there are no damage.
        below = max(0, bisect_right(names, log_start, key=_BASE_OFFSET) - 1)
        self._obsolete, names = self._obsolete + names[:below], names[below:]
        for number, name in enumerate(names):
            if self._found and name.base_offset != self._found[-1].end.end_offset:
                end_offset = self._found[-1].end.end_offset
                self._damage.append(f"offset {end_offset} follows, but the next segment begins at {name.base_offset}")
                self._unreachable = names[number:]
                return
            next_base = names[number + 1].base_offset if number + 1 < len(names) else None
            segment = self._look_at_segment(name, next_base)
            self._found.append(segment)
            problem = segment.scan.problem if segment.scan else None
            if problem is None:
                continue
            self._notes.append(f"{name.path(self._directory)}: {problem}")
            if next_base is not None:
                self._damage.append(f"segment {name} is not whole: {problem}")
                self._unreachable = names[number + 1 :]
                return

    def _left_behind(self, names: list[SegmentName]) -> list[SegmentName]:
        """The segments among these that an unfinished change has left.

        These are all that the manifest does not name, up to the base offset of the last one that it names. An empty
        segment behind that belongs to them, too: the log has not written to it."""
        assert self._manifest is not None
        named, last = {listed.name for listed in self._manifest}, self._manifest[-1].name
        left = [name for name in names if name.base_offset <= last.base_offset and name not in named]
        newest = names[-1] if names else last
        if newest.base_offset > last.base_offset and not self._files.size(newest.path(self._directory)):
            left.append(newest)
        return left

    def _replaced(self, names: list[SegmentName]) -> list[SegmentName]:
        """The segments among these that compaction has replaced, for a log without a manifest.

        The compacted segment was whole and durable before it got its name. Any of the replaced ones may be gone."""
        replaced: list[SegmentName] = []
        kept, end_offset = SegmentName(-1), 0  # the last segment that stays, and its end if it is a compacted one
        for number, name in enumerate(names):
            is_older = number + 1 < len(names) and names[number + 1].base_offset == name.base_offset
            if is_older or (kept.generation and name.base_offset < end_offset):
                replaced.append(name)
                continue
            kept, end_offset = name, self._end_of(name) if name.generation else 0
        return replaced

    def _end_of(self, name: SegmentName) -> int:
        path = name.path(self._directory)
        stamp = read_stamp(self._files, self._directory, name)
        if stamp is not None and stamp.size_bytes == self._files.size(path):
            return stamp.end_offset
        return scan_segment(self._files.open(path), name.base_offset, self._key, self._interval_bytes).end.end_offset

    def _look_at_segment(self, name: SegmentName, next_base: int | None) -> FoundSegment:
        path = name.path(self._directory)
        if self._scan is not None:
            scan = self._scan(name)
            return FoundSegment(name, scan.end, scan.index, scan)
        # If a reader has met damage in this log, no index vouches for a segment, and recovery reads all of them.
        if marks.DAMAGED not in self._marks and (next_base is not None or not self._unclean):
            stamp = read_stamp(self._files, self._directory, name)
            fits = stamp is not None and next_base in (None, stamp.end_offset)
            if stamp is not None and fits and stamp.size_bytes == self._files.size(path):
                return FoundSegment(name, stamp)
        scan = scan_segment(self._files.open(path), name.base_offset, self._key, self._interval_bytes)
        return FoundSegment(name, scan.end, scan.index, scan)

    def _bounds(self) -> tuple[int, int]:
        """(log start, end of the valid batches). Adds damage if records are missing that the checkpoint promises."""
        first = self._found[0].name.base_offset if self._found else None
        end_offset = self._found[-1].end.end_offset if self._found else 0
        checkpoint = self._checkpoint
        if checkpoint is None:
            if self._checkpoint_is_corrupt and not self._found:
                self._damage.append("no segment is left, and the checkpoint is damaged")
            if any(segment.scan and segment.scan.surplus_bytes for segment in self._found):
                self._damage.append("the end of the log is torn, and no checkpoint shows which records it promised")
            return first or 0, end_offset
        log_start = checkpoint.log_start_offset
        if first is not None and first > log_start:
            self._damage.append(f"the log starts at {log_start}, but its first segment at {first}")
            log_start = first
        if end_offset < log_start and self._hides_records(log_start):
            self._damage.append(f"records at or above the log start {log_start} are behind damage, out of reach")
        promised = max(checkpoint.high_watermark, checkpoint.durable_end_offset)
        if max(end_offset, log_start) < promised:
            self._damage.append(
                f"the log ends at {end_offset}; its high watermark was {checkpoint.high_watermark}, "
                f"its durable end {checkpoint.durable_end_offset}"
            )
        return log_start, end_offset

    def _hides_records(self, log_start: int) -> bool:
        """Whether the last segment has records at or above the log start behind bytes that are not valid.

        Torn bytes below the log start alone are no loss: the log may have begun anew at its start."""
        last = self._found[-1] if self._found else None
        if last is None or last.scan is None or not last.scan.surplus_bytes:
            return False
        file = self._files.open(last.name.path(self._directory))
        return has_batch_above(file, last.end.size_bytes, log_start, self._key)

    def _look_at_promises(self, log_start: int, end_offset: int) -> None:
        """Add a doubt if this copy may lack records that counted as durable."""
        checkpoint = self._checkpoint
        if not self._unclean or (checkpoint is not None and checkpoint.covers_all(self._boot_id)):
            return
        if checkpoint is not None:
            self._doubt.append("it was written under flush.policy=os before the machine went down")
        elif end_offset > log_start:
            self._doubt.append("no checkpoint names the flush policy under which it was written")

    def _finding(self) -> Finding:
        if marks.DAMAGED in self._marks:
            return Finding.DAMAGED
        if marks.DOUBTFUL in self._marks:
            return Finding.DOUBTFUL
        return Finding.TORN if marks.TORN_TAIL in self._marks else Finding.WHOLE

    # changing

    def _mark(self) -> None:
        """Write the marks for the findings, durably."""
        torn = [] if self._damage or not self._surplus_bytes else ["its tail is torn"]
        for mark, reasons in ((marks.DAMAGED, self._damage), (marks.DOUBTFUL, self._doubt), (marks.TORN_TAIL, torn)):
            if reasons and mark not in self._marks:
                self._marks[mark] = "; ".join(reasons)
                marks.write_mark(self._files, self._directory, mark, self._marks[mark])

    @property
    def _surplus_bytes(self) -> int:
        """The number of bytes behind the last valid batch of the last segment."""
        last = self._found[-1].scan if self._found else None
        return 0 if last is None else last.surplus_bytes

    def _remove_temporaries(self) -> None:
        for name in self._files.list(self._directory):
            if name.endswith(TEMPORARY_SUFFIX):
                self._files.remove(self._path(name))

    def _cut(self) -> int:
        """Cut all bytes behind the last valid batch. Returns the number of cut bytes."""
        cut = 0
        for name in reversed(self._unreachable):
            path = name.path(self._directory)
            cut += self._files.size(path)
            remove_index_files(self._files, self._directory, name)
            self._files.rename(path, path + _DAMAGED_SUFFIX)
        last = self._found[-1].scan if self._found else None
        if last is not None and last.surplus_bytes:
            cut += last.surplus_bytes
            path = self._found[-1].name.path(self._directory)
            if self._damage and not self._files.exists(path + _DAMAGED_SUFFIX):
                self._keep_beside(path, last.end.size_bytes)
            else:
                file = self._files.open(path)
                file.truncate(last.end.size_bytes)
                file.fdatasync()
        return cut

    def _keep_beside(self, path: str, valid_bytes: int) -> None:
        """Replace a segment file by its valid part. The whole file stays beside it under another name."""
        source = self._files.open(path)
        copy = self._files.open(path + TEMPORARY_SUFFIX, create=True)
        for position in range(0, valid_bytes, SCAN_CHUNK_BYTES):
            chunk = source.pread(min(SCAN_CHUNK_BYTES, valid_bytes - position), position)
            copy.write([chunk], position)
        copy.fdatasync()
        self._files.rename(path, path + _DAMAGED_SUFFIX)
        self._files.rename(path + TEMPORARY_SUFFIX, path)

    def _sync(self) -> None:
        """Sync the segments that may not be on the disk yet. All of the log counts as durable from here on."""
        for number, segment in enumerate(self._found):
            if segment.scan is not None or (self._unclean and number == len(self._found) - 1):
                self._files.open(segment.name.path(self._directory)).fdatasync()
        self._files.fsync_dir(self._directory)

    def _segments(self, log_start: int) -> tuple[Segment, ...]:
        """The segments with records at or above `log_start`, but at least one segment. The other files are removed."""
        kept = [segment for segment in self._found if segment.end.end_offset > log_start]
        if not kept and self._found and self._found[-1].end.end_offset == log_start:
            kept = self._found[-1:]
        obsolete = self._obsolete + [segment.name for segment in self._found if segment not in kept]
        for name in obsolete:
            Segment(self._files, self._directory, name, interval_bytes=self._interval_bytes).remove()
        segments = [
            Segment(
                self._files,
                self._directory,
                segment.name,
                interval_bytes=self._interval_bytes,
                end=segment.end,
                index=segment.index,
            )
            for segment in kept
        ]
        if not segments:
            name = SegmentName(log_start)
            segments = [Segment(self._files, self._directory, name, interval_bytes=self._interval_bytes)]
            segments[0].create()
        self._files.fsync_dir(self._directory)
        return tuple(segments)

    def _recover_epochs(self, segments: tuple[Segment, ...], log_start: int, end_offset: int) -> EpochCache:
        stored = read_epochs(self._files, self._directory)
        epochs = stored.copy() if stored is not None else None
        if epochs is None or not all(
            epochs.agrees(scanned.scan.epoch_starts, scanned.scan.end.end_offset, log_start)
            for scanned in self._found
            if scanned.scan
        ):
            epochs = EpochCache()
            for segment in segments:
                for _, header in segment.headers(log_start):
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
        epochs.truncate_from_end(end_offset)
        epochs.truncate_from_start(log_start)
        if stored is None or stored.entries != epochs.entries:
            write_durable_file(self._files, self._path(EPOCH_FILE), epochs.encode())
        return epochs

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


def read_epochs(files: FileSystem, directory: str) -> EpochCache | None:
    """The epochs in the epoch file of the log in `directory`. None if the file is missing or wrong."""
    try:
        content = read_durable_file(files, f"{directory}/{EPOCH_FILE}")
        return None if content is None else EpochCache.decode(content)
    except (CorruptFile, ValueError):
        return None
