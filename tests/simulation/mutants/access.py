"""Wrong rules of access: what a rule allows, to whom it is told, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from minilog.errors import MinilogError
from minilog.security.access_rules import AccessRule
from minilog.security.quota_keys import REQUEST_RATE
from minilog_broker.security import authorizer
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.producer_proof import ProducerKey, WriterName
from minilog_broker.server.access.caller import Caller
from minilog_broker.server.access.policy import Policy
from minilog_broker.server.access.producer_owners import Claim, ProducerOwners
from minilog_broker.server.access.rules_age import RulesAge
from minilog_broker.server.access.table import ROWS, AllOf, Asked
from minilog_broker.server.ingress.broker_access import BrokerAccess
from minilog_broker.server.ingress.rules.client_gate import ClientGate
from minilog_broker.server.ingress.rules.client_stream import ClientStream
from minilog_broker.server.ingress.rules.throttle import Throttle
from minilog_broker.server.services import security_service
from tests.rules import Patches


def streams_outlive_their_rules() -> Patches:
    """When rules change nobody looks at what open streams were allowed."""

    async def mutant(gate: ClientGate) -> None: ...

    return [(ClientGate, "rules_changed", mutant)]


def rules_are_never_taken_away() -> Patches:
    """A broker adds what it hears of rules to what it has."""
    changed = BrokerAccess.changed
    known: dict[BrokerAccess, dict[AccessRule, None]] = {}

    def mutant(access: BrokerAccess) -> None:
        rules = known.setdefault(access, {})
        rules |= dict.fromkeys(access._image.access_rules)
        changed(access)
        access._rules = Authorizer(rules, access._super_users)

    return [(BrokerAccess, "changed", mutant)]


def requests_are_not_looked_into() -> Patches:
    """Who is known may call; what a call names is not asked for."""

    def mutant(policy: Policy, path: str, caller: Any, request: Any) -> None: ...

    return [(Policy, "check", mutant)]


def all_topics_are_shown() -> Patches:
    """Everybody may describe everything."""
    may = Policy.is_allowed

    def mutant(policy: Policy, principal: Any, host: str, operation: Any, kind: Any, name: str) -> bool:
        return operation.name == "DESCRIBE" or may(policy, principal, host, operation, kind, name)

    return [(Policy, "is_allowed", mutant)]


def age_of_rules_plays_no_part() -> Patches:
    """A broker that hears no controller goes by the rules that it has, for ever."""

    def mutant(age: RulesAge, now_ms: float) -> None: ...

    return [(RulesAge, "refusal", mutant)]


def nobody_asks_whose_a_producer_id_is() -> Patches:
    """Whoever may write writes under every producer id."""
    return [(ProducerOwners, "refusal", lambda self, caller, claim: None)]


def one_proof_is_taken_for_all_ids() -> Patches:
    """A proof is of who was given an id, and not of the id."""
    proof = ProducerKey.proof

    def mutant(self: ProducerKey, name: WriterName, principal: str) -> bytes:
        return proof(self, WriterName(0, 0), principal)

    return [(ProducerKey, "proof", mutant)]


def calls_and_messages_cost_nothing() -> Patches:
    """Whoever owes waits, and nobody comes to owe by what he sends."""
    pay = Throttle.pay

    async def mutant(self: Throttle, caller: Caller, key: str, amount: float, *more: Any, **named: Any) -> None:
        await pay(self, caller, key, 0, *more, **named)

    return [(Throttle, "pay", mutant)]


def bytes_that_are_written_count_nothing() -> Patches:
    """The bytes of a producer are counted as requests alone."""

    def mutant(self: ClientStream) -> tuple[str, ...]:
        return (REQUEST_RATE,)

    return [(ClientStream, "_quotas", mutant)]


def bytes_that_are_read_are_waited_for_by_nobody() -> Patches:
    """A reader that owes is sent its next message."""

    async def mutant(self: ClientStream, *, is_costly: bool = False) -> None:
        await self._room_to_compose(is_costly=is_costly)

    return [(ClientStream, "room", mutant)]


def ids_that_were_given_are_everybodys() -> Patches:
    """An id is as good as its block: only one that nobody was given is refused."""

    def mutant(self: ProducerOwners, caller: Any, claim: Claim) -> Any:
        return None if claim.producer_id < 0 else self._refusal_by_image(claim.producer_id)

    return [(ProducerOwners, "refusal", mutant)]


def streams_go_on_with_what_is_left() -> Patches:
    """A stream is ended when nothing of what it was allowed is allowed any more, and not before."""
    changed = Caller.rules_changed

    def mutant(caller: Caller) -> bool:
        changed(caller)
        return bool(caller._allowed)

    return [(Caller, "rules_changed", mutant)]


def allowed_though_denied() -> Patches:
    """A rule that allows counts as much as one that denies, and it is asked first."""

    def mutant(self: Authorizer, principal: Any, host: str, operation: Any, kind: Any, name: str) -> bool:
        user = str(principal)
        found = self._decisions(user, host, (kind, operation))
        return user in self._super_users or any(each.allowed.has(name) for each in found)

    return [(Authorizer, "is_allowed", mutant)]


def rules_of_a_host_are_of_all() -> Patches:
    """Whom a rule allows something from one host, it allows that from each."""
    tables = authorizer._tables

    def mutant(rules: Iterable[AccessRule]) -> Any:
        return tables(replace(rule, host="*") for rule in rules)

    return [(authorizer, "_tables", mutant)]


def names_are_prefixes() -> Patches:
    """A rule of one name is for all that begin so."""
    has = authorizer._Names.has

    def mutant(self: authorizer._Names, name: str) -> bool:
        return has(self, name) or any(name.startswith(each) for each in self.literals)

    return [(authorizer._Names, "has", mutant)]


def sessions_outlive_their_password() -> Patches:
    """Who is logged in goes on when the user is deleted, or gets another password."""

    def mutant(gate: ClientGate, is_gone: Callable[[Any], bool]) -> None: ...

    return [(ClientGate, "users_changed", mutant)]


def sessions_outlive_their_token() -> Patches:
    """Who is logged in with a delegation token goes on when it is expired."""

    def mutant(gate: ClientGate, gone: Any) -> None: ...

    return [(ClientGate, "tokens_changed", mutant)]


def tokens_make_tokens() -> Patches:
    """Who has shown a delegation token alone gets others."""

    def mutant(kind: Any, caller: Caller, operation: Any) -> None: ...

    return [(security_service, "_refusal", mutant)]


def first_part_is_enough() -> Patches:
    """Of a call that needs several rights the first one is asked for."""
    check = Policy.check

    def mutant(policy: Policy, path: str, caller: Caller, request: Any) -> None:
        try:
            check(policy, path, caller, request)
        except MinilogError:
            row = ROWS[path]
            if not isinstance(row, AllOf):
                raise
            asked = next(each for each in row.parts if isinstance(each, Asked))
            with caller.refusals(()) as refusals:
                for name in asked.names(request, policy._image):
                    if (refused := refusals.of(asked.operation, asked.kind, name)) is not None:
                        raise refused from None

    return [(Policy, "check", mutant)]


def groups_tell_all_topics() -> Patches:
    """Who may look at a group is told of all topics that it has offsets of."""

    def mutant(policy: Policy, caller: Caller, answer: Any) -> None: ...

    return [(Policy, "redact", mutant)]
