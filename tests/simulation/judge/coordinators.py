"""What coordinators of transactions say, against their logs on the disks. V15.

markers that are asked for       rest on a decision about that producer, and the decision is committed
an End that is answered          the generation is committed, and that is
who wins in a generation         was named by one request to end it, all of them by the same
a producer's first batch         it was registered for that partition before
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minilog.errors import CorruptMessage
from minilog.net.coordinators_of import TRANSACTIONS_TOPIC_NAME, coordinator_partition
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader, check_crc
from minilog.record_batch.reader import read_payload
from minilog.v1 import common_pb2, coordinator_pb2, coordinator_records_pb2
from tests.simulation.judge.partition import JudgedPartition

if TYPE_CHECKING:
    from tests.judges.views import View
    from tests.simulation.judge.copies import Copy
    from tests.simulation.judge.truth import Truth
    from tests.simulation.machines.wire import Said

_OK = common_pb2.ERROR_CODE_NONE
_COMMITTING = coordinator_records_pb2.PRODUCER_STATE_COMMITTING
_ABORTING = coordinator_records_pb2.PRODUCER_STATE_ABORTING
_COMMITTED = (
    coordinator_pb2.TRANSACTION_OUTCOME_COMMITTED,
    coordinator_pb2.TRANSACTION_OUTCOME_COMMITTED_BECOMING_VISIBLE,
)


def _is_whole(content: bytes, key: PartitionKey, header: BatchHeader) -> bool:
    try:
        check_crc(key.topic_id, key.partition, content, header)
    except CorruptMessage:
        return False
    return True


@dataclass(slots=True)
class _Log:
    """What one copy of one partition of `__transactions` says. `decided`: (committed, end of the decision)."""

    last: BatchHeader | None = None
    decided: dict[int, tuple[bool, int]] = field(default_factory=dict)
    generations: dict[tuple[str, int], int] = field(default_factory=dict)  # last committed: where that was said
    winners: dict[tuple[str, int], set[int]] = field(default_factory=dict)  # by generation
    generation_of: dict[int, tuple[str, int]] = field(default_factory=dict)  # of a winner
    registered: set[tuple[int, PartitionKey]] = field(default_factory=set)

    def read(self, view: View, key: PartitionKey) -> None:
        """Take in what is new, up to what a loss of power has torn (its broker may not be back to cut it); all anew
        where what was read last is not there any more."""
        if self.last is not None and next(iter(view.from_offset(self.last.base_offset)), None) != self.last:
            self.last = None
            self.decided.clear()
            self.generations.clear()
            self.winners.clear()
            self.generation_of.clear()
        for header in list(view.from_offset(0 if self.last is None else self.last.next_offset)):
            content = view.content(header.base_offset)
            if not _is_whole(content, key, header):
                return
            if not header.is_control:
                self._batch(header, content)
            self.last = header

    def _batch(self, header: BatchHeader, content: bytes) -> None:
        rows = read_payload(content, header)
        keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
        for key_bytes, value in zip(keys, values, strict=True):
            key = coordinator_records_pb2.TransactionLogKey.FromString(key_bytes)
            if value is None:
                continue
            if not key.HasField("producer_id"):
                record = coordinator_records_pb2.TransactionRecord.FromString(value)
                if record.HasField("last_committed_generation"):
                    at = key.transactional_id, record.last_committed_generation
                    self.generations.setdefault(at, header.next_offset)
                continue
            producer = coordinator_records_pb2.ProducerRecord.FromString(value)
            if producer.state == _COMMITTING:
                at = key.transactional_id, producer.generation
                self.winners.setdefault(at, set()).add(key.producer_id)
                self.generation_of[key.producer_id] = at
            if producer.state in (_COMMITTING, _ABORTING):
                self.decided.setdefault(key.producer_id, (producer.state == _COMMITTING, header.next_offset))
            for each in producer.partitions:
                at_partition = PartitionKey(each.partition_id.topic_id, each.partition_id.partition)
                self.registered.add((key.producer_id, at_partition))


class JudgeOfCoordinators:
    """Coordinators' messages against the logs of `__transactions`."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._logs: dict[tuple[int, PartitionKey], _Log] = {}
        self._requests: weakref.WeakKeyDictionary[Said, Any] = weakref.WeakKeyDictionary()
        self._named: dict[tuple[str, int], set[frozenset[int]]] = {}  # by each request to end a generation
        self._registered: set[tuple[int, PartitionKey]] = set()
        self._asked: dict[str, Callable[[Said, Any], None]] = {
            "/minilog.v1.MarkerService/WriteMarkers": self._markers,
            "/minilog.v1.TransactionService/EndTransaction": self._end,
            "/minilog.v1.TransactionService/RegisterPartitions": self._keep,
        }
        self._answered: dict[str, Callable[[Said, Any], None]] = {
            "/minilog.v1.TransactionService/EndTransaction": self._ended,
            "/minilog.v1.TransactionService/RegisterPartitions": self._did_register,
        }

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """A message is sent."""
        look = (self._answered if answers else self._asked).get(call.method)
        if look is not None:
            look(call, message)

    def _keep(self, call: Said, message: Any) -> None:
        self._requests[call] = message

    def _end(self, call: Said, message: Any) -> None:
        self._keep(call, message)
        winners = frozenset(each.producer_id for each in message.winners)
        self._named.setdefault((message.transactional_id, message.generation), set()).add(winners)

    def _partition(self, number: int) -> JudgedPartition | None:
        """Of `__transactions`."""
        for topic_id, topic in self._truth.metadata.topics.items():
            if topic.name == TRANSACTIONS_TOPIC_NAME:
                return self._truth.partition(PartitionKey(topic_id, number))
        return None

    def _log(self, copy: Copy, partition: JudgedPartition) -> _Log:
        log = self._logs.setdefault((copy.host.number, partition.key), _Log())
        log.read(copy.live, partition.key)
        return log

    # -- decisions

    def _markers(self, call: Said, message: Any) -> None:
        number, _ = self._truth.speaker(call.client)
        partition = self._partition(message.coordinator_partition)
        copy = None if number < 0 or partition is None else partition.sound_copy(number)
        if partition is None or copy is None:
            return
        decided = self._log(copy, partition).decided
        for marker in message.markers:
            found = decided.get(marker.producer_id)
            what = "commits" if marker.committed else "aborts"
            if found is None or found[0] != marker.committed:
                text = f"b{number} {what} producer {marker.producer_id}, its log says {found}"
                raise partition.fail("V15", text)
            if not partition.is_held(copy.host.number, found[1]):
                text = f"b{number} {what} producer {marker.producer_id}, and that is not committed yet"
                raise partition.fail("V15", text)
            if marker.committed:
                self._check_winners(partition, copy, marker.producer_id)

    def _check_winners(self, partition: JudgedPartition, copy: Copy, producer_id: int) -> None:
        """Those of two attempts never win together."""
        log, number = self._log(copy, partition), copy.host.number
        at = log.generation_of[producer_id]
        if not any(log.winners[at] <= named for named in self._named.get(at, ())):
            text = f"b{number} commits generation {at[1]} of {at[0]}: no request named all of {sorted(log.winners[at])}"
            raise partition.fail("V15", text)

    def _ended(self, call: Said, message: Any) -> None:
        number, _ = self._truth.speaker(call.host)
        request = self._requests.get(call)
        if request is None or message.error.code != _OK or message.outcome not in _COMMITTED:
            return
        partition = self._partition(coordinator_partition(request.transactional_id))
        copy = None if partition is None else partition.sound_copy(number)
        if partition is None or copy is None:
            return
        at = request.transactional_id, request.generation
        end = self._log(copy, partition).generations.get(at)
        if end is None and copy.live.start > 0:
            return  # it was said where the log begins no more
        if end is None or not partition.is_held(copy.host.number, end):
            text = f"b{number} answers that generation {at[1]} of {at[0]} is committed, and it is not yet"
            raise partition.fail("V15", text)

    # -- who may write

    def _did_register(self, call: Said, message: Any) -> None:
        request = self._requests.get(call)
        if request is not None and message.error.code == _OK:
            for each in request.partitions:
                self._registered.add((request.producer_id, PartitionKey(each.topic_id, each.partition)))

    def may_write(self, producer_id: int, key: PartitionKey) -> bool:
        """Whether the producer was registered there; true where nothing is known any more."""
        if (producer_id, key) in self._registered:
            return True
        for partition in list(self._truth.partitions.values()):
            topic = self._truth.metadata.topics.get(partition.key.topic_id)
            if topic is None or topic.name != TRANSACTIONS_TOPIC_NAME:
                continue
            for copy in self._truth.copies.all_of(partition.name):
                if copy.live.start > 0 or (producer_id, key) in self._log(copy, partition).registered:
                    return True
        return False
