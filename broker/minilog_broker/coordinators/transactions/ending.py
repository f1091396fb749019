"""The ends of producers: End and Abort, time-outs and take-overs. docs/spec/transactions.md § End.

With C the last committed generation, and (R, G, A) the run, generation and attempt that enlisted last:

    End of generation                                     is answered
    C, by whomever                                        COMMITTED: a generation is committed at most once
    below C                                               STALE_GENERATION: whether it was committed is not known now
    by another run, attempt or generation than the last   PRODUCER_FENCED
    by an attempt that is over                            PRODUCER_FENCED
    naming a winner that is not open in this attempt,     INVALID_TXN_STATE, and nothing is decided
      or of the task of another winner, or that says it
      wrote where it was never registered
    else                                                  COMMITTED: G is committed, the winners commit, all other open
                                                          producers abort; one batch

    Abort of generation                                   is answered
    C                                                     COMMITTED: nothing changes
    below C                                               STALE_GENERATION
    by another attempt than the last                      ABORTED: what it had open was aborted when it was superseded
    else                                                  ABORTED: its producers (or those named) abort; where none is
                                                          named the attempt is over
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from minilog.errors import InvalidArgument, InvalidTxnState, ProducerFenced, StaleGeneration
from minilog.partition_key import PartitionKey
from minilog.transactions.messages import Contents, contents_from_wire
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.table import Change
from minilog_broker.coordinators.transactions.records import (
    NOTHING_WRITTEN,
    Fate,
    Registered,
    TransactionChange,
    TransactionKey,
    TransactionMetadata,
    TransactionProducer,
)
from minilog_broker.coordinators.transactions.view import TransactionView

MAX_DIGEST_BYTES = 64  # a SHA-512; it is written with every enlisting


def abort_changes(transactional_id: str, producers: Mapping[int, TransactionProducer]) -> list[TransactionChange]:
    """Abort these producers: no reader sees their records. A producer without registered partitions is gone at once."""
    return [
        _ended(transactional_id, producer_id, producer, Fate.ABORTING) for producer_id, producer in producers.items()
    ]


def _ended(transactional_id: str, producer_id: int, producer: TransactionProducer, fate: Fate) -> TransactionChange:
    key = TransactionKey(transactional_id, producer_id)
    return Change(key, replace(producer, fate=fate) if producer.partitions else None)


def registration_count(view: TransactionView, transactional_id: str) -> int:
    """The number of markers that an end of all of them needs."""
    return sum(len(producer.partitions) for producer in view.producers(transactional_id).values())


def end(view: TransactionView, request: coordinator_pb2.EndTransactionRequest, wall_us: int) -> list[TransactionChange]:
    """The decision, empty if it was made before. Raises the errors of the module's table."""
    transactional_id = request.transactional_id
    if not request.winners:
        raise InvalidArgument(
            f"transactional id '{transactional_id}': name the producers that won; without any, do not end"
        )
    transaction = view.transaction(transactional_id)
    if transaction is None:
        raise InvalidTxnState(f"transactional id '{transactional_id}' is not known here: nothing was enlisted")
    if is_committed(transaction, transactional_id, request.generation):
        return []
    _check_current(transaction, request)
    contents = _contents(request)
    open_producers = view.open_producers(transactional_id)
    winners = _winners(request, transaction, open_producers)
    losers = {producer_id: producer for producer_id, producer in open_producers.items() if producer_id not in winners}
    decided = replace(
        transaction,
        last_committed=request.generation,
        last_contents=contents,
        attempt_over=True,
        superseded_attempts=(),
        updated_us=wall_us,
    )
    return [
        Change(TransactionKey(transactional_id), decided),
        *(
            _ended(transactional_id, producer_id, producer, Fate.COMMITTING)
            for producer_id, producer in winners.items()
        ),
        *abort_changes(transactional_id, losers),
    ]


def _contents(request: coordinator_pb2.EndTransactionRequest) -> Contents | None:
    if not request.HasField("contents"):
        return None
    if len(request.contents.offsets_digest) > MAX_DIGEST_BYTES:
        raise InvalidArgument(
            f"transactional id '{request.transactional_id}': a digest of offsets has at most {MAX_DIGEST_BYTES} bytes, "
            f"not {len(request.contents.offsets_digest)}"
        )
    return contents_from_wire(request.contents)


def is_committed(transaction: TransactionMetadata, transactional_id: str, generation: int) -> bool:
    """Raises StaleGeneration if a later generation is committed."""
    last = transaction.last_committed
    if last is not None and generation < last:
        raise StaleGeneration(
            f"transactional id '{transactional_id}': generation {last} is committed; whether {generation}, which is "
            "asked about, was committed is not known any more"
        )
    return generation == last


def _check_current(transaction: TransactionMetadata, request: coordinator_pb2.EndTransactionRequest) -> None:
    attempt = (request.run_id, request.generation, request.attempt_id)
    if attempt != (transaction.run_id, transaction.generation, transaction.attempt_id):
        raise ProducerFenced(
            f"transactional id '{request.transactional_id}': generation {request.generation} cannot be committed by "
            f"this attempt: another one, at generation {transaction.generation}, took over"
        )
    if transaction.attempt_over:
        raise ProducerFenced(
            f"transactional id '{request.transactional_id}': this attempt at {request.generation} was aborted"
        )


def _winners(
    request: coordinator_pb2.EndTransactionRequest,
    transaction: TransactionMetadata,
    open_producers: Mapping[int, TransactionProducer],
) -> dict[int, TransactionProducer]:
    """The named producers with what they say that they wrote. Raises InvalidTxnState for all, where one is wrong."""
    where = f"transactional id '{request.transactional_id}', generation {request.generation}"
    winners: dict[int, TransactionProducer] = {}
    tasks: dict[int, int] = {}
    for named in request.winners:
        producer = open_producers.get(named.producer_id)
        if producer is None or producer.attempt_id != transaction.attempt_id:
            raise InvalidTxnState(f"{where}: producer {named.producer_id} is not enlisted, or was aborted")
        if named.producer_id in winners:
            raise InvalidTxnState(f"{where}: producer {named.producer_id} is named twice")
        if producer.task is not None and tasks.setdefault(producer.task, named.producer_id) != named.producer_id:
            raise InvalidTxnState(
                f"{where}: producers {tasks[producer.task]} and {named.producer_id} did the same task {producer.task}"
            )
        winners[named.producer_id] = _with_sequences(producer, named, where)
    return winners


def _with_sequences(producer: TransactionProducer, named: coordinator_pb2.Winner, where: str) -> TransactionProducer:
    written = {PartitionKey.of(claim.partition_id): claim.last_sequence for claim in named.partitions}
    registered = tuple(
        Registered(former.partition, written.pop(former.partition, NOTHING_WRITTEN)) for former in producer.partitions
    )
    if written:
        key = next(iter(written))
        raise InvalidTxnState(
            f"{where}: producer {named.producer_id} reports writes to partition {key.partition} of topic id "
            f"{key.topic_id.hex()}, where it is not registered"
        )
    return replace(producer, partitions=registered)


def abort(
    view: TransactionView, request: coordinator_pb2.AbortAttemptRequest, wall_us: int
) -> tuple[bool, list[TransactionChange]]:
    """(whether the generation is committed, the decision). Raises StaleGeneration."""
    transactional_id = request.transactional_id
    transaction = view.transaction(transactional_id)
    if transaction is None:
        return False, []  # nothing was ever enlisted
    if is_committed(transaction, transactional_id, request.generation):
        return True, []
    if (request.generation, request.attempt_id) != (transaction.generation, transaction.attempt_id):
        return False, []
    return False, _aborted(view, transactional_id, transaction, request.producer_ids, wall_us)


def abort_everything(view: TransactionView, transactional_id: str, wall_us: int) -> list[TransactionChange]:
    """Abort by command. Raises TransactionalIdNotFound."""
    return _aborted(view, transactional_id, view.existing_transaction(transactional_id), (), wall_us)


def _aborted(
    view: TransactionView,
    transactional_id: str,
    transaction: TransactionMetadata,
    producer_ids: Sequence[int],
    wall_us: int,
) -> list[TransactionChange]:
    open_producers = view.open_producers(transactional_id)
    if producer_ids:
        return abort_changes(transactional_id, {p: open_producers[p] for p in producer_ids if p in open_producers})
    changes = abort_changes(transactional_id, open_producers)
    if not transaction.attempt_over:
        over = replace(transaction, attempt_over=True, updated_us=wall_us)
        changes.insert(0, Change(TransactionKey(transactional_id), over))
    return changes
