"""The shell of transactions in partitions: registrations that are asked until they are answered, and MarkerService."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from minilog.errors import BrokerNotAvailable, MinilogError, NotCoordinator, ProducerFenced, UnknownTopicId, wire_error
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, TRANSACTIONS_TOPIC_NAME, coordinator_partition
from minilog.partition_key import PartitionKey
from minilog.v1 import common_pb2, coordinator_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.replication import replica_effects
from minilog_broker.replication.leader.pending import TransactionalWrite
from minilog_broker.replication.partition_state import PartitionState
from minilog_broker.server.clients.partition_registrations import PartitionRegistrations, Request, Response
from minilog_broker.server.services.marker_service import MarkerService, answer_markers
from minilog_broker.server.system_runtime import SYSTEM_BROKER_RUNTIME
from tests.rules import proves
from tests.unit.replication.broker import KEY, batch, transactional
from tests.unit.replication.cluster import ReplicaCluster


class ScriptedCoordinator:
    """Answers as it is told, in order, and then that all is well."""

    def __init__(self, *answers: MinilogError | None) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def call(self, request: Request) -> Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BrokerNotAvailable):
            raise answer
        return Response(error=None if answer is None else wire_error(answer))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))


def send(cluster: ReplicaCluster, producer_id: int) -> int:
    data = transactional(batch(producer=(producer_id, 0, 0)))
    return cluster.produce(1, data, transaction=TransactionalWrite("spark-1", 4))


def register(cluster: ReplicaCluster, coordinator: ScriptedCoordinator) -> None:
    """Carry out what the leader asked for, to its end."""

    async def play() -> None:
        registrations = PartitionRegistrations(cluster[1], coordinator.call, coordinator.spawn, first_pause_s=0)
        while cluster[1].registrations:
            registrations.ask(cluster[1].registrations.popleft())
        await asyncio.gather(*coordinator.tasks)

    asyncio.run(play())
    cluster.settle()


@proves("TX.1")
def test_a_registration_is_asked_again_until_it_is_answered() -> None:
    cluster = ReplicaCluster()
    ticket = send(cluster, 7)
    coordinator = ScriptedCoordinator(NotCoordinator(""), BrokerNotAvailable(""), UnknownTopicId(""))
    register(cluster, coordinator)
    assert len(coordinator.asked) == 4
    (partition,) = coordinator.asked[0].partitions
    asked = coordinator.asked[0]
    assert (asked.transactional_id, asked.producer_id, asked.coordinator_epoch) == ("spark-1", 7, 4)
    assert (partition.topic_id, partition.partition) == KEY
    assert cluster[1].answers[ticket].error is None


def test_a_refusal_is_final() -> None:
    cluster = ReplicaCluster()
    ticket = send(cluster, 7)
    coordinator = ScriptedCoordinator(ProducerFenced("it has ended"))
    register(cluster, coordinator)
    assert len(coordinator.asked) == 1
    assert isinstance(cluster[1].answers[ticket].error, ProducerFenced)


def test_nobody_asks_any_longer_than_somebody_waits() -> None:
    cluster = ReplicaCluster()
    send(cluster, 7)
    cluster.advance(6_000)
    coordinator = ScriptedCoordinator()
    register(cluster, coordinator)
    assert not coordinator.asked


def test_producers_are_asked_for_apart_and_one_producers_partitions_together() -> None:
    cluster = ReplicaCluster()
    send(cluster, 7)
    send(cluster, 8)
    first = cluster[1].registrations[0]
    cluster[1].registrations.append(first)  # as of another partition that this broker leads
    coordinator = ScriptedCoordinator()
    register(cluster, coordinator)
    assert [(asked.producer_id, len(asked.partitions)) for asked in coordinator.asked] == [(7, 2), (8, 1)]


# -- markers


class WiredShell:
    """A broker of the fake world whose answers to markers go where the server's go."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self.manager = cluster[1].manager

    def run(self) -> None:
        self.cluster.settle()
        for effect in self.cluster[1].history:
            if isinstance(effect, replica_effects.AnswerMarkers) and isinstance(effect.ticket, asyncio.Future):
                answer_markers(effect)


COORDINATOR = coordinator_partition("spark-1")
COORDINATOR_EPOCH = 4
TRANSACTIONS_ID = b"transactions".rjust(16, b"x")


def image_with_coordinators() -> MetadataImage:
    """Producer ids below 1,000 were handed out, and the coordinator leads in COORDINATOR_EPOCH."""
    image = MetadataImage()
    coordinator = PartitionKey(TRANSACTIONS_ID, COORDINATOR)
    image.next_producer_id = 1_000
    image.topic_ids[TRANSACTIONS_TOPIC_NAME] = TRANSACTIONS_ID
    image.partitions[coordinator] = PartitionState(
        key=coordinator,
        topic_name=TRANSACTIONS_TOPIC_NAME,
        replicas=(1, 2, 3),
        in_sync_replicas=(1, 2, 3),
        eligible_leaders=(),
        damaged_replicas=(),
        leader_id=1,
        leader_epoch=COORDINATOR_EPOCH,
        partition_epoch=0,
        leader_broker_epoch=1,
    )
    return image


def write(
    cluster: ReplicaCluster,
    image: MetadataImage,
    *markers: coordinator_pb2.ProducerMarker,
    partition: int = COORDINATOR,
    epoch: int = COORDINATOR_EPOCH,
) -> str:
    """The code of the answer."""
    partition_id = common_pb2.PartitionId(topic_id=KEY.topic_id, partition=KEY.partition)
    request = coordinator_pb2.WriteMarkersRequest(
        partition_id=partition_id,
        transactional_id="spark-1",
        markers=markers,
        coordinator_partition=partition,
        coordinator_epoch=epoch,
    )

    async def of_groups(_: coordinator_pb2.WriteMarkersRequest) -> coordinator_pb2.WriteMarkersResponse:
        return coordinator_pb2.WriteMarkersResponse(error=wire_error(NotCoordinator("no group is coordinated here")))

    async def play() -> coordinator_pb2.WriteMarkersResponse:
        return await MarkerService(WiredShell(cluster), image, of_groups, SYSTEM_BROKER_RUNTIME.wall_us).WriteMarkers(
            request, None
        )

    return common_pb2.ErrorCode.Name(asyncio.run(play()).error.code).removeprefix("ERROR_CODE_")


def test_markers_are_written_by_the_leader_and_its_answer_is_the_calls() -> None:
    cluster = ReplicaCluster()
    send(cluster, 7)
    cluster.register(1)
    cluster.settle()
    wrong = coordinator_pb2.ProducerMarker(producer_id=7, committed=True, last_sequence=4)
    right = coordinator_pb2.ProducerMarker(producer_id=7, committed=True, last_sequence=0)
    image = image_with_coordinators()
    assert write(cluster, image, wrong) == "INVALID_TXN_STATE"
    assert write(cluster, image, right) == "NONE"
    assert cluster[1].headers()[-1].is_control
    assert write(cluster, image, right) == "NONE"


@proves("TX.7")
def test_markers_are_taken_from_the_coordinator_in_its_own_epoch_only() -> None:
    """Else anybody could end anybody's transaction: a coordinator that was deposed, or no coordinator at all."""
    cluster, image = ReplicaCluster(), image_with_coordinators()
    send(cluster, 7)
    cluster.register(1)
    cluster.settle()
    marker = coordinator_pb2.ProducerMarker(producer_id=7, committed=False)
    before = cluster[1].headers()
    assert write(cluster, image, marker, epoch=COORDINATOR_EPOCH - 1) == "FENCED_LEADER_EPOCH"
    assert write(cluster, image, marker, epoch=COORDINATOR_EPOCH + 1) == "UNKNOWN_LEADER_EPOCH"
    assert write(cluster, image, marker, partition=(COORDINATOR + 1) % 16) == "INVALID_REQUEST"
    assert write(cluster, MetadataImage(), marker) == "UNKNOWN_LEADER_EPOCH", "the image may be behind: ask again"
    assert cluster[1].headers() == before
    assert write(cluster, image, marker) == "NONE"


@proves("TX.7")
def test_markers_for_producers_that_nobody_was_given_are_refused() -> None:
    cluster, image = ReplicaCluster(), image_with_coordinators()
    for producer_id, code in ((1_000, "UNKNOWN_PRODUCER_ID"), (2**62, "UNKNOWN_PRODUCER_ID"), (-1, "INVALID_REQUEST")):
        for committed in (True, False):
            marker = coordinator_pb2.ProducerMarker(producer_id=producer_id, committed=committed, last_sequence=-1)
            assert write(cluster, image, marker) == code
    assert not cluster[1].headers()


def test_for_a_partition_of_groups_their_coordinator_is_asked() -> None:
    cluster, image = ReplicaCluster(), image_with_coordinators()
    image.topic_ids[GROUPS_TOPIC_NAME] = KEY.topic_id
    marker = coordinator_pb2.ProducerMarker(producer_id=7, committed=False)
    assert write(cluster, image, marker) == "NOT_COORDINATOR"
    assert write(cluster, image, marker, epoch=COORDINATOR_EPOCH - 1) == "FENCED_LEADER_EPOCH"
    assert not cluster[1].headers()
