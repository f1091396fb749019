"""A consumer of a queue for threads: its shell reads the clock of the program's thread."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from minilog.aio.queue_shell import QueueConsumerShell
from minilog.config import parse_queue_config
from minilog.errors import MinilogError
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.sync.base import Blocking
from minilog.sync.loop import shared_loop


class QueueConsumerBase(Blocking):
    """The shell of a queue's worker, and its end."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._shell = QueueConsumerShell(parse_queue_config(config), SYSTEM_RUNTIME, time.monotonic)
        self._loop = shared_loop()
        self._closed = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except MinilogError as late:
            if error is None:
                raise
            error.add_note(f"and when the queue consumer was closed: {late}")

    def _start(self) -> None:
        if self._closed:
            self._loop.run(self._shell.wait(0.0))  # raises Closed

    def _close(self) -> None:
        """Close the connections. It does not wait for the coordinator after an interrupt."""
        if not self._closed:
            self._closed = True
            bound = self._shell.config.request_timeout_ms / 1000.0
            self._loop.close(lambda: self._shell.close(bound), lambda: self._shell.close(0.0))
