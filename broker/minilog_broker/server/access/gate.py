"""The gate in front of all services of a listener: who calls, and whether the call may be made.

    OpenGate     a listener in the clear: everybody may do everything (on loopback, or where --insecure was said)
    PeerGate     brokers' own listener: mutual TLS, the certificate names the broker (`broker:<cluster>:<id>`)
    ClientGate   clients' listener with TLS: a session (SASL_SSL) or the client's certificate (SSL)

`admit` is asked when a call begins, before anything of it is read; `check` for each message, before a service sees it
(table.py). Long streams are looked at again when rules change, and ended with their session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from minilog.errors import AuthenticationFailed, AuthorizationFailed, MinilogError
from minilog.security.sessions import SESSION_METADATA
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.principal import ANONYMOUS, USER, Principal
from minilog_broker.server.access.caller import EVERYBODY, Caller, Rules
from minilog_broker.server.access.sessions import Session, Sessions
from minilog_broker.server.access.table import ROWS, AllOf, Asked, InService, OfPeers, OpenToAll
from minilog_broker.server.runtime.timer import now_ms

Context = Any
"""A grpc.aio.ServicerContext."""


class Gate(Protocol):
    """Of one listener."""

    def admit(self, path: str, context: Context) -> Caller:
        """Who calls. Raises AuthenticationFailed, AuthorizationFailed."""

    def check(self, path: str, caller: Caller, request: Any, *, is_first: bool) -> None:
        """Whether it may ask for this; `is_first`: of a stream. Raises AuthorizationFailed."""

    def stream(self, caller: Caller) -> contextlib.AbstractContextManager[None]:
        """While a stream of this caller is open; on its task."""


class OpenGate:
    """Everybody may do everything."""

    def admit(self, path: str, context: Context) -> Caller:
        return EVERYBODY

    def check(self, path: str, caller: Caller, request: Any, *, is_first: bool) -> None:
        """Nothing is refused."""

    def stream(self, caller: Caller) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class PeerGate:
    """Only brokers of this cluster, and each in its own name."""

    def __init__(self, cluster_name: str, image: MetadataImage) -> None:
        self._cluster_name = cluster_name
        self._image = image

    def admit(self, path: str, context: Context) -> Caller:
        name = common_name(context)
        principal = Principal.of_broker_name(name) if name is not None else None
        if principal is None or principal.cluster != self._cluster_name:
            raise AuthenticationFailed(
                f"this listener is for brokers of {self._cluster_name!r}, and the certificate is that of "
                f"{name or 'nobody'!r}"
            )
        if not isinstance(ROWS.get(path), OfPeers):
            raise AuthorizationFailed(f"{path} is not for brokers: clients have a listener of their own")
        return Caller(principal, host_of(context), self)

    def check(self, path: str, caller: Caller, request: Any, *, is_first: bool) -> None:
        row = ROWS[path]
        assert isinstance(row, OfPeers)
        sender = row.sender(request, self._image)
        if sender is None or (sender == 0 and not is_first) or sender == caller.principal.broker_id:
            return
        raise AuthorizationFailed(f"{caller.principal} speaks in the name of broker {sender} ({path})")

    def stream(self, caller: Caller) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def is_allowed(self, *question: object) -> bool:
        """What brokers ask of each other is told by the table alone."""
        return True

    def is_allowed_any(self, *question: object) -> bool:
        """The same."""
        return True


@dataclass(eq=False, slots=True)
class _Stream:
    caller: Caller
    task: asyncio.Task[Any]
    session: Session | None


class ClientGate:
    """`authorizer` gives the rules as they are now. Where `sessions` is None clients show certificates."""

    def __init__(self, image: MetadataImage, authorizer: Callable[[], Authorizer], sessions: Sessions | None) -> None:
        self._image = image
        self._authorizer = authorizer
        self._sessions = sessions
        self._streams: set[_Stream] = set()

    def admit(self, path: str, context: Context) -> Caller:
        row, host = ROWS.get(path), host_of(context)
        if isinstance(row, OpenToAll):
            return Caller(ANONYMOUS, host, self)
        if row is None or isinstance(row, OfPeers):
            raise AuthorizationFailed(f"{path} is not for clients")
        return self._caller(context, host)

    def _caller(self, context: Context, host: str) -> Caller:
        if self._sessions is None:
            name = common_name(context)
            if name is None or Principal.of_broker_name(name) is not None:
                raise AuthenticationFailed("a certificate of a user is needed (ssl.keystore.location)")
            return Caller(Principal(USER, name), host, self)
        name_of_session = dict(context.invocation_metadata() or ()).get(SESSION_METADATA)
        if not isinstance(name_of_session, bytes):
            raise AuthenticationFailed("nobody is known yet: authenticate first (security.protocol=SASL_SSL)")
        session = self._sessions.find(name_of_session, host, now_ms())
        if session is None:
            raise AuthenticationFailed("the session has ended, or this broker was started anew: authenticate again")
        return SessionCaller(session, self)

    def is_allowed(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """By the rules of now."""
        return self._authorizer().is_allowed(principal, host, operation, kind, name)

    def is_allowed_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """By the rules of now."""
        return self._authorizer().is_allowed_any(principal, host, operation, kind)

    def check(self, path: str, caller: Caller, request: Any, *, is_first: bool) -> None:
        row = ROWS[path]
        for asked in row.parts if isinstance(row, AllOf) else (row,):
            if isinstance(asked, Asked):
                for name in asked.names(request, self._image):
                    if (refused := caller.refusal(asked.operation, asked.kind, name)) is not None:
                        raise refused
            else:
                assert isinstance(asked, InService | OpenToAll)

    @contextlib.contextmanager
    def stream(self, caller: Caller) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        session = caller.session if isinstance(caller, SessionCaller) else None
        entry = _Stream(caller, task, session)
        self._streams.add(entry)
        try:
            yield
        finally:
            self._streams.discard(entry)

    def rules_changed(self) -> None:
        """Streams of those who may not do any more what they were allowed are ended."""
        for each in list(self._streams):
            if not each.caller.rules_changed():
                each.task.cancel()

    def users_changed(self, is_gone: Callable[[Principal], bool]) -> None:
        """Sessions and streams of those who are no more are ended."""
        if self._sessions is not None:
            self._sessions.end_all_of(is_gone)
        for each in list(self._streams):
            if is_gone(each.caller.principal):
                each.task.cancel()

    async def watch(self) -> None:
        """Until cancelled: streams end with their sessions, within a second."""
        while True:
            await asyncio.sleep(1.0)
            time_ms = now_ms()
            for each in list(self._streams):
                if each.session is not None and time_ms >= each.session.ends_at_ms:
                    each.task.cancel()


class SessionCaller(Caller):
    """One that is known by a session."""

    def __init__(self, session: Session, rules: Rules) -> None:
        super().__init__(session.principal, session.host, rules)
        self.session = session


def common_name(context: Context) -> str | None:
    """Of the certificate that the other side has shown, where it was asked for one and it is believed."""
    names = context.auth_context().get("x509_common_name")
    return None if not names else str(names[0].decode(errors="replace"))


def host_of(context: Context) -> str:
    """The address that a call comes from, without its port: `ipv4:127.0.0.1:4711`."""
    _, _, address = str(context.peer()).partition(":")
    return address.rpartition(":")[0]


def status_of(error: MinilogError) -> grpc.StatusCode:
    """How gRPC tells a refusal."""
    if isinstance(error, AuthenticationFailed):
        return grpc.StatusCode.UNAUTHENTICATED
    return grpc.StatusCode.PERMISSION_DENIED
