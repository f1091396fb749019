"""The gate of clients' listener: a session or a certificate says who calls, rules what he may, quotas how much."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minilog.errors import AuthenticationFailed, AuthorizationFailed, InvalidPrincipal, MinilogError
from minilog.security.quota_keys import DEFAULT_ENTITY
from minilog.security.sessions import SESSION_METADATA
from minilog_broker.controller.image import MetadataImage
from minilog_broker.security.access import Operation, ResourceKind
from minilog_broker.security.audit import ALTERING, AuditEvent, Decision
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.principal import ANONYMOUS, EVERYBODY, USER, Principal, check_name
from minilog_broker.security.quotas import Quotas
from minilog_broker.server.access.about import alters_nothing
from minilog_broker.server.access.caller import Caller, Proof, Rules
from minilog_broker.server.access.costs import Cost, cost_of
from minilog_broker.server.access.gate import Audit, Context, common_name, host_of, refused_call
from minilog_broker.server.access.refusals import ById
from minilog_broker.server.access.rules_age import RulesAge
from minilog_broker.server.access.sessions import Session, Sessions
from minilog_broker.server.access.shown import take_out
from minilog_broker.server.access.table import ROWS, AllOf, Asked, LeftOut, OfPeers, OpenToAll, Row
from minilog_broker.server.runtime.timer import now_ms


@dataclass(frozen=True, slots=True)
class _Unknown:
    """Nobody that is known: what the client is told, and what the audit log is told besides: `tried`, whom it may have
    wanted to be, and why it is not."""

    error: MinilogError
    tried: str = ""
    reason: str = ""


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
    all listeners of a broker have spent. `age`: whether the rules are new enough. `listener`: the name of this one.
    `default_partitions`: of a topic that is created without a number."""

    def __init__(
        self,
        image: MetadataImage,
        authorizer: Callable[[], Authorizer],
        sessions: Sessions | None,
        audit: Audit,
        quotas: Quotas,
        age: RulesAge,
        listener: str = "",
        default_partitions: int = 1,
    ) -> None:
        self._default_partitions = default_partitions
        self._image = image
        self._authorizer = authorizer
        self._sessions = sessions
        self._audit = audit
        self._quotas = quotas
        self._age = age
        self._listener = listener
        self._streams: dict[_Stream, None] = {}  # in their order: they are ended in it

    def admit(self, path: str, context: Context) -> Caller:
        row, host = ROWS.get(path), host_of(context)
        if isinstance(row, OpenToAll):
            return Caller(ANONYMOUS, host, path, self, self._listener)
        found = self._known(path, context, host)
        is_for_clients = row is not None and not isinstance(row, OfPeers)
        not_for_clients = AuthorizationFailed(f"{path} is not for clients")
        if isinstance(found, Caller):
            if is_for_clients:
                return found
            who, refused = str(found.principal), _Unknown(not_for_clients)
        else:
            who, refused = str(ANONYMOUS), found if is_for_clients else replace(found, error=not_for_clients)
        self._audit(refused_call(path, host, who, refused.reason or str(refused.error), refused.tried))
        raise refused.error

    def _known(self, path: str, context: Context, host: str) -> Caller | _Unknown:
        if (refusal := self._age.refusal(now_ms())) is not None:
            return _Unknown(refusal)
        if self._sessions is None:
            name = common_name(context)
            if name is None or Principal.of_broker_name(name) is not None or not _is_user_name(name):
                error = AuthenticationFailed("a certificate of a user is needed (ssl.keystore.location)")
                return _Unknown(error, "" if name is None else f"user:{name}")
            return Caller(Principal(USER, name), host, path, self, self._listener, Proof.CERTIFICATE)
        name_of_session = dict(context.invocation_metadata() or ()).get(SESSION_METADATA)
        if not isinstance(name_of_session, bytes):
            return _Unknown(
                AuthenticationFailed("nobody is known yet: authenticate first (security.protocol=SASL_SSL)")
            )
        session = self._sessions.find(name_of_session, host, now_ms())
        if session is not None:
            return SessionCaller(session, path, self, self._listener)
        error = AuthenticationFailed("the session has ended, or this broker was started anew: authenticate again")
        if (other := self._sessions.of_another_host(name_of_session, host)) is None:
            return _Unknown(error)
        reason = f"the session was given to {other.host}, and came from elsewhere: somebody else may have it"
        return _Unknown(error, f"user:{other.principal.name}", reason)

    def is_allowed(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """By the rules of now."""
        return self._authorizer().is_allowed(principal, host, operation, kind, name)

    def is_allowed_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """By the rules of now."""
        return self._authorizer().is_allowed_any(principal, host, operation, kind)

    def denied(
        self,
        caller: Caller,
        operation: Operation,
        kind: ResourceKind,
        names: Sequence[str],
        reason: str,
        about: Sequence[str],
    ) -> None:
        """To the audit log: topics that there are before names that somebody made up."""
        if kind is ResourceKind.TOPIC:
            names = sorted(names, key=lambda name: name not in self._image.topic_ids)
        told = (*(f"{kind.value}:{name}" for name in names), *about)
        self._tell(caller, operation, told, Decision.DENIED, reason)

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

    def charge(self, principal: Principal, key: str, amount: float) -> None:
        """By the quota of now."""
        self._quotas.charge(str(principal), key, self.quota(principal, key), amount, now_ms())

    def give_back(self, principal: Principal, key: str, amount: float) -> None:
        """Of what was charged."""
        self._quotas.give_back(str(principal), key, amount)

    def owed_ms(self, principal: Principal, key: str) -> float:
        """By the quota of now."""
        return self._quotas.owed_ms(str(principal), key, self.quota(principal, key), now_ms())

    def cost(self, path: str, request: Any) -> Cost | None:
        """By the topics of now."""
        return cost_of(path, request, self._image, self._default_partitions)

    def _tell(
        self, caller: Caller, operation: Operation, resources: Sequence[str], decision: Decision, reason: str
    ) -> None:
        first, *others = resources
        who, path = str(caller.principal), caller.path
        self._audit(AuditEvent(who, caller.host, path, operation.value, first, decision, reason, tuple(others)))

    def check(self, path: str, caller: Caller, request: Any, *, is_first: bool) -> None:
        """All names are judged, so that the audit log has all that was refused; the client is told of the first."""
        if not (parts := _parts(ROWS[path])):
            return  # the service asks
        judged = [(part, list(part.names(request, self._image))) for part in parts]
        about = [each for part, _ in judged if isinstance(part, Asked) for each in part.about(request)]
        refused: MinilogError | None = None
        with caller.refusals(about) as refusals:
            for part, names in judged:
                for name in names:
                    if isinstance(part, LeftOut):
                        refusals.of(Operation.DESCRIBE, ResourceKind.TOPIC, name)
                    else:
                        refusal = refusals.of(part.operation, part.kind, name)
                        refused = refused or refusal
        if refused is not None:
            raise refused
        for part, names in () if alters_nothing(request) else judged:
            if isinstance(part, Asked) and part.operation in ALTERING and names:
                known = (each.name if isinstance(each, ById) else each for each in names)
                told = (*(f"{part.kind.value}:{name}" for name in known), *about)
                self._tell(caller, part.operation, told, Decision.ALLOWED, "a rule allows it")

    def shown(self, path: str, caller: Caller, answer: Any) -> None:
        """What he may not describe is taken out."""

        def sees_topic(topic_id: bytes) -> bool:
            topic = self._image.topics.get(topic_id)
            return topic is not None and caller.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name)

        def sees_transaction(name: str) -> bool:
            return caller.may(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, name)

        take_out(answer, sees_topic, sees_transaction)

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
                raise  # the client has ended it
            task.uncancel()
            raise entry.ended_by from None
        finally:
            self._streams.pop(entry, None)

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


def _parts(row: Row) -> tuple[Asked | LeftOut, ...]:
    """What is asked of the rules before a service sees the message."""
    if isinstance(row, AllOf):
        return row.parts
    return (row,) if isinstance(row, Asked) else ()


def _is_user_name(name: str) -> bool:
    try:
        check_name(name, "the common name")
    except InvalidPrincipal:
        return False
    return name not in (EVERYBODY, ANONYMOUS.name)
