"""Attacks on a broker's memory: messages that are large, half-sent or not read, streams and connections without number.

Each is an attack of well_behaved.py. The messages are made by hand, so that no client's bounds stand in their way: a
producer of ours sends no such things.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minilog import Admin, NewTopic, Producer
from minilog.net.stream_frames import FrameKind, frame_buffers
from minilog.stream_messages import FETCH, PRODUCE, StreamMessage
from minilog.v1 import common_pb2, data_pb2
from tests.cluster import HOST, STREAM_PORT_OFFSET, Cluster
from tests.integration.garbage import HTTP2_PREFACE
from tests.integration.well_behaved import Attack
from tests.streams_by_hand import Place, StreamEnded, call_of, hello_frame

MIB = 1 << 20
LARGE_TOPIC = "attacked"
_PRODUCE_PATH = b"/minilog.v1.DataService/Produce"
# One process serializes protobuf messages of such a size so fast. All at one moment, 1.4 GiB that gRPC copies here take
# the machine from everybody, brokers and the well-behaved client alike: what is attacked is to be the broker.
_PACE_S_PER_MIB = 0.0025
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_FRAME_BYTES = 16_384
_FIRST_WINDOW_BYTES = 65_535


@dataclass(frozen=True, slots=True)
class Attacked:
    """A partition whose leader is attacked."""

    port: int
    topic_id: bytes
    leader_epoch: int

    @property
    def place(self) -> Place:
        """Its port of streams."""
        return Place(self.port + STREAM_PORT_OFFSET)


def attacked(cluster: Cluster) -> Attacked:
    """A topic of one partition, made where it is not there."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        if LARGE_TOPIC not in admin.list_topics():
            configs = {"max.message.bytes": str(64 * MIB)}
            admin.create_topics([NewTopic(LARGE_TOPIC, num_partitions=1, replication_factor=3, configs=configs)])
        deadline_s = time.monotonic() + 20.0
        while True:
            (topic,) = admin.describe_topics([LARGE_TOPIC])
            (partition,) = topic.partitions
            if partition.leader is not None:
                return Attacked(cluster.ports[partition.leader], uuid.UUID(topic.id).bytes, partition.leader_epoch)
            assert time.monotonic() < deadline_s, "the attacked topic has no leader"
            time.sleep(0.05)


def _large_frames(cluster: Cluster, size_bytes: int, count: int) -> Iterator[None]:
    target = attacked(cluster)
    entry = data_pb2.ProduceEntry(
        correlation_id=1,
        partition_id=common_pb2.PartitionId(topic_id=target.topic_id, partition=0),
        leader_epoch=target.leader_epoch,
    )
    produced = data_pb2.ProduceRequest(acks=-1, timeout_ms=5000, entries=[entry])
    message = StreamMessage(produced, [bytes(size_bytes)])
    yield
    while True:
        open_until = threading.Event()
        begin_s = time.monotonic()
        streams = [
            call_of(target.place, PRODUCE)(
                _once(message, begin_s + number * _PACE_S_PER_MIB * size_bytes / MIB, open_until), timeout=10.0
            )
            for number in range(count)
        ]
        for stream in streams:
            with contextlib.suppress(StreamEnded, StopIteration):
                next(answer for answer in stream if answer.message.results)  # not a sign of life before it has come
        open_until.set()
        for stream in streams:
            stream.cancel()
        yield


def _once(message: StreamMessage[Any], at_s: float, open_until: threading.Event) -> Iterator[StreamMessage[Any]]:
    time.sleep(max(0.0, at_s - time.monotonic()))
    yield message
    open_until.wait(10.0)


def frames_of_120_mib(cluster: Cluster) -> Iterator[None]:
    """12 at once, from as many connections, again and again."""
    return _large_frames(cluster, 120 * MIB, 12)


def frames_of_60_mib(cluster: Cluster) -> Iterator[None]:
    """12 at once of a size that is legal: the batches are no batches."""
    return _large_frames(cluster, 60 * MIB, 12)


def streams_that_never_read(cluster: Cluster) -> Iterator[None]:
    """100 readers of 8 MiB batches with all the credit there is; none takes what it asked for."""
    target = attacked(cluster)
    values = np.random.default_rng(1).integers(0, 256, 7 * MIB, dtype=np.uint8).tobytes()
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 8 * MIB}) as producer:
        for _ in range(6):
            producer.send(LARGE_TOPIC, value=values).result(timeout=60.0)
    position = data_pb2.FetchPosition(
        partition_id=common_pb2.PartitionId(topic_id=target.topic_id, partition=0),
        leader_epoch=target.leader_epoch,
        fetch_offset=0,
    )
    request = StreamMessage(data_pb2.FetchRequest(credit_bytes=1 << 40, positions=[position]))
    ended = threading.Event()
    yield
    streams = [call_of(target.place, FETCH)(_asking(request, ended)) for _ in range(100)]
    try:
        for _ in itertools.count():
            time.sleep(1.0)
            yield
    finally:
        ended.set()
        for stream in streams:
            stream.cancel()


def _asking(request: StreamMessage[Any], ended: threading.Event) -> Iterator[StreamMessage[Any]]:
    yield request
    while not ended.wait(0.2):
        yield StreamMessage(data_pb2.FetchRequest(credit_bytes=1 << 40))


def idle_connections(cluster: Cluster) -> Iterator[None]:
    """1,000 that greet and say nothing more, kept."""
    target = attacked(cluster)
    with contextlib.ExitStack() as stack:
        yield
        for _ in range(1000):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(socket.create_connection((HOST, target.port), timeout=1.0))
                connection.sendall(HTTP2_PREFACE + frame(_SETTINGS, 0, 0, b""))
        yield
        while True:
            time.sleep(1.0)
            yield


def streams_on_a_connection(cluster: Cluster) -> Iterator[None]:
    """1,000 calls on one connection, whatever it says of how many it takes; with half a message on each."""
    target = attacked(cluster)
    with HalfSender(target.port) as sender:
        yield
        sender.open_streams(1000, announced_bytes=MIB, sent_bytes=32_000)
        while True:
            sender.pump(1.0)
            yield


def half_sent_messages(cluster: Cluster) -> Iterator[None]:
    """Slow loris: 40 connections send most of a message of 60 MiB, and then nothing."""
    target = attacked(cluster)
    with contextlib.ExitStack() as stack:
        senders = [stack.enter_context(HalfSender(target.port)) for _ in range(40)]
        yield
        for sender in senders:
            sender.open_streams(1, announced_bytes=60 * MIB, sent_bytes=59 * MIB)
        while True:
            deadline_s = time.monotonic() + 1.0
            while time.monotonic() < deadline_s:
                moved = [sender.pump(0.0) for sender in senders]
                if not any(moved):
                    time.sleep(0.01)
            yield


def empty_frames(cluster: Cluster) -> Iterator[None]:
    """Two streams send the shortest legal messages, which name nothing, as fast as the connections take them."""
    target = attacked(cluster)
    requests = b"".join(frame_buffers(FrameKind.MESSAGE, [bytes(8)])) * 4_096
    yield
    with contextlib.ExitStack() as stack:
        connections: list[socket.socket] = []
        while True:
            deadline_s = time.monotonic() + 1.0
            while time.monotonic() < deadline_s:
                while len(connections) < 2:
                    with contextlib.suppress(OSError):
                        connections.append(stack.enter_context(target.place.connect(1.0)))
                        connections[-1].sendall(hello_frame(PRODUCE))
                        connections[-1].setblocking(False)
                sent = [_sent_some(connection, requests) for connection in connections]
                connections = [one for one, count in zip(connections, sent, strict=True) if count is not None]
                if not any(sent):
                    time.sleep(0.005)
            yield


def _sent_some(connection: socket.socket, content: bytes) -> int | None:
    """How much of it went; None where the connection has ended. A part of a frame ends the stream: then there is
    another one."""
    try:
        return connection.send(content)
    except BlockingIOError:
        return 0
    except OSError:
        return None


def long_headers(cluster: Cluster) -> Iterator[None]:
    """40 connections begin 100 calls each, with 12 KiB of headers, or with a short name for 3 MiB of them."""
    target = attacked(cluster)
    filling = b"\x00\x03fil\x7f" + _length(12 * 1024 - 127) + b"x" * 12 * 1024
    indexed = b"\x40\x03fil\x7f" + _length(3_000 - 127) + b"x" * 3_000 + b"\xbe" * 1_000
    with contextlib.ExitStack() as stack:
        senders = [stack.enter_context(HalfSender(target.port)) for _ in range(40)]
        yield
        for place, sender in enumerate(senders):
            sender.open_streams(100, announced_bytes=MIB, sent_bytes=10, headers=indexed if place % 2 else filling)
        while True:
            deadline_s = time.monotonic() + 1.0
            while time.monotonic() < deadline_s:
                moved = [sender.pump(0.0) for sender in senders]
                if not any(moved):
                    time.sleep(0.01)
            yield


def pings(cluster: Cluster) -> Iterator[None]:
    """A connection of calls sends pings as fast as it takes them, and reads their answers; then another one."""
    target = attacked(cluster)
    flood = frame(_PING, 0, 0, bytes(8)) * 4_096
    yield
    while True:
        deadline_s = time.monotonic() + 1.0
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError), socket.create_connection((HOST, target.port), timeout=1.0) as connection:
                connection.sendall(HTTP2_PREFACE + frame(_SETTINGS, 0, 0, b""))
                while time.monotonic() < deadline_s:
                    connection.sendall(flood)
                    if not connection.recv(1 << 20):
                        break
        yield


def _length(above: int) -> bytes:
    """A number behind a prefix of ones (RFC 7541, 5.1)."""
    content = b""
    while above >= 128:
        content, above = content + bytes([above % 128 + 128]), above // 128
    return content + bytes([above])


@dataclass(slots=True)
class _Stream:
    left_bytes: int
    window_bytes: int
    head: bytes


class HalfSender:
    """HTTP/2 by hand: begins messages on streams, within the windows that the other side opens, and ends none."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=5.0)
        self._socket.sendall(HTTP2_PREFACE + frame(_SETTINGS, 0, 0, b""))
        self._socket.setblocking(False)
        self._came = b""
        self._going = b""
        self._window_bytes = self._first_window_bytes = _FIRST_WINDOW_BYTES
        self._streams: dict[int, _Stream] = {}
        self.ended = False

    def __enter__(self) -> HalfSender:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def open_streams(self, count: int, *, announced_bytes: int, sent_bytes: int, headers: bytes = b"") -> None:
        """Begin `count` calls, each with these headers besides, and a message of which `sent_bytes` go."""
        for number in range(1, 2 * count, 2):
            self._going += frame(_HEADERS, 4, number, call_headers(_PRODUCE_PATH) + headers)
            head = struct.pack(">BI", 0, announced_bytes)
            self._streams[number] = _Stream(sent_bytes, self._first_window_bytes, head)

    def pump(self, seconds: float) -> bool:
        """Send and hear for so long, or once; whether anything moved."""
        deadline_s, moved = time.monotonic() + seconds, False
        while not self.ended:
            now = self._hear() | self._send()
            moved |= now
            if time.monotonic() >= deadline_s:
                break
            if not now:
                time.sleep(0.005)
        return moved

    def _hear(self) -> bool:
        try:
            came = self._socket.recv(1 << 16)
            self.ended = not came
        except BlockingIOError:
            return False
        except OSError:
            self.ended = True
            return False
        self._came += came
        while len(self._came) >= 9:
            length = int.from_bytes(self._came[:3], "big")
            if len(self._came) < 9 + length:
                break
            kind, flags, stream = self._came[3], self._came[4], int.from_bytes(self._came[5:9], "big")
            self._frame_came(kind, flags, stream, self._came[9 : 9 + length])
            self._came = self._came[9 + length :]
        return True

    def _frame_came(self, kind: int, flags: int, number: int, content: bytes) -> None:
        if kind == _WINDOW_UPDATE:
            more = int.from_bytes(content, "big")
            if number == 0:
                self._window_bytes += more
            elif number in self._streams:
                self._streams[number].window_bytes += more
        elif kind == _SETTINGS and not flags & 1:
            for name, value in struct.iter_unpack(">HI", content):
                if name == 4:
                    for stream in self._streams.values():
                        stream.window_bytes += value - self._first_window_bytes
                    self._first_window_bytes = value
            self._going += frame(_SETTINGS, 1, 0, b"")
        elif kind == _PING and not flags & 1:
            self._going += frame(_PING, 1, 0, content)
        elif kind == _RST_STREAM:
            self._streams.pop(number, None)
        elif kind == _GOAWAY:
            self.ended = True

    def _send(self) -> bool:
        moved = False
        for number, stream in list(self._streams.items()):
            size = min(stream.left_bytes, stream.window_bytes, self._window_bytes, _FRAME_BYTES)
            if size > 0 and len(self._going) < MIB:
                self._going += frame(_DATA, 0, number, (stream.head + bytes(size))[:size])
                stream.head = stream.head[size:]
                stream.left_bytes -= size
                stream.window_bytes -= size
                self._window_bytes -= size
                moved = True
        if self._going:
            try:
                self._going = self._going[self._socket.send(self._going) :]
                moved = True
            except BlockingIOError:
                pass
            except OSError:
                self.ended = True
        return moved


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """Of HTTP/2 (RFC 9113, 4.1)."""
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def call_headers(path: bytes, scheme: bytes = b"http") -> bytes:
    """The headers of a call, each as a literal without indexing (RFC 7541, 6.2.2)."""
    pairs = (
        (b":method", b"POST"), (b":scheme", scheme), (b":path", path), (b":authority", b"attack"),
        (b"te", b"trailers"), (b"content-type", b"application/grpc"),
    )  # fmt: skip
    return b"".join(b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in pairs)


ATTACKS: tuple[Attack, ...] = (
    frames_of_120_mib,
    frames_of_60_mib,
    streams_that_never_read,
    idle_connections,
    streams_on_a_connection,
    half_sent_messages,
    empty_frames,
    long_headers,
    pings,
)
