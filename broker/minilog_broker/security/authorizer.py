"""Whether somebody may do something: access rules, made into tables once and asked at each call.

- A rule that denies counts more than all that allow. Where no rule allows, it is denied.
- READ, WRITE, DELETE and ALTER that are allowed imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS. What is denied
  implies nothing: who may not READ may still DESCRIBE. ALL is each operation.
- `User:*` is every user and ANONYMOUS, the host `*` every address, the literal name `*` every name.
- A super user may do everything. A broker may do CLUSTER_ACTION to the cluster and nothing else, whatever rules say.

An `Authorizer` does not change: new rules make a new one. To ask costs a few lookups in dictionaries and, where rules
have prefixes, one bisection, however many rules there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from minilog_broker.security.access import ANY, AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog_broker.security.principal import BROKER, EVERYBODY, USER, Principal

_EVERYBODY = f"{USER}:{EVERYBODY}"
_IMPLIED = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}
_Asked = tuple[ResourceKind, Operation]


@dataclass(frozen=True, slots=True)
class _Names:
    """The names that some rules are for. No prefix begins with another, and they are sorted: of all prefixes only the
    last that is not above a name can be one of it."""

    is_everything: bool
    literals: frozenset[str]
    prefixes: tuple[str, ...]

    def has(self, name: str) -> bool:
        return self.is_everything or name in self.literals or self.has_prefix_of(name)

    def has_prefix_of(self, name: str) -> bool:
        """Whether a prefix is for all names that begin with `name`."""
        if not self.prefixes:
            return False
        place = bisect_right(self.prefixes, name)
        return place > 0 and name.startswith(self.prefixes[place - 1])


@dataclass(frozen=True, slots=True)
class _Decisions:
    """What the rules of one principal and host say of one operation on one kind of resource."""

    denied: _Names
    allowed: _Names


_ByHost = dict[str, _Decisions]
_NOTHING: dict[str, _ByHost] = {}


class Authorizer:
    """The answer to "may this principal do this?", by one set of access rules.

    `super_users` are written as principals: `User:admin`. Raises ValueError where one is no user, or is everybody.
    """

    def __init__(self, rules: Iterable[AccessRule], super_users: Iterable[str]) -> None:
        self._super_users = frozenset(super_users)
        for each in self._super_users:
            kind, _, name = each.partition(":")
            if kind != USER or name in ("", EVERYBODY):
                raise ValueError(f"the super user {each!r} is not one user: write User:NAME, such as User:admin")
        self._tables = _tables(rules)

    def is_allowed(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether `principal`, from the address `host`, may do `operation` to the resource of this kind and name."""
        if principal.kind != USER:
            return _is_allowed_to_broker(principal, operation, kind)
        user = str(principal)
        if user in self._super_users:
            return True
        is_allowed = False
        for decisions in self._decisions(user, host, (kind, operation)):
            if decisions.denied.has(name):
                return False
            is_allowed = is_allowed or decisions.allowed.has(name)
        return is_allowed

    def is_allowed_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there is any name for which `is_allowed` would be true (Kafka's authorizeByResourceType). Costs more
        than that: where much is both allowed and denied by name, each name is looked at."""
        if principal.kind != USER:
            return _is_allowed_to_broker(principal, operation, kind)
        user = str(principal)
        if user in self._super_users:
            return True
        found = self._decisions(user, host, (kind, operation))
        denied = [each.denied for each in found]
        if any(each.is_everything for each in denied):
            return False
        return any(_leaves_any(each.allowed, denied) for each in found)

    def _decisions(self, user: str, host: str, asked: _Asked) -> list[_Decisions]:
        """At most four: of the user and of everybody, from this host and from any."""
        found = []
        by_principal = self._tables.get(asked, _NOTHING)  # first, and once: an enum's hash costs most of all
        for principal in (user, _EVERYBODY):
            by_host = by_principal.get(principal)
            if by_host is not None:
                if (here := by_host.get(host)) is not None:
                    found.append(here)
                if (anywhere := by_host.get(ANY)) is not None:
                    found.append(anywhere)
        return found


def _is_allowed_to_broker(principal: Principal, operation: Operation, kind: ResourceKind) -> bool:
    return principal.kind == BROKER and operation is Operation.CLUSTER_ACTION and kind is ResourceKind.CLUSTER


def _leaves_any(allowed: _Names, denied: list[_Names]) -> bool:
    """Whether a name of `allowed` is in none of `denied`, of which none is everything. Finitely many names and longer
    prefixes never use up what begins with a prefix."""
    if allowed.is_everything:
        return True
    if any(not any(each.has_prefix_of(prefix) for each in denied) for prefix in allowed.prefixes):
        return True
    return any(not any(each.has(name) for each in denied) for name in allowed.literals)


def _tables(rules: Iterable[AccessRule]) -> dict[_Asked, dict[str, _ByHost]]:
    sorted_out: dict[tuple[_Asked, str, str], list[AccessRule]] = defaultdict(list)
    for rule in rules:
        for operation in _operations(rule):
            sorted_out[(rule.resource_kind, operation), rule.principal, rule.host].append(rule)
    tables: dict[_Asked, dict[str, _ByHost]] = {}
    for (asked, principal, host), found in sorted_out.items():
        decisions = _Decisions(_names(found, Permission.DENY), _names(found, Permission.ALLOW))
        tables.setdefault(asked, {}).setdefault(principal, {})[host] = decisions
    return tables


def _operations(rule: AccessRule) -> Iterable[Operation]:
    """The operations that are asked for which the rule decides."""
    if rule.operation is Operation.ALL:
        return tuple(Operation)
    if rule.permission is Permission.ALLOW and rule.operation in _IMPLIED:
        return rule.operation, _IMPLIED[rule.operation]
    return (rule.operation,)


def _names(rules: list[AccessRule], permission: Permission) -> _Names:
    found = [rule for rule in rules if rule.permission is permission]
    literals = frozenset(rule.name for rule in found if rule.pattern is Pattern.LITERAL)
    prefixes: list[str] = []
    for each in sorted(rule.name for rule in found if rule.pattern is Pattern.PREFIXED):
        if not prefixes or not each.startswith(prefixes[-1]):
            prefixes.append(each)
    return _Names(ANY in literals or "" in prefixes, literals, tuple(prefixes))
