"""enable.auto.commit: what earlier polls handed out is committed by later ones.

A poll begins, so the program is done with what the polls before it returned. What it says when it never polls again,
`close` and a revocation commit. A program that dies has records that it was given and that are not committed: they
come again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from minilog.errors import MinilogError

_log = logging.getLogger(__name__)


class AutoCommit:
    """Of one consumer. `commit` commits its positions."""

    def __init__(self, interval_ms: float, commit: Callable[[], Awaitable[None]]) -> None:
        self._interval_ms = interval_ms
        self._commit = commit
        self._due_ms: float | None = None
        self._under_way: asyncio.Task[None] | None = None

    def poll_began(self, now_ms: float) -> None:
        """Begin a commit where one is due. One is under way at the most."""
        if self._due_ms is None:
            self._due_ms = now_ms + self._interval_ms
        if now_ms >= self._due_ms and (self._under_way is None or self._under_way.done()):
            self._due_ms = now_ms + self._interval_ms
            self._under_way = asyncio.get_running_loop().create_task(self.now())

    async def now(self) -> None:
        """Commit; what prevents it is logged, and the next one tries again."""
        try:
            await self._commit()
        except MinilogError as error:
            _log.warning("positions were not committed (enable.auto.commit): %s", error)

    async def finish(self) -> None:
        """Wait for what is under way, and commit for the last time."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])
        await self.now()
