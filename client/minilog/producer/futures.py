"""The futures of `send` for threads: a hundred thousand a second, so those of one batch share one condition.

A concurrent.futures.Future makes a condition, a lock and a queue of its own, which the garbage collector then walks:
more than all the rest of `send` costs. Sharing is sound because the futures of a batch are all done at the same
moment, under the shared lock: no waiter is ever woken whose future is still open. (`Future` counts on that.)
For the same reason they cannot be cancelled; a record that was taken is on its way anyhow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from minilog.types import RecordMetadata

_PENDING, _FINISHED = "PENDING", "FINISHED"  # concurrent.futures' own words


class RecordFuture(Future[RecordMetadata]):
    """One record's future; usable once it was given its batch's condition."""

    def __init__(self) -> None:  # the parent's is not called: it is what is to be saved
        self._state = _PENDING
        self._result: RecordMetadata | None = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []  # what concurrent.futures.wait and as_completed leave here
        self._done_callbacks: list[Callable[[RecordFuture], object]] = []

    def join(self, condition: threading.Condition) -> None:
        """Belong to the batch with this condition."""
        self._condition = condition

    def cancel(self) -> bool:
        """Never possible."""
        return False


def finish_all(
    futures: Sequence[RecordFuture],
    condition: threading.Condition,
    outcomes: Sequence[RecordMetadata] | BaseException,
) -> None:
    """Complete all futures of one batch at once, each with its place, or all with one error; then run callbacks."""
    with condition:
        for index, future in enumerate(futures):
            if isinstance(outcomes, BaseException):
                future._exception = outcomes
            else:
                future._result = outcomes[index]
            future._state = _FINISHED
            for waiter in future._waiters:
                (waiter.add_result if future._exception is None else waiter.add_exception)(future)
        condition.notify_all()
    for future in futures:
        if future._done_callbacks:
            future._invoke_callbacks()  # type: ignore[attr-defined]
