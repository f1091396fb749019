"""What a partition knows of its idempotent producers: the last five batches of each. Pure.

`check` judges a batch that a producer sends to the leader, `apply` takes in a batch that is in the log:

    the batch                                             check answers
    no producer id, or a producer that is not known       Accept (any sequence)
    epoch below the known one                             InvalidProducerEpoch
    epoch above the known one                             Accept at sequence 0, else OutOfOrderSequenceNumber
    equal to one of the last five                         Duplicate, with its offsets
    the next sequence                                     Accept
    up to 2^30 behind the next sequence                   DuplicateSequenceNumber
    anything else                                         OutOfOrderSequenceNumber

Sequences run from 0 to 2^31 - 1 and begin again at 0. REPLICATION.md, Producing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import google_crc32c

from minilog.errors import DuplicateSequenceNumber, InvalidProducerEpoch, OutOfOrderSequenceNumber
from minilog.record_batch.header import NO_PRODUCER_ID, BatchHeader
from minilog_broker.storage.errors import CorruptFile

SEQUENCES = 1 << 31
KEPT_BATCHES = 5  # as many as a producer may have unanswered (Kafka's bound too)
MAX_PRODUCERS = 100_000  # per partition, about 50 MB; the longest silent one goes first

_SNAPSHOT = struct.Struct("<4sII")  # magic, crc32c of the rest, producers
_MAGIC = b"MLP1"
_PRODUCER = struct.Struct("<qqhH")  # producer id, last timestamp, epoch, batches
_BATCH = struct.Struct("<iiqq")


class WrittenBatch(NamedTuple):
    """A batch that is in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """One producer: its newest epoch, and the last batches of that epoch, oldest first."""

    producer_epoch: int
    batches: tuple[WrittenBatch, ...]
    max_timestamp_us: int

    @property
    def next_sequence(self) -> int:
        return next_sequence(self.batches[-1].last_sequence)


@dataclass(frozen=True, slots=True)
class Accept:
    """Append it."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """It is in the log already: answered under the same condition as the original."""

    base_offset: int
    last_offset: int


SequenceError: TypeAlias = OutOfOrderSequenceNumber | InvalidProducerEpoch | DuplicateSequenceNumber
Verdict: TypeAlias = Accept | Duplicate | SequenceError

ACCEPT = Accept()


def next_sequence(sequence: int) -> int:
    """The sequence after `sequence`."""
    return (sequence + 1) % SEQUENCES


def last_sequence(header: BatchHeader) -> int:
    """The sequence of the last record of a batch."""
    return (header.base_sequence + header.last_offset_delta) % SEQUENCES


class ProducerState:
    """The producers of one partition, up to a point of its log. Changed on one thread."""

    __slots__ = ("_max_producers", "_producers")

    def __init__(self, *, max_producers: int = MAX_PRODUCERS) -> None:
        self._producers: dict[int, ProducerEntry] = {}  # the longest silent one first
        self._max_producers = max_producers

    def __len__(self) -> int:
        return len(self._producers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerState) and self._producers == other._producers

    __hash__ = None  # type: ignore[assignment]

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer."""
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader, tentative: Iterable[BatchHeader] = ()) -> Verdict:
        """Judge a batch against what is in the log and the accepted batches on their way into it, in order."""
        if header.producer_id == NO_PRODUCER_ID:
            return ACCEPT
        entry = self._producers.get(header.producer_id)
        for accepted in tentative:
            if accepted.producer_id == header.producer_id:
                entry = _entry_after(entry, accepted)
        return ACCEPT if entry is None else _judge(entry, header)

    def apply(self, header: BatchHeader) -> None:
        """Take in a batch of the log. Batches without a producer, markers and those of an old epoch change nothing."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID or header.is_control:
            return
        entry = self._producers.pop(producer_id, None)
        self._producers[producer_id] = _entry_after(entry, header)
        if len(self._producers) > self._max_producers:
            del self._producers[next(iter(self._producers))]

    def expire(self, before_timestamp_us: int) -> int:
        """Forget producers whose newest timestamp is older. Returns how many."""
        old = [key for key, entry in self._producers.items() if entry.max_timestamp_us < before_timestamp_us]
        for producer_id in old:
            del self._producers[producer_id]
        return len(old)

    def snapshot(self) -> bytes:
        """The whole state as bytes with a checksum."""
        parts: list[bytes] = []
        for producer_id, entry in self._producers.items():
            parts.append(_PRODUCER.pack(producer_id, entry.max_timestamp_us, entry.producer_epoch, len(entry.batches)))
            parts.extend(_BATCH.pack(*batch) for batch in entry.batches)
        body = b"".join(parts)
        return _SNAPSHOT.pack(_MAGIC, google_crc32c.value(body), len(self._producers)) + body

    def restore(self, snapshot: bytes) -> None:
        """Become the state that `snapshot` was made of. Raises CorruptFile, and changes nothing, if it is damaged."""
        body = snapshot[_SNAPSHOT.size :]
        if len(snapshot) < _SNAPSHOT.size:
            raise CorruptFile(f"a producer snapshot cannot have {len(snapshot)} bytes")
        magic, crc, count = _SNAPSHOT.unpack_from(snapshot)
        if magic != _MAGIC or google_crc32c.value(body) != crc:
            raise CorruptFile("a producer snapshot is damaged: its checksum is wrong")
        try:
            self._producers = _decode(body, count)
        except struct.error as error:
            raise CorruptFile("a producer snapshot ends in the middle of a producer") from error


def _decode(body: bytes, count: int) -> dict[int, ProducerEntry]:
    producers: dict[int, ProducerEntry] = {}
    position = 0
    for _ in range(count):
        producer_id, timestamp_us, epoch, batch_count = _PRODUCER.unpack_from(body, position)
        position += _PRODUCER.size
        end = position + batch_count * _BATCH.size
        if not 1 <= batch_count <= KEPT_BATCHES or end > len(body):
            raise CorruptFile(f"a producer snapshot says that producer {producer_id} has {batch_count} batches")
        batches = tuple(WrittenBatch(*fields) for fields in _BATCH.iter_unpack(body[position:end]))
        producers[producer_id] = ProducerEntry(epoch, batches, timestamp_us)
        position = end
    if position != len(body):
        raise CorruptFile(f"a producer snapshot of {count} producers has {len(body) - position} bytes too many")
    return producers


class ReplayableLog(Protocol):
    """What rebuilding the state needs of a log."""

    @property
    def log_start_offset(self) -> int: ...

    def load_producer_snapshot(self) -> tuple[int, bytes] | None: ...

    def headers(self, from_offset: int) -> Iterator[BatchHeader]: ...


def recover_producer_state(log: ReplayableLog) -> ProducerState:
    """The producers of a log: its newest snapshot, and the headers behind it."""
    state = ProducerState()
    offset = log.log_start_offset
    stored = log.load_producer_snapshot()
    if stored is not None:
        try:
            state.restore(stored[1])
            offset = stored[0]
        except CorruptFile:
            pass  # all headers say the same, and more slowly
    for header in log.headers(offset):
        state.apply(header)
    return state


def _entry_after(entry: ProducerEntry | None, header: BatchHeader) -> ProducerEntry:
    if entry is not None and header.producer_epoch < entry.producer_epoch:
        return entry
    batch = WrittenBatch(header.base_sequence, last_sequence(header), header.base_offset, header.last_offset)
    if entry is None or header.producer_epoch > entry.producer_epoch:
        return ProducerEntry(header.producer_epoch, (batch,), header.max_timestamp_us)
    newest = max(entry.max_timestamp_us, header.max_timestamp_us)
    return ProducerEntry(entry.producer_epoch, (*entry.batches, batch)[-KEPT_BATCHES:], newest)


def _judge(entry: ProducerEntry, header: BatchHeader) -> Verdict:
    who = f"producer {header.producer_id} epoch {header.producer_epoch}"
    sequence = header.base_sequence
    if header.producer_epoch < entry.producer_epoch:
        return InvalidProducerEpoch(f"{who}: epoch {entry.producer_epoch} has written, this producer is fenced")
    if header.producer_epoch > entry.producer_epoch:
        if sequence == 0:
            return ACCEPT
        return OutOfOrderSequenceNumber(f"{who}: a new epoch starts at sequence 0, this batch has {sequence}")
    if sequence == entry.next_sequence:
        return ACCEPT
    last = last_sequence(header)
    for batch in entry.batches:
        if batch.base_sequence == sequence and batch.last_sequence == last:
            return Duplicate(batch.base_offset, batch.last_offset)
    if (entry.next_sequence - sequence) % SEQUENCES <= SEQUENCES // 2:
        return DuplicateSequenceNumber(
            f"{who}: sequence {sequence} is older than its last {len(entry.batches)} batches"
        )
    return OutOfOrderSequenceNumber(f"{who}: sequence {sequence} came, {entry.next_sequence} is next")
