"""A network that can be spoiled: one TCP proxy in front of each broker, ruled by who sends to whom.

    process A ──► public port of B ── pipe A→B: rule (A, B) ──► B listens
              ◄── pipe B→A: rule (B, A) ──

Rules are of directions, not of connections, as a real network's faults are: whoever opened the connection, its bytes
from A to B obey (A, B). The source of a connection is found when it is accepted: the process that holds the other end
of it (/proc). TCP cannot lose bytes at this layer: what a network loses, TCP sends again, so loss shows as stalls of a
retransmission time-out and, at worst, as resets; a cut holds bytes (and the end of a stream, for a lost FIN is no FIN)
until it is healed, and a connection made meanwhile is accepted and hangs, as one whose SYN is lost does.

While a broker is down its public port refuses, as the broker's own would.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

HOST = "127.0.0.1"
CLIENT = "client"
"""Every process that was not named."""
RETRANSMIT_S = 0.2
"""Linux' least retransmission time-out: what the loss of a segment costs everything behind it."""
_CHUNK_BYTES = 64 << 10
_QUEUED_CHUNKS = 64  # 4 MiB on the way, then the sender's own buffers fill up, as with a real link
_LISTEN_AGAIN_S = 0.02
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to bytes on their way in one direction."""

    latency_s: float = 0.0
    bytes_per_s: float = float("inf")
    loss: float = 0.0
    """The share of chunks (up to 64 KiB) that wait RETRANSMIT_S, with all that is behind them."""
    cut: bool = False


CUT = Rule(cut=True)
CLEAR = Rule()


class Network:
    """The rules, and the process ids by which sources are told apart. Changed by one thread, read by the proxy's."""

    def __init__(self, seed: int = 0) -> None:
        self.rules: dict[tuple[str, str], Rule] = {}
        self.names: dict[int, str] = {}
        self.chance = random.Random(seed)

    def rule(self, sender: str, receiver: str) -> Rule:
        return self.rules.get((sender, receiver), CLEAR)

    def source_of(self, peer_port: int, own_port: int) -> str:
        """The name of the process that holds the connection's other end; CLIENT where it is none of the named ones."""
        inode = _socket_inode(peer_port, own_port)
        return next((name for pid, name in self.names.items() if inode and _holds(pid, inode)), CLIENT)


# inet_diag_req_v2 asks for one connection, inet_diag_msg answers (linux/inet_diag.h, linux/sock_diag.h).
_DIAG_REQUEST = struct.Struct("=IHHII BBBxI HH4s12x4s12xIII")
_NETLINK_SOCK_DIAG = 4
_DIAG_BY_FAMILY, _REQUEST_FLAG, _ANY_STATE, _NO_COOKIE = 20, 1, 0xFFFFFFFF, 0xFFFFFFFF
_INODE_AT = 16 + 68


def _socket_inode(port: int, peer_port: int) -> str:
    """The inode of the socket at 127.0.0.1:`port` whose peer is 127.0.0.1:`peer_port`; empty: gone already.

    The kernel is asked for this one: /proc/net/tcp lists all, and takes tens of milliseconds where there are many.
    """
    here = socket.inet_aton(HOST)
    request = _DIAG_REQUEST.pack(
        *(_DIAG_REQUEST.size, _DIAG_BY_FAMILY, _REQUEST_FLAG, 1, 0),
        *(socket.AF_INET, socket.IPPROTO_TCP, 0, _ANY_STATE),
        *(socket.htons(port), socket.htons(peer_port), here, here, 0, _NO_COOKIE, _NO_COOKIE),
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(request)
        answer = kernel.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    return str(struct.unpack_from("=I", answer, _INODE_AT)[0]) if kind == _DIAG_BY_FAMILY else ""


def _holds(pid: int, inode: str) -> bool:
    folder, wanted = f"/proc/{pid}/fd", f"socket:[{inode}]"
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{descriptor}") == wanted:
                    return True
    return False


class Pipe:
    """One direction of one connection."""

    def __init__(self, network: Network, sender: str, receiver: str) -> None:
        self._network, self._sender, self._receiver = network, sender, receiver
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED_CHUNKS)
        self._sent_until_s = 0.0

    @property
    def rule(self) -> Rule:
        return self._network.rule(self._sender, self._receiver)

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, changed: Changed) -> None:
        """Until the sender's end of stream has been passed on.

        A receiver that is gone is no end: its own end of stream tells the sender, when the rules let it through.
        """
        reading = asyncio.ensure_future(self._read(reader))
        try:
            chunk = b"-"
            while chunk:
                due_s, chunk = await self._queue.get()
                await self._wait_for(due_s, changed)
                if not writer.transport.is_closing():
                    with contextlib.suppress(OSError):
                        writer.write(chunk)
                        await writer.drain()
            with contextlib.suppress(OSError, RuntimeError):
                writer.write_eof()
        finally:
            reading.cancel()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        chunk = b"-"
        while chunk:
            try:
                chunk = await reader.read(_CHUNK_BYTES)
            except OSError:  # a reset: for the other side an end like any other
                chunk = b""
            now_s, rule = asyncio.get_running_loop().time(), self.rule
            lost_s = RETRANSMIT_S if rule.loss and self._network.chance.random() < rule.loss else 0.0
            sent_s = max(now_s, self._sent_until_s) + len(chunk) / rule.bytes_per_s + lost_s
            self._sent_until_s = sent_s
            await self._queue.put((sent_s + rule.latency_s, chunk))

    async def _wait_for(self, due_s: float, changed: Changed) -> None:
        delay_s = due_s - asyncio.get_running_loop().time()
        if delay_s > 0.0005:
            await asyncio.sleep(delay_s)
        while self.rule.cut:
            await changed.wait()


class Changed:
    """Wakes every pipe that waits when the rules change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()

    def tell(self) -> None:
        self._event.set()
        self._event = asyncio.Event()


class Proxy:
    """All proxies of a cluster in one thread. `targets`: by a broker's name its pairs of a public port and the broker's
    own port. That it takes connections on the first of its own ports says that it takes them on all."""

    def __init__(self, targets: Mapping[str, Sequence[tuple[int, int]]], seed: int = 0) -> None:
        self.network = Network(seed)
        self._targets = dict(targets)
        self._loop = asyncio.new_event_loop()
        self._changed = Changed()
        self._servers: dict[str, list[asyncio.Server]] = {}
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._connections: dict[asyncio.Task[None], tuple[str, str]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    # -- what tests say, from any thread

    def name(self, pid: int, name: str) -> None:
        """Connections of this process are `name`'s from now on."""
        self.network.names[pid] = name

    def set_rule(self, sender: str, receiver: str, rule: Rule) -> None:
        """One direction; what is on its way already obeys a cut, and a latency not."""
        self.network.rules[sender, receiver] = rule
        self._loop.call_soon_threadsafe(self._changed.tell)

    def set_rule_both_ways(self, one: str, other: str, rule: Rule) -> None:
        self.set_rule(one, other, rule)
        self.set_rule(other, one, rule)

    def heal(self) -> None:
        """Every rule is gone; what was held flows on."""
        self.network.rules.clear()
        self._loop.call_soon_threadsafe(self._changed.tell)

    def reset(self, one: str, other: str) -> None:
        """Connections between the two are reset, whoever opened them."""
        self._do(lambda: self._reset({(one, other), (other, one)}))

    def refuse(self, target: str) -> None:
        """New connections to the broker are refused from now on; those there are go on."""
        self._do(lambda: self._refuse(target))

    def accept(self, target: str) -> None:
        """New connections are taken as soon as the broker itself takes one."""
        self._do(lambda: self._accept(target))

    def close(self) -> None:
        self._do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Callable[[], Awaitable[_Result]]) -> _Result:
        async def run() -> _Result:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10.0)

    # -- in the proxy's thread

    async def _reset(self, pairs: set[tuple[str, str]]) -> None:
        for connection, pair in list(self._connections.items()):
            if pair in pairs:
                connection.cancel()

    async def _refuse(self, target: str) -> None:
        if opening := self._opening.pop(target, None):
            opening.cancel()
        for server in self._servers.pop(target, ()):
            server.close()

    async def _accept(self, target: str) -> None:
        await self._refuse(target)
        self._opening[target] = self._loop.create_task(self._open(target))

    async def _open(self, target: str) -> None:
        pairs = self._targets[target]
        while True:
            if await _takes_connections(pairs[0][1]):
                break
            await asyncio.sleep(_LISTEN_AGAIN_S)
        servers = self._servers[target] = []
        for public, own in pairs:
            connected = functools.partial(self._connected, target, public, own)
            servers.append(await asyncio.start_server(connected, HOST, public, limit=_CHUNK_BYTES))

    async def _connected(
        self, target: str, public: int, own: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        source = self.network.source_of(writer.get_extra_info("peername")[1], public)
        connection = asyncio.ensure_future(self._join(source, target, own, (reader, writer)))
        self._connections[connection] = (source, target)
        await asyncio.wait({connection})
        del self._connections[connection]

    async def _join(
        self, source: str, target: str, port: int, near: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> None:
        """Both pipes of one connection, until both have ended; cancelled: it is reset."""
        ends = [near[1]]
        try:
            far = await asyncio.open_connection(HOST, port, limit=_CHUNK_BYTES)
            ends.append(far[1])
            async with asyncio.TaskGroup() as pipes:
                pipes.create_task(Pipe(self.network, source, target).run(near[0], far[1], self._changed))
                pipes.create_task(Pipe(self.network, target, source).run(far[0], near[1], self._changed))
        except (OSError, asyncio.CancelledError):
            for end in ends:
                _reset_on_close(end)
        finally:
            for end in ends:
                end.close()

    async def _close(self) -> None:
        for target in self._targets:
            await self._refuse(target)
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0)


async def _takes_connections(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    """What the other side hears of the close is a reset."""
    if (sock := writer.get_extra_info("socket")) is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    writer.transport.abort()
