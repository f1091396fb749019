"""What a signal handler may set and the main thread may wait for.

threading.Event is not that: where the signal comes while the main thread is inside wait(), the handler runs inside it,
and set() waits for ever for the lock that wait() holds.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterable, Iterator
from typing import Protocol

INTERRUPTED = "minilog: interrupted"


@contextlib.contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """For the length of an import: an interrupt ends the process.

    As KeyboardInterrupt it may be raised in a callback of the import system, where Python ignores it ("Exception
    ignored in"): the process would go on as if nobody had asked. Nothing is begun yet that could be left half done.
    """

    def end(number: int, frame: object) -> None:
        os.write(2, f"{INTERRUPTED}\n".encode())
        os._exit(1)

    former = signal.getsignal(signal.SIGINT)
    if former is not signal.SIG_IGN:  # else whoever started this process wants it to go on
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


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
