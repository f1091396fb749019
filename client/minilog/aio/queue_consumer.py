"""The consumer of a queue for asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from minilog.aio.consumer_shell import ITERATION_S
from minilog.aio.queue_shell import QueueShell
from minilog.config import parse_queue_config
from minilog.errors import MinilogError, TimedOut
from minilog.net.runtime import SYSTEM_RUNTIME, Runtime
from minilog.queues.message import Message


class QueueConsumer:
    """Leases records of a queue. The methods have the meaning of those of minilog.QueueConsumer. Use it on one event
    loop."""

    def __init__(self, config: Mapping[str, object], runtime: Runtime = SYSTEM_RUNTIME) -> None:
        self._shell = QueueShell(parse_queue_config(config), runtime)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except MinilogError as late:
            if error is None:
                raise
            error.add_note(f"and when the queue consumer was closed: {late}")

    async def subscribe(self, topics: Iterable[str]) -> None:
        await self._shell.subscribe(topics)

    async def poll(self, timeout: float = 1.0) -> list[Message]:  # noqa: ASYNC109
        await self._shell.wait(timeout)
        return self._shell.take()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._shell.takes_wakeup():
            raise StopAsyncIteration
        self._shell.start()
        while (message := self._shell.next_message()) is None:
            if await self._shell.wait(ITERATION_S):
                raise StopAsyncIteration
        return message

    def wakeup(self) -> None:
        self._shell.wakeup()

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        bound = self._shell.config.request_timeout_ms / 1000.0 if timeout is None else timeout
        is_flushed = await self._shell.flush(bound)
        self._shell.raise_error()
        if not is_flushed:
            raise TimedOut(f"flush did not end within {bound} s: some verdicts are still under way")

    async def close(self) -> None:
        await self._shell.close(self._shell.config.request_timeout_ms / 1000.0)
