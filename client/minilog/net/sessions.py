"""Sessions of one client with brokers that ask for a password or a token (security.protocol=SASL_SSL).

One exchange with each broker, on a connection of its own, gives a session. Each call to that broker carries the session
(session_channel.py), and the hello of each stream does, too. The client renews the session before it ends. If a broker
refuses a session, the client forgets it and makes a new exchange.

    a call begins       a session exists and is young enough     the call carries it
                        there is none, or it ends soon           the call waits for one exchange, which all calls share
    the exchange fails  the call fails with the reason           the next call tries again
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from minilog.addresses import Address
from minilog.errors import MinilogError
from minilog.net.runtime import now_s

SESSION_METADATA = "minilog-session-bin"
_RENEW_SHARE = 0.8  # after this share of a session's life the next call begins an exchange

Exchange = Callable[[Address], Awaitable[tuple[bytes, float]]]
"""Does an exchange with the broker at an address. Returns the session, and for how many seconds the broker accepts it.
Raises MinilogError."""


@dataclass(frozen=True, slots=True)
class _Session:
    content: bytes
    renew_at_s: float


class ClientSessions:
    """The sessions of one client, on one event loop."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._sessions: dict[Address, _Session] = {}
        self._asking: dict[Address, asyncio.Task[_Session]] = {}
        self.failures: dict[Address, MinilogError] = {}
        """Why the last exchange with a broker failed, until one succeeds."""

    def forget(self, address: Address) -> None:
        """Forget the session with this broker. The broker refuses it: the broker has restarted, or the session has
        ended."""
        self._sessions.pop(address, None)

    async def session(self, address: Address) -> bytes:
        """A session with the broker at this address. Raises MinilogError."""
        session = self._sessions.get(address)
        if session is not None and now_s() < session.renew_at_s:
            return session.content
        asking = self._asking.get(address)
        if asking is None:
            asking = self._asking[address] = asyncio.get_running_loop().create_task(self._ask(address))
            asking.add_done_callback(functools.partial(self._take_answer, address))
        return (await asyncio.shield(asking)).content

    def _take_answer(self, address: Address, asking: asyncio.Task[_Session]) -> None:
        """Take the end of an exchange. The waiting calls get its error. If no call waits, the error is dropped."""
        del self._asking[address]
        if not asking.cancelled():
            asking.exception()

    async def _ask(self, address: Address) -> _Session:
        began_s = now_s()
        try:
            content, lifetime_s = await self._exchange(address)
        except MinilogError as error:
            self.failures[address] = error
            raise
        self.failures.pop(address, None)
        session = self._sessions[address] = _Session(content, began_s + _RENEW_SHARE * lifetime_s)
        return session

    async def close(self) -> None:
        """Cancel the exchanges under way."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
