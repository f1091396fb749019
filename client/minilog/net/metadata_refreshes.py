"""The times at which a client asks for metadata again."""

from __future__ import annotations

import asyncio
import contextlib

from minilog.net.backoff import ExponentialBackoff
from minilog.net.runtime import now_s


class MetadataRefreshes:
    """The refreshes of one client: when a part of the client wants newer metadata, and after `max_age_s`.

    If a part wants metadata again right after a refresh, the refresh did not help: perhaps a partition has no leader
    yet. Then the pause before the next refresh grows."""

    def __init__(self, backoff: ExponentialBackoff, max_age_s: float) -> None:
        self._backoff = backoff
        self._max_age_s = max_age_s
        self._wanted = asyncio.Event()
        self._has_refreshed = False

    def want(self) -> None:
        """A part of the client needs newer metadata."""
        self._wanted.set()

    async def due(self) -> None:
        """Return when it is time for the next refresh. The caller calls this again when that refresh has ended."""
        if self._has_refreshed:
            await asyncio.sleep(self._backoff.next())
        paused_s = now_s()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._max_age_s):
                await self._wanted.wait()
        if now_s() - paused_s > self._backoff.most:
            self._backoff.reset()
        self._wanted.clear()
        self._has_refreshed = True
