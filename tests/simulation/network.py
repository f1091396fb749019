"""The simulated network: unary calls and streams between processes, with everything that can befall them.

Calls may be lost (either way), doubled, late, refused (the machine is up, nobody listens) or unanswered (the machine is
off, or cut off). Streams are ordered and lose nothing while they live: a cut holds what is under way until it heals;
a reset loses it, and the two sides hear of that at different times. Two streams reorder freely against each other.

Messages cross as bytes: no two processes share one.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tests.simulation.events import Scheduler
from tests.simulation.process import Process
from tests.simulation.stream import Stream

CUT_POLL_MS = 20.0  # what waits at a cut tries again so soon, then after twice as long: TCP's retransmission
LONGEST_CUT_POLL_MS = 320.0
FIRST_CLIENT_ID = 1_000  # endpoint ids below are nodes'
LATE_ANSWER_MS = 5_000.0  # a request that waits at a cut longer is forgotten


class Failure(enum.Enum):
    """Why a call has no answer. Only REFUSED says that it was not carried out."""

    REFUSED = "nobody listens there"
    TIMED_OUT = "no answer in time"
    BROKEN = "the connection broke"


AnswerHandler: TypeAlias = Callable[[Any], None]  # the response message, or a Failure
Respond: TypeAlias = Callable[[Any], None]


class Host(Protocol):
    """What a process that listens gives to the network."""

    @property
    def process(self) -> Process: ...

    def serve_call(self, method: str, request: Any, respond: Respond) -> None:
        """A unary call came in: `respond(response)` once, at any time."""

    def serve_stream(self, method: str, stream: Stream) -> None:
        """A stream was opened: set stream.server's handlers."""


@dataclass(slots=True)
class Conditions:
    """How one direction between two endpoints is, now."""

    cut: bool = False
    delay_ms: float = 0.0  # beside the usual
    loss: float = 0.0  # of unary requests, and of their answers
    doubling: float = 0.0  # of unary requests


@dataclass(slots=True)
class _Call:
    source: Process
    source_id: int
    target_id: int
    method: str
    kind: type[Any]
    data: bytes
    on_answer: AnswerHandler
    done: bool = False
    waited_ms: float = 0.0


class Network:
    """See the module's text. `latency_ms`: the usual range, one way. `between_nodes_ms`: added between nodes."""

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        latency_ms: tuple[float, float],
        between_nodes_ms: float = 0.0,
    ) -> None:
        self.scheduler = scheduler
        self.rng = rng
        self.latency_ms = latency_ms
        self.between_nodes_ms = between_nodes_ms
        self.hosts: dict[int, Host | None] = {}  # None: the machine is up, nobody listens; absent: it is off
        self.conditions: dict[tuple[int, int], Conditions] = {}
        self.streams: dict[Stream, None] = {}
        self.on_reset: Callable[[int, int], None] = lambda client_id, server_id: None
        self._calls: dict[int, dict[int, _Call]] = {}  # being carried out, by target

    # -- what faults do to it

    def condition(self, source_id: int, target_id: int) -> Conditions:
        """The direction from `source_id` to `target_id`, to be changed."""
        return self.conditions.setdefault((source_id, target_id), Conditions())

    def heal(self) -> None:
        """All directions are as usual again."""
        self.conditions.clear()

    def is_cut(self, source_id: int, target_id: int) -> bool:
        found = self.conditions.get((source_id, target_id))
        return found is not None and found.cut

    def process_ended(self, process: Process, *, silently: bool) -> None:
        """A process is gone. Killed, its peers hear it at once; `silently`: its machine lost power, they do not."""
        for stream in [each for each in self.streams if process in (each.client.process, each.server.process)]:
            notice_ms = self.rng.uniform(500.0, 5_000.0) if silently else self.delay_ms(0, 0)
            stream.die(process, notice_ms)
        for call in self._calls.pop(process.endpoint_id, {}).values():
            if not silently:
                self.scheduler.after(self.delay_ms(0, 0), self._conclude, (call, Failure.BROKEN))

    # -- transit

    def delay_ms(self, source_id: int, target_id: int) -> float:
        """How long the next message takes, one way."""
        low, high = self.latency_ms
        delay = low + (high - low) * self.rng.random()
        if source_id != target_id and max(source_id, target_id) < FIRST_CLIENT_ID:
            delay += self.between_nodes_ms
        found = self.conditions.get((source_id, target_id))
        return delay if found is None else delay + found.delay_ms * (0.5 + self.rng.random())

    # -- unary calls

    def call(
        self,
        source: Process,
        target_id: int,
        method: str,
        request: Any,
        on_answer: AnswerHandler,
        timeout_ms: float,
    ) -> None:
        """Ask `target_id`; `on_answer` is called once in `source`, with the response or a Failure."""
        source_id = source.endpoint_id
        call = _Call(source, source_id, target_id, method, type(request), request.SerializeToString(), on_answer)
        self.scheduler.after(timeout_ms, self._conclude, (call, Failure.TIMED_OUT))
        found = self.conditions.get((source_id, target_id))
        if found is not None and self.rng.random() < found.loss:
            return
        self.scheduler.after(self.delay_ms(source_id, target_id), self._arrive, call)
        if found is not None and self.rng.random() < found.doubling:
            self.scheduler.after(self.rng.choice((1.0, 10.0, 200.0, 2_000.0)), self._arrive, call)

    def _arrive(self, call: _Call) -> None:
        source_id, target_id = call.source_id, call.target_id
        if self.is_cut(source_id, target_id):
            poll_ms = min(max(call.waited_ms, CUT_POLL_MS), LONGEST_CUT_POLL_MS)
            call.waited_ms += poll_ms
            if call.waited_ms < LATE_ANSWER_MS:
                self.scheduler.after(poll_ms, self._arrive, call)
            return
        if target_id not in self.hosts:
            return
        host = self.hosts[target_id]
        if host is None:
            self._travel_back(call, Failure.REFUSED)
        else:
            host.process.run(self._serve, (host, call))

    def _serve(self, argument: tuple[Host, _Call]) -> None:
        host, call = argument
        under_way = self._calls.setdefault(call.target_id, {})
        number = id(call)
        under_way[number] = call

        def respond(response: Any) -> None:
            under_way.pop(number, None)
            self._travel_back(call, response)

        host.serve_call(call.method, call.kind.FromString(call.data), respond)

    def _travel_back(self, call: _Call, response: Any) -> None:
        """The answer leaves; it was made for this call only, so it is not copied."""
        found = self.conditions.get((call.target_id, call.source_id))
        if found is not None and (found.cut or self.rng.random() < found.loss):
            return  # the caller's time-out tells
        delay_ms = self.delay_ms(call.target_id, call.source_id)
        self.scheduler.after(delay_ms, self._conclude, (call, response))

    def _conclude(self, argument: tuple[_Call, Any]) -> None:
        call, response = argument
        if not call.done:
            call.done = True
            call.source.run(call.on_answer, response)

    def probe(
        self, source: Process, target_id: int, on_result: Callable[[Failure | None], None], timeout_ms: float
    ) -> None:
        """Does anybody listen there? REFUSED, TIMED_OUT, or None: a connection was taken."""
        source_id = source.endpoint_id
        if target_id not in self.hosts or self.is_cut(source_id, target_id) or self.is_cut(target_id, source_id):
            source.after(timeout_ms, on_result, Failure.TIMED_OUT)
        else:
            found = Failure.REFUSED if self.hosts[target_id] is None else None
            source.after(2 * self.delay_ms(source_id, target_id), on_result, found)

    # -- streams

    def open_stream(
        self, source: Process, target_id: int, method: str, *, connect_timeout_ms: float = 1_000.0
    ) -> Stream:
        """Open a stream; set `stream.client`'s handlers before time passes.

        `client.on_open` is called when the connection stands, `client.on_closed` when it cannot, or breaks."""
        stream = Stream(self, source, target_id, method)
        self.streams[stream] = None
        self.scheduler.after(2 * self.delay_ms(source.endpoint_id, target_id), self._connect, stream)
        self.scheduler.after(connect_timeout_ms, stream.give_up)
        return stream

    def _connect(self, stream: Stream) -> None:
        """The handshake is through, both ways."""
        source_id, target_id = stream.client.endpoint_id, stream.target_id
        if stream.broken:
            return
        if self.is_cut(source_id, target_id) or self.is_cut(target_id, source_id):
            self.scheduler.after(CUT_POLL_MS, self._connect, stream)
        elif target_id in self.hosts:
            host = self.hosts[target_id]
            if host is None:
                stream.refuse()
            else:
                stream.connected(host.process)
                host.process.run(self._accept, (host, stream))

    def _accept(self, argument: tuple[Host, Stream]) -> None:
        host, stream = argument
        if not stream.broken:
            host.serve_stream(stream.method, stream)
