"""The kinds of coordinators: the internal topic that each lives in, and its core. A new kind is one row here, one in
server/shells/coordinators.py, and its topic among INTERNAL_TOPIC_NAMES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, TRANSACTIONS_TOPIC_NAME
from minilog_broker.coordinators.coordinator import Coordinator
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.coordinators.table import AppendRecords
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.coordinators.transactions.enlisting import TransactionSettings

Core = TypeVar("Core", bound=Coordinator[Any, Any])


@dataclass(frozen=True, slots=True)
class CoreParts:
    """What this broker has for a core of any kind."""

    settings: TransactionSettings
    knows_topic: Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class CoordinatorKind(Generic[Core]):
    """`make` is given the name that its errors have, how it appends to its partition, and the parts of this broker."""

    topic_name: str
    make: Callable[[str, AppendRecords, CoreParts], Core]


TRANSACTIONS = CoordinatorKind(
    TRANSACTIONS_TOPIC_NAME,
    lambda name, append, parts: TransactionCoordinator(name, parts.settings, append, parts.knows_topic),
)
GROUPS = CoordinatorKind(
    GROUPS_TOPIC_NAME, lambda name, append, parts: GroupCoordinator(name, append, parts.knows_topic)
)
