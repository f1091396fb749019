"""The mechanism of every coordinator: the leader of a partition of an internal topic loads it, and serves it.

    state      what it is
    IDLE       this broker does not lead the partition
    WAITING    it leads, but perhaps does not know yet all that is committed
    LOADING    it reads the log below the start of its epoch
    ACTIVE     it decides requests

    a request while                    is answered
    IDLE                               NOT_COORDINATOR
    WAITING, LOADING                   COORDINATOR_LOAD_IN_PROGRESS
    ACTIVE                             when all records behind the decision are committed. That holds for refusals, too:
                                       a record in flight may be lost, and then it must not have fenced anybody
    ACTIVE, and then deposed           NOT_COORDINATOR: perhaps the request was decided. The next coordinator knows

A term is a leader epoch. Each high watermark comes with its epoch. So a deposed coordinator never takes the records
that another leader committed for its own (wrong rule 12). A coordinator that leads again loads again (Kafka kept the
old table: KAFKA-9307). It loads up to the start of its epoch, when all of that is committed (Kafka: up to the end of
the log). Above the start of its epoch only this coordinator appends, because clients cannot write to internal topics.

A coordinator that was deposed, and has not heard of it, decides nothing: no record that it appends is committed. An
answer that needs no append may be old. So callers name the highest epoch that they know, and a coordinator of a lower
epoch refuses.
"""

from __future__ import annotations

import enum
import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from google.protobuf.message import Message

from minilog.errors import CoordinatorLoadInProgress, MinilogError, NotCoordinator, NotLeaderOrFollower, wire_error
from minilog_broker.coordinators.coordinator_effects import (
    CoordinatorAnswer,
    CoordinatorEffect,
    DeleteRecordsBelow,
    LoadLog,
    Moment,
)
from minilog_broker.coordinators.group_commit import GroupCommit, OwnLog
from minilog_broker.coordinators.table import Change, Codec, CommittedTable, Key, LogRecord, Value

Response = TypeVar("Response", bound=Message)


class CoordinatorState(enum.Enum):
    """The states of a coordinator. WAYS has the changes from one to the next."""

    IDLE = "idle"
    WAITING = "waiting"
    LOADING = "loading"
    ACTIVE = "active"


WAYS = {
    (CoordinatorState.IDLE, CoordinatorState.WAITING): "lead",
    (CoordinatorState.WAITING, CoordinatorState.LOADING): "the high watermark reached the start of the epoch: LoadLog",
    (CoordinatorState.LOADING, CoordinatorState.ACTIVE): "all below the start of the epoch was replayed",
    (CoordinatorState.WAITING, CoordinatorState.IDLE): "deposed: everything is forgotten",
    (CoordinatorState.LOADING, CoordinatorState.IDLE): "the same",
    (CoordinatorState.ACTIVE, CoordinatorState.IDLE): "the same",
}
"""Every way from a state to another. A new epoch deposes first."""


class Coordinator(Generic[Key, Value]):
    """A coordinator of one partition of an internal topic: its states, its table and its waiting answers.

    `log`: of the partition. Decisions that come close together share a batch (group_commit.py).
    """

    def __init__(self, name: str, codec: Codec[Key, Value], log: OwnLog) -> None:
        self._name = name
        self._log = GroupCommit(log)
        self._table: CommittedTable[Key, Value] = CommittedTable(codec, self._log.write)
        self._effects: list[CoordinatorEffect] = []
        self._state = CoordinatorState.IDLE
        self._leader_epoch = -1
        self._epoch_start = -1
        self._waiting: list[tuple[int, int, object, Message]] = []  # a heap by what each answer rests on
        self._count = itertools.count()

    def __str__(self) -> str:
        return self._name

    def take_effects(self) -> list[CoordinatorEffect]:
        taken = list(self._effects)
        self._effects.clear()
        return taken

    # -- the term

    @property
    def state(self) -> CoordinatorState:
        return self._state

    def committed_state(self) -> dict[Key, Value]:
        """The values that another coordinator would find in the log now."""
        return self._table.committed()

    def lead(self, leader_epoch: int, epoch_start: int) -> None:
        """This broker leads the partition from `epoch_start` on. `high_watermark` follows. The same epoch again means
        that the log has dropped decisions, as a full disk does."""
        has_dropped = leader_epoch == self._leader_epoch and self._state is not CoordinatorState.IDLE
        self._end_term(self._dropped() if has_dropped else self._not_coordinator())
        self._state = CoordinatorState.WAITING
        self._leader_epoch, self._epoch_start = leader_epoch, epoch_start
        self._log.begin(epoch_start)
        self._table.clear(epoch_start)

    def high_watermark(self, leader_epoch: int, offset: int, now: Moment) -> None:
        """The leader of `leader_epoch` reports that all records below `offset` are committed."""
        if leader_epoch != self._leader_epoch or self._state is CoordinatorState.IDLE:
            return
        if self._state is CoordinatorState.WAITING and offset >= self._epoch_start:
            self._state = CoordinatorState.LOADING
            self._effects.append(LoadLog(leader_epoch, self._epoch_start))
        if self._state is CoordinatorState.ACTIVE:
            self._changed(self._table.commit(offset), offset, now)
            while self._waiting and self._waiting[0][0] <= offset:
                _, _, ticket, message = heapq.heappop(self._waiting)
                self._effects.append(CoordinatorAnswer(ticket, message))
            self._append_waiting(offset)
            self._trim()

    def _append_waiting(self, high_watermark: int) -> None:
        """Append the decisions that waited for those below the high watermark. Later decisions rest on them, so the
        term is over if that fails: the leader epoch has ended, or the log has failed."""
        try:
            self._log.committed(high_watermark)
        except MinilogError:
            self.deposed()

    def _trim(self) -> None:
        """Have deleted what nobody needs, where it is worth the while."""
        needed_from = self._table.needed_from()
        if needed_from - self._table.start_offset >= self._table.places.slack_records:
            self._table.trimmed(needed_from)
            self._effects.append(DeleteRecordsBelow(self._leader_epoch, needed_from))

    def replayed(self, leader_epoch: int, records: Iterable[LogRecord], next_offset: int, now: Moment) -> None:
        """The next records of the log, up to `next_offset` and without gaps, as LoadLog asked. Raises CorruptMessage
        where one is not ours: the replica is damaged."""
        if leader_epoch != self._leader_epoch or self._state is not CoordinatorState.LOADING:
            return
        new_records = list(records)
        for offset, record in enumerate(new_records, next_offset - len(new_records)):
            self._table.replay(record, offset)
        if next_offset >= self._epoch_start:
            self._loaded()
            self._state = CoordinatorState.ACTIVE
            self._activated(now)

    def deposed(self) -> None:
        """End the term: the leader epoch is over, or the log failed. Nothing that is not committed is promised."""
        self._end_term(self._not_coordinator())

    def _end_term(self, refusal: MinilogError) -> None:
        """`refusal`: the answer to all that wait."""
        self._state, self._leader_epoch = CoordinatorState.IDLE, -1
        self._log.begin(0)
        self._table.clear(0)
        waiting, self._waiting = self._waiting, []
        for _, _, ticket, message in sorted(waiting, key=lambda answer: answer[1]):
            self._effects.append(CoordinatorAnswer(ticket, self._refusal(type(message), refusal)))
        self._ended()

    # -- what a coordinator does with it

    def _loaded(self) -> None:
        """The table has everything that was committed. Raises CorruptMessage where its values do not fit together."""

    def _activated(self, now: Moment) -> None:
        """Everything that was committed is known."""
        raise NotImplementedError

    def _changed(self, changes: Sequence[Change[Key, Value]], high_watermark: int, now: Moment) -> None:
        """These were committed. Called whenever the high watermark moves."""
        raise NotImplementedError

    def _ended(self) -> None:
        """The term is over: forget what is beside the table."""
        raise NotImplementedError

    def _require_active(self, known_epoch: int) -> None:
        """`known_epoch`: the highest that the caller has heard of."""
        if self._state is CoordinatorState.IDLE or known_epoch > self._leader_epoch:
            raise self._not_coordinator()
        if self._state is not CoordinatorState.ACTIVE:
            raise CoordinatorLoadInProgress(f"{self} reads what was decided before leader epoch {self._leader_epoch}")

    def _write(self, changes: Sequence[Change[Key, Value]]) -> None:
        """One decision. Raises NotCoordinator where the term turns out to be over, else what the log says."""
        try:
            self._table.write(changes)
        except NotLeaderOrFollower:
            self.deposed()
            raise self._not_coordinator() from None

    def _try_write(self, changes: Sequence[Change[Key, Value]]) -> bool:
        """A decision that nobody asked for: where it cannot be written now, the next tick tries again."""
        try:
            self._write(changes)
        except MinilogError:
            return False
        return True

    # -- answers

    def _decide(
        self,
        ticket: object,
        owner: str | None,
        kind: type[Response],
        decide: Callable[[], Response],
        *,
        known_epoch: int = 0,
    ) -> None:
        """Answer with what `decide` says, or with the error it raised, when what is known of `owner` is committed."""
        try:
            self._require_active(known_epoch)
            response = decide()
        except MinilogError as error:
            response = self._refusal(kind, error)
        self._answer(ticket, owner, response)

    def _answer(self, ticket: object, owner: str | None, message: Message) -> None:
        rests_on = self._table.rests_on(owner)
        if rests_on:
            heapq.heappush(self._waiting, (rests_on, next(self._count), ticket, message))
        else:
            self._effects.append(CoordinatorAnswer(ticket, message))

    def _refusal(self, kind: type[Response], error: MinilogError) -> Response:
        return kind(error=wire_error(error))

    def _dropped(self) -> NotCoordinator:
        return NotCoordinator(
            f"the log of {self} has dropped this decision, and nothing has changed: the disk of this broker is full or "
            "failed. `minilog cluster health` and the broker's log name the disk"
        )

    def _not_coordinator(self) -> NotCoordinator:
        return NotCoordinator(f"this broker does not lead {self} now: ask for metadata, and its leader")
