"""One warning at the end of a process whose producers for asyncio drop records.

A producer that the program does not close sends while its event loop runs. If the loop ends first, the records are lost
without an error, because no task waits for their futures. The loop of blocking producers reports their records
(sync/loop.py).
"""

from __future__ import annotations

import atexit
import logging
import os
from collections import Counter

from minilog.aio.producer_shell import ProducerShell

_log = logging.getLogger(__name__)


class _Producers:
    """The producers of this process that began to send and are not closed. If the loop of a producer has ended, this
    drops the producer, and counts its records."""

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
    """Note an open producer, until `closed`."""
    _producers.count(at_the_end=False)
    _producers.open[shell] = None


def closed(shell: ProducerShell) -> None:
    _producers.open.pop(shell, None)


@atexit.register
def _warn() -> None:
    _producers.count(at_the_end=True)
    if lost := {name: count for name, count in _producers.lost.items() if count}:
        _log.warning(
            "the process ends with producers open: %d records of %s are not written, or their outcome is not known. "
            "Close the producers, or use them in an async with block",
            sum(lost.values()),
            ", ".join(map(repr, sorted(lost))),
        )


def _forked() -> None:
    """A child has no part in the records of its parent."""
    global _producers
    _producers = _Producers()


os.register_at_fork(after_in_child=_forked)
