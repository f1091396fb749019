"""Puts records into batches, per partition, within buffer.memory. User threads touch only this part of a producer.

A batch is ready when it is full (batch.size), when it has waited linger.ms, or when the user flushes. It is also ready
when the sender lets nothing linger, since no other batch is on its way. Each record that the accumulator takes costs
memory, which comes back when its batch is settled. The answer of a full buffer is NO_SPACE, and the caller waits or
gives up (back-pressure). All methods take the lock themselves, and time comes in as an argument. No method that runs
for each message walks the partitions, since a topic may have thousands.

A signal may end `append` and `append_columns` at any point with an exception. The next holder of the lock mends what
is torn. The queues are the truth, and a record counts if its value is there, since that comes last. All other state is
made again from the queues. The code enters the lock itself, and not its condition, whose entry is more than one step.
"""

from __future__ import annotations

import enum
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from minilog.errors import Closed, MessageTooLarge, MinilogError
from minilog.net.metadata_cache import CachedTopic
from minilog.partition_key import PartitionKey
from minilog.producer.batch import Batch, RecordsCompletion
from minilog.producer.futures import BatchOutcome
from minilog.producer.gathering import Gathering, PartCompletion
from minilog.producer.partitioner import StickyPartitioner, partition_for_key
from minilog.types import Headers

if TYPE_CHECKING:
    from minilog.typed.rows.batch import TypedRows
    from minilog.typed.schema.topic_schema import TopicSchema

RECORD_OVERHEAD_BYTES = 16  # two Arrow offsets and a timestamp
_HEADER_OVERHEAD_BYTES = 12
_BATCH_OVERHEAD_BYTES = 1024  # the batch header and Arrow's metadata


class Taken(enum.Enum):
    """The answer to a record or an Arrow batch that the caller hands in."""

    ADDED = enum.auto()
    WAKE = enum.auto()  # added, and the caller must wake the sender
    NO_SPACE = enum.auto()


class Accumulator:
    """The batches of one producer until they are settled, and their memory.

    `available` returns the partitions of a topic that have a leader.
    """

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: int,
        buffer_memory: int,
        chance: random.Random,
        available: Callable[[CachedTopic], list[int]],
        completion: Callable[[Batch], Any] = RecordsCompletion,
    ) -> None:
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._buffer_memory = buffer_memory
        self._available = available
        self._completion = completion
        self._sticky = StickyPartitioner(chance)
        self._round_robin = StickyPartitioner(chance)
        self._queues: dict[PartitionKey, deque[Batch]] = {}
        # By topic: the last batch for records without a key and a partition, while it is here.
        self._keyless: dict[bytes, Batch] = {}
        self._ready: dict[PartitionKey, None] = {}  # their first batch may go
        self._newly_ready: list[PartitionKey] = []
        self._lingering: deque[Batch] = deque()  # in the order of their creation, and some are closed by now
        self._waiting: dict[int, Batch] = {}  # the batches that have not left, by number, ascending
        self._unsettled: dict[int, Batch] = {}  # by number, ascending
        self._numbers = 0
        self._used_bytes = 0
        self._refusal: MinilogError | None = None  # while set, the accumulator takes nothing
        self.is_in_transaction = False  # all that it takes now is committed together, or not at all
        self._torn: object = None  # the append that is under way, or that an exception ended in its midst
        self._lock = threading.Lock()
        self.changed = threading.Condition(self._lock)  # notified when batches are settled, and on close

    def append(
        self,
        topic: CachedTopic,
        partition: int | None,
        key: bytes | None,
        value: Any,
        headers: Headers | None,
        timestamp_us: int,
        future: Any,
        now_ms: float,
        schema: TopicSchema | None = None,
        row_bytes: int = 0,
    ) -> Taken:
        """Take one record. With a `schema` it is one row, whose values take about `row_bytes`.

        Raises Closed, the error of `refuse`, and MessageTooLarge for a record above buffer.memory."""
        if schema is None:
            row_bytes = (len(value) if value else 0) + (len(key) if key else 0)
        size = RECORD_OVERHEAD_BYTES + row_bytes
        if headers:
            size += sum(_HEADER_OVERHEAD_BYTES + len(name) + len(content or b"") for name, content in headers)
        with self._lock:
            if self._torn is not None:
                self._mend()
            if self._refusal is not None:
                raise _again(self._refusal)
            if self._used_bytes + size > self._buffer_memory:
                self._check_fits(topic, size)
                return Taken.NO_SPACE
            self._torn = future
            batch, fresh = self._batch_for(topic, schema, partition, key, size, now_ms)
            batch.keys.append(key)
            batch.timestamps_us.append(timestamp_us)
            batch.headers.append(headers)
            batch.completion.add(future, len(batch.values))  # type: ignore[attr-defined]
            batch.size_bytes += size
            batch.charged_bytes += size
            self._used_bytes += size
            batch.values.append(value)  # from here on the record counts as taken
            if batch.size_bytes >= batch.limit_bytes:
                self._close(batch)
                fresh = True
            self._torn = None
            return Taken.WAKE if fresh else Taken.ADDED

    def _batch_for(
        self,
        topic: CachedTopic,
        schema: TopicSchema | None,
        partition: int | None,
        key: bytes | None,
        size: int,
        now_ms: float,
    ) -> tuple[Batch, bool]:
        """The batch that takes a record, and whether it is a new one."""
        keyless = partition is None and key is None
        if keyless:
            batch = self._keyless.get(topic.topic_id)
            if batch is not None and batch.takes(size, schema):
                return batch, False
        if partition is None:
            partition = self._choose(topic, schema, key, size)
        batch, fresh = self._open_batch(topic, schema, partition, size, now_ms)
        if keyless:
            self._keyless[topic.topic_id] = batch
        return batch, fresh

    def _choose(self, topic: CachedTopic, schema: TopicSchema | None, key: bytes | None, size: int) -> int:
        if key is not None:
            return partition_for_key(key, topic.partition_count)
        current = self._sticky.current(topic.topic_id)
        if current is not None:
            queue = self._queues.get(PartitionKey(topic.topic_id, current))
            if queue and not queue[-1].closed:
                if queue[-1].takes(size, schema):
                    return current
                self._close(queue[-1])  # full: the next batch goes to another partition
        return self._sticky.advance(topic.topic_id, self._available(topic))

    def _is_open(self, key: PartitionKey) -> bool:
        queue = self._queues.get(key)
        return bool(queue) and not queue[-1].closed  # type: ignore[index]

    def _open_batch(
        self, topic: CachedTopic, schema: TopicSchema | None, partition: int, size: int, now_ms: float
    ) -> tuple[Batch, bool]:
        key = PartitionKey(topic.topic_id, partition)
        queue = self._queues.get(key)
        if queue and not queue[-1].closed:
            if queue[-1].takes(size, schema):
                return queue[-1], False
            self._close(queue[-1])
        batch = self._new_batch(topic, key, now_ms, schema)
        batch.completion = self._completion(batch)
        self._enqueue(batch)
        return batch, True

    def _new_batch(
        self, topic: CachedTopic, key: PartitionKey, now_ms: float, schema: TopicSchema | None = None
    ) -> Batch:
        self._numbers += 1
        return Batch(self._numbers, topic.name, key, now_ms, self._limit(topic), schema, topic.statistics_columns)

    def _enqueue(self, batch: Batch) -> None:
        self._queues.setdefault(batch.key, deque()).append(batch)
        self._waiting[batch.number] = batch  # first here: a batch that is only in the next table is with the sender
        self._unsettled[batch.number] = batch
        self._lingering.append(batch)

    def _mend(self) -> None:
        """Mend what an interrupted append has torn. An interrupted `_mend` begins again."""
        for key, queue in list(self._queues.items()):
            whole = deque(batch for batch in queue if batch.keep_whole(self._torn))
            if whole:
                self._queues[key] = whole
            else:
                del self._queues[key]
        queued = sorted((batch for queue in self._queues.values() for batch in queue), key=lambda batch: batch.number)
        here = {batch.number: batch for batch in queued}
        gone = {number: batch for number, batch in self._unsettled.items() if number not in self._waiting}
        self._unsettled = dict(sorted((gone | here).items()))
        self._waiting = here
        self._keyless = {topic: batch for topic, batch in self._keyless.items() if batch.number in here}
        self._lingering = deque(batch for batch in queued if not batch.closed)
        self._newly_ready += [batch.key for batch in queued if batch.closed]
        self._ready |= dict.fromkeys(self._newly_ready)
        self._used_bytes = sum(batch.charged_bytes for batch in self._unsettled.values())
        self._torn = None

    def _close(self, batch: Batch) -> None:
        """Let no more records into this batch. The batches before it in its queue are closed already."""
        batch.closed = True
        self._may_go(batch.key)

    def _may_go(self, key: PartitionKey) -> None:
        if key not in self._ready:
            self._ready[key] = None
            self._newly_ready.append(key)

    def _limit(self, topic: CachedTopic) -> int:
        """The bytes of records in one batch: batch.size, or less if the topic takes only smaller batches."""
        if topic.max_message_bytes is None:
            return self._batch_size
        return max(1, min(self._batch_size, topic.max_message_bytes - _BATCH_OVERHEAD_BYTES))

    def _check_fits(self, topic: CachedTopic, size: int) -> None:
        if size > self._buffer_memory:
            raise MessageTooLarge(
                f"a record of {size} bytes for topic {topic.name!r} is larger than "
                f"buffer.memory={self._buffer_memory}: raise it, or send smaller records"
            )

    def slice_bytes(self, topic: CachedTopic) -> int:
        """The size for the parts of an Arrow batch, in bytes of a whole record batch."""
        return self._limit(topic) + _BATCH_OVERHEAD_BYTES

    def append_columns(
        self,
        topic: CachedTopic,
        parts: Sequence[tuple[int | None, pa.RecordBatch | TypedRows]],
        future: Any,
        now_ms: float,
    ) -> Taken:
        """Take all parts or none. A part is (partition, rows), and each becomes one batch. Without a partition (None)
        it goes to the next one in turn."""
        sizes = [RECORD_OVERHEAD_BYTES + columns.nbytes for _, columns in parts]
        with self._lock:
            if self._torn is not None:
                self._mend()
            if self._refusal is not None:
                raise _again(self._refusal)
            if self._used_bytes + sum(sizes) > self._buffer_memory and self._used_bytes:
                return Taken.NO_SPACE  # parts that are larger than the whole buffer go when it is empty
            gathering = self._torn = Gathering(future, len(parts), transactional=self.is_in_transaction)
            for index, ((partition, columns), size) in enumerate(zip(parts, sizes, strict=True)):
                if partition is None:
                    partition = self._round_robin.advance(topic.topic_id, self._available(topic))
                key = PartitionKey(topic.topic_id, partition)
                if self._is_open(key):
                    self._close(self._queues[key][-1])  # earlier records go first
                batch = self._new_batch(topic, key, now_ms)
                batch.columns = columns
                batch.completion = PartCompletion(gathering, index, batch.topic, partition, batch.record_count)
                batch.size_bytes = batch.charged_bytes = size
                self._used_bytes += size
                self._enqueue(batch)
                self._close(batch)
            self._torn = None
            return Taken.WAKE

    def newly_ready(self, now_ms: float, *, lingers: bool = True) -> list[PartitionKey]:
        """The partitions whose first batch may go now, and could not at the last call. They stay ready until `take`
        returns None. With `lingers` false all partitions with records may go."""
        with self._lock:
            if self._torn is not None:
                self._mend()
            while self._lingering and self._is_ready(self._lingering[0], now_ms):
                batch = self._lingering.popleft()
                if not batch.closed:
                    self._may_go(batch.key)
            if not lingers:
                for batch in self._lingering:  # they stay here: a batch that cannot go now lingers on
                    if not batch.closed:
                        self._may_go(batch.key)
            ready, self._newly_ready = self._newly_ready, []
            return ready

    def is_ready(self, key: PartitionKey) -> bool:
        """Whether the partition's first batch may go, without a look at the time."""
        return key in self._ready

    def _is_ready(self, batch: Batch, now_ms: float) -> bool:
        return batch.closed or now_ms >= batch.created_ms + self._linger_ms

    def take(self, key: PartitionKey, now_ms: float, *, lingers: bool = True) -> Batch | None:
        """The first batch of a partition if it may go. It is closed, and belongs to the sender from now on."""
        with self._lock:
            if self._torn is not None:
                self._mend()
            queue = self._queues.get(key)
            if queue and (not lingers or self._is_ready(queue[0], now_ms)):
                return self._pop(key, queue)
            self._ready.pop(key, None)
            return None

    def _pop(self, key: PartitionKey, queue: deque[Batch]) -> Batch:
        batch = queue.popleft()
        batch.closed = True
        del self._waiting[batch.number]
        if self._keyless.get(key.topic_id) is batch:
            del self._keyless[key.topic_id]
        if not queue:
            del self._queues[key]
            self._ready.pop(key, None)
        return batch

    def move_to_front(self, batch: Batch, key: PartitionKey) -> None:
        """Put a batch that the sender took and did not write before the batches of another partition."""
        with self.changed:
            batch.move(key)
            self._queues.setdefault(key, deque()).appendleft(batch)
            self._waiting = dict(sorted([*self._waiting.items(), (batch.number, batch)]))
            self._may_go(key)

    def take_older_than(self, created_ms: float) -> list[Batch]:
        """All batches that were created at or before `created_ms` and have not left."""
        batches = []
        with self._lock:
            if self._torn is not None:
                self._mend()
            while (oldest := next(iter(self._waiting.values()), None)) and oldest.created_ms <= created_ms:
                batches.append(self._pop(oldest.key, self._queues[oldest.key]))
        return batches

    def next_ready_ms(self) -> float:
        """The time when the next lingering batch becomes ready, or became ready. Infinity for none."""
        with self._lock:
            if self._torn is not None:
                self._mend()
            while self._lingering and self._lingering[0].closed:
                self._lingering.popleft()
            return self._lingering[0].created_ms + self._linger_ms if self._lingering else float("inf")

    def oldest_created_ms(self) -> float:
        """The creation time of the oldest batch that has not left. Infinity for none."""
        with self._lock:
            if self._torn is not None:
                self._mend()
            return next((batch.created_ms for batch in self._waiting.values()), float("inf"))

    def settled(self, batch: Batch) -> None:
        """Give back the memory of a batch that was delivered or has failed."""
        with self._lock:
            if self._unsettled.pop(batch.number, None) is not None:
                self._used_bytes -= batch.charged_bytes
                self.changed.notify_all()

    def begin_flush(self) -> int:
        """Let all batches go without lingering. Returns the number to give to `is_settled`."""
        with self._lock:
            if self._torn is not None:
                self._mend()
            for queue in self._queues.values():
                self._close(queue[-1])
            return self._numbers

    def is_settled(self, number: int) -> bool:
        """Whether all batches up to `number` are settled. The caller need not hold the lock."""
        return next(iter(list(self._unsettled)), number + 1) > number

    def wait_for_space(self, timeout_s: float) -> None:
        """Wait until a batch is settled, or about `timeout_s`."""
        with self._lock:
            self.changed.wait(timeout_s)

    def unsettled_records(self) -> int:
        """The number of records that the producer took, and that may not be written yet."""
        with self._lock:
            return sum(batch.record_count for batch in self._unsettled.values())

    def used_bytes(self) -> int:
        """The bytes of buffer.memory that are in use now."""
        return self._used_bytes

    def refuse(self, why: MinilogError) -> None:
        """Take nothing until `accept`. A sending program gets this error."""
        with self._lock:
            if not isinstance(self._refusal, Closed):
                self._refusal = why
            self.changed.notify_all()

    def check(self) -> None:
        """Raises the error of `refuse`, usually Closed, while the accumulator takes nothing."""
        if self._refusal is not None:
            raise _again(self._refusal)

    def accept(self) -> None:
        """Take records again, unless the accumulator is closed."""
        with self._lock:
            if not isinstance(self._refusal, Closed):
                self._refusal = None

    def close(self) -> None:
        """Take nothing more, ever."""
        self.refuse(Closed("the producer is closed: nothing more can be sent"))

    def forked(self, why: Closed) -> None:
        """Take nothing in a forked child. The records so far belong to the parent. Its threads do not exist here, and
        may have held the lock."""
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]
        self._refusal = why
        for batch in self._unsettled.values():
            if isinstance(batch.completion, BatchOutcome):
                batch.completion.leave(why)

    def keys(self) -> list[PartitionKey]:
        """The partitions that have records here."""
        with self._lock:
            if self._torn is not None:
                self._mend()
            return list(self._queues)

    def take_all(self, key: PartitionKey | None = None) -> list[Batch]:
        """All batches that have not left, or those of one partition. The caller reports them, and does not send
        them."""
        with self._lock:
            if self._torn is not None:
                self._mend()
            chosen = [queue_key for queue_key in self._queues if key in (None, queue_key)]
            return [batch for queue_key in chosen for batch in self._pop_all(queue_key)]

    def _pop_all(self, key: PartitionKey) -> list[Batch]:
        queue = self._queues[key]
        return [self._pop(key, queue) for _ in range(len(queue))]


def _again(error: MinilogError) -> MinilogError:
    """A new exception for each caller."""
    return type(error)(str(error))
