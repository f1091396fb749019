"""Access rules (Kafka's ACLs): who may do what with which resources, from where."""

from __future__ import annotations

import enum
from dataclasses import dataclass

ANY = "*"  # as a host: every address; as a name of a literal pattern: every name; as a principal, `User:*`: everybody


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
