"""The right to take part in a generation: Enlist, and the registration of partitions. docs/spec/transactions.md §
Enlist.

With C the last committed generation, and (R, G, A) the run, generation and attempt that enlisted last:

    Enlist by                                             is answered
    a run that was superseded                             PRODUCER_FENCED
    any, in generation C, by another run than R           ALREADY_COMMITTED; it supersedes nobody by that
    any other in a generation <= C                        STALE_GENERATION, with both numbers
    an attempt that was superseded, or is over            PRODUCER_FENCED
    attempt A of run R in G                               ENLISTED
    run R in a generation below G                         PRODUCER_FENCED: a run never goes back
    a new attempt, or a new run                           ENLISTED; A, and R where it is another, are superseded, and
                                                          all that is open is aborted and fenced

A program does not know the next generation. So the first Enlist of a run names none, and gets the one above all former
ones. The same Enlist once more is the same attempt. A later attempt of that run names its generation. So a first Enlist
that arrives a second time, late, takes nothing over.

A partition is registered only while the producer is open, and while the coordinator's own image knows the topic. The
election of any later coordinator is in the metadata log behind the topic's creation. So the images of this coordinator
and of later ones lack the topic only when it was deleted, and never because they are behind. Then nobody needs its
markers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from minilog.errors import (
    InvalidArgument,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
    StaleGeneration,
    UnknownTopicId,
)
from minilog.partition_key import PartitionKey
from minilog.transactions.messages import Contents
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.table import Change
from minilog_broker.coordinators.transactions.ending import abort_changes, registration_count
from minilog_broker.coordinators.transactions.records import (
    Registered,
    TransactionChange,
    TransactionKey,
    TransactionMetadata,
    TransactionProducer,
)
from minilog_broker.coordinators.transactions.view import TransactionView

MAX_ID_CHARACTERS = 1_000  # of a transactional id; a record of it is written with every enlisting
MAX_ID_BYTES = 64  # of an attempt or a run: a UUID in any spelling
MAX_SUPERSEDED = 32  # remembered: drivers, or attempts of one generation, that were replaced and may still wake up
MAX_PRODUCERS = 20_000  # open and ending, of one id: a decision about all of them is one batch
MAX_REGISTRATIONS = 100_000  # (producer, partition) of one id: the same, about 3 MB


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The part of the broker's configuration for transactions."""

    transaction_timeout_ms: int = 900_000
    transaction_max_timeout_ms: int = 86_400_000
    marker_retry_ms: float = 100.0  # an election takes some such times; a marker costs little


@dataclass(frozen=True, slots=True)
class CommittedGeneration:
    """A run whose generation is committed already: it reads its input to the end, and writes nothing. `contents`: the
    committed contents, for a replay that compares them."""

    generation: int
    contents: Contents | None


@dataclass(frozen=True, slots=True)
class AcceptedEnlistment:
    """`changes` are the decision; all that was open and is none of this attempt is aborted by it."""

    transaction: TransactionMetadata
    changes: tuple[TransactionChange, ...]


def enlist(
    view: TransactionView,
    request: coordinator_pb2.EnlistRequest,
    producer_id: int,
    settings: TransactionSettings,
    wall_us: int,
) -> AcceptedEnlistment | CommittedGeneration:
    """Decide an Enlist. Raises the errors of the module's table, and InvalidArgument for a malformed request."""
    _check_ids(request)
    timeout_ms = _timeout_ms(request, settings)
    transactional_id = request.transactional_id
    former = view.transaction(transactional_id)
    generation = _generation(request, former)
    if former is not None:
        if request.run_id in former.superseded_runs:
            raise ProducerFenced(f"{_who(request)}: its run was superseded by another, which goes on in its place")
        if former.last_committed is not None and generation <= former.last_committed:
            if generation == former.last_committed and request.run_id != former.run_id:
                return CommittedGeneration(generation, former.last_contents)
            raise StaleGeneration(
                f"{_who(request)}: generation {generation} is asked for, {former.last_committed} is committed: only a "
                "run that begins may ask for the last one again. Is this a copied or restored checkpoint?"
            )
    transaction = _taken_up(request, former, generation, timeout_ms, wall_us)
    producers = view.producers(transactional_id)
    if len(producers) >= MAX_PRODUCERS:
        raise InvalidTxnState(
            f"{_who(request)}: {MAX_PRODUCERS} producers are enlisted or end, and no more can be: use fewer tasks"
        )
    changes: list[TransactionChange] = []
    if transaction != former:
        changes.append(Change(TransactionKey(transactional_id), transaction))
    if former is None or transaction.attempt_id != former.attempt_id:
        changes += abort_changes(transactional_id, view.open_producers(transactional_id))
    task = request.task if request.HasField("task") else None
    producer = TransactionProducer(generation, transaction.attempt_id, task)
    changes.append(Change(TransactionKey(transactional_id, producer_id), producer))
    return AcceptedEnlistment(transaction, tuple(changes))


def _generation(request: coordinator_pb2.EnlistRequest, former: TransactionMetadata | None) -> int:
    if request.HasField("generation"):
        return request.generation
    if former is None:
        return 0
    if request.run_id == former.run_id:
        if request.attempt_id == former.attempt_id:
            return former.generation
        raise ProducerFenced(f"{_who(request)}: this run has begun before: name the generation")
    committed = -1 if former.last_committed is None else former.last_committed
    return max(committed, former.generation) + 1


def _taken_up(
    request: coordinator_pb2.EnlistRequest,
    former: TransactionMetadata | None,
    generation: int,
    timeout_ms: int,
    wall_us: int,
) -> TransactionMetadata:
    """The transaction with this attempt as its current one."""
    new_transaction = TransactionMetadata(
        generation, request.attempt_id, request.run_id, timeout_ms, request.expires, wall_us
    )
    if former is None:
        return new_transaction
    if request.attempt_id in former.superseded_attempts:
        raise ProducerFenced(f"{_who(request)}: its attempt was superseded by another, which goes on in its place")
    if request.attempt_id == former.attempt_id:
        return replace(_same_attempt(request, former, generation), timeout_ms=timeout_ms)
    same_run = request.run_id == former.run_id
    if same_run and generation < former.generation:
        raise ProducerFenced(
            f"{_who(request)}: generation {generation} is asked for, its run went on to {former.generation}"
        )
    again = same_run and generation == former.generation
    attempts = (*former.superseded_attempts, former.attempt_id) if again else ()
    runs = former.superseded_runs if same_run else (*former.superseded_runs, former.run_id)
    return replace(
        new_transaction,
        last_committed=former.last_committed,
        last_contents=former.last_contents,
        superseded_runs=runs[-MAX_SUPERSEDED:],
        superseded_attempts=attempts[-MAX_SUPERSEDED:],
    )


def _same_attempt(
    request: coordinator_pb2.EnlistRequest, former: TransactionMetadata, generation: int
) -> TransactionMetadata:
    if (request.run_id, generation) != (former.run_id, former.generation):
        raise InvalidTxnState(
            f"{_who(request)}: an attempt is one of one run at one generation, and this one is of {former.generation}"
        )
    if former.attempt_over:
        raise ProducerFenced(f"{_who(request)}: its attempt at generation {generation} is over")
    return former


def _check_ids(request: coordinator_pb2.EnlistRequest) -> None:
    if not 1 <= len(request.transactional_id) <= MAX_ID_CHARACTERS:
        raise InvalidArgument(f"a transactional id has 1 to {MAX_ID_CHARACTERS} characters")
    for name, value in (("an attempt id", request.attempt_id), ("a run id", request.run_id)):
        if not 1 <= len(value) <= MAX_ID_BYTES:
            raise InvalidArgument(f"{_who(request)}: {name} has 1 to {MAX_ID_BYTES} bytes, not {len(value)}")
    if request.generation < 0:
        raise InvalidArgument(f"{_who(request)}: generation {request.generation} is below 0")


def _timeout_ms(request: coordinator_pb2.EnlistRequest, settings: TransactionSettings) -> int:
    timeout_ms = request.timeout_ms or settings.transaction_timeout_ms
    if timeout_ms > settings.transaction_max_timeout_ms:
        raise InvalidTransactionTimeout(
            f"{_who(request)}: a time-out of {timeout_ms} ms is above "
            f"transaction.max.timeout.ms={settings.transaction_max_timeout_ms}"
        )
    return timeout_ms


def _who(request: coordinator_pb2.EnlistRequest) -> str:
    return f"transactional id '{request.transactional_id}'"


# -- producers that are enlisted


def require_open(view: TransactionView, transactional_id: str, producer_id: int) -> TransactionProducer:
    """The open producer. Raises ProducerFenced if it has ended, or never was."""
    producer = view.open_producers(transactional_id).get(producer_id) if transactional_id else None
    if producer is None:
        raise ProducerFenced(f"producer {producer_id} of transactional id '{transactional_id}' has ended, or never was")
    return producer


def register(
    view: TransactionView,
    transactional_id: str,
    producer_id: int,
    partitions: Iterable[PartitionKey],
    knows_topic: Callable[[bytes], bool],
) -> tuple[TransactionChange, ...]:
    """The producer with these partitions among its own; written again where it has them, since a coordinator that was
    deposed and does not know it must not say yes (another may have written the markers). Raises ProducerFenced,
    UnknownTopicId."""
    producer = require_open(view, transactional_id, producer_id)
    added = [key for key in dict.fromkeys(partitions) if not producer.is_registered_in(key)]
    unknown = [key.topic_id.hex() for key in added if not knows_topic(key.topic_id)]
    if unknown:
        raise UnknownTopicId(f"topic id {unknown[0]} is not known to the coordinator: deleted, or not known yet: retry")
    if registration_count(view, transactional_id) + len(added) > MAX_REGISTRATIONS:
        raise InvalidTxnState(
            f"transactional id '{transactional_id}': its producers write to {MAX_REGISTRATIONS} partitions in sum, and "
            "to no more: use fewer tasks"
        )
    registered = (*producer.partitions, *(Registered(key) for key in added))
    return (Change(TransactionKey(transactional_id, producer_id), replace(producer, partitions=registered)),)
