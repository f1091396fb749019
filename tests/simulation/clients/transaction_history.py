"""What Spark's sinks did and were told, and the judgement of it from the outside: V15, V16 of transactions.

A row of a sink's input is written by every task attempt that is given it, under another producer id each time; so a
value says whose copy it is. Whether a commit took place may be unknown to the driver that asked; then nothing is said
here, and another driver finds out.

    V15   a row is seen once, whoever reads: of one producer, at one place
    V15   nothing is seen of a producer that its coordinator called aborted, or that a commit which was answered did
          not name
    V15   rows that were not written are taken for a committed micro-batch only where it is the same one
    V15   at the end: of each micro-batch of the input all rows are seen where it was committed, or was seen at all
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from minilog.partition_key import PartitionKey
from tests.judges.violation import Violation


class Generation(NamedTuple):
    """One micro-batch of one query."""

    transactional_id: str
    number: int


class Copy(NamedTuple):
    """One writing of one row."""

    generation: Generation
    row: int
    producer_id: int


class Seen(NamedTuple):
    """Where a committed row was read first."""

    producer_id: int
    key: PartitionKey
    offset: int


@dataclass(slots=True)
class _Batch:
    """What is known of one micro-batch. `winners`: None until an answer named them."""

    rows: int
    producers: dict[int, None] = field(default_factory=dict)
    committed: bool = False
    winners: frozenset[int] | None = None
    seen: dict[int, Seen] = field(default_factory=dict)


class TransactionHistory:
    """See the module's text. Its methods raise Violation."""

    def __init__(self) -> None:
        self._batches: dict[Generation, _Batch] = {}
        self._aborted: dict[int, str] = {}  # producers, and why

    # -- what writers were told

    def planned(self, generation: Generation, rows: int) -> None:
        """The input of a micro-batch is fixed from now on, whoever writes it."""
        self._batches[generation] = _Batch(rows)

    def enlisted(self, generation: Generation, producer_id: int) -> None:
        self._batches[generation].producers[producer_id] = None

    def aborted(self, generation: Generation, producers: Iterable[int], why: str) -> None:
        """The coordinator says so."""
        batch = self._batches[generation]
        for producer_id in producers:
            if batch.winners is not None and producer_id in batch.winners:
                raise self._fail(f"producer {producer_id} of {generation} was committed, and is now {why}")
            self._aborted.setdefault(producer_id, why)
            for seen in batch.seen.values():
                self._check(batch, generation, seen)

    def replayed(self, generation: Generation, rows: int) -> None:
        """A driver was told that its micro-batch of so many rows is committed, and goes on behind it."""
        planned = self._batches[generation].rows
        if rows != planned:
            raise self._fail(f"{rows} rows are taken for {generation}, which has {planned}, and are never written")

    def committed(self, generation: Generation, winners: Iterable[int] | None) -> None:
        """The coordinator says so; None: and not of whom."""
        batch = self._batches[generation]
        batch.committed = True
        if winners is None:
            return
        named = frozenset(winners)
        if batch.winners is not None and batch.winners != named:
            raise self._fail(f"{generation} is committed with {sorted(named)}, and was with {sorted(batch.winners)}")
        for producer_id in named & self._aborted.keys():
            why = self._aborted[producer_id]
            raise self._fail(f"producer {producer_id} of {generation} is committed, and was {why}")
        batch.winners = named
        for seen in batch.seen.values():
            self._check(batch, generation, seen)

    # -- what readers see

    def read(self, client: str, copy: Copy, key: PartitionKey, offset: int) -> None:
        """A reader of what is committed was handed this copy."""
        batch = self._batches[copy.generation]
        seen = Seen(copy.producer_id, key, offset)
        first = batch.seen.setdefault(copy.row, seen)
        if first != seen:
            raise self._fail(f"{client} reads row {copy.row} of {copy.generation} as {seen}, it is {first} too", key)
        self._check(batch, copy.generation, seen)

    def _check(self, batch: _Batch, generation: Generation, seen: Seen) -> None:
        producer_id = seen.producer_id
        if producer_id in self._aborted:
            text = f"a row of producer {producer_id} of {generation} is seen, which is {self._aborted[producer_id]}"
            raise self._fail(text, seen.key)
        if batch.winners is not None and producer_id not in batch.winners:
            text = f"a row of producer {producer_id} of {generation} is seen, the winners are {sorted(batch.winners)}"
            raise self._fail(text, seen.key)

    # -- the end

    def check_end(self) -> None:
        """After the last poll."""
        for generation, batch in self._batches.items():
            missing = [row for row in range(batch.rows) if row not in batch.seen]
            if missing and (batch.committed or batch.seen):
                said = "committed" if batch.committed else "seen in part"
                raise self._fail(f"{generation} is {said}, and rows {missing} of {batch.rows} are not there")

    @staticmethod
    def _fail(text: str, key: PartitionKey | None = None) -> Violation:
        return Violation("V15", text)
