"""The brokers' answers to the records that a command sends. A thread waits for them in order, and prints them.

A bounded queue stands between this thread and the thread that sends. So a fast sender waits for the brokers.
"""

from __future__ import annotations

import concurrent.futures
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from minilog.errors import MinilogError
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.common import print_json

# The most answers that are outstanding at once. That many hold the lines of several linger times in little memory.
_OUTSTANDING = 20_000


class Answers:
    """The outstanding answers of one command. `documents` makes the JSON documents of an answer, and is None without
    --json. `unit` is the word for the counted things."""

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
        """Wait for one more answer. It is for `count` records, which end at `place`. Raises the failure of an earlier
        answer."""
        if self._failure is not None:
            self._raise()
        self._waiting.put((answer, count, place))

    def finish(self) -> None:
        """Wait until all answers are in. Raises the first failure."""
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
