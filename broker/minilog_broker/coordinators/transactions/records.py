"""What is known of a transactional id and of its producers, and how it is written (coordinator_records.proto).

    key                            value          until
    (transactional id, -)          Transaction    it is forgotten: by command, or seven days after a batch write
    (transactional id, producer)   Producer       its last marker is written

    a producer is   because
    OPEN            it was enlisted
    COMMITTING      it was named a winner, and is registered in partitions that have no marker yet
    ABORTING        it was not, or was aborted, timed out or taken over; the same
    (gone)          all its markers are below the high watermark; or it ended and was registered nowhere

Nothing ever leads back: a producer that ended has ended.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from minilog.partition_key import PartitionKey
from minilog.transactions.messages import Contents, contents_from_wire, contents_to_wire
from minilog.v1 import coordinator_records_pb2 as records_pb2
from minilog.versions import written_later
from minilog_broker.coordinators.record_kinds import RecordCodec, ValueKind
from minilog_broker.coordinators.table import Change

NOTHING_WRITTEN = -1


class TransactionKey(NamedTuple):
    """`owner` is the transactional id; without a producer id it is the key of the Transaction."""

    owner: str
    producer_id: int | None = None


class Fate(enum.IntEnum):
    """How far the end of a generation is known."""

    OPEN = records_pb2.PRODUCER_STATE_OPEN
    COMMITTING = records_pb2.PRODUCER_STATE_COMMITTING
    ABORTING = records_pb2.PRODUCER_STATE_ABORTING


class Registered(NamedTuple):
    """A partition in which a producer may have written. `last_sequence`: of a winner, what its marker says."""

    partition: PartitionKey
    last_sequence: int = NOTHING_WRITTEN


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """What outlives a generation. Times in milliseconds and, of the wall clock, in microseconds since 1970."""

    generation: int
    attempt_id: bytes
    run_id: bytes
    timeout_ms: int
    expires: bool
    updated_us: int
    attempt_over: bool = False
    last_committed: int | None = None
    superseded_runs: tuple[bytes, ...] = ()
    superseded_attempts: tuple[bytes, ...] = ()
    last_contents: Contents | None = None  # of the last committed generation, as far as who committed it said so


@dataclass(frozen=True, slots=True)
class TransactionProducer:
    """One that was enlisted, and has not ended everywhere."""

    generation: int
    attempt_id: bytes
    task: int | None
    fate: Fate = Fate.OPEN
    partitions: tuple[Registered, ...] = ()

    def is_registered_in(self, partition: PartitionKey) -> bool:
        return any(registered.partition == partition for registered in self.partitions)


TransactionValue: TypeAlias = TransactionMetadata | TransactionProducer
TransactionChange: TypeAlias = Change[TransactionKey, TransactionValue]


def _key_message(key: TransactionKey) -> records_pb2.TransactionLogKey:
    return records_pb2.TransactionLogKey(transactional_id=key.owner, producer_id=key.producer_id)


def _key(record: records_pb2.TransactionLogKey) -> TransactionKey:
    return TransactionKey(record.transactional_id, record.producer_id if record.HasField("producer_id") else None)


def _transaction_record(value: TransactionMetadata) -> records_pb2.TransactionRecord:
    return records_pb2.TransactionRecord(
        generation=value.generation,
        attempt_id=value.attempt_id,
        run_id=value.run_id,
        attempt_over=value.attempt_over,
        last_committed_generation=value.last_committed,
        superseded_runs=value.superseded_runs,
        superseded_attempts=value.superseded_attempts,
        timeout_ms=value.timeout_ms,
        expires=value.expires,
        updated_us=value.updated_us,
        last_committed_contents=None if value.last_contents is None else contents_to_wire(value.last_contents),
    )


def _producer_record(value: TransactionProducer) -> records_pb2.ProducerRecord:
    return records_pb2.ProducerRecord(
        generation=value.generation,
        attempt_id=value.attempt_id,
        task=value.task,
        state=records_pb2.ProducerState.ValueType(value.fate),
        partitions=[
            records_pb2.RegisteredPartition(partition_id=key.to_wire(), last_sequence=last_sequence)
            for key, last_sequence in value.partitions
        ],
    )


def _transaction(record: records_pb2.TransactionRecord) -> TransactionMetadata:
    return TransactionMetadata(
        generation=record.generation,
        attempt_id=record.attempt_id,
        run_id=record.run_id,
        timeout_ms=record.timeout_ms,
        expires=record.expires,
        updated_us=record.updated_us,
        attempt_over=record.attempt_over,
        last_committed=record.last_committed_generation if record.HasField("last_committed_generation") else None,
        superseded_runs=tuple(record.superseded_runs),
        superseded_attempts=tuple(record.superseded_attempts),
        last_contents=(
            contents_from_wire(record.last_committed_contents) if record.HasField("last_committed_contents") else None
        ),
    )


def _producer(record: records_pb2.ProducerRecord) -> TransactionProducer:
    if record.state not in records_pb2.ProducerState.values():
        raise written_later("a record in the log of transactions")
    return TransactionProducer(
        generation=record.generation,
        attempt_id=record.attempt_id,
        task=record.task if record.HasField("task") else None,
        fate=Fate(record.state),
        partitions=tuple(
            Registered(PartitionKey.of(registered.partition_id), registered.last_sequence)
            for registered in record.partitions
        ),
    )


def transaction_codec() -> RecordCodec[TransactionKey, TransactionValue]:
    """Keys and values as records of `__transactions`."""
    kinds: tuple[ValueKind[TransactionKey], ...] = (
        ValueKind(
            TransactionMetadata,
            lambda key: key.producer_id is None,
            records_pb2.TransactionRecord,
            _transaction_record,
            _transaction,
        ),
        ValueKind(
            TransactionProducer,
            lambda key: key.producer_id is not None,
            records_pb2.ProducerRecord,
            _producer_record,
            _producer,
        ),
    )
    return RecordCodec("transactions", records_pb2.TransactionLogKey, _key_message, _key, kinds)
