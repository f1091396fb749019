"""What a client says to the coordinator of transactions, and what its answers mean. No I/O.

A transaction has two levels (docs/spec/transactions.md § Names). The names are five:

    T  transactional id   what is written exactly once: a query, a program
    G  generation         one transaction of it: a micro-batch; each is committed at most once
    A  attempt            one try at G: all its writers share it, a new one takes over from the one before
    R  run                one life of the driver or program: a new one supersedes the one before
    P  producer id        one writer's, from the coordinator; enlisted once, ended once, never used again

Each writer enlists (T, G, A, R) and is given P. Who commits names the P that won, and where each wrote how far. A
program is both, a writer and who commits; in Spark they are the tasks and the driver, so what passes between them is
here, too: Enlistment and Winner are frozen, and can be pickled.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from minilog.errors import MinilogError, StaleGeneration, UnknownOutcome
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2

_KEEP_ALIVES_PER_TIMEOUT = 5  # so many in a row would have to be lost
_LONGEST_KEEP_ALIVE_MS = 30_000.0  # a coordinator after failover is found soon enough


@dataclass(frozen=True, slots=True)
class Attempt:
    """T, G, A and R. `generation` None is the next above all that were: only the first of a run may leave it open."""

    transactional_id: str
    generation: int | None
    attempt_id: bytes
    run_id: bytes

    def __str__(self) -> str:
        generation = "the next generation" if self.generation is None else f"generation {self.generation}"
        return f"{generation} of transactional id '{self.transactional_id}'"


@dataclass(frozen=True, slots=True)
class Enlistment:
    """One writer's part in an attempt, whose generation is known by now: write, under this producer id."""

    attempt: Attempt
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int  # named in all that is asked of this producer
    timeout_ms: int  # without a sign of life for so long it is aborted
    producer_proof: bytes = field(default=b"", repr=False)  # that the id was given to this writer: who has it can write

    @property
    def keep_alive_ms(self) -> float:
        """How often a sign of life is due."""
        return min(self.timeout_ms / _KEEP_ALIVES_PER_TIMEOUT, _LONGEST_KEEP_ALIVE_MS)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a generation holds, by which a replay is known: the same however its rows are ordered and cut into tasks.

    `offsets_digest`: of the offsets that the rows were read from and of other facts about them, at most 64 bytes. Only
    who commits knows its form. Empty: nothing is known.
    """

    rows: int
    offsets_digest: bytes = b""


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """Drain the input, and write nothing: the attempt's generation is committed, and holds `contents`, as far as who
    committed it said so."""

    attempt: Attempt
    contents: Contents | None


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """Where a producer wrote, and the sequence of its last record there that was acknowledged."""

    topic_id: bytes
    partition: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Winner:
    """A producer whose records are to be seen."""

    producer_id: int
    partitions: tuple[WrittenPartition, ...]


class TransactionOutcome(enum.Enum):
    """What became of a generation, or of an attempt that was to be aborted."""

    COMMITTED = "committed"  # all of it is visible, everywhere
    BECOMING_VISIBLE = "committed, becoming visible"  # decided for good; some of it is not visible yet
    ABORTED = "aborted"


_OUTCOMES = {
    coordinator_pb2.TRANSACTION_OUTCOME_COMMITTED: TransactionOutcome.COMMITTED,
    coordinator_pb2.TRANSACTION_OUTCOME_COMMITTED_BECOMING_VISIBLE: TransactionOutcome.BECOMING_VISIBLE,
    coordinator_pb2.TRANSACTION_OUTCOME_ABORTED: TransactionOutcome.ABORTED,
}


class Run:
    """The generations of one life of a program, one after the other: each an attempt of its own.

    The first leaves the generation to the coordinator, and is the same attempt until it is answered: named again it
    changes nothing. Later ones count on from there, whatever became of those before: an Enlist that was given up, and
    arrives late, is of a lower generation, and takes nothing over.
    """

    def __init__(self, transactional_id: str, run_id: bytes, new_id: Callable[[], bytes]) -> None:
        self._first = Attempt(transactional_id, None, new_id(), run_id)
        self._new_id = new_id
        self._generation: int | None = None  # the last one that was asked for

    def next_attempt(self) -> Attempt:
        if self._generation is None:
            return self._first
        self._generation += 1
        return replace(self._first, generation=self._generation, attempt_id=self._new_id())

    def enlisted(self, enlistment: Enlistment) -> None:
        """The coordinator has said which generation it is."""
        self._generation = enlistment.attempt.generation


# -- enlisting


def enlist_request(
    attempt: Attempt, *, task: int | None, timeout_ms: int, expires: bool
) -> coordinator_pb2.EnlistRequest:
    """`task`: which part of the attempt's work this writer does; of several that do the same one can win."""
    return coordinator_pb2.EnlistRequest(
        transactional_id=attempt.transactional_id,
        generation=attempt.generation,
        attempt_id=attempt.attempt_id,
        run_id=attempt.run_id,
        task=task,
        timeout_ms=timeout_ms,
        expires=expires,
    )


def enlisted(attempt: Attempt, response: coordinator_pb2.EnlistResponse) -> Enlistment | AlreadyCommitted:
    """What a response without an error says."""
    if response.outcome == coordinator_pb2.ENLIST_OUTCOME_ALREADY_COMMITTED:
        contents = contents_from_wire(response.contents) if response.HasField("contents") else None
        return AlreadyCommitted(replace(attempt, generation=response.generation), contents)
    return Enlistment(
        replace(attempt, generation=response.generation),
        response.producer_id,
        response.producer_epoch,
        response.coordinator_epoch,
        response.timeout_ms,
        response.producer_proof,
    )


def keep_alive_request(enlistment: Enlistment) -> coordinator_pb2.KeepAliveRequest:
    return coordinator_pb2.KeepAliveRequest(
        transactional_id=enlistment.attempt.transactional_id,
        producer_id=enlistment.producer_id,
        coordinator_epoch=enlistment.coordinator_epoch,
    )


# -- the end


def contents_to_wire(contents: Contents) -> coordinator_pb2.GenerationContents:
    return coordinator_pb2.GenerationContents(rows=contents.rows, offsets_digest=contents.offsets_digest)


def contents_from_wire(contents: coordinator_pb2.GenerationContents) -> Contents:
    return Contents(contents.rows, contents.offsets_digest)


def end_request(
    attempt: Attempt,
    winners: Iterable[Winner],
    contents: Contents | None = None,
    *,
    timeout_ms: int,
    coordinator_epoch: int,
) -> coordinator_pb2.EndTransactionRequest:
    """`timeout_ms`: how long the coordinator waits for the markers. `coordinator_epoch`: the highest known."""
    return coordinator_pb2.EndTransactionRequest(
        transactional_id=attempt.transactional_id,
        generation=_generation_of(attempt),
        attempt_id=attempt.attempt_id,
        run_id=attempt.run_id,
        winners=[_winner(winner) for winner in winners],
        contents=None if contents is None else contents_to_wire(contents),
        timeout_ms=timeout_ms,
        coordinator_epoch=coordinator_epoch,
    )


def _winner(winner: Winner) -> coordinator_pb2.Winner:
    return coordinator_pb2.Winner(
        producer_id=winner.producer_id,
        partitions=[
            coordinator_pb2.WrittenPartition(
                partition_id=PartitionKey(partition.topic_id, partition.partition).to_wire(),
                last_sequence=partition.last_sequence,
            )
            for partition in winner.partitions
        ],
    )


def abort_request(
    attempt: Attempt, producer_ids: Sequence[int], *, coordinator_epoch: int
) -> coordinator_pb2.AbortAttemptRequest:
    """Without producer ids all of the attempt is aborted, and it is over."""
    return coordinator_pb2.AbortAttemptRequest(
        transactional_id=attempt.transactional_id,
        generation=_generation_of(attempt),
        attempt_id=attempt.attempt_id,
        producer_ids=producer_ids,
        coordinator_epoch=coordinator_epoch,
    )


def _generation_of(attempt: Attempt) -> int:
    assert attempt.generation is not None, "the generation is known once a writer has enlisted"
    return attempt.generation


def outcome_of(outcome: coordinator_pb2.TransactionOutcome.ValueType) -> TransactionOutcome:
    """Raises UnknownOutcome for one of a later version of the contract."""
    if outcome not in _OUTCOMES:
        raise UnknownOutcome(f"the coordinator answered with outcome {outcome}, which this version does not know")
    return _OUTCOMES[outcome]


class Ending:
    """What is known of a commit while it is asked for, again and again, until its outcome is known.

    what comes back                     is taken for
    COMMITTED                           the end
    COMMITTED_BECOMING_VISIBLE          decided, whatever comes after; asked again while there is time
    lost, or REQUEST_TIMED_OUT          perhaps decided: asked again, then UnknownOutcome
    what passes by itself               asked again, then UnknownOutcome if it was perhaps decided, else this error
    STALE_GENERATION                    UnknownOutcome: an attempt to ask whose answer was lost may have been the one
                                        that committed, before a later generation was
    any other error                     raised: nothing was decided, nor will be. A repeat of a decision is answered
                                        COMMITTED, and who was fenced or named wrong winners stays refused
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._maybe_decided = False
        self._decided = False
        self._last_error: MinilogError | None = None

    def answered(self, outcome: TransactionOutcome) -> TransactionOutcome | None:
        """The outcome; None where it is to be asked again."""
        self._decided = True
        return outcome if outcome is TransactionOutcome.COMMITTED else None

    def failed(self, error: MinilogError) -> TransactionOutcome | None:
        """The outcome; None where it is to be asked again. Raises what the table of the class says."""
        self._last_error = error
        if error.retriable:
            return None
        if isinstance(error, UnknownOutcome):  # REQUEST_TIMED_OUT is one
            self._maybe_decided = True
            return None
        if self._decided:
            return TransactionOutcome.BECOMING_VISIBLE  # of which no error can change anything
        if isinstance(error, StaleGeneration):
            raise UnknownOutcome(
                f"whether {self._attempt} was committed by this attempt is not known any more: {error}. Read the "
                "topics before writing it again"
            ) from error
        raise error

    def out_of_time(self, timeout_ms: float) -> TransactionOutcome:
        """What is said at the end. Raises UnknownOutcome, or the last error where nothing was decided."""
        if self._decided:
            return TransactionOutcome.BECOMING_VISIBLE
        text = f"the commit of {self._attempt} was not answered within {timeout_ms:.0f} ms; last: {self._last_error}"
        if self._maybe_decided or self._last_error is None:
            raise UnknownOutcome(f"{text}. It may or may not be committed: read the topics before writing it again")
        raise type(self._last_error)(text)
