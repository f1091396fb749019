"""The blocking producer: `send` only appends to a batch under a lock; all else happens on the background loop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from minilog.aio.producer import buffer_exhausted
from minilog.aio.producer_shell import ProducerShell
from minilog.aio.transaction import Transaction as AsyncTransaction
from minilog.aio.transaction import no_transactional_id, run_of
from minilog.config import parse_config
from minilog.errors import BufferExhausted, TimedOut
from minilog.net.metadata_cache import CachedTopic
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.producer.accumulator import Taken
from minilog.producer.arguments import (
    check_record,
    checked_headers,
    checked_partition,
    checked_timestamp_us,
    columns_of_many,
    cut_columns,
)
from minilog.producer.batch import threaded_records
from minilog.producer.delivery import OnDelivery, delivery_reporter
from minilog.producer.futures import RecordFuture
from minilog.sync.loop import shared_loop
from minilog.sync.transaction import Participation, Transaction
from minilog.types import BatchMetadata, GivenHeaders, Headers, RecordMetadata

if TYPE_CHECKING:
    from minilog.typed.topic_schema import TopicSchema


class Producer:
    """Writes records to topics; may be shared by threads.

    By default acks=all and idempotent: a record is acknowledged when every in-sync replica has it on disk, and retries
    never write it twice. Errors of a record are those of its future: TimedOut (surely not written), UnknownOutcome
    (it may or may not be written: never reported as failed), or what the broker answered.

        with Producer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
            metadata = producer.send("flights", b"...", key=b"UA").result(timeout=10)

    Raises InvalidConfig for a setting that is none.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._shell = ProducerShell(parse_config(config), SYSTEM_RUNTIME, threaded_records)
        self._run = run_of(self._shell.config, SYSTEM_RUNTIME)
        self._loop = shared_loop()
        self._accumulator = self._shell.accumulator
        self._cache = self._shell.cluster.cache
        self._max_block_s = self._shell.config.max_block_ms / 1000.0
        self._delivery_s = self._shell.config.delivery_timeout_ms / 1000.0 + 1.0
        self._closed = False
        self._loop.run(self._start())
        self._loop.opened(self._shell)

    async def _start(self) -> None:
        self._shell.start()

    def __del__(self) -> None:
        """What was sent goes on its way all the same."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An interrupted program does not wait for two minutes more.
        self.close(timeout=0.0 if kind is not None and not issubclass(kind, Exception) else None)

    def send(
        self,
        topic: str,
        value: bytes | Mapping[str, Any] | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: GivenHeaders | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Future[RecordMetadata]:
        """Take one record, or one row of a topic with a schema; the future has its place once it is written.

        A row is a dict of its columns, such as {"carrier": "UA", "delay": 12}: it has its key in its key columns.

        Without a partition it goes by the key (murmur2, as in Kafka), without a key to one partition batch by batch.
        `timestamp` is in milliseconds since 1970, now by default. `on_delivery` is called with the error, or with None
        and the place of the record: in the thread of the clients, so it must not wait, nor make blocking calls.
        Blocks while the buffer is full, at most max.block.ms. Raises BufferExhausted, Closed, InvalidRecord,
        MessageTooLarge, UnknownTopicOrPartition, and BrokerNotAvailable where the topic's metadata cannot be had.
        """
        partition = checked_partition(topic, partition)
        cached = self._cache.topics.get(topic) or self._topic(topic)
        if partition is not None and not 0 <= partition < cached.partition_count:
            cached = self._topic(topic, partition)
        pairs: Headers | None = None if headers is None else checked_headers(topic, headers)
        timestamp_us = SYSTEM_RUNTIME.wall_us() if timestamp is None else checked_timestamp_us(topic, timestamp)
        content: Any
        schema, row_bytes = None, 0
        if cached.told_schemas is None:
            content = check_record(topic, value, key)
        else:
            from minilog.producer.typed_rows import checked_row  # It loads minilog.typed: where a topic has columns.

            schema, row = checked_row(cached, value, key, timestamp)
            key, content, row_bytes = row.key, row.values, row.size_bytes
            timestamp_us = timestamp_us if row.timestamp_us is None else row.timestamp_us
        future = RecordFuture()
        deadline_s = 0.0
        while True:
            now_ms = time.monotonic() * 1000.0
            taken = self._accumulator.append(
                cached, partition, key, content, pairs, timestamp_us, future, now_ms, schema, row_bytes
            )
            if taken is not Taken.NO_SPACE:
                break
            deadline_s = deadline_s or time.monotonic() + self._max_block_s
            self._wait_for_space(topic, deadline_s)
        if taken is Taken.WAKE:
            self._shell.wake_from_thread()
        if on_delivery is not None:
            future.add_done_callback(delivery_reporter(on_delivery))
        return future

    def send_many(
        self,
        topic: str,
        values: Iterable[bytes | Mapping[str, Any] | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        partition: int | None = None,
    ) -> Future[list[BatchMetadata]]:
        """Take a list of values, or of rows of a topic with a schema, as one Arrow batch: see `send_batch`, which says
        where they go and what the future has. Much cheaper than as many calls of `send`.

        All of them are checked before the first one is taken. `keys` has one for each value. A row has its key in its
        columns. Raises InvalidRecord with the number of the first value that does not fit, and what `send` raises.
        """
        self._loop.check_process()
        cached = self._cache.topics.get(topic) or self._topic(topic)
        return self.send_batch(topic, columns_of_many(cached, values, keys), partition)

    def send_batch(
        self, topic: str, columns: object, partition: int | None = None, *, schema: TopicSchema | None = None
    ) -> Future[list[BatchMetadata]]:
        """Take a whole Arrow batch (columns value, and if wanted key, timestamp, headers); no record is touched.

        Of a topic with a schema: its columns, as a pyarrow.Table or RecordBatch, or whatever speaks Arrow (pandas,
        polars). They are matched by name and cast where nothing is lost; what is not there is null. They are
        written by `schema`, a version of the topic's, or by the newest that is known here.

        It is cut into parts of about batch.size: by key where there is a key column and no partition is given, else
        whole parts to the partitions in turn. The future has the place of each part, in the order of its partitions'
        rows; it fails when no part is open any more, with UnknownOutcome where the fate of any part is unknown.
        Raises what `send` raises.
        """
        partition = checked_partition(topic, partition)
        cached = self._cache.topics.get(topic) or self._topic(topic)
        if partition is not None and not 0 <= partition < cached.partition_count:
            cached = self._topic(topic, partition)
        future: Future[list[BatchMetadata]] = Future()
        parts = cut_columns(self._accumulator, cached, columns, partition, schema)
        if not parts:
            future.set_result([])
            return future
        deadline_s = time.monotonic() + self._max_block_s
        while self._accumulator.append_columns(cached, parts, future, time.monotonic() * 1000.0) is Taken.NO_SPACE:
            self._wait_for_space(topic, deadline_s)
        self._shell.wake_from_thread()
        return future

    def transaction(self) -> Transaction:
        """One transaction, of a producer with a `transactional.id`: all that is sent in the block is seen by
        read_committed readers when the block has ended, or none of it ever is.

            with Producer({"bootstrap.servers": servers, "transactional.id": "report"}) as producer:
                with producer.transaction() as transaction:
                    producer.send("totals", b"...")
                    transaction.commit_offsets("report", {TopicPartition("flights", 0): 42})

        The block's end waits for every acknowledgement, and commits; an exception in it, or a record that could not be
        written, aborts it. One at a time. Raises ProducerFenced where a newer producer of the same id has taken over,
        and UnknownOutcome where nobody can say whether it was committed.
        """
        if self._run is None:
            raise no_transactional_id()
        return Transaction(self._loop, AsyncTransaction(self._shell, self._run))

    def participation(self) -> Participation:
        """A part in a transaction that somebody else commits, as a Spark task has; see minilog.transactions."""
        return Participation(self._loop, self._shell)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is delivered or reported. Raises TimedOut (it goes on all the same)."""
        if self._closed or self._loop.has_reported:
            return
        bound = self._delivery_s if timeout is None else timeout
        if not self._loop.run(self._shell.flush(bound)):
            raise TimedOut(f"flush was not done within {bound} s; what was sent is still under way")

    def close(self, timeout: float | None = None) -> None:
        """Deliver what can be delivered within `timeout` seconds (delivery.timeout.ms by default), report the rest.

        Every future is done afterwards: what was never sent fails with Closed, what may be written is UnknownOutcome.
        """
        if self._closed:
            return
        within_s = self._delivery_s if timeout is None else timeout
        try:
            self._loop.close(lambda: self._shell.close(within_s), lambda: self._shell.close(0.0))
        finally:
            self._closed = self._shell.is_closed or self._loop.is_gone
            if self._closed:
                self._loop.closed(self._shell)

    def _topic(self, name: str, partition: int = 0) -> CachedTopic:
        self._accumulator.check()
        return self._loop.run(self._shell.cluster.topic(name, time.monotonic() + self._max_block_s, partition))

    def _wait_for_space(self, topic: str, deadline_s: float) -> None:
        if self._loop.is_current():
            raise BufferExhausted(
                f"buffer.memory={self._shell.config.buffer_memory} is full when sending to topic {topic!r} in a "
                "callback, whose thread empties the buffer and must not wait for it: send from another thread"
            )
        self._shell.wake_from_thread()
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise buffer_exhausted(topic, self._shell)
        # A settlement between the refusal and here is not missed for long.
        self._accumulator.wait_for_space(min(remaining_s, 0.05))
