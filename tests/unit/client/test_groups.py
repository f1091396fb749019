"""Calls to coordinators: a client's real code, and coordinators' real cores behind real calls on this host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import pytest

from minilog.aio.consumer import Consumer
from minilog.errors import (
    GroupIdNotFound,
    InvalidArgument,
    LeaderNotAvailable,
    MinilogError,
    NotCoordinator,
    UnknownOutcome,
    UnknownTopicId,
    UnstableOffsetCommit,
    wire_error,
)
from minilog.groups.client import Groups
from minilog.groups.messages import Committed
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, INTERNAL_PARTITIONS, coordinator_partition
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from minilog.v1 import coordinator_pb2, coordinator_pb2_grpc, metadata_pb2, metadata_pb2_grpc
from minilog.versions import PROTOCOL
from tests.unit.client.producing import config_of
from tests.unit.coordinators.cluster import ORDERS, PAYMENTS
from tests.unit.coordinators.grouping import Grouping

GROUPS_ID = bytes(15) + b"\x77"
K0, K1 = PartitionKey(ORDERS, 0), PartitionKey(PAYMENTS, 1)
_Result = TypeVar("_Result")


class GroupBroker(metadata_pb2_grpc.MetadataServiceServicer, coordinator_pb2_grpc.GroupServiceServicer):
    """One broker that leads all partitions of `__groups`, each with a coordinator of its own. What it says may be lost
    (`lose`), or be what a test says (`script`)."""

    def __init__(self) -> None:
        self.cores = [Grouping() for _ in range(INTERNAL_PARTITIONS)]
        self.port = 0
        self.lose = 0
        self.script: list[coordinator_pb2.CommitOffsetsResponse] = []
        self.created = False  # by the first look for the topic
        self.too_few = False  # brokers, to create it
        self.leader_epoch = 5
        self.epochs_named: list[int] = []

    def core_of(self, group_id: str) -> Grouping:
        return self.cores[coordinator_partition(group_id)]

    async def GetMetadata(  # noqa: N802
        self, request: metadata_pb2.GetMetadataRequest, context: object
    ) -> metadata_pb2.GetMetadataResponse:
        groups = metadata_pb2.TopicMetadata(name=GROUPS_TOPIC_NAME, topic_id=GROUPS_ID, internal=True)
        for number in range(INTERNAL_PARTITIONS):
            groups.partitions.add(partition=number, leader_id=1, leader_epoch=self.leader_epoch)
        if not self.created and GROUPS_TOPIC_NAME in request.topic_names:
            groups = metadata_pb2.TopicMetadata(name=GROUPS_TOPIC_NAME, error=wire_error(UnknownTopicId("not yet")))
            self.created = not self.too_few
        others = [metadata_pb2.TopicMetadata(name=name, topic_id=i) for name, i in _TOPICS.items()]
        for topic in others:
            for number in range(2):
                topic.partitions.add(partition=number, leader_id=1, leader_epoch=0)
        return metadata_pb2.GetMetadataResponse(
            protocol=PROTOCOL.to_wire(),
            cluster_id="model",
            metadata_offset=1,
            brokers=[metadata_pb2.BrokerMetadata(broker_id=1, host="127.0.0.1", port=self.port)],
            topics=[groups, *others],
        )

    async def CommitOffsets(  # noqa: N802
        self, request: coordinator_pb2.CommitOffsetsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> coordinator_pb2.CommitOffsetsResponse:
        self.epochs_named.append(request.coordinator_epoch)
        request.coordinator_epoch = 0  # the coordinators of the model began with it
        if self.script:
            return self.script.pop(0)
        core = self.core_of(request.group_id)
        ticket = core.ticket()
        core.coordinator.commit(ticket, request, core.now)
        core.commit()
        answer = core.answer(ticket, coordinator_pb2.CommitOffsetsResponse)
        if self.lose:
            self.lose -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost under way")
        return answer

    async def FetchOffsets(  # noqa: N802
        self, request: coordinator_pb2.FetchOffsetsRequest, context: object
    ) -> coordinator_pb2.FetchOffsetsResponse:
        core = self.core_of(request.group_id)
        request.coordinator_epoch = 0
        ticket = core.ticket()
        core.coordinator.fetch(ticket, request)
        core.commit()
        return core.answer(ticket, coordinator_pb2.FetchOffsetsResponse)

    async def ListGroups(  # noqa: N802
        self, request: coordinator_pb2.ListGroupsRequest, context: object
    ) -> coordinator_pb2.ListGroupsResponse:
        found = coordinator_pb2.ListGroupsResponse()
        for core in self.cores:
            ticket = core.ticket()
            core.coordinator.list(ticket, request)
            found.groups.extend(core.answer(ticket, coordinator_pb2.ListGroupsResponse).groups)
        return found

    async def DescribeGroup(  # noqa: N802
        self, request: coordinator_pb2.DescribeGroupRequest, context: object
    ) -> coordinator_pb2.DescribeGroupResponse:
        core = self.core_of(request.group_id)
        ticket = core.ticket()
        core.coordinator.describe(ticket, request, core.now)
        return core.answer(ticket, coordinator_pb2.DescribeGroupResponse)

    async def DeleteGroup(  # noqa: N802
        self, request: coordinator_pb2.DeleteGroupRequest, context: object
    ) -> coordinator_pb2.DeleteGroupResponse:
        core = self.core_of(request.group_id)
        ticket = core.ticket()
        core.coordinator.delete(ticket, request)
        core.commit()
        return core.answer(ticket, coordinator_pb2.DeleteGroupResponse)

    async def RemoveMember(  # noqa: N802
        self, request: coordinator_pb2.RemoveMemberRequest, context: object
    ) -> coordinator_pb2.RemoveMemberResponse:
        raise AssertionError("no test asks for it")

    def Member(self, request_iterator: object, context: object) -> Any:  # noqa: N802
        raise AssertionError("no test joins: streams have a port of their own")

    async def ListOffsets(  # noqa: N802
        self, request: metadata_pb2.ListOffsetsRequest, context: object
    ) -> metadata_pb2.ListOffsetsResponse:
        raise AssertionError("no test asks for it")

    async def InitProducerId(  # noqa: N802
        self, request: metadata_pb2.InitProducerIdRequest, context: object
    ) -> metadata_pb2.InitProducerIdResponse:
        raise AssertionError("no test asks for it")

    async def GetBrokerConfig(  # noqa: N802
        self, request: metadata_pb2.GetBrokerConfigRequest, context: object
    ) -> metadata_pb2.GetBrokerConfigResponse:
        raise AssertionError("no test asks for it")


_TOPICS = {"orders": ORDERS, "payments": PAYMENTS}


def with_broker(broker: GroupBroker, use: Callable[[str], Awaitable[_Result]]) -> _Result:
    async def run() -> _Result:
        server = grpc.aio.server()
        metadata_pb2_grpc.add_MetadataServiceServicer_to_server(broker, server)
        coordinator_pb2_grpc.add_GroupServiceServicer_to_server(broker, server)
        broker.port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            return await use(f"127.0.0.1:{broker.port}")
        finally:
            await server.stop(0)

    return asyncio.run(run())


def grouping(broker: GroupBroker, use: Callable[[Groups], Awaitable[_Result]], *, timeout_ms: int = 5_000) -> _Result:
    async def run(servers: str) -> _Result:
        cluster = NetworkClient(
            config_of(**{"bootstrap.servers": servers, "request.timeout.ms": timeout_ms}), SYSTEM_RUNTIME
        )
        try:
            return await use(Groups(cluster))
        finally:
            await cluster.close()

    return with_broker(broker, run)


def test_a_group_finds_its_commits_again() -> None:
    async def use(groups: Groups) -> dict[PartitionKey, Committed]:
        await groups.commit("report", {K0: Committed(7, 2), K1: Committed(9)})
        return await groups.fetch("report", [K0, K1, PartitionKey(ORDERS, 1)])

    assert grouping(GroupBroker(), use) == {K0: Committed(7, 2), K1: Committed(9)}


def test_nobody_is_advised_to_create_an_internal_topic() -> None:
    """Once: "there is no topic '__groups': create it (minilog topic create __groups)" was told to a program."""
    broker = GroupBroker()
    broker.too_few = True
    with pytest.raises(
        LeaderNotAvailable, match="internal topic '__groups' is not there yet: the controller creates it"
    ) as told:
        grouping(broker, lambda groups: groups.fetch("report", [K0]), timeout_ms=100)
    assert "topic create" not in str(told.value)


def test_the_coordinator_is_told_the_highest_epoch_that_was_heard_of() -> None:
    broker = GroupBroker()
    grouping(broker, lambda groups: groups.commit("report", {K0: Committed(7)}))
    assert broker.epochs_named == [5]


def test_a_coordinator_that_moved_or_loads_is_asked_again() -> None:
    broker = GroupBroker()
    moved, loads = coordinator_pb2.CommitOffsetsResponse(), coordinator_pb2.CommitOffsetsResponse()
    moved.error.CopyFrom(wire_error(NotCoordinator("ask for metadata")))
    loads.error.CopyFrom(wire_error(NotCoordinator("reads what was decided")))
    broker.script = [moved, loads]
    grouping(broker, lambda groups: groups.commit("report", {K0: Committed(7)}))
    assert len(broker.epochs_named) == 3


def test_a_call_that_was_lost_is_repeated() -> None:
    broker = GroupBroker()
    broker.lose = 1
    grouping(broker, lambda groups: groups.commit("report", {K0: Committed(7)}))
    assert len(broker.epochs_named) == 2


def test_a_commit_lost_to_the_end_has_an_unknown_outcome() -> None:
    broker = GroupBroker()
    broker.lose = 1_000
    with pytest.raises(UnknownOutcome, match="may be done all the same"):
        grouping(broker, lambda groups: groups.commit("report", {K0: Committed(7)}), timeout_ms=400)


def test_a_read_has_no_unknown_outcome() -> None:
    broker = GroupBroker()
    for core in broker.cores:
        core.coordinator.deposed()
    with pytest.raises(MinilogError, match="within") as failure:
        grouping(broker, lambda groups: groups.describe("report"), timeout_ms=400)
    # The error is that of the last attempt. A slow machine may end that one before its answer.
    assert isinstance(failure.value, NotCoordinator | LeaderNotAvailable)


def test_a_refusal_is_raised_at_once() -> None:
    with pytest.raises(InvalidArgument, match="255"):
        grouping(GroupBroker(), lambda groups: groups.commit("g" * 256, {K0: Committed(7)}))
    with pytest.raises(GroupIdNotFound, match="minilog group list"):
        grouping(GroupBroker(), lambda groups: groups.describe("nobody"))


def test_all_coordinators_are_asked_for_the_groups_there_are() -> None:
    async def use(groups: Groups) -> list[str]:
        for name in ("a", "b", "c", "report"):
            await groups.commit(name, {K0: Committed(1)})
        await groups.delete("b")
        return [each.group_id for each in await groups.list()]

    assert grouping(GroupBroker(), use) == ["a", "c", "report"]


def test_offsets_of_a_transaction_are_waited_for() -> None:
    broker = GroupBroker()
    core = broker.core_of("report")
    assert core.commit_offsets({K0: 4}, producer_id=70) is None

    async def use(groups: Groups) -> dict[PartitionKey, Committed]:
        asked = asyncio.ensure_future(groups.fetch("report", [K0]))
        await asyncio.sleep(0.05)
        assert not asked.done()
        with pytest.raises(UnstableOffsetCommit):
            await groups.delete("report")
        assert core.mark(70, committed=True) is None
        return await asked

    assert grouping(broker, use) == {K0: Committed(4, 2)}


def test_a_transaction_that_does_not_end_is_told_in_the_end() -> None:
    broker = GroupBroker()
    broker.core_of("report").commit_offsets({K0: 4}, producer_id=70)
    with pytest.raises(UnstableOffsetCommit, match="has not ended"):
        grouping(broker, lambda groups: groups.fetch("report", [K0]), timeout_ms=300)


def test_a_consumer_commits_offsets_of_partitions_it_does_not_read() -> None:
    async def use(servers: str) -> dict[TopicPartition, int | None]:
        async with Consumer({"bootstrap.servers": servers, "group.id": "report"}) as consumer:
            await consumer.commit()  # nothing is assigned: nothing to commit
            await consumer.commit({TopicPartition("orders", 0): 12})
            return await consumer.committed([TopicPartition("orders", 0), TopicPartition("payments", 1)])

    assert with_broker(GroupBroker(), use) == {TopicPartition("orders", 0): 12, TopicPartition("payments", 1): None}


def test_a_consumer_without_a_group_cannot_commit() -> None:
    async def use(servers: str) -> None:
        async with Consumer({"bootstrap.servers": servers}) as consumer:
            await consumer.commit()

    with pytest.raises(InvalidArgument, match=r"configure group\.id"):
        with_broker(GroupBroker(), use)
