"""placeholder until the helper's comes"""

from __future__ import annotations

from collections.abc import Iterable

from minilog_broker.security.access import AccessRule, Operation, ResourceKind
from minilog_broker.security.principal import Principal


class Authorizer:
    def __init__(self, rules: Iterable[AccessRule], super_users: frozenset[str]) -> None:
        self._rules = list(rules)
        self._super = super_users

    def is_allowed(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return str(principal) in self._super

    def is_allowed_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        return str(principal) in self._super
