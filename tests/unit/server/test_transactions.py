"""The shell of transactions in partitions: registrations that are asked until they are answered, and MarkerService."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from minilog.coordinators_of import GROUPS_TOPIC_NAME, TRANSACTIONS_TOPIC_NAME, coordinator_partition
from minilog.errors import BrokerNotAvailable, MinilogError, NotCoordinator, ProducerFenced, UnknownTopicId, wire_error
from minilog.v1 import common_pb2, coordinator_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.replication import effects
from minilog_broker.replication.parked import TransactionalWrite
from minilog_broker.replication.state import PartitionKey, PartitionState
from minilog_broker.server.marker_service import MarkerService, answer_markers
from minilog_broker.server.partition_registrations import PartitionRegistrations, Request, Response
from minilog_broker.server.runtime import BROKER_MACHINE
from tests.unit.replication.broker import KEY, batch, transactional
from tests.unit.replication.world import World


class Coordinator:
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


def send(world: World, producer_id: int) -> int:
    data = transactional(batch(producer=(producer_id, 0, 0)))
    return world.produce(1, data, transaction=TransactionalWrite("spark-1", 4))


def register(world: World, coordinator: Coordinator) -> None:
    """Carry out what the leader asked for, to its end."""

    async def play() -> None:
        registrations = PartitionRegistrations(world[1], coordinator.call, coordinator.spawn, first_pause_s=0)
        while world[1].registrations:
            registrations.ask(world[1].registrations.popleft())
        await asyncio.gather(*coordinator.tasks)

    asyncio.run(play())
    world.settle()


def test_a_registration_is_asked_again_until_it_is_answered() -> None:
    world = World()
    ticket = send(world, 7)
    coordinator = Coordinator(NotCoordinator(""), BrokerNotAvailable(""), UnknownTopicId(""))
    register(world, coordinator)
    assert len(coordinator.asked) == 4
    (partition,) = coordinator.asked[0].partitions
    asked = coordinator.asked[0]
    assert (asked.transactional_id, asked.producer_id, asked.coordinator_epoch) == ("spark-1", 7, 4)
    assert (partition.topic_id, partition.partition) == KEY
    assert world[1].answers[ticket].error is None


def test_a_refusal_is_final() -> None:
    world = World()
    ticket = send(world, 7)
    coordinator = Coordinator(ProducerFenced("it has ended"))
    register(world, coordinator)
    assert len(coordinator.asked) == 1
    assert isinstance(world[1].answers[ticket].error, ProducerFenced)


def test_nobody_asks_any_longer_than_somebody_waits() -> None:
    world = World()
    send(world, 7)
    world.advance(6_000)
    coordinator = Coordinator()
    register(world, coordinator)
    assert not coordinator.asked


def test_producers_are_asked_for_apart_and_one_producers_partitions_together() -> None:
    world = World()
    send(world, 7)
    send(world, 8)
    first = world[1].registrations[0]
    world[1].registrations.append(first)  # as of another partition that this broker leads
    coordinator = Coordinator()
    register(world, coordinator)
    assert [(asked.producer_id, len(asked.partitions)) for asked in coordinator.asked] == [(7, 2), (8, 1)]


# -- markers


class Replicas:
    """A broker of the fake world whose answers to markers go where the server's go."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.manager = world[1].manager

    def run(self) -> None:
        self.world.settle()
        for effect in self.world[1].history:
            if isinstance(effect, effects.AnswerMarkers) and isinstance(effect.ticket, asyncio.Future):
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
    world: World,
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
        return await MarkerService(Replicas(world), image, of_groups, BROKER_MACHINE.wall_us).WriteMarkers(
            request, None
        )

    return common_pb2.ErrorCode.Name(asyncio.run(play()).error.code).removeprefix("ERROR_CODE_")


def test_markers_are_written_by_the_leader_and_its_answer_is_the_calls() -> None:
    world = World()
    send(world, 7)
    world.register(1)
    world.settle()
    wrong = coordinator_pb2.ProducerMarker(producer_id=7, committed=True, last_sequence=4)
    right = coordinator_pb2.ProducerMarker(producer_id=7, committed=True, last_sequence=0)
    image = image_with_coordinators()
    assert write(world, image, wrong) == "INVALID_TXN_STATE"
    assert write(world, image, right) == "NONE"
    assert world[1].headers()[-1].is_control
    assert write(world, image, right) == "NONE"


def test_markers_are_taken_from_the_coordinator_in_its_own_epoch_only() -> None:
    """Else anybody could end anybody's transaction: a coordinator that was deposed, or no coordinator at all."""
    world, image = World(), image_with_coordinators()
    send(world, 7)
    world.register(1)
    world.settle()
    marker = coordinator_pb2.ProducerMarker(producer_id=7, committed=False)
    before = world[1].headers()
    assert write(world, image, marker, epoch=COORDINATOR_EPOCH - 1) == "FENCED_LEADER_EPOCH"
    assert write(world, image, marker, epoch=COORDINATOR_EPOCH + 1) == "UNKNOWN_LEADER_EPOCH"
    assert write(world, image, marker, partition=(COORDINATOR + 1) % 16) == "INVALID_REQUEST"
    assert write(world, MetadataImage(), marker) == "UNKNOWN_LEADER_EPOCH", "the image may be behind: ask again"
    assert world[1].headers() == before
    assert write(world, image, marker) == "NONE"


def test_markers_for_producers_that_nobody_was_given_are_refused() -> None:
    world, image = World(), image_with_coordinators()
    for producer_id, code in ((1_000, "UNKNOWN_PRODUCER_ID"), (2**62, "UNKNOWN_PRODUCER_ID"), (-1, "INVALID_REQUEST")):
        for committed in (True, False):
            marker = coordinator_pb2.ProducerMarker(producer_id=producer_id, committed=committed, last_sequence=-1)
            assert write(world, image, marker) == code
    assert not world[1].headers()


def test_for_a_partition_of_groups_their_coordinator_is_asked() -> None:
    world, image = World(), image_with_coordinators()
    image.topic_ids[GROUPS_TOPIC_NAME] = KEY.topic_id
    marker = coordinator_pb2.ProducerMarker(producer_id=7, committed=False)
    assert write(world, image, marker) == "NOT_COORDINATOR"
    assert write(world, image, marker, epoch=COORDINATOR_EPOCH - 1) == "FENCED_LEADER_EPOCH"
    assert not world[1].headers()
