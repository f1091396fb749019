"""enable.auto.commit: a poll commits the positions of the earlier polls.

When a poll begins, the program is done with the records of the polls before it. If the program does not poll again,
`close` and a revocation commit the last records. A program that dies may have records that are not committed. They come
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from minilog.errors import MinilogError

_log = logging.getLogger(__name__)


class AutoCommit:
    """The automatic commits of one consumer. `commit` commits its positions."""

    def __init__(self, interval_ms: float, commit: Callable[[], Awaitable[None]]) -> None:
        self._interval_ms = interval_ms
        self._commit = commit
        self._due_ms: float | None = None
        self._under_way: asyncio.Task[None] | None = None

    def poll_began(self, now_ms: float) -> None:
        """Begin a commit if one is due. At most one is under way."""
        if self._due_ms is None:
            self._due_ms = now_ms + self._interval_ms
        if now_ms >= self._due_ms and (self._under_way is None or self._under_way.done()):
            self._due_ms = now_ms + self._interval_ms
            self._under_way = asyncio.get_running_loop().create_task(self.now())

    async def now(self) -> None:
        """Commit the positions. If an error prevents that, the client logs it, and the next commit tries again."""
        try:
            await self._commit()
        except MinilogError as error:
            _log.warning("the consumer could not commit its positions (enable.auto.commit): %s", error)

    async def finish(self) -> None:
        """Wait for the commit under way, and commit for the last time."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])
        await self.now()
