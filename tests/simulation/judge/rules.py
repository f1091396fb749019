"""What access rules allow, by the rules as a plain list, and as they became committed. Nothing of it is the product's.

A rule is there from the offset of the record that made it, until that of the record that took it away. A broker that
has replayed all below an offset goes by the rules of then, or by later ones: what it *may* allow is what some of these
allow. As more rules that allow only allow more, and more that deny less, two of them decide that: all that may be there
of those that allow, and those that surely are there of those that deny.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import NamedTuple

from minilog.security.access_rules import CLUSTER_NAME, AccessRule, Operation, Pattern, Permission, ResourceKind

_IMPLIES = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


class Right(NamedTuple):
    """What a call needs: an operation on a resource."""

    operation: Operation
    kind: ResourceKind
    name: str = CLUSTER_NAME


class Asker(NamedTuple):
    """Who asks, and from where."""

    user: str
    host: str


def is_about(rule: AccessRule, asker: Asker, right: Right) -> bool:
    """Whether the rule decides this."""
    if rule.principal not in (f"User:{asker.user}", "User:*") or rule.host not in ("*", asker.host):
        return False
    if rule.resource_kind is not right.kind:
        return False
    if rule.pattern is Pattern.PREFIXED:
        names = right.name.startswith(rule.name)
    else:
        names = rule.name in ("*", right.name)
    if not names:
        return False
    implied = _IMPLIES.get(right.operation, ()) if rule.permission is Permission.ALLOW else ()
    return rule.operation in (Operation.ALL, right.operation, *implied)


class RulesOfTime:
    """All rules that ever were, each with the offsets at which it came and went."""

    def __init__(self) -> None:
        self._changes: dict[AccessRule, list[tuple[int, bool]]] = {}
        self._offsets: list[int] = []
        self._told: dict[tuple[Asker, Right, int], bool] = {}

    def changed(self, offset: int, rule: AccessRule, *, removed: bool) -> None:
        self._changes.setdefault(rule, []).append((offset, not removed))
        self._offsets.append(offset)
        self._told.clear()

    def may_be_allowed(self, asker: Asker, right: Right, below: int) -> bool:
        """By the rules as of all records below that offset, or by some later ones."""
        known = bisect.bisect_left(self._offsets, below)
        found = self._told.get((asker, right, known))
        if found is None:
            found = self._told[asker, right, known] = self._may(asker, right, below)
        return found

    def is_allowed_now(self, asker: Asker, right: Right) -> bool:
        """By all that is committed."""
        there = [rule for rule, changes in self._changes.items() if changes[-1][1] and is_about(rule, asker, right)]
        return bool(there) and all(rule.permission is Permission.ALLOW for rule in there)

    def names(self, kind: ResourceKind) -> Iterable[str]:
        """Names that rules have, and some that begin so: whoever may do something to any name may do it to one."""
        for rule in self._changes:
            if rule.resource_kind is kind:
                yield from (rule.name, f"{rule.name}-and-more") if rule.name != "*" else ("any-name",)

    def _may(self, asker: Asker, right: Right, below: int) -> bool:
        is_allowed = False
        for rule, changes in self._changes.items():
            if not is_about(rule, asker, right):
                continue
            then = [there for offset, there in changes if offset < below][-1:] or [False]
            states = then + [there for offset, there in changes if offset >= below]
            if rule.permission is Permission.DENY and all(states):
                return False
            is_allowed = is_allowed or (rule.permission is Permission.ALLOW and any(states))
        return is_allowed
