"""Wrong rules of coordinators and of transactions in a partition: 12, 15 to 18."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minilog_broker.coordinators.coordinator import Coordinator, CoordinatorState
from minilog_broker.coordinators.coordinator_effects import LoadLog, Moment
from minilog_broker.coordinators.transactions import ending
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.coordinators.transactions.records import TransactionProducer
from minilog_broker.replication.leader.produce import ProduceHandler
from minilog_broker.replication.leader.transaction_markers import TransactionMarkers
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.storage.transactions import PartitionTransactions
from tests.rules import Patches

# -- 12, 15: what a coordinator takes for committed


def deposed_coordinator_goes_on() -> Patches:
    """One that leads again keeps what it knew, and takes what others committed for its own (KAFKA-9307)."""
    lead, deposed = Coordinator.lead, Coordinator.deposed

    def leads(self: Any, leader_epoch: int, epoch_start: int) -> None:
        if self._state is not CoordinatorState.ACTIVE:
            lead(self, leader_epoch, epoch_start)
            return
        self._leader_epoch, self._epoch_start = leader_epoch, epoch_start
        self._table.end_offset = epoch_start

    def is_deposed(self: Any) -> None:
        if self._state is CoordinatorState.ACTIVE:
            self._leader_epoch = -1
        else:
            deposed(self)

    return [(Coordinator, "lead", leads), (Coordinator, "deposed", is_deposed)]


def acts_before_its_epoch_is_committed() -> Patches:
    """A new coordinator loads, and serves, while what it reads may still be cut."""
    lead = Coordinator.lead

    def mutant(self: Any, leader_epoch: int, epoch_start: int) -> None:
        lead(self, leader_epoch, epoch_start)
        self._state = CoordinatorState.LOADING
        self._effects.append(LoadLog(leader_epoch, epoch_start))

    return [(Coordinator, "lead", mutant)]


def decided_before_committed() -> Patches:
    """A decision of a coordinator of transactions takes effect when it is written."""
    write, end = TransactionCoordinator._write, TransactionCoordinator.end

    def mutant(self: Any, changes: Sequence[Any]) -> None:
        write(self, changes)
        self._changed(self._table.commit(self._table.end_offset), self._table.end_offset, _last_moment(self))

    def ended(self: Any, ticket: object, request: Any, now: Moment) -> None:
        self._mutant_moment = now
        end(self, ticket, request, now)

    return [(TransactionCoordinator, "_write", mutant), (TransactionCoordinator, "end", ended)]


def _last_moment(coordinator: Any) -> Moment:
    return getattr(coordinator, "_mutant_moment", Moment(0.0, 0))


# -- 16: the last stable offset


def stable_offset_inclusive() -> Patches:
    """The first batch of an open transaction is shown."""
    stable = PartitionTransactions.last_stable_offset

    def mutant(self: PartitionTransactions, high_watermark: int) -> int:
        return min(high_watermark, stable(self, high_watermark) + 1)

    return [(PartitionTransactions, "last_stable_offset", mutant)]


def stable_offset_above_high_watermark() -> Patches:
    """Where nothing is open, all that is in the log is stable."""
    move = ReplicaLog._set_high_watermark

    def mutant(self: Any, offset: int) -> None:
        move(self, offset)
        if self.last_stable_offset == offset:
            self.last_stable_offset = self.appended_end

    return [(ReplicaLog, "_set_high_watermark", mutant)]


def uncommitted_marker_moves_stable_offset() -> Patches:
    """A marker in the log counts, committed or not."""
    stable = PartitionTransactions.last_stable_offset

    def mutant(self: PartitionTransactions, high_watermark: int) -> int:
        self._unstable.clear()
        return stable(self, high_watermark)

    return [(PartitionTransactions, "last_stable_offset", mutant)]


# -- 17: late writers, and who names the winners


def refused_registration_is_none() -> Patches:
    """A leader appends for a producer that has ended, when its coordinator says so."""
    registered = ProduceHandler.registered

    def mutant(self: ProduceHandler, number: int, error: Any, *rest: Any) -> Any:
        return registered(self, number, None, *rest)

    return [(ProduceHandler, "registered", mutant)]


def attempts_win_not_producers() -> Patches:
    """A commit is of all that its attempt has enlisted, whoever is named: two copies of one task win together."""
    winners = ending._winners

    def mutant(
        request: Any, transaction: Any, open_producers: Mapping[int, TransactionProducer]
    ) -> dict[int, TransactionProducer]:
        of_attempt = {p: each for p, each in open_producers.items() if each.attempt_id == transaction.attempt_id}
        return {**of_attempt, **winners(request, transaction, open_producers)}

    return [(ending, "_winners", mutant)]


# -- what a replay is known by


def committed_without_contents() -> Patches:
    """Nobody knows what the last committed generation holds: whatever asks for it again is taken for a replay."""
    return [(ending, "_contents", lambda request: None)]


# -- 18


def markers_not_idempotent() -> Patches:
    """Markers that are asked for again are written again."""

    def mutant(self: TransactionMarkers, transactional_id: str, marker: Any, *, may_lose: bool) -> int | None:
        return None

    return [(TransactionMarkers, "_marked_at", mutant)]
