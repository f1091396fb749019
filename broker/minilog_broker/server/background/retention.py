"""What a broker does to its logs from time to time: checkpoints, retention, removing what was set aside."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable

import structlog

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.typed.iso_8601 import timestamp_text
from minilog_broker.server.disk.disk_thread import Disk
from minilog_broker.server.disk.log_directory import LogDirectory
from minilog_broker.server.runtime.broker_runtime import BrokerRuntime
from minilog_broker.storage.clock_guard import ClockGuard, ClockNews
from minilog_broker.storage.reserve import Reserve
from minilog_broker.storage.retention import HeldSegment

logger = structlog.get_logger()

CHECKPOINT_INTERVAL_S = 5.0  # Kafka's: what a restart may have to learn again
LOGS_AT_ONCE = 16


class WallClock:
    """The wall clock, guarded (storage/clock_guard.py); what there is to tell is logged once."""

    def __init__(self, runtime: BrokerRuntime) -> None:
        self._runtime = runtime
        self.monotonic_s = runtime.monotonic_s
        self._guard = ClockGuard(wall_s=runtime.wall_us() / 1e6, monotonic_s=runtime.uptime_s())

    def trusted_now_us(self) -> int | None:
        """Now, in microseconds; None while the clock is not to be trusted."""
        now_us = self._runtime.wall_us()
        news = self._guard.look(wall_s=now_us / 1e6, monotonic_s=self._runtime.uptime_s())
        if news is ClockNews.JUMPED:
            logger.error(
                "the wall clock jumped: nothing is deleted by age until it is set back, or, if the time is right now, "
                "until this broker is started again",
                seconds=round(self._guard.jump_s),
            )
        elif news is ClockNews.RESUMED:
            logger.warning("the wall clock is back where it was: what is too old is deleted again")
        return now_us if self._guard.trusted else None


class Space:
    """The reserve of a disk that may be full, looked at from time to time; a change is logged once."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._was_held = True

    def look(self) -> None:
        """On the disk thread."""
        held = self._reserve.hold()
        if held != self._was_held:
            self._was_held = held
            if held:
                logger.warning("the disk has space again: this broker takes data")
            else:
                logger.error(
                    "the disk is full: data is refused here and others lead where they can; what was kept is for the "
                    "metadata log and checkpoints alone. Free some space, or lower retention"
                )


async def maintain(
    disk: Disk,
    directory: LogDirectory,
    reserve: Reserve,
    log_start_moved: Callable[[PartitionKey], None],
    expire: Callable[[int], None],
    retention_interval_s: float,
    clock: WallClock,
) -> None:
    """Until cancelled. `log_start_moved` is told of each log that retention has cut, `expire` the wall clock in
    microseconds while it is trusted: both in the first round behind `retention_interval_s`."""
    space, retention = Space(reserve), Retention(directory)
    due_s = clock.monotonic_s() + retention_interval_s
    while True:
        await asyncio.sleep(CHECKPOINT_INTERVAL_S)
        try:
            slices = slices_of(await disk.call(lambda: list(directory.logs)))
            for keys in slices:
                await disk.call(functools.partial(directory.write_checkpoints, keys))
            while await disk.call(directory.purge):
                pass
            await disk.call(space.look)
            if clock.monotonic_s() >= due_s:
                due_s = clock.monotonic_s() + retention_interval_s
                now_us = clock.trusted_now_us()
                for keys in slices:
                    for key in await disk.call(functools.partial(retention.apply, keys, now_us)):
                        log_start_moved(key)
                if now_us is not None:
                    expire(now_us)
        except OSError as error:
            logger.error("maintenance met a disk error; it goes on with the next round", error=str(error))


def slices_of(keys: list[PartitionKey]) -> list[list[PartitionKey]]:
    """So few that the disk goes on with appends between them, and that nobody takes it for one that does not answer."""
    return [keys[first : first + LOGS_AT_ONCE] for first in range(0, len(keys), LOGS_AT_ONCE)]


class Retention:
    """Removes what is older or larger than its topic says. On the disk thread."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._held: dict[PartitionKey, int] = {}  # the segments that were warned of, by their base offset

    def apply(self, keys: Iterable[PartitionKey], now_us: int | None) -> list[PartitionKey]:
        """In these logs; the keys of those that were cut."""
        moved = []
        for key in keys:
            log = self._directory.logs.get(key)
            if log is None:
                self._held.pop(key, None)
                continue
            try:
                removed = log.apply_retention(now_us)
            except (OSError, CorruptMessage) as error:
                logger.error("retention failed", topic=key.topic_id.hex(), partition=key.partition, error=str(error))
                continue
            if removed:
                moved.append(key)
                logger.info(
                    "segments removed by retention",
                    log=log.directory,
                    segments=removed,
                    log_start_offset=log.log_start_offset,
                )
            if now_us is not None:
                self._warn_where_held(key, log.retention_held(now_us))
        return moved

    def _warn_where_held(self, key: PartitionKey, held: HeldSegment | None) -> None:
        """Once for each segment."""
        if held is None:
            self._held.pop(key, None)
        elif self._held.get(key) != held.base_offset:
            self._held[key] = held.base_offset
            logger.warning(
                "a record with a time stamp in the future holds retention: nothing of this partition is deleted by age "
                "until then. Delete the records below the next segment with minilog topic trim, and see "
                "message.timestamp.after.max.ms",
                topic=key.topic_id.hex(),
                partition=key.partition,
                segment=held.base_offset,
                timestamp=timestamp_text(held.max_timestamp_us, has_zone=True),
                next_segment=held.end_offset,
            )
