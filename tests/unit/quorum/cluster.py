"""Quorum nodes over real logs on disks that can lose power, joined by a wire in memory, on virtual time.

Everything is an event in one heap: a disk's work, a message on its way, a timer. A stream delivers in order; a request
may be lost or delivered twice. A machine can lose power, be stopped, paused, cut off, or lose its disk for good.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from minilog.stream_messages import REPLICATE
from minilog.v1 import peer_pb2, records_pb2
from minilog_broker.quorum.node import QuorumNode
from tests.unit.quorum.machine import PORT, QuorumMachine, first_host

TIMESTAMP_US = 1_700_000_000_000_000
FOUNDED = 3  # entries of a new cluster: the epoch begins, its id and voters, its level
REQUEST_TIMEOUT_MS = 200.0


def topic_record(name: str) -> records_pb2.MetadataRecord:
    return records_pb2.MetadataRecord(topic=records_pb2.TopicRecord(name=name, topic_id=name.encode().rjust(16, b"x")))


@dataclass
class QuorumStream:
    """A Replicate stream for the metadata log, from its opener to whom it believes to lead."""

    session_id: int
    opener: int
    target: int
    lives: tuple[int, int]
    is_open: bool = False
    first_sent: bool = False
    arrives_ms: dict[int, float] = field(default_factory=dict)  # per sender: never before what was sent before


@dataclass
class Weather:
    """How the wire and the disks behave."""

    delay_ms: tuple[float, float] = (0.1, 1.0)
    disk_ms: tuple[float, float] = (0.1, 2.0)
    loss: float = 0.0
    duplication: float = 0.0


class QuorumCluster:
    """See the module's text. `watch` is called after every event with the machine that it touched."""

    def __init__(self, seed: int = 0, voters: Iterable[int] = (1,), *, snapshot_bytes: int = 1 << 30) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.voters = tuple(voters)
        self.snapshot_bytes = snapshot_bytes
        self.now_ms = 0.0
        self.weather = Weather()
        self.machines: dict[int, QuorumMachine] = {}
        self.given_hosts: dict[int, str] = {}  # of machines that have moved, as operators know them
        self.streams: dict[int, QuorumStream] = {}  # by opener
        self.cut: set[tuple[int, int]] = set()  # (from, to): nothing gets through
        self.watch: Callable[[QuorumMachine], None] = lambda machine: None
        self.events = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._session_ids = itertools.count(1)

    # -- machines

    def machine(self, node_id: int) -> QuorumMachine:
        if node_id not in self.machines:
            self.machines[node_id] = QuorumMachine(node_id, self)
        return self.machines[node_id]

    def node(self, node_id: int) -> QuorumNode:
        node = self.machine(node_id).node
        assert node is not None
        return node

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.machine(node_id).start()

    def stop(self, *node_ids: int, power_loss: bool = False) -> None:
        """The process is gone. The others notice by their broken streams, where the link lets them."""
        for node_id in node_ids:
            machine = self.machine(node_id)
            machine.stop(power_loss=power_loss)
            for stream in list(self.streams.values()):
                if node_id in (stream.opener, stream.target):
                    self.break_stream(stream)

    def running(self) -> list[QuorumMachine]:
        return [machine for machine in self.machines.values() if machine.node is not None]

    def leaders(self) -> list[QuorumMachine]:
        return [machine for machine in self.running() if machine.node is not None and machine.node.is_leader]

    def leader(self) -> QuorumMachine:
        """The one of the latest epoch."""
        assert self.leaders(), "nobody leads"
        return max(self.leaders(), key=lambda machine: machine.node.epoch if machine.node else -1)

    def given_address(self, node_id: int) -> peer_pb2.VoterAddress:
        """As operators give it at a start: they hear of a move late."""
        host = self.given_hosts.get(node_id, first_host(node_id))
        return peer_pb2.VoterAddress(broker_id=node_id, host=host, port=PORT)

    # -- time

    def at(self, due_ms: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (due_ms, next(self._count), what))

    def run(self, for_ms: float) -> None:
        """Let everybody work for a while of virtual time."""
        until_ms = self.now_ms + for_ms
        while self._heap and self._heap[0][0] <= until_ms:
            due_ms, _, what = heapq.heappop(self._heap)
            self.now_ms = max(self.now_ms, due_ms)
            self.events += 1
            what()
        self.now_ms = until_ms

    def run_until(self, condition: Callable[[], bool], *, within_ms: float = 5_000.0) -> float:
        """Run until it holds; how long that took. Fails where it never does."""
        start_ms = self.now_ms
        while not condition():
            assert self.now_ms - start_ms < within_ms, f"did not come true within {within_ms} ms"
            self.run(1.0)
        return self.now_ms - start_ms

    # -- the wire

    def delay(self) -> float:
        return self.random.uniform(*self.weather.delay_ms)

    def reaches(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) not in self.cut

    def cut_off(self, node_id: int, others: Iterable[int] | None = None) -> None:
        """Both ways; streams stay open and silent."""
        for other in self.machines if others is None else others:
            if other != node_id:
                self.cut |= {(node_id, other), (other, node_id)}

    def request(
        self,
        sender: QuorumMachine,
        target: QuorumMachine | None,
        ask: Callable[[QuorumMachine, Callable[[bytes], None]], None],
        answered: Callable[[bytes | None], None],
    ) -> None:
        """One request: `ask` is called at the target with a way to answer; `answered` once, None for no answer.

        `target`: None where nobody is at the address.
        """
        life = sender.life
        if target is None:
            sender.later(self.delay(), lambda: answered(None), life)
            return
        self._request(sender, target, ask, answered)

    def _request(
        self,
        sender: QuorumMachine,
        target: QuorumMachine,
        ask: Callable[[QuorumMachine, Callable[[bytes], None]], None],
        answered: Callable[[bytes | None], None],
    ) -> None:
        life, target_id = sender.life, target.node_id
        done = False

        def finish(answer: bytes | None) -> None:
            nonlocal done
            if not done and sender.life == life:
                done = True
                answered(answer)

        def answer(content: bytes) -> None:
            if self.reaches(target_id, sender.node_id) and self.random.random() >= self.weather.loss:
                sender.later(self.delay(), lambda: finish(content), life)

        def arrive() -> None:
            if target.node is None:
                if self.reaches(target_id, sender.node_id):
                    sender.later(self.delay(), lambda: finish(None), life)
                return
            target.when_awake(lambda: ask(target, answer))

        copies = 2 if self.random.random() < self.weather.duplication else 1
        for _ in range(copies):
            if self.reaches(sender.node_id, target_id) and self.random.random() >= self.weather.loss:
                self.at(self.now_ms + self.delay(), arrive)
        sender.later(REQUEST_TIMEOUT_MS, lambda: finish(None), life)

    # -- streams

    def open_stream(self, opener: QuorumMachine, target_id: int, found: QuorumMachine | None) -> None:
        """`found`: None where nobody is at the address."""
        self.close_stream(opener)
        target = self.machine(target_id)
        stream = QuorumStream(next(self._session_ids), opener.node_id, target_id, (opener.life, target.life))
        self.streams[opener.node_id] = stream

        def arrive() -> None:
            if self.streams.get(opener.node_id) is not stream:
                return
            if not (self.reaches(opener.node_id, target_id) and self.reaches(target_id, opener.node_id)):
                opener.later(REQUEST_TIMEOUT_MS, lambda: self.break_stream(stream), opener.life)
            elif target.node is None or found is None:
                self.break_stream(stream)
            else:
                stream.is_open = True
                opener.event(lambda node: node.fetcher_stream_opened(self.now_ms))

        opener.later(self.delay(), arrive, opener.life)

    def close_stream(self, opener: QuorumMachine) -> None:
        """Its opener lets it go: the other side is told."""
        stream = self.streams.pop(opener.node_id, None)
        if stream is not None and stream.first_sent:
            self._tell_target_closed(stream)

    def break_stream(self, stream: QuorumStream) -> None:
        """Both sides notice, where the link lets them; a cut link tells nobody."""
        if self.streams.get(stream.opener) is not stream:
            return
        opener = self.machine(stream.opener)
        if opener.node is None:
            del self.streams[stream.opener]
            self._tell_target_closed(stream)
        elif self.reaches(stream.target, stream.opener) or not stream.is_open:
            if stream.first_sent:
                self._tell_target_closed(stream)

            def closed() -> None:
                if self.streams.get(stream.opener) is stream:
                    del self.streams[stream.opener]
                    opener.event(lambda node: node.fetcher_stream_closed(self.now_ms))

            opener.later(self.delay(), closed, opener.life)

    def _tell_target_closed(self, stream: QuorumStream) -> None:
        target = self.machine(stream.target)
        if self.reaches(stream.opener, stream.target):
            target.later(
                self.delay(),
                lambda: target.event(lambda node: node.close_session(stream.session_id)),
                stream.lives[1],
            )

    def carry(self, stream: QuorumStream, sender: QuorumMachine, receiver: QuorumMachine, content: bytes) -> None:
        """One message of a stream: in order, or lost with all that follows while the link is cut."""
        if not self.reaches(sender.node_id, receiver.node_id):
            return
        due_ms = max(self.now_ms + self.delay(), stream.arrives_ms.get(sender.node_id, 0.0))
        stream.arrives_ms[sender.node_id] = due_ms

        def arrive() -> None:
            current = self.streams.get(stream.opener) is stream
            if current and receiver.node is not None and self.reaches(sender.node_id, receiver.node_id):
                receiver.when_awake(lambda: self._receive(stream, receiver, content))

        self.at(due_ms, arrive)

    def _receive(self, stream: QuorumStream, receiver: QuorumMachine, content: bytes) -> None:
        if self.streams.get(stream.opener) is not stream:
            return
        if receiver.node_id == stream.opener:
            response = REPLICATE.response.decode(content)
            receiver.event(lambda node: node.leader_message(response, self.now_ms))
            return
        request = REPLICATE.request.decode(content).message
        if request.cluster_metadata:  # the first of the stream
            receiver.event(lambda node: node.open_session(stream.session_id, request, self.now_ms))
        receiver.event(lambda node: node.replicate_request(stream.session_id, request, self.now_ms))
