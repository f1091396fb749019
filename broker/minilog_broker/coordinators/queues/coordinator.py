"""The coordinator of the queues of one partition of `__queues`.

    call or event              what follows
    lease                      records are leased, and the call is answered when that is committed (Q1). Without records
                               the call waits
    renew                      the locks begin anew; answered behind a record, which a deposed coordinator cannot commit
    settle                     each record by itself: it is done, to be delivered again, or dead
    stable_offset              a leader's news: more to lease; records that retention took; another log (PartitionQueue)
    the end of a lock          the records are delivered again, or are dead after so many deliveries (Q3)
    a new coordinator          loads the state, and begins all locks anew

A lease covers only offsets below the last stable offset, as the partition's leader has reported it (Q4). If a later
leader's log differs, the coordinator drops what it knows of the difference, durably, before it leases anything else.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence

from minilog.errors import (
    InvalidArgument,
    InvalidRecordState,
    LevelNotReached,
    MinilogError,
    NonEmptyGroup,
    ResourceNotFound,
    UnknownTopicId,
    wire_error,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.coordinator import Coordinator, CoordinatorState, Response
from minilog_broker.coordinators.coordinator_effects import AskStableOffset, Moment, RecordsExpired
from minilog_broker.coordinators.queues import partition_queue as rules
from minilog_broker.coordinators.queues.describing import described_partition
from minilog_broker.coordinators.queues.locks import LeaseName, Locks
from minilog_broker.coordinators.queues.partition_queue import Delivery, PartitionQueue, Wanted
from minilog_broker.coordinators.queues.ranges import Range, RangeState
from minilog_broker.coordinators.queues.records import Queue, QueueChange, QueueKey, QueueValue, queue_codec
from minilog_broker.coordinators.queues.settings import QueueSettings, queue_settings
from minilog_broker.coordinators.queues.stable_offsets import Known, Question, StableOffset
from minilog_broker.coordinators.queues.waiting import WaitingLease, WaitingLeases
from minilog_broker.coordinators.queues.watches import Watches
from minilog_broker.coordinators.table import AppendRecords, Change

PartitionCount = Callable[[bytes], int | None]
RETRY_MS = 100.0  # a decision that could not be written
UNBOUNDED = 1 << 63
NOTHING = -1  # a producer id that no producer has: the key of an empty record


class QueueCoordinator(Coordinator[QueueKey, QueueValue]):
    """The coordinator that leases the records of queues.

    `partition_count(topic_id)`: of the image's topic, None where it has no such topic. `allows_queues`: whether the
    level of the cluster has queues.
    """

    def __init__(
        self, name: str, append: AppendRecords, partition_count: PartitionCount, allows_queues: Callable[[], bool]
    ) -> None:
        super().__init__(name, queue_codec(), append)
        self._partition_count = partition_count
        self._allows_queues = allows_queues
        self._watches = Watches()
        self._calls = WaitingLeases()
        self._locks = Locks()
        self._turns: Counter[str] = Counter()  # of the partitions of a queue
        self._delays: dict[str, float] = {}  # the end of the first delay of a queue for which calls wait
        self._expired: Counter[QueueKey] = Counter()
        self._dead: Counter[QueueKey] = Counter()
        self._activated_ms = -math.inf
        self._retry_at_ms = math.inf
        self._unwritten: deque[LeaseName] = deque()  # locks that have ended, and could not be written

    # -- leases

    def lease(self, ticket: object, request: queue_pb2.LeaseRequest, now: Moment) -> None:
        """LeaseResponse."""
        call = WaitingLease(ticket, request, now.ms, now.ms + request.max_wait_ms)
        try:
            self._require_active(request.coordinator_epoch)
            self._require_level()
            self._begin_queue(request)
            is_answered = self._lease_now(call, now)
        except MinilogError as error:
            self._answer(ticket, request.queue, self._refusal(queue_pb2.LeaseResponse, error))
            return
        if not is_answered:
            self._calls.add(call)
            self._wait_for_delays(request.queue, call.topics, now)
        self._ask(request.queue, call.topics, now)

    def caller_left(self, ticket: object) -> None:
        """Nobody waits for the answer to this call of `lease` any more."""
        if (call := self._calls.of_ticket(ticket)) is not None:
            self._calls.over(call)

    def _require_level(self) -> None:
        if not self._allows_queues():
            raise LevelNotReached(
                "queues came with level 7, and the cluster is below it. When all brokers support it, run "
                "`minilog cluster upgrade`"
            )

    def _begin_queue(self, request: queue_pb2.LeaseRequest) -> None:
        """Note the topics that the queue has from now on. Raises UnknownTopicId."""
        if not request.topic_ids or not request.max_records:
            raise InvalidArgument(f"queue '{request.queue}': a lease names at least one topic and one record")
        queue = self._queue(request.queue)
        new = [topic_id for topic_id in request.topic_ids if topic_id not in queue.topics]
        counts = {topic_id: self._require_topic(topic_id) for topic_id in new}
        if new:
            topics = {**queue.topics, **counts}
            self._write([Change(QueueKey(request.queue), Queue(queue.settings, topics))])

    def _require_topic(self, topic_id: bytes) -> int:
        count = self._partition_count(topic_id)
        if count is None:
            raise UnknownTopicId(f"topic id {topic_id.hex()}: the topic was deleted, or is not known yet: retry")
        return count

    def _keys(self, queue: str, topics: Sequence[bytes]) -> list[QueueKey]:
        return [
            QueueKey(queue, PartitionKey(topic_id, number))
            for topic_id in topics
            for number in range(self._partition_count(topic_id) or 0)
        ]

    def _lease_now(self, call: WaitingLease, now: Moment) -> bool:
        """Lease what there is, and answer. False: there is nothing, and nothing is changed."""
        request = call.request
        lease_id = self._table.end_offset + 1
        changes, ranges = self._leased(request, lease_id, now)
        if not ranges:
            return False
        settings = self._settings(request.queue)
        self._write(changes)
        name = LeaseName(request.queue, lease_id)
        self._locks.begin(name, now.ms + settings.lock_duration_ms, request.worker_id)
        response = queue_pb2.LeaseResponse(
            lease_id=lease_id,
            ranges=ranges,
            lock_duration_ms=settings.lock_duration_ms + int(now.ms - call.began_ms),
            coordinator_epoch=self._leader_epoch,
        )
        self._answer(call.ticket, request.queue, response)
        return True

    def _leased(
        self, request: queue_pb2.LeaseRequest, lease_id: int, now: Moment
    ) -> tuple[list[QueueChange], list[queue_pb2.LeasedRange]]:
        """The changes of one lease, and its ranges. Partitions come in turn, so that none waits for another."""
        keys, settings = self._keys(request.queue, request.topic_ids), self._settings(request.queue)
        turn = self._turns[request.queue] % max(1, len(keys))
        left_records, left_bytes = request.max_records, request.max_bytes or UNBOUNDED
        changes: list[QueueChange] = []
        ranges: list[queue_pb2.LeasedRange] = []
        for key in keys[turn:] + keys[:turn]:
            state, stable = self._table.get(key), self._watches.stable(key)
            if not isinstance(state, PartitionQueue) or stable is None:
                continue
            most = min(left_records, max(not ranges, left_bytes // max(1, stable.record_bytes)))
            wanted = Wanted(
                lease_id, most, settings.max_record_locks, stable.last_stable_offset, stable.leader_epoch
            )
            leased = rules.lease(state, wanted, now.ms, self._activated_ms)
            count = sum(part.count for part in leased.ranges)
            if count:
                changes.append(Change(key, leased.queue))
                ranges += (_leased_range(key, part, stable.leader_epoch) for part in leased.ranges)
                left_records, left_bytes = left_records - count, left_bytes - count * stable.record_bytes
            if left_records <= 0 or left_bytes <= 0:
                break
        self._turns[request.queue] += bool(ranges)
        return changes, ranges

    def _serve(self, queue: str, now: Moment) -> None:
        """Lease to the calls that wait, the oldest first, as far as there are records."""
        self._delays.pop(queue, None)
        for topics in self._calls.topics(queue):
            while (call := self._calls.first(queue, topics)) is not None:
                try:
                    if not self._lease_now(call, now):
                        break
                except MinilogError as error:
                    if not call.is_over:  # a term that is over has answered it
                        self._calls.over(call)
                        self._answer(call.ticket, queue, self._refusal(queue_pb2.LeaseResponse, error))
                    continue
                self._calls.over(call)
            if self._calls.first(queue, topics) is not None:
                self._wait_for_delays(queue, topics, now)
                self._ask(queue, topics, now)

    def _wait_for_delays(self, queue: str, topics: Sequence[bytes], now: Moment) -> None:
        dues = [
            due_ms
            for key in self._keys(queue, topics)
            if isinstance(state := self._table.get(key), PartitionQueue)
            for part in state.ranges
            if part.state is RangeState.READY and (due_ms := rules.due_ms(part, self._activated_ms)) > now.ms
        ]
        if dues:
            self._delays[queue] = min([self._delays.get(queue, math.inf), *dues])

    # -- what leaders report

    def _ask(self, queue: str, topics: Sequence[bytes], now: Moment) -> None:
        """Ask for news of each partition, where no question is under way."""
        for key in self._keys(queue, topics):
            self._ask_for(key, now)

    def _ask_for(self, key: QueueKey, now: Moment) -> None:
        assert key.partition is not None
        number = self._watches.begin_question(key, now.ms)
        if number is None:
            return
        state, stable = self._table.get(key), self._watches.stable(key)
        epochs = [-1, state.leader_epoch if isinstance(state, PartitionQueue) else -1]
        known = Known(max(epochs))
        if stable is not None:
            known = Known(max(*epochs, stable.leader_epoch), stable.last_stable_offset, stable.log_start_offset)
        self._effects.append(AskStableOffset(number, key.owner, Question(key.partition, known)))

    def stable_offset(self, asked: AskStableOffset, answer: StableOffset | MinilogError, now: Moment) -> None:
        """The answer to a question."""
        key = QueueKey(asked.queue, asked.question.key)
        if self._state is not CoordinatorState.ACTIVE or not self._watches.end_question(key, asked.number):
            return
        is_news = isinstance(answer, StableOffset) and not self._watches.is_older(key, answer)
        if not is_news or not self._reconcile(key, asked.question.known, answer):  # type: ignore[arg-type]
            self._watches.pause(key, now.ms)
            return
        self._serve(key.owner, now)

    def _reconcile(self, key: QueueKey, known: Known, stable: StableOffset) -> bool:
        """Take what a leader reports. False: it could not be written, and counts for nothing."""
        assert key.partition is not None
        state = self._table.get(key)
        if not isinstance(state, PartitionQueue):
            queue = self._queue(key.owner)
            is_new = key.partition.partition >= queue.topics.get(key.partition.topic_id, 0)
            at_latest = self._settings(key.owner).begins_at_latest and not is_new
            begin = stable.last_stable_offset if at_latest else stable.log_start_offset
            changed, expired = PartitionQueue(begin, stable.leader_epoch), 0
        else:
            changed = rules.cut(state, stable.end_of_epoch, stable.leader_epoch) if known.leader_epoch >= 0 else state
            expired = rules.lost_count(changed, stable.log_start_offset)
            changed = rules.trim(changed, stable.log_start_offset)
        if changed != state and not self._try_write([Change(key, changed)]):
            return False
        if self._state is not CoordinatorState.ACTIVE:
            return False
        self._watches.learn(key, stable)
        if expired > 0:
            self._expired[key] += expired
            self._effects.append(RecordsExpired(key.owner, key.partition, expired))
        return True

    # -- the end of leases

    def renew(self, ticket: object, request: queue_pb2.RenewLeasesRequest, now: Moment) -> None:
        """RenewLeasesResponse."""

        def decide() -> queue_pb2.RenewLeasesResponse:
            queue = request.queue
            lock_ms = self._settings(queue).lock_duration_ms
            names = [LeaseName(queue, lease_id) for lease_id in request.lease_ids]
            self._write([Change(QueueKey(queue, producer_id=NOTHING), None)])
            for name in names:
                if name in self._locks:
                    self._locks.begin(name, now.ms + lock_ms)
            return queue_pb2.RenewLeasesResponse(
                ended_lease_ids=[name.lease_id for name in names if name not in self._locks], lock_duration_ms=lock_ms
            )

        self._decide_of(ticket, request, queue_pb2.RenewLeasesResponse, decide)

    def settle(self, ticket: object, request: queue_pb2.SettleRequest, now: Moment) -> None:
        """SettleResponse."""

        def decide() -> queue_pb2.SettleResponse:
            limit = self._settings(request.queue).delivery_count_limit
            states: dict[QueueKey, PartitionQueue] = {}
            dead: Counter[QueueKey] = Counter()
            response = queue_pb2.SettleResponse()
            for index, settlement in enumerate(request.settlements):
                key = QueueKey(request.queue, PartitionKey.of(settlement.partition_id))
                try:
                    before = states.get(key) or self._leased_state(key, settlement)
                    delivery = Delivery(limit, now.ms, settlement.delay_ms)
                    states[key] = rules.settle(before, settlement, delivery)
                except (InvalidRecordState, InvalidArgument) as error:
                    response.refused.add(index=index, error=wire_error(error))
                    continue
                if settlement.verdict != queue_pb2.VERDICT_ACCEPT:
                    dead[key] += before.lock_count - states[key].lock_count
            self._write([Change(key, state) for key, state in states.items()])
            self._dead += dead
            self._forget_ended(request.queue, {settlement.lease_id for settlement in request.settlements})
            return response

        self._decide_of(ticket, request, queue_pb2.SettleResponse, decide)
        if self._state is CoordinatorState.ACTIVE:
            self._serve(request.queue, now)  # what was released, and what fits into the locks now

    def _leased_state(self, key: QueueKey, settlement: queue_pb2.Settlement) -> PartitionQueue:
        state = self._table.get(key)
        if not isinstance(state, PartitionQueue):
            raise InvalidRecordState(
                f"queue '{key.owner}' has no partition {settlement.partition_id.partition} of topic id "
                f"{settlement.partition_id.topic_id.hex()}: lease its records first"
            )
        return state

    def _forget_ended(self, queue: str, lease_ids: set[int]) -> None:
        """Forget the locks of leases that hold nothing any more."""
        held = set[int]()
        for _, state in self._partitions(queue):
            held |= rules.leases_of(state)
        for lease_id in lease_ids - held:
            self._locks.forget(LeaseName(queue, lease_id))

    def _expire(self, name: LeaseName, now: Moment) -> bool:
        """The lock of a lease has ended. False: that could not be written."""
        delivery = Delivery(self._settings(name.queue).delivery_count_limit, now.ms)
        changes: list[QueueChange] = []
        dead: Counter[QueueKey] = Counter()
        for key, state in self._partitions(name.queue):
            if name.lease_id in rules.leases_of(state):
                after = rules.expire(state, name.lease_id, delivery)
                changes.append(Change(key, after))
                dead[key] += state.lock_count - after.lock_count
        if not self._try_write(changes):
            return False
        self._dead += dead
        self._locks.forget(name)
        return True

    # -- time

    def tick(self, now: Moment) -> None:
        """`next_tick_ms` has come."""
        if self._state is not CoordinatorState.ACTIVE:
            return
        self._retry_at_ms = math.inf
        self._unwritten.extend(self._locks.ended(now.ms))
        queues = dict.fromkeys(queue for queue, due_ms in self._delays.items() if due_ms <= now.ms)
        while self._unwritten:
            if not self._expire(self._unwritten[0], now):
                self._retry_at_ms = now.ms + RETRY_MS
                break
            queues[self._unwritten.popleft().queue] = None
        for call in self._calls.late(now.ms):
            self._answer(call.ticket, call.request.queue, queue_pb2.LeaseResponse(coordinator_epoch=self._leader_epoch))
        for key in self._watches.take_retries(now.ms):
            if any(key.partition and key.partition.topic_id in topics for topics in self._calls.topics(key.owner)):
                self._ask_for(key, now)
        for queue in queues:
            self._serve(queue, now)

    @property
    def next_tick_ms(self) -> float:
        """When `tick` should be called."""
        return min(
            self._locks.next_ms(),
            self._calls.next_ms(),
            self._watches.next_ms(),
            self._retry_at_ms,
            min(self._delays.values(), default=math.inf),
        )

    # -- people

    def list(self, ticket: object, request: queue_pb2.ListQueuesRequest) -> None:
        """ListQueuesResponse."""

        def decide() -> queue_pb2.ListQueuesResponse:
            return queue_pb2.ListQueuesResponse(
                queues=[
                    queue_pb2.QueueListing(
                        queue=queue,
                        partition_count=len(states),
                        leased_count=sum(
                            part.count
                            for _, state in states
                            for part in state.ranges
                            if part.state is not RangeState.READY
                        ),
                    )
                    for queue in self._table.owners()
                    if isinstance(self._table.get(QueueKey(queue)), Queue)
                    for states in [self._partitions(queue)]
                ]
            )

        self._decide(ticket, None, queue_pb2.ListQueuesResponse, decide)

    def describe(self, ticket: object, request: queue_pb2.DescribeQueueRequest, now: Moment) -> None:
        """DescribeQueueResponse."""
        queue = request.queue

        def decide() -> queue_pb2.DescribeQueueResponse:
            value = self._require_queue(queue)
            response = queue_pb2.DescribeQueueResponse(settings=dict(value.settings))
            for key, state in sorted(self._partitions(queue), key=lambda item: item[0].partition or ()):
                described = described_partition(
                    key, state, self._watches.stable(key), self._locks, now.ms, self._activated_ms
                )
                described.expired_count, described.dead_count = self._expired[key], self._dead[key]
                response.partitions.append(described)
            return response

        self._decide(ticket, queue, queue_pb2.DescribeQueueResponse, decide)

    def alter(self, ticket: object, request: queue_pb2.AlterQueueRequest, now: Moment) -> None:
        """AlterQueueResponse."""

        def decide() -> queue_pb2.AlterQueueResponse:
            self._require_level()
            queue = self._queue(request.queue)
            texts = {name: text for name, text in queue.settings.items() if name not in request.unset_configs}
            texts.update(request.set_configs)
            queue_settings(texts)
            self._write([Change(QueueKey(request.queue), Queue(texts, queue.topics))])
            return queue_pb2.AlterQueueResponse()

        self._decide(ticket, request.queue, queue_pb2.AlterQueueResponse, decide)
        if self._state is CoordinatorState.ACTIVE:
            self._serve(request.queue, now)

    def delete(self, ticket: object, request: queue_pb2.DeleteQueueRequest) -> None:
        """DeleteQueueResponse."""
        queue = request.queue

        def decide() -> queue_pb2.DeleteQueueResponse:
            self._require_queue(queue)
            if any(part.state is not RangeState.READY for _, state in self._partitions(queue) for part in state.ranges):
                raise NonEmptyGroup(
                    f"workers have leases of queue '{queue}': end them, or wait until their locks end "
                    f"(`minilog queue describe {queue}`)"
                )
            self._write([Change(key, None) for key, _ in list(self._table.owned(queue))])
            return queue_pb2.DeleteQueueResponse()

        self._decide(ticket, queue, queue_pb2.DeleteQueueResponse, decide)

    # -- the image

    def topics_changed(self, now: Moment) -> None:
        """The image has topics, or partitions, that it had not, or lacks some."""
        if self._state is not CoordinatorState.ACTIVE:
            return
        for queue in self._calls.queues():
            self._serve(queue, now)

    def drop_deleted_topics(self) -> None:
        """The image lacks topics that it had: what is known of them is of no use, and nobody waits for them."""
        if self._state is not CoordinatorState.ACTIVE:
            return
        for queue in self._table.owners():
            value = self._queue(queue)
            gone = {topic_id for topic_id in value.topics if self._partition_count(topic_id) is None}
            changes: list[QueueChange] = [
                Change(key, None)
                for key, _ in self._partitions(queue)
                if key.partition is not None and self._partition_count(key.partition.topic_id) is None
            ]
            if gone:
                topics = {topic_id: count for topic_id, count in value.topics.items() if topic_id not in gone}
                changes.append(Change(QueueKey(queue), Queue(value.settings, topics)))
            if changes and not self._try_write(changes):
                return
            for topics_of_calls in self._calls.topics(queue):
                self._refuse_deleted(queue, topics_of_calls)

    def _refuse_deleted(self, queue: str, topics: Sequence[bytes]) -> None:
        try:
            for topic_id in topics:
                self._require_topic(topic_id)
        except UnknownTopicId as error:
            while (call := self._calls.first(queue, tuple(topics))) is not None:
                self._calls.over(call)
                self._answer(call.ticket, queue, self._refusal(queue_pb2.LeaseResponse, error))

    # -- the table

    def _decide_of(
        self,
        ticket: object,
        request: queue_pb2.RenewLeasesRequest | queue_pb2.SettleRequest,
        kind: type[Response],
        decide: Callable[[], Response],
    ) -> None:
        self._decide(ticket, request.queue, kind, decide, known_epoch=request.coordinator_epoch)

    def _queue(self, queue: str) -> Queue:
        value = self._table.get(QueueKey(queue))
        return value if isinstance(value, Queue) else Queue()

    def _require_queue(self, queue: str) -> Queue:
        value = self._table.get(QueueKey(queue))
        if not isinstance(value, Queue):
            raise ResourceNotFound(f"there is no queue '{queue}': see `minilog queue list`")
        return value

    def _settings(self, queue: str) -> QueueSettings:
        return queue_settings(self._queue(queue).settings)

    def _partitions(self, queue: str) -> Sequence[tuple[QueueKey, PartitionQueue]]:
        return [(key, value) for key, value in self._table.owned(queue) if isinstance(value, PartitionQueue)]

    # -- the term

    def _activated(self, now: Moment) -> None:
        self._activated_ms = now.ms
        for queue in self._table.owners():
            ends_ms = now.ms + self._settings(queue).lock_duration_ms
            for _, state in self._partitions(queue):
                for lease_id in rules.leases_of(state):
                    self._locks.begin(LeaseName(queue, lease_id), ends_ms)
        self.drop_deleted_topics()

    def _changed(self, changes: Sequence[QueueChange], high_watermark: int, now: Moment) -> None:
        """Answers wait for it, and nothing else does."""

    def _ended(self) -> None:
        for call in self._calls.take_all():
            self._answer(call.ticket, None, self._refusal(queue_pb2.LeaseResponse, self._not_coordinator()))
        self._watches.clear()
        self._locks.clear()
        self._delays.clear()
        self._turns.clear()
        self._expired.clear()
        self._dead.clear()
        self._unwritten.clear()
        self._retry_at_ms = math.inf


def _leased_range(key: QueueKey, part: Range, leader_epoch: int) -> queue_pb2.LeasedRange:
    assert key.partition is not None
    return queue_pb2.LeasedRange(
        partition_id=key.partition.to_wire(),
        first_offset=part.first,
        last_offset=part.last,
        delivery_count=part.delivery_count,
        leader_epoch=leader_epoch,
    )
