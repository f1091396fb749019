"""minilog for asyncio: the same Producer, Consumer and Admin with awaitable methods.

Python loads a class at its first use, since a producer does not need the modules of the other two.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minilog.aio.admin import Admin as Admin
    from minilog.aio.consumer import Consumer as Consumer
    from minilog.aio.producer import Producer as Producer

__all__ = ["Admin", "Consumer", "Producer"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(f"minilog.aio.{name.lower()}"), name)
    raise AttributeError(f"module 'minilog.aio' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
