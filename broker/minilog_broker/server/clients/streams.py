"""A bidirectional stream and the core behind it: one pump for every kind of session.

The pump hands each incoming message to the core. It takes the next message from the core whenever the core has set
`ready`. Sending waits for flow control, so a slow reader stops the pump, and no messages queue up here.

    incoming ──► receive(message)      ready.set() ──► next_message() ──► outgoing, until None
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any


async def pump(
    incoming: AsyncIterator[Any],
    receive: Callable[[Any], None],
    next_message: Callable[[], Any | None],
    write: Callable[[Any], Awaitable[None]],
    ready: asyncio.Event,
    room: Callable[[], Awaitable[None]] | None = None,
    room_to_send: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run until the other side closes the stream. An error of either direction ends both and is raised.

    The pump awaits `room` before it takes a message. Meanwhile it reads nothing, and flow control makes the other side
    wait too. It awaits `room_to_send` before it asks the core for a message.
    """

    async def read() -> None:
        async for message in incoming:
            if room is not None:
                await room()
            receive(message)
            del message  # it may be large, and the next one may be long in coming

    async def send() -> None:
        while True:
            if room_to_send is not None:
                await room_to_send()
            message = next_message()
            if message is None:
                ready.clear()
                await ready.wait()
            else:
                writing = write(message)
                del message  # `write` lets go of it, too, when it is serialized
                await writing

    reading, sending = asyncio.ensure_future(read()), asyncio.ensure_future(send())
    try:
        done, _ = await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)
        for task in (reading, sending):
            if task in done:
                task.result()
    finally:
        for task in (reading, sending):
            task.cancel()
        await asyncio.gather(reading, sending, return_exceptions=True)
