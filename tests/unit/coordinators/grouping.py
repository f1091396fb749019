"""A world with a coordinator of groups: what consumers, programs, coordinators of transactions and people call."""

from __future__ import annotations

from collections.abc import Mapping

from minilog.errors import MinilogError
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator_effects import RegisterProducer
from minilog_broker.coordinators.groups.coordinator import GroupCoordinator
from minilog_broker.coordinators.groups.membership import KnownTopic
from minilog_broker.coordinators.groups.presences import GroupSettings
from tests.unit.coordinators.cluster import ORDERS, PAYMENTS, CoordinatorCluster, error_of
from tests.unit.coordinators.transacting import partition_id

G, T = "report", "program"


SETTINGS = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=1_000, max_size=5)


class SeenTopics:
    """The topics of the image, by name: as many partitions as a test says, each with replicas in all racks."""

    def __init__(self) -> None:
        self.counts = {"orders": 6, "payments": 4}
        self.ids = {"orders": ORDERS, "payments": PAYMENTS}

    def find(self, name: str) -> KnownTopic | None:
        return KnownTopic(self.ids[name], self.counts[name]) if name in self.counts else None

    def racks(self, key: PartitionKey) -> frozenset[str]:
        return frozenset({f"rack-{key.partition % 3}"})


class Grouping(CoordinatorCluster[GroupCoordinator]):
    """See the module's text. `ended`: producers that the coordinator of transactions refuses to register."""

    def __init__(self, *, lead: bool = True, settings: GroupSettings = SETTINGS) -> None:
        self.seen = SeenTopics()
        self.allows_members = True
        self.settings = settings
        super().__init__()
        self.ended: dict[int, MinilogError] = {}
        if lead:
            self.begin()

    def make(self) -> GroupCoordinator:
        return GroupCoordinator(
            "__groups-3",
            self,
            lambda topic: topic in self.topics,
            self.seen,
            lambda: self.allows_members,
            lambda: True,
            self.settings,
        )

    # -- commits

    def ask_to_commit(
        self,
        offsets: Mapping[PartitionKey, int],
        *,
        group: str = G,
        producer_id: int | None = None,
        sequence: int = 0,
        metadata: str = "",
    ) -> int:
        request = coordinator_pb2.CommitOffsetsRequest(
            group_id=group,
            offsets=[
                coordinator_pb2.OffsetToCommit(
                    partition_id=partition_id(key), offset=offset, leader_epoch=2, metadata=metadata
                )
                for key, offset in offsets.items()
            ],
        )
        if producer_id is not None:
            request.transaction.transactional_id = T
            request.transaction.producer_id = producer_id
            request.transaction.sequence = sequence
        ticket = self.ticket()
        self.coordinator.commit(ticket, request, self.now)
        return ticket

    def register_producers(self) -> list[int]:
        """Answer what is asked of the coordinators of transactions; the producers that were asked about."""
        asked = [effect for effect in self.take(RegisterProducer) if isinstance(effect, RegisterProducer)]
        for effect in asked:
            self.coordinator.registered(effect.number, self.ended.get(effect.producer_id), self.now)
        return [effect.producer_id for effect in asked]

    def commit_offsets(self, offsets: Mapping[PartitionKey, int], **named: object) -> MinilogError | None:
        ticket = self.ask_to_commit(offsets, **named)  # type: ignore[arg-type]
        self.register_producers()
        self.commit()
        return error_of(self.answer(ticket, coordinator_pb2.CommitOffsetsResponse))

    def ask_to_mark(self, producer_id: int, *, committed: bool, last_sequence: int = 0) -> int:
        marker = coordinator_pb2.ProducerMarker(
            producer_id=producer_id, committed=committed, last_sequence=last_sequence
        )
        ticket = self.ticket()
        request = coordinator_pb2.WriteMarkersRequest(transactional_id=T, markers=[marker])
        self.coordinator.write_markers(ticket, request, self.now)
        return ticket

    def mark(self, producer_id: int, *, committed: bool, last_sequence: int = 0) -> MinilogError | None:
        ticket = self.ask_to_mark(producer_id, committed=committed, last_sequence=last_sequence)
        self.commit()
        return error_of(self.answer(ticket, coordinator_pb2.WriteMarkersResponse))

    # -- what is committed

    def ask_to_fetch(self, *partitions: PartitionKey, group: str = G) -> int:
        request = coordinator_pb2.FetchOffsetsRequest(
            group_id=group, partitions=[partition_id(key) for key in partitions]
        )
        ticket = self.ticket()
        self.coordinator.fetch(ticket, request)
        return ticket

    def fetch(self, *partitions: PartitionKey, group: str = G) -> coordinator_pb2.FetchOffsetsResponse:
        ticket = self.ask_to_fetch(*partitions, group=group)
        self.commit()
        return self.answer(ticket, coordinator_pb2.FetchOffsetsResponse)

    def fetched(self, *partitions: PartitionKey, group: str = G) -> dict[PartitionKey, int | str]:
        """The offset of each partition, or the code of its error."""
        found: dict[PartitionKey, int | str] = {}
        for each in self.fetch(*partitions, group=group).offsets:
            error = error_of(each)
            key = PartitionKey(each.partition_id.topic_id, each.partition_id.partition)
            found[key] = each.offset if error is None else error.code
        return found
