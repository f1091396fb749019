"""AuthenticationService: a SASL exchange in, a session out.

What it refuses it refuses with one sentence for all reasons, and after a pause that grows with the failures of that
host (attempts.py): who guesses learns nothing and waits. The reason goes to the audit log, with whom the client said
that it is, which nothing proves: its limits are those of a stranger from that host. A broker whose users and rules are
too old, or not there yet, takes no password and no token: another one is asked (rules_age.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from minilog.errors import AuthenticationFailed, BrokerNotAvailable, MinilogError, wire_error
from minilog.security.protocols import MAX_CONTENT_BYTES
from minilog.v1 import authentication_pb2, authentication_pb2_grpc
from minilog_broker.security.audit import AuditEvent, Decision
from minilog_broker.security.principal import ANONYMOUS, Principal
from minilog_broker.server.access.attempts import Attempts
from minilog_broker.server.access.gate import Audit, refused_call
from minilog_broker.server.access.rules_age import RulesAge
from minilog_broker.server.access.sessions import Sessions
from minilog_broker.server.runtime.timer import now_ms
from minilog_broker.server.runtime.traffic import ClientStream

EXCHANGE_S = 5.0  # from its place to its answer; and so long for a place
_REFUSED = "authentication failed: see the user's name and password, or the token"


class ServerMechanism(Protocol):
    """The broker's side of one exchange."""

    async def respond(self, content: bytes) -> bytes:
        """The answer to a client's message. Raises AuthenticationFailed, or BrokerNotAvailable where this broker
        cannot tell yet."""

    @property
    def principal(self) -> Principal | None:
        """Who it is, once that is known for certain."""

    @property
    def lifetime_ms(self) -> float | None:
        """For how long that is known; None: as the broker is configured."""

    @property
    def token_id(self) -> str | None:
        """Of the delegation token that proves it, where one does."""

    @property
    def tried(self) -> str:
        """Whom the client says that it is, as `user:alice` or `delegation-token:ID`; empty where it has not said."""


Begin = Callable[[str], ServerMechanism]
"""An exchange of a mechanism by its name. Raises AuthenticationFailed where it is none that is taken here."""


@dataclass(slots=True)
class _Exchange:
    """One, as far as it has come."""

    host: str
    mechanism: ServerMechanism | None = None

    @property
    def tried(self) -> str:
        return "" if self.mechanism is None else self.mechanism.tried


class AuthenticationService(authentication_pb2_grpc.AuthenticationServiceServicer):
    """See the module's text."""

    def __init__(
        self,
        begin: Begin,
        sessions: Sessions,
        lifetime_ms: float,
        audit: Audit,
        age: RulesAge,
    ) -> None:
        self._begin = begin
        self._sessions = sessions
        self._lifetime_ms = lifetime_ms
        self._audit = audit
        self._age = age
        self._attempts = Attempts()

    async def Authenticate(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[authentication_pb2.AuthenticateRequest], context: ClientStream
    ) -> None:
        host = context.caller.host
        if (refusal := self._age.refusal(now_ms())) is not None:
            self._tell_failure(_Exchange(host), str(refusal))
            await self._refuse(context, refusal)
            return
        async with asyncio.timeout(EXCHANGE_S):
            await self._attempts.begin(host)
        exchange = _Exchange(host)
        try:
            async with asyncio.timeout(EXCHANGE_S):
                await self._converse(request_iterator, context, exchange)
        except BaseException as error:
            pause_s = self._attempts.failed(host)
            if not isinstance(error, AuthenticationFailed | BrokerNotAvailable | TimeoutError):
                if exchange.tried:  # who asks for salts alone is told, too
                    self._tell_failure(exchange, "the client left before it was known")
                raise  # the client is gone
            self._tell_failure(exchange, str(error) or "the exchange was not ended in time")
            await asyncio.sleep(pause_s)
            await self._refuse(
                context, error if isinstance(error, BrokerNotAvailable) else AuthenticationFailed(_REFUSED)
            )
        else:
            self._attempts.succeeded(host)

    async def _refuse(self, context: ClientStream, error: MinilogError) -> None:
        async with asyncio.timeout(EXCHANGE_S):  # who takes no answer is cut
            await context.write(authentication_pb2.AuthenticateResponse(error=wire_error(error)))

    async def _converse(
        self,
        incoming: AsyncIterator[authentication_pb2.AuthenticateRequest],
        context: ClientStream,
        exchange: _Exchange,
    ) -> None:
        host = exchange.host
        async for request in incoming:
            if len(request.content) > MAX_CONTENT_BYTES:
                raise AuthenticationFailed(f"a message of {len(request.content)} bytes came")
            if (mechanism := exchange.mechanism) is None:
                mechanism = exchange.mechanism = self._begin(request.mechanism)
            answer = authentication_pb2.AuthenticateResponse(content=await mechanism.respond(request.content))
            if (principal := mechanism.principal) is not None:
                lifetime_ms = min(self._lifetime_ms, mechanism.lifetime_ms or self._lifetime_ms)
                answer.session = self._sessions.begin(principal, host, now_ms(), lifetime_ms, mechanism.token_id)
                answer.lifetime_ms = int(lifetime_ms)
                proof = "the mechanism" if mechanism.token_id is None else f"the delegation token {mechanism.token_id}"
                told = (str(principal), host, "Authenticate", "", "", Decision.ALLOWED, f"{proof} proves it")
                self._audit(AuditEvent(*told))
            await context.write(answer)
            if principal is not None:
                return

    def _tell_failure(self, exchange: _Exchange, reason: str) -> None:
        self._audit(refused_call("Authenticate", exchange.host, str(ANONYMOUS), reason, exchange.tried))
