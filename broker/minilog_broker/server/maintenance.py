"""What a broker does to its logs from time to time: checkpoints, retention, removing what was set aside."""

from __future__ import annotations

import asyncio
import time

import structlog

from minilog_broker.server.disk import DiskThread
from minilog_broker.server.log_directory import LogDirectory

logger = structlog.get_logger()

CHECKPOINT_INTERVAL_S = 5.0  # Kafka's: what a restart may have to learn again
RETENTION_EVERY = 60  # checkpoints: five minutes, Kafka's
CLOCK_JUMP_S = 3600.0  # REPLICATION.md, Controller and clock


class WallClock:
    """The wall clock, watched by the monotonic one: after a jump of more than an hour nothing is deleted by age."""

    def __init__(self) -> None:
        self._difference_s = time.time() - time.monotonic()
        self.trusted = True

    def check(self) -> bool:
        """Whether the wall clock may be used to delete; a jump is logged once."""
        jump_s = abs(time.time() - time.monotonic() - self._difference_s)
        if self.trusted and jump_s > CLOCK_JUMP_S:
            self.trusted = False
            logger.error(
                "the wall clock jumped: nothing is deleted by age until this broker is started again", seconds=jump_s
            )
        return self.trusted


async def maintain(disk: DiskThread, directory: LogDirectory) -> None:
    """Until cancelled."""
    clock = WallClock()
    rounds = 0
    while True:
        await asyncio.sleep(CHECKPOINT_INTERVAL_S)
        rounds += 1
        try:
            await disk.call(directory.write_checkpoints)
            await disk.call(directory.purge)
            if rounds % RETENTION_EVERY == 0 and clock.check():
                await disk.call(lambda: apply_retention(directory))
        except OSError as error:
            logger.error("maintenance met a disk error; it goes on with the next round", error=str(error))


def apply_retention(directory: LogDirectory) -> None:
    """Remove what is older or larger than its topic says, in every log."""
    now_us = time.time_ns() // 1000
    for key, log in list(directory.logs.items()):
        try:
            removed = log.apply_retention(now_us)
        except OSError as error:
            logger.error("retention failed", topic=key.topic_id.hex(), partition=key.partition, error=str(error))
            continue
        if removed:
            logger.info(
                "segments removed by retention",
                log=log.directory,
                segments=removed,
                log_start_offset=log.log_start_offset,
            )
