"""The coordinators of one broker: one for each partition of `__transactions`, `__groups` and `__queues` that it leads.

A name belongs to one partition of its topic (minilog.net.coordinators_of). A broker that does not lead it answers
NOT_COORDINATOR. While there is no such topic, any broker that gets a call has the controller create it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from minilog.errors import MinilogError, NotCoordinator, wire_error
from minilog.net.coordinators_of import (
    GROUPS_TOPIC_NAME,
    QUEUES_TOPIC_NAME,
    TRANSACTIONS_TOPIC_NAME,
    coordinator_partition,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.coordinators.group_commit import OwnLog
from minilog_broker.coordinators.groups.presences import GroupSettings
from minilog_broker.coordinators.kinds import GROUPS, QUEUES, TRANSACTIONS, CoordinatorKind, Core, CoreParts
from minilog_broker.coordinators.transactions.enlisting import TransactionSettings
from minilog_broker.levels import GROUP_MEMBERS_LEVEL, QUEUES_LEVEL, ClusterLevel
from minilog_broker.replication.replica_effects import BeganToLead, LeadershipEffect
from minilog_broker.server.access.lease_owners import LeaseOwners
from minilog_broker.server.clients.internal_topics import InternalTopics
from minilog_broker.server.shells.coordinator_shell import (
    CoordinatorShell,
    GroupShell,
    Surroundings,
    TransactionShell,
)
from minilog_broker.server.shells.image_topics import ImageTopics
from minilog_broker.server.shells.queue_shell import QueueShell

Shell = TypeVar("Shell", bound=CoordinatorShell[Any])


class CoordinatorsOf(Generic[Core, Shell]):
    """The coordinators of one kind, one for each partition that this broker has led."""

    def __init__(
        self,
        kind: CoordinatorKind[Core],
        shell: Callable[[PartitionKey, Surroundings, Callable[[OwnLog], Core]], Shell],
        parts: CoreParts,
        around: Surroundings,
    ) -> None:
        self._kind = kind
        self._shell = shell
        self._parts = parts
        self._around = around
        self._shells: dict[PartitionKey, Shell] = {}

    @property
    def topic_name(self) -> str:
        return self._kind.topic_name

    def get(self, key: PartitionKey) -> Shell | None:
        """The coordinator of a partition, None where this broker has never led it."""
        return self._shells.get(key)

    def all(self) -> Iterable[Shell]:
        return self._shells.values()

    def begin(self, key: PartitionKey) -> Shell:
        """The coordinator of a partition that this broker leads from now on."""
        shell = self._shells.get(key)
        if shell is None:
            name = f"partition {key.partition} of {self.topic_name}"
            shell = self._shell(key, self._around, lambda log: self._kind.make(name, log, self._parts))
            self._shells[key] = shell
        return shell

    def here(self) -> list[Shell]:
        """The coordinators of the partitions that this broker leads."""
        return [shell for _, shell in sorted(self._shells.items(), key=lambda item: item[0]) if shell.leads]

    def at(self, key: PartitionKey) -> Shell:
        """The coordinator of a partition. Raises NotCoordinator where this broker has never led it."""
        if (shell := self._shells.get(key)) is not None:
            return shell
        raise NotCoordinator(
            f"this broker does not lead partition {key.partition} of {self.topic_name}: get new metadata, and call the "
            "leader"
        )


class Coordinators:
    """All coordinators of one broker, by partition. `image` is this broker's replay of the committed metadata."""

    def __init__(
        self,
        image: MetadataImage,
        internal_topics: InternalTopics,
        level: ClusterLevel,
        settings: TransactionSettings,
        member_settings: GroupSettings,
        around: Surroundings,
    ) -> None:
        self._image = image
        self._internal_topics = internal_topics
        self.moment = around.moment
        topics = ImageTopics(image)
        parts = CoreParts(
            settings,
            lambda topic_id: topic_id in image.topics,
            topics,
            lambda: level.allows(GROUP_MEMBERS_LEVEL),
            member_settings,
            topics.partition_count,
            topics.topic_id,
            lambda: level.allows(QUEUES_LEVEL),
            LeaseOwners(image).new_lease_id,
        )
        self._transactions = CoordinatorsOf(TRANSACTIONS, TransactionShell, parts, around)
        self._groups = CoordinatorsOf(GROUPS, GroupShell, parts, around)
        self._queues = CoordinatorsOf(QUEUES, QueueShell, parts, around)
        kinds: tuple[CoordinatorsOf[Any, Any], ...] = (self._transactions, self._groups, self._queues)
        self._by_topic = {kind.topic_name: kind for kind in kinds}

    # -- events of replicas and of the image

    def on_leadership(self, effect: LeadershipEffect) -> None:
        """Take an event of the leadership of an internal topic's replica."""
        if isinstance(effect, BeganToLead):
            self._by_topic[effect.topic_name].begin(effect.key).on_leadership(effect)
            return
        for kind in self._by_topic.values():
            if (shell := kind.get(effect.key)) is not None:
                shell.on_leadership(effect)

    def topics_deleted(self) -> None:
        """Drop the state of topics that the image no longer has."""
        for group_shell in self._groups.all():
            group_shell.drop_deleted_topics()
        for queue_shell in self._queues.all():
            queue_shell.drop_deleted_topics()

    def topics_changed(self) -> None:
        """The image has topics or partitions that it had not, or lacks some."""
        for group_shell in self._groups.all():
            group_shell.topics_changed()
        for queue_shell in self._queues.all():
            queue_shell.topics_changed()

    def expire(self, wall_us: int) -> None:
        """Drop old state, by the wall clock while it is trusted."""
        for shell in self._transactions.all():
            shell.expire(wall_us)

    def stop(self) -> None:
        for kind in self._by_topic.values():
            for shell in kind.all():
                shell.stop()

    # -- the coordinator of a name

    def of_transaction(self, transactional_id: str) -> TransactionShell:
        """The coordinator of a transactional id. Raises NotCoordinator, or CoordinatorLoadInProgress before the very
        first use."""
        return self._transactions.at(self._key(TRANSACTIONS_TOPIC_NAME, transactional_id))

    def of_group(self, group_id: str) -> GroupShell:
        """The coordinator of a group. Raises NotCoordinator, or CoordinatorLoadInProgress before the very first use."""
        return self._groups.at(self._key(GROUPS_TOPIC_NAME, group_id))

    def of_queue(self, queue: str) -> QueueShell:
        """The coordinator of a queue. Raises NotCoordinator, or CoordinatorLoadInProgress before the very first use."""
        return self._queues.at(self._key(QUEUES_TOPIC_NAME, queue))

    def transactions_here(self) -> list[TransactionShell]:
        """The coordinators of transactions in the partitions that this broker leads."""
        return self._transactions.here()

    def groups_here(self) -> list[GroupShell]:
        """The coordinators of groups in the partitions that this broker leads."""
        return self._groups.here()

    def queues_here(self) -> list[QueueShell]:
        """The coordinators of queues in the partitions that this broker leads."""
        return self._queues.here()

    def _key(self, topic_name: str, name: str) -> PartitionKey:
        topic_id = self._image.topic_ids.get(topic_name)
        if topic_id is None:
            error = self._internal_topics.first_use(topic_name)
            assert error is not None
            raise error
        return PartitionKey(topic_id, coordinator_partition(name))

    # -- calls of other coordinators

    async def register(
        self, request: coordinator_pb2.RegisterPartitionsRequest
    ) -> coordinator_pb2.RegisterPartitionsResponse:
        """RegisterPartitions: register a producer's partitions with the coordinator of its transaction."""
        kind = coordinator_pb2.RegisterPartitionsResponse
        try:
            shell = self.of_transaction(request.transactional_id)
        except MinilogError as error:
            return kind(error=wire_error(error))
        return await shell.ask(kind, lambda ticket: shell.core.register(ticket, request, self.moment()))

    async def write_markers(self, request: coordinator_pb2.WriteMarkersRequest) -> coordinator_pb2.WriteMarkersResponse:
        """WriteMarkers for a partition of `__groups` or `__queues`: end what producers have pending there."""
        kind = coordinator_pb2.WriteMarkersResponse
        key = PartitionKey.of(request.partition_id)
        try:
            shell = self._pending_at(key)
        except NotCoordinator as error:
            return kind(error=wire_error(error))
        return await shell.ask(kind, lambda ticket: shell.core.write_markers(ticket, request, self.moment()))

    def _pending_at(self, key: PartitionKey) -> GroupShell | QueueShell:
        if key.topic_id == self._image.topic_ids.get(QUEUES_TOPIC_NAME):
            return self._queues.at(key)
        return self._groups.at(key)
