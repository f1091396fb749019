"""Random histories of a world: one seed, one history. The same seed always gives the same one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import HEADER_BYTES, Buffer, decode_header, iterate_headers
from minilog.v1 import common_pb2
from minilog_broker.replication.partition_state import NO_LEADER
from minilog_broker.replication.replica_effects import AnswerProduce
from minilog_broker.replication.settings import ReplicationSettings
from tests.unit.replication.cluster import KEY, TOPIC_ID, BrokerOfCores, ReplicaCluster, batch, bound
from tests.unit.replication.judging import Entry, ReplicaJudges, entry

# Short enough that a history of a few hundred steps sees late followers and silent streams.
SETTINGS = ReplicationSettings(replica_lag_time_max_ms=150.0, session_keepalive_ms=20.0, replica_fetch_max_bytes=4_000)
PRODUCER_ID = 7
WINDOW = 5
_BATCHES = [batch(producer=(PRODUCER_ID, 0, sequence)) for sequence in range(200)]
_ANONYMOUS = batch()


@dataclass
class HistoryProducer:
    """Idempotent, acks=all, never more than five behind the oldest unanswered; sent again in order."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    unanswered: list[int] = field(default_factory=list)
    next_sequence: int = 0
    tickets: dict[object, int] = field(default_factory=dict)
    sent_to: tuple[int, int] = (-1, -1)  # a broker and its life
    sent: int = 0
    broken: bool = False

    def act(self, cluster: ReplicaCluster) -> None:
        leader_id = cluster.controller.partitions[KEY].leader_id
        if leader_id == NO_LEADER or not cluster[leader_id].alive:
            return
        life = (leader_id, cluster[leader_id].lives)
        if self.broken or life != self.sent_to:
            former = cluster.brokers.get(self.sent_to[0])
            if self.tickets and former is not None and former.alive and former.lives == self.sent_to[1]:
                return  # answers of the former leader are still to come
            self.tickets.clear()
            self.broken, self.sent_to = False, life
            for sequence in list(self.unanswered):
                self._send(cluster, sequence)
        elif self.next_sequence < min(len(_BATCHES), min(self.unanswered, default=self.next_sequence) + WINDOW):
            sequence, self.next_sequence = self.next_sequence, self.next_sequence + 1
            self.unanswered.append(sequence)
            self._send(cluster, sequence)

    def _send(self, cluster: ReplicaCluster, sequence: int) -> None:
        self.sent += 1
        ticket = ("idempotent", self.sent)
        self.tickets[ticket] = sequence
        broker = cluster[self.sent_to[0]]
        broker.manager.produce(ticket, KEY, -1, -1, 100.0, _BATCHES[sequence], cluster.now_ms)
        broker.run()

    def answered(self, answer: AnswerProduce) -> int | None:
        """The sequence that was acknowledged."""
        sequence = self.tickets.pop(answer.ticket, None)
        if sequence is None:
            return None
        if answer.error is not None:
            self.broken = True
            return None
        assert self.acknowledged.setdefault(sequence, answer.base_offset) == answer.base_offset, "V14: two offsets"
        if sequence in self.unanswered:
            self.unanswered.remove(sequence)
        return sequence


@dataclass
class HistoryReader:
    """A consumer that goes to whoever believes to lead, or `anywhere`, and reads on where it stood."""

    anywhere: bool = False
    read: list[Entry] = field(default_factory=list)
    session: tuple[int, int, int] | None = None  # broker, its life, session id
    number: int = 0
    seen: int = 0

    def act(self, cluster: ReplicaCluster, rng: random.Random) -> None:
        hop = 0.2 if self.anywhere else 0.03
        if self.session is None or cluster[self.session[0]].lives != self.session[1] or rng.random() < hop:
            found = [broker for broker in cluster.live() if self.anywhere or broker.leader() is not None]
            if not found:
                return
            broker = rng.choice(found)
            position = self.read[-1].next_offset if self.read else 0
            self.number += 1
            known: dict[str, int] = {}
            if self.anywhere and rng.random() < 0.7:
                known["leader_epoch"] = cluster.controller.partitions[KEY].leader_epoch
            if self.anywhere and self.read and rng.random() < 0.7:
                known["last_fetched_epoch"] = self.read[-1].epoch
            session_id = cluster.consume(broker.broker_id, position, position_number=self.number, **known)
            self.session, self.seen = (broker.broker_id, broker.lives, session_id), 0
            return
        broker_id, _, session_id = self.session
        while self.anywhere and session_id in cluster[broker_id].consumers_ready:
            cluster.pull_consumer(cluster[broker_id], session_id)
        runs = cluster.pushed(broker_id, session_id)
        for run, batches in runs[self.seen :]:
            self._take(batches, run.high_watermark)
            assert not run.HasField("diverging_epoch"), "V14: what was read is said not to be in the log"
            code = run.error.code
            assert code != common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE, "V14: the log is said to end below what was read"
            if code:
                self.session = None
        self.seen = len(runs)

    def _take(self, batches: Buffer, high_watermark: int) -> None:
        for _, header in iterate_headers(batches):
            expected = self.read[-1].next_offset if self.read else 0
            assert header.base_offset == expected, "V14: a reader's offsets skip or repeat"
            assert header.next_offset <= high_watermark, "a reader was shown what is not committed"
            self.read.append(entry(header))


@dataclass
class ReplicationHistory:
    """One world under faults, with a producer, a reader and the invariants."""

    seed: int
    steps: int = 400
    reads_anywhere: bool = False
    rots: bool = False  # copies rot, which is found at once
    is_cold: bool = False  # nothing is in memory: all that is sent is read, and told, when its time comes

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._rotten: set[tuple[int, int]] = set()  # (broker, life): once in a life is a replica fetched again
        self.cluster = ReplicaCluster(settings=SETTINGS)
        for broker in self.cluster.brokers.values():
            broker.files.get_cold(float(self.is_cold))
        if self.rots:  # its session is open whatever befalls the copy of the other partition
            self.cluster.controller.create(PartitionKey(TOPIC_ID, 1), tuple(self.cluster.brokers), 1)
        self.judges = ReplicaJudges(self.cluster)
        self.producer, self.reader = HistoryProducer(), HistoryReader(self.reads_anywhere)
        self.cluster.on_answer = self._answered
        self.crash_rate = self.rng.choice((0.0, 0.01, 0.04))
        self.fault_rate = self.rng.choice((0.02, 0.08, 0.2))
        self._down_ms: dict[int, float] = {}

    def _answered(self, broker: BrokerOfCores, answer: AnswerProduce) -> None:
        sequence = self.producer.answered(answer)
        if sequence is not None:
            self.judges.acknowledged(answer, decode_header(_BATCHES[sequence]).crc)

    def run(self) -> None:
        for _ in range(self.steps):
            self.step()
            self.judges.check()
            assert self.reader.read == self.judges.committed[: len(self.reader.read)], (
                "V14: a reader saw something else"
            )
        self.heal()

    def step(self) -> None:
        rng, cluster = self.rng, self.cluster
        cluster.now_ms += rng.choice((0.0, 0.2, 1.0, 4.0))
        cluster.tick()
        if rng.random() < self.crash_rate:
            self._crash_or_restart()
        elif rng.random() < self.fault_rate:
            rng.choice(self._faults())()
        elif rng.random() < 0.1 and (asking := [broker for broker in cluster.live() if broker.proposals]):
            rng.choice((cluster.lose_proposal, lambda broker: cluster.decide_proposal(broker, lost=True)))(asking[0])
        elif rng.random() < 0.05 and cluster.late_proposals:
            cluster.decide_late_proposal(rng.randrange(len(cluster.late_proposals)))
        elif rng.random() < 0.2:
            self.producer.act(cluster)
        elif rng.random() < 0.05:
            self._produce_carelessly()
        elif rng.random() < (0.3 if self.reads_anywhere else 0.1):
            self.reader.act(cluster, rng)
        elif steps := cluster.steps():
            rng.choice(steps)()

    def _produce_carelessly(self) -> None:
        """acks=0 or 1, to whoever believes to lead."""
        believers = [broker for broker in self.cluster.live() if broker.leader() is not None]
        if believers:
            self.cluster.produce(self.rng.choice(believers).broker_id, _ANONYMOUS, acks=self.rng.choice((0, 1)))

    def _crash_or_restart(self) -> None:
        dead = [broker for broker in self.cluster.brokers.values() if not broker.alive]
        if dead and self.rng.random() < 0.7:
            self.rng.choice(dead).restart()
        elif self.cluster.live():
            self.rng.choice(self.cluster.live()).crash()

    def _faults(self) -> list[Callable[[], None]]:
        cluster, rng = self.cluster, self.rng
        broker_id = rng.choice(list(cluster.brokers))
        broker = cluster[broker_id]
        state = cluster.controller.partitions[KEY]
        faults: list[Callable[[], None]] = [
            lambda: cluster.advance(rng.choice((10.0, 40.0, 200.0)), settle=False),
            lambda: cluster.controller.fence(broker_id),
            lambda: cluster.cut.add((broker_id, rng.choice(list(cluster.brokers)))),
            cluster.cut.clear,
        ]
        faults.extend(bound(cluster.break_link, link) for link in cluster.links())
        if broker.alive and cluster.controller.lives[broker_id].broker_epoch == broker.broker_epoch:
            faults.append(lambda: self._unfence(broker_id))
            if broker_id in state.in_sync_replicas and not cluster.controller.lives[broker_id].fenced:
                faults.extend([lambda: cluster.controller.move(KEY, broker_id)] * 4)
        if self.rots:
            faults.extend([lambda: self._rot(broker)] * 8)
        return faults

    def _rot(self, broker: BrokerOfCores) -> None:
        """A bit of a copy flips, where another member of the ISR has all; it is found, and the controller told."""
        life, state = (broker.broker_id, broker.lives), self.cluster.controller.partitions[KEY]
        others = set(state.in_sync_replicas) - {broker.broker_id}
        if not broker.alive or life in self._rotten or not others or KEY not in broker.logs or not broker.ends()[1]:
            return
        self._rotten.add(life)
        headers = broker.headers_below(KEY, broker.ends()[1])
        lengths = [header.length for header in headers]
        broken = self.rng.randrange(len(lengths))
        broker.flip_bit(sum(lengths[:broken]) + self.rng.randrange(HEADER_BYTES, lengths[broken]))
        broker.manager.log_damaged(KEY, CorruptMessage("a bit has flipped"), self.cluster.now_ms)
        broker.run()
        if KEY in broker.offline:  # else it has no role yet, and hears of no damage
            self.cluster.controller.damage(broker.broker_id, KEY)

    def _unfence(self, broker_id: int) -> None:
        self.cluster.controller.change_life(broker_id)
        self.cluster.controller.elect_missing()
        self.cluster.controller.commit(KEY)

    def heal(self) -> None:
        """The liveness phase: faults end, and V19 must come true."""
        cluster = self.cluster
        cluster.cut.clear()
        for broker in cluster.brokers.values():
            if not broker.alive:
                broker.restart()
            self._unfence(broker.broker_id)
        cluster.settle()
        for _ in range(40 if not self.reads_anywhere else 20):
            self.producer.act(cluster)
            cluster.settle()
            cluster.advance(50.0)
            self.judges.check()
            if self.reads_anywhere:
                self._read_meanwhile()
        if self.reads_anywhere:
            self._come_to_rest()
        state = cluster.controller.partitions[KEY]
        ends = {broker.ends() for broker in cluster.brokers.values()}
        assert sorted(state.in_sync_replicas) == [1, 2, 3], f"V19: the ISR is {state.in_sync_replicas}"
        assert len(ends) == 1, f"V19: the replicas end at {ends}"
        assert len(set(next(iter(ends)))) == 1, f"V19: HW, durable end and end are {ends}"
        assert not self.producer.unanswered, f"V19: unanswered {self.producer.unanswered}"
        if self.reads_anywhere:
            self._read_to_the_end()

    def _come_to_rest(self) -> None:
        for _ in range(4):
            self.cluster.settle()
            self.cluster.advance(50.0)

    def _read_meanwhile(self) -> None:
        """News reach some replicas sooner than others, and the reader hops between them."""
        self.producer.act(self.cluster)
        for _ in range(30):
            if steps := self.cluster.steps():
                self.rng.choice(steps)()
            if self.rng.random() < 0.5:
                self.reader.act(self.cluster, self.rng)
        self.judges.check()

    def _read_to_the_end(self) -> None:
        for _ in range(20):
            self.reader.act(self.cluster, self.rng)
            self.cluster.settle()
            self.cluster.advance(50.0)
        unread = self.judges.committed_end - (self.reader.read[-1].next_offset if self.reader.read else 0)
        assert self.reader.read == self.judges.committed, f"V14: {unread} records are never shown"
