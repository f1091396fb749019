"""The data logs of one broker on disk: found, made, set aside. Everything here runs on the data disk thread or, at the
start and the end of the process, before and after it.
"""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass

import structlog

from minilog.errors import CorruptMessage
from minilog_broker.quorum.records import METADATA_KEY
from minilog_broker.replication.effects import OpenLog
from minilog_broker.replication.state import PartitionKey, TopicConfig
from minilog_broker.storage.checkpoint import read_checkpoint
from minilog_broker.storage.data_directory import DataDirectory, PartitionDirectory
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.producer_state import ProducerState, recover_producer_state
from minilog_broker.storage.recovery import mark_damaged
from minilog_broker.storage.reserve import Reserve
from minilog_broker.storage.settings import LogSettings
from minilog_broker.storage.topic_id_file import read_topic_id

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log that was there at the start of this life."""

    key: PartitionKey
    log: Log
    producer_state: ProducerState


def log_settings(config: TopicConfig) -> LogSettings:
    """What a log needs of its topic's configuration."""
    return LogSettings(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        flush_on_append=config.flush_on_append,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
    )


class LogDirectory:
    """See the module's text. `logs` holds every open data log by key."""

    def __init__(
        self, files: FileSystem, directory: DataDirectory, delete_delay_ms: int, reserve: Reserve | None = None
    ) -> None:
        self.logs: dict[PartitionKey, Log] = {}
        self._files = files
        self._directory = directory
        self._reserve = reserve
        self._delete_delay_s = delete_delay_ms / 1000.0
        now_s = time.monotonic()
        self._set_aside = dict.fromkeys(directory.partitions_set_aside(), now_s)

    def recover(self) -> list[FoundLog]:
        """Open every data log that is there. The metadata log is the quorum's, and left out.

        Of its topic nothing is known yet: each keeps the flush policy it was under until ConfigureLog."""
        unclean = self._directory.clean_stop_epoch is None
        found = []
        for each in self._directory.partitions():
            key = PartitionKey(each.topic_id, each.partition)
            if key == METADATA_KEY:
                continue
            log, producer_state = self._recover_one(each, key, unclean=unclean)
            self.logs[key] = log
            if log.recovery.damaged:
                logger.error(
                    "a replica is damaged: it will be fetched again", log=each.path, reason=log.recovery.reason
                )
            found.append(FoundLog(key, log, producer_state))
        return found

    def _recover_one(self, each: PartitionDirectory, key: PartitionKey, *, unclean: bool) -> tuple[Log, ProducerState]:
        settings = self._former_settings(each.path)
        log = Log.open(self._files, each.path, key, each.topic_name, settings, unclean=unclean, create=False)
        try:
            return log, recover_producer_state(log)
        except CorruptMessage as error:  # rot in a segment that its index vouched for: read and cut all of it
            mark_damaged(self._files, each.path, str(error))
            log.close(clean=False)
        log = Log.open(self._files, each.path, key, each.topic_name, settings, unclean=True, create=False)
        return log, recover_producer_state(log)

    def _former_settings(self, path: str) -> LogSettings:
        try:
            checkpoint = read_checkpoint(self._files, path)
        except CorruptFile:  # recovery tells of it
            checkpoint = None
        return LogSettings(flush_on_append=checkpoint.flush_on_append if checkpoint else True)

    def mark_damaged(self, key: PartitionKey, reason: str) -> None:
        """A batch of this log was found damaged: recorded for the next start; nothing is written to it any more."""
        log = self.logs[key]
        mark_damaged(self._files, log.directory, reason)
        log.failed = log.failed or OSError(errno.EIO, reason)

    def recover_damaged(self, key: PartitionKey, settings: LogSettings) -> tuple[Log, ProducerState]:
        """A log that was marked as damaged: all of it is read, and what stands from the damage on is kept aside."""
        former = self.logs[key]
        former.close(clean=False)
        log = Log.open(self._files, former.directory, key, former.topic_name, settings, unclean=True, create=False)
        self.logs[key] = log
        logger.error("a replica is damaged: it is fetched again", log=log.directory, reason=log.recovery.reason)
        return log, recover_producer_state(log)

    def create(self, effect: OpenLog) -> Log:
        """The log of a new replica. A directory of an older topic of that name is set aside first."""
        path = self._directory.partition_path(effect.topic_name, effect.key.partition)
        stray = read_topic_id(self._files, path) if self._files.exists(path) else None
        if stray is not None and bytes.fromhex(stray.topic_id) != effect.key.topic_id:
            self.delete(PartitionKey(bytes.fromhex(stray.topic_id), stray.partition))
        log = Log.open(
            self._files, path, effect.key, effect.topic_name, log_settings(effect.config), unclean=False, create=True
        )
        self.logs[effect.key] = log
        return log

    def delete(self, key: PartitionKey) -> None:
        """Close the log and set its directory aside; `purge` removes it when delete.delay.ms is over."""
        log = self.logs.pop(key, None)
        if log is None:
            return
        log.close(clean=False)
        self._set_aside[self._directory.set_aside(log.directory)] = time.monotonic()

    def purge(self) -> None:
        """Remove what was set aside long enough ago."""
        now_s = time.monotonic()
        for path, since_s in list(self._set_aside.items()):
            if now_s - since_s >= self._delete_delay_s:
                self._directory.remove_set_aside(path)
                del self._set_aside[path]

    def write_checkpoints(self) -> None:
        """Record the high watermarks. A log that fails here has failed: its next append says so to its replica."""
        for key, log in list(self.logs.items()):
            try:
                if self._reserve is None:
                    log.write_checkpoint()
                else:
                    self._reserve.write_metadata(log.write_checkpoint)
            except OSError as error:
                logger.error(
                    "a checkpoint could not be written",
                    topic=key.topic_id.hex(),
                    partition=key.partition,
                    error=str(error),
                )

    def close(self) -> bool:
        """Close all logs cleanly; whether every one of them was."""
        clean = True
        for log in self.logs.values():
            try:
                log.close(clean=True)
            except OSError as error:
                logger.error("a log could not be closed cleanly", log=log.directory, error=str(error))
                clean = False
        self.logs.clear()
        return clean
