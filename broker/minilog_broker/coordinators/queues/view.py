"""The table as queues and their partitions: what the rules read. Everything in flight counts.

The states of partitions stand beside the table, which has their pieces (pieces.py). So a rule reads a whole state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from minilog.errors import InvalidRecordState, ResourceNotFound, UnknownTopicId
from minilog.partition_key import PartitionKey
from minilog.v1 import common_pb2
from minilog_broker.coordinators.queues.holdings import Holdings, Tally
from minilog_broker.coordinators.queues.partition_queue import PartitionQueue
from minilog_broker.coordinators.queues.pieces import QueueKey, assembled, changed_pieces, changed_ranges
from minilog_broker.coordinators.queues.records import Queue, QueueChange, QueueTable, RedrivenTo, SettlingProducer
from minilog_broker.coordinators.queues.settings import QueueSettings, queue_settings
from minilog_broker.coordinators.table import Change

PartitionCount = Callable[[bytes], int | None]
"""The number of partitions of a topic of the image, by its id. None: there is no such topic."""
FindTopic = Callable[[str], bytes | None]
"""The id of a topic of the image, by its name. None: there is no such topic."""


class QueueView:
    """For rules it reads only; a rule that changes something gives the changes back to its coordinator."""

    def __init__(self, table: QueueTable, partition_count: PartitionCount, find_topic: FindTopic) -> None:
        self._table = table
        self._partition_count = partition_count
        self.topic_id = find_topic
        self._states: dict[str, dict[QueueKey, PartitionQueue]] = {}  # by queue
        self.holdings = Holdings()

    # -- the states of partitions

    def load(self) -> None:
        """All that is committed is in the table, and nothing else. Raises CorruptMessage."""
        self.clear()
        for key, state in assembled(self._table.committed().items()).items():
            self._set(key, state)

    def clear(self) -> None:
        self._states.clear()
        self.holdings.clear()

    def _set(self, key: QueueKey, after: PartitionQueue | None) -> None:
        before = self.partition(key)
        old, new = (() if state is None else state.ranges for state in (before, after))
        self.holdings.changed(key, *changed_ranges(old, new))
        if after is None:
            self._states.get(key.owner, {}).pop(key, None)
        else:
            self._states.setdefault(key.owner, {})[key] = after

    def in_pieces(self, changes: Sequence[QueueChange]) -> list[QueueChange]:
        """What a decision writes."""
        written: list[QueueChange] = []
        for change in changes:
            if change.key.is_partition:
                after = change.value if isinstance(change.value, PartitionQueue) else None
                pieces = changed_pieces(change.key, self.partition(change.key), after)
                written += (Change(piece.key, piece.value) for piece in pieces)
            else:
                written.append(change)
        return written

    def written(self, changes: Sequence[QueueChange]) -> None:
        """The decision has its place in the log."""
        for key, value in changes:
            if key.is_partition:
                self._set(key, value if isinstance(value, PartitionQueue) else None)

    # -- what the rules read

    def names(self) -> list[str]:
        """The queues that are known."""
        return [owner for owner in self._table.owners() if isinstance(self._table.get(QueueKey(owner)), Queue)]

    def queue(self, name: str) -> Queue:
        """The queue; an empty one where it is not known."""
        value = self._table.get(QueueKey(name))
        return value if isinstance(value, Queue) else Queue()

    def existing_queue(self, name: str) -> Queue:
        """Raises ResourceNotFound."""
        value = self._table.get(QueueKey(name))
        if not isinstance(value, Queue):
            raise ResourceNotFound(f"there is no queue '{name}': see `minilog queue list`")
        return value

    def settings(self, name: str) -> QueueSettings:
        return queue_settings(self.queue(name).settings)

    def partition(self, key: QueueKey) -> PartitionQueue | None:
        return self._states.get(key.owner, {}).get(key)

    def leased_partition(self, name: str, partition_id: common_pb2.PartitionId) -> PartitionQueue:
        """Raises InvalidRecordState where nothing of the partition was ever leased."""
        state = self.partition(QueueKey(name, PartitionKey.of(partition_id)))
        if state is None:
            raise InvalidRecordState(
                f"queue '{name}' has leased nothing of partition {partition_id.partition} of topic id "
                f"{partition_id.topic_id.hex()}: lease its records first"
            )
        return state

    def partitions(self, name: str) -> list[tuple[QueueKey, PartitionQueue]]:
        """The partitions of a queue that have a state."""
        return list(self._states.get(name, {}).items())

    def tallies(self, name: str) -> list[Tally]:
        """Of each partition of a queue that has a state."""
        return [self.holdings.tally(key) for key in self._states.get(name, {})]

    def redriven(self, key: QueueKey) -> RedrivenTo:
        """How far the letters of a partition are redriven."""
        value = self._table.get(key)
        return value if isinstance(value, RedrivenTo) else RedrivenTo()

    def all_redriven(self, name: str) -> list[tuple[QueueKey, RedrivenTo]]:
        """The same of each partition with redriven letters of a queue."""
        return [(key, value) for key, value in self._table.owned(name) if isinstance(value, RedrivenTo)]

    def producers(self, name: str) -> list[int]:
        """The producers with settling records of a queue."""
        return [key.producer_id for key, _ in self._table.owned(name) if key.producer_id is not None]

    def pending_of(self, producer_id: int, queues: Iterable[str]) -> dict[str, SettlingProducer]:
        """What a producer is settling, by queue."""
        values = {queue: self._table.get(QueueKey(queue, producer_id=producer_id)) for queue in sorted(queues)}
        return {queue: value for queue, value in values.items() if isinstance(value, SettlingProducer)}

    def keys(self, name: str, topic_ids: Iterable[bytes]) -> list[QueueKey]:
        """All partitions of these topics, as the image has them."""
        return [
            QueueKey(name, PartitionKey(topic_id, number))
            for topic_id in topic_ids
            for number in range(self._partition_count(topic_id) or 0)
        ]

    def partition_count(self, topic_ids: Iterable[bytes]) -> int:
        """Of these topics together."""
        return sum(self._partition_count(topic_id) or 0 for topic_id in topic_ids)

    def keys_from(self, name: str, topic_ids: Sequence[bytes], turn: int) -> Iterator[QueueKey]:
        """The same partitions, once around from a place on."""
        count = self.partition_count(topic_ids)
        begin = turn % max(1, count)
        keys = (
            QueueKey(name, PartitionKey(topic_id, number))
            for topic_id in [*topic_ids, *topic_ids]
            for number in range(self._partition_count(topic_id) or 0)
        )
        return islice(keys, begin, begin + count)

    def has_topic(self, topic_id: bytes) -> bool:
        return self._partition_count(topic_id) is not None

    def existing_topic(self, topic_id: bytes) -> int:
        """The number of its partitions. Raises UnknownTopicId."""
        count = self._partition_count(topic_id)
        if count is None:
            raise UnknownTopicId(f"topic id {topic_id.hex()}: the topic was deleted, or is not known yet: retry")
        return count
