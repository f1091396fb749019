"""A task's part in a transaction: begun with its first row, or a while before it.

A task without rows calls nobody. But one whose first row takes long to compute must keep the transaction alive, in
which other tasks may have written already: without a sign of life it is aborted. So a task that has waited for a while
enlists without a row; from then on its producer gives the signs of life.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Self, TypeVar

_Part = TypeVar("_Part")


class TaskPart(Generic[_Part]):
    """`begin(stack)` enlists, and leaves on the stack what ends the part when the block is left."""

    def __init__(self, begin: Callable[[ExitStack], _Part], early_s: float) -> None:
        self._begin = begin
        self._stack = ExitStack()
        self._guard = threading.Lock()
        self._is_over = False
        self._part: _Part | None = None
        self._failure: Exception | None = None
        self._timer = threading.Timer(early_s, self.begin_early)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._guard:
            self._is_over = True
            self._stack.__exit__(kind, error, trace)

    def begin_early(self) -> None:
        """No row has come for a while: enlist without one. What goes wrong is raised by `begun`."""
        with self._guard:
            if self._is_over or self._part is not None:
                return
            try:
                self._part = self._begin(self._stack)
            except Exception as error:
                self._failure = error

    def begun(self, *, has_rows: bool) -> _Part | None:
        """The part; None where there is no row, and it was not begun before. Raises what `begin` raises."""
        self._timer.cancel()
        with self._guard:
            if self._failure is not None:
                raise self._failure
            if self._part is None:
                self._is_over = True  # the timer may be on its way
                self._part = self._begin(self._stack) if has_rows else None
            return self._part
