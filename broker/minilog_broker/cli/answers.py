"""What the brokers answer to what a command sends: waited for in order, on a thread of its own, and printed.

Between the thread that sends and this one stands a bounded queue, so that who sends fast waits for the brokers.
"""

from __future__ import annotations

import concurrent.futures
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from minilog.errors import MinilogError
from minilog_broker.cli.common import print_json
from minilog_broker.failure import CommandFailed

# Answers outstanding at a time: some linger times' worth of lines, and little memory.
_OUTSTANDING = 20_000


class Answers:
    """`documents`: what is printed of an answer where JSON is wanted. `unit` is what is counted."""

    def __init__(self, documents: Callable[[Any], list[dict[str, Any]]] | None, unit: str = "records") -> None:
        self.acknowledged = 0
        self.place = ""
        self._documents = documents
        self._unit = unit
        self._failure: BaseException | None = None
        self._waiting: queue.Queue[tuple[concurrent.futures.Future[Any], int, str] | None] = queue.Queue(_OUTSTANDING)
        self._thread = threading.Thread(target=self._print_all, name="produce-answers", daemon=True)
        self._thread.start()

    def expect(self, answer: concurrent.futures.Future[Any], count: int = 1, place: str = "") -> None:
        """One more answer to wait for, to `count` records that end at `place`; the failure of an earlier one is raised
        here."""
        if self._failure is not None:
            self._raise()
        self._waiting.put((answer, count, place))

    def finish(self) -> None:
        """Until all answers are in; the first failure is raised."""
        self._waiting.put(None)
        self._thread.join()
        if self._failure is not None:
            self._raise()

    def _raise(self) -> None:
        if isinstance(self._failure, MinilogError):
            outcome = f"{self.acknowledged} {self._unit} were acknowledged{self.place and f', up to {self.place}'}"
            raise CommandFailed(f"{self._failure} ({outcome})") from None
        if self._failure is not None:
            raise self._failure

    def _print_all(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            if self._failure is None:
                self._print_one(*waiting)

    def _print_one(self, answer: concurrent.futures.Future[Any], count: int, place: str) -> None:
        try:
            result = answer.result()
            self.acknowledged += count
            self.place = place
            if self._documents is not None:
                for document in self._documents(result):
                    print_json(document)
                if self._waiting.empty():
                    sys.stdout.flush()
        except BaseException as error:
            self._failure = error
