"""What calls are charged: by the partitions that they change, and before their work is done."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from minilog.security.quota_keys import (
    CONNECTIONS,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    PRODUCER_ID_RATE,
    REQUEST_RATE,
)
from minilog.v1 import admin_pb2, common_pb2, coordinator_pb2, metadata_pb2, queue_pb2
from minilog_broker.controller.image import MetadataImage, TopicImage
from minilog_broker.security.access import Operation
from minilog_broker.security.principal import USER, Principal
from minilog_broker.security.quotas import WINDOW_S
from minilog_broker.server.access.costs import cost_of
from minilog_broker.server.ingress.rules.admission import Admission
from minilog_broker.server.ingress.rules.budget import Budget
from minilog_broker.server.ingress.rules.traffic import Flow
from minilog_broker.server.ingress.transport.counted_server import CountedServer
from minilog_broker.server.runtime.observer import UNOBSERVED
from minilog_broker.server.runtime.turns import Turns
from tests.unit.server.test_gate import Call, World, allows
from tests.world.loop import play

ALICE = Principal(USER, "alice")
ADMIN = "/minilog.v1.AdminService"
DEFAULT_PARTITIONS = 6
ID = b"1" * 16
FAILED = common_pb2.Error(code=common_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION)


def image() -> MetadataImage:
    made = MetadataImage()
    made.topics[ID] = TopicImage("flights", ID, internal=False, partition_count=100)
    made.topic_ids["flights"] = ID
    return made


def cost(method: str, request: Any) -> int | None:
    found = cost_of(f"{ADMIN}/{method}", request, image(), DEFAULT_PARTITIONS)
    return None if found is None else found.total


def deletion(**topic: Any) -> admin_pb2.DeleteTopicsRequest:
    return admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicDeletion(**topic)])


def alteration(name: str, partitions: int | None = None) -> admin_pb2.AlterTopicsRequest:
    return admin_pb2.AlterTopicsRequest(topics=[admin_pb2.TopicAlteration(name=name, num_partitions=partitions)])


def creation(*partitions: int | None, validate_only: bool = False) -> admin_pb2.CreateTopicsRequest:
    topics = [admin_pb2.NewTopic(name=f"t{each}", num_partitions=each) for each in partitions]
    return admin_pb2.CreateTopicsRequest(topics=topics, validate_only=validate_only)


class TestPartitions:
    """Once: a deletion counted as 1, 100 -> 101 partitions as 101, what was validated alone in full."""

    @pytest.mark.parametrize("request_", [deletion(name="flights"), deletion(topic_id=ID)])
    def test_a_deletion_is_the_partitions_that_it_deletes(self, request_: Any) -> None:
        assert cost("DeleteTopics", request_) == 100
        assert cost("DeleteTopics", deletion(name="none")) == 0

    def test_an_enlargement_is_the_partitions_that_it_adds(self) -> None:
        assert cost("AlterTopics", alteration("flights", 101)) == 1
        assert cost("AlterTopics", alteration("flights", 50)) == 0
        assert cost("AlterTopics", alteration("none", 50)) == 0

    def test_settings_alone_are_none(self) -> None:
        assert cost("AlterTopics", alteration("flights")) == 0

    def test_a_creation_is_its_partitions_those_by_default_too(self) -> None:
        assert cost("CreateTopics", creation(3, 4, None)) == 7 + DEFAULT_PARTITIONS

    def test_a_validation_costs_no_partition(self) -> None:
        assert cost("CreateTopics", creation(3, validate_only=True)) is None

    @pytest.mark.parametrize(
        ("method", "request_"),
        [
            ("ElectLeaders", admin_pb2.ElectLeadersRequest(topics=[admin_pb2.TopicPartitions(name="flights")])),
            ("AlterPartitionReassignments", admin_pb2.AlterPartitionReassignmentsRequest()),
        ],
    )
    def test_a_call_that_neither_creates_nor_deletes_costs_no_partition(self, method: str, request_: Any) -> None:
        """An election of leaders counted as a partition for each topic that it named."""
        assert cost(method, request_) is None

    def test_refused_partitions_are_given_back(self) -> None:
        found = cost_of(f"{ADMIN}/CreateTopics", creation(3, 4), image(), DEFAULT_PARTITIONS)
        assert found is not None
        results = [admin_pb2.TopicResult(error=FAILED), admin_pb2.TopicResult(name="t4")]
        assert found.unused(admin_pb2.CreateTopicsResponse(results=results)) == 3
        assert found.unused(admin_pb2.CreateTopicsResponse()) == 0


class TestProducerIds:
    @pytest.mark.parametrize(
        ("path", "request_", "answer"),
        [
            (
                "/minilog.v1.MetadataService/InitProducerId",
                metadata_pb2.InitProducerIdRequest(),
                metadata_pb2.InitProducerIdResponse,
            ),
            (
                "/minilog.v1.TransactionService/Enlist",
                coordinator_pb2.EnlistRequest(),
                coordinator_pb2.EnlistResponse,
            ),
        ],
    )
    def test_an_id_that_is_not_given_is_given_back(self, path: str, request_: Any, answer: Any) -> None:
        found = cost_of(path, request_, image(), DEFAULT_PARTITIONS)
        assert found is not None
        assert (found.key, found.total) == (PRODUCER_ID_RATE, 1)
        assert (found.unused(answer(error=FAILED)), found.unused(answer())) == (1, 0)


def test_a_lease_waits_for_what_queues_have_written_and_settlements_do_not() -> None:
    lease = cost_of("/minilog.v1.QueueService/Lease", queue_pb2.LeaseRequest(), image(), DEFAULT_PARTITIONS)
    assert lease is not None
    assert (lease.key, lease.total, lease.has_more) == (PRODUCER_BYTE_RATE, 0, True)
    for call in ("Settle", "RenewLeases"):
        assert cost_of(f"/minilog.v1.QueueService/{call}", None, image(), DEFAULT_PARTITIONS) is None


class Refused(Exception):
    """A call that was ended with a status."""


class Context(Call):
    """Of one call of alice."""

    def __init__(self, peer: str = "ipv4:10.0.0.7:1") -> None:
        super().__init__(peer, name="alice")

    async def abort(self, status: grpc.StatusCode, details: str) -> None:
        raise Refused(status, details)


class Server:
    """A gRPC server, to whom handlers are added."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same come by name."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        self.handlers |= handlers


class Served:
    """AdminService behind a gate, with the quotas of alice. `done_s`: when its work was done."""

    def __init__(self, **quotas: int) -> None:
        self.world = World(allows(Operation.DELETE), is_sasl=False)
        self.world.image.topics, self.world.image.topic_ids = image().topics, image().topic_ids
        self.world.image.quotas["User:alice"] = quotas
        self.done_s: list[float] = []
        self.answer = admin_pb2.DeleteTopicsResponse(results=[admin_pb2.TopicResult(name="flights")])
        server: Any = Server()
        flow = Flow(Budget(1 << 20), Budget(1 << 20), Turns())
        counted = CountedServer(server, flow, Admission(Turns()).parser, self.world.gate, UNOBSERVED)
        handler: Any = grpc.unary_unary_rpc_method_handler(self._delete)
        counted.add_registered_method_handlers(ADMIN.strip("/"), {"DeleteTopics": handler})
        self._call = server.handlers["DeleteTopics"].unary_unary

    async def _delete(self, request: Any, caller: Any) -> admin_pb2.DeleteTopicsResponse:
        self.done_s.append(asyncio.get_running_loop().time())
        return self.answer

    async def delete(self, name: str = "flights", context: Context | None = None) -> None:
        await self._call(deletion(name=name).SerializeToString(), context or Context())

    def owed_s(self, key: str) -> float:
        return self.world.policy.owed_ms(ALICE, key) / 1000.0

    def spend(self, key: str, amount: float) -> None:
        self.world.policy.charge(ALICE, key, amount)


class TestCalls:
    def test_the_delay_comes_before_the_work(self) -> None:
        """Once: the work was done first, so that who hung up had it for nothing."""

        async def scenario() -> None:
            served = Served(request_rate=10)
            served.spend(REQUEST_RATE, 10 * WINDOW_S + 30)
            await served.delete()
            assert served.done_s == [pytest.approx(3.0, abs=0.01)]

        play(scenario())

    @pytest.mark.parametrize("key", [REQUEST_RATE, CONTROLLER_MUTATION_RATE])
    def test_a_call_of_a_caller_with_too_large_a_debt_is_not_done(self, key: str) -> None:
        async def scenario() -> None:
            served = Served(**{key: 10})
            served.spend(key, 10 * WINDOW_S + 300)
            with pytest.raises(Refused, match=f"User:alice is above its {key}, and its debt lasts 20.0 s") as told:
                await served.delete()
            assert told.value.args[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert served.done_s == []

        play(scenario())

    def test_a_call_that_is_refused_counts_as_one(self) -> None:
        """Once: who asked for what he may not paid nothing."""

        async def scenario() -> None:
            served = Served(request_rate=1)
            served.spend(REQUEST_RATE, WINDOW_S)
            with pytest.raises(Refused, match="salaries"):
                await served.delete("salaries")
            assert served.owed_s(REQUEST_RATE) == pytest.approx(1.0)

        play(scenario())

    def test_a_call_on_a_connection_too_many_counts_as_one(self) -> None:
        async def scenario() -> None:
            served = Served(request_rate=1, connections=0)
            served.spend(REQUEST_RATE, WINDOW_S)
            with pytest.raises(Refused, match="its quota"):
                await served.delete()
            assert served.owed_s(REQUEST_RATE) == pytest.approx(1.0)

        assert CONNECTIONS == "connections"
        play(scenario())

    def test_a_deletion_is_charged_by_its_partitions_and_given_back_where_it_fails(self) -> None:
        async def scenario() -> None:
            served = Served(controller_mutation_rate=10)
            served.spend(CONTROLLER_MUTATION_RATE, 10 * WINDOW_S)
            await served.delete()
            assert served.owed_s(CONTROLLER_MUTATION_RATE) == pytest.approx(10.0)
            served.answer = admin_pb2.DeleteTopicsResponse(results=[admin_pb2.TopicResult(error=FAILED)])
            await asyncio.sleep(10.0)
            await served.delete()
            assert served.owed_s(CONTROLLER_MUTATION_RATE) == 0.0

        play(scenario())
