"""An event loop on virtual time for many processes: each callback belongs to the process that asked for it.

A process that is dead runs nothing more; one that stands still has its callbacks kept until it goes on, in their order.
Whose a callback is, its context says (PROCESS). Time passes only where nobody has anything to do. What a dead process
awaits is kept: else Python would run its `finally`.

Each process has a clock of its own: an origin and a rate. `time()` and what is asked for "at" a time are by the clock
of whoever asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

_T = TypeVar("_T")

SPINS = 200_000  # callbacks at one moment: whoever asks again at once, for ever, would stop all time
_SLACK_S = 1e-9  # a clock's rounding wakes nobody early


class Deadlock(Exception):
    """Nothing will ever happen again."""


class Spin(Exception):
    """Callbacks go on for ever at one moment."""


class Process:
    """One process on the loop. `rate`: its clock's seconds per true one. `callbacks_left`: it dies behind so many, in
    the middle of whatever it does; None: it lives. `busy_s`: how long its threads have worked so far. `pauses_s`: from
    when until when it stood still, in true seconds."""

    def __init__(self, name: str, origin_s: float = 0.0, rate: float = 1.0) -> None:
        self.name = name
        self.origin_s, self.rate = origin_s, rate
        self.dead = False
        self.stands_still = False
        self.pauses_s: list[tuple[float, float]] = []
        self._stopped_s = 0.0
        self.callbacks_left: int | None = None
        self.die: Callable[[], None] = _live_on
        self.busy_s: Callable[[], float] = _no_time
        self.threads = 0  # that run now, beside the loop's
        self.tasks: set[asyncio.Task[Any]] = set()
        self.waiting: deque[asyncio.Handle] = deque()  # kept for good when it is dead

    def __repr__(self) -> str:
        return f"Process({self.name})"

    def stop(self, now_s: float) -> None:
        """It stands still."""
        if not self.stands_still:
            self.stands_still, self._stopped_s = True, now_s

    def go_on(self, now_s: float) -> None:
        """It stands still no more."""
        if self.stands_still:
            self.stands_still = False
            self.pauses_s.append((self._stopped_s, now_s))

    @contextlib.contextmanager
    def thread(self) -> Iterator[None]:
        """What is done in it is done by a thread of its own, and not by the loop's."""
        self.threads += 1
        try:
            yield
        finally:
            self.threads -= 1

    def context(self) -> contextvars.Context:
        """A context of this process, for what begins in it."""
        context = contextvars.Context()
        context.run(PROCESS.set, self)
        return context


def _live_on() -> None:
    """Nobody has asked for its death."""


def _no_time() -> float:
    """Threads that take no time."""
    return 0.0


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class _OwnedFuture(asyncio.Future[Any]):
    """Of the process that made it."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.process = PROCESS.get()


class _OwnedTask(asyncio.Task[Any]):
    """Of the process in whose context it runs."""

    def __init__(self, coro: Any, *, process: Process | None, **given: Any) -> None:
        super().__init__(coro, **given)
        self.process = process


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module's text. `now_s`: true time, from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.events = 0
        self._at_once = 0  # callbacks since time passed last
        self._clock_resolution = _SLACK_S
        self.connect: Callable[[str, int], Coroutine[Any, Any, None]] | None = None
        self.set_task_factory(_task)
        self._handlers: dict[Process | None, Handler | None] = {}

    # -- time

    def time(self) -> float:
        process = PROCESS.get()
        return self.now_s if process is None else process.origin_s + process.rate * self.now_s

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        process = PROCESS.get()
        if process is not None:
            when = (when - process.origin_s) / process.rate + _SLACK_S
        return super().call_at(when, callback, *args, context=context)

    def after(
        self, delay_s: float, callback: Callable[..., object], *args: Any, process: Process | None = None
    ) -> asyncio.TimerHandle:
        """In true seconds from now; of `process`, or of nobody."""
        context = NOBODY if process is None else process.context()
        return super().call_at(self.now_s + delay_s, callback, *args, context=context)

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready:
            if not scheduled:
                raise Deadlock("nothing will ever happen again")
            self.now_s = max(self.now_s, scheduled[0]._when)
            self._at_once = 0
        while scheduled and scheduled[0]._when <= self.now_s:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        self._at_once += len(ready)
        if self._at_once > SPINS:
            raise Spin(f"more than {SPINS} callbacks at {self.now_s} s: {ready[0]!r}")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)
            if process is not None and (process.dead or process.stands_still):
                process.waiting.append(handle)
                continue
            if process is not None and process.callbacks_left is not None and _dies(process):
                process.waiting.append(handle)
                continue
            self.events += 1
            handle._run()

    # -- processes

    def stand_still(self, process: Process) -> None:
        """SIGSTOP, or a machine that does something else."""
        process.stop(self.now_s)

    def go_on(self, process: Process) -> None:
        """SIGCONT: what came meanwhile is there all at once, and the clock has gone on."""
        process.go_on(self.now_s)
        if not process.dead:
            self._ready.extend(process.waiting)  # type: ignore[attr-defined]
            process.waiting.clear()

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of that process."""
        return self.create_task(work, context=process.context())

    # -- errors that nobody took

    def set_exception_handler(self, handler: Handler | None) -> None:
        """Of the process that runs; where none does, of all that have none."""
        self._handlers[PROCESS.get()] = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell the process whose error it is, whoever runs now: what nobody holds any more may have gone anywhere."""
        of = context.get("future") or context.get("task")
        process = of.process if isinstance(of, _OwnedFuture | _OwnedTask) else PROCESS.get()
        if process is not None and process.dead:
            return
        handler = self._handlers.get(process)
        if handler is None and isinstance(of, _OwnedFuture):
            return  # a program that does not look at what became of its records: Python tells its log
        handler = handler or self._handlers.get(None)
        if handler is not None:
            handler(self, context)

    def create_future(self) -> asyncio.Future[Any]:
        return _OwnedFuture(loop=self)

    # -- what a loop does besides

    def _process_events(self, event_list: object) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in one."""

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """A thread is not seen by the others before it is done: its work is done at once, and told when it would be."""
        future = self.create_future()
        process = PROCESS.get()
        busy_s = _no_time if process is None else process.busy_s
        began_s, result, failure = busy_s(), None, None
        try:
            with contextlib.nullcontext() if process is None else process.thread():
                result = func(*args)
        except Exception as error:
            failure = error
        except BaseException:
            if process is None or not process.dead:
                raise
            return future  # of a process that died in it: nobody waits for that any more
        took_s = busy_s() - began_s
        if took_s > 0.0:
            self.after(took_s, _settle, future, result, failure, process=process)
        else:
            _settle(future, result, failure)
        return future

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        """A probe: whether somebody listens there."""
        assert self.connect is not None
        await self.connect(host, port)
        protocol, transport = protocol_factory(), _Probe()
        protocol.connection_made(transport)
        return transport, protocol


def _settle(future: asyncio.Future[Any], result: object, failure: Exception | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)


def _dies(process: Process) -> bool:
    """One callback less is left to a process whose death was asked for; whether it is dead now."""
    assert process.callbacks_left is not None
    process.callbacks_left -= 1
    if process.callbacks_left >= 0:
        return False
    process.callbacks_left = None
    process.die()
    return process.dead


def play(scenario: Coroutine[Any, Any, _T]) -> _T:
    """Run a scenario in virtual time."""
    with contextlib.closing(VirtualLoop()) as loop:
        return loop.run_until_complete(scenario)


class _Probe(asyncio.Transport):
    """Nothing is sent on it."""

    def close(self) -> None:
        """It is gone."""

    def is_closing(self) -> bool:
        return False


def _task(loop: asyncio.AbstractEventLoop, coro: Any, **given: Any) -> asyncio.Task[Any]:
    context = given.get("context")
    process = PROCESS.get() if context is None else context.get(PROCESS)
    task = _OwnedTask(coro, process=process, loop=loop, **given)
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard, context=NOBODY)
    return task


NOBODY = contextvars.Context()
