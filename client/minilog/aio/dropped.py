"""One warning at the end of a process whose producers for asyncio drop what they took.

A producer that nobody closes sends on while its event loop runs. When the loop ends first, its records are lost without
an error: nobody waits for their futures. Blocking producers are reported by their own loop (sync/loop.py).
"""

from __future__ import annotations

import atexit
import logging
import os

from minilog.aio.producer_shell import ProducerShell

_log = logging.getLogger(__name__)
_open: dict[ProducerShell, int] = {}
"""Those that began to send and were not closed, with the process that they belong to. What they hold is bounded by
buffer.memory, and a program that leaves many of them open has as many connections."""


def opened(producer: ProducerShell) -> None:
    """It is open until `closed`."""
    if not _open:
        atexit.unregister(_warn)
        atexit.register(_warn)
    _open[producer] = os.getpid()


def closed(producer: ProducerShell) -> None:
    _open.pop(producer, None)


def _warn() -> None:
    """A forked child has no part in what its parent took."""
    here = os.getpid()
    counts = {each.config.client_id: each.accumulator.unsettled_records() for each, pid in _open.items() if pid == here}
    if lost := {name: count for name, count in counts.items() if count}:
        _log.warning(
            "the process ends with producers open: %d records of %s are not written, or are not known to be; close "
            "them, or use them in an async with block",
            sum(lost.values()),
            ", ".join(map(repr, sorted(lost))),
        )
