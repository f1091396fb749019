"""What the coordinator of a queue writes and answers, against its log and the logs of the topics.

rule  what must be
Q1    a lease is answered when its record may be committed. From one lease to another a record goes over READY
Q2    what is settled is in no range any more
Q3    a record is not leased for longer than its lock and LATE_S, where all is calm: since it was leased or its lease
      was renewed, and a lock more for each new coordinator. Deliveries are counted, but for what its worker returns
      and for a lease that no worker has named to the present coordinator
Q4    nothing is leased at or above the last stable offset
Q6    `settled_to` never goes back, but with the cut after an unclean election, and by a redrive (redriving.py)
Q5    each record that a committed transaction carried to the dead-letter topic has one committed letter there, and no
      other record has any
Q7    a leased record is settled by a verdict of its own worker alone, or by the delivery limit, or taken by retention.
      It dies by its own worker's rejection or by the limit, and stays dead
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from minilog.net.coordinators_of import QUEUES_TOPIC_NAME, coordinator_partition
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import BatchHeader
from minilog.v1 import queue_pb2
from tests.judges.queue_log import QueuePartition, QueuePieces, leases_in, rows_in
from tests.judges.queues import (
    LEASED,
    SETTLING,
    Held,
    RecordPlace,
    Redrives,
    check_change,
    held_in,
    revived,
    settled_to,
)
from tests.judges.violation import Violation
from tests.simulation.judge.dead_letters import places_between

if TYPE_CHECKING:
    from tests.judges.views import View
    from tests.simulation.clients.queuing import Queuing
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.judge.partition import JudgedPartition
    from tests.simulation.judge.transactions import Transactions
    from tests.simulation.judge.truth import Truth
    from tests.simulation.machines.wire import Said

SERVICE = "/minilog.v1.QueueService/"
LATE_S = 2.0


@dataclass(slots=True)
class _Log:
    """What one copy says. `ends`: by lease, the end of the batch that has it first."""

    last: BatchHeader | None = None
    ends: dict[int, int] = field(default_factory=dict)

    def read(self, view: View, queue: str) -> None:
        """Take in what is new. All anew where what was read last is not there any more."""
        if self.last is not None and next(iter(view.from_offset(self.last.base_offset)), None) != self.last:
            self.last = None
            self.ends.clear()
        for header in list(view.from_offset(0 if self.last is None else self.last.next_offset)):
            for lease_id in leases_in(view.content(header.base_offset), queue):
                self.ends.setdefault(lease_id, header.next_offset)
            self.last = header


@dataclass(slots=True)
class _Known:
    """What is committed of one partition of the queue."""

    record: QueuePartition = field(default_factory=QueuePartition)
    dead: set[int] = field(default_factory=set)  # by the limit
    carried: Counter[int] = field(default_factory=Counter)  # to the dead-letter topic
    bare: set[int] = field(default_factory=set)  # dead, and settled outside of a transaction
    taken: set[int] = field(default_factory=set)  # by retention, if by anybody
    uncounted: Counter[int] = field(default_factory=Counter)  # leases that nobody has named


class QueueRecords:
    """Of one queue. `open_producers`: of a partition, whose transactions are open below an offset for all that anybody
    can know."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        truth: Truth,
        transactions: Transactions,
        is_marked: Callable[[PartitionKey, int], bool],
        queue: str,
        lock_s: float,
        limit: int,
    ) -> None:
        self._cluster, self._truth, self._transactions, self._is_marked = cluster, truth, transactions, is_marked
        self._queue, self._lock_s, self._limit = queue, lock_s, limit
        self._of: dict[PartitionKey, _Known] = {}
        self._pieces = QueuePieces(queue)
        self._is_behind = False  # a batch is not known
        self.redrives = Redrives(partial(places_between, truth), queue)
        self._logs: dict[int, _Log] = {}  # by host
        self._read = 0  # batches of the truth
        self._leader_epoch = -1
        self._leased_s: dict[int, float] = {}  # since when the lock of a lease may count
        self._requests: weakref.WeakKeyDictionary[Said, Any] = weakref.WeakKeyDictionary()
        self._asked_in: weakref.WeakKeyDictionary[Said, int] = weakref.WeakKeyDictionary()
        self._verdicts: set[tuple[int, PartitionKey, int]] = set()  # that may be done: lease, partition, offset
        self._returned: set[tuple[int, PartitionKey, int]] = set()
        self._heard_in: dict[int, int] = {}  # the last term in which a worker named the lease
        self._answered: Mapping[str, Callable[[Said, Any], None]] = {
            SERVICE + "Lease": self._lease,
            SERVICE + "RenewLeases": self._renewed,
            SERVICE + "Settle": self._settled,
        }

    # -- on the wire

    def saw(self, call: Said, message: Any, answers: bool) -> None:
        """A message is sent."""
        if not call.method.startswith(SERVICE):
            return
        if not answers:
            self._requests[call] = message
            self._asked_in[call] = self._leader_epoch  # an earlier coordinator may answer: then it is named to that one
            if call.method == SERVICE + "Settle":
                self._note_verdicts(message)
        elif (look := self._answered.get(call.method)) is not None:
            look(call, message)

    def _note_verdicts(self, request: queue_pb2.SettleRequest) -> None:
        for each in request.settlements:
            if each.verdict != queue_pb2.VERDICT_RELEASE:
                key = PartitionKey.of(each.partition_id)
                noted = self._returned if each.verdict == queue_pb2.VERDICT_RETURN else self._verdicts
                for offset in range(each.first_offset, each.last_offset + 1):
                    noted.add((each.lease_id, key, offset))

    def _lease(self, call: Said, response: queue_pb2.LeaseResponse) -> None:
        if not response.ranges:
            return
        number, _ = self._truth.speaker(call.host)
        partition = self._partition()
        if number < 0 or partition is None:
            return
        self._check_durable(number, partition, response.lease_id)
        for each in response.ranges:
            self._check_stable(PartitionKey.of(each.partition_id), each.last_offset, response.lease_id)

    def _check_durable(self, number: int, partition: JudgedPartition, lease_id: int) -> None:
        """The lease is in the log of the broker that answers, and may be committed."""
        copy = partition.sound_copy(number)
        if copy is None:
            return
        log = self._logs.setdefault(copy.host.number, _Log())
        log.read(copy.live, self._queue)
        end = log.ends.get(lease_id)
        if end is None:
            raise partition.fail("Q1", f"b{number} answers lease {lease_id}, and its log has no such")
        if not partition.is_held(copy.host.number, end):
            raise partition.fail("Q1", f"b{number} answers lease {lease_id}, and it is not committed")

    def _check_stable(self, key: PartitionKey, last: int, lease_id: int) -> None:
        """All of it may be committed, and of no transaction that is open for all that anybody can know."""
        partition = self._truth.partition(key)
        if partition is None or partition.exempt:
            return
        copies = [copy for copy in self._truth.copies.all_of(partition.name) if copy.live.end > last]
        ends = [(copy.host.number, _end_of(copy.live.from_offset(last))) for copy in copies]
        if last >= partition.end and not any(partition.is_held(number, end) for number, end in ends):
            raise partition.fail("Q4", f"lease {lease_id} has offset {last}, which is not committed")
        producers = self._transactions.open_producers(key, last)
        for copy in copies[:1]:
            later = (header for header in copy.live.from_offset(partition.end) if header.base_offset <= last)
            producers |= {header.producer_id for header in later if header.is_transactional and not header.is_control}
        for producer_id in sorted(producers):
            if not self._is_marked(key, producer_id):
                text = f"lease {lease_id} has offset {last}, and the transaction of producer {producer_id} is open"
                raise partition.fail("Q4", text)

    def _renewed(self, call: Said, response: queue_pb2.RenewLeasesResponse) -> None:
        request = self._requests.get(call)
        if request is None or response.error.code:
            return
        for lease_id in set(request.lease_ids) - set(response.ended_lease_ids):
            self._leased_s[lease_id] = self._cluster.now_s
            self._heard_in[lease_id] = self._asked_in[call]

    def _settled(self, call: Said, response: queue_pb2.SettleResponse) -> None:
        request = self._requests.get(call)
        if request is not None and not response.error.code:
            refused = {each.index for each in response.refused}  # perhaps its lock had ended
            done = (each for at, each in enumerate(request.settlements) if at not in refused)
            self._heard_in |= {each.lease_id: self._asked_in[call] for each in done}

    # -- in the log

    def _partition(self) -> JudgedPartition | None:
        """Of `__queues`."""
        for topic_id, topic in self._truth.metadata.topics.items():
            if topic.name == QUEUES_TOPIC_NAME:
                return self._truth.partition(PartitionKey(topic_id, coordinator_partition(self._queue)))
        return None

    def look(self) -> None:
        """At what was committed since, and at how long leases last."""
        partition = self._partition()
        if partition is None:
            return
        state = self._truth.metadata.states.get(partition.key)
        if state is not None and state.leader_epoch > self._leader_epoch:
            self._leader_epoch = state.leader_epoch
            self._leased_s = dict.fromkeys(self._leased_s, self._cluster.now_s)
        new, self._read = partition.batches[self._read :], len(partition.batches)
        for header in new:
            self._take(partition, header)
        self._check_locks()

    def _take(self, partition: JudgedPartition, header: BatchHeader) -> None:
        copy = self._copy_with(partition, header)
        if copy is None:
            self._is_behind = True
            return
        if self._is_behind:
            self._catch_up(copy, header)
        content = copy.content(header.base_offset)
        passed = self.redrives.passed(rows_in(content))
        ready: Counter[RecordPlace] = Counter()
        for key, record in self._pieces.take(content):
            known = self._of.setdefault(key, _Known(QueuePartition(next_offset=record.next_offset)))
            again = {offset for at, offset in passed if at == key}
            topic = self._truth.partition(key)
            may_be_cut = topic is None or topic.exempt
            is_over = partial(self._is_unnamed, known, header.partition_leader_epoch)
            gone = check_change(
                known.record,
                record,
                may_be_cut=may_be_cut,
                again=again,
                uncounted=lambda lease_id, offset, key=key, is_over=is_over: (  # type: ignore[misc]
                    (lease_id, key, offset) in self._returned or is_over(lease_id, offset)
                ),
            )
            for offset, before in gone:
                self._gone(key, known, offset, before)
            self._check_deaths(key, known, record)
            ready.update((key, offset) for offset in revived(known.record, record))
            skipped = range(known.record.next_offset, record.next_offset)
            known.taken |= set(skipped) - held_in(record).keys()
            known.record = record
        self.redrives.check(passed, ready)

    def _is_unnamed(self, known: _Known, epoch: int, lease_id: int, offset: int) -> bool:
        is_over = self._heard_in.get(lease_id, -1) < epoch
        known.uncounted[offset] += is_over
        return is_over

    def _copy_with(self, partition: JudgedPartition, header: BatchHeader) -> View | None:
        for copy in self._truth.copies.all_of(partition.name):
            if next(iter(copy.live.from_offset(header.base_offset)), None) == header:
                return copy.live
        return None

    def _catch_up(self, copy: View, end: BatchHeader) -> None:
        """Take what the copy has below a batch, unchecked: no copy had all of it when it was committed."""
        self._pieces, self._is_behind = QueuePieces(self._queue), False
        self.redrives.begin_anew()
        for header in copy.from_offset(0):
            if header.base_offset < end.base_offset:
                self.redrives.take(rows_in(copy.content(header.base_offset)))
                for key, record in self._pieces.take(copy.content(header.base_offset)):
                    self._of.setdefault(key, _Known()).record = record

    def _check_deaths(self, key: PartitionKey, known: _Known, record: QueuePartition) -> None:
        """A record dies by its worker's rejection or by the limit."""
        before = held_in(known.record)
        for offset, held in held_in(record).items():
            former = before.get(offset)
            if not held.is_dead or former is None or former.is_dead:
                continue
            if held.delivery_count >= self._limit:
                known.dead.add(offset)
            elif (former.lease_id, key, offset) not in self._verdicts:
                raise Violation("Q7", f"offset {offset} dies after {held.delivery_count} deliveries, not rejected")

    def _gone(self, key: PartitionKey, known: _Known, offset: int, before: Held) -> None:
        if before.state == SETTLING and before.is_dead:
            known.carried[offset] += 1
            return
        if before.state == LEASED and (before.lease_id, key, offset) in self._verdicts:
            if before.is_dead:
                known.bare.add(offset)
            return
        if before.state == LEASED and before.delivery_count >= self._limit:
            known.dead.add(offset)
        else:
            known.taken.add(offset)

    def _check_locks(self) -> None:
        leased = {each.lease_id for known in self._of.values() for each in known.record.ranges if each.state == LEASED}
        now_s = self._cluster.now_s
        self._leased_s = {lease_id: self._leased_s.get(lease_id, now_s) for lease_id in leased}
        for lease_id, since_s in self._leased_s.items():
            if min(now_s - since_s, self._truth.calm.lasts_s) > self._lock_s + LATE_S:
                text = f"lease {lease_id} lasts since {since_s:.3f} s, and its lock is {self._lock_s} s"
                raise Violation("Q3", text)

    # -- the end

    @property
    def has_judged_locks(self) -> bool:
        """Whether all has been calm for longer than a lock may last."""
        return self._truth.calm.lasts_s > self._lock_s + LATE_S

    def unsettled(self, key: PartitionKey, end: int) -> str | None:
        """What is not settled of a partition, below `end`. None where all is."""
        known = self._of.get(key)
        if known is None:
            return f"is not known to the queue, and has records up to {end}" if end else None
        if known.record.ranges or known.record.next_offset < end:
            text = f"is settled to {settled_to(known.record)}, and leased to {known.record.next_offset} of {end}"
            return f"{text}: {known.record.ranges[:3]}"
        return None

    def is_dead(self, key: PartitionKey, offset: int) -> bool:
        """Whether the delivery limit has settled it."""
        return key in self._of and offset in self._of[key].dead

    def uncounted(self, key: PartitionKey, offset: int) -> int:
        """How often a record may have been handed out without being counted."""
        return self._of[key].uncounted[offset] if key in self._of else 0

    def carried(self) -> Counter[RecordPlace]:
        """The places of records that a transaction carried to the dead-letter topic, and how often."""
        return Counter(
            {(key, offset): count for key, known in self._of.items() for offset, count in known.carried.items()}
        )

    def bare(self) -> set[tuple[PartitionKey, int]]:
        """The places that died and were settled without a transaction: they may hold no record."""
        return {(key, offset) for key, known in self._of.items() for offset in known.bare}

    def check_taken(self, queuing: Queuing) -> None:
        """What is gone without a verdict was taken by retention."""
        for at, key in queuing.keys().items():
            taken = self._of[key].taken if key in self._of else set[int]()
            bound = queuing.may_be_gone(at)
            partition = self._truth.partition(key)
            if partition is None or partition.exempt:
                continue
            if lost := sorted(offset for offset in taken if offset >= bound):
                raise Violation("Q7", f"offsets {lost[:5]} of {at} are gone, and nobody has settled them")


def _end_of(batches: Iterator[BatchHeader]) -> int:
    """Of the first of these."""
    return next(batches).next_offset
