"""The check of an access rule. The client defines the words of a rule (minilog.security.access_rules).

A rule that could never match anything is refused, since its author would rely on it.
"""

from __future__ import annotations

import ipaddress
import re

from minilog.errors import InvalidArgument
from minilog.security.access_rules import (
    ANY,
    CLUSTER_NAME,
    OPERATIONS_OF,
    AccessRule,
    AccessRuleFilter,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
)
from minilog_broker.security.principal import user_of

MAX_RESOURCE_NAME_CHARACTERS = 255  # the longest name is a group id
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

__all__ = ["ANY", "AccessRule", "AccessRuleFilter", "Operation", "Pattern", "Permission", "ResourceKind", "check_rule"]


def check_rule(rule: AccessRule) -> None:
    """Raises InvalidArgument, or InvalidPrincipal."""
    user_of(rule.principal)
    _check_host(rule)
    if not 1 <= len(rule.name) <= MAX_RESOURCE_NAME_CHARACTERS:
        raise InvalidArgument(
            f"a rule of {rule.principal} has a {rule.resource_kind.value} name of {len(rule.name)} characters: a name "
            f"has 1 to {MAX_RESOURCE_NAME_CHARACTERS}"
        )
    if rule.resource_kind is ResourceKind.CLUSTER and (rule.name, rule.pattern) != (CLUSTER_NAME, Pattern.LITERAL):
        raise InvalidArgument(
            f"a rule for the cluster has the literal name {CLUSTER_NAME}, not the {rule.pattern.value} name "
            f"{rule.name!r}"
        )
    if rule.pattern is Pattern.PREFIXED and rule.name == ANY:
        raise InvalidArgument("* is not a prefix: a rule for every name has the literal name *")
    if rule.resource_kind is ResourceKind.TOPIC and rule.name != ANY and not _TOPIC.fullmatch(rule.name):
        raise InvalidArgument(
            f"no topic can have the name or the prefix {rule.name!r}: a name has ASCII letters, digits, '.', '_' and "
            "'-'"
        )
    if rule.operation not in (allowed := OPERATIONS_OF[rule.resource_kind]):
        names = ", ".join(sorted(operation.value for operation in allowed))
        raise InvalidArgument(
            f"there is no operation {rule.operation.value} on a {rule.resource_kind.value}: a rule for one has an "
            f"operation of {names}"
        )


def _check_host(rule: AccessRule) -> None:
    """Raises InvalidArgument for a host that is not in the form of a connection's address, since the broker compares
    the texts."""
    if rule.host == ANY:
        return
    try:
        address = str(ipaddress.ip_address(rule.host))
    except ValueError:
        raise InvalidArgument(
            f"a rule of {rule.principal} has the host {rule.host[:100]!r}: give an address, or * for every address. "
            "Brokers do not look up host names"
        ) from None
    if address != rule.host:
        raise InvalidArgument(f"a rule of {rule.principal} has the host {rule.host!r}: write {address}")
