"""The data logs of one broker on disk: found, made, set aside. All of it runs on the data disk thread or, at the start
and the end of the process, before and after it.

A log that cannot be read concerns only its replica, which is offline until the next start. The other replicas serve.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from minilog.errors import CorruptMessage, StorageError
from minilog.partition_key import PartitionKey
from minilog_broker.quorum.records import METADATA_KEY
from minilog_broker.replication.partition_state import PartitionState, TopicConfig
from minilog_broker.replication.replica_effects import OpenLog
from minilog_broker.storage.checkpoint import read_checkpoint
from minilog_broker.storage.data_directory import DataDirectory, PartitionDirectory
from minilog_broker.storage.errors import CorruptFile, DataDirectoryError
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.producer_state import ProducerState, recover_producer_state
from minilog_broker.storage.recovery import Finding, mark_damaged
from minilog_broker.storage.reserve import Reserve
from minilog_broker.storage.settings import NO_BOUND, LogSettings
from minilog_broker.storage.topic_id_file import read_topic_id

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log that existed at the start of this life."""

    key: PartitionKey
    log: Log
    producer_state: ProducerState


@dataclass(frozen=True, slots=True)
class UnreadableLog:
    """A log that existed at the start of this life and could not be opened."""

    key: PartitionKey
    path: str
    reason: str


def log_settings(config: TopicConfig) -> LogSettings:
    """The part of a topic's configuration for its logs.

    Without the policy `delete` retention removes nothing. The log of a compacted topic begins a new segment at least
    every max.compaction.lag.ms, because the cleaner does not read the active segment (Kafka has the same rule)."""
    is_bounded = config.is_deleted_by_retention
    return LogSettings(
        segment_bytes=config.segment_bytes,
        segment_ms=min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms,
        flush_on_append=config.flush_on_append,
        retention_ms=config.retention_ms if is_bounded else NO_BOUND,
        retention_bytes=config.retention_bytes if is_bounded else NO_BOUND,
    )


class LogDirectory:
    """All data logs of one broker, on disk.

    `logs` holds every open data log by key. `delete_delay_s` may be replaced.
    """

    def __init__(
        self,
        files: FileSystem,
        directory: DataDirectory,
        delete_delay_ms: int,
        reserve: Reserve | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic_s = monotonic_s
        self.logs: dict[PartitionKey, Log] = {}
        self.unreadable: dict[PartitionKey, UnreadableLog] = {}
        self._nameless: dict[str, str] = {}  # paths of logs with an unknown partition, and the reasons
        self._files = files
        self._directory = directory
        self._reserve = reserve
        self.delete_delay_s = delete_delay_ms / 1000.0
        self._torn: list[PartitionKey] = []
        now_s = self._monotonic_s()
        self._set_aside = dict.fromkeys(directory.partitions_set_aside(), now_s)

    def recover(self) -> list[FoundLog]:
        """Open every data log that can be read, but not the metadata log, which is the quorum's.

        The configurations of topics are not known yet. Each log keeps its former flush policy until ConfigureLog.
        """
        logs = []
        for path in self._directory.partition_paths():
            try:
                partition = self._directory.partition_at(path)
            except (OSError, StorageError) as error:
                self._nameless[path] = str(error)
                logger.error(
                    "the broker cannot read the partition of a log: its replica will be offline",
                    log=path,
                    error=str(error),
                )
                continue
            if partition is None or (key := PartitionKey(partition.topic_id, partition.partition)) == METADATA_KEY:
                continue
            try:
                logs.append(self._recover_one(partition, key))
            except (OSError, StorageError, CorruptMessage, DataDirectoryError) as error:
                self.unreadable[key] = UnreadableLog(key, path, str(error))
                logger.error(
                    "the broker cannot read a log: its replica is offline until the disk is repaired and the broker "
                    "restarts. The other replicas serve",
                    log=path,
                    error=str(error),
                )
        return logs

    def name_unreadable(self, replicas: Iterable[PartitionState]) -> None:
        """Assign logs with an unknown partition to replicas by their directories' names: such a log exists and cannot
        be read, which is not the same as no log."""
        for state in replicas:
            path = self._directory.partition_path(state.topic_name, state.key.partition)
            if path in self._nameless:
                self.unreadable[state.key] = UnreadableLog(state.key, path, self._nameless.pop(path))

    def _recover_one(self, directory: PartitionDirectory, key: PartitionKey) -> FoundLog:
        unclean, settings = self._directory.clean_stop_epoch is None, self._former_settings(directory.path)
        log: Log | None = None
        try:
            log = self._open(directory.path, key, directory.topic_name, settings, unclean=unclean)
            producer_state = recover_producer_state(log)
        except CorruptMessage as error:  # damage in a segment with a sound index: read the whole log, and cut it
            mark_damaged(self._files, directory.path, str(error))
            if log is not None:
                log.close(clean=False)
            log = self._open(directory.path, key, directory.topic_name, settings, unclean=True)
            producer_state = recover_producer_state(log)
        self.logs[key] = log
        if log.has_torn_tail:
            self._torn.append(key)
        if log.recovery.damaged:
            logger.error(
                "a replica is damaged: the broker will fetch it again", log=directory.path, reason=log.recovery.reason
            )
        elif log.recovery.finding is not Finding.WHOLE:
            logger.warning(
                "a replica lost the end of its log that was not synced: the controller asks other replicas first",
                log=directory.path,
                finding=log.recovery.finding.value,
                reason=log.recovery.reason,
            )
        return FoundLog(key, log, producer_state)

    def _open(
        self, path: str, key: PartitionKey, name: str, settings: LogSettings, *, unclean: bool, create: bool = False
    ) -> Log:
        boot_id = self._directory.boot_id
        return Log.open(self._files, path, key, name, settings, unclean=unclean, create=create, boot_id=boot_id)

    def paths(self) -> dict[PartitionKey, str]:
        """The paths of all logs, also of those that could not be opened."""
        return {key: log.directory for key, log in list(self.logs.items())} | {
            key: log.path for key, log in list(self.unreadable.items())
        }

    def torn(self) -> list[tuple[PartitionKey, Log]]:
        """Logs whose tail was cut at a start, and that no other copy has confirmed since."""
        return [(key, log) for key in self._torn if (log := self.logs.get(key)) is not None and log.has_torn_tail]

    def _former_settings(self, path: str) -> LogSettings:
        try:
            checkpoint = read_checkpoint(self._files, path)
        except CorruptFile:  # recovery reports it
            checkpoint = None
        return LogSettings(flush_on_append=checkpoint.flush_on_append if checkpoint else True)

    def mark_damaged(self, key: PartitionKey, reason: str) -> None:
        """Record for the next start that a batch of this log is damaged. The broker writes no more to the log."""
        log = self.logs[key]
        mark_damaged(self._files, log.directory, reason)
        log.failed = log.failed or OSError(errno.EIO, reason)

    def recover_damaged(
        self, key: PartitionKey, settings: LogSettings, differs_from: int | None = None
    ) -> tuple[Log, ProducerState]:
        """Open a log that was marked as damaged: read all of it, and keep the part from the damage on aside. From
        `differs_from` on its records differ from those of most copies, and are cut."""
        former = self.logs[key]
        former.close(clean=False)
        log = self._open(former.directory, key, former.topic_name, settings, unclean=True)
        self.logs[key] = log
        if differs_from is not None:
            log.truncate_to(differs_from)
        logger.error("a replica is damaged: the broker fetches it again", log=log.directory, reason=log.recovery.reason)
        return log, recover_producer_state(log)

    def create(self, effect: OpenLog) -> Log:
        """Make the log of a new replica. A directory of an older topic of that name is set aside first."""
        path, key = self._directory.partition_path(effect.topic_name, effect.key.partition), effect.key
        stray = read_topic_id(self._files, path) if self._files.exists(path) else None
        if stray is not None and bytes.fromhex(stray.topic_id) != key.topic_id:
            self.delete(PartitionKey(bytes.fromhex(stray.topic_id), stray.partition))
        try:
            log = self._open(
                path, key, effect.topic_name, log_settings(effect.config), unclean=stray is not None, create=True
            )
        except DataDirectoryError as error:
            raise StorageError(str(error)) from error
        self.logs[effect.key] = log
        return log

    def delete(self, key: PartitionKey) -> None:
        """Close the log and set its directory aside; `purge` removes it when delete.delay.ms is over."""
        log, unreadable = self.logs.pop(key, None), self.unreadable.pop(key, None)
        if log is not None:
            log.close(clean=False)
            self._set_aside[self._directory.set_aside(log.directory)] = self._monotonic_s()
        elif unreadable is not None:
            self._set_aside[self._directory.set_aside(unreadable.path)] = self._monotonic_s()

    def purge(self, most_bytes: int) -> int | None:
        """Remove a log that was set aside long enough ago, or `most_bytes` of its files. Gives the removed bytes, None
        where there is no such log."""
        now_s = self._monotonic_s()
        due = (path for path, since_s in self._set_aside.items() if now_s - since_s >= self.delete_delay_s)
        path = next(due, None)
        if path is None:
            return None
        removed_bytes = None
        try:
            removed_bytes = self._directory.remove_set_aside(path, most_bytes)
        except OSError as error:  # logged once in a life: the obstacle stays until an operator looks
            logger.error(
                "the broker could not remove a log that was set aside: remove it by hand", log=path, error=str(error)
            )
        if removed_bytes is None:
            del self._set_aside[path]
        return removed_bytes or 0

    def write_checkpoints(self, keys: Iterable[PartitionKey]) -> None:
        """Record the high watermarks of these logs. A log with an error here has failed: its next append reports that
        to its replica."""
        for key in keys:
            log = self.logs.get(key)
            if log is None:
                continue
            try:
                if self._reserve is None:
                    log.write_checkpoint()
                else:
                    self._reserve.write_metadata(log.write_checkpoint)
            except OSError as error:
                logger.error(
                    "the broker could not write a checkpoint",
                    topic=key.topic_id.hex(),
                    partition=key.partition,
                    error=str(error),
                )

    def close(self) -> bool:
        """Close all logs cleanly. True where every one was closed so. One that could not be read was not."""
        clean = not self.unreadable
        for log in self.logs.values():
            try:
                log.close(clean=True)
            except OSError as error:
                logger.error("the broker could not close a log cleanly", log=log.directory, error=str(error))
                clean = False
        self.logs.clear()
        return clean
