"""A broker's data directory: the broker that owns it, the process that has it open, and the logs in it.

    lock            a process holds it while it uses the directory; the process id is inside
    broker.json     broker id, cluster id, directory id, voters, level: compared at every start
    clean-stop      the broker epoch of a life that stopped cleanly
    broker.pid      the process id, for people and scripts; only the process with the lock writes and removes it
    <topic>-<partition>/                  a log, whose file `topic-id` names its topic
    <topic>-<partition>.<hex>-delete/     a log that was set aside

A new life reads and removes the clean-stop mark, durably, when it opens the directory. So the mark is gone before the
first append of that life, and a life that dies early counts as stopped uncleanly.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from minilog.versions import VersionRange
from minilog_broker.levels import FIRST_LEVEL, SUPPORTED_LEVELS, check_level
from minilog_broker.storage.durable_file import (
    parent,
    read_durable_file,
    remove_durable_file,
    write_durable_file,
)
from minilog_broker.storage.errors import CorruptFile, DataDirectoryError, DataDirectoryInUse
from minilog_broker.storage.files import File, FileSystem
from minilog_broker.storage.retention import LEAST_FILE_BYTES
from minilog_broker.storage.topic_id_file import FILE_NAME as TOPIC_ID_FILE
from minilog_broker.storage.topic_id_file import read_topic_id

_LOCK_FILE = "lock"
BROKER_FILE = "broker.json"
CLEAN_STOP_FILE = "clean-stop"
_PID_FILE = "broker.pid"
_SET_ASIDE = re.compile(r".+\.[0-9a-f]{16}-delete")
_PARTITION_NAME = re.compile(r".+-\d+")
_MAX_NAME_BYTES = 200  # of a name set aside, so that it stays below the 255 of a file system
_MAX_PID_BYTES = 20

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class BrokerFile:
    """The content of broker.json. `cluster_id` is empty until the broker has registered for the first time.

    `voters` are those that the broker knew last, for people and scripts that start brokers. Only the voters of the
    metadata log count. `level` is the cluster's: no file here has a form of a later level (docs/spec/levels.md).
    """

    broker_id: int
    directory_id: str
    cluster_id: str
    voters: tuple[int, ...] = ()
    level: int = FIRST_LEVEL


@dataclass(frozen=True, slots=True)
class _Level:
    """The level in broker.json. The broker reads it before the other fields, because a later level may have another
    form."""

    level: int = FIRST_LEVEL


@dataclass(frozen=True, slots=True)
class _CleanStop:
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A log in the data directory."""

    path: str
    topic_id: bytes
    topic_name: str
    partition: int


class DataDirectory:
    """An open data directory. `DataDirectory.open` makes it. The broker closes it last of all, which releases the
    lock."""

    def __init__(
        self,
        files: FileSystem,
        path: str,
        lock: File,
        broker: BrokerFile,
        *,
        boot_id: str,
        process_id: int,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._files = files
        self._random_bytes = random_bytes
        self._process_id = process_id
        self._lock = lock
        self._broker = broker
        self.path = path
        self.clean_stop_epoch: int | None = None  # the broker epoch of the former life, if it stopped cleanly
        self.boot_id = boot_id  # of the kernel; empty if it is not known

    @classmethod
    def open(
        cls,
        files: FileSystem,
        path: str,
        broker_id: int,
        cluster_id: str | None,
        *,
        boot_id: str = "",
        process_id: int | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        levels: VersionRange = SUPPORTED_LEVELS,
    ) -> DataDirectory:
        """Lock and open the directory at `path`. Make it if it is missing.

        `boot_id` is that of the kernel, empty if it is not known. Raises DataDirectoryInUse, DataDirectoryError if the
        directory belongs to another broker or cluster, UnsupportedVersion if its level is not among `levels`, OSError.
        When it raises one of the first three, it has written nothing but the lock.
        """
        files.make_dir(path)
        files.fsync_dir(parent(path))
        process_id = os.getpid() if process_id is None else process_id
        lock = _take_lock(files, path, process_id)
        try:
            _check_level(files, path, levels)
            broker = _recognize(files, path, broker_id, cluster_id or "", random_bytes)
            directory = cls(
                files, path, lock, broker, boot_id=boot_id, process_id=process_id, random_bytes=random_bytes
            )
            _write_plain(files.open(f"{path}/{_PID_FILE}", create=True), f"{process_id}\n")
            directory._begin_life()
        except BaseException:
            lock.close()
            raise
        return directory

    @property
    def broker_id(self) -> int:
        return self._broker.broker_id

    @property
    def directory_id(self) -> str:
        """The id of this directory: 32 hexadecimal digits, made once."""
        return self._broker.directory_id

    @property
    def cluster_id(self) -> str | None:
        return self._broker.cluster_id or None

    def set_cluster(self, cluster_id: str, voters: Iterable[int]) -> None:
        """Record, durably, the cluster of the directory and its voters.

        Raises DataDirectoryError if the directory belongs to another cluster."""
        _check_cluster(self.path, self._broker, cluster_id)
        self._write_broker(replace(self._broker, cluster_id=cluster_id, voters=tuple(sorted(voters))))

    def set_voters(self, voters: Iterable[int]) -> None:
        """Record, durably, the current voters. Before `set_cluster` nothing is recorded."""
        if self._broker.cluster_id:
            self._write_broker(replace(self._broker, voters=tuple(sorted(voters))))

    def set_level(self, level: int) -> None:
        """Record, durably, that the cluster is at `level`.

        The broker calls this before it writes any form of that level into the directory."""
        self._write_broker(replace(self._broker, level=level))

    def _write_broker(self, broker: BrokerFile) -> None:
        if broker != self._broker:
            _write_json(self._files, f"{self.path}/{BROKER_FILE}", broker)
            self._broker = broker

    def write_clean_stop(self, broker_epoch: int) -> None:
        """Write the clean-stop mark. It is the last write of a life, after the broker has closed every log cleanly."""
        _write_json(self._files, f"{self.path}/{CLEAN_STOP_FILE}", _CleanStop(broker_epoch))

    def partition_path(self, topic_name: str, partition: int) -> str:
        """The path of a partition's log."""
        return f"{self.path}/{topic_name}-{partition}"

    def partition_paths(self) -> list[str]:
        """The paths of all directories that have the name of a log."""
        return _log_paths(self._files, self.path)

    def partition_at(self, path: str) -> PartitionDirectory | None:
        """The log at `path`. None if a crash interrupted its creation, so that it is no log yet.

        Raises CorruptFile if its topic-id file is damaged, OSError if the file cannot be read."""
        topic = read_topic_id(self._files, path)
        if topic is None:
            return None
        return PartitionDirectory(path, bytes.fromhex(topic.topic_id), topic.topic_name, topic.partition)

    def set_aside(self, path: str) -> str:
        """Rename the directory of a closed log to `<name>.<hex>-delete`, durably. Returns its new path."""
        name = path.removeprefix(f"{self.path}/")[:_MAX_NAME_BYTES]
        aside = f"{self.path}/{name}.{self._random_bytes(8).hex()}-delete"
        self._files.rename(path, aside)
        self._files.fsync_dir(self.path)
        return aside

    def partitions_set_aside(self) -> list[str]:
        """The paths of the directories that were set aside and are not removed yet."""
        return [f"{self.path}/{name}" for name in self._files.list(self.path) if _SET_ASIDE.fullmatch(name)]

    def remove_set_aside(self, path: str, most_bytes: int) -> int | None:
        """Remove files of a directory that was set aside, until the removed files had `most_bytes`.

        A file counts as at least LEAST_FILE_BYTES. Returns the removed bytes. Returns None if no file is left: then
        the directory itself is gone, too."""
        if not _SET_ASIDE.fullmatch(path.rpartition("/")[2]):
            raise ValueError(f"{path} is not a directory that was set aside")
        removed_bytes = 0
        for name in self._files.list(path):
            if removed_bytes >= most_bytes:
                return removed_bytes
            removed_bytes += max(self._files.size(f"{path}/{name}"), LEAST_FILE_BYTES)
            self._files.remove(f"{path}/{name}")
        self._files.remove_dir(path)
        return None

    def close(self) -> None:
        """Remove the pid file if it is this process's own, and then release the lock."""
        path = f"{self.path}/{_PID_FILE}"
        with contextlib.suppress(OSError):  # the file is for people, who can check whether the process lives
            if self._files.open(path).pread(_MAX_PID_BYTES, 0) == f"{self._process_id}\n".encode():
                self._files.remove(path)
        self._lock.close()

    def _begin_life(self) -> None:
        clean_path = f"{self.path}/{CLEAN_STOP_FILE}"
        try:
            clean = _read_json(self._files, clean_path, _CleanStop)
        except CorruptFile:
            clean = None  # an unclean start is always safe
        remove_durable_file(self._files, clean_path)
        self.clean_stop_epoch = clean.broker_epoch if clean else None


def recorded_voters(files: FileSystem, path: str) -> tuple[int, ...]:
    """The voters of the directory's cluster, as the broker recorded them last. Empty for a new directory.

    Raises CorruptFile."""
    broker = _read_json(files, f"{path}/{BROKER_FILE}", BrokerFile)
    return () if broker is None else broker.voters


@dataclass(frozen=True, slots=True)
class StoppedDirectory:
    """The data directory of a stopped broker, open for reading. Its lock keeps brokers out meanwhile."""

    path: str
    lock: File | None  # None if there is no lock file: no broker has opened this directory yet
    logs: tuple[str, ...]

    def close(self) -> None:
        """Release the lock."""
        if self.lock is not None:
            self.lock.close()


def look_into(files: FileSystem, path: str, levels: VersionRange = SUPPORTED_LEVELS) -> StoppedDirectory:
    """Open the directory of a stopped broker for reading. It is locked until the caller closes it. Nothing is written.

    Raises DataDirectoryInUse, DataDirectoryError if it is not a data directory, UnsupportedVersion if its level is not
    among `levels`, OSError."""
    if not files.exists(f"{path}/{BROKER_FILE}"):
        files.list(path)  # it raises OSError if the directory cannot be read
        raise DataDirectoryError(
            f"{path} has no {BROKER_FILE}: it is not a broker's data directory. Name the one that `minilog broker` has "
            "as --data-dir"
        )
    lock = _lock(files, path, "stop that broker first") if files.exists(f"{path}/{_LOCK_FILE}") else None
    try:
        with contextlib.suppress(CorruptFile):  # the check reports it
            _check_level(files, path, levels)
        return StoppedDirectory(path, lock, tuple(_log_paths(files, path)))
    except BaseException:
        if lock is not None:
            lock.close()
        raise


def read_broker_file(files: FileSystem, path: str) -> BrokerFile | None:
    """The content of broker.json in the directory at `path`. None if there is no such file. Raises CorruptFile."""
    return _read_json(files, f"{path}/{BROKER_FILE}", BrokerFile)


def is_stopped_cleanly(files: FileSystem, path: str) -> bool:
    """Whether the directory at `path` has the clean-stop mark of the former life. Raises CorruptFile."""
    return _read_json(files, f"{path}/{CLEAN_STOP_FILE}", _CleanStop) is not None


def _log_paths(files: FileSystem, path: str) -> list[str]:
    names = files.list(path)
    return [f"{path}/{name}" for name in names if _PARTITION_NAME.fullmatch(name) and not _SET_ASIDE.fullmatch(name)]


def _lock(files: FileSystem, path: str, remedy: str) -> File:
    lock = files.lock(f"{path}/{_LOCK_FILE}")
    if lock is None:
        holder = files.open(f"{path}/{_LOCK_FILE}").pread(_MAX_PID_BYTES, 0).decode(errors="replace").strip()
        raise DataDirectoryInUse(f"the data directory {path} is in use by process {holder or 'unknown'}: {remedy}")
    return lock


def _take_lock(files: FileSystem, path: str, process_id: int) -> File:
    lock = _lock(files, path, "stop that broker, or give this one a directory of its own")
    lock.truncate(0)
    lock.write([f"{process_id}\n".encode()], 0)
    return lock


def _check_level(files: FileSystem, path: str, levels: VersionRange) -> None:
    stored = _read_json(files, f"{path}/{BROKER_FILE}", _Level)
    if stored is not None:
        check_level(stored.level, levels, f"the data directory {path}")


def _recognize(
    files: FileSystem, path: str, broker_id: int, cluster_id: str, random_bytes: Callable[[int], bytes]
) -> BrokerFile:
    """The content of broker.json. If the directory is new, write the file first.

    Raises DataDirectoryError if the file names another broker or another cluster."""
    broker_path = f"{path}/{BROKER_FILE}"
    broker = _read_json(files, broker_path, BrokerFile)
    if broker is None:
        _check_new(files, path)
        broker = BrokerFile(broker_id, random_bytes(16).hex(), cluster_id)
        _write_json(files, broker_path, broker)
    if broker.broker_id != broker_id:
        raise DataDirectoryError(
            f"the data directory {path} belongs to broker {broker.broker_id}, and this is broker {broker_id}: give "
            f"each broker a directory of its own"
        )
    if cluster_id:
        _check_cluster(path, broker, cluster_id)
    return broker


def _check_new(files: FileSystem, path: str) -> None:
    """Raise DataDirectoryError if the directory has logs.

    A broker writes broker.json before any log. So if there are logs without it, no file names their broker."""
    names = (name for name in files.list(path) if _PARTITION_NAME.fullmatch(name))
    logs = [name for name in names if files.exists(f"{path}/{name}/{TOPIC_ID_FILE}")]
    if logs:
        raise DataDirectoryError(
            f"the data directory {path} has {len(logs)} logs, {logs[0]} among them, but no {BROKER_FILE}, which names "
            f"their broker. Restore that file. Or set the directory aside and start with an empty one: the broker then "
            f"fetches its data again (replace a voter with `minilog cluster replace-voter`)"
        )


def _check_cluster(path: str, broker: BrokerFile, cluster_id: str) -> None:
    if broker.cluster_id and broker.cluster_id != cluster_id:
        raise DataDirectoryError(
            f"the data directory {path} belongs to cluster {broker.cluster_id}, and this broker joins cluster "
            f"{cluster_id}: name another directory, or the brokers of that cluster"
        )


def _write_plain(file: File, text: str) -> None:
    file.truncate(0)
    file.write([text.encode()], 0)
    file.close()


def _write_json(files: FileSystem, path: str, content: BrokerFile | _CleanStop) -> None:
    write_durable_file(files, path, msgspec.json.encode(content))


def _read_json(files: FileSystem, path: str, kind: type[_T]) -> _T | None:
    content = read_durable_file(files, path)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise CorruptFile(f"{path} lacks a field, or has a wrong one: {error}") from error
