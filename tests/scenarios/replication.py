"""The verbs of replication: what clients, coordinators, the controller, disks and the network do to brokers 1 to 3.

All have one partition, and broker 1 leads it. After a command everything happens that needs no time, unless the world
is on `hold`. In the trace `logs` shows `high watermark/end` of each broker. The durable end stands between them if it
is lower, and the log start before them if it is above 0. `leader` shows the leader epoch and the ISR of the controller.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

from minilog.errors import CorruptMessage, error_from_wire
from minilog.record_batch.header import Buffer, iterate_headers
from minilog.v1 import data_pb2, metadata_pb2
from minilog_broker.replication import replica_effects
from minilog_broker.replication.replica_effects import EndMarker
from minilog_broker.replication.stable_offsets import KnownPartition, Question
from tests.scenarios.partitions import error_named
from tests.scenarios.world import CommandError, World
from tests.unit.replication.broker import KEY, BrokerOfCores, batch, transactional
from tests.unit.replication.cluster import ReplicaCluster, quick_settings
from tests.unit.replication.transacting import UNCOMMITTED, WRITE, appends

SESSION_MS = 3_000.0


class ReplicationWorld(World):
    """Brokers with the copies of one partition, and a controller."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster()

    def cluster(
        self,
        brokers: int = 3,
        *,
        min: int = 2,
        flush: bool = True,
        lag: float | None = None,
        unclean: bool = False,
    ) -> None:
        """So many brokers. `min`: min.insync.replicas. `lag`: replica.lag.time.max.ms. `flush`: each append is synced.
        `unclean`: unclean.leader.election.enable."""
        settings = quick_settings() if lag is None else quick_settings(replica_lag_time_max_ms=lag)
        self._cluster = ReplicaCluster(brokers, min_in_sync=min, settings=settings, flush_on_append=flush)
        self._config = self._cluster.config
        if unclean:
            self.alter(unclean=True)
            for broker_id in self._cluster.brokers:
                self.heard(broker_id)
            self._cluster.settle()
        self._asked: dict[int, tuple[str, int]] = {}  # calls without an answer: name and broker, by their tickets
        self._consumers: dict[str, tuple[int, int]] = {}  # broker and session, by name
        self._known: dict[str, KnownPartition] = {}  # of those who ask for the stable offset
        self._read: dict[str, int] = {}  # runs of a consumer that are in the trace
        self._numbers = itertools.count(1)
        self._holds = False
        self._seen_effects = {broker_id: self._history(broker) for broker_id, broker in self._cluster.brokers.items()}
        self._seen = self.observed()

    def _broker(self, broker_id: int) -> BrokerOfCores:
        if broker_id not in self._cluster.brokers:
            raise CommandError(f"there is no broker {broker_id}")
        return self._cluster[broker_id]

    # -- clients

    def produce(
        self,
        name: str = "",
        *,
        at: int = 1,
        rows: int = 1,
        acks: int = -1,
        timeout: float = 5_000,
        epoch: int = -1,
        producer: str = "",
        times: int = 1,
    ) -> None:
        """A batch, by `producer` ID:EPOCH:SEQUENCE. Without a name it is p1, p2, and so on; with `times` > 1 no answer
        is traced but an error."""
        who = tuple(int(word) for word in producer.split(":")) if producer else (-1, -1, -1)
        for _ in range(times):
            data = batch(rows, producer=(who[0], who[1], who[2]))
            ticket = self._cluster.produce(at, data, acks=acks, timeout_ms=timeout, leader_epoch=epoch)
            self._asked[ticket] = (name or f"p{next(self._numbers)}", at) if times == 1 else ("", at)

    def send(
        self, producer: int, sequence: int = 0, *, at: int = 1, rows: int = 1, acks: int = -1, name: str = ""
    ) -> None:
        """A batch of a transaction."""
        data = transactional(batch(rows, producer=(producer, 0, sequence)))
        ticket = self._cluster.produce(at, data, acks=acks, transaction=WRITE)
        self._asked[ticket] = name or f"p{next(self._numbers)}", at

    def register(self, at: int = 1, error: str = "") -> None:
        """The coordinator of transactions answers the oldest question of a leader."""
        self._cluster.register(at, error_named(error) if error else None)

    def begin(self, *producers: int, at: int = 1) -> None:
        """Producers write their first record in a transaction, and it is registered and committed to the log."""
        for producer in producers:
            self.send(producer, at=at, name=f"first of {producer}")
            self._cluster.register(at)
            self._cluster.settle()
            self._take_answers()
            self.lines.clear()
        self._seen, self._seen_effects[at] = self.observed(), self._history(self._broker(at))

    def mark(self, *markers: str, at: int = 1, name: str = "marker") -> None:
        """Markers of one call: `commit:7`, with the last sequence (0) where it is another (`commit:7:3`), `abort:8`."""
        self._asked[self._cluster.write_markers(at, *map(_marker, markers))] = name, at

    def delete(
        self, offset: int, *, at: int = 1, timeout: float = 5_000, epoch: int = -1, name: str = "delete"
    ) -> None:
        """Records below an offset."""
        ticket = self._cluster.delete_records(at, offset, timeout_ms=timeout, leader_epoch=epoch)
        self._asked[ticket] = name, at

    def consume(
        self,
        name: str,
        offset: int,
        *,
        at: int = 1,
        epoch: int = -1,
        last_epoch: int | None = None,
        uncommitted: bool = False,
        end: int | None = None,
    ) -> None:
        """A consumer's session with one position. `uncommitted`: it reads open and aborted transactions, too."""
        optional = {"last_fetched_epoch": last_epoch, "end_offset": end}
        position = {"leader_epoch": epoch} | {key: value for key, value in optional.items() if value is not None}
        isolation = UNCOMMITTED if uncommitted else data_pb2.ISOLATION_LEVEL_READ_COMMITTED
        self._consumers[name] = at, self._cluster.consume(at, offset, isolation=isolation, **position)
        self._read[name] = 0

    def fetch(self, name: str, offset: int, *, epoch: int = -1, last_epoch: int = -1) -> None:
        """Another position of the session."""
        at, session_id = self._consumers[name]
        position = {"position_number": 2, "leader_epoch": epoch, "last_fetched_epoch": last_epoch}
        self._cluster.fetch(at, session_id, offset, **position)

    def latest(self, at: int = 1) -> None:
        """The four ends that a broker answers a client."""
        entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1)
        entry.partition_id.CopyFrom(KEY.to_wire())
        found = self._broker(at).manager.list_offsets(entry, self._cluster.now_ms)
        ends = f"{found.last_stable_offset}, {found.high_watermark}, {found.log_end_offset}"
        start_and_ends = f"start {found.log_start_offset}, stable, committed and end {ends}"
        self.outcome(f"latest of {at}", error_from_wire(found.error), start_and_ends)

    def ask(self, name: str = "asker", *, at: int = 1) -> None:
        """A broker asks for the stable offset, with what it knows by its last answer."""
        known = self._known.get(name, KnownPartition())
        found = self._broker(at).manager.stable_offset(Question(KEY, known), self._cluster.now_ms)
        if found is None:
            self.note(f"{name}: no news")
            return
        self._known[name] = KnownPartition(found.leader_epoch, found.last_stable_offset, found.log_start_offset)
        self.note(
            f"{name}: epoch {found.leader_epoch}, start {found.log_start_offset}, stable {found.last_stable_offset}, "
            f"the known epoch ends at {found.end_of_epoch}"
        )

    def watch(self, at: int = 1) -> None:
        """Somebody wants to be woken when the stable offset moves."""
        self._broker(at).manager.watch(KEY)

    def unwatch(self, at: int = 1) -> None:
        self._broker(at).manager.unwatch(KEY)

    # -- time, disks and the network

    def hold(self) -> None:
        """Nothing happens by itself until `resume`."""
        self._holds = True

    def resume(self) -> None:
        self._holds = False

    def advance(self, ms: float) -> None:
        """Time passes, with all that happens meanwhile."""
        self._cluster.advance(ms, settle=not self._holds)

    def stand_still(self, ms: float) -> None:
        """All processes stand still, and have a late tick then."""
        self._cluster.now_ms += ms
        self._cluster.tick()

    def write(self, at: int) -> None:
        """The disk of a broker does its commands, and syncs nothing."""
        while self._broker(at).disk:
            self._broker(at).work()

    def sync(self, at: int) -> None:
        self._broker(at).flush()

    def lose_sync(self, at: int) -> None:
        """The sync of what is written does not come."""
        self._broker(at).dirty.clear()

    def replay(self, at: int) -> None:
        """A broker hears of all that the controller has committed."""
        while self._broker(at).images_replayed < len(self._cluster.controller.images):
            self._cluster.replay(self._broker(at))

    def cut(self, *followers: int, leader: int = 1) -> None:
        """Followers and their leader hear nothing of each other."""
        for follower in followers:
            self._cluster.cut.add((follower, leader))
            if leader in self._cluster[follower].links:
                self._cluster.break_link(self._cluster[follower].links[leader])

    def heal(self) -> None:
        """The network is whole again."""
        self._cluster.cut.clear()

    def crash(self, *brokers: int) -> None:
        """The process dies and the machine loses power."""
        for broker_id in brokers:
            self._broker(broker_id).crash()

    def restart(self, *brokers: int) -> None:
        for broker_id in brokers:
            self._broker(broker_id).restart()
            self._seen_effects[broker_id] = 0

    def hang(self, at: int) -> None:
        """A process stands still. Its sessions stay open."""
        self._broker(at).alive = False

    def wake(self, at: int) -> None:
        self._broker(at).alive = True

    def fill(self, at: int) -> None:
        """The disk of a broker is full."""
        self._broker(at).files.fill("/")

    def free(self, at: int) -> None:
        self._broker(at).files.fill()

    def fail(self, at: int, call: str, code: int) -> None:
        """A call of the system fails on the disk of a broker."""
        self._broker(at).files.fail(call, code)

    def wipe(self, at: int) -> None:
        """The disk of a broker that is down is empty."""
        self._broker(at).files.wipe()

    def rot(self, at: int) -> None:
        """A bit of the first batch of a copy flips, which is found."""
        broker = self._broker(at)
        broker.flip_bit(-1 - sum(header.length for header in broker.headers()[1:]))
        broker.manager.log_damaged(KEY, CorruptMessage("a bit has flipped"), self._cluster.now_ms)
        broker.run()

    def stop_leading(self, at: int) -> None:
        """A broker is about to stop."""
        self._broker(at).manager.stop_leading(self._cluster.now_ms)
        self._broker(at).run()

    def retain(self, offset: int, *, at: int = 1) -> None:
        """Retention of a broker moves its log start."""
        self._broker(at).logs[KEY].advance_log_start(offset)
        self._broker(at).manager.log_start_moved(KEY, self._cluster.now_ms)

    # -- the controller

    def fence(self, *brokers: int) -> None:
        """Their heartbeats ended."""
        for broker_id in brokers:
            self._cluster.controller.fence(broker_id)

    def unfence(self, broker_id: int) -> None:
        self._cluster.controller.change_life(broker_id)

    def alter(self, *, min: int | None = None, flush: bool | None = None, unclean: bool | None = None) -> None:
        """Settings of the topic."""
        config = self._config
        self._config = replace(
            config,
            min_in_sync_replicas=config.min_in_sync_replicas if min is None else min,
            flush_on_append=config.flush_on_append if flush is None else flush,
            unclean_leader_election=config.unclean_leader_election if unclean is None else unclean,
        )
        self._cluster.controller.alter(self._config)

    def registers(self, broker_id: int) -> None:
        """A new life of a broker, while its old process is still heard."""
        self._cluster.controller.register(broker_id)

    def move(self, leader: int) -> None:
        """Another leader."""
        self._cluster.controller.move(KEY, leader)

    def in_sync(self, *members: int) -> None:
        """The controller has another ISR."""
        self._cluster.controller.set_state(KEY, in_sync_replicas=members)

    def damage(self, broker_id: int) -> None:
        """The controller hears that a copy is damaged."""
        self._cluster.controller.damage(broker_id, KEY)

    def delete_topic(self) -> None:
        self._cluster.controller.delete(KEY)

    def rest(self) -> None:
        """All happens that can without time passing and without the controller."""
        self._cluster.settle(controller=False)

    def decide(self, at: int = 1, *, answers: bool = True) -> None:
        """The controller decides on the proposal of a broker. Its answer arrives, or is lost."""
        self._cluster.decide_proposal(self._broker(at), lost=not answers)
        self._cluster.answer_proposal(self._broker(at))

    def lose(self, at: int = 1) -> None:
        """The proposal of a broker does not reach the controller, or late."""
        self._cluster.lose_proposal(self._broker(at))
        self._cluster.answer_proposal(self._broker(at))

    def decide_late(self) -> None:
        """A proposal that was lost reaches the controller."""
        self._cluster.decide_late_proposal(0)

    def fence_unseen(self, broker_id: int, says: bool = True) -> None:
        """A broker is fenced, or is not any more, in the controller's image. The brokers hear of it later."""
        lives = self._cluster.controller.lives
        lives[broker_id] = replace(lives[broker_id], fenced=says)

    def disk_answers(self, at: int, says: bool) -> None:
        """Whether the disk of a broker answers, when it is looked at."""
        self._broker(at).manager.disk_looked_at(answers=says, has_space=True)

    def heard(self, at: int, *, ago: float = 0.0) -> None:
        """The controller has answered a heartbeat that the broker sent so long ago."""
        sent_ms = self._cluster.now_ms - ago
        self._broker(at).manager.session_lasts_until(sent_ms, sent_ms + SESSION_MS, self._cluster.now_ms)
        self._broker(at).run()

    # -- what follows, and what is seen

    def settle_down(self) -> None:
        if not self._holds:
            self._cluster.settle()
        for broker_id, broker in self._cluster.brokers.items():
            for effect in broker.history[self._seen_effects[broker_id] :]:
                self._note_effect(broker_id, effect)
            self._seen_effects[broker_id] = self._history(broker)
        self._take_answers()
        for name, (at, session_id) in self._consumers.items():
            pushed = self._cluster.pushed(at, session_id) if session_id in self._cluster[at].consumers else []
            for run, batches in pushed[self._read[name] :]:
                self.outcome(f"{name} reads", error_from_wire(run.error), _run(run, batches))
            self._read[name] = len(pushed)

    def _history(self, broker: BrokerOfCores) -> int:
        return len(broker.history)

    def _note_effect(self, broker_id: int, effect: replica_effects.Effect) -> None:
        match effect:
            case replica_effects.ProposeInSyncReplicas(members=members):
                self.note(f"{broker_id} proposes isr {' '.join(str(member) for member, _ in members)}")
            case replica_effects.TruncateLog(end_offset=end_offset):
                self.note(f"{broker_id} truncates to {end_offset}")
            case replica_effects.StartLogAt(offset=offset, committed_lost=lost):
                self.note(f"{broker_id} begins anew at {offset}, and loses {lost} committed records")
            case replica_effects.PartitionOffline():
                self.note(f"{broker_id} takes its copy offline")
            case replica_effects.StableOffsetMoved():
                self.note(f"{broker_id} wakes those who watch")
            case replica_effects.RegisterPartition(producer_id=producer_id):
                self.note(f"{broker_id} asks whether producer {producer_id} is registered")

    def _take_answers(self) -> None:
        for ticket, (name, at) in list(self._asked.items()):
            broker = self._cluster[at]
            if (produced := broker.answers.get(ticket)) is not None:
                if name or produced.error is not None:
                    self.outcome(name or "a batch", produced.error, f"offset {produced.base_offset}")
            elif ticket in broker.marked:
                self.outcome(name, broker.marked[ticket])
            elif (deleted := broker.deleted.get(ticket)) is not None:
                self.outcome(name, deleted.error, f"the log starts at {deleted.low_watermark}")
            else:
                continue
            del self._asked[ticket]

    def appended(self, at: int = 1) -> None:
        """How many batches a leader has appended in this life."""
        self.note(f"{at} appended {appends(self._cluster, at)} batches")

    def observed(self) -> Mapping[str, str]:
        state = self._cluster.controller.partitions.get(KEY)
        found = {}
        if state is not None:
            members = " ".join(map(str, sorted(state.in_sync_replicas)))
            found["leader"] = f"{state.leader_id} in epoch {state.leader_epoch}, isr {members or 'nobody'}"
            broker = self._cluster.brokers.get(state.leader_id)
            leader = broker.leader() if broker is not None and broker.alive else None
            if leader is not None and leader.in_sync.maximal != leader.in_sync.committed:
                found["leader"] += f", maximal {' '.join(map(str, sorted(leader.in_sync.maximal)))}"
        logs = [self._log(broker_id, broker) for broker_id, broker in self._cluster.brokers.items()]
        return found | {"logs": ", ".join(logs)}

    def _log(self, broker_id: int, broker: BrokerOfCores) -> str:
        if not broker.alive:
            return f"{broker_id} down"
        if KEY not in broker.logs:
            return f"{broker_id} none"
        high_watermark, durable_end, end = broker.ends()
        start = broker.logs[KEY].log_start_offset
        durable = "" if durable_end == end else f"{durable_end}/"
        return f"{broker_id} {f'{start}:' if start else ''}{high_watermark}/{durable}{end}"


def _run(run: data_pb2.PartitionRun, batches: Buffer) -> str:
    if run.HasField("diverging_epoch"):
        return f"its log diverges at {run.diverging_epoch.end_offset} of epoch {run.diverging_epoch.epoch}"
    found = [header for _, header in iterate_headers(batches)]
    words = f"{found[0].base_offset}-{found[-1].next_offset - 1}" if found else "nothing"
    words += f" below {run.high_watermark}"
    if run.last_stable_offset != run.high_watermark:
        words += f", stable {run.last_stable_offset}"
    if run.aborted_producer_ids:
        words += f", aborted {' '.join(map(str, run.aborted_producer_ids))}"
    return words


def _marker(word: str) -> EndMarker:
    verdict, producer_id, *last = word.split(":")
    committed = {"commit": True, "abort": False}[verdict]
    return EndMarker(int(producer_id), committed, int(last[0]) if last else 0 if committed else -1)
