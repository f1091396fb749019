"""What becomes of one `send_batch`, whose parts for several partitions are written each by itself.

    its parts                            its future
    all are written                      the places of all
    none is written, and that is sure    the error of the first part that failed
    any other mixture                    UnknownOutcome, which says where rows are written (rule V16)
    any failed, in a transaction         the error of that part: the transaction can only be aborted, with all parts

The future is done when no part is under way any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import InvalidStateError
from typing import Any, Protocol

from minilog.errors import MinilogError, UnknownOutcome
from minilog.types import BatchMetadata

_MOST_PLACES = 20  # that one error names: a batch may have thousands of parts


class Settable(Protocol):
    """What futures of threads and of asyncio have in common."""

    def set_result(self, result: Any, /) -> object: ...
    def set_exception(self, exception: Any, /) -> object: ...
    def done(self) -> bool: ...


def settle(setter: Callable[[Any], object], outcome: object) -> None:
    """Complete a future, unless its owner cancelled it meanwhile."""
    try:
        setter(outcome)
    except (InvalidStateError, asyncio.InvalidStateError):
        return  # cancelled: nobody waits for it


class Gathering:
    """The future of one `send_batch`, over all its parts. Those of a transaction are committed together, or aborted."""

    __slots__ = ("_errors", "_future", "_missing", "_parts", "_records", "_transactional")

    def __init__(self, future: Settable, parts: int, *, transactional: bool = False) -> None:
        self._future = future
        self._missing = parts
        self._parts: list[BatchMetadata | None] = [None] * parts
        self._records = [0] * parts
        self._errors: dict[int, MinilogError] = {}  # by the number of the part; the first failure first
        self._transactional = transactional

    def arrived(self, index: int, part: BatchMetadata, records: int) -> None:
        self._parts[index] = part
        self._settled(index, records)

    def failed(self, index: int, error: MinilogError, records: int) -> None:
        self._errors[index] = error
        self._settled(index, records)

    def _settled(self, index: int, records: int) -> None:
        self._records[index] = records
        self._missing -= 1
        if self._missing:
            return
        if self._errors:
            settle(self._future.set_exception, self._error())
        else:
            settle(self._future.set_result, self._parts)

    def _error(self) -> MinilogError:
        errors = list(self._errors.values())
        unknown = [error for error in errors if isinstance(error, UnknownOutcome)]
        told = (unknown or errors)[0]
        if self._transactional or len(self._parts) == 1:
            return told
        if unknown or any(self._parts):
            return UnknownOutcome(self._account(unknown=bool(unknown), reason=told))
        return type(told)(f"{told} (and none of the other parts of this batch is written)")

    def _account(self, *, unknown: bool, reason: MinilogError) -> str:
        """How many of the records are written and where, how many are not, and how many may be."""
        written = [part for part in self._parts if part is not None]
        doubtful = {index for index, error in self._errors.items() if isinstance(error, UnknownOutcome)}
        numbers = [
            f"{self._sum(index for index, part in enumerate(self._parts) if part)} are written{_places(written)}",
            f"{self._sum(self._errors.keys() - doubtful)} are not written",
        ]
        numbers += [f"{self._sum(doubtful)} may or may not have been written"] if unknown else []
        advice = "" if unknown else ". Read the topic before writing them again"  # the reason has it
        return f"of {sum(self._records)} records of one batch, {', '.join(numbers)}. {reason.code}: {reason}{advice}"

    def _sum(self, indices: Iterable[int]) -> int:
        return sum(self._records[index] for index in indices)


def _places(parts: list[BatchMetadata]) -> str:
    """In words, in the order of partitions."""
    if not parts:
        return ""
    named = sorted(parts, key=lambda part: (part.partition, part.first_offset))
    texts = [_place(part) for part in named[:_MOST_PLACES]]
    texts += [f"and {len(parts) - _MOST_PLACES} more places"] if len(parts) > _MOST_PLACES else []
    return f" ({', '.join(texts)})"


def _place(part: BatchMetadata) -> str:
    offsets = f" at offsets {part.first_offset} to {part.last_offset}" if part.first_offset >= 0 else ""
    return f"partition {part.partition}{offsets}"


class PartCompletion:
    """One part of a `send_batch`. It does not hold what is written: the batch goes with its last user, and the next one
    has its memory."""

    __slots__ = ("_gathering", "_index", "_partition", "_record_count", "_topic")

    def __init__(self, gathering: Gathering, index: int, topic: str, partition: int, record_count: int) -> None:
        self._gathering, self._index = gathering, index
        self._topic, self._partition, self._record_count = topic, partition, record_count

    def is_of(self, gathering: object) -> bool:
        return self._gathering is gathering

    def delivered(self, base_offset: int) -> None:
        last = base_offset + self._record_count - 1 if base_offset >= 0 else -1
        part = BatchMetadata(self._topic, self._partition, base_offset, last)
        self._gathering.arrived(self._index, part, self._record_count)

    def failed(self, error: MinilogError) -> None:
        self._gathering.failed(self._index, error, self._record_count)
