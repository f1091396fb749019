"""The space of the file system under the data directory. The call may hang with it: one thread waits."""

from __future__ import annotations

import asyncio
import os

from minilog_broker.server.metrics import names
from minilog_broker.server.metrics.broker_metrics import Samples

ANSWER_WITHIN_S = 1.0


class DiskSpace:
    """Asks again at each scrape, unless the former question is not answered; tells the last answer."""

    def __init__(self) -> None:
        self._asked: asyncio.Future[os.statvfs_result] | None = None
        self._samples: Samples = []

    async def look(self, directory: str) -> Samples:
        if self._asked is None:
            self._asked = asyncio.get_running_loop().run_in_executor(None, os.statvfs, directory)
        done, _ = await asyncio.wait([self._asked], timeout=ANSWER_WITHIN_S)
        if done:
            asked, self._asked = self._asked, None
            self._samples = [] if asked.exception() else of_space(asked.result())
        return self._samples


def of_space(space: os.statvfs_result) -> Samples:
    return [
        (names.DISK_FREE_BYTES, (), float(space.f_bavail * space.f_frsize)),
        (names.DISK_SIZE_BYTES, (), float(space.f_blocks * space.f_frsize)),
    ]
