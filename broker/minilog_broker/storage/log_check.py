"""The check of one log of a stopped broker: every checksum of every file, and whether the files fit each other.

The check uses recovery's look (`Recovery.look`). So a torn tail, doubt and damage are here the same as at the next
start. But a start trusts the index of most segments. The check reads each segment, a chunk at a time. It compares the
index of a segment right after its batches, and then drops it. So memory holds the index of one segment only.

The check writes only index files that are missing or wrong, and these only if `Setting.repair` is given.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from minilog.errors import CorruptMessage, UnsupportedVersion
from minilog.partition_key import PartitionKey
from minilog_broker.storage import checkpoint, manifest, marks, topic_id_file
from minilog_broker.storage.batch_scan import BatchScan, scan_segment
from minilog_broker.storage.check_findings import CheckFinding, CheckVerdict, unreadable
from minilog_broker.storage.durable_file import read_durable_file
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import File, FileSystem
from minilog_broker.storage.index import (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    IndexState,
    SegmentEnd,
    SparseIndex,
    index_state,
    write_index_files,
)
from minilog_broker.storage.producer_snapshots import snapshot_offsets
from minilog_broker.storage.producer_state import restored
from minilog_broker.storage.recovery import EPOCH_FILE, Recovery, RecoveryLook, read_epochs
from minilog_broker.storage.segment_name import LOG_SUFFIX, SegmentName, segment_names
from minilog_broker.storage.settings import LogSettings
from minilog_broker.storage.snapshot_files import SnapshotFiles
from minilog_broker.storage.snapshot_id import SnapshotId, snapshot_name

_NOTHING = "nothing to do: the next start makes it again"
_INDEX_REMEDY = (
    "nothing to do: the broker makes it again when it needs it. `minilog check --repair-indexes` does so now"
)
_START = "start the broker"


@dataclass(frozen=True, slots=True)
class Setting:
    """The facts and functions that a check of logs needs.

    `unclean`: no mark says that the broker stopped cleanly. The check calls `read` with the number of bytes of segments
    that it has read. `check_image` raises CorruptMessage for a wrong snapshot of the metadata image, and
    UnsupportedVersion for one of a later version. `remedy` is the remedy for a damaged copy of the metadata log."""

    unclean: bool
    boot_id: str
    settings: LogSettings
    read: Callable[[int], None]
    check_image: Callable[[bytes, SnapshotId], None]
    remedy: str
    repair: FileSystem | None = None


class LogCheck:
    """One check of the log in `directory`. After `run`, `segments` and `batch_bytes` are the amounts that were read."""

    def __init__(self, files: FileSystem, directory: str, setting: Setting, *, is_metadata: bool) -> None:
        self._files = files
        self._directory = directory
        self._setting = setting
        self._is_metadata = is_metadata
        self._findings: list[CheckFinding] = []
        self._key: PartitionKey | None = None
        self._last: SegmentName | None = None
        self._reading = ""  # the file that a later version may have written
        self.segments = 0
        self.batch_bytes = 0

    def run(self) -> list[CheckFinding]:
        """Check the log. Returns its faults. Raises nothing: a file that cannot be read is a finding."""
        try:
            self._key = self._read_key()
            if self._key is not None:
                self._look_at_marks()
                self._look_at_log(self._key)
        except UnsupportedVersion as error:
            remedy = "check it with the version that wrote it"
            self._find(self._reading, CheckVerdict.NOT_CHECKED, f"{error}. The rest of the log was not read", remedy)
        except OSError as error:
            self._findings.append(unreadable(error, self._directory))
        return self._findings

    # one file at a time

    def _read_key(self) -> PartitionKey | None:
        """The partition of the log. None if no file names it, or if there is no log yet."""
        name = topic_id_file.FILE_NAME
        try:
            owner = topic_id_file.read_topic_id(self._files, self._directory)
        except CorruptFile:
            what = "its checksum is wrong, or it names no topic: the log's partition is unknown, and it was not read"
            self._find(name, CheckVerdict.DAMAGED, what, self._remedy)
            return None
        if owner is not None:
            return PartitionKey(bytes.fromhex(owner.topic_id), owner.partition)
        if any(file_name.endswith(LOG_SUFFIX) for file_name in self._files.list(self._directory)):
            what = "it is missing: the log's partition is unknown, and the log was not read"
            self._find(name, CheckVerdict.DAMAGED, what, self._remedy)
        return None

    def _look_at_marks(self) -> None:
        for mark, verdict in (
            (marks.DAMAGED, CheckVerdict.DAMAGED),
            (marks.DOUBTFUL, CheckVerdict.DOUBTFUL),
            (marks.TORN_TAIL, CheckVerdict.TORN_TAIL),
        ):
            reason = marks.read_mark(self._files, self._directory, mark)
            if reason is not None:
                wrong = " (the checksum of the mark itself is wrong)" if self._problem(mark) else ""
                remedy = f"{_START}: the broker acts on the mark, and removes it when the copy is whole again"
                self._find(mark, verdict, f"a broker has marked this copy: {reason}{wrong}", remedy)

    def _look_at_checkpoint(self, looked: RecoveryLook) -> None:
        name = checkpoint.FILE_NAME
        if looked.checkpoint is None and self._files.exists(self._path(name)):
            what = "its checksum is wrong, or it is not a checkpoint: nothing shows which records this copy promised"
            self._find(name, CheckVerdict.DAMAGED, what, self._remedy)
        elif looked.checkpoint is None and looked.end_offset > looked.log_start and not self._setting.unclean:
            what = "it is missing after a clean stop, which writes it: nothing shows which records this copy promised"
            self._find(name, CheckVerdict.DAMAGED, what, self._remedy)
        for doubt in looked.doubt:
            remedy = f"{_START}: the controller asks other replicas first"
            self._find(name, CheckVerdict.DOUBTFUL, f"{doubt}: unsynced records may be missing", remedy)

    def _look_at_manifest(self, looked: RecoveryLook) -> None:
        name = manifest.FILE_NAME
        try:
            manifest.read_manifest(self._files, self._directory)
        except CorruptFile:
            self._find(name, CheckVerdict.CACHE, "its checksum is wrong, or it is not a manifest", _NOTHING)
            return
        except UnsupportedVersion:
            if looked.checkpoint is not None and looked.checkpoint.has_manifest:
                raise
        if looked.manifest is None:
            if looked.checkpoint is not None and looked.checkpoint.has_manifest and len(looked.segments) > 1:
                self._find(name, CheckVerdict.CACHE, "it is missing", _NOTHING)
            return
        ends = {listed.name: listed.end for listed in looked.manifest}
        for segment in looked.segments:
            end = ends.get(segment.name)
            if end is not None and end != segment.end and not (segment.scan and segment.scan.problem):
                what = f"it names another end of segment {segment.name} than the batches have"
                self._find(name, CheckVerdict.CACHE, what, _NOTHING)

    def _look_at_epochs(self, looked: RecoveryLook) -> None:
        if not looked.segments:
            return
        epochs = read_epochs(self._files, self._directory)
        if epochs is None:
            there = self._files.exists(self._path(EPOCH_FILE))
            what = "its checksum is wrong, or it is not a list of epochs" if there else "it is missing"
            self._find(EPOCH_FILE, CheckVerdict.CACHE, what, _NOTHING)
        elif not all(
            epochs.agrees(segment.scan.epoch_starts, segment.scan.end.end_offset, looked.log_start)
            for segment in looked.segments
            if segment.scan
        ):
            self._find(EPOCH_FILE, CheckVerdict.CACHE, "its epochs are not those of the batches", _NOTHING)

    def _look_at_producers(self, looked: RecoveryLook) -> None:
        """Check the producer snapshots. A wrong one is a cache if another one, or all records, give the state."""
        offsets = snapshot_offsets(self._files, self._directory)
        wrong = {offset: what for offset in offsets if (what := self._problem(_producers(offset), _restore))}
        replaced = looked.log_start == 0 or any(offset >= looked.log_start for offset in offsets if offset not in wrong)
        for offset, what in wrong.items():
            if replaced:
                remedy = "nothing to do: the next start takes the producer state from the other files"
                self._find(_producers(offset), CheckVerdict.CACHE, what, remedy)
            else:
                more = "no other file has the state of producers whose records were deleted"
                self._find(_producers(offset), CheckVerdict.DAMAGED, f"{what}; {more}", self._remedy)

    def _look_at_images(self, looked: RecoveryLook) -> None:
        images = SnapshotFiles(self._files, self._directory).list()
        if self._is_metadata and looked.log_start > 0 and not images:
            what = f"the log starts at {looked.log_start}, but the snapshot of the entries before that is missing"
            self._find("", CheckVerdict.DAMAGED, what, self._remedy)
        for snapshot_id in images:
            name = snapshot_name(snapshot_id)
            self._reading = name
            try:
                self._setting.check_image(SnapshotFiles(self._files, self._directory).read(snapshot_id), snapshot_id)
            except CorruptMessage as error:
                self._find(name, CheckVerdict.DAMAGED, str(error), self._remedy)

    # segments

    def _look_at_log(self, key: PartitionKey) -> None:
        self._last = max(segment_names(self._files.list(self._directory)), default=None)
        scanned = Recovery(
            self._files,
            self._directory,
            key,
            self._setting.settings,
            unclean=self._setting.unclean,
            boot_id=self._setting.boot_id,
            scan=self._scan,
        )
        self._reading = manifest.FILE_NAME
        looked = scanned.look()
        self._judge(looked)
        for look in (
            self._look_at_checkpoint,
            self._look_at_manifest,
            self._look_at_epochs,
            self._look_at_producers,
            self._look_at_images,
        ):
            look(looked)
        for name in looked.unreachable:
            if problem := self._scan(name).problem:
                self._find(name.file(), CheckVerdict.DAMAGED, problem, self._remedy)

    def _judge(self, looked: RecoveryLook) -> None:
        """Add the findings that recovery would have on the batches."""
        path, reasons = "", list(looked.damage)
        for segment in looked.segments:
            if segment.scan is not None and segment.scan.problem is not None:
                problem, path = segment.scan.problem, segment.name.file()
                reasons = [problem, *(reason for reason in reasons if problem not in reason)]
                if not looked.damage:
                    remedy = (
                        f"nothing here tells whether the {segment.scan.surplus_bytes} bytes are an unfinished write or "
                        f"acknowledged records: {self._tail_remedy}"
                    )
                    self._find(path, CheckVerdict.TORN_TAIL, problem, remedy)
        if looked.damage:
            self._find(path, CheckVerdict.DAMAGED, "; ".join(reasons), self._remedy)

    def _scan(self, name: SegmentName) -> BatchScan:
        assert self._key is not None
        self._reading = name.file()
        file = _Watched(self._files.open(name.path(self._directory)), self._setting.read)
        interval_bytes = self._setting.settings.index_interval_bytes
        try:
            scan = scan_segment(file, name.base_offset, self._key, interval_bytes)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            scan = BatchScan(SegmentEnd(name.base_offset, 0), SparseIndex(), file.size(), "the disk cannot read it")
        finally:
            file.end()
        self.segments += 1
        self.batch_bytes += scan.file_bytes
        if scan.problem is None:
            self._look_at_index(name, scan)
        scan.index = SparseIndex()
        return scan

    def _look_at_index(self, segment: SegmentName, scan: BatchScan) -> None:
        # The index of the active segment is in memory. Its file is missing, or it is an old one of a former life.
        unfinished = self._setting.unclean and segment == self._last
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            state = index_state(self._files, self._directory, segment, scan.end, scan.index, suffix)
            if state is IndexState.RIGHT or (unfinished and state is not IndexState.WRONG):
                continue
            remedy = self._repair(segment, scan, suffix)
            self._find(
                segment.file(suffix),
                CheckVerdict.CACHE,
                f"it {state.value}",
                remedy or "the check has written it again",
                repaired=not remedy,
            )

    def _repair(self, segment: SegmentName, scan: BatchScan, suffix: str) -> str:
        """Repair an index file. Returns the remedy for the operator, empty if the check has written the file."""
        if self._setting.repair is None:
            return _INDEX_REMEDY
        try:
            write_index_files(self._setting.repair, self._directory, segment, scan.end, scan.index, only=(suffix,))
        except OSError as error:
            return f"the check could not write it again ({error.strerror or error}). There is {_NOTHING}"
        return ""

    # inside

    def _problem(self, name: str, check: Callable[[bytes], object] = bytes) -> str | None:
        """The fault of a durable file: a wrong checksum, or an error of `check`. None if it is sound or missing."""
        try:
            content = read_durable_file(self._files, self._path(name))
            if content is not None:
                check(content)
        except CorruptFile as error:
            return str(error).removeprefix(f"{self._path(name)} is damaged: ")
        return None

    @property
    def _tail_remedy(self) -> str:
        if self._is_metadata:
            return (
                f"{_START}: it cuts them, and takes the entries of the other voters. Where it is the only voter, copy "
                "the directory before"
            )
        return (
            f"{_START}: it cuts them, and another copy leads if it has more. Where this is the only copy, copy the "
            "directory before: what is cut is gone"
        )

    @property
    def _remedy(self) -> str:
        if self._is_metadata:
            return self._setting.remedy
        return (
            f"set {self._directory} aside while the broker is stopped, and start the broker: it fetches the records "
            "again from the other replicas. If no other replica is in sync, restore a backup"
        )

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}" if name else self._directory

    def _find(self, name: str, verdict: CheckVerdict, what: str, remedy: str, *, repaired: bool = False) -> None:
        self._findings.append(CheckFinding(self._path(name), verdict, what, remedy, repaired))


class _Watched:
    """A file that reports how far it was read."""

    def __init__(self, file: File, read: Callable[[int], None]) -> None:
        self._file = file
        self._read = read
        self._seen = 0
        self._size = file.size()

    def size(self) -> int:
        return self._size

    def pread(self, size_bytes: int, position: int) -> bytes:
        content = self._file.pread(size_bytes, position)
        self._advance(position + len(content))
        return content

    def end(self) -> None:
        """Close the file, and report the whole of it as read, even if the check has not read all of it."""
        self._advance(self._size)
        self._file.close()

    def _advance(self, position: int) -> None:
        if position > self._seen:
            self._read(position - self._seen)
            self._seen = position


def _producers(offset: int) -> str:
    return f"{offset:020d}.snapshot"


def _restore(content: bytes) -> object:
    return restored(content)
