"""The metadata log, the vote file and the disk that only these two use, so that data never delays them.

An error of either ends the process (docs/spec/replication.md § Eligible leaders and damage): the broker could not keep
its promises to the quorum.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from minilog.errors import StorageError
from minilog_broker.quorum.quorum_effects import PersistVote, VoteState
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_NAME, METADATA_KEY
from minilog_broker.replication.replica_effects import PlacedBatches
from minilog_broker.server.disk.disk_thread import Disk, DiskCommand
from minilog_broker.server.disk.vote_file import open_vote, remedy, write_vote
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.reserve import Reserve
from minilog_broker.storage.settings import LogSettings

logger = structlog.get_logger()

# An end that was synced longer ago is in the checkpoint, so that a recovery that cuts it reports that. A checkpoint
# with every sync would cost three syncs.
CHECKPOINT_DELAY_S = 1.0
# Always fsync, without retention: only a snapshot moves the start, and whole segments behind it can go.
METADATA_LOG_SETTINGS = LogSettings(segment_bytes=8 << 20, flush_on_append=True, retention_ms=-1, retention_bytes=-1)


class MetadataLogDisk:
    """The metadata log and the vote file of one broker, with the disk that both share.

    Callbacks on the event loop report that an operation is done.
    """

    def __init__(
        self,
        files: FileSystem,
        directory: DataDirectory,
        reserve: Reserve,
        disk: Disk,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._files = files
        self._reserve = reserve
        self._failed = failed
        self._directory = directory
        self.path = directory.partition_path(CLUSTER_METADATA_TOPIC_NAME, 0)
        self.log = self._open(directory)
        self.vote = open_vote(files, directory, self.log)  # of a former life
        self._loop = asyncio.get_running_loop()
        self._disk = disk
        self._checkpoint_due: asyncio.TimerHandle | None = None

    def _open(self, directory: DataDirectory) -> Log:
        log = Log.open(
            self._files,
            self.path,
            METADATA_KEY,
            CLUSTER_METADATA_TOPIC_NAME,
            METADATA_LOG_SETTINGS,
            unclean=directory.clean_stop_epoch is None,
            create=True,
            boot_id=directory.boot_id,
        )
        if log.recovery.damaged:
            raise self.damaged(log.recovery.reason)
        if log.has_torn_tail:  # this broker has not promised the tail, and only its later reports count
            logger.warning("the broker cut a torn tail of the metadata log", reason=log.recovery.reason)
            log.forget_torn_tail()
        return log

    def damaged(self, reason: str) -> StorageError:
        """The error that ends a broker whose metadata log cannot be read."""
        return StorageError(f"the metadata log {self.path} is damaged: {reason}. {remedy(self._directory)}")

    def persist_vote(self, effect: PersistVote, done: Callable[[], None]) -> None:
        """Write epoch and vote. They are durable, with the name of their file, before the call of `done`."""
        vote = VoteState(effect.epoch, effect.voted_for, effect.voted_directory)
        self.submit(lambda: write_vote(self._files, self._directory, vote), lambda _: done())

    def append(self, batches: PlacedBatches, appended: Callable[[int], None], flushed: Callable[[int], None]) -> None:
        """Append and sync. `appended` and `flushed` get the end offset."""

        def synced(end_offset: int) -> None:
            if self._checkpoint_due is None:
                self._checkpoint_due = self._loop.call_later(CHECKPOINT_DELAY_S, self._write_checkpoint)
            flushed(end_offset)

        self._disk.submit(
            DiskCommand(
                work=lambda: self._reserve.write_metadata(lambda: self.log.append(batches)),
                on_done=lambda _: appended(batches.end_offset),
                on_failed=self._failed,
                log=self.log,
                flush=self.log,
                on_flushed=synced,
            )
        )

    def _write_checkpoint(self) -> None:
        self._checkpoint_due = None
        self.submit(self.log.write_checkpoint, lambda _: None)

    def submit(self, work: Callable[[], object], done: Callable[[Any], None]) -> None:
        """Do other work on the log's files, in order with all earlier work."""
        self._disk.submit(DiskCommand(lambda: self._reserve.write_metadata(work), done, self._failed, self.log))

    async def stop(self) -> bool:
        """Close the log. True where that was clean."""
        if self._checkpoint_due is not None:
            self._checkpoint_due.cancel()
        await self._disk.stop()
        try:
            self.log.close(clean=True)
        except OSError as error:
            logger.error("the broker could not close the metadata log cleanly", error=str(error))
            return False
        return True
