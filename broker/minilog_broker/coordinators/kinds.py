"""The kinds of coordinators, each with its internal topic and its core. A new kind needs a row here, one in
server/shells/coordinators.py, and its topic in INTERNAL_TOPIC_NAMES."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, QUEUES_TOPIC_NAME, TRANSACTIONS_TOPIC_NAME
from minilog_broker.coordinators.coordinator import Coordinator
from minilog_broker.coordinators.group_commit import OwnLog
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.coordinators.groups.membership import KnownTopics
from minilog_broker.coordinators.groups.presences import GroupSettings
from minilog_broker.coordinators.queues.coordinator import QueueCoordinator
from minilog_broker.coordinators.queues.view import FindTopic, PartitionCount
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.coordinators.transactions.enlisting import TransactionSettings

Core = TypeVar("Core", bound=Coordinator[Any, Any])


@dataclass(frozen=True, slots=True)
class CoreParts:
    """The parts of this broker that a core of any kind may need."""

    settings: TransactionSettings
    knows_topic: Callable[[bytes], bool]
    topics: KnownTopics
    allows_members: Callable[[], bool]
    member_settings: GroupSettings
    partition_count: PartitionCount
    find_topic: FindTopic
    allows_queues: Callable[[], bool]
    new_lease_id: Callable[[int, str], int]


@dataclass(frozen=True, slots=True)
class CoordinatorKind(Generic[Core]):
    """`make` takes the name for errors, the log of the partition, and the parts of this broker."""

    topic_name: str
    make: Callable[[str, OwnLog, CoreParts], Core]


TRANSACTIONS = CoordinatorKind(
    TRANSACTIONS_TOPIC_NAME,
    lambda name, log, parts: TransactionCoordinator(name, parts.settings, log, parts.knows_topic),
)
GROUPS = CoordinatorKind(
    GROUPS_TOPIC_NAME,
    lambda name, log, parts: GroupCoordinator(
        name, log, parts.knows_topic, parts.topics, parts.allows_members, parts.allows_queues, parts.member_settings
    ),
)
QUEUES = CoordinatorKind(
    QUEUES_TOPIC_NAME,
    lambda name, log, parts: QueueCoordinator(
        name, log, parts.partition_count, parts.find_topic, parts.allows_queues, parts.new_lease_id
    ),
)
