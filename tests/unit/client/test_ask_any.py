"""A question that any broker may answer, to brokers that are slow, hang or refuse."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from minilog.addresses import Address
from minilog.config import parse_config
from minilog.errors import MinilogError
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import now_s
from minilog.net.stream_connection import StreamConnection
from minilog.security.channel_security import ChannelSecurity
from tests.world.loop import play

SERVERS = "a:1,b:2,c:3"


class _Line:
    """A channel, as far as a question needs one."""

    def __init__(self, host: str) -> None:
        self.host = host

    async def close(self, grace: float | None) -> None:
        pass


class _World:
    """A runtime whose brokers answer when a test says so."""

    def wall_us(self) -> int:
        return 0

    def chance(self) -> random.Random:
        return random.Random(1)

    def unique_bytes(self, count: int) -> bytes:
        return bytes(count)

    def open_channel(self, address: Address, security: ChannelSecurity | None = None) -> Any:
        return _Line(address[0])

    async def connect(
        self, address: Address, protocol: Callable[[], StreamConnection], security: ChannelSecurity | None = None
    ) -> StreamConnection:
        raise OSError(address)


def answered(after_s: dict[str, float], within_s: float) -> tuple[str | MinilogError, float, Counter[str]]:
    """The broker that answers first, or the error; the time; and the number of calls to each broker. A broker answers
    so long after a call. A negative time: the call fails after that time."""
    calls: Counter[str] = Counter()

    async def question(channel: Any, timeout_s: float) -> str:
        calls[channel.host] += 1
        takes_s = after_s[channel.host]
        await asyncio.sleep(min(abs(takes_s), timeout_s))
        if takes_s < 0.0 or takes_s > timeout_s:
            code = grpc.StatusCode.UNAVAILABLE if takes_s < 0.0 else grpc.StatusCode.DEADLINE_EXCEEDED
            raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "no")
        return str(channel.host)

    async def ask(make: Callable[[Any, float], Awaitable[str]]) -> tuple[str | MinilogError, float]:
        client = NetworkClient(parse_config({"bootstrap.servers": SERVERS}), _World())
        try:
            return await client.ask_any(make, now_s() + within_s), now_s()
        except MinilogError as error:
            return error, now_s()
        finally:
            await client.close()

    return *play(ask(question)), calls


def test_a_broker_that_hangs_delays_the_answer_by_a_moment() -> None:
    for hanging in "abc":
        answer, took_s, calls = answered({"a": 0.01, "b": 0.01, "c": 0.01} | {hanging: 1e9}, 30.0)
        assert answer != hanging
        assert took_s <= 0.12
        assert max(calls.values()) == 1


def test_brokers_that_refuse_are_asked_in_rounds_that_get_rare() -> None:
    answer, took_s, calls = answered({"a": -0.001, "b": -0.001, "c": -0.001}, 10.0)
    assert isinstance(answer, MinilogError)
    assert took_s == pytest.approx(10.0, abs=0.1)
    assert all(15 <= count <= 30 for count in calls.values()), "there were 190 with pauses of one length"


def test_slow_brokers_get_longer_and_are_not_asked_twice_at_once() -> None:
    """Each needs 5 s, because it has too much to do. More questions would give it even more."""
    answer, took_s, calls = answered({"a": 5.0, "b": 5.0, "c": 5.0}, 30.0)
    assert answer in {"a", "b", "c"}
    assert took_s < 15.0
    assert all(count <= 4 for count in calls.values())


def test_the_deadline_bounds_all() -> None:
    answer, took_s, _ = answered({"a": 1e9, "b": 1e9, "c": 1e9}, 3.0)
    assert isinstance(answer, MinilogError)
    assert took_s == pytest.approx(3.0, abs=0.1)
