"""What an access rule may say; what the words of one are is the client's too (minilog.security.access_rules).

A rule that could never match anything is refused: who wrote it would believe in it.
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

MAX_RESOURCE_NAME_CHARACTERS = 255  # a group id has no more
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

__all__ = ["ANY", "AccessRule", "AccessRuleFilter", "Operation", "Pattern", "Permission", "ResourceKind", "check_rule"]


def check_rule(rule: AccessRule) -> None:
    """Raises InvalidArgument, or InvalidPrincipal."""
    user_of(rule.principal)
    _check_host(rule)
    if not 1 <= len(rule.name) <= MAX_RESOURCE_NAME_CHARACTERS:
        raise InvalidArgument(
            f"a rule of {rule.principal} names a {rule.resource_kind.value} of {len(rule.name)} characters: a name has "
            f"1 to {MAX_RESOURCE_NAME_CHARACTERS}"
        )
    if rule.resource_kind is ResourceKind.CLUSTER and (rule.name, rule.pattern) != (CLUSTER_NAME, Pattern.LITERAL):
        raise InvalidArgument(f"there is one cluster, {CLUSTER_NAME}, and a rule for it is literal: not {rule.name!r}")
    if rule.pattern is Pattern.PREFIXED and rule.name == ANY:
        raise InvalidArgument("a rule for every name is literal: * is no prefix")
    if rule.resource_kind is ResourceKind.TOPIC and rule.name != ANY and not _TOPIC.fullmatch(rule.name):
        raise InvalidArgument(
            f"no topic is named {rule.name!r}, and none begins so: a name has ASCII letters, digits, '.', '_' and '-'"
        )
    if rule.operation not in (allowed := OPERATIONS_OF[rule.resource_kind]):
        told = ", ".join(sorted(each.value for each in allowed))
        raise InvalidArgument(
            f"nobody can {rule.operation.value} a {rule.resource_kind.value}: a rule for one has an operation of {told}"
        )


def _check_host(rule: AccessRule) -> None:
    """Hosts are compared letter by letter: an address is written as it is told of a connection."""
    if rule.host == ANY:
        return
    try:
        address = str(ipaddress.ip_address(rule.host))
    except ValueError:
        raise InvalidArgument(
            f"a rule of {rule.principal} has the host {rule.host[:100]!r}: give an address, or * for every one; names "
            "are not looked up"
        ) from None
    if address != rule.host:
        raise InvalidArgument(f"a rule of {rule.principal} has the host {rule.host!r}: write {address}")
