"""The state of a partition's producers: the last five batches of each, and their transactions. Pure.

`check` judges a batch that a producer sends to the leader. `apply` takes in a batch that is in the log:

    the batch                                             check answers
    no producer id                                        Accept
    a producer that has ended                             ProducerFenced
    a producer that is not known                          Accept (any sequence; transactional: 0 only)
    transactional, or not, and the ones before otherwise  InvalidTxnState
    epoch below the known one                             InvalidProducerEpoch
    epoch above the known one                             Accept at sequence 0, else OutOfOrderSequenceNumber
    equal to one of the last five                         Duplicate, with its offsets
    the next sequence                                     Accept
    up to 2^30 behind the next sequence                   DuplicateSequenceNumber
    anything else                                         OutOfOrderSequenceNumber

Sequences run from 0 to 2^31 - 1 and begin again at 0. The state has a producer's batches until the producer ends. From
then on it has only the end (transactions.py). docs/spec/replication.md § Producing.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeAlias

import google_crc32c

from minilog.errors import (
    CorruptMessage,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import NO_PRODUCER_ID, BatchHeader, check_crc
from minilog_broker.storage.compaction_point import CopyCompaction
from minilog_broker.storage.errors import CorruptFile
from minilog_broker.storage.markers import Marker, read_markers
from minilog_broker.storage.transactions import NOTHING, Finished, PartitionTransactions

SEQUENCES = 1 << 31
KEPT_BATCHES = 5  # the most that a producer may have unanswered (Kafka's bound, too)
MAX_PRODUCERS = 100_000  # per partition, about 50 MB. The producer that is silent for the longest time goes first

_SNAPSHOT = struct.Struct("<4sI")  # magic, crc32c of the rest
_COUNTS = struct.Struct("<II")  # producers, and their bytes; the transactions follow
_MAGIC = b"MLP3"  # MLP1 had no transactions, MLP2 no coordinators
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
    """The leader appends the batch."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is in the log already. The leader answers it under the same condition as the original."""

    base_offset: int
    last_offset: int


Refusal: TypeAlias = (
    OutOfOrderSequenceNumber | InvalidProducerEpoch | DuplicateSequenceNumber | ProducerFenced | InvalidTxnState
)
Verdict: TypeAlias = Accept | Duplicate | Refusal

ACCEPT = Accept()


def next_sequence(sequence: int) -> int:
    """The sequence after `sequence`."""
    return (sequence + 1) % SEQUENCES


def last_sequence(header: BatchHeader) -> int:
    """The sequence of the last record of a batch."""
    return (header.base_sequence + header.last_offset_delta) % SEQUENCES


class ProducerState:
    """The producers of one partition, up to a point of its log. Only one thread changes the state."""

    __slots__ = ("_max_producers", "_producers", "transactions")

    def __init__(self, *, max_producers: int = MAX_PRODUCERS) -> None:
        self.transactions = PartitionTransactions()
        self._producers: dict[int, ProducerEntry] = {}  # the longest silent one first
        self._max_producers = max_producers

    def __len__(self) -> int:
        return len(self._producers)

    def __bool__(self) -> bool:
        return bool(self._producers or self.transactions)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerState):
            return NotImplemented
        return self._producers == other._producers and self.transactions == other.transactions

    __hash__ = None  # type: ignore[assignment]

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """The entry of a producer. None if the state does not know it."""
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader, tentative: Iterable[BatchHeader] = ()) -> Verdict:
        """Judge a batch against the log and `tentative`: accepted batches, in order, that are not in the log yet."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return ACCEPT
        if self.transactions.end_of(producer_id) is not None:
            return fenced(producer_id)
        entry, was_transactional = self._producers.get(producer_id), self.transactions.is_open(producer_id)
        for accepted in tentative:
            if accepted.producer_id == producer_id:
                entry, was_transactional = _entry_after(entry, accepted), accepted.is_transactional
        if entry is None:
            return ACCEPT if header.base_sequence == 0 or not header.is_transactional else _not_its_first(header)
        if was_transactional != header.is_transactional:
            return InvalidTxnState(
                f"producer {producer_id} cannot write both inside and outside of a transaction: use another producer"
            )
        return _judge(entry, header)

    def apply(self, header: BatchHeader, markers: Iterable[Marker] = ()) -> None:
        """Take in a batch of the log. A control batch comes with its markers.

        A batch without a producer changes nothing, and a batch of an old epoch changes nothing."""
        producer_id = header.producer_id
        if header.is_control:
            self._end(header, markers)
        if producer_id == NO_PRODUCER_ID or header.is_control:
            return
        if header.is_transactional:
            self.transactions.begin(producer_id, header.base_offset)
        entry = self._producers.pop(producer_id, None)
        self._producers[producer_id] = _entry_after(entry, header)
        if len(self._producers) > self._max_producers:
            self._drop_the_most_silent()

    def _end(self, header: BatchHeader, markers: Iterable[Marker]) -> None:
        finished = []
        for producer_id, committed, coordinator in markers:
            self.transactions.had_written(coordinator)
            entry = self._producers.pop(producer_id, None)
            last_offset = NOTHING if entry is None else entry.batches[-1].last_offset
            finished.append(Finished(producer_id, committed, last_offset))
        self.transactions.end(finished, header.base_offset, header.next_offset, header.max_timestamp_us)

    def abort_unmarked(self, producer_ids: Iterable[int], end_offset: int) -> None:
        """Take these open transactions as aborted, because compaction has removed their markers. `end_offset` is the
        end of the log as of this state."""
        last_offsets: dict[int, int] = {}
        for producer_id in producer_ids:
            entry = self._producers.pop(producer_id, None)
            last_offsets[producer_id] = end_offset - 1 if entry is None else entry.batches[-1].last_offset
        self.transactions.abort_unmarked(last_offsets, end_offset)

    def _drop_the_most_silent(self) -> None:
        """Drop the producer that is silent for the longest time, but never one with an open transaction.

        Such a producer moves to the end of the order."""
        for _ in range(self.transactions.open_count + 1):
            producer_id = next(iter(self._producers))
            entry = self._producers.pop(producer_id)
            if not self.transactions.is_open(producer_id):
                return
            self._producers[producer_id] = entry

    def below(self, offset: int) -> ProducerState:
        """The state of the batches below `offset`, without producers that have an open transaction.

        A log that begins at `offset` cannot show this part of the state."""
        state = ProducerState(max_producers=self._max_producers)
        for producer_id, entry in self._producers.items():
            batches = tuple(batch for batch in entry.batches if batch.last_offset < offset)
            if batches and not self.transactions.is_open(producer_id):
                state._producers[producer_id] = replace(entry, batches=batches)
        return state

    def adopt(self, earlier: ProducerState) -> bool:
        """Take in the state of another copy, or an earlier state of this one, of batches below the log's start.

        Returns whether any of it is new here. If a producer has ended since, or has written in a later epoch, this
        state knows more, and keeps its own entry."""
        news: dict[int, ProducerEntry] = {}
        for producer_id, entry in earlier._producers.items():
            if self.transactions.end_of(producer_id) is None and not self.transactions.is_open(producer_id):
                entry_here = self._producers.get(producer_id)
                if (joined := _joined(entry, entry_here)) != entry_here:
                    news[producer_id] = joined
        self._producers = news | self._producers | news  # a producer that is new here counts as silent the longest
        return bool(news)

    def cut_at(self, end_offset: int) -> None:
        """Drop the batches from `end_offset` on: the log does not have them. The state may have them from another copy
        (`adopt`). Transactions are never from another copy, so they stay."""
        for producer_id, entry in list(self._producers.items()):
            batches = tuple(batch for batch in entry.batches if batch.last_offset < end_offset)
            if not batches:
                del self._producers[producer_id]
            elif len(batches) < len(entry.batches):
                self._producers[producer_id] = replace(entry, batches=batches)

    def log_starts_at(self, offset: int) -> None:
        """Drop the state of transactions that began below `offset`, the log's new start."""
        for producer_id in self.transactions.log_starts_at(offset):
            self._producers.pop(producer_id, None)

    def expire(self, before_timestamp_us: int) -> int:
        """Drop the producers whose newest timestamp is older. A producer with an open transaction stays.

        Returns the number of dropped producers."""
        old = [
            producer_id
            for producer_id, entry in self._producers.items()
            if entry.max_timestamp_us < before_timestamp_us and not self.transactions.is_open(producer_id)
        ]
        for producer_id in old:
            del self._producers[producer_id]
        return len(old) + self.transactions.expire(before_timestamp_us)

    def snapshot(self) -> bytes:
        """The whole state as bytes with a checksum."""
        parts: list[bytes] = []
        for producer_id, entry in self._producers.items():
            parts.append(_PRODUCER.pack(producer_id, entry.max_timestamp_us, entry.producer_epoch, len(entry.batches)))
            parts.extend(_BATCH.pack(*batch) for batch in entry.batches)
        producers = b"".join(parts)
        body = _COUNTS.pack(len(self._producers), len(producers)) + producers + self.transactions.snapshot()
        return _SNAPSHOT.pack(_MAGIC, google_crc32c.value(body)) + body

    def restore(self, snapshot: bytes) -> None:
        """Take over the content of a snapshot. A damaged snapshot raises CorruptFile and changes nothing."""
        if len(snapshot) < _SNAPSHOT.size + _COUNTS.size:
            raise CorruptFile(f"a producer snapshot cannot have {len(snapshot)} bytes")
        magic, crc = _SNAPSHOT.unpack_from(snapshot)
        if magic != _MAGIC:
            raise CorruptFile(f"a producer snapshot begins with {_MAGIC!r}, and this one with {magic!r}")
        if google_crc32c.value(snapshot[_SNAPSHOT.size :]) != crc:
            raise CorruptFile("a producer snapshot is damaged: its checksum is wrong")
        count, producer_bytes = _COUNTS.unpack_from(snapshot, _SNAPSHOT.size)
        body = snapshot[_SNAPSHOT.size + _COUNTS.size :]
        try:
            producers = _decode(body[:producer_bytes], count)
        except struct.error as error:
            raise CorruptFile("a producer snapshot ends in the middle of a producer") from error
        self.transactions = PartitionTransactions.from_snapshot(body[producer_bytes:])
        self._producers = producers


def _joined(earlier: ProducerEntry, entry: ProducerEntry | None) -> ProducerEntry:
    """Join two entries of one producer in one log. The one with the later epoch wins.

    If the epochs are equal, the result has the last five batches of both."""
    if entry is None or entry.producer_epoch != earlier.producer_epoch:
        return max(entry or earlier, earlier, key=lambda candidate: candidate.producer_epoch)
    batches = sorted({*earlier.batches, *entry.batches}, key=lambda batch: batch.base_offset)
    return replace(entry, batches=tuple(batches)[-KEPT_BATCHES:])


def _decode(body: bytes, count: int) -> dict[int, ProducerEntry]:
    producers: dict[int, ProducerEntry] = {}
    position = 0
    for _ in range(count):
        producer_id, timestamp_us, epoch, batch_count = _PRODUCER.unpack_from(body, position)
        position += _PRODUCER.size
        end = position + batch_count * _BATCH.size
        if not 1 <= batch_count <= KEPT_BATCHES or end > len(body):
            raise CorruptFile(f"a producer snapshot has {batch_count} batches of producer {producer_id}")
        batches = tuple(WrittenBatch(*fields) for fields in _BATCH.iter_unpack(body[position:end]))
        producers[producer_id] = ProducerEntry(epoch, batches, timestamp_us)
        position = end
    if position != len(body):
        raise CorruptFile(f"a producer snapshot of {count} producers has {len(body) - position} bytes too many")
    return producers


class ReplayableLog(Protocol):
    """The part of a log that is needed to rebuild the state."""

    @property
    def key(self) -> PartitionKey: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def compaction(self) -> CopyCompaction: ...

    def load_producer_snapshot(self) -> tuple[int, bytes] | None: ...

    def later_producer_snapshots(self) -> list[bytes]: ...

    def replace_later_producer_snapshots(self, snapshot: bytes) -> None: ...

    def replay(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]: ...


def recover_producer_state(log: ReplayableLog) -> ProducerState:
    """Rebuild the producer state of a log from its newest snapshot and the headers and markers behind that.

    The log does not show the producers of deleted records, nor all of those of compacted ones. Snapshots above the
    log's end may have them. The function takes these in, and replaces the snapshots. Raises CorruptMessage, OSError."""
    state = ProducerState()
    offset = log.log_start_offset
    shown_from = max(log.log_start_offset, log.compaction.begun.clean_to)  # below it records may be gone
    stored = log.load_producer_snapshot()
    try:
        if stored is not None:
            state.restore(stored[1])
            offset = max(offset, stored[0])
    except CorruptFile:
        stored = None  # the remaining headers give the same state, but more slowly
    known_to = 0 if stored is None else stored[0]
    if known_to < shown_from:
        state.transactions.forget_between(known_to, shown_from)
    for header, batch in log.replay(offset):
        state.apply(header, markers_in(log.key, batch, header) if header.is_control else ())
    state.log_starts_at(log.log_start_offset)  # retention may have moved the log start after the snapshot
    state.abort_unmarked(_without_records(state.transactions, log), log.log_end_offset)
    for later in log.later_producer_snapshots():  # they cover records that a cut removed, and deleted ones
        with contextlib.suppress(CorruptFile):
            above = restored(later)
            state.adopt(above.below(shown_from))
            state.abort_unmarked(state.transactions.open_and_unmarked_in(above.transactions), log.log_end_offset)
    state.cut_at(log.log_end_offset)
    log.replace_later_producer_snapshots(state.snapshot())
    return state


def _without_records(transactions: PartitionTransactions, log: ReplayableLog) -> list[int]:
    """The producers whose transaction is open in the state, although the log has no record of it.

    It was open at the time of the snapshot. Compaction has removed its records and its marker since, and a cut has
    removed all newer snapshots."""
    producer_ids = transactions.open_below(log.compaction.begun.deletes_before)
    if not producer_ids:
        return []
    with_records = {
        header.producer_id
        for header, _ in log.replay(transactions.first_open_offset or 0)
        if header.is_transactional and header.record_count
    }
    return [producer_id for producer_id in producer_ids if producer_id not in with_records]


def restored(snapshot: bytes) -> ProducerState:
    """A new state with the content of a snapshot. Raises CorruptFile if the snapshot is damaged."""
    state = ProducerState()
    state.restore(snapshot)
    return state


def markers_in(key: PartitionKey, batch: memoryview, header: BatchHeader) -> tuple[Marker, ...]:
    """The markers of a control batch of the partition. Raises CorruptMessage."""
    if len(batch) != header.length:
        raise CorruptMessage(f"the control batch at offset {header.base_offset} is cut off by the segment's end")
    check_crc(key.topic_id, key.partition, batch, header)
    return read_markers(batch, header)


def fenced(producer_id: int) -> ProducerFenced:
    """The error for a producer that writes after its end."""
    return ProducerFenced(f"producer {producer_id} has ended: it was committed or aborted, and writes no more")


def _not_its_first(header: BatchHeader) -> OutOfOrderSequenceNumber:
    return OutOfOrderSequenceNumber(
        f"producer {header.producer_id}: a transaction starts at sequence 0, but its first batch here has sequence "
        f"{header.base_sequence}"
    )


def _entry_after(entry: ProducerEntry | None, header: BatchHeader) -> ProducerEntry:
    if entry is not None and header.producer_epoch < entry.producer_epoch:
        return entry
    if entry is not None and header.producer_epoch == entry.producer_epoch and _is_known(entry, header):
        return entry
    batch = WrittenBatch(header.base_sequence, last_sequence(header), header.base_offset, header.last_offset)
    if entry is None or header.producer_epoch > entry.producer_epoch:
        return ProducerEntry(header.producer_epoch, (batch,), header.max_timestamp_us)
    newest = max(entry.max_timestamp_us, header.max_timestamp_us)
    return ProducerEntry(entry.producer_epoch, (*entry.batches, batch)[-KEPT_BATCHES:], newest)


def _is_known(entry: ProducerEntry, header: BatchHeader) -> bool:
    """Whether the entry has this batch or later ones already, from a copy that is ahead of this log."""
    return header.base_offset <= entry.batches[-1].base_offset


def _judge(entry: ProducerEntry, header: BatchHeader) -> Verdict:
    who = f"producer {header.producer_id} epoch {header.producer_epoch}"
    sequence = header.base_sequence
    if header.producer_epoch < entry.producer_epoch:
        return InvalidProducerEpoch(f"{who}: a producer of epoch {entry.producer_epoch} has fenced this one")
    if header.producer_epoch > entry.producer_epoch:
        if sequence == 0:
            return ACCEPT
        return OutOfOrderSequenceNumber(f"{who}: a new epoch starts at sequence 0, but this batch has {sequence}")
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
    return OutOfOrderSequenceNumber(f"{who}: the next sequence is {entry.next_sequence}, but this batch has {sequence}")
