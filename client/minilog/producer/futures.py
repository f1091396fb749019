"""The futures of `send` for threads: a hundred thousand a second, so those of one batch share what becomes of it.

A concurrent.futures.Future makes a condition, a lock, two lists and a dictionary of its own, which the garbage
collector then walks: more than all the rest of `send` costs. One of these is a reference to its batch's outcome, and
its number in the batch; nobody but the program holds it. Sharing is sound because the futures of a batch are all done
at the same moment, under the shared lock: no waiter is ever woken whose future is still open. (`Future` counts on
that.) For the same reason they cannot be cancelled; a record that was taken is on its way anyhow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from minilog.types import RecordMetadata

# Of all batches: concurrent.futures.wait takes the locks of all its futures at once, in the order of the futures' ids,
# which is no order of batches. So with a lock for each two threads could wait for each other.
_LOCK = threading.RLock()
_PENDING, _FINISHED = "PENDING", "FINISHED"  # concurrent.futures' own words


class BatchOutcome:
    """What became of a batch's records, once it is known; and who waits for one of them. `place_of` tells the place of
    a record from its number in the batch and the offset of the first one."""

    __slots__ = ("_base_offset", "_listened", "_place_of", "condition", "exception", "state")

    def __init__(self, place_of: Callable[[int, int], RecordMetadata]) -> None:
        self._place_of = place_of
        self._base_offset = -1
        self.condition = threading.Condition(_LOCK)
        self.state = _PENDING
        self.exception: BaseException | None = None
        self._listened: list[RecordFuture] = []  # futures that somebody listens to

    def place(self, number: int) -> RecordMetadata | None:
        """Of a record that is written."""
        written = self.state is _FINISHED and self.exception is None
        return self._place_of(number, self._base_offset) if written else None

    def listened(self, future: RecordFuture) -> None:
        """Somebody listens to it; under the condition."""
        if self.state is _PENDING:
            self._listened.append(future)

    def delivered(self, base_offset: int) -> None:
        """All are written."""
        self._base_offset = base_offset
        self._finish(None)

    def failed(self, error: BaseException) -> None:
        """None is, as far as is known."""
        self._finish(error)

    def _finish(self, error: BaseException | None) -> None:
        with self.condition:
            self.exception, self.state = error, _FINISHED
            listened, self._listened = self._listened, []
            for future in listened:
                for waiter in future._waiters:
                    (waiter.add_result if error is None else waiter.add_exception)(future)
            self.condition.notify_all()
        for future in listened:
            future._invoke_callbacks()  # type: ignore[attr-defined]


class RecordFuture(Future[RecordMetadata]):
    """One record's future; usable once it has joined its batch."""

    __slots__ = ("_listeners", "_number", "_outcome")

    def __init__(self) -> None:  # the parent's is not called: what it makes is the outcome's
        pass

    def join(self, outcome: BatchOutcome, number: int) -> None:
        """Belong to a batch, as this record of it."""
        self._outcome = outcome
        self._number = number
        self._listeners: tuple[list[Any], list[Callable[[RecordFuture], object]]] | None = None

    def cancel(self) -> bool:
        """Never possible."""
        return False

    # -- what the parent's methods read; nobody sets any of it

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return self._outcome.condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        return self._outcome.state

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self._outcome.exception

    @property
    def _result(self) -> RecordMetadata | None:  # type: ignore[override]
        return self._outcome.place(self._number)

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self._heard_by()[0]

    @property
    def _done_callbacks(self) -> list[Callable[[RecordFuture], object]]:
        return self._heard_by()[1]

    def _heard_by(self) -> tuple[list[Any], list[Callable[[RecordFuture], object]]]:
        """What concurrent.futures.wait and as_completed leave here, and what add_done_callback does."""
        if self._listeners is None:
            self._listeners = ([], [])
            self._outcome.listened(self)
        return self._listeners
