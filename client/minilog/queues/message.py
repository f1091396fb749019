"""What the program gets of a queue: a record, and the means to settle it."""

from __future__ import annotations

import enum
from typing import Protocol

from minilog.errors import InvalidArgument
from minilog.limits import MAX_RELEASE_DELAY_MS
from minilog.queues.leases import HeldRange
from minilog.types import Record, RowDeletion
from minilog.v1 import queue_pb2

MAX_DELAY_S = MAX_RELEASE_DELAY_MS / 1000


class Verdict(enum.Enum):
    """What becomes of a message."""

    ACCEPT = queue_pb2.VERDICT_ACCEPT
    RELEASE = queue_pb2.VERDICT_RELEASE
    REJECT = queue_pb2.VERDICT_REJECT
    RETURN = queue_pb2.VERDICT_RETURN  # the client's own: the program never got it


class Message(Record):
    """A record that a queue has leased to this worker, with the fields of minilog.types.Record.

    `delivery_count` says how often the record was delivered, this time included. `key_columns` are those of
    RowDeletion, for the deletion of a row of a typed topic, and otherwise None. Settle each message once: accept,
    release or reject. These methods only note the verdict. The client sends it in the background soon.
    `QueueConsumer.flush` waits for that. They raise InvalidRecordState if the message is settled already, if its lock
    has ended, or if the consumer is closed. Any thread may call them.
    """

    delivery_count: int
    key_columns: bytes | None
    held: HeldRange
    verdict: Verdict | None
    _settler: Settler

    @classmethod
    def of(cls, record: Record, held: HeldRange, settler: Settler) -> Message:
        """The message of a record of this range."""
        message = cls(*record)
        message.delivery_count = held.delivery_count
        message.key_columns = record.key_columns if isinstance(record, RowDeletion) else None
        message.held, message.verdict, message._settler = held, None, settler
        return message

    @property
    def settler(self) -> Settler:
        """The consumer that it came from, for Transaction.settle."""
        return self._settler

    def accept(self) -> None:
        """It is done, and is never delivered again. Raises InvalidRecordState."""
        self._settler.settle(self, Verdict.ACCEPT, 0, "")

    def release(self, delay: float = 0.0) -> None:
        """Give it back: it is delivered again, to any worker, after `delay` seconds. Raises InvalidRecordState,
        InvalidArgument for a delay below 0 or one that is no number."""
        if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay <= MAX_DELAY_S:
            raise InvalidArgument(
                f"a release with a delay of {delay!r:.80} is not possible: give a number from 0 to {MAX_DELAY_S:g} "
                "seconds"
            )
        self._settler.settle(self, Verdict.RELEASE, round(delay * 1000.0), "")

    def reject(self, reason: str = "") -> None:
        """No worker can process it, and it is never delivered again. It goes to the dead-letter topic of the queue, if
        the queue has one, with `reason` (at most 500 characters of it). `reason` also goes to the log of this program.
        Raises InvalidRecordState, InvalidArgument for a reason that is no text."""
        if not isinstance(reason, str):
            raise InvalidArgument(f"the reason of a rejection is a text, and not {reason!r:.80}")
        self._settler.settle(self, Verdict.REJECT, 0, reason)


class Settler(Protocol):
    """The consumer that a message came from."""

    @property
    def queue(self) -> str: ...

    def settle(self, message: Message, verdict: Verdict, delay_ms: int, reason: str) -> None:
        """Note a verdict: the delay of a release in milliseconds, and the reason of a rejection."""

    def enlist(self, message: Message) -> None:
        """A transaction settles the message. Raises InvalidRecordState as `settle` does."""

    def transaction_ended(self, message: Message, *, committed: bool) -> None:
        """The transaction that settles the message has ended. Without a commit the message is delivered again."""
