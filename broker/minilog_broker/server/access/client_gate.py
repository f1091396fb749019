"""The gate of clients' listener: a session or a certificate says who calls, rules what he may, quotas how much."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Any

from minilog.errors import AuthenticationFailed, AuthorizationFailed, InvalidPrincipal, MinilogError, UnknownTopicId
from minilog.security.quota_keys import DEFAULT_ENTITY
from minilog.security.sessions import SESSION_METADATA
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.security.audit import AuditEvent, Decision
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.principal import ANONYMOUS, EVERYBODY, USER, Principal, check_name
from minilog_broker.security.quotas import Quotas
from minilog_broker.server.access.caller import Caller, Proof, Rules
from minilog_broker.server.access.gate import Audit, Context, common_name, host_of, refused_call
from minilog_broker.server.access.rules_age import RulesAge
from minilog_broker.server.access.sessions import Session, Sessions
from minilog_broker.server.access.table import ROWS, SHOWN, AllOf, Asked, InService, OfPeers, OpenToAll, topic_name
from minilog_broker.server.runtime.timer import now_ms

ALTERING = frozenset((Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS))
"""What is told to the audit log where it is allowed, too."""


@dataclass(eq=False, slots=True)
class _Stream:
    caller: Caller
    task: asyncio.Task[Any]
    session: Session | None
    ended_by: MinilogError | None = None

    def end(self, error: MinilogError) -> None:
        """The client is told why."""
        if self.ended_by is None:
            self.ended_by = error
            self.task.cancel()


class ClientGate:
    """`authorizer` gives the rules as they are now. Where `sessions` is None clients show certificates. `quotas`: what
    all listeners of a broker have spent. `age`: whether the rules are new enough. `listener`: the name of this one."""

    def __init__(
        self,
        image: MetadataImage,
        authorizer: Callable[[], Authorizer],
        sessions: Sessions | None,
        audit: Audit,
        quotas: Quotas,
        age: RulesAge,
        listener: str = "",
    ) -> None:
        self._image = image
        self._authorizer = authorizer
        self._sessions = sessions
        self._audit = audit
        self._quotas = quotas
        self._age = age
        self._listener = listener
        self._streams: set[_Stream] = set()

    def admit(self, path: str, context: Context) -> Caller:
        row, host = ROWS.get(path), host_of(context)
        try:
            if isinstance(row, OpenToAll):
                return Caller(ANONYMOUS, host, path, self, self._listener)
            if row is None or isinstance(row, OfPeers):
                raise AuthorizationFailed(f"{path} is not for clients")
            return self._caller(path, context, host)
        except MinilogError as error:
            self._audit(refused_call(path, host, str(ANONYMOUS), error))
            raise

    def _caller(self, path: str, context: Context, host: str) -> Caller:
        self._age.check(now_ms())
        if self._sessions is None:
            name = common_name(context)
            if name is None or Principal.of_broker_name(name) is not None or not _is_user_name(name):
                raise AuthenticationFailed("a certificate of a user is needed (ssl.keystore.location)")
            return Caller(Principal(USER, name), host, path, self, self._listener, Proof.CERTIFICATE)
        name_of_session = dict(context.invocation_metadata() or ()).get(SESSION_METADATA)
        if not isinstance(name_of_session, bytes):
            raise AuthenticationFailed("nobody is known yet: authenticate first (security.protocol=SASL_SSL)")
        session = self._sessions.find(name_of_session, host, now_ms())
        if session is None:
            raise AuthenticationFailed("the session has ended, or this broker was started anew: authenticate again")
        return SessionCaller(session, path, self, self._listener)

    def is_allowed(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """By the rules of now."""
        return self._authorizer().is_allowed(principal, host, operation, kind, name)

    def is_allowed_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """By the rules of now."""
        return self._authorizer().is_allowed_any(principal, host, operation, kind)

    def denied(self, caller: Caller, operation: Operation, kind: ResourceKind, name: str, reason: str) -> None:
        """To the audit log."""
        self._tell(caller, operation, kind, name, Decision.DENIED, reason)

    def tell(self, caller: Caller, operation: Operation, resource: str, decision: Decision, reason: str) -> None:
        """To the audit log."""
        self._audit(
            AuditEvent(str(caller.principal), caller.host, caller.path, operation.value, resource, decision, reason)
        )

    def quota(self, principal: Principal, key: str) -> int | None:
        """Its own, else that of all who have none."""
        for entity in (str(principal), DEFAULT_ENTITY):
            if (found := self._image.quotas.get(entity, {}).get(key)) is not None:
                return found
        return None

    def charge_ms(self, principal: Principal, key: str, amount: float) -> float:
        """By the quota of now."""
        return self._quotas.charge(str(principal), key, self.quota(principal, key), amount, now_ms())

    def _tell(
        self, caller: Caller, operation: Operation, kind: ResourceKind, name: str, decision: Decision, reason: str
    ) -> None:
        self.tell(caller, operation, f"{kind.value}:{name}", decision, reason)

    def check(self, path: str, caller: Caller, request: Any, *, is_first: bool) -> None:
        row = ROWS[path]
        for asked in row.parts if isinstance(row, AllOf) else (row,):
            if isinstance(asked, Asked):
                for name in asked.names(request, self._image):
                    if asked.by_id and not caller.may(Operation.DESCRIBE, asked.kind, name):
                        raise UnknownTopicId("one of these topics was deleted, or is not known here yet")
                    if (refused := caller.refusal(asked.operation, asked.kind, name)) is not None:
                        raise refused
                    if asked.operation in ALTERING:
                        self._tell(caller, asked.operation, asked.kind, name, Decision.ALLOWED, "a rule allows it")
            else:
                assert isinstance(asked, InService | OpenToAll)

    def shown(self, path: str, caller: Caller, answer: Any) -> None:
        """Entries of topics that he may not describe are taken out."""
        if (field := SHOWN.get(path)) is None:
            return
        entries = getattr(answer, field)
        for at in range(len(entries) - 1, -1, -1):
            name = topic_name(self._image, entries[at].partition_id.topic_id)
            if name is None or not caller.may(Operation.DESCRIBE, ResourceKind.TOPIC, name):
                del entries[at]

    @contextlib.contextmanager
    def stream(self, caller: Caller) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        session = caller.session if isinstance(caller, SessionCaller) else None
        entry = _Stream(caller, task, session)
        self._streams.add(entry)
        try:
            yield
        except asyncio.CancelledError:
            if entry.ended_by is None:
                raise  # the client has ended it
            task.uncancel()
            raise entry.ended_by from None
        finally:
            self._streams.discard(entry)

    async def rules_changed(self) -> None:
        """Streams of those who may not do any more what they were allowed are ended, one after the other: each may have
        been allowed thousands of things."""
        for each in list(self._streams):
            if not each.caller.rules_changed():
                each.end(AuthorizationFailed(f"the rules of {each.caller.principal} have changed: ask again"))
            await asyncio.sleep(0)

    def users_changed(self, is_gone: Callable[[Principal], bool]) -> None:
        """Sessions and streams of those who are no more are ended."""
        if self._sessions is not None:
            self._sessions.end_all_of(is_gone)
        for each in list(self._streams):
            if is_gone(each.caller.principal):
                each.end(AuthenticationFailed(f"{each.caller.principal} is no more, or has another password"))

    def tokens_changed(self, gone: Container[str]) -> None:
        """Sessions and streams that began with these delegation tokens are ended: they are no more, or end sooner."""
        if self._sessions is not None:
            self._sessions.end_of_tokens(gone)
        for each in list(self._streams):
            if each.session is not None and each.session.token_id is not None and each.session.token_id in gone:
                each.end(AuthenticationFailed("the delegation token was expired: authenticate again"))

    def end_streams_of_old_rules(self) -> None:
        """Where the rules are too old. To be called now and then, and when they become so."""
        if (refusal := self._age.refusal(now_ms())) is not None:
            for each in list(self._streams):
                if each.caller.principal != ANONYMOUS:  # whoever looks at health is told of it
                    each.end(refusal)

    def end_streams_of_ended_sessions(self) -> None:
        """To be called now and then."""
        time_ms = now_ms()
        for each in list(self._streams):
            if each.session is not None and time_ms >= each.session.ends_at_ms:
                each.end(AuthenticationFailed("the session has ended: authenticate again"))


class SessionCaller(Caller):
    """One that is known by a session."""

    def __init__(self, session: Session, path: str, rules: Rules, listener: str) -> None:
        proof = Proof.SESSION if session.token_id is None else Proof.DELEGATION_TOKEN
        super().__init__(session.principal, session.host, path, rules, listener, proof)
        self.session = session


def _is_user_name(name: str) -> bool:
    try:
        check_name(name, "the common name")
    except InvalidPrincipal:
        return False
    return name not in (EVERYBODY, ANONYMOUS.name)
