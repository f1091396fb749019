"""The coordinators of one broker: one for each partition of `__transactions` and `__groups` that it leads.

A name belongs to one partition of its topic (minilog.net.coordinators_of); who does not lead it answers
NOT_COORDINATOR, and while there is no such topic whoever is asked has it created.
"""

from __future__ import annotations

from typing import NoReturn

from minilog.errors import MinilogError, NotCoordinator, wire_error
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, TRANSACTIONS_TOPIC_NAME, coordinator_partition
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.coordinators.transactions.coordinator import TransactionCoordinator
from minilog_broker.coordinators.transactions.enlisting import TransactionSettings
from minilog_broker.replication.replica_effects import BeganToLead, LeadershipEffect
from minilog_broker.server.clients.internal_topics import InternalTopics
from minilog_broker.server.shells.coordinator_shell import GroupShell, Surroundings, TransactionShell


class Coordinators:
    """See the module's text. `image` is this broker's replay of the committed metadata."""

    def __init__(
        self, image: MetadataImage, internal_topics: InternalTopics, settings: TransactionSettings, around: Surroundings
    ) -> None:
        self._image = image
        self._internal_topics = internal_topics
        self._settings = settings
        self._around = around
        self.moment = around.moment
        self._transactions: dict[PartitionKey, TransactionShell] = {}
        self._groups: dict[PartitionKey, GroupShell] = {}

    # -- the replicas' word, and the image's

    def on_leadership(self, effect: LeadershipEffect) -> None:
        """What a replica of an internal topic says of its leading."""
        shell = self._shell(effect)
        if shell is not None:
            shell.on_leadership(effect)

    def _shell(self, effect: LeadershipEffect) -> TransactionShell | GroupShell | None:
        key = effect.key
        if isinstance(effect, BeganToLead) and effect.topic_name == TRANSACTIONS_TOPIC_NAME:
            return self._transactions.get(key) or self._make_transactions(key)
        if isinstance(effect, BeganToLead):
            return self._groups.get(key) or self._make_groups(key)
        return self._transactions.get(key) or self._groups.get(key)

    def _make_transactions(self, key: PartitionKey) -> TransactionShell:
        name = f"partition {key.partition} of {TRANSACTIONS_TOPIC_NAME}"
        shell = self._transactions[key] = TransactionShell(
            key,
            self._around,
            lambda append: TransactionCoordinator(name, self._settings, append, self._knows_topic),
        )
        return shell

    def _make_groups(self, key: PartitionKey) -> GroupShell:
        name = f"partition {key.partition} of {GROUPS_TOPIC_NAME}"
        shell = self._groups[key] = GroupShell(
            key, self._around, lambda append: GroupCoordinator(name, append, self._knows_topic)
        )
        return shell

    def _knows_topic(self, topic_id: bytes) -> bool:
        return topic_id in self._image.topics

    def topics_deleted(self) -> None:
        """The image lacks topics that it had."""
        for shell in self._groups.values():
            shell.drop_deleted_topics()

    def expire(self, wall_us: int) -> None:
        """The wall clock, while it is trusted."""
        for shell in self._transactions.values():
            shell.expire(wall_us)

    def stop(self) -> None:
        for transactions in self._transactions.values():
            transactions.stop()
        for groups in self._groups.values():
            groups.stop()

    # -- who is in charge

    def of_transaction(self, transactional_id: str) -> TransactionShell:
        """Raises NotCoordinator, or CoordinatorLoadInProgress before the first use of all."""
        key = self._key(TRANSACTIONS_TOPIC_NAME, transactional_id)
        return self._transactions.get(key) or self._elsewhere(TRANSACTIONS_TOPIC_NAME, key.partition)

    def of_group(self, group_id: str) -> GroupShell:
        """Raises NotCoordinator, or CoordinatorLoadInProgress before the first use of all."""
        key = self._key(GROUPS_TOPIC_NAME, group_id)
        return self._groups.get(key) or self._elsewhere(GROUPS_TOPIC_NAME, key.partition)

    def transactions_here(self) -> list[TransactionShell]:
        """Of the partitions that this broker leads."""
        return [shell for _, shell in sorted(self._transactions.items()) if shell.leads]

    def groups_here(self) -> list[GroupShell]:
        """Of the partitions that this broker leads."""
        return [shell for _, shell in sorted(self._groups.items()) if shell.leads]

    def _key(self, topic_name: str, name: str) -> PartitionKey:
        topic_id = self._image.topic_ids.get(topic_name)
        if topic_id is None:
            error = self._internal_topics.first_use(topic_name)
            assert error is not None
            raise error
        return PartitionKey(topic_id, coordinator_partition(name))

    def _elsewhere(self, topic_name: str, partition: int) -> NoReturn:
        raise NotCoordinator(
            f"this broker does not lead partition {partition} of {topic_name}: ask for metadata, and its leader"
        )

    # -- what other coordinators ask

    async def register(
        self, request: coordinator_pb2.RegisterPartitionsRequest
    ) -> coordinator_pb2.RegisterPartitionsResponse:
        """RegisterPartitions: of a producer, with the coordinator of its transaction."""
        kind = coordinator_pb2.RegisterPartitionsResponse
        try:
            shell = self.of_transaction(request.transactional_id)
        except MinilogError as error:
            return kind(error=wire_error(error))
        return await shell.ask(kind, lambda ticket: shell.core.register(ticket, request, self._around.moment()))

    async def write_group_markers(
        self, request: coordinator_pb2.WriteMarkersRequest
    ) -> coordinator_pb2.WriteMarkersResponse:
        """WriteMarkers for a partition of `__groups`: what they end has ended in the groups of that partition."""
        kind = coordinator_pb2.WriteMarkersResponse
        key = PartitionKey.of(request.partition_id)
        shell = self._groups.get(key)
        if shell is None:
            error = NotCoordinator(f"this broker does not lead partition {key.partition} of {GROUPS_TOPIC_NAME}")
            return kind(error=wire_error(error))
        return await shell.ask(kind, lambda ticket: shell.core.write_markers(ticket, request))
