"""The futures of `send` for threads: a hundred thousand a second, so those of one batch share what becomes of it.

A concurrent.futures.Future makes a condition, a lock, two lists and a dictionary of its own, which the garbage
collector then walks: more than all the rest of `send` costs. One of these is a reference to its batch's outcome, and
its number in the batch; nobody but the program holds it. Sharing is sound because the futures of a batch are all done
at the same moment, under the shared lock: no waiter is ever woken whose future is still open. (`Future` counts on
that.) For the same reason they cannot be cancelled; a record that was taken is on its way anyhow.

Who waits takes the lock. Callbacks, and a look at what is done, do without: the state is set before the callbacks are
taken out, and who adds one looks at the state afterwards. So one of the two finds it, and takes it out of a list of its
own, which gives it once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from minilog.types import RecordMetadata

_log = logging.getLogger(__name__)

# Of all batches: concurrent.futures.wait takes the locks of all its futures at once, in the order of the futures' ids,
# which is no order of batches. So with a lock for each two threads could wait for each other.
_LOCK = threading.RLock()
_PENDING, _FINISHED = "PENDING", "FINISHED"  # concurrent.futures' own words
_calling_back = 0  # the thread that finds out what becomes of batches, while it calls back


class _SharedCondition(threading.Condition):
    """Its block begins with the lock's own, in C: an exception that a signal raises cannot come between the lock's
    being taken and the block, which would leave it taken for ever, for all batches."""

    __enter__ = staticmethod(_LOCK.__enter__)
    __exit__ = staticmethod(_LOCK.__exit__)


def leave_locks_behind() -> None:
    """In a forked child: a thread of the parent may have held it."""
    _LOCK._at_fork_reinit()  # type: ignore[attr-defined]


class BatchOutcome:
    """What became of a batch's records, once it is known; and who waits for one of them. The Completion of a batch of
    records. `place_of` tells the place of a record from its number in the batch and the offset of the first one."""

    __slots__ = ("_base_offset", "_callbacks", "_place_of", "_waited", "condition", "exception", "state")

    def __init__(self, place_of: Callable[[int, int], RecordMetadata]) -> None:
        self._place_of = place_of
        self._base_offset = -1
        self.condition = _SharedCondition(_LOCK)
        self.state = _PENDING
        self.exception: BaseException | None = None
        self._waited: list[RecordFuture] = []  # those that somebody waits for
        self._callbacks: deque[tuple[RecordFuture, list[Callable[[RecordFuture], object]]]] = deque()

    def add(self, future: RecordFuture, number: int) -> None:
        """It is that of the record of this number in the batch."""
        future._outcome = self
        future._number = number

    def place(self, number: int) -> RecordMetadata | None:
        """Of a record that is written."""
        written = self.state is _FINISHED and self.exception is None
        return self._place_of(number, self._base_offset) if written else None

    def waited(self, future: RecordFuture) -> None:
        """Somebody waits for it; under the condition."""
        if self.state is _PENDING:
            self._waited.append(future)

    def when_done(self, future: RecordFuture, callback: Callable[[RecordFuture], object]) -> None:
        """Call back once, with that future: here where it is known by now, and no callback of anybody else."""
        if self.state is _PENDING:
            mine = [callback]
            self._callbacks.append((future, mine))
            if self.state is not _PENDING:  # it came meanwhile: the loop may have looked before
                _call(future, mine)
        else:
            _call(future, [callback])

    def delivered(self, base_offset: int) -> None:
        """All are written."""
        self._base_offset = base_offset
        self._finish(None)

    def failed(self, error: BaseException) -> None:
        """None is, as far as is known."""
        self._finish(error)

    def leave(self, error: BaseException) -> None:
        """In a forked child: it is the parent's. Nobody is called back, and nobody waits."""
        if self.state is _PENDING:
            self.exception, self.state = error, _FINISHED

    def check_may_wait(self) -> None:
        """Raises RuntimeError in the thread that completes futures, whose callbacks would wait for themselves."""
        if self.state is _PENDING and threading.get_ident() == _calling_back:
            raise RuntimeError(
                "a callback waits for the result of a record, which this thread is to find out: add a callback to its "
                "future, or wait in another thread"
            )

    def _finish(self, error: BaseException | None) -> None:
        with self.condition:
            self.exception, self.state = error, _FINISHED
            waited, self._waited = self._waited, []
            for future in waited:
                for waiter in future._waiters:
                    (waiter.add_result if error is None else waiter.add_exception)(future)
            self.condition.notify_all()
        self._call_back()

    def _call_back(self) -> None:
        global _calling_back
        _calling_back = threading.get_ident()
        while self._callbacks:
            _call(*self._callbacks.popleft())
        _calling_back = 0


def _call(future: RecordFuture, callback: list[Callable[[RecordFuture], object]]) -> None:
    """Whoever takes the one callback out of its list calls it: a list gives it once."""
    try:
        taken = callback.pop()
    except IndexError:
        return
    try:
        taken(future)
    except Exception:
        _log.exception("a callback of %r failed", future)


class RecordFuture(Future[RecordMetadata]):
    """One record's future; usable once it was added to its batch's outcome."""

    __slots__ = ("_number", "_outcome", "_waiting")

    _outcome: BatchOutcome
    _number: int
    _waiting: list[Any]

    def __init__(self) -> None:  # the parent's is not called: what it makes is the outcome's
        pass

    def cancel(self) -> bool:
        """Never possible."""
        return False

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        return self._outcome.state is _FINISHED

    def add_done_callback(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        """Call `fn` with this future once it is done; at once where it is. An exception of it is logged."""
        self._outcome.when_done(self, fn)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """As of any future: the record's place. Raises RuntimeError in a callback, where it would never come."""
        self._outcome.check_may_wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of any future: None where the record is written. Raises RuntimeError as `result`."""
        outcome = self._outcome
        outcome.check_may_wait()
        return outcome.exception if outcome.state is _FINISHED else super().exception(timeout)

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
        """What concurrent.futures.wait and as_completed leave here."""
        try:
            return self._waiting
        except AttributeError:
            self._waiting = []
            self._outcome.waited(self)
            return self._waiting
