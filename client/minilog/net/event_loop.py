"""The event loop of minilog's own processes: uvloop if it is installed, or else the standard one.

A small message and its answer take a third of the CPU on uvloop (docs/internals/performance.md). A program that uses
minilog.aio has an event loop of its own, and minilog runs on that.
"""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop, which does not run yet."""
    try:
        import uvloop  # it takes 20 ms, so only a process that makes a loop imports it
    except ImportError:  # Windows, and systems without a wheel
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
