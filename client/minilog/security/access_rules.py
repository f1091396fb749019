"""Access rules (Kafka's ACLs): who may do what with which resources, from where. Pure.

A rule is all of its fields. Where one denies, that counts; where none allows, it is denied. READ, WRITE, DELETE and
ALTER imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS, ALL is every operation of its kind of resource.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, TypeVar

from minilog.errors import InvalidArgument
from minilog.v1 import security_pb2

ANY = "*"  # as a host: every address; as a name of a literal pattern: every name; as a principal, `User:*`: everybody
CLUSTER_NAME = "minilog-cluster"  # of the one resource of its kind, as Kafka's kafka-cluster


class Operation(enum.Enum):
    """What may be done."""

    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster-action"
    DESCRIBE_CONFIGS = "describe-configs"
    ALTER_CONFIGS = "alter-configs"
    IDEMPOTENT_WRITE = "idempotent-write"


class ResourceKind(enum.Enum):
    """To what."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"


class Pattern(enum.Enum):
    """LITERAL: this name, or every name where it is `*`. PREFIXED: every name that begins so."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


class Permission(enum.Enum):
    """A rule allows or denies."""

    ALLOW = "allow"
    DENY = "deny"


OPERATIONS_OF: dict[ResourceKind, frozenset[Operation]] = {
    ResourceKind.TOPIC: frozenset(
        (
            Operation.ALL,
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        )
    ),
    ResourceKind.GROUP: frozenset(
        (Operation.ALL, Operation.READ, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE)
    ),
    ResourceKind.CLUSTER: frozenset(
        (
            Operation.ALL,
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        )
    ),
    ResourceKind.TRANSACTIONAL_ID: frozenset(
        (Operation.ALL, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE)
    ),
}
"""What can be done with each kind: a rule of another operation would never be asked for, and is refused."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """`principal`: User:alice, or User:* for everybody. `host`: an address, or `*`."""

    principal: str
    host: str
    operation: Operation
    resource_kind: ResourceKind
    name: str
    pattern: Pattern
    permission: Permission

    @property
    def order(self) -> tuple[str, ...]:
        """Rules are told in this order: by resource, then by principal."""
        resource = (self.resource_kind.value, self.name, self.pattern.value)
        return (*resource, self.principal, self.permission.value, self.operation.value, self.host)


@dataclass(frozen=True, slots=True)
class AccessRuleFilter:
    """The rules that have all that is given here; None is anything. `AccessRuleFilter()` is all rules."""

    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    resource_kind: ResourceKind | None = None
    name: str | None = None
    pattern: Pattern | None = None
    permission: Permission | None = None

    def matches(self, rule: AccessRule) -> bool:
        return (
            self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (None, rule.operation)
            and self.resource_kind in (None, rule.resource_kind)
            and self.name in (None, rule.name)
            and self.pattern in (None, rule.pattern)
            and self.permission in (None, rule.permission)
        )


# -- the wire

_Choice = TypeVar("_Choice", bound=enum.Enum)


def _numbers(kind: type[_Choice], wire: Any) -> dict[_Choice | None, Any]:
    """The number of each member on the wire, which has the same names; 0 where none is told."""
    prefix = wire.Name(0).removesuffix("NONE")
    return {None: 0, **{member: wire.Value(prefix + member.name) for member in kind}}


def _members(numbers: dict[_Choice | None, Any]) -> dict[Any, _Choice]:
    return {number: member for member, number in numbers.items() if member is not None}


_OPERATIONS = _numbers(Operation, security_pb2.AccessOperation)
_KINDS = _numbers(ResourceKind, security_pb2.ResourceKind)
_PATTERNS = _numbers(Pattern, security_pb2.ResourcePattern)
_PERMISSIONS = _numbers(Permission, security_pb2.AccessPermission)
_OPERATION_OF, _KIND_OF = _members(_OPERATIONS), _members(_KINDS)
_PATTERN_OF, _PERMISSION_OF = _members(_PATTERNS), _members(_PERMISSIONS)


def rule_to_wire(rule: AccessRule) -> security_pb2.AccessRule:
    return security_pb2.AccessRule(
        principal=rule.principal,
        host=rule.host,
        operation=_OPERATIONS[rule.operation],
        resource_kind=_KINDS[rule.resource_kind],
        name=rule.name,
        pattern=_PATTERNS[rule.pattern],
        permission=_PERMISSIONS[rule.permission],
    )


def rule_from_wire(message: security_pb2.AccessRule) -> AccessRule:
    """Raises InvalidArgument for a rule that lacks a part, or has a part that this version does not know."""
    try:
        return AccessRule(
            message.principal,
            message.host,
            _OPERATION_OF[message.operation],
            _KIND_OF[message.resource_kind],
            message.name,
            _PATTERN_OF[message.pattern],
            _PERMISSION_OF[message.permission],
        )
    except KeyError:
        raise InvalidArgument(
            f"a rule of {message.principal[:100]!r} for {message.name[:100]!r} has no known operation, kind of "
            f"resource, pattern or permission ({message.operation}, {message.resource_kind}, {message.pattern}, "
            f"{message.permission}): give one of each"
        ) from None


def filter_to_wire(wanted: AccessRuleFilter) -> security_pb2.AccessRuleFilter:
    return security_pb2.AccessRuleFilter(
        principal=wanted.principal,
        host=wanted.host,
        operation=_OPERATIONS[wanted.operation],
        resource_kind=_KINDS[wanted.resource_kind],
        name=wanted.name,
        pattern=_PATTERNS[wanted.pattern],
        permission=_PERMISSIONS[wanted.permission],
    )


def filter_from_wire(message: security_pb2.AccessRuleFilter) -> AccessRuleFilter:
    """Raises InvalidArgument for an unknown number. As a wildcard it would match rules that nobody meant."""
    try:
        return AccessRuleFilter(
            message.principal if message.HasField("principal") else None,
            message.host if message.HasField("host") else None,
            _OPERATION_OF[message.operation] if message.operation else None,
            _KIND_OF[message.resource_kind] if message.resource_kind else None,
            message.name if message.HasField("name") else None,
            _PATTERN_OF[message.pattern] if message.pattern else None,
            _PERMISSION_OF[message.permission] if message.permission else None,
        )
    except KeyError as error:
        raise InvalidArgument(f"a filter of rules has a number that is not known: {error}") from None
