"""Whom a broker cuts when connections ask for more than it has; and what the kernel says of real ones."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import replace
from typing import TypedDict

from minilog_broker.server.ingress.rules.budget import Budget
from minilog_broker.server.ingress.rules.traffic import Flow, Traffic
from minilog_broker.server.ingress.transport.connection_guard import ConnectionGuard, pause_s
from minilog_broker.server.ingress.transport.connections import (
    LITTLE_BYTES,
    LONG_MESSAGE_S,
    STALLED_MS,
    Connection,
    ConnectionLimits,
    Connections,
    half_received,
    to_cut,
)
from minilog_broker.server.runtime.turns import Turns
from tests.rules import proves
from tests.world.loop import VirtualLoop

pytestmark = proves("DK.17")

MIB = 1 << 20
LIMITS = ConnectionLimits(connections=10, request_bytes=64 * MIB, response_bytes=32 * MIB)
QUIET = Connection(
    key=0,
    peer="ipv4:10.0.0.1:1",
    silent_ms=0.0,
    half_received_bytes=0,
    unsent_bytes=0,
    receiving_s=0.0,
    is_brokers=False,
)


class Difference(TypedDict, total=False):
    """What is other than in QUIET."""

    silent_ms: float
    half_received_bytes: int
    unsent_bytes: int
    receiving_s: float
    is_brokers: bool


def several(*changes: Difference) -> list[Connection]:
    return [replace(QUIET, key=number, **change) for number, change in enumerate(changes)]


def cut(found: list[Connection], *, room_is_waited_for: bool = False) -> list[int]:
    cuts = to_cut(found, LIMITS, room_is_waited_for=room_is_waited_for)
    return sorted(found.index(each.connection) for each in cuts)


def test_nobody_is_cut_within_the_limits() -> None:
    assert cut(several(*[Difference(half_received_bytes=3 * MIB, unsent_bytes=3 * MIB)] * 10)) == []


def test_above_max_connections_those_go_that_were_silent_longest() -> None:
    found = several(*[Difference(silent_ms=float(number)) for number in range(13)])
    assert cut(found) == [10, 11, 12]


def test_brokers_go_last_however_silent() -> None:
    found = several(*[Difference(silent_ms=1e6, is_brokers=True)] * 8, *[Difference(silent_ms=1.0)] * 5)
    assert len(cut(found)) == 3
    assert min(cut(found)) >= 8


def test_of_half_received_messages_the_stalled_go_first_and_then_the_youngest() -> None:
    large = Difference(half_received_bytes=20 * MIB)
    stalled: Difference = {**large, "silent_ms": STALLED_MS}
    drip: Difference = {**large, "receiving_s": LONG_MESSAGE_S}
    assert cut(several({**large, "receiving_s": 5.0}, stalled)) == [1]
    assert cut(several({**large, "receiving_s": 5.0}, drip)) == [1]
    assert cut(several({**large, "receiving_s": 5.0}, {**large, "receiving_s": 1.0})) == [1]


def test_many_small_messages_on_their_way_are_nobodys_fault() -> None:
    assert cut(several(*[Difference(half_received_bytes=LITTLE_BYTES - 1)] * 10)) == []
    limits = replace(LIMITS, request_bytes=MIB, response_bytes=MIB)
    found = several(*[Difference(half_received_bytes=LITTLE_BYTES - 1, unsent_bytes=LITTLE_BYTES - 1)] * 10)
    assert to_cut(found, limits, room_is_waited_for=True) == []


def test_of_those_that_do_not_read_the_ones_with_most_go() -> None:
    found = several(*[Difference(unsent_bytes=size * MIB) for size in (4, 20, 10, 3)])
    assert cut(found) == [1]


def test_while_a_client_waits_for_room_a_quarter_of_what_is_unsent_is_freed() -> None:
    found = several(*[Difference(unsent_bytes=2 * MIB)] * 8)
    assert cut(found) == []
    assert len(cut(found, room_is_waited_for=True)) == 2


def test_frames_of_http2_beside_messages_are_not_counted_as_messages() -> None:
    # 10 GiB in messages of 1 MiB, in frames of 16 KiB with heads of 9 bytes, and a window update for each 64 KiB read.
    messages = 10_240
    traffic = Traffic(taken_bytes=messages * MIB, taken_messages=messages)
    received = messages * (MIB + 5 + 64 * 9) + 1000
    assert half_received(traffic, received, 0) == 0
    assert half_received(traffic, received + 30 * MIB, 0) > 15 * MIB
    assert half_received(Traffic(), 10_000 * 13, 10_000 * 65_536) == 0


def test_the_kernel_tells_what_gave_and_took_each_connection_to_the_port() -> None:
    async def run() -> None:
        flow = Flow(Budget(MIB), Budget(MIB), Turns())
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as stranger:
            port = server.getsockname()[1]
            looked = Connections(port, flow)
            with socket.create_connection(("127.0.0.1", port)) as client:
                accepted, address = server.accept()
                with accepted:
                    client.sendall(bytes(500_000))
                    received = 0
                    while received < 500_000:
                        received += len(accepted.recv(1 << 16))
                    (found,) = looked.look(1.0)
                    assert found.peer == f"ipv4:127.0.0.1:{address[1]}"
                    assert 480_000 <= found.half_received_bytes <= 500_000
                    traffic = flow.of(found.peer)
                    traffic.taken_bytes = 500_000
                    traffic.given_bytes = 100_000
                    (found,) = looked.look(2.0)
                    assert (found.half_received_bytes, found.unsent_bytes) == (0, 100_000)
                    assert looked.cut(found)
                    assert client.recv(1) == b""
            assert looked.look(3.0) == []
            assert not flow.by_peer
            assert not looked.cut(found)
            stranger.close()

    asyncio.run(run())


def test_a_spent_budget_makes_callers_wait_until_it_is_freed() -> None:
    async def run() -> None:
        elsewhere = 0
        budget = Budget(100, lambda: elsewhere)
        await budget.room()
        with budget.holding(150):
            assert (budget.is_spent, budget.held_bytes) == (True, 150)
            waiting = asyncio.ensure_future(budget.room())
            await asyncio.sleep(0)
            assert budget.waiting == 1
            assert not waiting.done()
            elsewhere = 100
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done(), "others hold it"
        elsewhere = 0
        budget.look()
        await waiting
        assert budget.waiting == 0

    asyncio.run(run())


def test_looks_are_rarer_the_longer_they_take_within_bounds() -> None:
    """A look in which the process stood still for two seconds kept the guard from the next for twenty."""
    assert [pause_s(took_s, is_asked_for=True) for took_s in (0.0, 0.02, 2.0)] == [0.0, 0.2, 1.0]
    assert [pause_s(took_s, is_asked_for=False) for took_s in (0.0, 0.004, 0.008, 2.0)] == [1.0, 2.0, 4.0, 5.0]


class _Port:
    """Connections whose look costs so much CPU time."""

    def __init__(self, look_cpu_s: float) -> None:
        self._look_cpu_s = look_cpu_s
        self.looks, self.cpu_s = 0, 0.0

    def look(self, now_s: float) -> list[Connection]:
        self.looks += 1
        self.cpu_s += self._look_cpu_s
        return []

    def cut(self, connection: Connection) -> bool:
        raise AssertionError("there is none")


def looks_in_ten_seconds(look_cpu_s: float) -> int:
    port, loop = _Port(look_cpu_s), VirtualLoop()
    flow = Flow(Budget(MIB), Budget(MIB), Turns())
    guard = ConnectionGuard([(port, flow)], LIMITS, lambda: 0, lambda: port.cpu_s)

    async def watch() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(guard.watch(), 10.05)

    loop.run_until_complete(watch())
    loop.close()
    return port.looks


def test_the_guard_spares_cpu_time_and_not_time_in_which_it_waited_for_a_core() -> None:
    """By the clock, one look of 10 ms on a busy machine kept it from the next for 5 s: clients found no place."""
    assert looks_in_ten_seconds(0.0) == 10
    assert looks_in_ten_seconds(0.01) == 2
