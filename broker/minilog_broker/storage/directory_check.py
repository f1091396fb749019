"""The check of a stopped broker's data directory (`minilog check`): every file of it that has a checksum.

The check leaves out files that only a running broker needs, files that no broker reads (`lock`, `broker.pid`,
`reserve`, `*.tmp`, `*.log.damaged`), and logs that were set aside to be removed. check_findings.py has the findings,
and log_check.py checks one log. Only the layers above storage know the form of a vote and of a metadata image. They
pass that knowledge as `DirectoryFacts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from minilog_broker.storage.check_findings import CheckFinding, CheckVerdict, Counts, Report, unreadable
from minilog_broker.storage.data_directory import (
    BROKER_FILE,
    CLEAN_STOP_FILE,
    BrokerFile,
    StoppedDirectory,
    is_stopped_cleanly,
    read_broker_file,
)
from minilog_broker.storage.durable_file import read_durable_file
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.log_check import LogCheck, Setting
from minilog_broker.storage.segment_name import LOG_SUFFIX
from minilog_broker.storage.settings import LogSettings
from minilog_broker.storage.snapshot_id import SnapshotId


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """Facts that storage does not know by itself: the names of the metadata log and of the vote file, and two checks.

    `check_vote` raises ValueError for a wrong vote. `check_image` raises CorruptMessage for a wrong snapshot of the
    image, and UnsupportedVersion for one of a later version."""

    metadata_log: str
    vote_file: str
    check_vote: Callable[[bytes], object]
    check_image: Callable[[bytes, SnapshotId], None]


def segment_bytes(files: FileSystem, directory: StoppedDirectory) -> int:
    """About how many bytes a check of the directory will read. Raises OSError."""
    return sum(
        files.size(f"{path}/{name}")
        for path in directory.logs
        for name in files.list(path)
        if name.endswith(LOG_SUFFIX)
    )


class DirectoryCheck:
    """One check of a directory. It writes index files with `repair`. If `repair` is None, it writes nothing.

    The check calls `read` with the number of bytes after each read of a segment."""

    def __init__(
        self,
        files: FileSystem,
        directory: StoppedDirectory,
        upper_layers: DirectoryFacts,
        *,
        boot_id: str = "",
        settings: LogSettings | None = None,
        repair: FileSystem | None = None,
        read: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._upper_layers = upper_layers
        self._boot_id = boot_id
        self._settings = settings or LogSettings()
        self._repair = repair
        self._read = read
        self._findings: list[CheckFinding] = []
        self._remedy = _remedy(None)

    def run(self) -> Report:
        """Check the whole directory. A fault is a finding in the report, and not an exception."""
        broker = self._look_at_broker()
        self._remedy = _remedy(broker)
        unclean = not self._look_at_stop()
        if broker is None or broker.cluster_id:
            self._look_at_quorum()
        setting = Setting(
            unclean=unclean,
            boot_id=self._boot_id,
            settings=self._settings,
            read=self._read,
            check_image=self._upper_layers.check_image,
            remedy=self._remedy,
            repair=self._repair,
        )
        segments = batch_bytes = 0
        for path in self._directory.logs:
            is_metadata = path == self._path(self._upper_layers.metadata_log)
            log = LogCheck(self._files, path, setting, is_metadata=is_metadata)
            self._findings += log.run()
            segments, batch_bytes = segments + log.segments, batch_bytes + log.batch_bytes
        counts = Counts(len(self._directory.logs), segments, batch_bytes)
        if broker is None:
            return Report(None, None, counts, tuple(self._findings))
        return Report(broker.broker_id, broker.cluster_id or None, counts, tuple(self._findings))

    def _look_at_broker(self) -> BrokerFile | None:
        try:
            return read_broker_file(self._files, self._directory.path)
        except CorruptFile:
            what = "its checksum is wrong, or it does not name the directory's broker"
            remedy = "restore the file as it was; else " + _remedy(None)
            self._find(BROKER_FILE, CheckVerdict.DAMAGED, what, remedy)
        except OSError as error:
            self._findings.append(unreadable(error, self._path(BROKER_FILE)))
        return None

    def _look_at_stop(self) -> bool:
        """Whether the broker stopped cleanly."""
        try:
            return is_stopped_cleanly(self._files, self._directory.path)
        except CorruptFile:
            what = "its checksum is wrong, or it names no broker epoch"
            remedy = "nothing to do: the next start does without it, and reads the last segment of each log"
            self._find(CLEAN_STOP_FILE, CheckVerdict.CACHE, what, remedy)
        except OSError as error:
            self._findings.append(unreadable(error, self._path(CLEAN_STOP_FILE)))
        return False

    def _look_at_quorum(self) -> None:
        """Check the vote file, and the presence of the metadata log, of a broker that belongs to a cluster."""
        name = self._upper_layers.vote_file
        try:
            vote = read_durable_file(self._files, self._path(name))
            if vote is None:
                what = "it is missing: this broker may have voted, and would vote twice"
                self._find(name, CheckVerdict.DAMAGED, what, f"restore the file as it was last; else {self._remedy}")
            else:
                self._upper_layers.check_vote(vote)
        except (CorruptFile, msgspec.DecodeError):
            self._find(name, CheckVerdict.DAMAGED, "its checksum is wrong, or it is not a vote", self._remedy)
        except OSError as error:
            self._findings.append(unreadable(error, self._path(name)))
        if self._path(self._upper_layers.metadata_log) not in self._directory.logs:
            self._find(
                self._upper_layers.metadata_log, CheckVerdict.DAMAGED, "the metadata log is missing", self._remedy
            )

    def _path(self, name: str) -> str:
        return f"{self._directory.path}/{name}"

    def _find(self, name: str, verdict: CheckVerdict, what: str, remedy: str) -> None:
        self._findings.append(CheckFinding(self._path(name), verdict, what, remedy))


def _remedy(broker: BrokerFile | None) -> str:
    """The remedy for a broker that cannot go on with its directory."""
    broker_id = "ID" if broker is None else broker.broker_id
    return (
        "set the data directory aside and start with an empty one: the broker then fetches its data again (replace a "
        f"voter with `minilog cluster replace-voter {broker_id}`)"
    )
