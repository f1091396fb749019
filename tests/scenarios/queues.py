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
from minilog_broker.coordinators.queues.records import RedrivenTo
from tests.scenarios.partitions import error_named, partition, partition_name, topic_id
from tests.scenarios.world import CommandError, Span, World, run
from tests.unit.coordinators.cluster import PAYMENTS, error_of
from tests.unit.coordinators.queueing import LOCK_MS, Q, Queueing

SHORT = {
    "letters": "errors.deadletterqueue.topic.name",
    "copies": "errors.deadletterqueue.copy.record.enable",
}
"""Of settings, beside those of Queueing.alter."""
LETTERS = PartitionKey(PAYMENTS, 0)  # of the dead-letter topic


class QueueWorld(World):
    """Workers of a queue, its coordinator and that one's log."""

    def __init__(self) -> None:
        super().__init__()
        self._world = Queueing()
        self._asked: dict[int, str] = {}  # calls without an answer, by their tickets
        self._leases: dict[str, queue_pb2.LeaseResponse] = {}
        self._renews = self._reports = True
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
        self._world.fail_questions(error_named(error))

    def leaders(self, report: bool) -> None:
        """Whether leaders answer questions by themselves, or `has` alone reports."""
        self._reports = report

    def partitions(self, topic: str, count: int) -> None:
        """A topic, which may be new, has so many partitions."""
        self._world.ids[topic] = topic_id(topic)
        self._world.counts[topic_id(topic)] = count
        self._world.coordinator.topics_changed(self._world.now)

    def delete_topic(self, topic: str) -> None:
        del self._world.counts[topic_id(topic)]
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
        ids = [topic_id(each) for each in topics]
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
        self._world.ended[producer] = error_named(error)

    def mark(self, producer: int, verdict: str, *, sequence: int = 0) -> None:
        """The marker of a transaction, `commit` or `abort`, with the sequence of its last settlement."""
        committed = {"commit": True, "abort": False}[verdict]
        error = self._world.mark(committed=committed, producer_id=producer, last_sequence=sequence)
        if error is not None:
            self.outcome(f"the marker of {producer}", error)

    # -- letters

    def carried(self, count: int, *, of: int) -> None:
        """A queue with a dead-letter topic: of its records the first have died, and their letters were carried."""
        for command in (
            f"has {of}",
            "alter letters=payments",
            f"lease {count}",
            f"settle w1 0-{count - 1} reject",
            f"lease {count} dead=yes",
            f"settle w1 0-{count - 1} producer=7",
            "mark 7 commit",
        ):
            run(self, [command])

    def redrive(
        self,
        records: tuple[int, ...],
        *,
        first: int = 0,
        end: int | None = None,
        letters: tuple[int, ...] = (),
        at: str = "orders-0",
        queue: str = Q,
    ) -> None:
        """Redrive the letters of these records. The letter of record n is at offset 10 + n, or where `letters` says."""
        places = letters or tuple(10 + record for record in records)
        request = queue_pb2.RedriveRequest(
            queue=queue,
            letters_partition_id=LETTERS.to_wire(),
            first_offset=first,
            next_offset=max(places) + 1 if end is None else end,
        )
        for place, record in zip(places, records, strict=True):
            request.letters.add(letter_offset=place, partition_id=partition(at).to_wire(), offset=record)
        self._world.coordinator.redrive(self._ask("redrive"), request, self._world.now)

    def rewrite(self, first: int, end: int, *, producer: int = 9, sequence: int = 0) -> None:
        """A transaction writes the letters of a part anew."""
        request = queue_pb2.SettleRequest(queue=Q)
        request.transaction.transactional_id = f"{Q}-redrive"
        request.transaction.producer_id, request.transaction.sequence = producer, sequence
        part = queue_pb2.RewrittenLetters(letters_partition_id=LETTERS.to_wire(), first_offset=first, next_offset=end)
        request.rewritten.CopyFrom(part)
        self._world.coordinator.settle(self._ask("rewrite"), request, self._world.now)

    def letters_are_of(self, topic: str) -> None:
        """The name of the dead-letter topic is of another topic from now on."""
        self._world.ids["payments"] = topic_id(topic)

    # -- the coordinator

    def wait(self, ms: float) -> None:
        """Time goes by, and the timers ring."""
        self._world.pass_ms(ms)

    def hold(self) -> None:
        """Nothing is committed until `resume`."""
        self._holds = True

    def resume(self) -> None:
        self._holds = False

    def fail_over(self) -> None:
        """Another coordinator, with all that was committed."""
        self._world.fail_over()

    def new_term(self) -> None:
        """The same coordinator leads again, after another."""
        self._world.coordinator.deposed()
        self._world.begin()

    def depose(self) -> None:
        """Its term ends."""
        self._world.coordinator.deposed()

    def log_refuses(self, error: str = "") -> None:
        """What appending to the log fails with from now on; nothing: it works again."""
        self._world.refusal = error_named(error) if error else None

    # -- people

    def alter(self, queue: str = Q, *, unset: tuple[str, ...] = (), **settings: str) -> None:
        """Settings, by their names or short ones: lock, limit, locks, reset, letters, copies."""
        named = {SHORT.get(name, name): text for name, text in settings.items()}
        error = self._world.alter(queue, [SHORT.get(name, name) for name in unset], **named)
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
        for place in found.redriven:
            settling = ", settling" if place.is_settling else ""
            letters = partition_name(PartitionKey.of(place.letters_partition_id))
            self.note(f"letters of {letters}: next {place.next_offset}{settling}")
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
                if self._reports:
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
            case queue_pb2.RedriveResponse() if error_of(answer) is None:
                names = [
                    queue_pb2.RedriveOutcome.Name(each).removeprefix("REDRIVE_OUTCOME_") for each in answer.outcomes
                ]
                outcomes = ", ".join(name.lower().replace("_", " ") for name in names)
                self.note(f"{name}: {outcomes or 'no letter'}, next {answer.next_offset}")
            case queue_pb2.RenewLeasesResponse() if answer.ended_lease_ids:
                self.note(f"{name}: the lease has ended")
            case queue_pb2.SettleResponse() if answer.refused:
                for each in answer.refused:
                    self.outcome(f"{name}: settlement {each.index}", errors.error_from_wire(each.error))
            case (
                queue_pb2.RenewLeasesResponse()
                | queue_pb2.SettleResponse()
                | queue_pb2.DeleteQueueResponse()
                | queue_pb2.RedriveResponse()
            ):
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
        state = coordinator.committed_state()
        found = {}
        for place in state.values():
            if isinstance(place, RedrivenTo):
                settling = f", settling to {place.settling_to} by {place.producer_id}" if place.is_settling else ""
                found["letters"] = f"redriven to {place.next_offset}{settling}"
        for key, queue in assembled(state.items()).items():
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
        if part.death_reason is not None:
            words.append(f"({part.death_reason})")
        return " ".join(words)


def _leased_range(part: queue_pb2.LeasedRange) -> str:
    key = PartitionKey.of(part.partition_id)
    where = "" if key == partition("orders-0") else f"{partition_name(key)} "
    died = f" ({part.death_reason})" if part.HasField("death_reason") else ""
    return f"{where}{Span(part.first_offset, part.last_offset)} x{part.delivery_count}{died}"
