"""What a broker does to its logs from time to time: checkpoints, retention, removing what was set aside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from minilog.errors import CorruptMessage
from minilog_broker.replication.state import PartitionKey
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


async def maintain(disk: DiskThread, directory: LogDirectory, log_start_moved: Callable[[PartitionKey], None]) -> None:
    """Until cancelled. `log_start_moved` is told of each log that retention has cut."""
    clock = WallClock()
    rounds = 0
    while True:
        await asyncio.sleep(CHECKPOINT_INTERVAL_S)
        rounds += 1
        try:
            await disk.call(directory.write_checkpoints)
            await disk.call(directory.purge)
            if rounds % RETENTION_EVERY == 0 and clock.check():
                for key in await disk.call(lambda: apply_retention(directory)):
                    log_start_moved(key)
        except OSError as error:
            logger.error("maintenance met a disk error; it goes on with the next round", error=str(error))


def apply_retention(directory: LogDirectory) -> list[PartitionKey]:
    """Remove what is older or larger than its topic says, in every log; the keys of those that were cut."""
    moved = []
    now_us = time.time_ns() // 1000
    for key, log in list(directory.logs.items()):
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
    return moved
