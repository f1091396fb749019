"""One batch on its way: filled by the accumulator, encoded and sent by the sender, completed exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from minilog.errors import MinilogError
from minilog.partition_key import PartitionKey
from minilog.producer.futures import BatchOutcome
from minilog.producer.gathering import PartCompletion, Settable, settle
from minilog.producer.partitioner import partition_for_key
from minilog.record_batch.bounds import MAX_ROWS_WITH_DELETIONS
from minilog.record_batch.builder import build_batch, records_to_columns, set_producer
from minilog.record_batch.schema import MAX_MESSAGE_BYTES
from minilog.types import Headers, RecordMetadata

if TYPE_CHECKING:
    from minilog.typed.rows.batch import TypedRows
    from minilog.typed.schema.topic_schema import TopicSchema


class Batch:
    """The records of one batch and what is known of its fate. Mutable; one owner at a time.

    `maybe_written` is true once any attempt went out without a definite refusal coming back (rule V16).
    """

    __slots__ = (
        "attempts",
        "base_sequence",
        "charged_bytes",
        "closed",
        "columns",
        "completion",
        "correlation_id",
        "created_ms",
        "encoded",
        "error",
        "headers",
        "key",
        "keys",
        "limit_bytes",
        "maybe_written",
        "number",
        "producer",
        "schema",
        "sent_ms",
        "size_bytes",
        "statistics",
        "timestamps_us",
        "topic",
        "values",
    )

    def __init__(
        self,
        number: int,
        topic: str,
        key: PartitionKey,
        created_ms: float,
        limit_bytes: int,
        schema: TopicSchema | None = None,
        statistics: tuple[str, ...] | None = None,
    ) -> None:
        self.number = number
        self.limit_bytes = limit_bytes
        self.topic = topic
        self.key = key
        self.created_ms = created_ms
        self.charged_bytes = 0  # of buffer.memory
        self.size_bytes = 0
        self.closed = False
        self.schema = schema  # of the rows that are gathered in it
        self.statistics = statistics  # the columns of them that it tells of
        self.values: list[Any] = []  # bytes or None; with a schema the values of a row
        self.keys: list[bytes | None] = []
        self.timestamps_us: list[int] = []
        self.headers: list[Headers | None] = []
        self.columns: pa.RecordBatch | TypedRows | None = None
        self.completion: Completion
        self.encoded: bytes | None = None
        self.producer = (-1, -1)
        self.base_sequence = -1
        self.correlation_id: int | None = None  # not None: sent, no answer yet
        self.attempts = 0
        self.sent_ms = 0.0  # the last of them
        self.maybe_written = False
        self.error: MinilogError | None = None  # the last refusal, for the message at the end

    def takes(self, size_bytes: int, schema: TopicSchema | None) -> bool:
        """Whether a record of this size, by this version of a schema, is added to it, and not to a new one."""
        has_room = self.size_bytes + size_bytes <= self.limit_bytes and len(self.values) < MAX_ROWS_WITH_DELETIONS
        return has_room and not self.closed and self.schema is schema

    @property
    def record_count(self) -> int:
        return self.columns.num_rows if self.columns is not None else len(self.values)

    def keep_whole(self, torn: object) -> bool:
        """Drop what an append left that was ended in its midst, `torn`. False where nothing of the batch was taken."""
        if isinstance(self.completion, PartCompletion):
            return not self.completion.is_of(torn)
        count = len(self.values)
        del self.keys[count:], self.timestamps_us[count:], self.headers[count:]
        if isinstance(self.completion, RecordsCompletion):
            del self.completion.futures[count:]
        return count > 0

    def __str__(self) -> str:
        return f"{self.record_count} records for partition {self.key.partition} of topic {self.topic!r}"

    def fits(self, partition_count: int) -> bool:
        """Whether a topic without a schema, of so many partitions, takes it into the same partition as before."""
        if self.schema is not None or self.key.partition >= partition_count:
            return False
        if self.columns is not None:
            return isinstance(self.columns, pa.RecordBatch) and "key" not in self.columns.schema.names
        keys = {key for key in self.keys if key is not None}
        return all(partition_for_key(key, partition_count) == self.key.partition for key in keys)

    def move(self, key: PartitionKey) -> None:
        """It is surely not written, and goes elsewhere: bytes and sequence were those of its former partition."""
        assert not self.maybe_written
        assert self.correlation_id is None
        self.key, self.encoded, self.producer, self.base_sequence = key, None, (-1, -1), -1

    def encode(
        self,
        compression: str,
        producer: tuple[int, int],
        base_sequence: int,
        timestamp_us: int,
        *,
        transactional: bool = False,
    ) -> None:
        """Build the bytes, or stamp those built before with another producer or sequence. Raises InvalidRecord,
        and MessageTooLarge for what no topic takes."""
        topic_id, partition = self.key
        if self.encoded is None:
            columns = self._as_columns()
            self.encoded = _build_of(columns)(
                topic_id,
                partition,
                columns,
                compression=compression,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=base_sequence,
                timestamp_us=timestamp_us,
                transactional=transactional,
                max_bytes=MAX_MESSAGE_BYTES,
            )
        elif (producer, base_sequence) != (self.producer, self.base_sequence):
            self.encoded = set_producer(self.encoded, topic_id, partition, *producer, base_sequence)
        self.producer, self.base_sequence = producer, base_sequence

    def _as_columns(self) -> pa.RecordBatch | TypedRows:
        if self.columns is not None:
            return self.columns
        if self.schema is not None:
            from minilog.typed.rows.batch import gathered_rows  # as in _build_of

            return gathered_rows(self.schema, self.values, self.timestamps_us, self.headers, self.statistics)
        keys = self.keys if any(key is not None for key in self.keys) else None
        headers = self.headers if any(self.headers) else None
        return records_to_columns(self.values, keys, self.timestamps_us, headers)


def _build_of(columns: pa.RecordBatch | TypedRows) -> Callable[..., bytes]:
    if isinstance(columns, pa.RecordBatch):
        return build_batch
    from minilog.typed.rows.batch import build_typed_batch  # Topics without a schema need none of that.

    return build_typed_batch


class Completion(Protocol):
    """Who wants to know what became of a batch; called exactly once, outside of all locks."""

    def delivered(self, base_offset: int) -> None: ...
    def failed(self, error: MinilogError) -> None: ...


class RecordsCompletion:
    """One future per record of `send`, of asyncio."""

    __slots__ = ("_place_of", "futures")

    def __init__(self, batch: Batch) -> None:
        self._place_of = _place_of(batch)
        self.futures: list[Settable] = []

    def add(self, future: Settable, number: int) -> None:
        """It is that of the record of this number in the batch."""
        assert number == len(self.futures)
        self.futures.append(future)

    def delivered(self, base_offset: int) -> None:
        for number, future in enumerate(self.futures):
            settle(future.set_result, self._place_of(number, base_offset))

    def failed(self, error: MinilogError) -> None:
        for future in self.futures:
            settle(future.set_exception, error)


def threaded_records(batch: Batch) -> BatchOutcome:
    """One future per record of `send`, of threads."""
    return BatchOutcome(_place_of(batch))


def _place_of(batch: Batch) -> Callable[[int, int], RecordMetadata]:
    """Of a record, by its number in the batch and the offset of the first; it does not hold what was written."""
    topic, partition, timestamps_us = batch.topic, batch.key.partition, batch.timestamps_us

    def place(number: int, base_offset: int) -> RecordMetadata:
        offset = base_offset + number if base_offset >= 0 else -1
        return RecordMetadata(topic, partition, offset, timestamps_us[number] // 1000)

    return place
