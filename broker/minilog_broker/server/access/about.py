"""The subject of a call that alters the cluster, for the audit log. The right is for the cluster as a whole, and the
line names the user, the rule or the quota."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from minilog.v1 import admin_pb2, security_pb2

About = Callable[[Any], Iterable[str]]
_ANY = "*"


def nothing(request: Any) -> Iterable[str]:
    """No subject, since the names of the call have it."""
    return ()


def alters_nothing(request: Any) -> bool:
    """Whether the request only asks for a preview."""
    return bool(getattr(request, "validate_only", False))


def users(request: security_pb2.AlterUsersRequest) -> Iterable[str]:
    return (f"user:{alteration.name}" for alteration in request.alterations)


def quotas(request: security_pb2.AlterQuotasRequest) -> Iterable[str]:
    return (f"quota:{alteration.entity} {alteration.key}" for alteration in request.alterations)


def broker_settings(request: admin_pb2.AlterBrokerSettingsRequest) -> Iterable[str]:
    owner = f"broker:{request.broker_id}" if request.HasField("broker_id") else "all-brokers"
    return (f"{owner} {name}" for name in sorted({*request.set_configs, *request.unset_configs}))


def rules(request: security_pb2.CreateAccessRulesRequest) -> Iterable[str]:
    return map(_rule, request.rules)


def filters(request: security_pb2.DeleteAccessRulesRequest) -> Iterable[str]:
    return map(_rule, request.filters)


def topics(field: str) -> About:
    """The topics of the partitions in this field."""
    return lambda request: dict.fromkeys(f"topic:{entry.name}" for entry in getattr(request, field))


def broker(request: Any) -> Iterable[str]:
    return (f"broker:{request.broker_id}",)


def _rule(rule: security_pb2.AccessRule | security_pb2.AccessRuleFilter) -> str:
    """A rule in the words of `minilog acl`. An open field of a filter is a star."""
    permission = _word(security_pb2.AccessPermission, rule.permission)
    operation = _word(security_pb2.AccessOperation, rule.operation)
    kind = _word(security_pb2.ResourceKind, rule.resource_kind)
    prefixed = "*" if rule.pattern == security_pb2.RESOURCE_PATTERN_PREFIXED else ""
    return (
        f"rule:{permission} {rule.principal or _ANY} from {rule.host or _ANY} {operation} {kind}:{rule.name or _ANY}"
        f"{prefixed}"
    )


def _word(names: Any, value: int) -> str:
    """The word for a value of an enum of the wire. A number without a name stays a number."""
    if value == 0:
        return _ANY
    name = names.DESCRIPTOR.values_by_number.get(value)
    if name is None:
        return str(value)
    prefix = names.DESCRIPTOR.values_by_number[0].name.removesuffix("NONE")
    return str(name.name).removeprefix(prefix).lower().replace("_", "-")
