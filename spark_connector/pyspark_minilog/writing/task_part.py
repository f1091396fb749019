"""A task's part in a transaction. It begins with the first row of the task, or some time before it.

A task without rows does not call the coordinator. But the first row of a task may take long to compute, while other
tasks have written in the same transaction. Without a sign of life the coordinator aborts the transaction. So a task
that has waited for some time enlists without a row, and from then on its producer gives the signs of life.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Self, TypeVar

_Part = TypeVar("_Part")


class TaskPart(Generic[_Part]):
    """`begin(stack)` enlists, and puts the end of the part on the stack, which runs it when the block ends."""

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
        """Enlist without a row, because no row has come for some time. `begun` raises an error of this call."""
        with self._guard:
            if self._is_over or self._part is not None:
                return
            try:
                self._part = self._begin(self._stack)
            except Exception as error:
                self._failure = error

    def begun(self, *, has_rows: bool) -> _Part | None:
        """The part, or None if the task has no row and the part has not begun before. Raises the errors of `begin`."""
        self._timer.cancel()
        with self._guard:
            if self._failure is not None:
                raise self._failure
            if self._part is None:
                self._is_over = True  # the timer may be on its way
                self._part = self._begin(self._stack) if has_rows else None
            return self._part
