"""How records come to workers: lease calls, what leaders report, and the calls that wait.

    event                                 what follows
    a call                                it is answered with records, or it waits. Leaders are asked for news
    news of a leader                      what its log has no more is dropped, durably. Then calls are served
    records that may be delivered again   calls are served, the oldest first
    a batch of the log is on its way      calls are served when it is committed: a lease would wait for it anyway, and
                                          until then more records may come

There is one question for each partition with calls that wait (watches.py). Every 10 s there is one for each other
partition, too: a queue without workers has a backlog that people and alerts must see, and records that retention takes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from google.protobuf.message import Message

from minilog.errors import InvalidArgument, MinilogError, UnknownTopicId, wire_error
from minilog.limits import MAX_LEASE_PARTITIONS, MAX_QUEUE_TOPICS, MAX_SETTLED_PARTITIONS
from minilog.partition_key import PartitionKey
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.coordinator_effects import AskStableOffset, CoordinatorEffect, Moment, RecordsExpired
from minilog_broker.coordinators.queues import partition_queue
from minilog_broker.coordinators.queues.alone import Alone, Holder
from minilog_broker.coordinators.queues.circles import check_no_circle
from minilog_broker.coordinators.queues.holdings import Tally
from minilog_broker.coordinators.queues.locks import LeaseName, Locks, Owner
from minilog_broker.coordinators.queues.partition_queue import LeaseRequest, PartitionQueue
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.coordinators.queues.ranges import Range, RangeState
from minilog_broker.coordinators.queues.records import Queue, QueueChange
from minilog_broker.coordinators.queues.view import QueueView
from minilog_broker.coordinators.queues.waiting import WaitingLease, WaitingLeases
from minilog_broker.coordinators.queues.watches import Watches
from minilog_broker.coordinators.table import Change
from minilog_broker.replication.stable_offsets import KnownPartition, Question, StableOffset

UNBOUNDED = 1 << 63
MOST_LOOKED_AT = 10_000  # ranges and partitions in one turn: some ten milliseconds
COST_OF_A_LEASE = 100  # beside the ranges: as much time as for so many
LOOK_MS = 10_000.0
_DELAYED = (RangeState.READY, RangeState.DEAD)


@dataclass(frozen=True, slots=True)
class LeaseSurroundings:
    """What leases need of their coordinator. `write` raises a MinilogError where it wrote nothing. Then the term may be
    over. `charging`: what is written meanwhile is for the call of this ticket. `answer`: a ticket, the queue that the
    answer rests on, the message. `next_lease_id`: of a principal, never used before in this log. `coordinator_epoch`:
    of the term. `is_busy`: whether a batch of the log is on its way."""

    view: QueueView
    locks: Locks
    write: Callable[[Sequence[QueueChange]], None]
    charging: Callable[[object], AbstractContextManager[None]]
    answer: Callable[[object, str, Message], None]
    emit: Callable[[CoordinatorEffect], None]
    next_lease_id: Callable[[str], int]
    coordinator_epoch: Callable[[], int]
    is_busy: Callable[[], bool]


class LeaseSource(NamedTuple):
    """A partition whose records may be leased, and what its leader has reported. `shares`: of its locks, one for each
    principal."""

    key: QueueKey
    state: PartitionQueue
    stable: StableOffset
    tally: Tally
    shares: int

    @property
    def cost(self) -> int:
        """How many ranges a lease looks at."""
        return len(self.state.ranges) if self.tally.waiting_ranges or self.shares > 1 else 0


class Grant(NamedTuple):
    """What a call gets. `is_alone`: one record alone. `is_held_back`: its worker gets nothing now, and another may.
    `was_leased_before`: some of it. `sources`: what was looked at in this turn."""

    changes: list[QueueChange] = []  # noqa: RUF012
    ranges: list[queue_pb2.LeasedRange] = []  # noqa: RUF012
    is_alone: bool = False
    is_held_back: bool = False
    was_leased_before: bool = False
    sources: Sequence[LeaseSource] = ()


class Leasing:
    """The leases of one coordinator's queues."""

    def __init__(self, around: LeaseSurroundings) -> None:
        self._around = around
        self._view = around.view
        self._watches = Watches()
        self._calls = WaitingLeases()
        self._turns: Counter[str] = Counter()  # of the partitions of a queue
        self._due: dict[str, None] = {}  # queues to serve when the batch on its way is committed
        self._searching: dict[str, float] = {}  # queues with a search under way: when its next turn may come
        self._delays: dict[str, float] = {}  # the end of the first delay of a queue for which calls wait
        self._alone = Alone(around.locks, around.view.holdings)
        self._activated_ms = -math.inf
        self._look_at_ms = math.inf
        self.expired: Counter[QueueKey] = Counter()
        """The offsets that retention took before they were settled, in this term."""
        self.redelivered: Counter[QueueKey] = Counter()
        """The offsets that were leased again, in this term."""

    # -- the term

    def begin_term(self, now: Moment) -> None:
        self._activated_ms = self._look_at_ms = now.ms

    def end_term(self, refusal: MinilogError) -> None:
        """Forget all, and refuse the calls that wait."""
        for call in self._calls.take_all():
            self._refuse(call, refusal)
        self._look_at_ms = math.inf
        self._watches.clear()
        self._turns.clear()
        self._due.clear()
        self._searching.clear()
        self._delays.clear()
        self._alone.clear()
        self.expired.clear()
        self.redelivered.clear()

    def forget(self, key: QueueKey) -> None:
        """The queue has no such partition any more."""
        self._watches.forget(key)
        del self.expired[key], self.redelivered[key]

    # -- calls

    def lease(self, ticket: object, request: queue_pb2.LeaseRequest, now: Moment, principal: str) -> None:
        """Answer the call now, or let it wait. Raises InvalidArgument, InvalidConfig, UnknownTopicId, and what writing
        raises."""
        call = WaitingLease(ticket, request, now.ms, now.ms + request.max_wait_ms, principal)
        if (count := self._view.partition_count(request.topic_ids)) > MAX_LEASE_PARTITIONS:
            raise InvalidArgument(
                f"queue '{request.queue}': the topics of a lease have at most {MAX_LEASE_PARTITIONS} partitions, and "
                f"these have {count}: name fewer"
            )
        self._begin_queue(ticket, request)
        if self._around.is_busy() and request.max_wait_ms:
            self._calls.add(call)
            self._due[request.queue] = None
        elif not (grant := self._lease_now(call, now)).ranges:
            self._calls.add(call)
            self._wait_for_delays(request.queue, grant.sources or self._sources(call)[0], now)
        self._ask(request.queue, call.topics, now)

    def caller_left(self, ticket: object) -> None:
        """Nobody waits for the answer any more."""
        if (call := self._calls.of_ticket(ticket)) is not None:
            self._calls.over(call)

    def _begin_queue(self, ticket: object, request: queue_pb2.LeaseRequest) -> None:
        """Note the topics that the queue has from now on. Raises InvalidArgument, InvalidConfig, UnknownTopicId."""
        queue = self._view.queue(request.queue)
        new = [topic_id for topic_id in request.topic_ids if topic_id not in queue.topics]
        counts = {topic_id: self._view.existing_topic(topic_id) for topic_id in new}
        if new and len(queue.topics) + len(new) > MAX_QUEUE_TOPICS:
            raise InvalidArgument(
                f"queue '{request.queue}' has {len(queue.topics)} topics, and a queue has at most {MAX_QUEUE_TOPICS}: "
                "use another queue for the others. A topic leaves a queue when it is deleted"
            )
        if new:
            larger = Queue(queue.settings, {**queue.topics, **counts})
            check_no_circle(self._view, request.queue, larger)
            with self._around.charging(ticket):
                self._around.write([Change(QueueKey(request.queue), larger)])

    def _lease_now(self, call: WaitingLease, now: Moment) -> Grant:
        """Lease what there is, and answer. Without ranges nothing is changed."""
        request, lease_id = call.request, self._around.next_lease_id(call.principal)
        grant = self._leased(call, lease_id, now)
        if not grant.ranges:
            return grant
        with self._around.charging(call.ticket):
            self._around.write(grant.changes)
        settings = self._view.settings(request.queue)
        lock_ms = settings.lock_duration_ms
        name = LeaseName(request.queue, lease_id)
        owner = Owner(request.worker_id, call.principal)
        self._around.locks.given(name, now.ms + lock_ms, owner)
        if grant.is_alone:
            self._alone.began(Holder(request.queue, request.worker_id), name, now.ms, lock_ms)
        response = queue_pb2.LeaseResponse(
            lease_id=lease_id,
            ranges=grant.ranges,
            lock_duration_ms=lock_ms + int(now.ms - call.began_ms),
            coordinator_epoch=self._around.coordinator_epoch(),
            must_be_renewed_first=grant.was_leased_before,
        )
        if any(part.HasField("death_reason") for part in grant.ranges):
            response.dead_letter_topic = settings.dead_letter_topic
            response.copies_dead_records = settings.copies_dead_records
        self._around.answer(call.ticket, request.queue, response)
        for part in grant.ranges:
            if part.delivery_count > 1 and not part.HasField("death_reason"):
                key = QueueKey(request.queue, PartitionKey.of(part.partition_id))
                self.redelivered[key] += part.last_offset + 1 - part.first_offset
        return grant

    def _leased(self, call: WaitingLease, lease_id: int, now: Moment) -> Grant:
        """What one lease changes, and its ranges. Partitions come in turn, so that none waits for another."""
        request = call.request
        settings, holder = self._view.settings(request.queue), Holder(request.queue, request.worker_id)
        if self._alone.is_held_by(holder, now.ms):
            return Grant(is_held_back=True)
        sources, seen = self._sources(call)
        looked_at = sources
        at, alone = self._due_alone(sources, settings.delivery_count_limit, now)
        if alone is not None:
            if not self._alone.may_begin(holder, now.ms, settings.lock_duration_ms):
                return Grant(is_held_back=True, sources=looked_at)
            sources = [sources[at]]
        takes_dead = request.takes_dead_letters and settings.has_dead_letters
        left_records, left_bytes = request.max_records, request.max_bytes or UNBOUNDED
        grant, taken = Grant([], [], is_alone=alone is not None, sources=looked_at), 0
        for key, state, stable, tally, shares in sources:
            most = min(left_records, max(not grant.ranges, left_bytes // max(1, stable.record_bytes)))
            most = min(most, self._room(call, state, settings.max_record_locks, shares))
            if most <= 0:
                continue
            wanted = LeaseRequest(
                lease_id,
                most,
                settings.max_record_locks,
                stable.last_stable_offset,
                stable.leader_epoch,
                takes_dead,
                settings.delivery_count_limit,
                taken,
                alone,
                tally.waiting_ranges > 0,
                tally.locks,
            )
            leased = partition_queue.lease(state, wanted, now.ms, self._activated_ms)
            again = any(part.first < state.next_offset and part.death_reason is None for part in leased.ranges)
            grant = grant._replace(was_leased_before=grant.was_leased_before or again)
            if count := sum(part.count for part in leased.ranges):
                grant.changes.append(Change(key, leased.queue))
                grant.ranges.extend(_leased_range(key, part, stable.leader_epoch) for part in leased.ranges)
                taken, left_bytes = taken + count, left_bytes - count * stable.record_bytes
            is_shrunk = leased.left < most - count
            left_records = leased.left if is_shrunk else left_records - count
            if left_records <= 0 or left_bytes <= 0 or len(grant.changes) >= MAX_SETTLED_PARTITIONS:
                break
        self._looked(call, seen, now, found=bool(grant.ranges))
        return grant

    def _sources(self, call: WaitingLease) -> tuple[list[LeaseSource], int]:
        """The next partitions of a call's search, as many as one turn may look at: those that are known, and the number
        of all."""
        queue, topics = call.request.queue, call.topics
        if call.turn is None:
            call.turn = self._turns[queue]
        shares = self._shares(call)
        found: list[LeaseSource] = []
        seen, work = 0, 0
        left = self._view.partition_count(topics) - call.looked_at
        for key in islice(self._view.keys_from(queue, topics, call.turn + call.looked_at), max(0, left)):
            seen += 1
            state, stable = self._view.partition(key), self._watches.stable(key)
            if state is not None and stable is not None:
                found.append(LeaseSource(key, state, stable, self._view.holdings.tally(key), shares))
                work += found[-1].cost
            if seen + work >= MOST_LOOKED_AT:
                break
        return found, seen

    def _looked(self, call: WaitingLease, seen: int, now: Moment, *, found: bool) -> None:
        """The end of a turn of a search. It goes on where there are more partitions and nothing was found."""
        if found:
            self._turns[call.request.queue] += 1 + call.looked_at
            call.end_search()
            return
        call.looked_at += seen
        if call.looked_at < self._view.partition_count(call.topics):
            self._searching[call.request.queue] = now.ms
        else:
            call.end_search()

    def _due_alone(self, sources: Sequence[LeaseSource], limit: int, now: Moment) -> tuple[int, int | None]:
        """The place of the first partition with a record that is leased alone, and its offset. None: there is none."""
        for place, (_, state, stable, tally, _) in enumerate(sources):
            end = stable.last_stable_offset
            if not tally.waiting_ranges:
                continue
            offset = partition_queue.due_alone(state, end, limit, now.ms, self._activated_ms)
            if offset is not None:
                return place, offset
        return 0, None

    def _shares(self, call: WaitingLease) -> int:
        """The principals that hold leases of the queue, or wait for some."""
        queue, waiting = call.request.queue, {kind.principal for kind in self._calls.kinds(call.request.queue)}
        return len(self._around.locks.principals(queue) | waiting | {call.principal})

    def _room(self, call: WaitingLease, state: PartitionQueue, max_locks: int, shares: int) -> int:
        """How many more locks of a partition this principal may have: principals have equal shares."""
        if shares == 1:
            return max_locks
        leases = ((part.lease_id, part.count) for part in state.ranges if part.state is RangeState.LEASED)
        held = self._around.locks.held_by(call.principal, call.request.queue, leases)
        return max(1, max_locks // shares) - held

    def serve(self, queue: str, now: Moment) -> None:
        """Lease to the calls that wait, now or when the batch on its way is committed."""
        self._delays.pop(queue, None)
        for kind in self._calls.kinds(queue):
            if (call := self._calls.first(queue, kind)) is not None:
                call.begin_again()
        if not self._around.is_busy():
            self._serve(queue, now)
            return
        self._due[queue] = None
        for kind in self._calls.kinds(queue):
            self._ask(queue, kind.topics, now)

    def batch_committed(self, now: Moment) -> None:
        """No batch of the log is on its way any more."""
        due, self._due = self._due, {}
        for queue in due:
            self._serve(queue, now)

    def _serve(self, queue: str, now: Moment) -> None:
        """Lease to the calls that wait, the oldest first, as far as there are records. After so many, or where a search
        is under way, there is another turn."""
        self._searching.pop(queue, None)
        looked_at = 0
        for kind in self._calls.kinds(queue):
            for call in self._calls.waiting(queue, kind):
                if looked_at >= MOST_LOOKED_AT:
                    self._searching[queue] = now.ms
                    return
                try:
                    grant = self._lease_now(call, now)
                    if grant.is_held_back:
                        continue
                    if not grant.ranges:
                        self._wait_for_delays(queue, grant.sources, now)
                        self._ask(queue, kind.topics, now)
                        break
                except MinilogError as error:
                    if not call.is_over:  # the end of the term has answered it
                        self._refuse(call, error)
                else:
                    looked_at += COST_OF_A_LEASE + sum(source.cost for source in grant.sources)
                    self._calls.over(call)

    def serve_all(self, now: Moment) -> None:
        """The same for all queues with calls that wait."""
        for queue in self._calls.queues():
            self.serve(queue, now)

    def _refuse(self, call: WaitingLease, error: MinilogError) -> None:
        self._calls.over(call)
        self._around.answer(call.ticket, call.request.queue, queue_pb2.LeaseResponse(error=wire_error(error)))

    def refuse_deleted(self, queue: str) -> None:
        """Refuse the calls for topics that the image has no more."""
        for kind in self._calls.kinds(queue):
            try:
                for topic_id in kind.topics:
                    self._view.existing_topic(topic_id)
            except UnknownTopicId as error:
                while (call := self._calls.first(queue, kind)) is not None:
                    self._refuse(call, error)

    # -- time

    def tick(self, now: Moment) -> None:
        """`next_tick_ms` has come."""
        for call in self._calls.late(now.ms):
            answer = queue_pb2.LeaseResponse(coordinator_epoch=self._around.coordinator_epoch())
            self._around.answer(call.ticket, call.request.queue, answer)
        for key in self._watches.take_retries(now.ms):
            assert key.partition is not None
            if any(key.partition.topic_id in kind.topics for kind in self._calls.kinds(key.owner)):
                self._ask_for(key, now)
        for queue in list(self._searching):
            self._serve(queue, now)  # others had their turns since
        for queue in [queue for queue, due_ms in self._delays.items() if due_ms <= now.ms]:
            self.serve(queue, now)
        if now.ms >= self._look_at_ms:
            self._look_at_ms = now.ms + LOOK_MS
            for queue in self._view.names():
                self._ask(queue, tuple(self._view.queue(queue).topics), now)

    @property
    def next_tick_ms(self) -> float:
        return min(
            [
                self._calls.next_ms(),
                self._watches.next_ms(),
                self._look_at_ms,
                *self._delays.values(),
                *self._searching.values(),
            ]
        )

    def _wait_for_delays(self, queue: str, sources: Sequence[LeaseSource], now: Moment) -> None:
        """Note when the first record with a delay may be leased again."""
        waiting = (source.state.ranges for source in sources if source.tally.waiting_ranges)
        ready = (part for ranges in waiting for part in ranges if part.state in _DELAYED)
        dues = [due_ms for part in ready if (due_ms := self.due_ms(part)) > now.ms]
        if dues:
            self._delays[queue] = min([*dues, self._delays.get(queue, math.inf)])

    def due_ms(self, part: Range) -> float:
        """The end of the delay of a ready or dead range."""
        return partition_queue.due_ms(part, self._activated_ms)

    # -- what leaders report

    def stable(self, key: QueueKey) -> StableOffset | None:
        """What the leader of a partition has reported last."""
        return self._watches.stable(key)

    def write_ends(self, states: Mapping[QueueKey, PartitionQueue]) -> None:
        """Write the states of partitions in which leases have ended, without the records that retention has taken and
        no worker holds any more. Raises what writing raises."""
        trimmed = dict(states)
        for key in states:
            if (stable := self._watches.stable(key)) is not None:
                trimmed[key] = partition_queue.trim(states[key], stable.log_start_offset)
        self._around.write([Change(key, state) for key, state in trimmed.items()])
        for key, state in states.items():
            self._count_taken(key, state, trimmed[key])

    def _ask(self, queue: str, topics: Sequence[bytes], now: Moment) -> None:
        """Ask for news of each partition, where no question is under way."""
        for key in self._view.keys(queue, topics):
            self._ask_for(key, now)

    def _ask_for(self, key: QueueKey, now: Moment) -> None:
        assert key.partition is not None
        number = self._watches.begin_question(key, now.ms)
        if number is None:
            return
        state, stable = self._view.partition(key), self._watches.stable(key)
        epoch = -1 if state is None else state.leader_epoch
        known = KnownPartition(epoch)
        if stable is not None:
            known = KnownPartition(max(epoch, stable.leader_epoch), stable.last_stable_offset, stable.log_start_offset)
        self._around.emit(AskStableOffset(number, key.owner, Question(key.partition, known)))

    def stable_offset(self, asked: AskStableOffset, answer: StableOffset | MinilogError, now: Moment) -> None:
        """The answer to a question."""
        key = QueueKey(asked.queue, asked.question.key)
        if not self._watches.end_question(key, asked.number):
            return
        if isinstance(answer, MinilogError) or self._watches.is_older(key, answer):
            self._watches.pause(key, now.ms)
            return
        try:
            self._reconcile(key, asked.question.known, answer)
        except MinilogError:
            if self._watches.is_watched(key):  # the term is not over
                self._watches.pause(key, now.ms)
            return
        self.serve(key.owner, now)

    def _reconcile(self, key: QueueKey, known: KnownPartition, stable: StableOffset) -> None:
        """Take what a leader reports. Where that cannot be written it counts for nothing."""
        assert key.partition is not None
        state = self._view.partition(key)
        if state is None:
            left = PartitionQueue(self._begin_offset(key, key.partition, stable), stable.leader_epoch)
        elif known.leader_epoch >= 0:
            left = partition_queue.cut(state, stable.end_of_epoch, stable.leader_epoch)
        else:
            left = state
        trimmed = partition_queue.trim(left, stable.log_start_offset)
        if trimmed != state:
            self._around.write([Change(key, trimmed)])
        self._watches.learn(key, stable)
        self._count_taken(key, left, trimmed)

    def _count_taken(self, key: QueueKey, before: PartitionQueue, after: PartitionQueue) -> None:
        """Retention took records before they were settled."""
        assert key.partition is not None
        if count := partition_queue.taken_count(before, after):
            self.expired[key] += count
            self._around.emit(RecordsExpired(key.owner, key.partition, count))

    def _begin_offset(self, key: QueueKey, partition: PartitionKey, stable: StableOffset) -> int:
        """Where a queue begins in a partition. Partitions that came after the queue begin at their first record."""
        came_later = partition.partition >= self._view.queue(key.owner).topics.get(partition.topic_id, 0)
        at_latest = self._view.settings(key.owner).begins_at_latest and not came_later
        return stable.last_stable_offset if at_latest else stable.log_start_offset


def _leased_range(key: QueueKey, part: Range, leader_epoch: int) -> queue_pb2.LeasedRange:
    assert key.partition is not None
    return queue_pb2.LeasedRange(
        partition_id=key.partition.to_wire(),
        first_offset=part.first,
        last_offset=part.last,
        delivery_count=part.delivery_count,
        leader_epoch=leader_epoch,
        death_reason=part.death_reason,
    )
