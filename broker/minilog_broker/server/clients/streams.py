"""A bidirectional stream and the core behind it: one pump for every kind of session.

The core is told of each message that comes in and is asked for the next one to send whenever it said that it is
ready. Sending waits for gRPC's flow control, so a slow reader stops the asking, and nothing is queued here.

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
    """Run until the other side closes the stream; an error of either direction ends both and is raised.

    `room` is awaited before each message is taken: while it waits nothing is read, and gRPC's flow control makes the
    other side wait too. `room_to_send` is awaited before the core is asked for a message.
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
