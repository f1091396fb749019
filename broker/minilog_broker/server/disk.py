"""One thread that does the disk's work of many logs, in groups.

What waits is taken together: all commands are run in the order given, then each log that was written is synced once,
then every waiting append is told. So the cost of a sync is shared by all that arrived during the one before it (group
commit), and "appended" is told before the sync, so that followers are sent records while the leader's disk works.

    submitted ──► run (in order) ──► on_done ──► sync once per log ──► on_flushed
                        └── OSError ──► on_failed (and nothing later of that log is run in this group)

Callbacks run on the event loop. The data logs and the metadata log each have a thread of their own: data never
delays a vote (REPLICATION.md, sessions).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

logger = structlog.get_logger()

MAX_GROUP_COMMANDS = 256  # a group's sync is waited for by its first command: bounded so that the wait is


class Syncable(Protocol):
    """What a group syncs: a log."""

    @property
    def durable_end_offset(self) -> int: ...

    def flush(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DiskCommand:
    """Work for the disk thread. `flush`: the log to sync after the work; its durable end is told to `on_flushed`."""

    work: Callable[[], Any]
    on_done: Callable[[Any], None]
    on_failed: Callable[[OSError], None]
    flush: Syncable | None = None
    on_flushed: Callable[[int], None] | None = None


class DiskThread:
    """Runs DiskCommands in order; see the module's text. `on_crash` is told of an error that is not the disk's."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, on_crash: Callable[[BaseException], None]) -> None:
        self._loop = loop
        self._on_crash = on_crash
        self._queue: queue.SimpleQueue[DiskCommand | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, command: DiskCommand) -> None:
        self._queue.put(command)

    async def call(self, work: Callable[[], Any]) -> Any:
        """Run `work` in its turn and return what it returned; an OSError is raised here."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def failed(error: OSError) -> None:
            if not future.done():
                future.set_exception(error)

        def done(result: Any) -> None:
            if not future.done():
                future.set_result(result)

        self.submit(DiskCommand(work, done, failed))
        return await future

    async def stop(self) -> None:
        """Finish what was submitted, then end the thread."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            while self._run_group(self._take_group()):
                pass
        except BaseException as error:
            # A fault in our own code: the owner ends the process, which must not go on half alive.
            self._tell([_bind(self._on_crash, error)])

    def _take_group(self) -> list[DiskCommand | None]:
        group = [self._queue.get()]
        while group[-1] is not None and len(group) < MAX_GROUP_COMMANDS:
            try:
                group.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return group

    def _run_group(self, group: list[DiskCommand | None]) -> bool:
        """Run one group; False when the stop mark was in it."""
        told: list[Callable[[], None]] = []
        written: dict[int, list[DiskCommand]] = {}
        for command in group:
            if command is None:
                continue
            try:
                result = command.work()
            except OSError as error:
                told.append(_bind(command.on_failed, error))
                continue
            told.append(_bind(command.on_done, result))
            if command.flush is not None:
                written.setdefault(id(command.flush), []).append(command)
        self._tell(told)
        self._tell([told for commands in written.values() for told in _flush(commands)])
        return group[-1] is not None

    def _tell(self, callbacks: list[Callable[[], None]]) -> None:
        if not callbacks:
            return
        try:
            self._loop.call_soon_threadsafe(_call_all, callbacks)
        except RuntimeError:  # the loop is closed: the process is ending and nobody waits for these answers
            logger.debug("disk thread outlived its event loop", answers=len(callbacks))


def _flush(commands: list[DiskCommand]) -> list[Callable[[], None]]:
    log = commands[-1].flush
    assert log is not None
    try:
        log.flush()
    except OSError as error:
        return [_bind(commands[-1].on_failed, error)]
    last = commands[-1].on_flushed
    return [] if last is None else [_bind(last, log.durable_end_offset)]


def _bind(callback: Callable[[Any], None], argument: Any) -> Callable[[], None]:
    return lambda: callback(argument)


def _call_all(callbacks: list[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()
