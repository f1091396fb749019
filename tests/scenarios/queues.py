"""The verbs of queues: what workers, leaders of partitions, transactions and people ask of a coordinator.

A call is known by its worker, or by the `name` that the command gives. All that a command decides is committed, and
answered, unless the coordinator is on `hold`. A worker renews each lease when it gets it, unless `renews no`.
"""

from __future__ import annotations

from collections.abc import Mapping

from minilog import errors
from minilog.partition_key import PartitionKey
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.coordinator import CoordinatorState
from minilog_broker.coordinators.coordinator_effects import RecordsDied
from minilog_broker.coordinators.queues.pieces import QueueKey, assembled
from minilog_broker.coordinators.queues.ranges import Range, RangeState
from tests.scenarios.world import CommandError, Span, World
from tests.unit.coordinators.cluster import ORDERS, PAYMENTS, error_of
from tests.unit.coordinators.queueing import LOCK_MS, Q, Queueing

NAMES = {ORDERS: "orders", PAYMENTS: "payments"}
IDS = {name: topic_id for topic_id, name in NAMES.items()}


def partition(name: str) -> PartitionKey:
    """`orders-0`."""
    topic, _, number = name.rpartition("-")
    return PartitionKey(IDS[topic], int(number))


def partition_name(key: PartitionKey) -> str:
    return f"{NAMES[key.topic_id]}-{key.partition}"


class QueueWorld(World):
    """See the module's text."""

    def __init__(self) -> None:
        super().__init__()
        self._world = Queueing()
        self._asked: dict[int, str] = {}  # calls without an answer, by their tickets
        self._leases: dict[str, queue_pb2.LeaseResponse] = {}
        self._renews = True
        self._holds = False

    # -- leaders of partitions

    def has(
        self,
        end: int,
        *,
        at: str = "orders-0",
        start: int = 0,
        epoch: int = 1,
        epoch_end: int | None = None,
        size: int = 100,
    ) -> None:
        """The leader of a partition has records up to `end`, each of `size` bytes, and reports it."""
        key = partition(at)
        self._world.has(end, key=key, start=start, epoch=epoch, end_of_epoch=epoch_end, record_bytes=size)

    def fail_questions(self, error: str) -> None:
        """The questions to leaders that are under way fail."""
        self._world.fail_questions(_error(error))

    def partitions(self, topic: str, count: int) -> None:
        """A topic has so many partitions; 0: it was deleted."""
        if count:
            self._world.counts[IDS[topic]] = count
            self._world.coordinator.topics_changed(self._world.now)
        else:
            del self._world.counts[IDS[topic]]
            self._world.coordinator.drop_deleted_topics()

    # -- workers

    def lease(
        self,
        max_records: int = 10,
        *,
        worker: str = "w1",
        name: str = "",
        queue: str = Q,
        topics: tuple[str, ...] = ("orders",),
        wait: int = 5_000,
        bytes: int = 0,
        dead: bool = False,
        user: str = "alice",
    ) -> None:
        """`dead`: the worker takes dead letters, too."""
        ids = [IDS.get(each, each.encode()) for each in topics]
        ticket = self._world.ask_to_lease(
            max_records,
            queue=queue,
            topics=ids,
            wait_ms=wait,
            max_bytes=bytes,
            worker=worker,
            takes_dead_letters=dead,
            principal=f"User:{user}",
        )
        self._asked[ticket] = name or worker

    def leaves(self, worker: str) -> None:
        """The call of a worker is gone."""
        ticket = next(ticket for ticket, name in self._asked.items() if name == worker)
        self._world.coordinator.caller_left(ticket)

    def renew(self, worker: str, *, queue: str = Q) -> None:
        """Renew the lease of a worker, which may have ended."""
        request = queue_pb2.RenewLeasesRequest(queue=queue, lease_ids=[self._lease(worker).lease_id])
        ticket = self._ask(f"{worker} renews")
        self._world.coordinator.renew(ticket, request, self._world.now)

    def renews(self, says: bool) -> None:
        """Whether workers renew each lease when they get it."""
        self._renews = says

    def settle(
        self,
        worker: str,
        offsets: tuple[Span, ...],
        verdict: str = "accept",
        *,
        delay: int = 0,
        reason: str = "",
        producer: int | None = None,
        sequence: int = 0,
        queue: str = Q,
        at: str = "orders-0",
    ) -> None:
        """What the worker has of its lease, in one call. `producer`: in its transaction."""
        found = [
            queue_pb2.Settlement(
                lease_id=self._lease(worker).lease_id,
                partition_id=partition(at).to_wire(),
                first_offset=each.first,
                last_offset=each.last,
                verdict=queue_pb2.Verdict.Value(f"VERDICT_{verdict.upper()}"),
                delay_ms=delay,
                reason=reason,
            )
            for each in offsets
        ]
        if producer is not None:
            ticket = self._world.ask_to_settle_in_transaction(found, producer_id=producer, sequence=sequence)
            self._asked[ticket] = worker
            return
        request = queue_pb2.SettleRequest(queue=queue, settlements=found)
        self._world.coordinator.settle(self._ask(worker), request, self._world.now)

    def _lease(self, worker: str) -> queue_pb2.LeaseResponse:
        if worker not in self._leases:
            raise CommandError(f"{worker!r} has no lease")
        return self._leases[worker]

    def _ask(self, name: str) -> int:
        ticket = self._world.ticket()
        self._asked[ticket] = name
        return ticket

    # -- transactions

    def ends(self, producer: int, error: str = "ProducerFenced") -> None:
        """The coordinator of transactions registers a producer no more."""
        self._world.ended[producer] = _error(error)

    def mark(self, producer: int, verdict: str, *, sequence: int = 0) -> None:
        """The marker of a transaction, `commit` or `abort`, with the sequence of its last settlement."""
        committed = {"commit": True, "abort": False}[verdict]
        error = self._world.mark(committed=committed, producer_id=producer, last_sequence=sequence)
        if error is not None:
            self.outcome(f"the marker of {producer}", error)

    # -- the coordinator

    def wait(self, ms: float) -> None:
        """Time goes by, and the timers ring."""
        self._world.pass_ms(ms)

    def hold(self) -> None:
        """Nothing is committed until `commit`."""
        self._holds = True

    def commit(self) -> None:
        self._holds = False

    def fail_over(self) -> None:
        """Another coordinator, with all that was committed."""
        self._world.fail_over()
        self._world.report()

    def depose(self) -> None:
        """Its term ends."""
        self._world.coordinator.deposed()

    def log_refuses(self, error: str = "") -> None:
        """What appending to the log fails with from now on; nothing: it works again."""
        self._world.refusal = _error(error) if error else None

    # -- people

    def alter(self, queue: str = Q, *, unset: tuple[str, ...] = (), **settings: str) -> None:
        """Settings, by their names or short ones: lock, limit, locks, reset."""
        error = self._world.alter(queue, unset, **settings)
        if error is not None:
            self.outcome("alter", error)

    def level(self, allows: bool) -> None:
        """Whether the level of the cluster has queues."""
        self._world.allows_queues = allows

    def delete(self, queue: str = Q) -> None:
        self._world.coordinator.delete(self._ask("delete"), queue_pb2.DeleteQueueRequest(queue=queue))

    def describe(self, queue: str = Q) -> None:
        """As people see it."""
        found = self._world.describe(queue)
        if (error := error_of(found)) is not None:
            self.outcome("describe", error)
        for each in found.partitions:
            self.note(
                f"{partition_name(PartitionKey.of(each.partition_id))}: settled to {each.settled_to}, next "
                f"{each.next_offset} of {each.last_stable_offset}, dead {each.dead_count}, expired {each.expired_count}"
            )
            for part in each.ranges:
                state = queue_pb2.RangeState.Name(part.state).removeprefix("RANGE_STATE_").lower()
                self.note(
                    f"  {Span(part.first_offset, part.last_offset)} {state} {part.worker_id} x{part.delivery_count}, "
                    f"{part.remaining_ms} ms left {part.death_reason}".rstrip()
                )

    def count(self, queue: str = Q) -> None:
        """The records by their state."""
        found = self._world.coordinator.record_counts()[queue]
        self.note(
            f"ready {found.ready}, leased {found.leased}, settling {found.settling}, fresh {found.fresh}, "
            f"dead {found.dead}, redelivered {found.redelivered}"
        )
        for key, (settled_to, end) in found.progress.items():
            assert key.partition is not None
            self.note(f"{partition_name(key.partition)}: settled to {settled_to} of {end}")

    # -- what follows, and what is seen

    def settle_down(self) -> None:
        world = self._world
        if not self._holds:
            world.register_producers()
            for _ in range(2):
                world.collect()
                world.commit()
                world.report()
            world.commit()
        world.collect()
        for ticket in [each for each in self._asked if each in world.answers]:
            self._answered(self._asked.pop(ticket), world.answers.pop(ticket))
        if (expired := world.expired()) != 0:
            self.note(f"retention took {expired}")
        for each in world.take(RecordsDied):
            span = Span(each.first, each.last)
            self.note(f"{span} died: delivery {each.delivery_count}, {each.reason}")

    def _answered(self, name: str, answer: object) -> None:
        match answer:
            case queue_pb2.LeaseResponse():
                self._leased(name, answer)
            case queue_pb2.RenewLeasesResponse() if answer.ended_lease_ids:
                self.note(f"{name}: the lease has ended")
            case queue_pb2.SettleResponse() if answer.refused:
                for each in answer.refused:
                    self.outcome(f"{name}: settlement {each.index}", errors.error_from_wire(each.error))
            case queue_pb2.RenewLeasesResponse() | queue_pb2.SettleResponse() | queue_pb2.DeleteQueueResponse():
                if (error := error_of(answer)) is not None:
                    self.outcome(name, error)
                elif not isinstance(answer, queue_pb2.SettleResponse):
                    self.note(f"{name}: ok")

    def _leased(self, name: str, answer: queue_pb2.LeaseResponse) -> None:
        if (error := error_of(answer)) is not None:
            self.outcome(name, error)
            return
        found = [_leased_range(each) for each in answer.ranges]
        extra = " to be renewed first" if answer.must_be_renewed_first else ""
        if answer.ranges and answer.lock_duration_ms != LOCK_MS:
            extra += f" locked for {answer.lock_duration_ms} ms"
        if answer.dead_letter_topic:
            extra += f" for {answer.dead_letter_topic}" + (" with copies" if answer.copies_dead_records else "")
        self.note(f"{name} gets {', '.join(found) or 'nothing'}{extra}")
        if answer.ranges:
            self._leases[name] = answer
            if self._renews and not self._holds:
                self._world.renew(answer.lease_id)

    def observed(self) -> Mapping[str, str]:
        coordinator = self._world.coordinator
        if coordinator.state is not CoordinatorState.ACTIVE:
            return self._seen
        found = {}
        for key, queue in assembled(coordinator.committed_state().items()).items():
            assert isinstance(key, QueueKey)
            assert key.partition is not None
            name = partition_name(key.partition) if key.owner == Q else f"{key.owner} {partition_name(key.partition)}"
            ranges = [self._range(each) for each in queue.ranges]
            found[name] = ", ".join([f"settled to {queue.settled_to}", *ranges, f"next {queue.next_offset}"])
        return found

    def _range(self, part: Range) -> str:
        span = Span(part.first, part.last)
        workers = (name for name, lease in self._leases.items() if lease.lease_id == part.lease_id)
        words = [part.state.name.lower(), str(span)]
        if part.state in (RangeState.LEASED, RangeState.SETTLING):
            words.append(next(workers, "another"))
        words.append(f"x{part.delivery_count}")
        if part.delay_ms:
            words.append(f"in {part.delay_ms} ms")
        return " ".join(words)


def _leased_range(part: queue_pb2.LeasedRange) -> str:
    key = PartitionKey.of(part.partition_id)
    where = "" if key == partition("orders-0") else f"{partition_name(key)} "
    died = f" ({part.death_reason})" if part.HasField("death_reason") else ""
    return f"{where}{Span(part.first_offset, part.last_offset)} x{part.delivery_count}{died}"


def _error(name: str) -> errors.MinilogError:
    """An error by the name of its class."""
    found: errors.MinilogError = getattr(errors, name)("as the scenario says")
    return found
