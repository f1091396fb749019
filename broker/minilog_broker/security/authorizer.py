"""The decision whether a principal may do an operation, by tables that are made of the access rules once.

- One rule that denies outweighs all rules that allow. An operation that no rule allows is denied.
- An allowed READ, WRITE, DELETE or ALTER implies DESCRIBE. An allowed ALTER_CONFIGS implies DESCRIBE_CONFIGS. A rule
  that denies implies nothing: a principal that may not READ may still DESCRIBE. ALL is each operation.
- `User:*` is every user and ANONYMOUS, the host `*` every address, the literal name `*` every name.
- A super user may do everything. A broker may do CLUSTER_ACTION to the cluster, and nothing else. Rules do not change
  that.

An `Authorizer` does not change: new rules make a new one. A check costs a few lookups in dictionaries and, where rules
have prefixes, one bisection. The number of rules does not matter.
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
_Action = tuple[ResourceKind, Operation]


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of some rules. The prefixes are sorted, and none begins with another. So only one of them can be a
    prefix of a name: the last one that is not above the name."""

    is_everything: bool
    literals: frozenset[str]
    prefixes: tuple[str, ...]

    def has(self, name: str) -> bool:
        return self.is_everything or name in self.literals or self.has_prefix_of(name)

    def has_prefix_of(self, name: str) -> bool:
        """Whether one prefix has all names that begin with `name`."""
        if not self.prefixes:
            return False
        place = bisect_right(self.prefixes, name)
        return place > 0 and name.startswith(self.prefixes[place - 1])


@dataclass(frozen=True, slots=True)
class _Decisions:
    """The rules of one principal and host for one operation on one kind of resource."""

    denied: _Names
    allowed: _Names


_ByHost = dict[str, _Decisions]
_NOTHING: dict[str, _ByHost] = {}


class Authorizer:
    """The answer to "may this principal do this?", by one set of access rules.

    `super_users` are texts of principals: `User:admin`. Raises ValueError where one is not a user, or is `User:*`.
    """

    def __init__(self, rules: Iterable[AccessRule], super_users: Iterable[str]) -> None:
        self._super_users = frozenset(super_users)
        for super_user in self._super_users:
            kind, _, name = super_user.partition(":")
            if kind != USER or name in ("", EVERYBODY):
                raise ValueError(f"the super user {super_user!r} is not one user: write User:NAME, such as User:admin")
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
        """Whether `is_allowed` would be true for any name (Kafka's authorizeByResourceType).

        This costs more than `is_allowed`: it looks at each name where rules allow and deny many by name."""
        if principal.kind != USER:
            return _is_allowed_to_broker(principal, operation, kind)
        user = str(principal)
        if user in self._super_users:
            return True
        decisions = self._decisions(user, host, (kind, operation))
        denied = [of_rules.denied for of_rules in decisions]
        if any(names.is_everything for names in denied):
            return False
        return any(_leaves_any(of_rules.allowed, denied) for of_rules in decisions)

    def _decisions(self, user: str, host: str, action: _Action) -> list[_Decisions]:
        """At most four: those of the user and of everybody, from this host and from any."""
        decisions = []
        by_principal = self._tables.get(action, _NOTHING)  # first, and once: the hash of an enum is the largest cost
        for principal in (user, _EVERYBODY):
            by_host = by_principal.get(principal)
            if by_host is not None:
                if (here := by_host.get(host)) is not None:
                    decisions.append(here)
                if (anywhere := by_host.get(ANY)) is not None:
                    decisions.append(anywhere)
        return decisions


def _is_allowed_to_broker(principal: Principal, operation: Operation, kind: ResourceKind) -> bool:
    return principal.kind == BROKER and operation is Operation.CLUSTER_ACTION and kind is ResourceKind.CLUSTER


def _leaves_any(allowed: _Names, denied: list[_Names]) -> bool:
    """Whether `allowed` has a name that none of `denied` has. None of `denied` is everything.

    Finitely many names and longer prefixes never cover all names that begin with a prefix."""
    if allowed.is_everything:
        return True
    if any(not any(names.has_prefix_of(prefix) for names in denied) for prefix in allowed.prefixes):
        return True
    return any(not any(names.has(name) for names in denied) for name in allowed.literals)


def _tables(rules: Iterable[AccessRule]) -> dict[_Action, dict[str, _ByHost]]:
    groups: dict[tuple[_Action, str, str], list[AccessRule]] = defaultdict(list)
    for rule in rules:
        for operation in _operations(rule):
            groups[(rule.resource_kind, operation), rule.principal, rule.host].append(rule)
    tables: dict[_Action, dict[str, _ByHost]] = {}
    for (action, principal, host), group in groups.items():
        decisions = _Decisions(_names(group, Permission.DENY), _names(group, Permission.ALLOW))
        tables.setdefault(action, {}).setdefault(principal, {})[host] = decisions
    return tables


def _operations(rule: AccessRule) -> Iterable[Operation]:
    """The operations that the rule decides."""
    if rule.operation is Operation.ALL:
        return tuple(Operation)
    if rule.permission is Permission.ALLOW and rule.operation in _IMPLIED:
        return rule.operation, _IMPLIED[rule.operation]
    return (rule.operation,)


def _names(rules: list[AccessRule], permission: Permission) -> _Names:
    chosen = [rule for rule in rules if rule.permission is permission]
    literals = frozenset(rule.name for rule in chosen if rule.pattern is Pattern.LITERAL)
    prefixes: list[str] = []
    for prefix in sorted(rule.name for rule in chosen if rule.pattern is Pattern.PREFIXED):
        if not prefixes or not prefix.startswith(prefixes[-1]):
            prefixes.append(prefix)
    return _Names(ANY in literals or "" in prefixes, literals, tuple(prefixes))
