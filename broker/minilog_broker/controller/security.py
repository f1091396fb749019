"""Users, access rules and quotas: the controller changes and describes them. A request is one decision, checked as a
whole before the controller writes any of it.

A value that is there already is not written again: the answer to an earlier call may have been lost. The answer names
removals of missing things: RESOURCE_NOT_FOUND for a user, the former values for rules and quotas. This module keeps
decisions. The meaning of a user or a rule is no matter of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from minilog.errors import (
    DuplicateResource,
    InvalidArgument,
    InvalidPrincipal,
    ResourceNotFound,
    UnacceptableCredential,
)
from minilog.security.access_rules import AccessRule, AccessRuleFilter, filter_from_wire, rule_from_wire, rule_to_wire
from minilog.security.quota_keys import DEFAULT_ENTITY, MAX_QUOTA, NO_QUOTA, QUOTA_KEYS
from minilog.security.saslprep import UnpreparedText, saslprep
from minilog.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism
from minilog.security.scram_wire import credential_from_wire, mechanism_from_wire, mechanism_to_wire
from minilog.v1 import records_pb2, security_pb2
from minilog_broker.controller.delegation_tokens import removals_of
from minilog_broker.controller.ledger import Ledger
from minilog_broker.controller.security_records import (
    credential_record,
    credential_removal,
    quota_record,
    rule_record,
)
from minilog_broker.levels import SECURITY_LEVEL, check_reached
from minilog_broker.printable import shortened
from minilog_broker.security.access import check_rule
from minilog_broker.security.principal import EVERYBODY, USER, check_name, user_of

# Every broker has all of them in memory and in each snapshot. A rule has about a kilobyte there, the others less.
MAX_USERS = 10_000
MAX_RULES = 10_000
MAX_QUOTAS = 10_000
MIN_SALT_BYTES, MAX_SALT_BYTES = 8, 128  # RFC 8018, section 4.1, wants 8; no real salt is longer


class Security:
    """The controller's part that changes and describes users, access rules and quotas.

    A call that raises has changed nothing.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    # -- users

    def alter_users(self, request: security_pb2.AlterUsersRequest) -> security_pb2.AlterUsersResponse:
        self._check_level("users")
        records: list[records_pb2.MetadataRecord] = []
        changed: set[tuple[str, ScramMechanism]] = set()
        for alteration in request.alterations:
            for mechanism, record in self._altered(alteration):
                if (alteration.name, mechanism) in changed:
                    raise DuplicateResource(
                        f"the request alters user {shortened(alteration.name)!r} twice, for {mechanism}: do it once"
                    )
                changed.add((alteration.name, mechanism))
                if record is not None:
                    records.append(record)
        users = self._ledger.image.users
        new = {name for name, mechanism in changed if name not in users}
        _check_count(len(users) + len(new), MAX_USERS, "users")
        self._write(records)
        gone = {name for name, _ in changed if name not in users}
        for name in gone:  # no token logs in as a deleted user
            self._write(removals_of(self._ledger.image.tokens, f"{USER}:{name}"))
        return security_pb2.AlterUsersResponse()

    def _altered(
        self, alteration: security_pb2.UserAlteration
    ) -> list[tuple[ScramMechanism, records_pb2.MetadataRecord | None]]:
        """The altered credentials with their records: None where the value is there already."""
        there = self._ledger.image.users.get(alteration.name, {})
        if not alteration.HasField("verifier"):
            removed = [mechanism_from_wire(alteration.mechanism)] if alteration.mechanism else list(ScramMechanism)
            present = [mechanism for mechanism in removed if mechanism in there]
            if not present:
                wanted = removed[0] if alteration.mechanism else "any mechanism"
                raise ResourceNotFound(f"user {shortened(alteration.name)!r} has no credential for {wanted}")
            return [(mechanism, credential_removal(alteration.name, mechanism)) for mechanism in present]
        credential = _checked_credential(alteration)
        if there.get(credential.mechanism) == credential:
            return [(credential.mechanism, None)]
        if alteration.expectation == security_pb2.USER_EXPECTATION_NEW and there:
            raise DuplicateResource(
                f"user {alteration.name!r} exists, with {' and '.join(sorted(there))}: alter it, or choose another name"
            )
        if alteration.expectation == security_pb2.USER_EXPECTATION_EXISTING and not there:
            raise ResourceNotFound(f"user {shortened(alteration.name)!r} does not exist: create it")
        return [(credential.mechanism, credential_record(alteration.name, credential))]

    def describe_users(self, request: security_pb2.DescribeUsersRequest) -> security_pb2.DescribeUsersResponse:
        users = self._ledger.image.users
        for name in request.names:
            if name not in users:
                raise ResourceNotFound(f"user {shortened(name)!r} does not exist: see `minilog user list`")
        described = [
            security_pb2.DescribedUser(
                name=name,
                credentials=[
                    security_pb2.DescribedCredential(
                        mechanism=mechanism_to_wire(mechanism), iterations=credential.iterations
                    )
                    for mechanism, credential in sorted(users[name].items())
                ],
            )
            for name in sorted(set(request.names) or users)
        ]
        return security_pb2.DescribeUsersResponse(users=described)

    # -- access rules

    def create_access_rules(
        self, request: security_pb2.CreateAccessRulesRequest
    ) -> security_pb2.CreateAccessRulesResponse:
        self._check_level("access rules")
        rules = dict.fromkeys(rule_from_wire(rule) for rule in request.rules)
        for rule in rules:
            check_rule(rule)
        there = self._ledger.image.access_rules
        new = [rule for rule in rules if rule not in there]
        _check_count(len(there) + len(new), MAX_RULES, "access rules")
        self._write(rule_record(rule) for rule in new)
        return security_pb2.CreateAccessRulesResponse(created_count=len(new))

    def delete_access_rules(
        self, request: security_pb2.DeleteAccessRulesRequest
    ) -> security_pb2.DeleteAccessRulesResponse:
        self._check_level("access rules")
        deleted = self._matching(map(filter_from_wire, request.filters))
        self._write(rule_record(rule, removed=True) for rule in deleted)
        return security_pb2.DeleteAccessRulesResponse(deleted=map(rule_to_wire, deleted))

    def describe_access_rules(
        self, request: security_pb2.DescribeAccessRulesRequest
    ) -> security_pb2.DescribeAccessRulesResponse:
        matching = self._matching([filter_from_wire(request.filter)])
        return security_pb2.DescribeAccessRulesResponse(rules=map(rule_to_wire, matching))

    def _matching(self, filters: Iterable[AccessRuleFilter]) -> list[AccessRule]:
        """The rules that any of the filters matches, in their order."""
        wanted = list(filters)
        matching = [rule for rule in self._ledger.image.access_rules if any(one.matches(rule) for one in wanted)]
        return sorted(matching, key=lambda rule: rule.order)

    # -- quotas

    def alter_quotas(self, request: security_pb2.AlterQuotasRequest) -> security_pb2.AlterQuotasResponse:
        self._check_level("quotas")
        wanted: dict[tuple[str, str], int | None] = {}
        for alteration in request.alterations:
            place = (alteration.entity, alteration.key)
            if place in wanted:
                raise DuplicateResource(f"the request alters {alteration.key} of {alteration.entity} twice: do it once")
            wanted[place] = _checked_quota(alteration)
        quotas = self._ledger.image.quotas
        former = {(entity, key): quotas[entity][key] for entity, key in wanted if key in quotas.get(entity, {})}
        changed = {place: value for place, value in wanted.items() if former.get(place) != value}
        new = sum(value is not None and place not in former for place, value in changed.items())
        _check_count(sum(map(len, quotas.values())) + new, MAX_QUOTAS, "quotas")
        self._write(quota_record(*place, value) for place, value in changed.items())
        messages = [security_pb2.Quota(entity=entity, key=key, value=value) for (entity, key), value in former.items()]
        return security_pb2.AlterQuotasResponse(former=messages)

    def describe_quotas(self, request: security_pb2.DescribeQuotasRequest) -> security_pb2.DescribeQuotasResponse:
        quotas = self._ledger.image.quotas
        messages = [
            security_pb2.Quota(entity=entity, key=key, value=value)
            for entity in ([request.entity] if request.HasField("entity") else sorted(quotas))
            for key, value in sorted(quotas.get(entity, {}).items())
        ]
        return security_pb2.DescribeQuotasResponse(quotas=messages)

    # -- all of them

    def _check_level(self, what: str) -> None:
        check_reached(self._ledger.image.level, SECURITY_LEVEL, f"{what} cannot be changed: they came")

    def _write(self, records: Iterable[records_pb2.MetadataRecord]) -> None:
        for record in records:
            self._ledger.write(record)


def _check_count(count: int, most: int, what: str) -> None:
    if count > most:
        raise InvalidArgument(f"the cluster would have {count} {what}, and the limit is {most}: remove some")


def _checked_credential(alteration: security_pb2.UserAlteration) -> ScramCredential:
    """The credential of an alteration. Raises UnacceptableCredential, or InvalidArgument for an unknown mechanism."""
    name, verifier = alteration.name, alteration.verifier
    mechanism = mechanism_from_wire(alteration.mechanism)
    try:
        check_name(name, f"user {shortened(name)!r}")
        prepared = saslprep(name, what="the user name", stored=True)
    except (InvalidPrincipal, UnpreparedText) as error:
        raise UnacceptableCredential(str(error)) from None
    if prepared != name:  # a login prepares the name: two names that look alike are one
        raise UnacceptableCredential(f"the name of user {name!r} is written {prepared!r} (SASLprep): create that user")
    if name == EVERYBODY:
        raise UnacceptableCredential(f"no user can have the name {name}: in rules it means every user")
    if not MIN_ITERATIONS <= verifier.iterations <= MAX_ITERATIONS:
        raise UnacceptableCredential(
            f"the credential of user {name!r} has {verifier.iterations} iterations: "
            f"give {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    if not MIN_SALT_BYTES <= len(verifier.salt) <= MAX_SALT_BYTES:
        raise UnacceptableCredential(
            f"the credential of user {name!r} has a salt of {len(verifier.salt)} bytes: "
            f"give {MIN_SALT_BYTES} to {MAX_SALT_BYTES}, at random"
        )
    if {len(verifier.stored_key), len(verifier.server_key)} != {mechanism.digest_bytes}:
        raise UnacceptableCredential(
            f"the credential of user {name!r} has keys of {len(verifier.stored_key)} and {len(verifier.server_key)} "
            f"bytes: with {mechanism} each has {mechanism.digest_bytes}"
        )
    return credential_from_wire(mechanism, verifier)


def _checked_quota(alteration: security_pb2.QuotaAlteration) -> int | None:
    """The value, None for the removal of a quota. Raises InvalidPrincipal, InvalidArgument."""
    if alteration.entity != DEFAULT_ENTITY and user_of(alteration.entity).name == EVERYBODY:
        raise InvalidPrincipal(f"a quota is of one user, or of {DEFAULT_ENTITY}, which is all users without one")
    key = QUOTA_KEYS.get(alteration.key)
    if key is None:
        raise InvalidArgument(f"{shortened(alteration.key)!r} is not a quota: give one of {', '.join(QUOTA_KEYS)}")
    if not alteration.HasField("value") or alteration.value == NO_QUOTA:
        return None
    if not key.least <= alteration.value <= MAX_QUOTA:
        raise InvalidArgument(
            f"{key.name} of {alteration.entity} cannot be {alteration.value}: give {key.least} to {MAX_QUOTA}, "
            f"or {NO_QUOTA} for none"
        )
    return alteration.value
