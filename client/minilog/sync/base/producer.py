"""A producer of threads. Several of them append to its batches under a lock, and the background loop sends."""

from __future__ import annotations

import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from minilog.aio.producer import buffer_exhausted
from minilog.aio.producer_shell import ProducerShell
from minilog.aio.transaction import Transaction as AsyncTransaction
from minilog.aio.transaction import run_of
from minilog.config import parse_config
from minilog.errors import BufferExhausted
from minilog.net.metadata_cache import CachedTopic
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.producer.batch import threaded_records
from minilog.producer.futures import RecordFuture
from minilog.sync.base import Blocking, called
from minilog.sync.loop import shared_loop
from minilog.sync.transaction import Participation, Transaction
from minilog.transactions.messages import Run
from minilog.types import BatchMetadata

record_future = RecordFuture


def batch_future() -> Future[list[BatchMetadata]]:
    """The future of an Arrow batch."""
    return Future()


def now_ms() -> float:
    """The monotonic clock of the program's thread, in milliseconds."""
    return time.monotonic() * 1000.0


class ProducerBase(Blocking):
    """The shell of a producer, which the background loop keeps until it is closed."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._shell = ProducerShell(parse_config(config), SYSTEM_RUNTIME, threaded_records)
        self._run = run_of(self._shell.config, SYSTEM_RUNTIME)
        self._loop = shared_loop()
        self._accumulator = self._shell.accumulator
        self._cache = self._shell.cluster.cache
        self._wake = self._shell.wake_from_thread
        self._wall_us = SYSTEM_RUNTIME.wall_us
        self._max_block_s = self._shell.config.max_block_ms / 1000.0
        self._delivery_s = self._shell.config.delivery_timeout_ms / 1000.0 + 1.0
        self._closed = False
        self._loop.run(called(self._shell.start))
        self._loop.opened(self._shell)

    def __del__(self) -> None:
        """Warn that the producer was not closed. The loop still delivers its records."""
        if not getattr(self, "_closed", True) and not self._loop.is_gone:
            self._loop.post(self._leave)
            named = self._shell.config.client_id
            warnings.warn(f"producer {named!r} was not closed", ResourceWarning, stacklevel=2, source=self)

    @property
    def _leave(self) -> Callable[[], Coroutine[Any, Any, None]]:
        loop, shell, within_s = self._loop, self._shell, self._delivery_s

        async def leave() -> None:
            await shell.close(within_s)
            loop.closed(shell)

        return leave

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An interrupted program does not wait two more minutes.
        self.close(0.0 if kind is not None and not issubclass(kind, Exception) else None)

    @abstractmethod
    def close(self, timeout: float | None = None) -> None:
        """Deliver the records, and close."""

    def participation(self) -> Participation:
        """A part in a transaction that another process commits, as a Spark task has. See minilog.transactions."""
        return Participation(self._loop, self._shell)

    def _transaction(self, run: Run) -> Transaction:
        return Transaction(self._loop, AsyncTransaction(self._shell, run))

    def _flushed(self, within_s: float) -> bool:
        if self._closed or self._loop.has_reported:
            return True
        return self._loop.run(self._shell.flush(within_s))

    def _close(self, within_s: float) -> None:
        if self._closed:
            return
        try:
            self._loop.close(lambda: self._shell.close(within_s), lambda: self._shell.close(0.0))
        finally:
            self._closed = self._shell.is_closed or self._loop.is_gone
            if self._closed:
                self._loop.closed(self._shell)

    def _known(self, topic: str, partition: int | None) -> CachedTopic:
        self._loop.check_process()
        return self._cache.topics.get(topic) or self._topic(topic, self._deadline(), partition)

    def _deadline(self) -> float:
        return time.monotonic() + self._max_block_s

    def _topic(self, name: str, deadline_s: float, partition: int | None) -> CachedTopic:
        self._accumulator.check()
        return self._loop.run(self._shell.cluster.topic(name, deadline_s, partition or 0))

    def _wait_for_space(self, topic: str, deadline_s: float) -> None:
        if self._loop.is_current():
            raise BufferExhausted(
                f"buffer.memory={self._shell.config.buffer_memory} is full, and a callback sends to topic {topic!r}: "
                "its thread empties the buffer, so it must not wait for room. Send from another thread"
            )
        self._wake()
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise buffer_exhausted(topic, self._shell)
        # A batch may have been settled just before this wait, so the wait is short.
        self._accumulator.wait_for_space(min(remaining_s, 0.05))
