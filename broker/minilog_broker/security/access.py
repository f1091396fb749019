"""Access rules: who may do what with which resources. The words are Kafka's."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Operation(enum.Enum):
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster_action"
    DESCRIBE_CONFIGS = "describe_configs"
    ALTER_CONFIGS = "alter_configs"
    IDEMPOTENT_WRITE = "idempotent_write"
    ALL = "all"


class ResourceKind(enum.Enum):
    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"


class Pattern(enum.Enum):
    LITERAL = "literal"
    PREFIXED = "prefixed"


class Permission(enum.Enum):
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class AccessRule:
    principal: str
    host: str
    operation: Operation
    resource_kind: ResourceKind
    name: str
    pattern: Pattern
    permission: Permission
