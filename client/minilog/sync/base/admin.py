"""An admin client of threads: the one for asyncio on the background loop."""

from __future__ import annotations

from collections.abc import Mapping

from minilog.aio.admin import Admin as AsyncAdmin
from minilog.sync.base import Blocking
from minilog.sync.loop import shared_loop


class AdminBase(Blocking):
    """The admin client for asyncio, and its end."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._inner = AsyncAdmin(config)
        self._loop = shared_loop()

    def _close(self) -> None:
        self._loop.close(self._inner.close)
