"""The pump of a stream: it keeps no message that was dealt with, however long the next one is in coming."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable

from minilog_broker.server.clients.streams import pump
from tests.rules import proves

pytestmark = proves("DK.18")


class Large:
    """A message, of any size."""


class OneMessage:
    """Gives one message, and then nothing until it ends."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.given: weakref.ref[Large] | None = None

    async def received(self) -> AsyncIterator[Large]:
        message = [Large()]
        self.given = weakref.ref(message[0])
        yield message.pop()
        await self.ended.wait()


async def settled(is_so: Callable[[], bool]) -> None:
    for _ in range(20):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it is not so")


def test_an_idle_stream_keeps_neither_the_last_message_that_came_nor_the_last_that_went() -> None:
    async def run() -> None:
        call, ready = OneMessage(), asyncio.Event()
        came: list[str] = []
        outbox = [Large()]
        sent = weakref.ref(outbox[0])

        async def write(message: Large) -> None:
            del message
            await asyncio.sleep(0)

        pumping = asyncio.ensure_future(
            pump(
                call.received(),
                lambda message: came.append(type(message).__name__),
                lambda: outbox.pop() if outbox else None,
                write,
                ready,
            )
        )
        await settled(lambda: came == ["Large"] and not outbox)
        await settled(lambda: call.given is not None and call.given() is None and sent() is None)
        assert not pumping.done()
        call.ended.set()
        await pumping

    asyncio.run(run())


def test_a_message_that_waits_for_the_other_side_is_kept_by_its_serialized_form_alone() -> None:
    async def run() -> None:
        outbox, ready, never = [Large()], asyncio.Event(), asyncio.Event()
        sent = weakref.ref(outbox[0])

        async def write(message: Large) -> None:
            del message  # serialized
            await never.wait()

        pumping = asyncio.ensure_future(
            pump(OneMessage().received(), lambda _: None, lambda: outbox.pop() if outbox else None, write, ready)
        )
        await settled(lambda: sent() is None)
        pumping.cancel()

    asyncio.run(run())
