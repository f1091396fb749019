"""What streams may compose at one time: as much as the budget of answers allows, however many ask at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from minilog.errors import ResourceExhausted
from minilog.record_batch.header import Buffer
from minilog.security.quota_keys import CONNECTIONS
from minilog_broker.security.principal import USER, Principal
from minilog_broker.server.access.caller import Caller, Everybody
from minilog_broker.server.access.costs import Cost
from minilog_broker.server.ingress.rules.budget import Budget
from minilog_broker.server.ingress.rules.client_stream import LARGE_BYTES, ClientStream
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.runtime.turns import Turns

READERS = 20
ALLOWED = 3  # of their messages, for each of which there are two copies


class Unread:
    """The carrier of a stream whose other side reads nothing."""

    async def read(self) -> Buffer | None:
        raise AssertionError("nobody reads")

    async def write(self, content: Sequence[Buffer]) -> None:
        await asyncio.Event().wait()


class Taken:
    """The carrier of a stream whose other side reads all."""

    async def read(self) -> Buffer | None:
        raise AssertionError("nobody reads")

    async def write(self, content: Sequence[Buffer]) -> None:
        pass


def as_one(content: bytes) -> Sequence[Buffer]:
    return (content,)


class Limited:
    """Rules under which a user has so many connections."""

    def is_allowed(self, *question: object) -> bool:
        return True

    def is_allowed_any(self, *question: object) -> bool:
        return True

    def denied(self, *told: object) -> None:
        """Nothing is."""

    def tell(self, *told: object) -> None:
        """There is no audit log."""

    def charge(self, *told: object) -> None:
        """Nothing is counted."""

    def give_back(self, *told: object) -> None:
        """Nothing was."""

    def owed_ms(self, *told: object) -> float:
        return 0.0

    def cost(self, *told: object) -> Cost | None:
        return None

    def quota(self, principal: Principal, key: str) -> int | None:
        return 2 if key == CONNECTIONS else None


def test_a_users_connections_count_on_all_ports_that_share_a_budget() -> None:
    together: list[Flow] = []
    requests, responses, turns = Budget(1), Budget(1), Turns()
    inside, outside = (Flow(requests, responses, turns, together) for _ in range(2))
    alice = Caller(Principal(USER, "alice"), "127.0.0.1", "/p", Limited())
    inside.belongs_to("ipv4:127.0.0.1:1", alice)
    outside.belongs_to("ipv4:127.0.0.1:1", alice)
    assert (inside.connections, outside.connections) == (2, 2)
    for flow in (inside, outside):
        with pytest.raises(ResourceExhausted, match="has 2 connections to this broker"):
            flow.belongs_to("ipv4:127.0.0.1:2", alice)
    outside.keep_only(())
    inside.belongs_to("ipv4:127.0.0.1:2", alice)
    assert inside.connections == 2


def test_a_message_that_is_costly_to_compose_takes_its_turn_though_it_is_small() -> None:
    async def scenario() -> None:
        flow = Flow(Budget(1 << 20), Budget(1 << 20), Turns())
        stream = ClientStream(Taken(), flow.of("reader"), flow, cast("Any", None), as_one, Everybody())
        await stream.room()
        await stream.write(bytes(1))
        await flow.turns.take()
        cheap = asyncio.ensure_future(stream.room())
        costly = asyncio.ensure_future(stream.room(is_costly=True))
        await asyncio.sleep(0)  # one turn of the loop: the turn that is taken ends in a later one, however slow this is
        assert cheap.done(), "a small message waits for no turn"
        assert not costly.done(), "somebody else has the turn"
        await asyncio.wait_for(costly, 5)

    asyncio.run(scenario())


def test_readers_that_ask_for_large_messages_at_one_time_go_no_further_than_the_budget() -> None:
    """Found by an attack on real brokers: all of them saw that there was room, and then each got a turn."""

    async def scenario() -> None:
        flow = Flow(Budget(1), Budget(2 * ALLOWED * LARGE_BYTES), Turns())

        async def read(stream: ClientStream) -> None:
            await stream.room()
            await stream.write(bytes(LARGE_BYTES))

        async def parse(content: Buffer) -> Any:
            raise AssertionError("nobody sends")

        traffic = flow.of("reader")
        streams = [ClientStream(Unread(), traffic, flow, parse, as_one, Everybody()) for _ in range(READERS)]
        tasks = [asyncio.ensure_future(read(stream)) for stream in streams]
        await asyncio.wait(tasks, timeout=0.2)
        assert flow.responses.held_bytes == 2 * ALLOWED * LARGE_BYTES
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
