"""What a program does one thing after another, written so: coroutines whose every step is an event of their process.

    async def work() -> None:
        answer = await something      # a Promise; goes on in this coroutine's process, if that still lives
    done = spawn(process, work())     # a Promise of what it returns

A coroutine of a process that ended does not go on, ever; of one that is stopped, later. One that raises breaks the run:
errors that a program expects it catches itself.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from tests.simulation.process import Process

_T = TypeVar("_T")


class Promise(Generic[_T]):
    """What will be known, or not. `keep` once; later calls change nothing."""

    __slots__ = ("_known", "_result", "_waiting")

    def __init__(self) -> None:
        self._known = False
        self._result: _T | None = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def kept(self) -> bool:
        return self._known

    def keep(self, result: _T) -> None:
        if not self._known:
            self._known, self._result = True, result
            waiting, self._waiting = self._waiting, []
            for go_on in waiting:
                go_on()

    def when_kept(self, go_on: Callable[[], None]) -> None:
        if self._known:
            go_on()
        else:
            self._waiting.append(go_on)

    def __await__(self) -> Generator[Promise[_T], None, _T]:
        if not self._known:
            yield self
        return self._result  # type: ignore[return-value]


def spawn(process: Process, work: Coroutine[Any, Any, _T]) -> Promise[_T]:
    """Begin `work` in `process` now. A process that has ended begins nothing."""
    done: Promise[_T] = Promise()

    def step(_: object) -> None:
        try:
            awaited: Promise[Any] = work.send(None)
        except StopIteration as end:
            done.keep(end.value)
            return
        awaited.when_kept(lambda: process.after(0.0, step))

    if process.alive:
        process.run(step)
    else:
        work.close()
    return done


def sleep(process: Process, ms: float) -> Promise[None]:
    """Kept in `ms` of virtual time."""
    passed: Promise[None] = Promise()
    process.after(ms, passed.keep)
    return passed


def first_of(*promises: Promise[Any]) -> Promise[None]:
    """Kept when one of them is."""
    any_kept: Promise[None] = Promise()
    for each in promises:
        each.when_kept(lambda: any_kept.keep(None))
    return any_kept
