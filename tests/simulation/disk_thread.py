"""The model of server/disk/disk_thread.py: commands in order, in groups; then each written log is synced once; then all
are told.

    submitted ──► run (an event) ──► on_done (an event) ──► sync once per log (an event) ──► on_flushed (an event)
                       └── OSError ──► on_failed

Between any two of these power may be lost. What was given for a log before its owner was told of a failure of it is
dropped, as the real thread does.
"""

from __future__ import annotations

import errno
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from minilog.errors import CorruptMessage, StorageError
from minilog_broker.server.disk.disk_thread import DiskCommand
from tests.simulation.process import Process

MAX_GROUP_COMMANDS = 256
RUN_MS = 0.05
LONGEST_SYNC_MS = 10_000.0  # one that began before the faults ended: what waited for it must end well before the end
TELL_MS = 0.01


def _nothing() -> None:
    pass


class DiskThread:
    """See the module's text. `sync_ms`: the range of one sync; `slowness` multiplies it."""

    def __init__(self, process: Process, rng: random.Random, sync_ms: tuple[float, float]) -> None:
        self._process = process
        self._random = rng
        self._sync_ms = sync_ms
        self.slowness = 1.0
        self._queue: deque[tuple[DiskCommand, int]] = deque()
        self._told: dict[object, int] = {}
        self._met: dict[object, int] = {}
        self._busy = False
        self.backlog_bytes = 0

    def submit(self, command: DiskCommand) -> None:
        self._queue.append((command, self._told.get(command.log, 0)))
        self.backlog_bytes += command.size_bytes
        if not self._busy:
            self._busy = True
            self._process.after(RUN_MS, self._run_group)

    def _run_group(self, _: Any) -> None:
        told, written = self._run_commands()
        if told:
            self._process.after(TELL_MS, _call_all, told)
        if written:
            low, high = self._sync_ms
            delay_ms = min((low + (high - low) * self._random.random()) * self.slowness, LONGEST_SYNC_MS)
            self._process.after(delay_ms, self._sync, written)
        else:
            self._go_on()

    def _run_commands(self) -> tuple[list[Callable[[], None]], dict[int, DiskCommand]]:
        told: list[Callable[[], None]] = []
        written: dict[int, DiskCommand] = {}
        for _ in range(min(len(self._queue), MAX_GROUP_COMMANDS)):
            command, known = self._queue.popleft()
            self.backlog_bytes -= command.size_bytes
            if known < self._met.get(command.log, 0):
                continue
            try:
                result = command.work()
            except OSError as error:
                told.append(self._fail(command, error))
                continue
            except (CorruptMessage, StorageError) as damage:
                told.append(self._fail(command, OSError(errno.EIO, str(damage))))
                continue
            told.append(_bind(command.on_done, result))
            if command.flush is not None:
                written[id(command.flush)] = command
        return told, written

    def _sync(self, written: dict[int, DiskCommand]) -> None:
        told = [self._flush(command) for command in written.values()]
        self._process.after(TELL_MS, _call_all, told)
        self._go_on()

    def _go_on(self) -> None:
        self._busy = bool(self._queue)
        if self._busy:
            self._process.after(RUN_MS, self._run_group)

    def _flush(self, last: DiskCommand) -> Callable[[], None]:
        log = last.flush
        assert log is not None
        try:
            log.flush()
        except OSError as error:
            return self._fail(last, error)
        return _nothing if last.on_flushed is None else _bind(last.on_flushed, log.durable_end_offset)

    def _fail(self, command: DiskCommand, error: OSError) -> Callable[[], None]:
        log = command.log
        if log is None:
            return _bind(command.on_failed, error)
        self._met[log] = failures = self._met.get(log, 0) + 1

        def tell() -> None:
            self._told[log] = failures
            command.on_failed(error)

        return tell

    def drain(self, look: Callable[[], None] = _nothing) -> None:
        """Finish what was submitted, at once: the end of a clean stop. `look` is called after each group."""
        while self._queue:
            told, written = self._run_commands()
            told.extend(self._flush(command) for command in written.values())
            _call_all(told)
            look()


def _bind(callback: Callable[[Any], None], argument: Any) -> Callable[[], None]:
    return lambda: callback(argument)


def _call_all(callbacks: list[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()
