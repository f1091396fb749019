"""The space of the file system under the data directory. The call may hang with the file system, so a thread makes
it."""

from __future__ import annotations

import asyncio
import os

from minilog_broker.server.metrics import names
from minilog_broker.server.metrics.broker_metrics import Samples

ANSWER_WITHIN_S = 1.0


class DiskSpace:
    """Makes a call at each scrape, unless the former one still waits, and gives the last answer."""

    def __init__(self) -> None:
        self._pending: asyncio.Future[os.statvfs_result] | None = None
        self._samples: Samples = []

    async def look(self, directory: str) -> Samples:
        if self._pending is None:
            self._pending = asyncio.get_running_loop().run_in_executor(None, os.statvfs, directory)
        done, _ = await asyncio.wait([self._pending], timeout=ANSWER_WITHIN_S)
        if done:
            answer, self._pending = self._pending, None
            self._samples = [] if answer.exception() else of_space(answer.result())
        return self._samples


def of_space(space: os.statvfs_result) -> Samples:
    return [
        (names.DISK_FREE_BYTES, (), float(space.f_bavail * space.f_frsize)),
        (names.DISK_SIZE_BYTES, (), float(space.f_blocks * space.f_frsize)),
    ]
