"""What a signal handler may set and the main thread may wait for.

threading.Event is not that: where the signal comes while the main thread is inside wait(), the handler runs inside it,
and set() waits for ever for the lock that wait() holds.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterable
from typing import Protocol


class Stoppable(Protocol):
    """Something that says when to stop: a threading.Event, or a StopSignal."""

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; whether to stop."""
        ...


class StopSignal:
    """Set for good by the first signal. A pipe: writing to it is safe at any moment."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        for number in numbers:
            signal.signal(number, self._set)

    def _set(self, number: int, frame: object) -> None:
        with contextlib.suppress(BlockingIOError):  # full of signals: it is set
            os.write(self._write, b"x")

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; whether a signal came."""
        readable, _, _ = select.select([self._read], [], [], timeout)
        return bool(readable)
