"""A channel to a broker that asks for a password or a token. Each call carries the session as metadata.

A call waits for the session (sessions.py), and the wait counts as time of the call. Streams carry the session in their
hello.

gRPC's call credentials do the same by a plugin on a thread of its own. minilog does not use them for two reasons. A
process that closed its last channel while gRPC released the plugin hung for ever. And a simulated channel has no
threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from minilog.addresses import Address
from minilog.errors import MinilogError
from minilog.net.sessions import SESSION_METADATA, ClientSessions

_Codec = Callable[[Any], Any]
_Metadata = tuple[tuple[str, str | bytes], ...]


class SessionChannel:
    """The part of a grpc.aio.Channel that stubs use. `channel` is the channel below it, by TLS."""

    def __init__(self, channel: grpc.aio.Channel, address: Address, sessions: ClientSessions) -> None:
        self._channel: Any = channel
        self._address = address
        self._sessions = sessions

    def unary_unary(
        self, method: str, request_serializer: _Codec, response_deserializer: _Codec, **_: object
    ) -> Callable[..., Awaitable[Any]]:
        """The method of grpc.aio.Channel. But here the call begins when the caller awaits it."""
        begin = self._channel.unary_unary(
            method, request_serializer=request_serializer, response_deserializer=response_deserializer
        )

        async def ask(request: object, timeout: float | None = None) -> Any:  # noqa: ASYNC109  # gRPC's name
            clock = asyncio.get_running_loop().time
            began_s = clock()
            metadata = await self._metadata(timeout)
            left_s = None if timeout is None else max(0.0, timeout - (clock() - began_s))
            return await begin(request, timeout=left_s, metadata=metadata)

        return ask

    def stream_stream(self, *_: object, **__: object) -> None:
        """Do nothing. Generated stubs call it, but streams have connections of their own (payload_stream.py)."""

    async def channel_ready(self) -> None:
        """Return when there is a connection and a session. Raises grpc.aio.AioRpcError."""
        await self._channel.channel_ready()
        await self._metadata(None)

    async def close(self, grace: float | None = None) -> None:
        """Close the channel, as grpc.aio.Channel does."""
        await self._channel.close(grace)

    async def _metadata(self, within_s: float | None) -> _Metadata:
        try:
            async with asyncio.timeout(within_s):
                return ((SESSION_METADATA, await self._sessions.session(self._address)),)
        except TimeoutError:
            raise _failed(grpc.StatusCode.DEADLINE_EXCEEDED, "no session was given in time") from None
        except MinilogError as error:
            raise _failed(grpc.StatusCode.UNAUTHENTICATED, str(error)) from error


def _failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
