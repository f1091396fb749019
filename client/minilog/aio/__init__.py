"""minilog for asyncio: the same Producer, Consumer and Admin with awaitable methods."""

from __future__ import annotations

from minilog.aio.admin import Admin
from minilog.aio.consumer import Consumer
from minilog.aio.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]
