"""The gate of a listener of clients. A session or a certificate names the caller, and the policy has its rights."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from typing import Any

from minilog.errors import AuthenticationFailed, AuthorizationFailed, InvalidPrincipal, MinilogError
from minilog_broker.security.audit import refused_call
from minilog_broker.security.principal import ANONYMOUS, EVERYBODY, USER, Principal, check_name
from minilog_broker.server.access.caller import Caller, Proof, Rules
from minilog_broker.server.access.policy import Policy
from minilog_broker.server.access.rules_age import RulesAge
from minilog_broker.server.access.sessions import LoginSession, LoginSessions
from minilog_broker.server.access.table import ROWS, OfPeers, OpenToAll
from minilog_broker.server.ingress.rules.arrival import Arrival
from minilog_broker.server.runtime.timer import now_ms


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A call without a valid identity. `error` goes to the client. The audit log gets `tried`, the user name that the
    client gave, and the true `reason`."""

    error: MinilogError
    tried: str = ""
    reason: str = ""


@dataclass(eq=False, slots=True)
class _Stream:
    caller: Caller
    task: asyncio.Task[Any]
    session: LoginSession | None
    ended_by: MinilogError | None = None

    def end(self, error: MinilogError) -> None:
        """End the call with this error."""
        if self.ended_by is None:
            self.ended_by = error
            self.task.cancel()


class ClientGate:
    """The gate of a listener of clients. `policy`: of the broker. Where `sessions` is None clients show certificates.
    `age`: the age of the rules. `listener`: the name of this one."""

    def __init__(self, policy: Policy, sessions: LoginSessions | None, age: RulesAge, listener: str = "") -> None:
        self._policy = policy
        self._sessions = sessions
        self._age = age
        self._listener = listener
        self._streams: dict[_Stream, None] = {}  # in the order of their begin, in which they are ended

    def admit(self, path: str, arrival: Arrival) -> Caller:
        row, host = ROWS.get(path), arrival.host
        if isinstance(row, OpenToAll):
            return Caller(ANONYMOUS, host, path, self._policy, self._listener)
        caller = self._identified(path, arrival)
        is_for_clients = row is not None and not isinstance(row, OfPeers)
        not_for_clients = AuthorizationFailed(f"{path} is not for clients")
        if isinstance(caller, Caller):
            if is_for_clients:
                return caller
            principal, refused = str(caller.principal), _Unknown(not_for_clients)
        else:
            principal, refused = str(ANONYMOUS), caller if is_for_clients else replace(caller, error=not_for_clients)
        self._policy.refused(refused_call(path, host, principal, refused.reason or str(refused.error), refused.tried))
        raise refused.error

    def _identified(self, path: str, arrival: Arrival) -> Caller | _Unknown:
        if (refusal := self._age.refusal(now_ms())) is not None:
            return _Unknown(refusal)
        host = arrival.host
        if self._sessions is None:
            name = arrival.common_name
            if name is None or Principal.of_broker_name(name) is not None or not _is_user_name(name):
                error = AuthenticationFailed("this listener needs a certificate of a user (ssl.keystore.location)")
                return _Unknown(error, "" if name is None else f"user:{name}")
            return Caller(Principal(USER, name), host, path, self._policy, self._listener, Proof.CERTIFICATE)
        name_of_session = arrival.session
        if not name_of_session:
            return _Unknown(AuthenticationFailed("the call has no session: log in first (security.protocol=SASL_SSL)"))
        session = self._sessions.find(name_of_session, host, now_ms())
        if session is not None:
            return SessionCaller(session, path, self._policy, self._listener)
        error = AuthenticationFailed("the session has ended, or this broker has restarted: log in again")
        if (other := self._sessions.of_another_host(name_of_session, host)) is None:
            return _Unknown(error)
        reason = f"the session of {other.host} came from another host: somebody may have stolen it"
        return _Unknown(error, f"user:{other.principal.name}", reason)

    def check(self, path: str, caller: Caller, request: Any, *, is_first: bool) -> None:
        self._policy.check(path, caller, request)

    def redact(self, path: str, caller: Caller, answer: Any) -> None:
        self._policy.redact(caller, answer)

    @contextlib.contextmanager
    def stream(self, caller: Caller) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        session = caller.session if isinstance(caller, SessionCaller) else None
        entry = _Stream(caller, task, session)
        self._streams[entry] = None
        try:
            yield
        except asyncio.CancelledError:
            if entry.ended_by is None:
                raise  # the client has ended the call
            task.uncancel()
            raise entry.ended_by from None
        finally:
            self._streams.pop(entry, None)

    async def rules_changed(self) -> None:
        """End the streams of callers that have lost a right, one after the other, since each may have thousands of
        rights to check."""
        for stream in list(self._streams):
            if not stream.caller.rules_changed():
                stream.end(AuthorizationFailed(f"the rules of {stream.caller.principal} have changed: try again"))
            await asyncio.sleep(0)

    def users_changed(self, is_gone: Callable[[Principal], bool]) -> None:
        """End the sessions and streams of users that are gone."""
        if self._sessions is not None:
            self._sessions.end_all_of(is_gone)
        for stream in list(self._streams):
            if is_gone(stream.caller.principal):
                stream.end(AuthenticationFailed(f"{stream.caller.principal} was deleted, or has another password"))

    def tokens_changed(self, gone: Container[str]) -> None:
        """End the sessions and streams that began with these delegation tokens, which are gone or end sooner."""
        if self._sessions is not None:
            self._sessions.end_of_tokens(gone)
        for stream in list(self._streams):
            session = stream.session
            if session is not None and session.token_id is not None and session.token_id in gone:
                stream.end(AuthenticationFailed("the delegation token was expired: log in again"))

    def end_streams_of_old_rules(self) -> None:
        """End streams where the rules are too old. Called now and then, and when the rules become too old."""
        if (refusal := self._age.refusal(now_ms())) is not None:
            for stream in list(self._streams):
                if stream.caller.principal != ANONYMOUS:  # a watch of the health reports the old rules
                    stream.end(refusal)

    def end_streams_of_ended_sessions(self) -> None:
        """End the streams of ended sessions. Called now and then."""
        time_ms = now_ms()
        for stream in list(self._streams):
            if stream.session is not None and time_ms >= stream.session.ends_at_ms:
                stream.end(AuthenticationFailed("the session has ended: log in again"))


class SessionCaller(Caller):
    """A caller with a session."""

    def __init__(self, session: LoginSession, path: str, rules: Rules, listener: str) -> None:
        proof = Proof.SESSION if session.token_id is None else Proof.DELEGATION_TOKEN
        super().__init__(session.principal, session.host, path, rules, listener, proof)
        self.session = session


def _is_user_name(name: str) -> bool:
    try:
        check_name(name, "the common name")
    except InvalidPrincipal:
        return False
    return name not in (EVERYBODY, ANONYMOUS.name)
