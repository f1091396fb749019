"""One warning at the end of a process whose producers for asyncio drop what they took.

A producer that nobody closes sends on while its event loop runs. When the loop ends first, its records are lost without
an error: nobody waits for their futures. Blocking producers are reported by their own loop (sync/loop.py).
"""

from __future__ import annotations

import atexit
import logging
import os
from collections import Counter

from minilog.aio.producer_shell import ProducerShell

_log = logging.getLogger(__name__)


class _Producers:
    """Those of this process that began to send and were not closed. One whose loop has ended is let go, and what it
    held is counted."""

    def __init__(self) -> None:
        self.open: dict[ProducerShell, None] = {}
        self.lost: Counter[str] = Counter()  # records, by client.id

    def count(self, *, at_the_end: bool) -> None:
        for shell in list(self.open):
            if at_the_end or shell.has_lost_its_loop:
                del self.open[shell]
                self.lost[shell.config.client_id] += shell.accumulator.unsettled_records()


_producers = _Producers()


def opened(shell: ProducerShell) -> None:
    """It is open until `closed`."""
    _producers.count(at_the_end=False)
    _producers.open[shell] = None


def closed(shell: ProducerShell) -> None:
    _producers.open.pop(shell, None)


@atexit.register
def _warn() -> None:
    _producers.count(at_the_end=True)
    if lost := {name: count for name, count in _producers.lost.items() if count}:
        _log.warning(
            "the process ends with producers open: %d records of %s are not written, or are not known to be; close "
            "them, or use them in an async with block",
            sum(lost.values()),
            ", ".join(map(repr, sorted(lost))),
        )


def _forked() -> None:
    """A child has no part in what its parent took."""
    global _producers
    _producers = _Producers()


os.register_at_fork(after_in_child=_forked)
