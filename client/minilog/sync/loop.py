"""The background event loop that all blocking clients of a process share: grpc.aio objects must live on one loop.

A daemon thread, begun with the first client. A forked child begins its own; clients made before the fork belong to the
parent and say so.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from minilog.errors import Closed, ResourceExhausted

_Result = TypeVar("_Result")
_STOP_S = 2.0  # at exit, for what is still under way


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="minilog-client", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ResourceExhausted(
                f"the thread of the minilog clients cannot be started ({error}): raise this process's limit of threads"
            ) from error

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Start `work` on the loop. Raises Closed in a forked child."""
        if os.getpid() != self.process_id:
            work.close()
            raise Closed("this client was made before the process forked: make a new one in the child")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run `work` to its end and return its result; an interrupt of the caller cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a blocking minilog call was made from a callback of its own loop: call it from another thread"
            )
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel everything and end the thread."""
        if os.getpid() != self.process_id or self._loop.is_closed():
            return
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(_STOP_S)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


_shared: LoopThread | None = None
_guard = threading.Lock()


def shared_loop() -> LoopThread:
    """The loop of this process, begun if need be."""
    global _shared
    with _guard:
        if _shared is None or _shared.process_id != os.getpid():
            _shared = LoopThread()
            atexit.register(_shared.stop)
        return _shared


def _fresh_guard() -> None:
    global _guard
    _guard = threading.Lock()  # the parent's may have been held at the fork


os.register_at_fork(after_in_child=_fresh_guard)
