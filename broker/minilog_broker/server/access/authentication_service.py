"""AuthenticationService: a SASL exchange in, a session out.

What it refuses it refuses with one sentence for all reasons, and after a pause that grows with the failures of that
host: who guesses learns nothing and waits. The reason goes to the audit log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from minilog.errors import AuthenticationFailed, MinilogError, wire_error
from minilog.security.protocols import MAX_CONTENT_BYTES
from minilog.v1 import authentication_pb2, authentication_pb2_grpc
from minilog_broker.security.audit import AuditEvent, Decision
from minilog_broker.security.principal import ANONYMOUS, Principal
from minilog_broker.server.access.gate import Audit
from minilog_broker.server.access.sessions import Sessions
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.runtime.traffic import ClientStream

EXCHANGE_S = 5.0
_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # after the first failure of a host, the second, ...
_FORGIVEN_MS = 60_000.0
_MOST_HOSTS = 10_000
_REFUSED = "authentication failed: see the user's name and password, or the token"


class ServerMechanism(Protocol):
    """The broker's side of one exchange."""

    def respond(self, content: bytes) -> bytes:
        """The answer to a client's message. Raises AuthenticationFailed."""

    @property
    def principal(self) -> Principal | None:
        """Who it is, once that is known for certain."""

    @property
    def lifetime_ms(self) -> float | None:
        """For how long that is known; None: as the broker is configured."""


Begin = Callable[[str], ServerMechanism]
"""An exchange of a mechanism by its name. Raises AuthenticationFailed where it is none that is taken here."""


class Failures:
    """How often each host has failed lately. Bounded; those that failed longest ago are forgotten first."""

    def __init__(self) -> None:
        self._of_host: dict[str, tuple[int, float]] = {}

    def pause_s(self, host: str, time_ms: float) -> float:
        """Another failure of this host: how long its answer is held back."""
        count, at_ms = self._of_host.pop(host, (0, time_ms))
        count = count + 1 if time_ms - at_ms < _FORGIVEN_MS else 1
        if len(self._of_host) >= _MOST_HOSTS:
            self._of_host.pop(next(iter(self._of_host)))
        self._of_host[host] = (count, time_ms)
        return _PAUSES_S[min(count, len(_PAUSES_S)) - 1]


class AuthenticationService(authentication_pb2_grpc.AuthenticationServiceServicer):
    """See the module's text."""

    def __init__(
        self,
        begin: Begin,
        sessions: Sessions,
        lifetime_ms: float,
        audit: Audit,
    ) -> None:
        self._begin = begin
        self._sessions = sessions
        self._lifetime_ms = lifetime_ms
        self._audit = audit
        self._failures = Failures()

    async def Authenticate(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[authentication_pb2.AuthenticateRequest], context: ClientStream
    ) -> None:
        host = context.caller.host
        try:
            async with asyncio.timeout(EXCHANGE_S):
                await self._converse(request_iterator, context, host)
        except (AuthenticationFailed, TimeoutError) as error:
            self._tell(host, ANONYMOUS, Decision.DENIED, str(error) or "the exchange was not ended in time")
            await asyncio.sleep(self._failures.pause_s(host, now_ms()))
            await context.write(_refusal(AuthenticationFailed(_REFUSED)))

    async def _converse(
        self,
        incoming: AsyncIterator[authentication_pb2.AuthenticateRequest],
        context: ClientStream,
        host: str,
    ) -> None:
        mechanism: ServerMechanism | None = None
        async for request in incoming:
            if len(request.content) > MAX_CONTENT_BYTES:
                raise AuthenticationFailed(f"a message of {len(request.content)} bytes came")
            if mechanism is None:
                mechanism = self._begin(request.mechanism)
            answer = authentication_pb2.AuthenticateResponse(content=mechanism.respond(request.content))
            if (principal := mechanism.principal) is not None:
                lifetime_ms = min(self._lifetime_ms, mechanism.lifetime_ms or self._lifetime_ms)
                answer.session = self._sessions.begin(principal, host, now_ms(), lifetime_ms)
                answer.lifetime_ms = int(lifetime_ms)
                self._tell(host, principal, Decision.ALLOWED, f"{request.mechanism or 'the mechanism'} proves it")
            await context.write(answer)
            if principal is not None:
                return

    def _tell(self, host: str, principal: Principal, decision: Decision, reason: str) -> None:
        self._audit(AuditEvent(str(principal), host, "Authenticate", "", "", decision, reason))


def _refusal(error: MinilogError) -> authentication_pb2.AuthenticateResponse:
    return authentication_pb2.AuthenticateResponse(error=wire_error(error))
