"""Sessions of one client with brokers that ask for a password or a token (security.protocol=SASL_SSL).

One exchange with each broker, on a connection of its own, gives a session. It is sent with each call to that broker
(gRPC's call credentials), and renewed before it ends; one that a broker does not take is forgotten and asked for anew.

    a call begins       a session is there and young enough      it is sent
                        there is none, or it ends soon           the call waits for one exchange, which all share
    the exchange fails  the call fails with the reason           the next call tries again
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from minilog.config import Address
from minilog.errors import AuthenticationFailed, MinilogError
from minilog.net.runtime import now_s

SESSION_METADATA = "minilog-session-bin"
_RENEW_SHARE = 0.8  # of a session's life: then the next call begins an exchange

Exchange = Callable[[Address], Awaitable[tuple[bytes, float]]]
"""Asks the broker at an address: the session, and for how many seconds it is taken. Raises MinilogError."""


@dataclass(frozen=True, slots=True)
class _Session:
    content: bytes
    renew_at_s: float


class Sessions:
    """Of one client, on one event loop."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._sessions: dict[Address, _Session] = {}
        self._asking: dict[Address, asyncio.Task[_Session]] = {}
        self.failures: dict[Address, MinilogError] = {}
        """Why the last exchange with a broker failed, until one succeeds."""

    def call_credentials(self, address: Address) -> grpc.CallCredentials:
        """What sends the session with each call to this broker. On the client's loop."""
        _keep_engine()
        plugin = _Plugin(asyncio.get_running_loop(), self, address)
        return grpc.metadata_call_credentials(plugin, name="minilog-session")

    def forget(self, address: Address) -> None:
        """The broker does not take it: it was started anew, or the session has ended."""
        self._sessions.pop(address, None)

    async def session(self, address: Address) -> bytes:
        """A session with the broker at this address. Raises MinilogError."""
        known = self._sessions.get(address)
        if known is not None and now_s() < known.renew_at_s:
            return known.content
        asking = self._asking.get(address)
        if asking is None:
            asking = self._asking[address] = asyncio.get_running_loop().create_task(self._ask(address))
            asking.add_done_callback(lambda _: self._asking.pop(address, None))
        return (await asyncio.shield(asking)).content

    async def _ask(self, address: Address) -> _Session:
        began_s = now_s()
        try:
            content, lifetime_s = await self._exchange(address)
        except MinilogError as error:
            self.failures[address] = error
            raise
        self.failures.pop(address, None)
        found = self._sessions[address] = _Session(content, began_s + _RENEW_SHARE * lifetime_s)
        return found

    async def close(self) -> None:
        """Give up what is being asked."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


@functools.cache
def _keep_engine() -> grpc.Channel:
    """A channel that is never used, for the life of the process: gRPC's threads stay.

    With the last channel of a process gRPC ends its threads, and waits for them while it holds Python's lock; one of
    them may wait for that lock, to let go of a plugin of call credentials. Then the whole process stands still.
    """
    return grpc.insecure_channel("127.0.0.1:1")


class _Plugin(grpc.AuthMetadataPlugin):
    """Called by gRPC, on a thread of its own, for each call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sessions: Sessions, address: Address) -> None:
        self._loop = loop
        self._sessions = sessions
        self._address = address

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        try:
            self._loop.call_soon_threadsafe(self._begin, callback)
        except RuntimeError:  # the loop is closed: so is the client
            callback((), AuthenticationFailed("the client is closed"))

    def _begin(self, callback: Any) -> None:
        task = self._loop.create_task(self._sessions.session(self._address))
        task.add_done_callback(lambda done: _answer(done, callback))


def _answer(done: asyncio.Task[bytes], callback: Any) -> None:
    if done.cancelled():
        callback((), AuthenticationFailed("the client is closed"))
    elif (error := done.exception()) is not None:
        callback((), error)
    else:
        callback(((SESSION_METADATA, done.result()),), None)
