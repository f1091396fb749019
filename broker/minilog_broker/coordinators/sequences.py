"""The numbers of a producer's requests with one coordinator: 0, 1, 2, ... A repeated one changes nothing, and a gap is
refused. A commit marker names the last one, so a coordinator that lacks a request refuses the marker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from minilog.errors import InvalidTxnState, OutOfOrderSequenceNumber
from minilog.v1 import coordinator_pb2

NO_SEQUENCE = -1


class Pending(Protocol):
    """What a producer has pending for one owner. `last_sequence`: of the producer's requests with this coordinator."""

    @property
    def transactional_id(self) -> str: ...

    @property
    def last_sequence(self) -> int: ...


def last_sequence(pending: Mapping[str, Pending]) -> int:
    """Of all that a producer has pending, by owner; NO_SEQUENCE where it has nothing."""
    return max((entry.last_sequence for entry in pending.values()), default=NO_SEQUENCE)


def is_new(pending: Mapping[str, Pending], transaction: coordinator_pb2.TransactionalCommit, what: str) -> bool:
    """Whether a request is the next one; False where it was seen before. `what`: the owner, for errors.

    Raises OutOfOrderSequenceNumber. Raises InvalidTxnState where another transactional id has the producer pending: the
    id of a producer is a small number, and proves nothing."""
    for owner, entry in pending.items():
        if entry.transactional_id != transaction.transactional_id:
            raise InvalidTxnState(
                f"'{owner}': producer {transaction.producer_id} is not of transactional id "
                f"'{transaction.transactional_id}': its pending commit is another's"
            )
    last = last_sequence(pending)
    if transaction.sequence > last + 1:
        raise OutOfOrderSequenceNumber(
            f"{what}: commit {transaction.sequence} of producer {transaction.producer_id} came, {last + 1} is next"
        )
    return transaction.sequence == last + 1


def check_marker(pending: Mapping[str, Pending], marker: coordinator_pb2.ProducerMarker) -> None:
    """Raises InvalidTxnState where a commit is not of what is pending."""
    last = last_sequence(pending)
    if marker.committed and pending and last != marker.last_sequence:
        raise InvalidTxnState(
            f"producer {marker.producer_id} is to be committed with {marker.last_sequence} as its last commit here, "
            f"and {last} is the last one"
        )
