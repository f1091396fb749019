"""A cluster in one thread: the real cores on the real storage, joined by fake wires: each send test is a receive test.

Nothing happens by itself. Tests call `settle()` (all that can happen without time passing does) or `advance(ms)`;
random histories pick one of `steps()` at a time. Disk work, flushes, messages, images and proposals each wait in a
queue of their own and may be delayed, and, where a crash or a broken wire allows it, lost.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, ParamSpec

from minilog.errors import MinilogError
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import Buffer
from minilog.stream_messages import FETCH, REPLICATE, StreamMessage
from minilog.v1 import data_pb2, peer_pb2
from minilog_broker.replication.leader.delete_records import DeleteRecordsRequest
from minilog_broker.replication.leader.pending import TransactionalWrite
from minilog_broker.replication.leader.transaction_markers import MarkersRequest
from minilog_broker.replication.partition_state import TopicConfig
from minilog_broker.replication.replica_effects import (
    AnswerProduce,
    EndMarker,
    ProposeInSyncReplicas,
    RegisterPartition,
)
from minilog_broker.replication.settings import ReplicationSettings
from minilog_broker.storage.markers import CoordinatorEpoch
from tests.unit.replication.broker import KEY, NOW_US, TOPIC_ID, BrokerOfCores, Link, batch
from tests.world.controller import InstantController

__all__ = ["KEY", "NOW_US", "TOPIC_ID", "BrokerOfCores", "Link", "ReplicaCluster", "batch", "count_effects", "runs_of"]


# What the default leaves to machines that are busy is not needed here.
quick_settings = functools.partial(ReplicationSettings, session_keepalive_ms=100.0)
COORDINATOR_PARTITION = 3  # of `__transactions`


P = ParamSpec("P")


def bound(what: Callable[P, object], *given: P.args, **named: P.kwargs) -> Callable[[], None]:
    """To be done later with what there is now."""

    def step() -> None:
        what(*given, **named)

    return step


SESSION_MS = 3_000.0  # of a broker with the controller


class ReplicaCluster:
    """See the module's text. Brokers are 1 to `brokers`; partition KEY is on all of them."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        min_in_sync: int = 2,
        settings: ReplicationSettings | None = None,
        flush_on_append: bool = True,
        leader_id: int | None = 1,
    ) -> None:
        self.now_ms = 1_000.0
        self.settings = settings or quick_settings()
        self.config = TopicConfig(min_in_sync, 8 << 20, 1 << 30, 1 << 40, flush_on_append, -1, -1, False)
        self.controller = InstantController(self.config)
        self.cut: set[tuple[int, int]] = set()  # (follower, leader) that cannot reach each other
        self.on_answer: Callable[[BrokerOfCores, AnswerProduce], None] | None = None
        self.late: set[tuple[int, int]] = set()  # (follower, leader) between whom nothing arrives yet, and all is kept
        self.late_proposals: list[tuple[int, int, ProposeInSyncReplicas]] = []  # who asked, in which life, for what
        self._next_session_id = 0
        self._next_ticket = 0
        self.brokers = {b: BrokerOfCores(self, b) for b in range(1, brokers + 1)}
        for broker in self.brokers.values():
            broker.register()
        if leader_id is not None:
            self.controller.create(KEY, tuple(self.brokers), leader_id)
            self.settle()

    def __getitem__(self, broker_id: int) -> BrokerOfCores:
        return self.brokers[broker_id]

    def live(self) -> list[BrokerOfCores]:
        return [broker for broker in self.brokers.values() if broker.alive]

    def answered(self, broker: BrokerOfCores, answer: AnswerProduce) -> None:
        if self.on_answer is not None:
            self.on_answer(broker, answer)

    # -- wires

    def session_id(self) -> int:
        self._next_session_id += 1
        return self._next_session_id

    def break_link(self, link: Link, *, tell_follower: bool = True) -> None:
        """The stream is gone, and all that was under way on it."""
        leader, follower = self.brokers[link.leader_id], self.brokers[link.follower_id]
        link.up.clear()
        link.down.clear()
        if link.session_id is not None and leader.sessions.pop(link.session_id, None) is not None and leader.alive:
            leader.manager.close_session(link.session_id, self.now_ms)
            leader.run()
        if tell_follower and follower.links.get(link.leader_id) is link:
            del follower.links[link.leader_id]
            if follower.alive:
                follower.manager.fetcher_stream_closed(link.leader_id, self.now_ms)
                follower.run()

    def open_link(self, link: Link) -> None:
        """The stream reaches its leader, or is refused."""
        leader, follower = self.brokers[link.leader_id], self.brokers[link.follower_id]
        if not leader.alive or (link.follower_id, link.leader_id) in self.cut or follower.broker_epoch is None:
            self.break_link(link)
            return
        link.session_id = self.session_id()
        leader.sessions[link.session_id] = link
        leader.manager.open_follower_session(link.session_id, link.follower_id, follower.broker_epoch, self.now_ms)
        leader.run()
        if link.session_id in leader.sessions:
            follower.manager.fetcher_stream_opened(link.leader_id, self.now_ms)
            follower.run()

    def links(self) -> list[Link]:
        return [link for broker in self.live() for link in broker.links.values()]

    def pull_up(self, link: Link) -> None:
        follower = self.brokers[link.follower_id]
        message = follower.manager.next_request(link.leader_id, self.now_ms)
        follower.run()
        if message is None:
            link.up_ready = False
        else:
            link.up.append(peer_pb2.ReplicateRequest.FromString(message.SerializeToString()))

    def pull_down(self, link: Link) -> None:
        leader = self.brokers[link.leader_id]
        assert link.session_id is not None
        message = leader.next_message(link.session_id)
        if message is None:
            link.down_ready = False
        else:
            link.down.append(REPLICATE.response.decode(b"".join(REPLICATE.response.parts(message))))

    def deliver_up(self, link: Link) -> None:
        leader = self.brokers[link.leader_id]
        assert link.session_id is not None
        leader.manager.replicate_request(link.session_id, link.up.popleft(), self.now_ms)
        leader.run()

    def deliver_down(self, link: Link) -> None:
        follower = self.brokers[link.follower_id]
        follower.manager.leader_message(link.leader_id, link.down.popleft(), self.now_ms)
        follower.run()

    def replay(self, broker: BrokerOfCores) -> None:
        """The next committed batch reaches a broker."""
        self.replay_slice(broker, 1)

    def replay_slice(self, broker: BrokerOfCores, count: int) -> None:
        """So many committed batches reach a broker at once: it sees what they come to."""
        images = self.controller.images[broker.images_replayed : broker.images_replayed + count]
        broker.images_replayed += count
        states = {state.key: state for image in images for state in image.states}
        removed = [key for image in images for key in image.removed]
        for image in images:
            broker.config = image.config or broker.config
        topics = {state.key.topic_id for state in states.values()}
        topics |= {TOPIC_ID for image in images if image.config is not None}
        configs, names = dict.fromkeys(topics, broker.config), dict.fromkeys(topics, "topic")
        broker.manager.apply_image(states.values(), removed, configs, names, images[-1].lives, self.now_ms)
        broker.run()

    def decide_proposal(self, broker: BrokerOfCores, *, lost: bool = False) -> None:
        """The controller decides; its answer is on its way, or lost."""
        asked = broker.proposals.popleft()
        assert broker.broker_epoch is not None
        answer = self.controller.propose(broker.broker_id, broker.broker_epoch, asked)
        broker.proposal_answers.append((asked.key, None if lost else answer))

    def lose_proposal(self, broker: BrokerOfCores) -> None:
        """The call does not reach the controller, or late, when nobody waits for its answer any more."""
        asked = broker.proposals.popleft()
        assert broker.broker_epoch is not None
        self.late_proposals.append((broker.broker_id, broker.broker_epoch, asked))
        broker.proposal_answers.append((asked.key, None))

    def decide_late_proposal(self, index: int) -> None:
        self.controller.propose(*self.late_proposals.pop(index))

    def answer_proposal(self, broker: BrokerOfCores) -> None:
        key, answer = broker.proposal_answers.popleft()
        if answer is None:
            broker.manager.proposal_lost(key, self.now_ms)
        else:
            broker.manager.proposal_answered(key, answer, self.now_ms)
        broker.run()

    # -- what can happen

    def steps(self, *, controller: bool = True) -> list[Callable[[], None]]:
        """Everything that could happen next without time passing; without `controller`, but its decisions."""
        found: list[Callable[[], None]] = []
        for broker in self.live():
            if broker.disk:
                found.append(broker.work)
            if broker.dirty:
                found.append(broker.flush)
            if broker.reads:
                found.append(broker.read)
            if broker.found:
                found.append(broker.tell_of_read)
            if broker.images_replayed < len(self.controller.images):
                found.append(bound(self.replay, broker))
            if broker.proposals and controller:
                found.append(bound(self.decide_proposal, broker))
            if broker.proposal_answers:
                found.append(bound(self.answer_proposal, broker))
            found.extend(bound(self.pull_consumer, broker, session_id) for session_id in broker.consumers_ready)
        for link in self.links():
            if link.session_id is None:
                found.append(bound(self.open_link, link))
            arrives = (link.follower_id, link.leader_id) not in self.late
            for flag, step in (
                (link.up_ready, self.pull_up),
                (link.down_ready, self.pull_down),
                (link.up and arrives, self.deliver_up),
                (link.down and arrives, self.deliver_down),
            ):
                if flag and link.session_id is not None:
                    found.append(bound(step, link))
        return found

    def settle(self, *, controller: bool = True) -> None:
        """Let all happen that can without time passing; without `controller`, but its decisions."""
        for broker in self.live():
            broker.run()
        for _ in range(20_000):
            steps = self.steps(controller=controller)
            if not steps:
                return
            steps[0]()
        raise AssertionError("the world does not come to rest")

    def advance(self, ms: float, *, settle: bool = True) -> None:
        """Let time pass, with every tick when it is due, and settle after each."""
        end_ms = self.now_ms + ms
        while True:
            due_ms = min((broker.manager.next_tick_ms() for broker in self.live()), default=math.inf)
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.tick()
            if settle:
                self.settle()
        self.now_ms = end_ms

    def tick(self) -> None:
        for broker in self.live():
            if broker.manager.next_tick_ms() <= self.now_ms:
                broker.manager.tick(self.now_ms)
                broker.run()

    # -- clients

    def produce(
        self,
        broker_id: int,
        data: bytes | None = None,
        *,
        acks: int = -1,
        timeout_ms: float = 5_000,
        leader_epoch: int = -1,
        key: PartitionKey = KEY,
        transaction: TransactionalWrite | None = None,
        now_us: int | None = None,
    ) -> int:
        """Send a batch; the ticket finds the answer in `broker.answers`."""
        self._next_ticket += 1
        broker = self.brokers[broker_id]
        data = batch(key=key) if data is None else data
        said = (key, leader_epoch, acks, timeout_ms, data, self.now_ms, transaction)
        broker.manager.produce(self._next_ticket, *said, now_us=now_us)
        broker.run()
        return self._next_ticket

    def write_markers(self, broker_id: int, *markers: EndMarker, epoch: int = 0) -> int:
        """Ask for markers; the ticket finds the answer in `broker.marked`."""
        self._next_ticket += 1
        broker = self.brokers[broker_id]
        coordinator = CoordinatorEpoch(COORDINATOR_PARTITION, epoch)
        request = MarkersRequest(self._next_ticket, "spark-1", coordinator, markers, NOW_US)
        broker.manager.write_markers(KEY, request, self.now_ms)
        broker.run()
        return self._next_ticket

    def delete_records(self, broker_id: int, offset: int, *, timeout_ms: float = 5_000, leader_epoch: int = -1) -> int:
        """Ask that records below `offset` go; the ticket finds the answer in `broker.deleted`."""
        self._next_ticket += 1
        broker = self.brokers[broker_id]
        request = DeleteRecordsRequest(self._next_ticket, offset, self.now_ms + timeout_ms)
        broker.manager.delete_records(KEY, leader_epoch, request, self.now_ms)
        broker.run()
        return self._next_ticket

    def register(self, broker_id: int, error: MinilogError | None = None) -> RegisterPartition:
        """The coordinator answers the oldest question of a broker."""
        broker = self.brokers[broker_id]
        asked = broker.registrations.popleft()
        broker.manager.registered(asked.key, asked.number, error, self.now_ms)
        broker.run()
        return asked

    def consume(
        self, broker_id: int, offset: int, *, credit: int = 1 << 30, isolation: int = 1, **position: int
    ) -> int:
        """Open a consumer's session with one position; what comes is in `broker.consumers[session]`."""
        broker, session_id = self.brokers[broker_id], self.session_id()
        broker.consumers[session_id] = []
        first = data_pb2.FetchRequest(isolation_level=data_pb2.IsolationLevel.ValueType(isolation))
        broker.manager.open_consumer_session(session_id, first, self.now_ms)
        self.fetch(broker_id, session_id, offset, credit=credit, **position)
        return session_id

    def fetch(self, broker_id: int, session_id: int, offset: int, *, credit: int = 1 << 30, **position: int) -> None:
        fields = {"position_number": 1, "leader_epoch": -1} | position
        request = data_pb2.FetchRequest(credit_bytes=credit)
        wanted = request.positions.add(fetch_offset=offset, **fields)
        wanted.partition_id.topic_id, wanted.partition_id.partition = KEY
        self.brokers[broker_id].manager.fetch_request(session_id, request, self.now_ms)
        self.brokers[broker_id].run()

    def pull_consumer(self, broker: BrokerOfCores, session_id: int) -> None:
        message = broker.next_message(session_id)
        if message is None:
            broker.consumers_ready.pop(session_id, None)
        else:
            broker.consumers[session_id].append(FETCH.response.decode(b"".join(FETCH.response.parts(message))))

    def controller_answers(self, broker_id: int) -> None:
        """A heartbeat that was sent now is answered, and all is replayed that was committed by then."""
        self.brokers[broker_id].manager.session_lasts_until(self.now_ms, self.now_ms + SESSION_MS, self.now_ms)
        self.brokers[broker_id].run()

    def runs(self, broker_id: int, session_id: int) -> list[data_pb2.PartitionRun]:
        """What a consumer was sent, in order."""
        return [run for run, _ in self.pushed(broker_id, session_id)]

    def pushed(self, broker_id: int, session_id: int) -> list[tuple[data_pb2.PartitionRun, Buffer]]:
        """The same with the batches of each run."""
        return [pair for sent in self.brokers[broker_id].consumers[session_id] for pair in runs_of(sent)]


def runs_of(sent: StreamMessage[Any]) -> list[tuple[data_pb2.PartitionRun, Buffer]]:
    """The runs of a message, each with its batches."""
    return list(zip(sent.message.runs, sent.payloads, strict=True))


def count_effects(broker: BrokerOfCores) -> dict[str, int]:
    """How many effects of each kind a life has asked for."""
    counts: dict[str, int] = defaultdict(int)
    for effect in broker.history:
        counts[type(effect).__name__] += 1
    return counts
