"""The background event loop that all blocking clients of a process share. Objects of grpc.aio must live on one loop.

The loop has a daemon thread, which begins with the first client and ends with the process. At the end it reports the
records that producers have not written, and from then on every call ends at once (processes.md). A forked child has no
part in its parent's loop.

Callers wait in C (queue.SimpleQueue), and not in threading.Condition. With a Condition a signal may raise an exception
after the caller has taken the lock and before its block begins. Then the loop would wait for that lock for ever.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from minilog.errors import Closed, ResourceExhausted
from minilog.net.event_loop import new_event_loop
from minilog.net.home import Home, closed_by_fork
from minilog.producer.futures import leave_locks_behind

if TYPE_CHECKING:  # a process with only an Admin or a Consumer does not load it
    from minilog.aio.producer_shell import ProducerShell

_Result = TypeVar("_Result")
_STOP_S = 2.0  # the time that the end of the process gives to the work under way
_log = logging.getLogger(__name__)


class _Call(Generic[_Result]):
    """A call of the loop from another thread. `answers` gets the task when it is done, or None if it will never run."""

    def __init__(self, work: Coroutine[Any, Any, _Result]) -> None:
        self.answers: SimpleQueue[asyncio.Task[_Result] | None] = SimpleQueue()
        self._work = work
        self._task: asyncio.Task[_Result] | None = None
        self._is_given_up = False

    def start(self) -> None:
        """Begin the work. The loop calls this."""
        if not self._is_given_up:
            self._task = asyncio.get_running_loop().create_task(self._work)
            self._task.add_done_callback(self._done)

    def give_up(self) -> None:
        """Cancel the work. The loop calls this."""
        self._is_given_up = True
        if self._task is None:
            self._work.close()
        else:
            self._task.cancel()

    def end(self) -> None:
        """End the call when no loop runs any more."""
        if self._task is None:
            self._work.close()
        self.answers.put(None)

    def _done(self, task: asyncio.Task[_Result]) -> None:
        if not task.cancelled():
            task.exception()  # asyncio logs an exception that no code reads, and the caller may have gone
        self.answers.put(task)


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._home = Home()
        self._producers: dict[ProducerShell, None] = {}  # the open ones
        self._calls: set[_Call[Any]] = set()
        self._is_stopped = self._has_ended = False
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name="minilog-client", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ResourceExhausted(
                f"this process cannot start the thread of the minilog clients ({error}): raise its limit of threads"
            ) from error

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._end_calls()

    @property
    def is_of_parent(self) -> bool:
        """Whether the loop belongs to the parent of this process, which forked."""
        return self._home.is_of_parent

    @property
    def is_gone(self) -> bool:
        """Whether the loop does no more work for this process."""
        return self._is_stopped or self.is_of_parent

    @property
    def has_reported(self) -> bool:
        """Whether the process is at its end, and the loop has reported the records of all producers."""
        return self._is_stopped and not self.is_of_parent

    def is_current(self) -> bool:
        """Whether the caller is on the loop's thread, such as a callback of a future. It must not wait there."""
        return threading.current_thread() is self._thread

    def check_process(self) -> None:
        """Raises Closed in a forked child."""
        self._home.check_process()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run `work` to its end and return its result. An interrupt of the caller cancels it.

        Raises Closed in a forked child and at the end of the process, RuntimeError in a callback of this loop."""
        try:
            self._check()
        except BaseException:
            work.close()
            raise
        call = _Call(work)
        self._calls.add(call)
        try:
            self._loop.call_soon_threadsafe(call.start)
            if self._has_ended:  # `_end_calls` may have missed this call
                call.end()
            task = call.answers.get()
        except BaseException:
            self._loop.call_soon_threadsafe(call.give_up)
            raise
        finally:
            self._calls.discard(call)
        if task is None or (task.cancelled() and self._is_stopped):
            raise _at_the_end()
        if task.cancelled():
            raise CancelledError
        return task.result()

    def close(self, closing: Callable[[], Coroutine[Any, Any, None]], hurried: Callable[[], Any] | None = None) -> None:
        """Close a client. If the loop is gone, the client is closed already. On an interrupt this closes it by
        `hurried`, and then raises the interrupt."""
        if self.is_gone:
            return
        try:
            self.run(closing())
        except BaseException:
            if not self.is_gone:
                self.run((hurried or closing)())
            raise

    def post(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do this work later, if the loop still runs. Any thread may call it. It takes no lock."""
        if not self.is_gone:
            self._loop.call_soon_threadsafe(lambda: _kept(self._loop.create_task(work())))

    def _check(self) -> None:
        self.check_process()
        if self.is_current():
            raise RuntimeError(
                "a callback made a blocking minilog call on the thread of its own loop: call it from another thread"
            )
        if self._is_stopped:
            raise _at_the_end()

    # -- producers, whose records the loop reports at the end

    def opened(self, producer: ProducerShell) -> None:
        """Note an open producer, until `closed`."""
        self._producers[producer] = None

    def closed(self, producer: ProducerShell) -> None:
        self._producers.pop(producer, None)

    def forked(self) -> None:
        """Let the parent's producers refuse every call in the child. The child waits for no lock of the parent."""
        for producer in self._producers:
            producer.accumulator.forked(closed_by_fork())

    # -- the end of the process

    def stop(self) -> None:
        """Report the unwritten records, cancel all work, and end the thread."""
        if self.is_gone:
            return
        self._is_stopped = True
        ended: SimpleQueue[list[str]] = SimpleQueue()
        self._loop.call_soon_threadsafe(lambda: _kept(self._loop.create_task(self._end(ended))))
        losses: list[str] = []
        with contextlib.suppress(Empty):
            losses = ended.get(timeout=_STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)
        self._end_calls()
        for loss in losses:
            _warn(loss)

    async def _end(self, ended: SimpleQueue[list[str]]) -> None:
        losses = []
        for producer in list(self._producers):
            producer.accumulator.refuse(_at_the_end())
            count = producer.accumulator.unsettled_records()
            if count:
                losses.append(
                    f"the process ends with producer {producer.config.client_id!r} open: {count} of its records are "
                    "not written, or their outcome is not known. Close it, or use it in a with block"
                )
        async with asyncio.timeout(_STOP_S / 2):
            await asyncio.gather(*(producer.close(0.0) for producer in self._producers), return_exceptions=True)
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        ended.put(losses)
        await asyncio.gather(*others, return_exceptions=True)

    def _end_calls(self) -> None:
        self._has_ended = True
        for call in list(self._calls):
            call.end()


def _at_the_end() -> Closed:
    return Closed("the process ends, and its clients have ended: use them before the end of the program")


def _warn(loss: str) -> None:
    """Warn by logging, which writes to stderr by default. If a handler fails, such as one that needs a client itself,
    print instead."""
    try:
        _log.warning(loss)
    except Exception:
        print(loss, file=sys.stderr)


_tasks: set[asyncio.Task[None]] = set()


def _kept(task: asyncio.Task[None]) -> None:
    """Hold a task until it ends: the loop holds tasks only weakly."""
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


_shared: LoopThread | None = None
_guard = threading.Lock()


def shared_loop() -> LoopThread:
    """The loop of this process. The first call starts it. Raises Closed at the end of the process."""
    global _shared
    with _guard:
        if _shared is None or _shared.is_of_parent:
            _shared = LoopThread()
            atexit.register(_shared.stop)
        elif _shared.is_gone:
            raise _at_the_end()
        return _shared


def _forked() -> None:
    global _guard
    _guard = threading.Lock()  # a thread of the parent may have held the old one at the fork
    leave_locks_behind()
    if _shared is not None:
        _shared.forked()


os.register_at_fork(after_in_child=_forked)
