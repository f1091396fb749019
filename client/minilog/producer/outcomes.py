"""What is said of a batch that ends without an answer. Rule V16: what may have been written is unknown, not failed."""

from __future__ import annotations

from minilog.errors import (
    LOST_RIGHT,
    Closed,
    InvalidTxnState,
    MinilogError,
    ProducerFenced,
    TimedOut,
    UnknownOutcome,
    UnknownTopicId,
)
from minilog.producer.batch import Batch


def at_close(batch: Batch) -> MinilogError:
    """The producer was closed before it could be sent, or before it was answered."""
    closed = Closed(f"{batch} were not written: the producer was closed before they could be sent")
    maybe = batch.maybe_written or batch.correlation_id is not None
    return unknown(batch, closed) if maybe else closed


def unknown(batch: Batch, error: MinilogError) -> UnknownOutcome:
    """It may or may not have been written, and why."""
    if isinstance(error, TimedOut):
        reason = "no final answer came within delivery.timeout.ms"
    elif isinstance(error, Closed):
        reason = "the producer was closed before an answer came"
    else:
        reason = f"{error.code}: {error}"
    return UnknownOutcome(
        f"{batch} may or may not have been written: {reason}. Read the topic before writing them again"
    )


def topic_gone(batch: Batch) -> MinilogError:
    """For a batch that is not out, of a topic that was deleted, or created again: another id is not the same topic."""
    gone = UnknownTopicId(
        f"{batch} were not written: the topic was deleted or created again, or {LOST_RIGHT}; send them anew"
    )
    return unknown(batch, gone) if batch.maybe_written else gone


def not_encoded(batch: Batch, error: Exception) -> MinilogError:
    """For a batch that was not sent: what `Batch.encode` raised, or what says so."""
    if isinstance(error, MinilogError):
        return error
    failure = MinilogError(f"{batch} were not written: they could not be encoded: {error!r}")
    failure.__cause__ = error
    return failure


def timed_out(batch: Batch, timeout_ms: int, unreachable: MinilogError | None = None) -> TimedOut:
    """delivery.timeout.ms is over, and it was surely not written. `unreachable`: why its leader cannot be asked."""
    last = f"; the last refusal was {batch.error.code}: {batch.error}" if batch.error is not None else ""
    last += f"; {unreachable.code}: {unreachable}" if unreachable is not None else ""
    return TimedOut(
        f"{batch} were not written within delivery.timeout.ms={timeout_ms} ({batch.attempts} attempts){last}"
    )


def in_failed_transaction(batch: Batch, failure: MinilogError) -> InvalidTxnState:
    """Its transaction has failed, by another batch or as a whole: whatever was written of it will never be seen."""
    return InvalidTxnState(f"{batch} are aborted with their transaction, which failed: {failure.code}: {failure}")


def fenced(batch: Batch, transactional_id: str, error: MinilogError) -> ProducerFenced:
    """Its producer has ended."""
    return ProducerFenced(
        f"{batch} were not written: transactional id '{transactional_id}' was taken over by a newer writer, or its "
        f"transaction timed out or was aborted by command; begin a new one ({error})"
    )
