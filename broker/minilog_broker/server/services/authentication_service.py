"""AuthenticationService: a SASL exchange in, a session out.

A refusal is one sentence for all reasons. It comes after a pause that grows with the failures of the host
(access/attempts.py), so that guesses cost time and reveal nothing. An exchange that only took too long gets an error of
its own, and the client tries again. The audit log gets the reason and the user name that the client gave without proof.
Such a line counts as one of a stranger from that host. A broker without users and rules, or with old ones, takes no
password and no token: the client asks another broker (access/rules_age.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.errors import AuthenticationFailed, BrokerNotAvailable, MinilogError, wire_error
from minilog.security.protocols import MAX_CONTENT_BYTES
from minilog.v1 import authentication_pb2, authentication_pb2_grpc
from minilog_broker.security.audit import Audit, AuditEvent, Decision, refused_call
from minilog_broker.security.principal import ANONYMOUS
from minilog_broker.server.access.attempts import PLACES, Attempts, Place
from minilog_broker.server.access.rules_age import RulesAge
from minilog_broker.server.access.server_mechanism import Begin, ServerMechanism
from minilog_broker.server.access.sessions import LoginSessions
from minilog_broker.server.runtime.timer import now_ms

if TYPE_CHECKING:
    from minilog_broker.server.ingress.rules.client_stream import ClientStream

EXCHANGE_S = 5.0  # the limit of an exchange with a place, and of the wait for a place
_REFUSED = "authentication failed: see the user's name and password, or the token"


@dataclass(slots=True)
class _Exchange:
    """The state of one exchange."""

    host: str
    mechanism: ServerMechanism | None = None
    named: str = ""
    """The user or token in the first message."""
    place: Place | None = None
    """The place, while the exchange holds it."""

    @property
    def tried(self) -> str:
        return self.named if self.mechanism is None else self.mechanism.tried or self.named


class AuthenticationService(authentication_pb2_grpc.AuthenticationServiceServicer):
    """The gRPC service that begins sessions. `lifetime_ms`: the lifetime of new sessions. It may be replaced."""

    def __init__(
        self,
        begin: Begin,
        sessions: LoginSessions,
        lifetime_ms: float,
        audit: Audit,
        age: RulesAge,
    ) -> None:
        self._begin = begin
        self._sessions = sessions
        self.lifetime_ms = lifetime_ms
        self._audit = audit
        self._age = age
        self._attempts = Attempts()

    async def Authenticate(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[authentication_pb2.AuthenticateRequest], context: ClientStream
    ) -> None:
        exchange = _Exchange(context.caller.host)
        first = await self._first(request_iterator, exchange)
        if first is None:
            return
        try:
            await self._run(first, request_iterator, context, exchange)
        except BaseException as error:
            pause_s = 0.0 if exchange.place is None else exchange.place.failed()
            if not isinstance(error, AuthenticationFailed | BrokerNotAvailable):
                if exchange.tried:  # the audit log also has clients that only ask for salts
                    self._audit_failure(exchange, "the client left before the end of its login")
                raise  # the client is gone
            self._audit_failure(exchange, str(error))
            await asyncio.sleep(pause_s)
            answer = error if isinstance(error, BrokerNotAvailable) else AuthenticationFailed(_REFUSED)
            await self._refuse(context, answer)

    async def _first(
        self, incoming: AsyncIterator[authentication_pb2.AuthenticateRequest], exchange: _Exchange
    ) -> authentication_pb2.AuthenticateRequest | None:
        """The first message, None where the client ends its side. Raises BrokerNotAvailable after EXCHANGE_S. The
        refusal goes out as the status of the call, which needs no window: a client that reads nothing gets it too."""
        try:
            async with _within(f"the client sent no login in {EXCHANGE_S:.0f} s: try again"):
                return await anext(incoming, None)
        except BrokerNotAvailable as error:
            self._audit_failure(exchange, str(error))
            raise

    async def _refuse(self, context: ClientStream, error: MinilogError) -> None:
        with contextlib.suppress(TimeoutError):  # a client that takes no answer is cut off
            async with asyncio.timeout(EXCHANGE_S):
                await context.write(authentication_pb2.AuthenticateResponse(error=wire_error(error)))

    async def _run(
        self,
        first: authentication_pb2.AuthenticateRequest,
        incoming: AsyncIterator[authentication_pb2.AuthenticateRequest],
        context: ClientStream,
        exchange: _Exchange,
    ) -> None:
        """Run an exchange. It takes a place after the client has sent a name, so that silent clients have none. An
        exchange that takes too long ends with an error that the client tries again. It does not depend on the
        password."""
        self._age.check(now_ms())  # after the first message: a client that still writes may miss the refusal
        self._look_at(exchange, first)
        async with _within(f"{PLACES} logins from {exchange.host} are under way, or have just failed: try again"):
            place = await self._attempts.begin(exchange.host, exchange.named)
        exchange.place = place
        async with _within(f"the login did not end in {EXCHANGE_S:.0f} s: try again"):
            await self._converse(first, incoming, context, exchange)
        exchange.place = None
        place.succeeded()

    def _look_at(self, exchange: _Exchange, first: authentication_pb2.AuthenticateRequest) -> None:
        """Note the name in the first message. Errors of the message wait until the exchange has a place."""
        if len(first.content) <= MAX_CONTENT_BYTES:
            with contextlib.suppress(AuthenticationFailed):
                exchange.mechanism = self._begin(first.mechanism)
                exchange.named = exchange.mechanism.named(first.content)

    async def _converse(
        self,
        request: authentication_pb2.AuthenticateRequest | None,
        incoming: AsyncIterator[authentication_pb2.AuthenticateRequest],
        context: ClientStream,
        exchange: _Exchange,
    ) -> None:
        while request is not None:
            if await self._answered(request, context, exchange):
                return
            request = await anext(incoming, None)
        raise AuthenticationFailed("the client ended the exchange before the end of its login")

    async def _answered(
        self, request: authentication_pb2.AuthenticateRequest, context: ClientStream, exchange: _Exchange
    ) -> bool:
        """Answer one message. True where the client has proven its name."""
        host = exchange.host
        if len(request.content) > MAX_CONTENT_BYTES:
            raise AuthenticationFailed(
                f"a message of the login has {len(request.content)} bytes: the limit is {MAX_CONTENT_BYTES}"
            )
        if (mechanism := exchange.mechanism) is None:
            mechanism = exchange.mechanism = self._begin(request.mechanism)
        answer = authentication_pb2.AuthenticateResponse(content=await mechanism.respond(request.content))
        if (principal := mechanism.principal) is not None:
            lifetime_ms = min(self.lifetime_ms, mechanism.lifetime_ms or self.lifetime_ms)
            answer.session = self._sessions.begin(principal, host, now_ms(), lifetime_ms, mechanism.token_id)
            answer.lifetime_ms = int(lifetime_ms)
            proof = "the mechanism" if mechanism.token_id is None else f"the delegation token {mechanism.token_id}"
            event = (str(principal), host, "Authenticate", "", "", Decision.ALLOWED, f"{proof} proves it")
            self._audit(AuditEvent(*event))
        await context.write(answer)
        return principal is not None

    def _audit_failure(self, exchange: _Exchange, reason: str) -> None:
        self._audit(refused_call("Authenticate", exchange.host, str(ANONYMOUS), reason, exchange.tried))


@contextlib.asynccontextmanager
async def _within(otherwise: str) -> AsyncIterator[None]:
    """Bound a block by EXCHANGE_S. Raises BrokerNotAvailable with the words of `otherwise` after that."""
    try:
        async with asyncio.timeout(EXCHANGE_S):
            yield
    except TimeoutError:
        raise BrokerNotAvailable(otherwise) from None
