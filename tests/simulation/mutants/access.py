"""Wrong rules of access: what a rule allows, to whom it is told, and for how long."""

from __future__ import annotations

from typing import Any

from minilog.security.access_rules import AccessRule
from minilog_broker.security.authorizer import Authorizer
from minilog_broker.security.producer_proof import ProducerKey, WriterName
from minilog_broker.server.access.broker_access import BrokerAccess
from minilog_broker.server.access.client_gate import ClientGate
from minilog_broker.server.access.producer_owners import Claim, ProducerOwners
from minilog_broker.server.access.rules_age import RulesAge
from tests.simulation.mutants.replication import Patches


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

    def mutant(gate: ClientGate, path: str, caller: Any, request: Any, *, is_first: bool) -> None: ...

    return [(ClientGate, "check", mutant)]


def all_topics_are_shown() -> Patches:
    """Everybody may describe everything."""
    may = ClientGate.is_allowed

    def mutant(gate: ClientGate, principal: Any, host: str, operation: Any, kind: Any, name: str) -> bool:
        return operation.name == "DESCRIBE" or may(gate, principal, host, operation, kind, name)

    return [(ClientGate, "is_allowed", mutant)]


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


def ids_that_were_given_are_everybodys() -> Patches:
    """An id is as good as its block: only one that nobody was given is refused."""

    def mutant(self: ProducerOwners, caller: Any, claim: Claim) -> Any:
        return None if claim.producer_id < 0 else self._as_far_as_known(claim.producer_id)

    return [(ProducerOwners, "refusal", mutant)]
