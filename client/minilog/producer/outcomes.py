"""The errors of batches that end without an answer. Rule V16: a batch that may be written is unknown, not failed."""

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
    """The error of a batch whose producer was closed before it was sent, or before an answer came."""
    closed = Closed(f"{batch} were not written: the producer was closed before they could be sent")
    maybe = batch.maybe_written or batch.correlation_id is not None
    return unknown(batch, closed) if maybe else closed


def unknown(batch: Batch, error: MinilogError) -> UnknownOutcome:
    """The error of a batch that may or may not have been written, with the reason."""
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
    """The error of a batch that is not out, and whose topic was deleted or created again. Another topic id is not the
    same topic."""
    gone = UnknownTopicId(
        f"{batch} were not written: the topic was deleted or created again, or {LOST_RIGHT}. Send them again"
    )
    return unknown(batch, gone) if batch.maybe_written else gone


def not_encoded(batch: Batch, error: Exception) -> MinilogError:
    """The error of a batch that could not be encoded, and so was not sent: that of `Batch.encode`, or one that holds
    it."""
    if isinstance(error, MinilogError):
        return error
    failure = MinilogError(f"{batch} were not written: the client could not encode them: {error!r}")
    failure.__cause__ = error
    return failure


def not_let_in(batch: Batch, refusal: MinilogError) -> MinilogError:
    """The error of a batch whose leader does not let this client in: the password, token or certificate does not
    count any more. The next record tries again."""
    refused = type(refusal)(f"{batch} were not written: {refusal}")
    return unknown(batch, refusal) if batch.maybe_written else refused


def timed_out(batch: Batch, timeout_ms: int, unreachable: MinilogError | None = None) -> TimedOut:
    """The error of a batch that was surely not written within delivery.timeout.ms. `unreachable` is the error if the
    client cannot reach its leader."""
    last = f"; the last refusal was {batch.error.code}: {batch.error}" if batch.error is not None else ""
    last += f"; {unreachable.code}: {unreachable}" if unreachable is not None else ""
    return TimedOut(
        f"{batch} were not written within delivery.timeout.ms={timeout_ms} ({batch.attempts} attempts){last}"
    )


def in_failed_transaction(batch: Batch, failure: MinilogError) -> InvalidTxnState:
    """The error of a batch whose transaction has failed, by another batch or as a whole. No reader with read_committed
    will see its records."""
    return InvalidTxnState(f"{batch} are aborted with their transaction, which failed: {failure.code}: {failure}")


def fenced(batch: Batch, transactional_id: str, error: MinilogError) -> ProducerFenced:
    """The error of a batch whose producer was fenced."""
    return ProducerFenced(
        f"{batch} were not written: a newer writer has taken over transactional id '{transactional_id}', or its "
        f"transaction timed out or was aborted by command. Begin a new one ({error})"
    )
