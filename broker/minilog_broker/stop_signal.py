"""An event that a signal handler may set and the main thread may wait for.

threading.Event cannot do that. If the signal comes while the main thread is inside wait(), the handler runs inside it,
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
    """Let an interrupt end the process at once, for the length of an import.

    Python may raise KeyboardInterrupt in a callback of the import system, and ignore it there ("Exception ignored in").
    The process would go on in spite of the interrupt. During an import there is no work that could stay half done.
    """

    def end(number: int, frame: object) -> None:
        os.write(2, f"{INTERRUPTED}\n".encode())
        os._exit(1)

    former = signal.getsignal(signal.SIGINT)
    if former is not signal.SIG_IGN:  # a parent that ignores the signal wants this process to go on
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def ending_of(exit_code: int) -> str:
    """How a process ended, for people. `exit_code`: that of subprocess, where a signal is below 0."""
    return f"exit code {exit_code}" if exit_code >= 0 else signal.Signals(-exit_code).name


class Stoppable(Protocol):
    """A source of the request to stop: a threading.Event, or a StopSignal."""

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds. True is the request to stop."""
        ...


class StopSignal:
    """An event that the first signal sets for good. It is a pipe, which a handler can safely write to at any moment."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        for number in numbers:
            signal.signal(number, self._set)

    def _set(self, number: int, frame: object) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full of signals, so the event is set
            os.write(self._write, b"x")

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds. True where a signal has come."""
        readable, _, _ = select.select([self._read], [], [], timeout)
        return bool(readable)
