"""The producer for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from minilog.aio import dropped
from minilog.aio.producer_shell import ProducerShell
from minilog.aio.transaction import Transaction, no_transactional_id, run_of
from minilog.client_config import ClientConfig
from minilog.config import parse_config
from minilog.errors import BufferExhausted, TimedOut
from minilog.net.metadata_cache import CachedTopic
from minilog.net.runtime import SYSTEM_RUNTIME, Runtime, now_ms, now_s
from minilog.producer.accumulator import Taken
from minilog.producer.arguments import (
    check_record,
    checked_headers,
    checked_partition,
    checked_timestamp_us,
    columns_of_many,
    cut_columns,
    deletion_of,
)
from minilog.producer.delivery import OnDelivery, delivery_reporter
from minilog.types import BatchMetadata, GivenHeaders, Headers, RecordMetadata

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema


class Producer:
    """Writes records. The methods have the meaning of those of minilog.Producer. Use it on one event loop.

    `send` and `send_batch` wait while the buffer is full (at most max.block.ms, then BufferExhausted), and return a
    future. `await (await producer.send(...))` waits until the record is written.
    """

    def __init__(self, config: Mapping[str, object] | ClientConfig, runtime: Runtime = SYSTEM_RUNTIME) -> None:
        parsed = config if isinstance(config, ClientConfig) else parse_config(config)
        self._shell = ProducerShell(parsed, runtime)
        self._run = run_of(self._shell.config, runtime)
        self._is_known_open = runtime is not SYSTEM_RUNTIME  # a simulated process ends without a warning

    async def __aenter__(self) -> Self:
        self._start()
        return self

    def _start(self) -> None:
        self._shell.start()
        if not self._is_known_open:
            self._is_known_open = True
            dropped.opened(self._shell)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: bytes | Mapping[str, Any] | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: GivenHeaders | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Take one record. The future has its place. `timestamp` is in milliseconds, and by default now."""
        deadline_s = self._deadline()
        partition = checked_partition(topic, partition)
        cached = await self._topic(topic, deadline_s, partition)
        pairs: Headers | None = None if headers is None else checked_headers(topic, headers)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        now_us = self._shell.cluster.runtime.wall_us
        timestamp_us = now_us() if timestamp is None else checked_timestamp_us(topic, timestamp)
        accumulator = self._shell.accumulator
        content: Any
        schema, row_bytes = None, 0
        if cached.told_schemas is None:
            content = check_record(topic, value, key)
        else:
            from minilog.producer.typed_rows import checked_row  # only a schema needs minilog.typed

            schema, row = checked_row(cached, value, key, timestamp)
            key, content, row_bytes = row.key, row.values, row.size_bytes
            timestamp_us = timestamp_us if row.timestamp_us is None else row.timestamp_us
        while True:
            taken = accumulator.append(
                cached, partition, key, content, pairs, timestamp_us, future, now_ms(), schema, row_bytes
            )
            if taken is not Taken.NO_SPACE:
                break
            await self._wait_for_space(topic, deadline_s)
        if taken is Taken.WAKE:
            self._shell.wake()
        if on_delivery is not None:
            future.add_done_callback(delivery_reporter(on_delivery))
        return future

    async def delete(
        self,
        topic: str,
        key: bytes | Mapping[str, Any],
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: GivenHeaders | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Delete a key: see minilog.Producer.delete. The future is that of `send`."""
        cached = await self._topic(topic, self._deadline(), checked_partition(topic, partition))
        value, record_key = deletion_of(cached, key)
        return await self.send(
            topic,
            value,
            key=record_key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            on_delivery=on_delivery,
        )

    async def send_many(
        self,
        topic: str,
        values: Iterable[bytes | Mapping[str, Any] | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[list[BatchMetadata]]:
        cached = await self._topic(topic, self._deadline(), checked_partition(topic, partition))
        return await self.send_batch(topic, columns_of_many(cached, values, keys), partition)

    async def send_batch(
        self, topic: str, columns: object, partition: int | None = None, *, schema: TopicSchema | None = None
    ) -> asyncio.Future[list[BatchMetadata]]:
        """Take a whole Arrow batch. The future has the places of its parts, and one outcome over all of them: see
        minilog.Producer.send_batch."""
        deadline_s = self._deadline()
        partition = checked_partition(topic, partition)
        cached = await self._topic(topic, deadline_s, partition)
        future: asyncio.Future[list[BatchMetadata]] = asyncio.get_running_loop().create_future()
        parts = cut_columns(self._shell.accumulator, cached, columns, partition, schema)
        if not parts:
            future.set_result([])
            return future
        while self._shell.accumulator.append_columns(cached, parts, future, now_ms()) is Taken.NO_SPACE:
            await self._wait_for_space(topic, deadline_s)
        self._shell.wake()
        return future

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until all records so far are delivered, or their errors are reported. Raises TimedOut. The delivery then
        goes on."""
        bound = self._shell.config.delivery_timeout_ms / 1000.0 + 1.0 if timeout is None else timeout
        if not await self._shell.flush(bound):
            raise TimedOut(f"flush did not end within {bound} s: the records are still under way")

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Deliver the records within `timeout` seconds (delivery.timeout.ms), report the rest, and close."""
        await self._shell.close(self._shell.config.delivery_timeout_ms / 1000.0 + 1.0 if timeout is None else timeout)
        dropped.closed(self._shell)

    def transaction(self) -> Transaction:
        """A transaction, for `async with producer.transaction() as transaction:`. See minilog.Producer.transaction."""
        if self._run is None:
            raise no_transactional_id()
        return Transaction(self._shell, self._run)

    def _deadline(self) -> float:
        return now_s() + self._shell.config.max_block_ms / 1000.0

    async def _topic(self, name: str, deadline_s: float, partition: int | None) -> CachedTopic:
        self._start()
        return await self._shell.cluster.topic(name, deadline_s, partition or 0)

    async def _wait_for_space(self, topic: str, deadline_s: float) -> None:
        remaining_s = deadline_s - now_s()
        if remaining_s <= 0:
            raise buffer_exhausted(topic, self._shell)
        self._shell.wake()
        await self._shell.settled_something(remaining_s)


def buffer_exhausted(topic: str, shell: ProducerShell) -> BufferExhausted:
    """The error for a buffer that stayed full for max.block.ms."""
    config = shell.config
    return BufferExhausted(
        f"buffer.memory={config.buffer_memory} stayed full for max.block.ms={config.max_block_ms}, and a record for "
        f"topic {topic!r} found no room: the brokers are slower than the program. Wait for earlier futures, or raise "
        "one of the two settings"
    )
