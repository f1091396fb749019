"""The blocking producer. `send` appends to a batch under a lock, and the background loop does everything else.

Generated from the classes for asyncio by tools/generate_sync.py: do not edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from minilog.aio.transaction import no_transactional_id
from minilog.errors import TimedOut
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
from minilog.sync.base.producer import ProducerBase, batch_future, now_ms, record_future
from minilog.sync.transaction import Transaction
from minilog.types import BatchMetadata, GivenHeaders, Headers, RecordMetadata

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema


class Producer(ProducerBase):
    """Writes records to topics. Several threads may share a minilog.Producer. One of minilog.aio belongs to one event
    loop.

    By default acks=all and idempotence hold: the broker acknowledges a record when every in-sync replica has it on
    disk, and retries never write it twice. The future of a record raises its error: TimedOut (surely not written),
    UnknownOutcome (perhaps written, and so never reported as failed), or the broker's error.

        with Producer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
            future = producer.send("flights", b"...", key=b"UA")

    `future.result(timeout=10)` waits for the place of the record. The future of minilog.aio is one of asyncio, which a
    program awaits.

    Raises InvalidConfig for an unknown setting or value.
    """

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
            cached = self._topic(topic, deadline_s, partition)
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
            self._wait_for_space(topic, deadline_s)
        if taken is Taken.WAKE:
            self._wake()
        if on_delivery is not None:
            future.add_done_callback(delivery_reporter(on_delivery))
        return future

    def delete(
        self,
        topic: str,
        key: bytes | Mapping[str, Any],
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: GivenHeaders | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Future[RecordMetadata]:
        """Delete a key: write that the topic has no record, or row, of this key any more. The future is that of `send`.

        For a topic with a schema, `key` is a dict of its key columns, such as {"id": 5}. Values of other columns do not
        count, but that of the timestamp column is the time stamp of the deletion. `send` takes the same as a row with
        "_deleted": True. For any other topic `key` is bytes, and the deletion is a record without a value. Raises the
        errors of `send`, and LevelNotReached in a cluster below level 6 that has rows to delete.
        """
        cached = self._known(topic, checked_partition(topic, partition))
        value, record_key = deletion_of(cached, key)
        return self.send(
            topic,
            value,
            key=record_key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            on_delivery=on_delivery,
        )

    def send_many(
        self,
        topic: str,
        values: Iterable[bytes | Mapping[str, Any] | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        partition: int | None = None,
    ) -> Future[list[BatchMetadata]]:
        """Take a list of values, or of rows of a topic with a schema, as one Arrow batch. `send_batch` explains the
        partitions and the future. This is much cheaper than a call of `send` for each value.

        The producer checks all of them before it takes the first one. `keys` has one for each value. A row has its key
        in its columns. Raises InvalidRecord with the number of the first value that does not fit, and the errors of
        `send`.
        """
        cached = self._known(topic, checked_partition(topic, partition))
        return self.send_batch(topic, columns_of_many(cached, values, keys), partition)

    def send_batch(
        self, topic: str, columns: object, partition: int | None = None, *, schema: TopicSchema | None = None
    ) -> Future[list[BatchMetadata]]:
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
            cached = self._topic(topic, deadline_s, partition)
        future = batch_future()
        parts = cut_columns(self._accumulator, cached, columns, partition, schema)
        if not parts:
            future.set_result([])
            return future
        while self._accumulator.append_columns(cached, parts, future, now_ms()) is Taken.NO_SPACE:
            deadline_s = deadline_s or self._deadline()
            self._wait_for_space(topic, deadline_s)
        self._wake()
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records so far are delivered, or their errors are reported. Raises TimedOut. The delivery then
        goes on."""
        bound = self._delivery_s if timeout is None else timeout
        if not self._flushed(bound):
            raise TimedOut(f"flush did not end within {bound} s: the records are still under way")

    def close(self, timeout: float | None = None) -> None:
        """Deliver the records within `timeout` seconds (delivery.timeout.ms by default), and report the rest.

        Every future is done afterwards. A record that was never sent fails with Closed, and one that may be written
        with UnknownOutcome.
        """
        self._close(self._delivery_s if timeout is None else timeout)

    def transaction(self) -> Transaction:
        """One transaction of a producer with a `transactional.id`. Readers with read_committed see all records of the
        block after its end, or none of them ever.

            with Producer({"bootstrap.servers": servers, "transactional.id": "report"}) as producer:
                with producer.transaction() as transaction:
                    producer.send("totals", b"...")
                    transaction.commit_offsets("report", {TopicPartition("flights", 0): 42})

        The end of the block waits for every acknowledgement, and commits. An exception in the block, or a failed
        record, aborts the transaction. A producer has one transaction at a time. Raises ProducerFenced if a newer
        producer with the same id has taken over, and UnknownOutcome if the outcome of the commit is unknown.
        """
        self._loop.check_process()
        if self._run is None:
            raise no_transactional_id()
        return self._transaction(self._run)
