"""minilog for asyncio: the same Producer, Consumer, QueueConsumer and Admin with awaitable methods.

Python loads a class at its first use, since a producer does not need the modules of the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minilog.aio.admin import Admin as Admin
    from minilog.aio.consumer import Consumer as Consumer
    from minilog.aio.producer import Producer as Producer
    from minilog.aio.queue_consumer import QueueConsumer as QueueConsumer

__all__ = ["Admin", "Consumer", "Producer", "QueueConsumer"]

_HOME = {
    "Admin": "minilog.aio.admin",
    "Consumer": "minilog.aio.consumer",
    "Producer": "minilog.aio.producer",
    "QueueConsumer": "minilog.aio.queue_consumer",
}


if not TYPE_CHECKING:  # else a type checker would take every wrong name

    def __getattr__(name: str) -> Any:
        if name in _HOME:
            return getattr(importlib.import_module(_HOME[name]), name)
        raise AttributeError(f"module 'minilog.aio' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
