"""Connections of bytes on the simulated network: asyncio's transports, on which the product's own streams run.

Bytes arrive in pieces that are cut anywhere, in their order. A direction holds the network's window; what is more waits
at its sender, as in the buffer of a socket. How a connection ends:

    close     what was sent arrives, and then its end
    abort     the other side hears of it a moment later, and of nothing that was under way behind
    broke     both ends hear of it, as far as they live (network.py says when)

What is sent is read here as the frames that it is, for whoever looks at the wire.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from minilog.net.sessions import SESSION_METADATA
from minilog.net.stream_connection import StreamConnection
from minilog.net.stream_frames import Frame, FrameKind, FrameReader, SharedMemory
from minilog.record_batch.header import Buffer
from minilog.security.channel_security import ChannelSecurity
from minilog.stream_messages import STREAM_METHODS
from minilog.v1 import stream_pb2
from tests.simulation.machines.calls import CONNECT_TIMEOUT_S, Channel
from tests.simulation.machines.network import SimulatedConnection, SimulatedNetwork
from tests.world.loop import PROCESS, Process

CUT_SHARE = 0.25  # of what is sent arrives in two pieces
LEAST_WINDOW_BYTES = 64 << 10  # no socket's buffers hold less: a direction with less is a link of some KB/s
_END = None
Protocol = Callable[[], StreamConnection]


class SimulatedStreamPort:
    """A listening port of streams. `name`: what its certificate says to other brokers; empty: it has none of those."""

    def __init__(
        self, network: SimulatedNetwork, address: tuple[str, int], protocol: Protocol, name: str, *, is_secured: bool
    ) -> None:
        process = PROCESS.get()
        assert process is not None, "only a process listens"
        if address in network.listening:
            raise OSError(f"{address[0]}:{address[1]} is taken")
        self.process = process
        self.protocol = protocol
        self.name = name
        self.is_secured = is_secured
        self._network = network
        self._address = address

    def start(self) -> None:
        self._network.listening[self._address] = self

    async def close(self) -> None:
        if self._network.listening.get(self._address) is self:
            del self._network.listening[self._address]


async def connect(
    network: SimulatedNetwork,
    address: tuple[str, int],
    protocol: Protocol,
    security: ChannelSecurity | None,
    certificate: str | None,
) -> StreamConnection:
    """A connection of the process that runs. Raises OSError where there is none."""
    process = PROCESS.get()
    assert process is not None, "only a process connects"
    host, port = address
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        await Channel.knock(network, process, host, port)
    server = network.listening[address]
    assert isinstance(server, SimulatedStreamPort), f"{host}:{port} is no port of streams"
    if server.is_secured != (security is not None):
        raise ConnectionResetError(f"{host}:{port}: one side speaks TLS, and the other does not")
    if security is not None and security.server_name not in (None, server.name):
        raise ssl.SSLCertVerificationError(f"{host}:{port} shows the certificate of {server.name!r}")
    connection = network.connection(process, host)
    connection.server = server.process
    stream = SimulatedStream(network, connection, server, certificate)
    return stream.opened(protocol)


class SimulatedStream:
    """One connection and its stream, as watchers of the wire see them. `method`: as its hello says, empty before."""

    def __init__(
        self,
        network: SimulatedNetwork,
        connection: SimulatedConnection,
        server: SimulatedStreamPort,
        certificate: str | None,
    ) -> None:
        self.client, self.host = connection.client.name, connection.host
        self.method = ""
        self.certificate = certificate
        self.metadata: tuple[tuple[str, bytes], ...] = ()
        self.network, self.wire = network, network.wire
        self._connection = connection
        named = {"peername": (self.client, connection.number), "ssl_object": _Certificate(certificate)}
        self._ends = (
            SimulatedEnd(self, connection.client, self.host, {"peername": (self.host, 0)}, answers=False),
            SimulatedEnd(self, server.process, self.client, named, answers=True),
        )
        for end, other in (self._ends, self._ends[::-1]):
            end.other = other
        self._server = server
        connection.calls[self] = None

    def opened(self, protocol: Protocol) -> StreamConnection:
        """The client's protocol on it; the server's is made when the first of its bytes can come."""
        here, there = self._ends
        there.make = self._server.protocol
        here.make = protocol
        here.sends_beginning()
        return here.begin()

    def frame(self, frame: Frame, *, answers: bool) -> None:
        """One was sent."""
        if frame.kind is FrameKind.HELLO:
            hello = stream_pb2.StreamHello.FromString(bytes(frame.body))
            self.method, self.metadata = hello.method, ((SESSION_METADATA, hello.session),)
        elif frame.kind is FrameKind.MESSAGE:
            framing = STREAM_METHODS[self.method].response if answers else STREAM_METHODS[self.method].request
            self.wire.said(self, framing.decode(frame.body), answers=answers)

    def ended(self) -> None:
        """One side has closed it."""
        self._connection.calls.pop(self, None)
        self.network.forget(self._connection)

    def connection_lost(self) -> None:
        """Both ends hear of it at once; who is dead does not."""
        self.ended()
        self.wire.arrived(self, None)
        for end in self._ends:
            end.lose(ConnectionResetError("the connection broke"))


class _Certificate:
    """What ssl.SSLObject tells of the other side."""

    def __init__(self, name: str | None) -> None:
        self._name = name

    def getpeercert(self) -> dict[str, Any]:
        return {} if self._name is None else {"subject": ((("commonName", self._name),),)}


class SimulatedEnd(asyncio.Transport):
    """One end: the transport of one protocol. What arrives is given to the protocol on its own process."""

    def __init__(
        self, stream: SimulatedStream, process: Process, target: str, information: dict[str, Any], *, answers: bool
    ) -> None:
        super().__init__(information)
        self.other: SimulatedEnd
        self.make: Protocol
        self._stream, self._network = stream, stream.network
        self._process, self._context = process, process.context()
        self._source, self._target, self._answers = process.name, target, answers
        self._protocol: StreamConnection | None = None
        self._reader = FrameReader(SharedMemory(), 1 << 32)  # of what is sent, for the wire
        self._sent_bytes = self._given_bytes = 0  # in all; of the other side's, to the protocol
        self._frame_ends: deque[int] = deque()  # of messages that were sent, and not given to the other side yet
        self._window_bytes = max(stream.network.window_bytes, LEAST_WINDOW_BYTES)
        self._unsent = bytearray()
        self._held_bytes = 0  # sent, and the other side has not taken it
        self._under_way: deque[bytes | None] = deque()
        self._last_s = 0.0
        self._arrived: deque[bytes | None] = deque()
        self._high, self._low = 64 << 10, 16 << 10
        self._is_paused = self._is_protocol_paused = self._is_delivering = False
        self._is_closing = self._has_sent_end = self._is_lost = False

    # -- asyncio's transport

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high, self._low = high or 0, low or 0

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: Buffer) -> None:
        if self._is_closing or self._is_lost:
            return
        self._look_at(bytes(data))
        self._unsent += data
        self._push()

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._wake()

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing and not self._is_lost:
            self._is_closing = True
            self._push()

    def abort(self) -> None:
        if not self._is_lost:
            self._stream.ended()
            self._unsent.clear()
            self._send(_END, 0)
            self.lose(None)

    # -- its life

    def begin(self) -> StreamConnection:
        """In its process."""
        self._protocol = self.make()
        self._protocol.connection_made(self)
        return self._protocol

    def sends_beginning(self) -> None:
        """Before all bytes: the other side has a connection."""
        self._send(b"", 0)

    def lose(self, error: Exception | None) -> None:
        """Nothing comes or goes any more. Its process hears of it in its turn."""
        if not self._is_lost:
            self._is_lost = True
            self._network.loop.call_soon(self._tell_lost, error, context=self._context)

    def _tell_lost(self, error: Exception | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    # -- out

    def _look_at(self, data: bytes) -> None:
        """The frames that are whole by now, told to the wire."""
        self._sent_bytes += len(data)
        view = memoryview(data)
        while view:
            room = self._reader.buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            view = view[count:]
            for frame in self._reader.filled(count):
                self._stream.frame(frame, answers=self._answers)
                if frame.kind is FrameKind.MESSAGE:
                    self._frame_ends.append(self._sent_bytes - len(view))

    def _push(self) -> None:
        """What the window has room for goes."""
        if self._process.dead or self._is_lost:
            return
        while self._unsent and (room := self._window_bytes - self._held_bytes) > 0:
            size = min(len(self._unsent), room)
            if size > 1 and self._network.random.random() < CUT_SHARE:
                size = self._network.random.randrange(1, size)
            piece = bytes(self._unsent[:size])
            del self._unsent[:size]
            self._held_bytes += size
            self._send(piece, size)
        self._tell_protocol()
        if self._is_closing and not self._unsent and not self._has_sent_end:
            self._has_sent_end = True
            self._send(_END, 0)
            self._stream.ended()
            self.lose(None)

    def _tell_protocol(self) -> None:
        assert self._protocol is not None
        if len(self._unsent) > self._high and not self._is_protocol_paused:
            self._is_protocol_paused = True
            self._protocol.pause_writing()
        elif len(self._unsent) <= self._low and self._is_protocol_paused:
            self._is_protocol_paused = False
            self._protocol.resume_writing()

    def _send(self, item: bytes | None, size_bytes: int) -> None:
        network = self._network
        now_s = network.loop.now_s
        arrives_s = max(self._last_s, now_s + network.delay_s(self._source, self._target, size_bytes))
        self._last_s = arrives_s
        if network.carry(self._source, self._target, self._arrive, arrives_s - now_s):
            self._under_way.append(item)

    def _arrive(self) -> None:
        """The next of what is under way is on the other side: timers of one moment run in any order."""
        self.other._arrived.append(self._under_way.popleft())
        self.other._wake()

    # -- in

    def _wake(self) -> None:
        if not self._is_delivering and self._arrived and not self._is_lost:
            self._is_delivering = True
            self._network.loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        """In its process: what arrived goes to the protocol, as far as that reads."""
        self._is_delivering = False
        while self._arrived and not self._is_lost:
            piece = self._arrived[0]
            if piece == b"":
                self._arrived.popleft()
                if self._protocol is None:
                    self.begin()
                continue
            if self._is_paused:
                return
            self._arrived.popleft()
            if piece is _END:
                self._stream.ended()
                self.lose(None)
                return
            self._give(piece)

    def _give(self, piece: bytes) -> None:
        assert self._protocol is not None
        room = self._protocol.get_buffer(-1)
        count = min(len(room), len(piece))
        room[:count] = piece[:count]
        if count < len(piece):
            self._arrived.appendleft(piece[count:])
        self._given_bytes += count
        other = self.other
        while other._frame_ends and other._frame_ends[0] <= self._given_bytes:
            other._frame_ends.popleft()
            self._stream.wire.arrived(self._stream, other._answers)
        self._protocol.buffer_updated(count)
        other._held_bytes -= count
        if other._unsent and not other._is_lost:
            self._network.loop.call_soon(other._push, context=other._context)
