"""Reads for the messages of sessions: from memory at once, else by threads that may wait (disk/reader_threads.py).

    core.next_read ──► read_run_now ──► run_read                 in the same turn of the loop
                            └── has to be waited for ──► run_not_in_memory
    effect ReadRun ──► a reader's thread ──► run_read, or read_failed

A thread reads the log as it was at the begin of the read. The core knows the later changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from minilog.errors import MinilogError
from minilog.record_batch.header import Buffer
from minilog_broker.replication.replica_effects import ReadRun
from minilog_broker.server.disk.reader_threads import DiskRead, Readers
from minilog_broker.server.runtime.observer import BrokerObserver
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.storage.log import Log
from minilog_broker.storage.run_reads import read_run, read_run_now


class ReadingCore(Protocol):
    """The cores that read so: ReplicaManager and QuorumNode."""

    def next_read(self, session_id: int, now_ms: float) -> ReadRun | None: ...

    def run_read(self, read: ReadRun, batches: Buffer, now_ms: float) -> None: ...

    def run_not_in_memory(self, read: ReadRun) -> None: ...

    def read_failed(self, read: ReadRun, error: Exception, now_ms: float) -> None: ...

    def waits_for(self, read: ReadRun) -> bool: ...


class SessionReads:
    """The reads of one core. `log_of`: the log of a partition, None where it is let go. `event` makes an event of the
    core, and carries out the effects."""

    def __init__(
        self,
        core: ReadingCore,
        log_of: Callable[[ReadRun], Log | None],
        readers: Readers,
        event: Callable[[Callable[[], None]], None],
        observer: BrokerObserver,
    ) -> None:
        self._core = core
        self._log_of = log_of
        self._readers = readers
        self._event = event
        self._observer = observer

    def make_up(self, session_id: int) -> None:
        """Read from memory for the next message of a session."""
        core = self._core
        while (read := core.next_read(session_id, now_ms())) is not None:
            log = self._log_of(read)
            batches = b"" if log is None else read_run_now(log, read)
            if batches is None:
                core.run_not_in_memory(read)
            else:
                self._observer.read_from_memory(len(batches))
                core.run_read(read, batches, now_ms())

    def read(self, wanted: ReadRun) -> None:
        """Carry out the effect, which may wait."""
        log = self._log_of(wanted)
        self._readers.submit(
            DiskRead(
                work=lambda: b"" if log is None else read_run(log, wanted),
                on_done=partial(self._done, wanted),
                on_failed=partial(self._failed, wanted),
                is_wanted=lambda: self._core.waits_for(wanted),
            )
        )

    def _done(self, read: ReadRun, batches: bytes | None) -> None:
        if batches:
            self._observer.read_from_disk(len(batches))
        self._event(lambda: self._core.run_read(read, batches or b"", now_ms()))

    def _failed(self, read: ReadRun, error: OSError | MinilogError) -> None:
        self._event(lambda: self._core.read_failed(read, error, now_ms()))
