"""The read of a new coordinator: its partition from the log start to the start of its leader's epoch, in pieces.

The disk thread reads, another thread decodes, and the loop gets one piece at a time. So a long log delays only calls to
this coordinator. A fail-over decodes one piece at a time, first of the logs that somebody asks for (loading_order.py).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

import structlog

from minilog.errors import CorruptMessage, ResourceExhausted
from minilog.partition_key import PartitionKey
from minilog_broker.coordinators.batches import decode_run
from minilog_broker.coordinators.table import LogRecord
from minilog_broker.server.disk.disk_thread import Disk
from minilog_broker.server.shells.loading_order import LoadingTurns
from minilog_broker.storage.log import Log

logger = structlog.get_logger()

RESOURCE_PAUSE_S = 1.0
PIECE_BYTES = 256 << 10  # some hundred decisions, which the loop takes in within milliseconds

TakePiece = Callable[[list[LogRecord], int], None]


class Loader:
    """The reader of a partition's log for a new coordinator. `log_of`: the open log of a partition of this broker."""

    def __init__(self, disk: Disk, log_of: Callable[[PartitionKey], Log]) -> None:
        self._disk = disk
        self._log_of = log_of
        self._turns = LoadingTurns()

    def want(self, key: PartitionKey) -> None:
        """Somebody asks for this coordinator: its log comes before those that nobody asks for."""
        self._turns.want(key)

    async def load(self, key: PartitionKey, end_offset: int, take: TakePiece) -> None:
        """Read a log up to `end_offset`. `take` gets the records of each piece and the offset behind it, at last
        `end_offset`.

        Raises OSError, and CorruptMessage where a record is not a coordinator's.
        """
        with self._turns.begun(key) as load:
            await self._turns.next(load)
            log = self._log_of(key)
            offset = log.log_start_offset
            while offset < end_offset:
                run = await self._disk.call(functools.partial(log.read, offset, PIECE_BYTES, end_offset))
                records, behind = await _decoded(key, run)
                if behind - len(records) > offset:
                    raise CorruptMessage(f"the log of an internal topic has no offset {offset}, below {behind}")
                if behind <= offset:
                    raise CorruptMessage(f"the log of an internal topic ends at offset {offset}, below {end_offset}")
                take(records, behind)
                offset = behind
                await self._turns.next(load)
            take([], end_offset)


async def _decoded(key: PartitionKey, run: bytes) -> tuple[list[LogRecord], int]:
    """The records of a run. A process that lacks memory waits, until it has enough or leads no more: the lack says
    nothing of the log."""
    while True:
        try:
            return await asyncio.to_thread(_decode, key, run)
        except ResourceExhausted as error:
            logger.warning("the broker waits with a coordinator's log until it has memory", error=str(error))
            await asyncio.sleep(RESOURCE_PAUSE_S)


def _decode(key: PartitionKey, run: bytes) -> tuple[list[LogRecord], int]:
    records: list[LogRecord] = []
    behind = -1
    for behind, decoded in decode_run(key, run):  # noqa: B007, the last one is wanted
        records.extend(decoded)
    return records, behind
