"""Retention as a job: it removes segments that are older or larger than their topic allows. It has a guarded clock."""

from __future__ import annotations

import functools
from collections.abc import Callable

import structlog

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.typed.rows.iso_8601 import timestamp_text
from minilog_broker.server.background.jobs import Round
from minilog_broker.server.background.upkeep import OpenLogs
from minilog_broker.server.disk.log_directory import LogDirectory
from minilog_broker.server.runtime.broker_runtime import BrokerRuntime
from minilog_broker.storage.clock_guard import ClockGuard, ClockNews
from minilog_broker.storage.log import Log
from minilog_broker.storage.retention import HeldSegment

logger = structlog.get_logger()


class WallClock:
    """The wall clock, guarded (storage/clock_guard.py). Each event of the clock has one line in the log."""

    def __init__(self, runtime: BrokerRuntime) -> None:
        self._runtime = runtime
        self._guard = ClockGuard(wall_s=runtime.wall_us() / 1e6, monotonic_s=runtime.uptime_s())

    def trusted_now_us(self) -> int | None:
        """The time in microseconds, None while the clock is not trusted."""
        now_us = self._runtime.wall_us()
        news = self._guard.look(wall_s=now_us / 1e6, monotonic_s=self._runtime.uptime_s())
        if news is ClockNews.JUMPED:
            logger.error(
                "the wall clock jumped: this broker deletes nothing by age until the clock is set back. If the time is "
                "right now, restart the broker",
                seconds=round(self._guard.jump_s),
            )
        elif news is ClockNews.RESUMED:
            logger.warning("the wall clock is back at its former time: this broker deletes old records again")
        return now_us if self._guard.trusted else None


class Retention:
    """Removes what is older or larger than its topic allows. `interval_s` may be replaced.

    `log_start_moved` is called with the key of each log that was cut. `expire` is called once a round with the wall
    clock in microseconds, while that is trusted: for all else that ends by age."""

    name = "retention"

    def __init__(
        self,
        directory: LogDirectory,
        interval_s: float,
        clock: WallClock,
        log_start_moved: Callable[[PartitionKey], None],
        expire: Callable[[int], None],
    ) -> None:
        self.interval_s = interval_s
        self._directory = directory
        self._open_logs = OpenLogs(directory)
        self._clock = clock
        self._log_start_moved = log_start_moved
        self._expire = expire
        self._moved: list[PartitionKey] = []  # cut by the last slice
        self._held: dict[PartitionKey, int] = {}  # the base offsets of segments with a warning

    def round(self) -> Round:
        now_us = self._clock.trusted_now_us()
        yield self._open_logs.look
        for keys in self._open_logs.parts():
            while keys:
                yield functools.partial(self._apply, keys, now_us)
                for key in self._moved:
                    self._log_start_moved(key)
                self._moved.clear()
        if now_us is not None:
            self._expire(now_us)

    def _apply(self, keys: list[PartitionKey], now_us: int | None, budget_bytes: int) -> int:
        """Apply retention to these logs until the budget is used, and give the freed bytes. The rest stays in
        `keys`."""
        gone_bytes = 0
        while keys and gone_bytes < budget_bytes:
            log = self._directory.logs.get(keys[0])
            went_bytes = 0 if log is None else self._apply_to(keys[0], log, now_us, budget_bytes - gone_bytes)
            gone_bytes += went_bytes
            if log is None:
                self._held.pop(keys[0], None)
            if not went_bytes:
                keys.pop(0)
        return gone_bytes

    def _apply_to(self, key: PartitionKey, log: Log, now_us: int | None, budget_bytes: int) -> int:
        """The freed bytes of one log; 0 where it has nothing more to free."""
        size_bytes = log.size_bytes
        try:
            removed = log.apply_retention(now_us, budget_bytes)
        except (OSError, CorruptMessage) as error:
            logger.error("retention failed", topic=key.topic_id.hex(), partition=key.partition, error=str(error))
            return 0
        if removed:
            if key not in self._moved:
                self._moved.append(key)
            logger.info(
                "retention removed segments",
                log=log.directory,
                segments=removed,
                log_start_offset=log.log_start_offset,
            )
        elif now_us is not None:
            self._warn_where_held(key, log.retention_held(now_us))
        return size_bytes - log.size_bytes

    def _warn_where_held(self, key: PartitionKey, held: HeldSegment | None) -> None:
        """Log a warning once for each segment that holds retention."""
        if held is None:
            self._held.pop(key, None)
        elif self._held.get(key) != held.base_offset:
            self._held[key] = held.base_offset
            logger.warning(
                "a record with a time stamp in the future holds retention: the broker deletes nothing of this "
                "partition by age until then. Delete the records below the next segment with minilog topic trim, and "
                "see message.timestamp.after.max.ms",
                topic=key.topic_id.hex(),
                partition=key.partition,
                segment=held.base_offset,
                timestamp=timestamp_text(held.max_timestamp_us, has_zone=True),
                next_segment=held.end_offset,
            )
