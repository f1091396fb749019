"""Each call takes the session along; what waits for one waits within the time of its call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc
import pytest

from minilog.addresses import Address
from minilog.errors import AuthenticationFailed
from minilog.net.session_channel import SessionChannel
from minilog.net.sessions import SESSION_METADATA, ClientSessions, Exchange

BROKER: Address = ("broker", 9092)
Told = tuple[str, float | None, Any]


class Wire:
    """What gRPC is told: (method, time-out, metadata)."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    def unary_unary(self, method: str, **_: object) -> Callable[..., Awaitable[str]]:
        async def begin(request: object, timeout: float | None, metadata: Any) -> str:  # noqa: ASYNC109
            self.told.append((method, timeout, metadata))
            return f"answer to {request}"

        return begin

    def stream_stream(self, method: str, **_: object) -> Callable[..., str]:
        def begin(metadata: Any) -> str:
            self.told.append((method, None, metadata))
            return "call"

        return begin

    async def channel_ready(self) -> None:
        """It is."""


def channel_with(exchange: Exchange) -> tuple[Wire, SessionChannel]:
    wire = Wire()
    return wire, SessionChannel(cast("grpc.aio.Channel", wire), BROKER, ClientSessions(exchange))


def test_calls_share_one_exchange_and_take_its_session_along() -> None:
    exchanges: list[Address] = []

    async def exchange(address: Address) -> tuple[bytes, float]:
        exchanges.append(address)
        await asyncio.sleep(0)
        return b"session", 60.0

    async def run() -> None:
        wire, channel = channel_with(exchange)
        ask = channel.unary_unary("/Ask", bytes, bytes)
        answers = await asyncio.gather(ask("one", timeout=5.0), ask("two"))
        assert list(answers) == ["answer to one", "answer to two"]
        await channel.channel_ready()
        assert exchanges == [BROKER]
        assert [metadata for _, _, metadata in wire.told] == [((SESSION_METADATA, b"session"),)] * 2
        limits_s = {limit_s for method, limit_s, _ in wire.told if method == "/Ask"}
        assert None in limits_s
        assert all(limit_s is None or 0 < limit_s <= 5.0 for limit_s in limits_s)

    asyncio.run(run())


def test_an_exchange_that_fails_is_told_as_a_call_that_fails() -> None:
    async def exchange(address: Address) -> tuple[bytes, float]:
        raise AuthenticationFailed("who are you?")

    async def run() -> None:
        wire, channel = channel_with(exchange)
        for begun in (channel.unary_unary("/Ask", bytes, bytes)("one"), channel.channel_ready()):
            with pytest.raises(grpc.aio.AioRpcError) as told:
                await begun
            assert (told.value.code(), told.value.details()) == (grpc.StatusCode.UNAUTHENTICATED, "who are you?")
        assert not wire.told

    asyncio.run(run())


def test_a_call_waits_no_longer_for_a_session_than_it_may_take() -> None:
    async def exchange(address: Address) -> tuple[bytes, float]:
        await asyncio.Event().wait()
        raise AssertionError("it never ends")

    async def run() -> None:
        _, channel = channel_with(exchange)
        with pytest.raises(grpc.aio.AioRpcError) as told:
            await channel.unary_unary("/Ask", bytes, bytes)("one", timeout=0.0)
        assert told.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    asyncio.run(run())
