"""The consumer of a queue for asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from minilog.aio.consumer_shell import ITERATION_S
from minilog.aio.queue_shell import QueueConsumerShell
from minilog.config import parse_queue_config
from minilog.errors import MinilogError, TimedOut
from minilog.net.runtime import SYSTEM_RUNTIME, Runtime
from minilog.queues.message import Message


class QueueConsumer:
    """A worker of a queue: each record of the topics goes to one worker, which settles it. For one thread, or
    in minilog.aio for one event loop. Any thread may settle its messages.

        async with QueueConsumer({"bootstrap.servers": "127.0.0.1:9092", "queue": "jobs"}) as consumer:
            await consumer.subscribe(["orders"])
            async for message in consumer:
                work(message.value)
                message.accept()

    The queue leases records to this worker, up to max.poll.records at a time. While the lock of a lease lasts, no other
    worker gets them. The client renews the locks as long as the program polls, or takes the next message of an
    iteration, within max.poll.interval.ms. A message without a verdict stays leased when the program takes the next
    one: nothing is accepted by itself. Kafka's implicit mode is not taken, since a crash between two messages would
    lose one. When a lock ends, its messages are delivered again, to any worker.

    So a message may come more than once, and `delivery_count` tells: make the work repeatable. Messages come in no
    order.

    Raises InvalidConfig for an unknown setting or value, and without `queue`.
    """

    def __init__(self, config: Mapping[str, object], runtime: Runtime = SYSTEM_RUNTIME) -> None:
        self._shell = QueueConsumerShell(parse_queue_config(config), runtime)

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
        """Lease records of these topics from now on. What is leased already stays. A topic that is deleted and made
        anew under its name is another topic: then a poll raises UnknownTopicId, until the program subscribes anew.

        The first worker of a queue that names a topic begins the queue there, at share.auto.offset.reset of the queue.
        Raises UnknownTopicOrPartition, and InvalidArgument for one name in place of a list."""
        await self._shell.subscribe(topics)

    async def poll(self, timeout: float = 1.0) -> list[Message]:  # noqa: ASYNC109
        """The next messages, at most max.poll.records, and an empty list after `timeout` seconds without any. They stay
        leased until they are settled, or until their lock ends.

        Raises the errors of verdicts that were sent in the background, such as InvalidRecordState for a lock that had
        ended, and errors of leasing and reading: LevelNotReached, UnknownTopicId, AuthorizationFailed, CorruptMessage.
        Such an error takes no message away: poll again."""
        await self._shell.wait(timeout)
        return self._shell.take()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._shell.takes_wakeup():
            raise StopAsyncIteration
        self._start()
        while (message := self._shell.next_message()) is None:
            if await self._shell.wait(ITERATION_S):
                raise StopAsyncIteration
        return message

    def wakeup(self) -> None:
        """End a poll that waits in another thread, or the next one. An iteration ends, and may begin again. Other
        threads, and handlers of signals, may call only this method."""
        self._shell.wakeup()

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until the coordinator has confirmed all verdicts so far, at most `timeout` seconds (request.timeout.ms
        by default). A verdict that is confirmed is for good. Raises TimedOut, and the errors of verdicts as `poll`
        does."""
        bound = self._shell.config.request_timeout_ms / 1000.0 if timeout is None else timeout
        is_flushed = await self._shell.flush(bound)
        self._shell.raise_error()
        if not is_flushed:
            raise TimedOut(f"flush did not end within {bound} s: some verdicts are still under way")

    async def close(self) -> None:
        """Settle what has a verdict, and release the rest at once, so that other workers need not wait for its lock.
        Then close the connections. Idempotent. It waits for the coordinator at most request.timeout.ms, and not after
        an interrupt. Raises the first error of a verdict that no other call has raised."""
        await self._close()

    def _start(self) -> None:
        self._shell.start()

    async def _close(self) -> None:
        await self._shell.close(self._shell.config.request_timeout_ms / 1000.0)
