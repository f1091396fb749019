"""The log cleaner: it compacts the copies of this broker, on a thread of its own.

    decide     for each compacted partition that this broker leads: the next point, where one is due (compaction/due.py)
    begin      the leader announces the point, and each replica records it as soon as its last stable offset is there
    clean      for each copy that has begun a point and not carried it out: write segments anew, and swap (cleaning.py)

One copy is cleaned at a time, and in turns (cleaner_turns.py). The thread reads and writes at a bounded rate. Only
the swap of a segment runs on the disk's thread, where it takes its turn. A round that meets an error leaves the copy
as it is, and the next round begins this copy's cleaning anew. docs/spec/replication.md § Compaction has the rules.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import structlog

from minilog.errors import (
    CorruptMessage,
    MinilogError,
    OffsetOutOfRange,
    UnknownSchemaVersion,
    UnsupportedVersion,
)
from minilog.partition_key import PartitionKey
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.partition_state import MAX_INT64, TopicConfig
from minilog_broker.replication.replica import Replica
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.disk.disk_thread import Disk
from minilog_broker.server.disk.reader_threads import PAUSE_S, Readers, result_of
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.shells.cleaner_turns import ROUND_S, TURN_S, CleanerTurns
from minilog_broker.server.shells.replication_shell import ReplicationShell
from minilog_broker.storage.cleaning import Cleaning, Replacement
from minilog_broker.storage.compaction.due import CompactionSettings, dirty_bytes, next_clean_to
from minilog_broker.storage.compaction.key_reader import KeyReader
from minilog_broker.storage.compaction_point import CompactionPoint
from minilog_broker.storage.copy_check import check_copy
from minilog_broker.storage.errors import NO_SPACE
from minilog_broker.storage.files import PIECE_BYTES, FileSystem
from minilog_broker.storage.log import Log
from minilog_broker.storage.reserve import Reserve

logger = structlog.get_logger()

LATE_S = 3600.0  # the alert MinilogLogCleanerLate has the same time
_Steps: TypeAlias = tuple[Cleaning, Iterator[Replacement | None]]
_NOT_AS_WRITTEN = (OSError, CorruptMessage, UnsupportedVersion)


class Rate:
    """Lets the cleaner's thread rest, so that it uses at most so many bytes in a second."""

    def __init__(self, bytes_per_second: int, thread: Readers, monotonic_s: Callable[[], float]) -> None:
        self.bytes_per_second = bytes_per_second
        self._thread = thread
        self._monotonic_s = monotonic_s
        self._free_s = 0.0

    def use(self, size_bytes: int) -> None:
        """Rest until the bytes of all earlier calls have had their time. Called on the cleaner's thread."""
        now_s = self._monotonic_s()
        self._thread.pause(max(PAUSE_S, self._free_s - now_s))
        self._free_s = max(self._free_s, now_s) + size_bytes / self.bytes_per_second


@dataclass(slots=True)
class CleanerCounts:
    """The counts for the metrics. Times are monotonic."""

    used_bytes: int = 0  # read and written
    cleanings: int = 0
    failures: int = 0
    due_since_s: dict[PartitionKey, float] = field(default_factory=dict)  # copies whose cleaning is due


class Cleaner:
    """See the module. `thread` is one thread for reads that no session waits for. `files` is a file system of its own:
    only one thread may change files of a pool (open_files.py)."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicationShell,
        disk: Disk,
        reserve: Reserve,
        thread: Readers,
        files: FileSystem,
        monotonic_s: Callable[[], float],
        trusted_now_us: Callable[[], int | None],
        is_internal: Callable[[bytes], bool],
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._disk = disk
        self._reserve = reserve
        self._thread = thread
        self._files = files
        self._monotonic_s = monotonic_s
        self._trusted_now_us = trusted_now_us
        self._rate = Rate(config.log_cleaner_io_max_bytes_per_second, thread, monotonic_s)
        self._turns = CleanerTurns[_Steps](is_internal)
        self._changed = asyncio.Event()
        self.counts = CleanerCounts()

    def reconfigured(self, config: BrokerConfig) -> None:
        """Take a new configuration of the running broker."""
        self._config = config
        self._rate.bytes_per_second = config.log_cleaner_io_max_bytes_per_second
        self._changed.set()

    @property
    def oldest_due_s(self) -> float:
        """How long the oldest cleaning that is due has waited, or is under way."""
        return max([0.0, *(self._monotonic_s() - since_s for since_s in self.counts.due_since_s.values())])

    @property
    def late_cleanings(self) -> list[PartitionKey]:
        """The copies whose cleaning has been due for so long that it is a problem of the cluster."""
        late_since_s = self._monotonic_s() - LATE_S
        return sorted(key for key, since_s in self.counts.due_since_s.items() if since_s < late_since_s)

    async def run(self) -> None:
        """Clean until cancelled, and then stop the thread."""
        try:
            while True:
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), self._config.log_cleaner_backoff_ms / 1000.0)
                if self._config.log_cleaner_enable:
                    await self.round()
                else:
                    self._due()
        finally:
            await self._thread.stop()

    async def round(self) -> None:
        """Decide the points that are due, and carry out those that copies here have begun."""
        for leader in self._replicas.manager.led_partitions():
            if leader.config.is_compacted:
                await self._tried(leader.key, partial(self._decide, leader))
        await self._disk.call(lambda: None)  # behind the commands that begin the points
        end_s = self._monotonic_s() + ROUND_S
        for replica, log in self._turns.in_order(self._due(), key=lambda copy: copy[0].key):
            if self._monotonic_s() >= end_s:
                break
            await self._tried(replica.key, partial(self._clean, replica, log))
        for _, steps in self._turns.forget_all_but(key for key in self.counts.due_since_s):
            await self._give_up(steps)
        if self._turns.has_paused:
            self._changed.set()  # the next round goes on at once

    def _due(self) -> list[tuple[Replica, Log]]:
        """The copies that have begun a point and not carried it out. Notes since when, also while the cleaner is off:
        another broker decides their points."""
        due = [
            (replica, replica.log.log)
            for replica in self._replicas.manager.copies()
            if replica.log is not None and replica.log.log.compaction.is_due
        ]
        former, now_s = self.counts.due_since_s, self._monotonic_s()
        self.counts.due_since_s = {replica.key: former.get(replica.key, now_s) for replica, _ in due}
        return due

    async def _tried(self, key: PartitionKey, work: Callable[[], object]) -> None:
        """Do the work of one copy. An error leaves the copy to the next round."""
        try:
            await work()  # type: ignore[misc]
        except OffsetOutOfRange as error:
            logger.debug("the log changed while it was cleaned", partition=str(key), error=str(error))
        except UnknownSchemaVersion as error:  # records may come before this broker hears of their schema
            logger.debug("a copy waits for the schema of its records", partition=str(key), error=str(error))
        except (OSError, MinilogError) as error:
            self.counts.failures += 1
            logger.error(
                "the cleaner met an error, and begins this copy again in its next round",
                topic=key.topic_id.hex(),
                partition=key.partition,
                error=str(error),
            )

    # -- deciding

    async def _decide(self, leader: LeaderPartition) -> None:
        """Announce the next point, if one is due and the last one is carried out here."""
        log = leader.log.log
        if log.compaction.is_due or log.compaction.begun != leader.log.compaction:
            return
        now_us, settings = self._trusted_now_us(), compaction_settings(leader.config)
        clean_to = await result_of(self._thread, partial(next_clean_to, log, settings, now_us))
        if not leader.leading:  # by now, or not yet
            return
        known = leader.log.compaction
        leader.expiring_deletions.cleaned(log.compaction.done, now_ms())
        expired = leader.expired_deletions(now_ms())
        if clean_to is None and (expired <= known.deletes_before or dirty_bytes(log).dirty_bytes):
            return
        point = known.joined(CompactionPoint(max(clean_to or 0, known.clean_to), expired))
        self._replicas.compact(leader.key, point)

    # -- cleaning

    async def _clean(self, replica: Replica, log: Log) -> None:
        """Carry out the point that this copy has begun."""
        if replica.config is None or replica.log is None or replica.log.log is not log:
            return  # the copy was let go since the round began
        paused = self._turns.take(replica.key)
        if paused is not None and not paused[0].is_of(log):
            await self._give_up(paused[1])
            paused = None
        cleaning, steps = paused or await self._begun(replica, log)
        try:
            if await self._carry_out(log, cleaning, steps):
                await self._finish(log, cleaning)
        except _NOT_AS_WRITTEN as error:
            if replica.log is None or replica.log.log is not log:
                return
            await self._look_for_damage(log, cleaning.read_at, error)
            raise

    async def _begun(self, replica: Replica, log: Log) -> _Steps:
        """A new cleaning. The log seals what it reads."""
        assert replica.config is not None
        assert replica.log is not None
        point, transactions = log.compaction.begun, replica.log.producers.transactions
        aborted = frozenset(transactions.aborted_within(0, point.clean_to))
        reader, buffer_bytes = KeyReader(log.key, replica.config.schemas), self._config.log_cleaner_dedupe_buffer_size
        cleaning = Cleaning(log, point, self._files, reader, aborted, buffer_bytes, self._use)
        seal = partial(log.seal_below, point.clean_to)
        await self._disk.call(lambda: self._reserve.write_metadata(seal))
        return cleaning, cleaning.steps()

    async def _give_up(self, steps: Iterator[Replacement | None]) -> None:
        """Close what the cleaning has open, on its thread."""
        await result_of(self._thread, steps.close)  # type: ignore[attr-defined]

    async def _finish(self, log: Log, cleaning: Cleaning) -> None:
        """Record that the copy has carried out the point."""
        point, begins = cleaning.point, cleaning.begins
        finish = partial(log.finish_compaction, point, begins)
        await self._disk.call(lambda: self._reserve.write_metadata(finish))
        if not log.compaction.done.covers(point):
            return
        self.counts.cleanings += 1
        self.counts.due_since_s.pop(log.key, None)
        logger.info(
            "a copy is compacted",
            log=log.directory,
            clean_to=point.clean_to,
            deletes_before=point.deletes_before,
            bytes=log.size_bytes,
        )

    async def _carry_out(self, log: Log, cleaning: Cleaning, steps: Iterator[Replacement | None]) -> bool:
        """Whether the log has taken all replacements. False also where the time of this turn is over."""
        end_s = self._monotonic_s() + TURN_S

        def advance() -> Replacement | bool:
            for step in steps:
                if step is not None:
                    return step
                if self._monotonic_s() >= end_s:
                    return False
            return True

        while True:
            replacement: Replacement | bool = await result_of(self._thread, advance)
            if isinstance(replacement, Replacement):
                if not await self._disk.call(partial(self._replace, log, replacement)):
                    return False
                del replacement  # the cleaner's thread closes the former files last, and so frees their space
            elif replacement:
                return True
            else:
                if not self._turns.pause(log.key, (cleaning, steps), self._monotonic_s()):
                    await self._give_up(steps)
                return False

    def _replace(self, log: Log, replacement: Replacement) -> bool:
        """On the disk's thread: swap, unless retention or a truncation has changed the segments meanwhile."""
        try:
            self._reserve.write_metadata(lambda: log.replace_segments(replacement.former, replacement.compacted))
        except ValueError:
            replacement.abandon()
            return False
        except OSError as error:
            if error.errno in NO_SPACE:
                replacement.abandon()
            raise
        return True

    def _use(self, size_bytes: int) -> None:
        self.counts.used_bytes += size_bytes
        self._rate.use(size_bytes)

    async def _look_for_damage(self, log: Log, offset: int, error: OSError | MinilogError) -> None:
        """Read the piece once more on the disk's thread, where nothing cuts the log. An error there, too, takes the
        copy offline, as that of any other reader does. The error of a write does not: the copy may be sound."""
        if isinstance(error, UnsupportedVersion):
            self._replicas.damaged(log, error)
            return
        damage = await self._disk.call(partial(check_copy, log, *log.key, offset, PIECE_BYTES))
        if damage is not None:
            self._replicas.damaged(log, damage)


def compaction_settings(config: TopicConfig) -> CompactionSettings:
    """The settings of a topic for the rule of when to clean."""
    max_lag_us = None if config.max_compaction_lag_ms == MAX_INT64 else config.max_compaction_lag_ms * 1000
    return CompactionSettings(config.min_cleanable_dirty_ratio, config.min_compaction_lag_ms * 1000, max_lag_us)
