"""One thread that does the disk's work of many logs, in groups.

What waits is taken together: all commands are run in the order given, then each log that was written is synced once,
then every waiting append is told. So the cost of a sync is shared by all that arrived during the one before it (group
commit), and "appended" is told before the sync, so that followers are sent records while the leader's disk works.

    submitted ──► run (in order) ──► on_done ──► sync once per log ──► on_flushed
                        └── OSError ──► on_failed

A failure drops what was given for the same log before its owner was told of it: the owner counts all of that as failed
too, and what follows a run that is not there does not fit on. It is not told again. Each command bears how many
failures of its log had been told when it was given; so the two threads share no state. All of that is CommandGroups,
which the simulator runs too, on virtual time.

Callbacks run on the event loop. The data logs and the metadata log each have a thread of their own: data never
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

LOGS_AT_ONCE = 2  # that are made, recovered or dropped: an append waits for them; the next is there when one is done
MAX_GROUP_COMMANDS = 256  # a group's sync is waited for by its first command: bounded so that the wait is


class Syncable(Protocol):
    """What a group syncs: a log."""

    @property
    def durable_end_offset(self) -> int: ...

    def flush(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DiskCommand:
    """Work for the disk thread. `log`: fails with what was given for it before. `flush`: the log to sync after the
    work; its durable end is told to `on_flushed`."""

    work: Callable[[], Any]
    on_done: Callable[[Any], None]
    on_failed: Callable[[OSError], None]
    log: object | None = None
    flush: Syncable | None = None
    on_flushed: Callable[[int], None] | None = None
    size_bytes: int = 0  # what it holds in memory until it is done


class Submitting(Protocol):
    """What takes commands and runs them in order."""

    def submit(self, command: DiskCommand) -> None:
        """Run it in its turn; its callbacks are called on the event loop."""


class Disk(Submitting, Protocol):
    """All that a DiskThread does."""

    @property
    def backlog_bytes(self) -> int:
        """What waits for the disk, or is being written."""

    @property
    def step(self) -> int | None:
        """Which command is under way, or which sync: another number for each; None where there is none."""

    async def call(self, work: Callable[[], Any]) -> Any:
        """Run `work` in its turn and return what it returned; an OSError is raised here."""

    async def stop(self) -> None:
        """Finish what was submitted, then take no more."""


async def outcome_of(disk: Submitting, work: Callable[[], Any]) -> Any:
    """See Disk.call."""
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
    """A command in the queue, and how many failures of its log its owner had been told of when he gave it."""

    command: DiskCommand
    told: int


Told = list[Callable[[], None]]  # what the event loop is to call


class CommandGroups:
    """What a disk's thread does with its commands, without the thread. `give` and what is told belong to the event
    loop, `run` and `flush` to the thread; these two answer what is to be told when they are done."""

    def __init__(self) -> None:
        self._told: dict[object, int] = {}  # failures by log; changed on the loop only
        self._met: dict[object, int] = {}  # failures by log; changed on the disk thread only
        self.steps = 0  # commands that were run, and logs that were synced; counted on the disk thread only

    def give(self, command: DiskCommand) -> GivenCommand:
        return GivenCommand(command, self._told.get(command.log, 0))

    def run(self, group: Iterable[GivenCommand]) -> tuple[Told, list[DiskCommand]]:
        """All of them in their order; the last one of each log that is to be synced."""
        told: Told = []
        written: dict[int, DiskCommand] = {}
        for given in group:
            command = given.command
            self.steps += 1
            if given.told < self._met.get(command.log, 0):
                continue
            try:
                result = command.work()
            except OSError as error:
                told.append(self._fail(command, error))
                continue
            except CorruptMessage as damage:
                # What is on the disk is not what was written: the matter of one log, as a failing disk is.
                told.append(self._fail(command, DamagedCopy(str(damage))))
                continue
            except StorageError as error:
                told.append(self._fail(command, OSError(errno.EIO, str(error))))
                continue
            told.append(_bind(command.on_done, result))
            if command.flush is not None:
                written[id(command.flush)] = command
        return told, list(written.values())

    def flush(self, written: Iterable[DiskCommand]) -> Told:
        """Sync each log once."""
        return [told for last in written for told in self._flush(last)]

    def _flush(self, last: DiskCommand) -> Told:
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

        def tell() -> None:
            self._told[log] = failures
            command.on_failed(error)

        return tell


class DiskThread:
    """Runs DiskCommands in order; see the module's text. `on_crash` is told of an error that is not the disk's,
    `synced`, on the thread itself, how long the syncs of a group took."""

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
            self._tell([_bind(self._on_crash, error)])

    def _take_group(self) -> list[GivenCommand | None]:
        group = [self._queue.get()]
        while group[-1] is not None and len(group) < MAX_GROUP_COMMANDS:
            try:
                group.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return group

    def _run_group(self, group: list[GivenCommand | None]) -> bool:
        """Run one group; False when the stop mark was in it."""
        commands = [given for given in group if given is not None]
        told, written = self._groups.run(commands)
        self._tell(told)
        if written:
            began_s = time.monotonic()
            flushed = self._groups.flush(written)
            self._synced(time.monotonic() - began_s)
            self._tell(flushed)
        self._done_bytes += sum(given.command.size_bytes for given in commands)
        self._done += len(commands)
        return group[-1] is not None

    def _tell(self, callbacks: Told) -> None:
        if not callbacks:
            return
        try:
            self._loop.call_soon_threadsafe(call_all, callbacks)
        except RuntimeError:  # the loop is closed: the process is ending and nobody waits for these answers
            logger.debug("disk thread outlived its event loop", answers=len(callbacks))


class BoundedLane:
    """Commands that make or drop whole logs, in the order given and at most `most` of them with the thread at a time.

    A topic of many partitions has ten thousand of them at once, a millisecond or more each: what is appended to other
    logs would wait for all of them. Nothing else may depend on their place among the thread's other commands. They
    bear no log: so each is told, done or failed."""

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
        def told(result: Any) -> None:
            self._under_way -= 1
            self._go_on()
            tell(result)

        return told


def _bind(callback: Callable[[Any], None], argument: Any) -> Callable[[], None]:
    return lambda: callback(argument)


def call_all(callbacks: Told) -> None:
    """Tell it, on the event loop."""
    for callback in callbacks:
        callback()
