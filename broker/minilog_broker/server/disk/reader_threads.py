"""Threads that wait for the disk on behalf of readers. Reads from memory need none of them (shells/session_reads.py).

    submitted ──► waits for its turn ──► work, on a thread ──► on_done or on_failed, on the event loop
                        └── not wanted any more ──► on_done(None)

There are a few threads, so that one that is slow or hangs blocks no other read. Their number is bounded, since each
holds the bytes of its read. They take reads in order. A session has one read at a time, so sessions take turns. A new
thread begins when there is work and no thread is free.
"""

from __future__ import annotations

import asyncio
import errno
import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from minilog.errors import MinilogError

logger = structlog.get_logger()

DATA_READERS = 4  # of a broker: as many reads as a disk serves at once without a wait of one for another
METADATA_READERS = 1  # the metadata log has few readers
PAUSE_S = 0.000_25  # long enough for a thread that waits for the interpreter to wake up and to take it
STOP_S = 2.0  # the wait for reads that are under way at the stop: a disk may hang for ever


@dataclass(frozen=True, slots=True)
class DiskRead:
    """A read. `work` waits for the disk, and changes nothing. `is_wanted` is asked on the loop before the work
    begins."""

    work: Callable[[], Any]
    on_done: Callable[[Any], None]
    on_failed: Callable[[OSError | MinilogError], None]
    is_wanted: Callable[[], bool] = lambda: True


class Readers(Protocol):
    """Carries out reads."""

    def submit(self, read: DiskRead) -> None:
        """Carry out a read in its turn. One of its callbacks is made, once, on the event loop."""

    @property
    def waiting(self) -> int:
        """The number of reads that are under way, or wait for a thread."""

    @property
    def step(self) -> int | None:
        """The number of ended reads, where all threads are reading; else None (disk_stall.py)."""

    def pause(self, seconds: float = PAUSE_S) -> None:
        """For long work on one of the threads: let the event loop and the disk serve others before it goes on.

        Raises OSError where the threads stop meanwhile."""

    async def stop(self) -> None:
        """Take no more reads, and let those under way end."""


async def result_of(readers: Readers, work: Callable[[], Any]) -> Any:
    """The result of a read. Raises its error."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def failed(error: BaseException) -> None:
        if not future.done():
            future.set_exception(error)

    def done(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    readers.submit(DiskRead(work, done, failed, is_wanted=lambda: not future.done()))
    return await future


class ReadTurns:
    """The order of reads, on the event loop. Threads use it, and so do the simulator's readers."""

    def __init__(self, most: int, begin: Callable[[DiskRead], None]) -> None:
        self._most = most
        self._begin = begin
        self._under_way = 0
        self._ended_count = 0
        self._waiting: deque[DiskRead] = deque()
        self._ended = False

    @property
    def waiting(self) -> int:
        return self._under_way + len(self._waiting)

    @property
    def under_way(self) -> int:
        return self._under_way

    @property
    def step(self) -> int | None:
        return self._ended_count if self._under_way == self._most else None

    def submit(self, read: DiskRead) -> None:
        if not self._ended:
            self._waiting.append(read)
            self._go_on()

    def ended(self, tell: Callable[[], None]) -> None:
        """Note the end of a read, and make its callback."""
        self._under_way -= 1
        self._ended_count += 1
        self._go_on()
        if not self._ended:
            tell()

    def end(self) -> None:
        """Begin no more reads, and make no more callbacks."""
        self._ended = True
        self._waiting.clear()

    def _go_on(self) -> None:
        while self._waiting and self._under_way < self._most:
            read = self._waiting.popleft()
            if read.is_wanted():
                self._under_way += 1
                self._begin(read)
            else:
                read.on_done(None)


def carry_out(read: DiskRead) -> Callable[[], None]:
    """Do the work of a read, on a thread. Gives the callback for the event loop."""
    try:
        result = read.work()
    except (OSError, MinilogError) as error:
        failure = error
        return lambda: read.on_failed(failure)
    return lambda: read.on_done(result)


class ReaderThreads:
    """The threads that carry out reads. They call `on_crash` with an error of our own code."""

    def __init__(
        self, name: str, most: int, loop: asyncio.AbstractEventLoop, on_crash: Callable[[BaseException], None]
    ) -> None:
        self._name = name
        self._most = most
        self._loop = loop
        self._on_crash = on_crash
        self._turns = ReadTurns(most, self._begin)
        self._queue: queue.SimpleQueue[DiskRead | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._stops = threading.Event()

    def submit(self, read: DiskRead) -> None:
        self._turns.submit(read)

    @property
    def waiting(self) -> int:
        return self._turns.waiting

    @property
    def step(self) -> int | None:
        return self._turns.step

    def pause(self, seconds: float = PAUSE_S) -> None:
        if self._stops.wait(seconds):
            raise OSError(errno.ECANCELED, "the broker stops")

    def _begin(self, read: DiskRead) -> None:
        if len(self._threads) < self._turns.under_way:
            thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put(read)

    async def stop(self) -> None:
        self._turns.end()
        self._stops.set()
        for _ in self._threads:
            self._queue.put(None)
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(STOP_S)
            if thread.is_alive():
                logger.warning("a read does not return, and the broker stops without it", thread=thread.name)

    def _run(self) -> None:
        try:
            while (read := self._queue.get()) is not None:
                report = carry_out(read)
                self._call_on_loop(lambda report=report: self._turns.ended(report))  # type: ignore[misc]
                del read, report  # they may hold much memory, and the next read may come late
        except BaseException as error:
            failure = error  # a fault in our own code: the process must not go on half alive
            self._call_on_loop(lambda: self._on_crash(failure))

    def _call_on_loop(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed: the process is ending, and no task waits for this
            logger.debug("a reader outlived its event loop", thread=threading.current_thread().name)
