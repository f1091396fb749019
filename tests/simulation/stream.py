"""A bidirectional stream between two processes: see network.py for what may befall it.

Each side has handlers (`on_message`, `on_closed`, `on_room`) that run in its process; `on_closed` comes once, and
nothing after it, nor after the side closed the stream itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minilog.stream_messages import FETCH, PRODUCE, REPLICATE, Framing, StreamMessage
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.network import Network

WINDOW = 4  # messages under way one way: behind them a sender waits, as for HTTP/2's flow control
CUT_POLL_MS = 20.0  # what waits at a cut tries again so soon, then after twice as long: TCP's retransmission
LONGEST_CUT_POLL_MS = 320.0
_CLOSE = None
_FRAMINGS: dict[type[Any], Framing[Any]] = {
    framing.kind: framing for framing in (PRODUCE.request, FETCH.response, REPLICATE.response)
}


def _nothing(_: Any = None) -> None:
    pass


class End:
    """One side of a stream. `closed`: this side hears and says nothing any more."""

    __slots__ = ("_due_ms", "_moving", "_outgoing", "_poll_ms", "closed", "endpoint_id", "on_closed", "on_message",
                 "on_open", "on_room", "other", "process", "stream", "waits_for_room")  # fmt: skip

    def __init__(self, stream: Stream, process: Process | None, endpoint_id: int) -> None:
        self.stream = stream
        self.process = process
        self.endpoint_id = endpoint_id
        self.other: End
        self.closed = False
        self.waits_for_room = False
        self.on_message: Callable[[Any], None] = _nothing
        self.on_open: Callable[[Any], None] = _nothing  # with None
        self.on_closed: Callable[[Any], None] = _nothing  # with None
        self.on_room: Callable[[Any], None] = _nothing  # with None: a sender that found no room may go on
        self._outgoing: deque[tuple[float, type[Any] | None, bytes]] = deque()
        self._moving = False
        self._due_ms = 0.0
        self._poll_ms = CUT_POLL_MS

    @property
    def has_room(self) -> bool:
        """Whether another message may be sent now; where not, `on_room` tells when."""
        if len(self._outgoing) < WINDOW:
            return True
        self.waits_for_room = True
        return False

    def send(self, message: Any) -> None:
        """Send a protobuf message to the other side; one of a kind that has payloads arrives as a StreamMessage."""
        if self.closed:
            return
        if isinstance(message, StreamMessage):
            self._put(type(message.message), _FRAMINGS[type(message.message)].encode(message))
        elif type(message) in _FRAMINGS:
            self.send(StreamMessage(message))
        else:
            self._put(type(message), message.SerializeToString())

    def close(self) -> None:
        """End the stream: the other side hears it behind what was sent."""
        if not self.closed:
            self._put(_CLOSE, b"")
            self.closed = True

    def _put(self, kind: type[Any] | None, data: bytes) -> None:
        network = self.stream.network
        due_ms = network.scheduler.now_ms + network.delay_ms(self.endpoint_id, self.other.endpoint_id)
        self._due_ms = due_ms = max(due_ms, self._due_ms)
        self._outgoing.append((due_ms, kind, data))
        if not self._moving:
            self._moving = True
            network.scheduler.at(due_ms, self._move)

    def _move(self, _: Any) -> None:
        """The first message under way arrives, where no cut is in its way."""
        outgoing, network, other = self._outgoing, self.stream.network, self.other
        if not outgoing:
            self._moving = False
            return
        if network.is_cut(self.endpoint_id, other.endpoint_id):
            network.scheduler.after(self._poll_ms, self._move)
            self._poll_ms = min(2.0 * self._poll_ms, LONGEST_CUT_POLL_MS)
            return
        self._poll_ms = CUT_POLL_MS
        if other.process is None:  # the connection does not stand yet
            network.scheduler.after(1.0, self._move)
            return
        _, kind, data = outgoing.popleft()
        if outgoing:
            network.scheduler.at(outgoing[0][0], self._move)
        else:
            self._moving = False
        if self.waits_for_room and len(outgoing) < WINDOW and not self.closed and self.process is not None:
            self.waits_for_room = False
            self.process.run(self.on_room)
        if kind is None:
            self.stream.forget()
            other.process.run(other.hear_close)
        else:
            other.process.run(other.hear, (kind, data))

    def hear(self, message: tuple[type[Any], bytes]) -> None:
        if not self.closed:
            kind, data = message
            self.on_message(_FRAMINGS[kind].decode(data) if kind in _FRAMINGS else kind.FromString(data))

    def hear_close(self, _: Any = None) -> None:
        if not self.closed:
            self.closed = True
            self._outgoing.clear()
            self.on_closed(None)

    def lose_outgoing(self) -> None:
        self._outgoing.clear()


class Stream:
    """See the module's text."""

    __slots__ = ("broken", "client", "method", "network", "open", "server", "target_id")

    def __init__(self, network: Network, source: Process, target_id: int, method: str) -> None:
        self.network = network
        self.method = method
        self.target_id = target_id
        self.open = False
        self.broken = False
        self.client = End(self, source, source.endpoint_id)
        self.server = End(self, None, target_id)
        self.client.other, self.server.other = self.server, self.client

    def connected(self, process: Process) -> None:
        """The handshake is done by the target's kernel, even where its process is stopped."""
        self.open = True
        self.server.process = process
        if self.client.process is not None:
            self.client.process.run(self._tell_open)

    def _tell_open(self, _: Any) -> None:
        if not self.client.closed:
            self.client.on_open(None)

    def give_up(self, _: Any = None) -> None:
        """The time to connect is over."""
        if not self.open:
            self.refuse()

    def refuse(self) -> None:
        """Nobody listens, or nobody answered."""
        if not self.broken:
            self.forget()
            self.broken = True
            self._tell_closed(self.client, 0.0)

    def reset(self, client_notice_ms: float, server_notice_ms: float) -> None:
        """The connection is lost with all that is under way; each side hears of it after its own time."""
        if self.broken:
            return
        self.forget()
        self.broken = True
        self.network.on_reset(self.client.endpoint_id, self.target_id)
        self.client.lose_outgoing()
        self.server.lose_outgoing()
        self._tell_closed(self.client, client_notice_ms)
        self._tell_closed(self.server, server_notice_ms)

    def die(self, process: Process, notice_ms: float) -> None:
        """The process of one side is gone; the other hears of it after `notice_ms`."""
        self.reset(notice_ms, notice_ms)

    def forget(self) -> None:
        self.network.streams.pop(self, None)

    def _tell_closed(self, end: End, notice_ms: float) -> None:
        if end.process is not None:
            end.process.after(notice_ms, end.hear_close)
