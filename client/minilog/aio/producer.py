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
from minilog.net.metadata_cache import CachedTopic, MetadataCache
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
from minilog.transactions.messages import Run
from minilog.types import BatchMetadata, GivenHeaders, Headers, RecordMetadata

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema


class Producer:
    """Writes records to topics. Several threads may share a minilog.Producer. One of minilog.aio belongs to one event
    loop.

    By default acks=all and idempotence hold: the broker acknowledges a record when every in-sync replica has it on
    disk, and retries never write it twice. The future of a record raises its error: TimedOut (surely not written),
    UnknownOutcome (perhaps written, and so never reported as failed), or the broker's error.

        async with Producer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
            future = await producer.send("flights", b"...", key=b"UA")

    `future.result(timeout=10)` waits for the place of the record. The future of minilog.aio is one of asyncio, which a
    program awaits.

    Raises InvalidConfig for an unknown setting or value.
    """

    def __init__(self, config: Mapping[str, object] | ClientConfig, runtime: Runtime = SYSTEM_RUNTIME) -> None:
        parsed = config if isinstance(config, ClientConfig) else parse_config(config)
        self._shell = ProducerShell(parsed, runtime)
        self._run = run_of(self._shell.config, runtime)
        self._accumulator = self._shell.accumulator
        self._wake = self._shell.wake
        self._wall_us = runtime.wall_us
        self._max_block_s = parsed.max_block_ms / 1000.0
        self._delivery_s = parsed.delivery_timeout_ms / 1000.0 + 1.0
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
        """Take one record, or one row of a topic with a schema. The future has its place once it is written.

        A row is a dict of its columns, such as {"carrier": "UA", "delay": 12}. Its key is in its key columns.

        Without a `partition` the key decides (murmur2, as in Kafka). Without a key the records go to one partition per
        batch. `timestamp` is in milliseconds since 1970, and by default now. The client calls `on_delivery` with the
        error, or with None and the place of the record. It calls in its own thread, so the function must not wait, or
        make blocking calls. `send` waits while the buffer is full, at most max.block.ms. Raises BufferExhausted,
        Closed, InvalidRecord, MessageTooLarge, UnknownTopicOrPartition, and BrokerNotAvailable if no broker gives the
        metadata of the topic.
        """
        partition = checked_partition(topic, partition)
        deadline_s = 0.0  # of waiting for room: it begins with the first wait
        cached = self._cache.topics.get(topic)
        if cached is None or (partition is not None and not 0 <= partition < cached.partition_count):
            deadline_s = self._deadline()
            cached = await self._topic(topic, deadline_s, partition)
        pairs: Headers | None = None if headers is None else checked_headers(topic, headers)
        timestamp_us = self._wall_us() if timestamp is None else checked_timestamp_us(topic, timestamp)
        content: Any
        schema, row_bytes = None, 0
        if cached.told_schemas is None:
            content = check_record(topic, value, key)
        else:
            from minilog.producer.typed_rows import checked_row  # only a schema needs minilog.typed

            schema, row = checked_row(cached, value, key, timestamp)
            key, content, row_bytes = row.key, row.values, row.size_bytes
            timestamp_us = timestamp_us if row.timestamp_us is None else row.timestamp_us
        future = record_future()
        while True:
            taken = self._accumulator.append(
                cached, partition, key, content, pairs, timestamp_us, future, now_ms(), schema, row_bytes
            )
            if taken is not Taken.NO_SPACE:
                break
            deadline_s = deadline_s or self._deadline()
            await self._wait_for_space(topic, deadline_s)
        if taken is Taken.WAKE:
            self._wake()
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
        """Delete a key: write that the topic has no record, or row, of this key any more. The future is that of `send`.

        For a topic with a schema, `key` is a dict of its key columns, such as {"id": 5}. Values of other columns do not
        count, but that of the timestamp column is the time stamp of the deletion. `send` takes the same as a row with
        "_deleted": True. For any other topic `key` is bytes, and the deletion is a record without a value. Raises the
        errors of `send`, and LevelNotReached in a cluster below level 6 that has rows to delete.
        """
        cached = await self._known(topic, checked_partition(topic, partition))
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
        """Take a list of values, or of rows of a topic with a schema, as one Arrow batch. `send_batch` explains the
        partitions and the future. This is much cheaper than a call of `send` for each value.

        The producer checks all of them before it takes the first one. `keys` has one for each value. A row has its key
        in its columns. Raises InvalidRecord with the number of the first value that does not fit, and the errors of
        `send`.
        """
        cached = await self._known(topic, checked_partition(topic, partition))
        return await self.send_batch(topic, columns_of_many(cached, values, keys), partition)

    async def send_batch(
        self, topic: str, columns: object, partition: int | None = None, *, schema: TopicSchema | None = None
    ) -> asyncio.Future[list[BatchMetadata]]:
        """Take a whole Arrow batch with the column value, and if wanted key, timestamp and headers. The producer copies
        columns, and makes no Python object of a record.

        For a topic with a schema, give its columns as a pyarrow.Table or RecordBatch, or as another object with an
        Arrow interface (pandas, polars). The producer matches the columns by name. It casts them if that loses nothing,
        and takes null for a missing column. It writes by `schema`, a version of the topic's schema. Without `schema` it
        takes the newest version that the client knows.

        The producer cuts the batch into parts of about batch.size. With a key column and no `partition` the keys decide
        the partitions. Otherwise whole parts go to the partitions in turn. Each part is written by itself. The
        future has the place of each part, in the order of its partitions' rows. It fails when no part is under way any
        more. If some parts are written and others are not, or the fate of any part is unknown, it fails with
        UnknownOutcome, whose text says which partitions have their rows. Any other error means that no row is written,
        or in a transaction, that no row will be committed. Raises the errors of `send`.
        """
        partition = checked_partition(topic, partition)
        deadline_s = 0.0  # of waiting for room: it begins with the first wait
        cached = self._cache.topics.get(topic)
        if cached is None or (partition is not None and not 0 <= partition < cached.partition_count):
            deadline_s = self._deadline()
            cached = await self._topic(topic, deadline_s, partition)
        future = batch_future()
        parts = cut_columns(self._accumulator, cached, columns, partition, schema)
        if not parts:
            future.set_result([])
            return future
        while self._accumulator.append_columns(cached, parts, future, now_ms()) is Taken.NO_SPACE:
            deadline_s = deadline_s or self._deadline()
            await self._wait_for_space(topic, deadline_s)
        self._wake()
        return future

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait until all records so far are delivered, or their errors are reported. Raises TimedOut. The delivery then
        goes on."""
        bound = self._delivery_s if timeout is None else timeout
        if not await self._flushed(bound):
            raise TimedOut(f"flush did not end within {bound} s: the records are still under way")

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Deliver the records within `timeout` seconds (delivery.timeout.ms by default), and report the rest.

        Every future is done afterwards. A record that was never sent fails with Closed, and one that may be written
        with UnknownOutcome.
        """
        await self._close(self._delivery_s if timeout is None else timeout)

    def transaction(self) -> Transaction:
        """One transaction of a producer with a `transactional.id`. Readers with read_committed see all records of the
        block after its end, or none of them ever.

            async with Producer({"bootstrap.servers": servers, "transactional.id": "report"}) as producer:
                async with producer.transaction() as transaction:
                    await producer.send("totals", b"...")
                    await transaction.commit_offsets("report", {TopicPartition("flights", 0): 42})

        The end of the block waits for every acknowledgement, and commits. An exception in the block, or a failed
        record, aborts the transaction. A producer has one transaction at a time. Raises ProducerFenced if a newer
        producer with the same id has taken over, and UnknownOutcome if the outcome of the commit is unknown.
        """
        if self._run is None:
            raise no_transactional_id()
        return self._transaction(self._run)

    def _transaction(self, run: Run) -> Transaction:
        return Transaction(self._shell, run)

    async def _flushed(self, within_s: float) -> bool:
        return await self._shell.flush(within_s)

    async def _close(self, within_s: float) -> None:
        await self._shell.close(within_s)
        dropped.closed(self._shell)

    @property
    def _cache(self) -> MetadataCache:
        """The known topics. With its first look there the producer begins to send."""
        self._start()
        return self._shell.cluster.cache

    async def _known(self, topic: str, partition: int | None) -> CachedTopic:
        return self._cache.topics.get(topic) or await self._topic(topic, self._deadline(), partition)

    def _deadline(self) -> float:
        return now_s() + self._max_block_s

    async def _topic(self, name: str, deadline_s: float, partition: int | None) -> CachedTopic:
        return await self._shell.cluster.topic(name, deadline_s, partition or 0)

    async def _wait_for_space(self, topic: str, deadline_s: float) -> None:
        remaining_s = deadline_s - now_s()
        if remaining_s <= 0:
            raise buffer_exhausted(topic, self._shell)
        self._wake()
        await self._shell.settled_something(remaining_s)


def record_future() -> asyncio.Future[RecordMetadata]:
    """The future of one record."""
    return asyncio.get_running_loop().create_future()


def batch_future() -> asyncio.Future[list[BatchMetadata]]:
    """The future of an Arrow batch."""
    return asyncio.get_running_loop().create_future()


def buffer_exhausted(topic: str, shell: ProducerShell) -> BufferExhausted:
    """The error for a buffer that stayed full for max.block.ms."""
    config = shell.config
    return BufferExhausted(
        f"buffer.memory={config.buffer_memory} stayed full for max.block.ms={config.max_block_ms}, and a record for "
        f"topic {topic!r} found no room: the brokers are slower than the program. Wait for earlier futures, or raise "
        "one of the two settings"
    )
