"""The coordinator of the queues of one partition of `__queues`.

    call or event              what follows
    lease (leasing.py)         records are leased, and the call is answered when that is committed (Q1)
    renew                      the locks begin anew; answered behind a record, which a deposed coordinator cannot commit
    settle                     each record by itself: it is done, to be delivered again, or dead
    a dead record              is settled, or waits for a worker that carries it to the dead-letter topic of the queue
    redrive (redriving.py)     dead records that were carried there are ready again
    stable_offset              a leader's news: more to lease; records that retention took; another log
    the end of a lock          the records are delivered again, or are dead after so many deliveries (Q3)
    a new coordinator          loads the state, and begins all locks anew

A lease covers only offsets below the last stable offset, as the partition's leader has reported it (Q4). If a later
leader's log differs, the coordinator drops what it knows of the difference, durably, before it leases anything else.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from minilog.errors import InvalidRecordState, LevelNotReached, MinilogError, NonEmptyQueue, wire_error
from minilog.v1 import coordinator_pb2, queue_pb2
from minilog_broker.coordinators.coordinator import CoordinatorState, Response
from minilog_broker.coordinators.coordinator_effects import AskStableOffset, BytesWritten, Moment, RecordsDied
from minilog_broker.coordinators.group_commit import OwnLog
from minilog_broker.coordinators.pending_coordinator import PendingCoordinator
from minilog_broker.coordinators.queues import partition_queue, redriving, settling
from minilog_broker.coordinators.queues.circles import check_no_circle
from minilog_broker.coordinators.queues.describing import RecordCounts, described_partition, listing
from minilog_broker.coordinators.queues.leasing import MOST_LOOKED_AT, LeaseSurroundings, Leasing
from minilog_broker.coordinators.queues.locks import LeaseName, Locks
from minilog_broker.coordinators.queues.partition_queue import Death, Delivery, PartitionQueue
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.coordinators.queues.records import Queue, QueueChange, QueueValue, queue_codec
from minilog_broker.coordinators.queues.settings import DEAD_LETTER_TOPIC, queue_settings
from minilog_broker.coordinators.queues.view import FindTopic, PartitionCount, QueueView
from minilog_broker.coordinators.registrations import WaitingCommit
from minilog_broker.coordinators.sequences import last_sequence
from minilog_broker.coordinators.table import Change
from minilog_broker.replication.stable_offsets import StableOffset

RETRY_MS = 100.0  # a decision that could not be written
_COST_OF_EXPIRY = 200  # beside the ranges: as much time as for so many
NOTHING = -1  # a producer id that no producer has: the key of an empty record


class QueueCoordinator(PendingCoordinator[QueueKey, QueueValue, queue_pb2.SettleRequest]):
    """The coordinator that leases the records of queues. `allows_queues`: whether the level of the cluster has them.
    `new_lease_id(number, principal)`: the id of a lease (security/lease_ids.py)."""

    response = queue_pb2.SettleResponse

    def __init__(
        self,
        name: str,
        log: OwnLog,
        partition_count: PartitionCount,
        find_topic: FindTopic,
        allows_queues: Callable[[], bool],
        new_lease_id: Callable[[int, str], int],
    ) -> None:
        super().__init__(name, queue_codec(), log)
        self._allows_queues = allows_queues
        self._view = QueueView(self._table, partition_count, find_topic)
        self._locks = Locks()
        around = LeaseSurroundings(
            self._view,
            self._locks,
            self._write,
            self._charging,
            self._answer,
            self._effects.append,
            lambda principal: new_lease_id(self._table.end_offset + 1, principal),
            lambda: self._leader_epoch,
            lambda: self._log.is_busy,
        )
        self._leasing = Leasing(around)
        self._unwritten: deque[LeaseName] = deque()  # leases whose locks have ended
        self._retry_at_ms = math.inf

    def _write(self, changes: Sequence[QueueChange]) -> None:
        """One decision, in pieces."""
        super()._write(self._view.in_pieces(changes))
        self._view.written(changes)

    @contextmanager
    def _charging(self, ticket: object) -> Iterator[None]:
        """Charge to this call what is written meanwhile."""
        before = self._log.taken_bytes
        try:
            yield
        finally:
            if count := self._log.taken_bytes - before:
                self._effects.append(BytesWritten(ticket, count))

    # -- leases

    def lease(self, ticket: object, request: queue_pb2.LeaseRequest, now: Moment, principal: str = "") -> None:
        """LeaseResponse. The lease belongs to the principal."""
        try:
            self._require_active(request.coordinator_epoch)
            self._require_level()
            self._leasing.lease(ticket, request, now, principal)
        except MinilogError as error:
            self._answer(ticket, request.queue, self._refusal(queue_pb2.LeaseResponse, error))

    def caller_left(self, ticket: object) -> None:
        """Nobody waits for the answer to this call of `lease` any more."""
        self._leasing.caller_left(ticket)

    def stable_offset(self, asked: AskStableOffset, answer: StableOffset | MinilogError, now: Moment) -> None:
        """The answer to a question of this coordinator."""
        if self._state is CoordinatorState.ACTIVE:
            self._leasing.stable_offset(asked, answer, now)

    def _require_level(self) -> None:
        if not self._allows_queues():
            raise LevelNotReached(
                "queues came with level 7, and the cluster is below it. When all brokers support it, run "
                "`minilog cluster upgrade`"
            )

    # -- the end of leases

    def renew(self, ticket: object, request: queue_pb2.RenewLeasesRequest, now: Moment) -> None:
        """RenewLeasesResponse."""

        def decide() -> queue_pb2.RenewLeasesResponse:
            lock_ms = self._view.settings(request.queue).lock_duration_ms
            names = [LeaseName(request.queue, lease_id) for lease_id in request.lease_ids]
            self._write([Change(QueueKey(request.queue, producer_id=NOTHING), None)])
            for name in names:
                if name in self._locks:
                    self._locks.begin(name, now.ms + lock_ms)
                    self._locks.named(name)
            return queue_pb2.RenewLeasesResponse(
                ended_lease_ids=[name.lease_id for name in names if name not in self._locks], lock_duration_ms=lock_ms
            )

        self._decide_of(ticket, request, queue_pb2.RenewLeasesResponse, decide)

    def settle(self, ticket: object, request: queue_pb2.SettleRequest, now: Moment) -> None:
        """SettleResponse."""
        if request.HasField("transaction"):
            self._in_transaction(ticket, request, request.coordinator_epoch, now)
            return
        self._decide_of(ticket, request, queue_pb2.SettleResponse, lambda: self._settle(request, now))
        if self._state is CoordinatorState.ACTIVE:
            self._leasing.serve(request.queue, now)  # what was released, and what the locks have room for now

    def _settle(self, request: queue_pb2.SettleRequest, now: Moment) -> queue_pb2.SettleResponse:
        states: dict[QueueKey, PartitionQueue] = {}
        deaths: dict[QueueKey, list[Death]] = {}
        refused: dict[int, MinilogError] = {}
        delivery = self._delivery(request.queue, now)
        for key, places in settling.by_partition(request).items():
            settlements = [request.settlements[place] for place in places]
            try:
                before = self._view.leased_partition(request.queue, settlements[0].partition_id)
            except InvalidRecordState as error:
                refused |= dict.fromkeys(places, error)
                continue
            settled = partition_queue.settle(before, settlements, delivery)
            states[key], deaths[key] = settled.queue, settled.deaths
            refused |= {places[at]: partition_queue.refusal(settlements[at], settled.queue) for at in settled.refused}
        self._leasing.write_ends(states)
        self._report(deaths)
        self._forget_ended(request)
        return queue_pb2.SettleResponse(
            refused=[
                queue_pb2.RefusedSettlement(index=index, error=wire_error(refused[index])) for index in sorted(refused)
            ]
        )

    def _report(self, deaths: Mapping[QueueKey, Iterable[Death]]) -> None:
        for key, each in deaths.items():
            assert key.partition is not None
            for death in each:
                self._effects.append(RecordsDied(key.owner, key.partition, *death))

    def _delivery(self, queue: str, now: Moment) -> Delivery:
        settings = self._view.settings(queue)
        return Delivery(settings.delivery_count_limit, now.ms, keeps_dead=settings.has_dead_letters)

    def _forget_ended(self, request: queue_pb2.SettleRequest) -> None:
        """Note who has these leases, and forget the locks of those that hold nothing any more."""
        for name in {LeaseName(request.queue, settlement.lease_id): None for settlement in request.settlements}:
            self._locks.named(name)
            if not self._view.holdings.of_lease(name):
                self._locks.forget(name)

    def _expire(self, name: LeaseName, now: Moment) -> bool:
        """End the lock of a lease. Returns False if the coordinator could not write that. If transactions settle all
        that the lease has, it loses nothing: its lock begins anew, until the markers come."""
        delivery = self._delivery(name.queue, now)._replace(counts=self._locks.is_named(name))
        states = {
            key: (state, partition_queue.expire(state, name.lease_id, delivery))
            for key in self._view.holdings.of_lease(name)
            if (state := self._view.partition(key)) is not None
        }
        lost = {key: ended for key, (before, ended) in states.items() if ended.queue is not before}
        if states and not lost:
            self._locks.begin(name, now.ms + self._view.settings(name.queue).lock_duration_ms)
            return True
        try:
            self._leasing.write_ends({key: ended.queue for key, ended in lost.items()})
        except MinilogError:
            return False
        self._report({key: ended.deaths for key, ended in lost.items()})
        self._locks.forget(name)
        return True

    def _ranges_around(self, name: LeaseName) -> int:
        """How many ranges the partitions of a lease have."""
        states = (self._view.partition(key) for key in self._view.holdings.of_lease(name))
        return sum(len(state.ranges) for state in states if state is not None)

    def _decide_of(
        self,
        ticket: object,
        request: queue_pb2.RenewLeasesRequest | queue_pb2.SettleRequest | queue_pb2.RedriveRequest,
        kind: type[Response],
        decide: Callable[[], Response],
    ) -> None:
        with self._charging(ticket):
            self._decide(ticket, request.queue, kind, decide, known_epoch=request.coordinator_epoch)

    def redrive(self, ticket: object, request: queue_pb2.RedriveRequest, now: Moment) -> None:
        """RedriveResponse."""

        def decide() -> queue_pb2.RedriveResponse:
            self._require_level()
            done = redriving.redrive(self._view, request, self._log_start)
            self._write(done.changes)
            return queue_pb2.RedriveResponse(outcomes=done.outcomes, next_offset=done.next_offset)

        self._decide_of(ticket, request, queue_pb2.RedriveResponse, decide)
        if self._state is CoordinatorState.ACTIVE:
            self._leasing.serve(request.queue, now)

    def _log_start(self, key: QueueKey) -> int | None:
        """Of a partition, as its leader has reported it. None before."""
        stable = self._leasing.stable(key)
        return None if stable is None else stable.log_start_offset

    # -- settlement in transactions

    def _owner(self, request: queue_pb2.SettleRequest) -> str:
        return request.queue

    def _check_pending(self, request: queue_pb2.SettleRequest) -> None:
        settling.check(request)

    def _decide_pending(self, commit: WaitingCommit[queue_pb2.SettleRequest], now: Moment) -> None:
        with self._charging(commit.ticket):
            super()._decide_pending(commit, now)

    def _last_sequence(self, producer_id: int) -> int:
        return last_sequence(self._view.pending_of(producer_id, self._queues_of(producer_id)))

    def _pending_changes(self, request: queue_pb2.SettleRequest, now: Moment) -> Sequence[QueueChange]:
        changes = settling.begin(self._view, request, self._queues_of(request.transaction.producer_id))
        for settlement in request.settlements:
            self._locks.named(LeaseName(request.queue, settlement.lease_id))
        return changes

    def _marker_changes(self, markers: Iterable[coordinator_pb2.ProducerMarker], now: Moment) -> Sequence[QueueChange]:
        changes = settling.end(self._view, markers, self._queues_of)
        for name in settling.given_back(self._view, markers, self._queues_of):
            self._locks.begin(name, now.ms + self._view.settings(name.queue).lock_duration_ms)
            self._locks.named(name)
        return changes

    def _queues_of(self, producer_id: int) -> set[str]:
        return self._owners_of.get(producer_id, set())

    def _producer_key(self, owner: str, producer_id: int) -> QueueKey:
        return QueueKey(owner, producer_id=producer_id)

    def _markers_decided(self, now: Moment) -> None:
        """The locks of a partition have room for more."""
        self._leasing.serve_all(now)

    # -- time

    def tick(self, now: Moment) -> None:
        """`next_tick_ms` has come."""
        if self._state is not CoordinatorState.ACTIVE:
            return
        self._retry_at_ms = math.inf
        self._unwritten.extend(self._locks.ended(now.ms))
        queues = dict[str, None]()
        looked_at = 0
        while self._unwritten:
            if looked_at >= MOST_LOOKED_AT:  # the others in another turn
                self._retry_at_ms = now.ms
                break
            looked_at += _COST_OF_EXPIRY + self._ranges_around(self._unwritten[0])
            if not self._expire(self._unwritten[0], now):
                self._retry_at_ms = now.ms + RETRY_MS
                break
            queues[self._unwritten.popleft().queue] = None
        if self._state is CoordinatorState.ACTIVE:  # a write may show that the term is over
            self._leasing.tick(now)
            for queue in queues:
                self._leasing.serve(queue, now)

    @property
    def next_tick_ms(self) -> float:
        """When `tick` should be called."""
        return min(self._locks.next_ms(), self._leasing.next_tick_ms, self._retry_at_ms)

    # -- people

    def record_counts(self) -> dict[str, RecordCounts]:
        """For people, without a decision: the records of each queue as far as is known here, nothing while loading."""
        counts: dict[str, RecordCounts] = {}
        for name in self._view.names() if self._state is CoordinatorState.ACTIVE else ():
            counts[name] = RecordCounts()
            for key, state in self._view.partitions(name):
                stable = self._leasing.stable(key)
                counts[name].add(key, state, None if stable is None else stable.last_stable_offset)
                counts[name].dead += state.dead_count
                counts[name].expired += self._leasing.expired[key]
                counts[name].redelivered += self._leasing.redelivered[key]
        return counts

    def list(self, ticket: object, request: queue_pb2.ListQueuesRequest) -> None:
        """ListQueuesResponse."""

        def decide() -> queue_pb2.ListQueuesResponse:
            names = self._view.names()
            return queue_pb2.ListQueuesResponse(queues=[listing(name, self._view.tallies(name)) for name in names])

        self._decide(ticket, None, queue_pb2.ListQueuesResponse, decide)

    def describe(self, ticket: object, request: queue_pb2.DescribeQueueRequest, now: Moment) -> None:
        """DescribeQueueResponse."""

        def decide() -> queue_pb2.DescribeQueueResponse:
            response = queue_pb2.DescribeQueueResponse(settings=self._view.existing_queue(request.queue).settings)
            for key, state in sorted(self._view.partitions(request.queue)):
                described = described_partition(key, state, self._leasing, self._locks, now.ms)
                described.expired_count, described.dead_count = self._leasing.expired[key], state.dead_count
                response.partitions.append(described)
            response.redriven.extend(redriving.described(self._view, request.queue))
            return response

        self._decide(ticket, request.queue, queue_pb2.DescribeQueueResponse, decide)

    def alter(self, ticket: object, request: queue_pb2.AlterQueueRequest, now: Moment) -> None:
        """AlterQueueResponse."""

        def decide() -> queue_pb2.AlterQueueResponse:
            self._require_level()
            queue = self._view.queue(request.queue)
            texts = {name: text for name, text in queue.settings.items() if name not in request.unset_configs}
            texts.update(request.set_configs)
            if DEAD_LETTER_TOPIC in request.set_configs:
                check_no_circle(self._view, request.queue, Queue(texts, queue.topics))
            changes: list[QueueChange] = [Change(QueueKey(request.queue), Queue(texts, queue.topics))]
            if not queue_settings(texts).has_dead_letters:
                states = self._view.partitions(request.queue)
                changes += (Change(key, partition_queue.drop_dead(state)) for key, state in states if state.has_dead)
            self._write(changes)
            return queue_pb2.AlterQueueResponse()

        self._decide(ticket, request.queue, queue_pb2.AlterQueueResponse, decide)
        if self._state is CoordinatorState.ACTIVE:
            self._leasing.serve(request.queue, now)

    def delete(self, ticket: object, request: queue_pb2.DeleteQueueRequest) -> None:
        """DeleteQueueResponse."""
        queue = request.queue

        def decide() -> queue_pb2.DeleteQueueResponse:
            self._view.existing_queue(queue)
            if any(tally.held for tally in self._view.tallies(queue)):
                raise NonEmptyQueue(
                    f"workers have leases of queue '{queue}': end them, or wait until their locks end "
                    f"(`minilog queue describe {queue}`)"
                )
            redriven = self._view.all_redriven(queue)
            if any(place.is_settling for _, place in redriven):
                raise NonEmptyQueue(f"a redrive of queue '{queue}' writes letters again: wait for its end")
            keys = [key for key, _ in self._view.partitions(queue)]
            others = [QueueKey(queue), *(key for key, _ in redriven)]
            others += (QueueKey(queue, producer_id=producer_id) for producer_id in self._view.producers(queue))
            self._write([Change(key, None) for key in (*keys, *others)])
            self._forget(keys)
            return queue_pb2.DeleteQueueResponse()

        self._decide(ticket, queue, queue_pb2.DeleteQueueResponse, decide)

    def _forget(self, keys: Sequence[QueueKey]) -> None:
        """Forget what is not in the table of partitions that are gone."""
        for key in keys:
            self._leasing.forget(key)

    # -- the image

    def topics_changed(self, now: Moment) -> None:
        """The image has topics, or partitions, that it had not, or lacks some."""
        if self._state is CoordinatorState.ACTIVE:
            self._leasing.serve_all(now)

    def drop_deleted_topics(self) -> None:
        """The image lacks topics that it had: what is known of them is of no use, and nobody waits for them."""
        for queue in self._table.owners() if self._state is CoordinatorState.ACTIVE else ():
            value = self._view.queue(queue)
            topics = {topic_id: count for topic_id, count in value.topics.items() if self._view.has_topic(topic_id)}
            gone = [
                key
                for key, _ in self._view.partitions(queue)
                if key.partition is not None and not self._view.has_topic(key.partition.topic_id)
            ]
            gone += [
                key
                for key, _ in self._view.all_redriven(queue)
                if key.letters is not None and not self._view.has_topic(key.letters.topic_id)
            ]
            changes: list[QueueChange] = [Change(key, None) for key in gone]
            if topics != value.topics:
                changes.append(Change(QueueKey(queue), Queue(value.settings, topics)))
            if not self._try_write(changes):
                return
            self._forget(gone)
            self._leasing.refuse_deleted(queue)

    # -- the term

    def _loaded(self) -> None:
        self._view.load()

    def _activated(self, now: Moment) -> None:
        self._leasing.begin_term(now)
        for queue in self._view.names():
            for producer_id in self._view.producers(queue):
                self._have_pending(producer_id, queue)
            ends_ms = now.ms + self._view.settings(queue).lock_duration_ms
            for _, state in self._view.partitions(queue):
                for lease_id in partition_queue.leases_of(state):
                    self._locks.begin(LeaseName(queue, lease_id), ends_ms)
        self.drop_deleted_topics()

    def _changed(self, changes: Sequence[QueueChange], high_watermark: int, now: Moment) -> None:
        for change in changes:
            producer_id = change.key.producer_id
            if producer_id is not None and self._table.get(change.key) is None:
                self._pending_ended(producer_id, change.key.owner)
        if high_watermark >= self._log.written_end:
            self._leasing.batch_committed(now)

    def _ended(self) -> None:
        super()._ended()
        self._view.clear()
        self._leasing.end_term(self._not_coordinator())
        self._locks.clear()
        self._unwritten.clear()
        self._retry_at_ms = math.inf
