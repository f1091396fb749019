"""The metadata log, the vote file and the disk thread that both have to themselves: data never delays them.

An error of either ends the process (REPLICATION.md, eligible leaders): what this broker has promised to the quorum
could no longer be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from minilog.errors import StorageError
from minilog_broker.quorum.effects import PersistVote, VoteState
from minilog_broker.quorum.records import CLUSTER_METADATA_TOPIC_NAME, METADATA_KEY
from minilog_broker.replication.effects import PlacedBatches
from minilog_broker.server.disk import DiskCommand, DiskThread
from minilog_broker.storage.data_directory import DataDirectory
from minilog_broker.storage.durable_file import read_durable_file, write_durable_file
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.files import FileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.reserve import Reserve
from minilog_broker.storage.settings import LogSettings

logger = structlog.get_logger()

VOTE_FILE = "quorum-vote"
# Always fsync, kept for good: only a snapshot moves its start, and whole segments behind it can go.
METADATA_LOG_SETTINGS = LogSettings(segment_bytes=8 << 20, flush_on_append=True, retention_ms=-1, retention_bytes=-1)


class MetadataLog:
    """See the module's text. What is done is told by callbacks on the event loop."""

    def __init__(
        self, files: FileSystem, directory: DataDirectory, reserve: Reserve, failed: Callable[[BaseException], None]
    ) -> None:
        self._files = files
        self._reserve = reserve
        self._failed = failed
        self._broker_id = directory.broker_id
        self._vote_path = f"{directory.path}/{VOTE_FILE}"
        self.path = directory.partition_path(CLUSTER_METADATA_TOPIC_NAME, 0)
        self.log = self._open(directory)
        self._disk = DiskThread("metadata-disk", asyncio.get_running_loop(), failed)

    def _open(self, directory: DataDirectory) -> Log:
        log = Log.open(
            self._files,
            self.path,
            METADATA_KEY,
            CLUSTER_METADATA_TOPIC_NAME,
            METADATA_LOG_SETTINGS,
            unclean=directory.clean_stop_epoch is None,
            create=True,
        )
        if log.recovery.damaged:
            raise self.damaged(str(log.recovery.reason))
        return log

    def damaged(self, reason: str) -> StorageError:
        """The sentence that this broker ends with where its metadata log cannot be read."""
        return StorageError(
            f"the metadata log {self.path} is damaged: {reason}. Set the data directory aside and start with an empty "
            f"one: an observer fetches all again; a voter is then to be replaced by "
            f"`minilog cluster replace-voter {self._broker_id}`"
        )

    def read_vote(self) -> VoteState:
        """The vote of a former life. Raises StorageError where its file is damaged: it might vote twice in an epoch."""
        try:
            stored = read_durable_file(self._files, self._vote_path)
            return VoteState() if stored is None else msgspec.json.decode(stored, type=VoteState)
        except (CorruptFile, msgspec.DecodeError) as error:
            raise StorageError(
                f"the vote file {self._vote_path} is damaged: {error}. Set the data directory aside, start with an "
                f"empty one, and replace the voter by `minilog cluster replace-voter`"
            ) from error

    def persist_vote(self, effect: PersistVote, done: Callable[[], None]) -> None:
        """Epoch and vote, durable with the name of their file before `done` is called."""
        vote = msgspec.json.encode(VoteState(effect.epoch, effect.voted_for, effect.voted_directory))
        self.submit(lambda: write_durable_file(self._files, self._vote_path, vote), lambda _: done())

    def append(self, batches: PlacedBatches, appended: Callable[[int], None], flushed: Callable[[int], None]) -> None:
        """Append and sync; `appended` and `flushed` are given the end offset."""
        self._disk.submit(
            DiskCommand(
                work=lambda: self._reserve.write_metadata(lambda: self.log.append(batches)),
                on_done=lambda _: appended(batches.end_offset),
                on_failed=self._failed,
                log=self.log,
                flush=self.log,
                on_flushed=flushed,
            )
        )

    def submit(self, work: Callable[[], object], done: Callable[[Any], None]) -> None:
        """Any other work on the log's files, in order with all that was asked before."""
        self._disk.submit(DiskCommand(lambda: self._reserve.write_metadata(work), done, self._failed, self.log))

    async def stop(self) -> bool:
        """Close the log; whether that was clean."""
        await self._disk.stop()
        try:
            self.log.close(clean=True)
        except OSError as error:
            logger.error("the metadata log could not be closed cleanly", error=str(error))
            return False
        return True
