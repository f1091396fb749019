"""One thread that does the disk's work of many logs, in groups.

It takes all waiting commands together. It runs them in the order given, then syncs each written log once, then reports
every waiting append. So all appends that arrived during a sync share the next one (group commit). The report "appended"
comes before the sync, so that followers get records while the leader's disk works.

    submitted ──► run (in order) ──► on_done ──► sync once per log ──► on_flushed
                        └── OSError ──► on_failed

After a failure the thread drops the commands for the same log that came before the owner's call of `on_failed`. The
owner counts all of them as failed, too, since a run after a missing one does not fit. There is one report. Each command
carries the number of reported failures of its log at its submission, so the two threads share no state. CommandGroups
has all of that, and the simulator runs it, too, on virtual time.

Callbacks run on the event loop. The data logs and the metadata log each have a thread of their own, so that data never
delays a vote (docs/spec/replication.md § Sessions).
"""

from __future__ import annotations

import asyncio
import errno
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from minilog.errors import CorruptMessage, StorageError
from minilog_broker.storage.errors import DamagedCopy

logger = structlog.get_logger()

LOGS_AT_ONCE = 2  # logs being made, recovered or dropped: an append waits for them; the next one follows at once
MAX_GROUP_COMMANDS = 256  # the first command of a group waits for its sync: the limit bounds that wait


class Syncable(Protocol):
    """The object that a group syncs: a log."""

    @property
    def durable_end_offset(self) -> int: ...

    def flush(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DiskCommand:
    """Work for the disk thread. `log`: the command fails together with earlier ones of this log. `flush`: the log to
    sync after the work; `on_flushed` gets its durable end."""

    work: Callable[[], Any]
    on_done: Callable[[Any], None]
    on_failed: Callable[[OSError], None]
    log: object | None = None
    flush: Syncable | None = None
    on_flushed: Callable[[int], None] | None = None
    size_bytes: int = 0  # the bytes that it holds in memory until it is done


class Submitting(Protocol):
    """Takes commands and runs them in order."""

    def submit(self, command: DiskCommand) -> None:
        """Run a command in its turn. Its callbacks run on the event loop."""


class Disk(Submitting, Protocol):
    """The interface of a DiskThread."""

    @property
    def backlog_bytes(self) -> int:
        """The bytes that wait for the disk, or are being written."""

    @property
    def step(self) -> int | None:
        """The number of the command or sync under way, another one for each; None where there is none."""

    async def call(self, work: Callable[[], Any]) -> Any:
        """Run `work` in its turn and give its result. Raises its OSError."""

    async def stop(self) -> None:
        """Finish the submitted commands, then take no more."""


async def outcome_of(disk: Submitting, work: Callable[[], Any]) -> Any:
    """The result of `work`, run by a disk (Disk.call)."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def failed(error: OSError) -> None:
        if not future.done():
            future.set_exception(error)

    def done(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    disk.submit(DiskCommand(work, done, failed))
    return await future


@dataclass(frozen=True, slots=True)
class GivenCommand:
    """A command in the queue. `reported`: the failures of its log that the owner knew at the submission."""

    command: DiskCommand
    reported: int


Callbacks = list[Callable[[], None]]  # for the event loop


class CommandGroups:
    """The work of a disk's thread, without the thread. `give` and the callbacks belong to the event loop, `run` and
    `flush` to the thread. These two give the callbacks to make when they are done."""

    def __init__(self) -> None:
        self._reported: dict[object, int] = {}  # failures by log; changed on the loop only
        self._met: dict[object, int] = {}  # failures by log; changed on the disk thread only
        self.steps = 0  # run commands and synced logs; counted on the disk thread only

    def give(self, command: DiskCommand) -> GivenCommand:
        return GivenCommand(command, self._reported.get(command.log, 0))

    def run(self, group: Iterable[GivenCommand]) -> tuple[Callbacks, list[DiskCommand]]:
        """Run the commands in order. The result has the callbacks, and the last command of each log that needs a
        sync."""
        callbacks: Callbacks = []
        written: dict[int, DiskCommand] = {}
        for given in group:
            command = given.command
            self.steps += 1
            if given.reported < self._met.get(command.log, 0):
                continue
            try:
                result = command.work()
            except OSError as error:
                callbacks.append(self._fail(command, error))
                continue
            except CorruptMessage as damage:
                # The disk has other bytes than those that were written. Like a disk error it concerns one log.
                callbacks.append(self._fail(command, DamagedCopy(str(damage))))
                continue
            except StorageError as error:
                callbacks.append(self._fail(command, OSError(errno.EIO, str(error))))
                continue
            callbacks.append(_bind(command.on_done, result))
            if command.flush is not None:
                written[id(command.flush)] = command
        return callbacks, list(written.values())

    def flush(self, written: Iterable[DiskCommand]) -> Callbacks:
        """Sync each log once."""
        return [callback for last in written for callback in self._flush(last)]

    def _flush(self, last: DiskCommand) -> Callbacks:
        log = last.flush
        assert log is not None
        self.steps += 1
        try:
            log.flush()
        except OSError as error:
            return [self._fail(last, error)]
        return [] if last.on_flushed is None else [_bind(last.on_flushed, log.durable_end_offset)]

    def _fail(self, command: DiskCommand, error: OSError) -> Callable[[], None]:
        log = command.log
        if log is None:
            return _bind(command.on_failed, error)
        self._met[log] = failures = self._met.get(log, 0) + 1

        def report() -> None:
            self._reported[log] = failures
            command.on_failed(error)

        return report


class DiskThread:
    """The thread that runs DiskCommands in order, in groups. `on_crash` gets an error of our own code. `synced` gets,
    on the thread itself, the time of a group's syncs."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        on_crash: Callable[[BaseException], None],
        synced: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._loop = loop
        self._synced = synced
        self._on_crash = on_crash
        self._groups = CommandGroups()
        self._queue: queue.SimpleQueue[GivenCommand | None] = queue.SimpleQueue()
        self._given_bytes = self._given = 0  # counted on the loop only
        self._done_bytes = self._done = 0  # counted on the disk thread only
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def backlog_bytes(self) -> int:
        return self._given_bytes - self._done_bytes

    @property
    def step(self) -> int | None:
        return self._groups.steps if self._given != self._done else None

    def submit(self, command: DiskCommand) -> None:
        self._given_bytes += command.size_bytes
        self._given += 1
        self._queue.put(self._groups.give(command))

    async def call(self, work: Callable[[], Any]) -> Any:
        return await outcome_of(self, work)

    async def stop(self) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            while self._run_group(self._take_group()):
                pass
        except BaseException as error:
            # A fault in our own code: the owner ends the process, which must not go on half alive.
            self._call_on_loop([_bind(self._on_crash, error)])

    def _take_group(self) -> list[GivenCommand | None]:
        group = [self._queue.get()]
        while group[-1] is not None and len(group) < MAX_GROUP_COMMANDS:
            try:
                group.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return group

    def _run_group(self, group: list[GivenCommand | None]) -> bool:
        """Run one group. False where the stop mark was in it."""
        commands = [given for given in group if given is not None]
        callbacks, written = self._groups.run(commands)
        self._call_on_loop(callbacks)
        if written:
            began_s = time.monotonic()
            flushed = self._groups.flush(written)
            self._synced(time.monotonic() - began_s)
            self._call_on_loop(flushed)
        self._done_bytes += sum(given.command.size_bytes for given in commands)
        self._done += len(commands)
        return group[-1] is not None

    def _call_on_loop(self, callbacks: Callbacks) -> None:
        if not callbacks:
            return
        try:
            self._loop.call_soon_threadsafe(call_all, callbacks)
        except RuntimeError:  # the loop is closed: the process is ending, and no task waits for these answers
            logger.debug("a disk thread outlived its event loop", answers=len(callbacks))


class BoundedLane:
    """Commands that make or drop whole logs, in the order given, and at most `most` of them with the thread at a time.

    A topic with many partitions has ten thousand of them at once, a millisecond or more each. Appends to other logs
    would wait for all of them. No other command may depend on their place in the thread's order. They name no log, so
    each has its own report, done or failed.
    """

    def __init__(self, disk: Submitting, most: int) -> None:
        self._disk = disk
        self._most = most
        self._under_way = 0
        self._waiting: deque[DiskCommand] = deque()

    def submit(self, command: DiskCommand) -> None:
        assert command.log is None
        self._waiting.append(command)
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._under_way < self._most:
            command = self._waiting.popleft()
            self._under_way += 1
            self._disk.submit(
                replace(command, on_done=self._then(command.on_done), on_failed=self._then(command.on_failed))
            )

    def _then(self, tell: Callable[[Any], None]) -> Callable[[Any], None]:
        def done(result: Any) -> None:
            self._under_way -= 1
            self._go_on()
            tell(result)

        return done


def _bind(callback: Callable[[Any], None], argument: Any) -> Callable[[], None]:
    return lambda: callback(argument)


def call_all(callbacks: Callbacks) -> None:
    """Make the callbacks, on the event loop."""
    for callback in callbacks:
        callback()
