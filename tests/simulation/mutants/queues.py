"""Wrong rules of queues: what is leased, when locks end, and who may settle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from google.protobuf.message import Message as WireMessage

from minilog.aio.transaction import Transaction
from minilog.errors import MinilogError, UnknownOutcome
from minilog.net.runtime import now_ms
from minilog.queues.client import LeaseAnswer, Queues, Renewed
from minilog.queues.message import Message
from minilog.queues.settling import Settling
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.coordinator_effects import CoordinatorAnswer, Moment
from minilog_broker.coordinators.queues import partition_queue, redriving, view
from minilog_broker.coordinators.queues.coordinator import QueueCoordinator
from minilog_broker.coordinators.queues.locks import LeaseName
from minilog_broker.coordinators.queues.partition_queue import (
    Delivery,
    Ended,
    PartitionQueue,
    SettledChange,
    leases_of,
)
from minilog_broker.coordinators.queues.pieces import PieceChange, QueueKey, changed_pieces
from minilog_broker.coordinators.queues.ranges import Range, RangeState, changed_within
from minilog_broker.coordinators.queues.records import QueueChange, RedrivenTo
from minilog_broker.coordinators.queues.view import QueueView
from minilog_broker.replication.leader import partition
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.replication.rules.divergence import EpochEnds
from minilog_broker.replication.stable_offsets import KnownPartition, StableOffset, stable_offset
from tests.rules import Patches


def leased_up_to_the_high_watermark() -> Patches:
    """A leader reports its high watermark in the place of its last stable offset."""

    def mutant(log: ReplicaLog, epochs: EpochEnds, leader_epoch: int, known: KnownPartition) -> StableOffset | None:
        found = stable_offset(log, epochs, leader_epoch, known._replace(last_stable_offset=-1))
        if found is None or known == KnownPartition(leader_epoch, log.high_watermark, log.ends().log_start_offset):
            return None
        return found._replace(last_stable_offset=log.high_watermark)

    return [(partition, "stable_offset", mutant)]


def answered_before_it_is_committed() -> Patches:
    """A lease is answered when it is decided."""
    answer = QueueCoordinator._answer

    def mutant(self: QueueCoordinator, ticket: object, owner: str | None, message: WireMessage) -> None:
        if isinstance(message, queue_pb2.LeaseResponse):
            self._effects.append(CoordinatorAnswer(ticket, message))
        else:
            answer(self, ticket, owner, message)

    return [(QueueCoordinator, "_answer", mutant)]


def renewed_without_a_record() -> Patches:
    """A broker that takes itself for the coordinator confirms a renewal at once."""
    decide_of, write, answer = QueueCoordinator._decide_of, QueueCoordinator._write, QueueCoordinator._answer
    renewing: list[QueueCoordinator] = []

    def mutant(self: QueueCoordinator, ticket: object, request: Any, kind: Any, decide: Any) -> None:
        renewing[:] = [self] if isinstance(request, queue_pb2.RenewLeasesRequest) else []
        decide_of(self, ticket, request, kind, decide)
        renewing.clear()

    def unwritten(self: QueueCoordinator, changes: Sequence[QueueChange]) -> None:
        if self not in renewing:
            write(self, changes)

    def at_once(self: QueueCoordinator, ticket: object, owner: str | None, message: WireMessage) -> None:
        if self in renewing:
            self._effects.append(CoordinatorAnswer(ticket, message))
        else:
            answer(self, ticket, owner, message)

    return [
        (QueueCoordinator, "_decide_of", mutant),
        (QueueCoordinator, "_write", unwritten),
        (QueueCoordinator, "_answer", at_once),
    ]


def uncounted_when_a_lock_ends() -> Patches:
    """What a worker has not settled in time was not delivered."""
    delivered = partition_queue._delivered

    def expire(queue: PartitionQueue, lease_id: int, after: Delivery) -> Ended:
        kept = []
        for current in queue.ranges:
            if not partition_queue._is_leased_by(current, lease_id):
                kept.append(current)
            elif (ready := delivered(current, after._replace(limit=1 << 30))) is not None:
                kept.append(replace(ready, delivery_count=current.delivery_count - 1))
        return Ended(queue.with_ranges(kept), [])

    return [(partition_queue, "expire", expire)]


def delay_is_forgotten() -> Patches:
    """What is released with a delay is delivered again at once."""
    waiting = partition_queue._waiting

    def mutant(current: Range, state: RangeState, after: Delivery, reason: str | None = None) -> Range:
        return waiting(current, state, after._replace(delay_ms=0), reason)

    return [(partition_queue, "_waiting", mutant)]


def no_new_locks() -> Patches:
    """A new coordinator takes all locks for ended."""

    def mutant(self: QueueCoordinator, now: Moment) -> None:
        self._leasing.begin_term(now)
        for queue in self._view.names():
            for _, state in self._view.partitions(queue):
                for lease_id in leases_of(state):
                    self._locks.begin(LeaseName(queue, lease_id), now.ms)
        self.drop_deleted_topics()

    return [(QueueCoordinator, "_activated", mutant)]


def counted_from_the_answer() -> Patches:
    """A worker's lock begins when it hears of it."""
    lease, renew = Queues.lease, Queues.renew

    async def late_lease(self: Queues, request: queue_pb2.LeaseRequest) -> LeaseAnswer:
        return LeaseAnswer((await lease(self, request)).response, now_ms())

    async def late_renew(self: Queues, queue: str, lease_ids: Sequence[int]) -> Renewed:
        return Renewed((await renew(self, queue, lease_ids)).response, now_ms())

    return [(Queues, "lease", late_lease), (Queues, "renew", late_renew)]


Settlements = Sequence[queue_pb2.Settlement]


def _taken(queue: PartitionQueue, settlements: Settlements, change: SettledChange) -> tuple[PartitionQueue, set[int]]:
    """Take settlements whoever has the records."""
    for each in settlements:
        changed = changed_within(queue.ranges, each.first_offset, each.last_offset, partial(change, each))
        queue = queue.with_ranges(list(changed))
    return queue, set()


def settled_by_anybody() -> Patches:
    """The coordinator takes a settlement from a lease that does not hold the records."""
    return [(partition_queue, "_ended", _taken)]


def retention_ends_leases() -> Patches:
    """The coordinator forgets a lease of records that retention takes, and takes a settlement of them from anybody."""
    ended = partition_queue._ended

    def trim(queue: PartitionQueue, log_start: int) -> PartitionQueue:
        if log_start <= queue.settled_to:
            return queue
        kept = tuple(changed_within(queue.ranges, 0, log_start - 1, lambda current: None))
        return replace(queue, next_offset=max(queue.next_offset, log_start), ranges=kept)

    def mutant(
        queue: PartitionQueue, settlements: Settlements, change: SettledChange
    ) -> tuple[PartitionQueue, set[int]]:
        places = [place for place, each in enumerate(settlements) if each.last_offset >= queue.settled_to]
        left, refused = ended(queue, [settlements[place] for place in places], change)
        return left, {places[at] for at in refused}

    return [(partition_queue, "trim", trim), (partition_queue, "_ended", mutant)]


def any_second_refusal_is_done() -> Patches:
    """A refusal of a settlement that was sent again means that it is done, also after the lock."""
    answered = Settling.answered

    def mutant(
        self: Settling, refused: Mapping[int, MinilogError], now_ms: float, *, is_repeat: bool
    ) -> list[MinilogError]:
        errors = answered(self, refused, now_ms, is_repeat=is_repeat)
        return [error for error in errors if not isinstance(error, UnknownOutcome)]

    return [(Settling, "answered", mutant)]


def dead_letter_outside_of_the_transaction() -> Patches:
    """A worker writes dead letters in a transaction, and accepts the records by themselves."""

    async def settle(self: Transaction, messages: Iterable[Message]) -> None:
        for message in messages:
            message.accept()

    return [(Transaction, "settle", settle)]


def settled_before_the_decision() -> Patches:
    """What a transaction accepts is settled at once."""

    def begin(queue: PartitionQueue, settlements: Settlements, producer_id: int) -> PartitionQueue:
        left, refused = partition_queue._ended(queue, settlements, lambda settlement, current: None)
        if refused:
            raise partition_queue.refusal(settlements[min(refused)], queue)
        return left

    return [(partition_queue, "begin_settling", begin)]


def the_dead_live_again() -> Patches:
    """A dead record whose carrier gave it back is delivered to workers again."""
    delivered = partition_queue._delivered

    def mutant(current: Range, after: Delivery) -> Range | None:
        if current.death_reason is None:
            return delivered(current, after)
        return delivered(replace(current, death_reason=None), after._replace(limit=1 << 30))

    return [(partition_queue, "_delivered", mutant)]


def emptied_blocks_stay() -> Patches:
    """A decision writes the blocks that have ranges, and not that others have none any more."""

    def mutant(key: QueueKey, before: PartitionQueue | None, after: PartitionQueue | None) -> list[PieceChange]:
        changes = changed_pieces(key, before, after)
        return [change for change in changes if change.key.block is None or change.value is not None]

    return [(view, "changed_pieces", mutant)]


def redriven_twice() -> Patches:
    """A redrive that comes again, or too late, makes the records ready again."""
    redrive = redriving.redrive

    def mutant(
        seen: QueueView, request: queue_pb2.RedriveRequest, log_start: Callable[[QueueKey], int]
    ) -> redriving.RedriveDecision:
        class Forgetful(QueueView):
            def __init__(self) -> None:
                self.__dict__.update(seen.__dict__)

            def redriven(self, key: QueueKey) -> RedrivenTo:
                place = super().redriven(key)
                return replace(place, next_offset=min(place.next_offset, request.first_offset))

        done = redrive(Forgetful(), request, log_start)
        for at, change in enumerate(done.changes):
            if isinstance(change.value, RedrivenTo):
                last = max(change.value.next_offset, seen.redriven(change.key).next_offset)
                done.changes[at] = change._replace(value=RedrivenTo(last))
        return done

    return [(redriving, "redrive", mutant)]


def place_before_the_records() -> Patches:
    """A redrive moves the place in a decision of its own, and then makes the records ready."""
    write = QueueCoordinator._write

    def mutant(self: QueueCoordinator, changes: Sequence[QueueChange]) -> None:
        places = [change for change in changes if isinstance(change.value, RedrivenTo)]
        others = [change for change in changes if change not in places]
        if places and others:
            write(self, places)
            write(self, others)
        else:
            write(self, changes)

    return [(QueueCoordinator, "_write", mutant)]


def letter_is_passed_over() -> Patches:
    """A redrive passes over a letter whose transaction has not ended at the queue, and which is readable already."""
    return [(redriving, "_is_being_carried", lambda part: False)]
