"""A partition of an internal topic in memory, and the brokers that lead it one after another.

What is appended stands in one log, encoded as on disk; it is committed when a test says so. A new leader has all that
was committed, and as much of the rest as the test says: that is committed in its epoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from minilog.errors import MinilogError, NotLeaderOrFollower, StorageError, error_from_wire
from minilog.partition_key import PartitionKey
from minilog_broker.coordinators.batches import decode_run, encode_batch
from minilog_broker.coordinators.coordinator import Coordinator, CoordinatorState
from minilog_broker.coordinators.coordinator_effects import (
    CoordinatorAnswer,
    CoordinatorEffect,
    DeleteRecordsBelow,
    LoadLog,
    Moment,
)
from minilog_broker.coordinators.places import SLACK_RECORDS
from minilog_broker.coordinators.table import LogRecord
from minilog_broker.quorum.records import place
from tests.unit.coordinators.forgetting import assert_forgotten

INTERNAL = PartitionKey(bytes(15) + b"\x07", 3)
ORDERS, PAYMENTS = bytes(15) + b"\x21", bytes(15) + b"\x22"
START_US = 1_700_000_000_000_000

AnyCoordinator = TypeVar("AnyCoordinator", bound=Coordinator[Any, Any])
Kind = TypeVar("Kind", bound=Message)
AnyEffect = TypeVar("AnyEffect")


def error_of(message: Message) -> MinilogError | None:
    return error_from_wire(message.error)  # type: ignore[attr-defined]


def state_of(coordinator: Coordinator[Any, Any]) -> CoordinatorState:
    """Read afresh: a checker believes that a property it has seen stays as it was."""
    return coordinator.state


class CoordinatorCluster(Generic[AnyCoordinator]):
    """See the module's text. Subclasses make the coordinator, and carry out its effects."""

    slack_records = SLACK_RECORDS

    def __init__(self) -> None:
        self.log_start = 0
        self.batches: list[bytes] = []
        self.ends: list[int] = []  # the end offset of each batch
        self.high_watermark = 0
        self.leader_epoch = -1
        self.now_ms = 1_000.0
        self.wall_us = START_US
        self.refusal: MinilogError | None = None  # what appending says now
        self.topics = {ORDERS, PAYMENTS}
        self.answers: dict[object, Message] = {}
        self.effects: list[CoordinatorEffect] = []
        self._tickets = itertools.count(1)
        self.coordinator = self.make()

    def make(self) -> AnyCoordinator:
        raise NotImplementedError

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms, self.wall_us)

    @property
    def log_end(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def decided_end(self) -> int:
        """The end of the log with the decisions that wait for the batch before them."""
        is_active = self.coordinator.state is CoordinatorState.ACTIVE
        return self.coordinator._table.end_offset if is_active else self.log_end

    def require_room(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def append(self, records: Sequence[LogRecord]) -> int:
        if isinstance(self.refusal, NotLeaderOrFollower | StorageError):
            raise self.refusal
        batch = encode_batch(INTERNAL, records, self.wall_us)
        placed = place(batch, self.log_end, self.leader_epoch)
        self.batches.append(bytes(placed.buffers[0]))
        self.ends.append(placed.end_offset)
        return placed.end_offset

    # -- the partition

    def lead(self) -> None:
        """This coordinator's broker leads, in a new epoch; nothing is known to be committed in it yet."""
        self.leader_epoch += 1
        self.coordinator._table.places.slack_records = self.slack_records
        self.coordinator.lead(self.leader_epoch, self.log_end)
        self.collect()

    def commit(self) -> None:
        """All decisions are below the high watermark, also those that waited for a batch before them."""
        self.commit_to(self.log_end)
        while self.high_watermark < self.log_end:
            self.commit_to(self.log_end)

    def commit_to(self, offset: int) -> None:
        self.high_watermark = offset
        self.coordinator.high_watermark(self.leader_epoch, offset, self.now)
        self.collect()

    def collect(self) -> None:
        """Take the effects: answers by their ticket; the log is loaded at once, batch by batch."""
        self.collect_of(self.coordinator)

    def collect_of(self, coordinator: AnyCoordinator) -> None:
        """The same of one that leads no more."""
        for effect in coordinator.take_effects():
            match effect:
                case CoordinatorAnswer(ticket, message):
                    assert ticket not in self.answers, "a call was answered twice"
                    self.answers[ticket] = message
                case LoadLog(leader_epoch, end_offset):
                    self.load(leader_epoch, end_offset)
                case DeleteRecordsBelow(leader_epoch, offset):
                    assert leader_epoch == self.leader_epoch
                    assert self.log_start <= offset <= self.high_watermark  # equal: it was cut inside a batch
                    self.log_start = offset
                case _:
                    self.effects.append(effect)

    def load(self, leader_epoch: int, end_offset: int) -> None:
        assert end_offset <= self.high_watermark, "what is not committed was loaded"
        self.coordinator.replayed(leader_epoch, [], 0, self.now)
        for batch, end in zip(self.batches, self.ends, strict=True):
            if self.log_start < end <= end_offset:
                for next_offset, records in decode_run(INTERNAL, batch):
                    self.coordinator.replayed(leader_epoch, records, next_offset, self.now)
        self.collect()

    def begin(self) -> None:
        """Lead, with everything committed. What is said of the epoch before, or of less than all, begins nothing."""
        self.lead()
        self.coordinator.high_watermark(self.leader_epoch - 1, self.log_end, self.now)
        self.coordinator.high_watermark(self.leader_epoch, self.log_end - 1, self.now)
        assert state_of(self.coordinator) is CoordinatorState.WAITING
        self.commit()
        assert state_of(self.coordinator) is CoordinatorState.ACTIVE

    def fail_over(self, *, kept_batches: int | None = None) -> None:
        """Another broker takes over, with what is committed and the next `kept_batches` of the rest (None: all)."""
        committed = sum(1 for end in self.ends if end <= self.high_watermark)
        if kept_batches is not None:
            del self.batches[committed + kept_batches :], self.ends[committed + kept_batches :]
        former, self.coordinator = self.coordinator, self.make()
        former.deposed()
        self.collect_of(former)
        assert_forgotten(former, self.coordinator)
        self.begin()

    def second_term(self, meanwhile: Callable[[], object] = lambda: None, *, kept_batches: int | None = None) -> None:
        """Another broker takes over, and then this one leads again: a broker keeps one coordinator for all its terms.
        `meanwhile`: what happens under the other one."""
        first = self.coordinator
        self.fail_over(kept_batches=kept_batches)
        meanwhile()
        self.commit()
        self.coordinator.deposed()
        self.collect()
        self.coordinator = first
        self.begin()

    # -- calls

    def ticket(self) -> int:
        return next(self._tickets)

    def answer(self, ticket: object, kind: type[Kind]) -> Kind:
        """The answer that was given, once."""
        self.collect()
        message = self.answers.pop(ticket)
        assert isinstance(message, kind)
        return message

    def waits(self, ticket: object) -> bool:
        self.collect()
        return ticket not in self.answers

    def take(self, kind: type[AnyEffect]) -> list[AnyEffect]:
        """The effects of one kind, in order."""
        self.collect()
        found: list[AnyEffect] = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, kind)]
        return found
