"""What a transactional id is, said plainly: sets and dictionaries, one call after another, no log, no markers.

The rules: docs/spec/transactions.md. A call changes the model and returns the code of its answer.
Nothing is ever removed, so that it can be asked how every producer ended.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from minilog.partition_key import PartitionKey


class ModelAttempt(NamedTuple):
    run: str
    generation: int
    name: str


@dataclass
class ModelProducer:
    attempt: ModelAttempt
    task: int | None
    fate: str = "open"  # or committed, aborted
    partitions: set[PartitionKey] = field(default_factory=set)


@dataclass
class TransactionModel:
    committed: int | None = None
    winners: dict[int, frozenset[int]] = field(default_factory=dict)  # of each generation that was committed
    attempt: ModelAttempt | None = None
    over: bool = False
    old_runs: set[str] = field(default_factory=set)
    old_attempts: set[str] = field(default_factory=set)
    producers: dict[int, ModelProducer] = field(default_factory=dict)

    @property
    def open(self) -> dict[int, ModelProducer]:
        return {each: producer for each, producer in self.producers.items() if producer.fate == "open"}

    def abort_open(self) -> None:
        for producer in self.open.values():
            producer.fate = "aborted"

    def enlist(self, asked: ModelAttempt, task: int | None, producer_id: int) -> str:
        refused = self._refused(asked)
        if refused is not None:
            return refused
        former = self.attempt
        if former is None or asked.name != former.name:
            self.abort_open()
            if former is not None and former.run != asked.run:
                self.old_runs.add(former.run)
            if former is not None and former[:2] == asked[:2]:
                self.old_attempts.add(former.name)
            else:
                self.old_attempts = set()
            self.attempt, self.over = asked, False
        self.producers[producer_id] = ModelProducer(asked, task)
        return "ENLISTED"

    def _refused(self, asked: ModelAttempt) -> str | None:
        former = self.attempt
        if asked.run in self.old_runs:
            return "PRODUCER_FENCED"
        if former is None:
            return None
        if self.committed is not None and asked.generation <= self.committed:
            begins = asked.run != former.run and asked.generation == self.committed
            return "ALREADY" if begins else "STALE_GENERATION"
        if asked.name in self.old_attempts:
            return "PRODUCER_FENCED"
        if asked.name == former.name:
            if asked != former:
                return "INVALID_TXN_STATE"
            return "PRODUCER_FENCED" if self.over else None
        if asked.run == former.run and asked.generation < former.generation:
            return "PRODUCER_FENCED"
        return None

    def register(self, producer_id: int, partition: PartitionKey) -> str:
        if producer_id not in self.open:
            return "PRODUCER_FENCED"
        self.producers[producer_id].partitions.add(partition)
        return "NONE"

    def end(self, asked: ModelAttempt, named: Collection[int]) -> str:
        if self.attempt is None:
            return "INVALID_TXN_STATE"
        if self.committed is not None and asked.generation <= self.committed:
            return "COMMITTED" if asked.generation == self.committed else "STALE_GENERATION"
        if asked != self.attempt or self.over:
            return "PRODUCER_FENCED"
        tasks = [self.producers[each].task for each in named if each in self.open]
        tasks = [task for task in tasks if task is not None]
        if not set(named) <= self.open.keys() or len(set(tasks)) < len(tasks):
            return "INVALID_TXN_STATE"
        assert asked.generation not in self.winners, "a generation is committed at most once"
        self.winners[asked.generation] = frozenset(named)
        for each in named:
            self.producers[each].fate = "committed"
        self.abort_open()
        self.committed, self.over, self.old_attempts = asked.generation, True, set()
        return "COMMITTED"

    def abort(self, asked: ModelAttempt, named: Collection[int]) -> str:
        if self.committed is not None and asked.generation <= self.committed:
            return "COMMITTED" if asked.generation == self.committed else "STALE_GENERATION"
        if self.attempt is not None and self.attempt[1:] == asked[1:]:
            for each, producer in self.open.items():
                if not named or each in named:
                    producer.fate = "aborted"
            self.over = self.over or not named
        return "ABORTED"

    def abort_by_command(self) -> str:
        if self.attempt is None:
            return "TRANSACTIONAL_ID_NOT_FOUND"
        self.abort_open()
        self.over = True
        return "NONE"
