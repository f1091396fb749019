"""A world with a coordinator of queues: what workers, leaders of partitions and people call."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from minilog.errors import MinilogError, error_from_wire
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2, queue_pb2
from minilog_broker.coordinators.coordinator_effects import AskStableOffset, RecordsExpired, RegisterProducer
from minilog_broker.coordinators.queues.coordinator import QueueCoordinator
from minilog_broker.coordinators.queues.partition_queue import PartitionQueue
from minilog_broker.coordinators.queues.pieces import QueueKey, assembled
from minilog_broker.replication.stable_offsets import StableOffset
from minilog_broker.security.lease_ids import new_lease_id
from tests.judges.queue_log import QueuePartition, QueuePieces, rows_in
from tests.judges.queues import check_change, revived
from tests.unit.coordinators.cluster import ORDERS, PAYMENTS, CoordinatorCluster, error_of

Q, T = "jobs", "program"
P0 = PartitionKey(ORDERS, 0)
LOCK_MS = 30_000
ACCEPT, RELEASE, REJECT = queue_pb2.VERDICT_ACCEPT, queue_pb2.VERDICT_RELEASE, queue_pb2.VERDICT_REJECT


class QueueJudge:
    """Looks at each batch of the coordinator's log (tests/judges/queues.py). What workers have named is not known here:
    any lease may count for nothing. A batch with a place of letters makes ready again what it wants."""

    def __init__(self) -> None:
        self.batches = 0
        self._pieces: dict[str, QueuePieces] = {}
        self._known: dict[tuple[str, PartitionKey], QueuePartition] = {}

    def committed(self, batch: bytes) -> None:
        """The next one."""
        self.batches += 1
        rows = rows_in(batch)
        is_redriven = any(key.HasField("letters_partition_id") and value is not None for key, value in rows)
        for name in dict.fromkeys(key.queue for key, _ in rows):
            for at, record in self._pieces.setdefault(name, QueuePieces(name)).take(batch):
                before = self._known.get((name, at), QueuePartition(record.next_offset))
                again = revived(before, record) if is_redriven else ()
                check_change(before, record, may_be_cut=True, again=again, uncounted=lambda lease_id, offset: True)
                self._known[name, at] = record
        for key, value in rows:
            if key.HasField("partition_id") and value is None:
                self._known.pop((key.queue, PartitionKey.of(key.partition_id)), None)


class Queueing(CoordinatorCluster[QueueCoordinator]):
    """See the module's text. `stable`: what the leader of each partition would report now. `ended`:
    producers that the coordinator of transactions refuses to register. `renews`: workers renew each lease at once, and
    so its end counts. `is_judged`: whether each committed
    batch is looked at."""

    is_judged = True

    def __init__(self) -> None:
        self.counts = {ORDERS: 1, PAYMENTS: 1}
        self.ids = {"orders": ORDERS, "payments": PAYMENTS}
        self.allows_queues = True
        self.stable: dict[PartitionKey, StableOffset] = {}
        self.asked: list[AskStableOffset] = []
        self.ended: dict[int, MinilogError] = {}
        self.renews = True
        self.queue_of: dict[int, str] = {}
        self._judged = QueueJudge()
        super().__init__()
        self.begin()

    def make(self) -> QueueCoordinator:
        return QueueCoordinator(
            "__queues-3",
            self,
            self.counts.get,
            lambda name: self.ids.get(name),
            lambda: self.allows_queues,
            partial(new_lease_id, b"key"),
        )

    def commit_to(self, offset: int) -> None:
        super().commit_to(offset)
        known = self._judged.batches
        for batch, end in zip(self.batches[known:], self.ends[known:], strict=True):
            if self.is_judged and end <= self.high_watermark:
                self._judged.committed(batch)

    # -- leaders

    def has(
        self,
        end: int,
        *,
        key: PartitionKey = P0,
        start: int = 0,
        epoch: int = 1,
        end_of_epoch: int | None = None,
        record_bytes: int = 100,
    ) -> None:
        """The leader of a partition has records up to `end`, and reports it to coordinators that ask."""
        self.stable[key] = StableOffset(epoch, start, end, end if end_of_epoch is None else end_of_epoch, record_bytes)
        self.report()

    def report(self) -> None:
        """Leaders answer the questions for which they have news."""
        while True:
            self.asked += [effect for effect in self.take(AskStableOffset) if isinstance(effect, AskStableOffset)]
            news = [asked for asked in self.asked if self._is_news(asked)]
            if not news:
                return
            self.asked = [asked for asked in self.asked if asked not in news]
            for asked in news:
                self.coordinator.stable_offset(asked, self.stable[asked.question.key], self.now)
                self.collect()

    def _is_news(self, asked: AskStableOffset) -> bool:
        stable = self.stable.get(asked.question.key)
        return stable is not None and asked.question.known != (
            stable.leader_epoch,
            stable.last_stable_offset,
            stable.log_start_offset,
        )

    def fail_questions(self, error: MinilogError) -> None:
        """All questions under way get an error."""
        self.asked += [effect for effect in self.take(AskStableOffset) if isinstance(effect, AskStableOffset)]
        asked, self.asked = self.asked, []
        for question in asked:
            self.coordinator.stable_offset(question, error, self.now)
            self.collect()

    def expired(self) -> int:
        """The records that retention took, as the coordinator has reported."""
        return sum(effect.count for effect in self.take(RecordsExpired) if isinstance(effect, RecordsExpired))

    # -- workers

    def ask_to_lease(
        self,
        max_records: int = 10,
        *,
        queue: str = Q,
        topics: Iterable[bytes] = (ORDERS,),
        wait_ms: int = 5_000,
        max_bytes: int = 0,
        worker: str = "w1",
        takes_dead_letters: bool = False,
        principal: str = "User:alice",
    ) -> int:
        ticket = self.ticket()
        request = queue_pb2.LeaseRequest(
            queue=queue,
            topic_ids=topics,
            max_records=max_records,
            max_bytes=max_bytes,
            max_wait_ms=wait_ms,
            worker_id=worker,
            takes_dead_letters=takes_dead_letters,
        )
        self.queue_of[ticket] = queue
        self.coordinator.lease(ticket, request, self.now, principal)
        self.collect()
        self.report()
        return ticket

    def lease_answer(self, ticket: int) -> queue_pb2.LeaseResponse:
        self.commit()
        self.report()
        self.commit()
        answer = self.answer(ticket, queue_pb2.LeaseResponse)
        if answer.ranges and self.renews:
            self.renew(answer.lease_id, queue=self.queue_of.get(ticket, Q))
        return answer

    def lease(self, max_records: int = 10, **named: object) -> queue_pb2.LeaseResponse:
        """The answer to a call, which has to have come by now."""
        return self.lease_answer(self.ask_to_lease(max_records, **named))  # type: ignore[arg-type]

    def settle(
        self, leased: queue_pb2.LeaseResponse, first: int, last: int, verdict: int = ACCEPT, *, delay_ms: int = 0
    ) -> MinilogError | None:
        """One settlement; the error by which it was refused."""
        response = self.settle_all([self.settlement(leased, first, last, verdict, delay_ms=delay_ms)])
        if response.refused:
            return error_from_wire(response.refused[0].error)
        return error_of(response)

    def settlement(
        self,
        leased: queue_pb2.LeaseResponse,
        first: int,
        last: int,
        verdict: int = ACCEPT,
        *,
        key: PartitionKey = P0,
        delay_ms: int = 0,
    ) -> queue_pb2.Settlement:
        return queue_pb2.Settlement(
            lease_id=leased.lease_id,
            partition_id=key.to_wire(),
            first_offset=first,
            last_offset=last,
            verdict=queue_pb2.Verdict.ValueType(verdict),
            delay_ms=delay_ms,
        )

    def settle_all(self, settlements: list[queue_pb2.Settlement], queue: str = Q) -> queue_pb2.SettleResponse:
        ticket = self.ticket()
        request = queue_pb2.SettleRequest(queue=queue, settlements=settlements)
        self.coordinator.settle(ticket, request, self.now)
        self.collect()
        self.commit()
        self.report()
        return self.answer(ticket, queue_pb2.SettleResponse)

    def ask_to_settle_in_transaction(
        self, settlements: list[queue_pb2.Settlement], *, producer_id: int = 7, sequence: int = 0, queue: str = Q
    ) -> int:
        ticket = self.ticket()
        request = queue_pb2.SettleRequest(queue=queue, settlements=settlements)
        request.transaction.transactional_id = T
        request.transaction.producer_id = producer_id
        request.transaction.sequence = sequence
        self.coordinator.settle(ticket, request, self.now)
        self.collect()
        return ticket

    def settle_in_transaction(
        self, settlements: list[queue_pb2.Settlement], *, producer_id: int = 7, sequence: int = 0
    ) -> MinilogError | None:
        """The error by which a settlement in a transaction was refused. The coordinator of the transaction answers."""
        ticket = self.ask_to_settle_in_transaction(settlements, producer_id=producer_id, sequence=sequence)
        self.register_producers()
        self.commit()
        return error_of(self.answer(ticket, queue_pb2.SettleResponse))

    def register_producers(self) -> None:
        """Answer what is asked of the coordinators of transactions."""
        for effect in self.take(RegisterProducer):
            self.coordinator.registered(effect.number, self.ended.get(effect.producer_id), self.now)

    def mark(self, *, committed: bool, producer_id: int = 7, last_sequence: int = 0) -> MinilogError | None:
        """The marker of a transaction comes."""
        ticket = self.ticket()
        marker = coordinator_pb2.ProducerMarker(
            producer_id=producer_id, committed=committed, last_sequence=last_sequence
        )
        request = coordinator_pb2.WriteMarkersRequest(transactional_id=T, markers=[marker])
        self.coordinator.write_markers(ticket, request, self.now)
        self.collect()
        self.commit()
        self.report()
        return error_of(self.answer(ticket, coordinator_pb2.WriteMarkersResponse))

    def renew(self, *lease_ids: int, queue: str = Q) -> queue_pb2.RenewLeasesResponse:
        ticket = self.ticket()
        self.coordinator.renew(ticket, queue_pb2.RenewLeasesRequest(queue=queue, lease_ids=lease_ids), self.now)
        self.collect()
        self.commit()
        return self.answer(ticket, queue_pb2.RenewLeasesResponse)

    # -- people

    def alter(self, queue: str = Q, unset: Iterable[str] = (), **settings: str) -> MinilogError | None:
        """Settings by their names, or by short ones."""
        names = {
            "lock": "group.share.record.lock.duration.ms",
            "limit": "group.share.delivery.count.limit",
            "locks": "group.share.partition.max.record.locks",
            "reset": "share.auto.offset.reset",
        }
        ticket = self.ticket()
        texts = {names.get(name, name): text for name, text in settings.items()}
        request = queue_pb2.AlterQueueRequest(queue=queue, set_configs=texts, unset_configs=unset)
        self.coordinator.alter(ticket, request, self.now)
        self.collect()
        self.commit()
        return error_of(self.answer(ticket, queue_pb2.AlterQueueResponse))

    def describe(self, queue: str = Q) -> queue_pb2.DescribeQueueResponse:
        ticket = self.ticket()
        self.coordinator.describe(ticket, queue_pb2.DescribeQueueRequest(queue=queue), self.now)
        self.collect()
        self.commit()
        return self.answer(ticket, queue_pb2.DescribeQueueResponse)

    # -- time

    def pass_ms(self, ms: float) -> None:
        """Time goes by, and the timers ring."""
        end_ms = self.now_ms + ms
        while (due_ms := self.coordinator.next_tick_ms) <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.coordinator.tick(self.now)
            self.collect()
            self.report()
        self.now_ms = end_ms

    def state(self, key: PartitionKey = P0, queue: str = Q) -> PartitionQueue:
        """What the next coordinator would find."""
        self.commit()
        return assembled(self.coordinator.committed_state().items())[QueueKey(queue, key)]


def offsets(leased: queue_pb2.LeaseResponse, key: PartitionKey = P0) -> list[int]:
    """The offsets of a lease in one partition."""
    return [
        offset
        for part in leased.ranges
        if PartitionKey.of(part.partition_id) == key
        for offset in range(part.first_offset, part.last_offset + 1)
    ]
