"""Wrong rules of coordinators: when a commit is answered, and what of their work is left for the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minilog_broker.coordinators.coordinator import Coordinator
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.coordinators.transactions import enlisting
from minilog_broker.coordinators.transactions.clocks import Clocks
from minilog_broker.coordinators.transactions.commits import WaitingCommits
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from tests.rules import Patches


def answered_when_decided() -> Patches:
    """A commit is COMMITTED when the decision is, wherever its markers are."""
    look = WaitingCommits.look

    def mutant(self: WaitingCommits, committed: int, visible: Any, now_ms: float) -> Any:
        return look(self, committed, lambda *_: True, now_ms)

    return [(WaitingCommits, "look", mutant)]


def decided_is_not_finished() -> Patches:
    """A new coordinator writes the markers of what it decides, and none of what was decided before its time."""

    def mutant(self: TransactionCoordinator, now: Any) -> None:
        self._committed = self._table.end_offset
        for transactional_id in self._view.ids():
            if self._view.open_producers(transactional_id):
                self._sign_of_life(transactional_id, now)
        self._go_on(now)

    return [(TransactionCoordinator, "_activated", mutant)]


def taken_over_stays_open() -> Patches:
    """A new attempt, or a new run, fences the former one, and leaves open what that had open."""
    return [(enlisting, "abort_changes", lambda *_: [])]


def told_without_a_decision() -> Patches:
    """A group's offsets are told as they are known: who was deposed, and does not know it, tells old ones."""
    write = Coordinator._write

    def mutant(self: Any, changes: Sequence[Any]) -> None:
        if any(change.key.partition is not None or change.key.producer_id is not None for change in changes):
            write(self, changes)

    return [(GroupCoordinator, "_write", mutant)]


def no_time_out() -> Patches:
    """A transaction whose program is gone stays open until somebody ends it."""
    tick = Clocks.tick

    def mutant(self: Clocks, now_ms: float) -> list[str]:
        tick(self, now_ms)
        return []

    return [(Clocks, "tick", mutant)]
