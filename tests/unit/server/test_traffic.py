"""What streams may compose at one time: as much as the budget of answers allows, however many ask at once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from minilog_broker.server.access.caller import EVERYBODY
from minilog_broker.server.runtime.budget import Budget
from minilog_broker.server.runtime.traffic import LARGE_BYTES, ClientStream, Flow
from minilog_broker.server.runtime.turns import Turns

READERS = 20
ALLOWED = 3  # of their messages, for each of which there are two copies


class Unread:
    """The context of a call whose other side reads nothing."""

    async def write(self, content: bytes) -> None:
        await asyncio.Event().wait()


def test_readers_that_ask_for_large_messages_at_one_time_go_no_further_than_the_budget() -> None:
    """Found by an attack on real brokers: all of them saw that there was room, and then each got a turn."""

    async def scenario() -> None:
        flow = Flow(Budget(1), Budget(2 * ALLOWED * LARGE_BYTES), Turns())

        async def read(stream: ClientStream) -> None:
            await stream.room()
            await stream.write(bytes(LARGE_BYTES))

        async def parse(content: bytes, context: Any) -> Any:
            raise AssertionError("nobody sends")

        context = cast("Any", Unread())
        streams = [ClientStream(context, flow.of("reader"), flow, parse, bytes, EVERYBODY) for _ in range(READERS)]
        tasks = [asyncio.ensure_future(read(stream)) for stream in streams]
        await asyncio.wait(tasks, timeout=0.2)
        assert flow.responses.held_bytes == 2 * ALLOWED * LARGE_BYTES
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
