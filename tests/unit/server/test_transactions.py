"""The shell of transactions in partitions: registrations that are asked until they are answered, and MarkerService."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from minilog.coordinators_of import GROUPS_TOPIC_NAME
from minilog.errors import BrokerNotAvailable, MinilogError, NotCoordinator, ProducerFenced, UnknownTopicId, wire_error
from minilog.v1 import common_pb2, coordinator_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.replication import effects
from minilog_broker.replication.parked import TransactionalWrite
from minilog_broker.server.marker_service import MarkerService, answer_markers
from minilog_broker.server.partition_registrations import PartitionRegistrations, Request, Response
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


def write(world: World, image: MetadataImage, *markers: coordinator_pb2.ProducerMarker) -> str:
    """The code of the answer."""
    partition_id = common_pb2.PartitionId(topic_id=KEY.topic_id, partition=KEY.partition)
    request = coordinator_pb2.WriteMarkersRequest(
        partition_id=partition_id, transactional_id="spark-1", markers=markers
    )

    async def play() -> coordinator_pb2.WriteMarkersResponse:
        return await MarkerService(Replicas(world), image).WriteMarkers(request, None)

    return common_pb2.ErrorCode.Name(asyncio.run(play()).error.code).removeprefix("ERROR_CODE_")


def test_markers_are_written_by_the_leader_and_its_answer_is_the_calls() -> None:
    world = World()
    send(world, 7)
    world.register(1)
    world.settle()
    wrong = coordinator_pb2.ProducerMarker(producer_id=7, committed=True, last_sequence=4)
    right = coordinator_pb2.ProducerMarker(producer_id=7, committed=True, last_sequence=0)
    assert write(world, MetadataImage(), wrong) == "INVALID_TXN_STATE"
    assert write(world, MetadataImage(), right) == "NONE"
    assert world[1].headers()[-1].is_control
    assert write(world, MetadataImage(), right) == "NONE"


def test_for_a_partition_of_groups_their_coordinator_is_asked() -> None:
    world, image = World(), MetadataImage()
    image.topic_ids[GROUPS_TOPIC_NAME] = KEY.topic_id
    marker = coordinator_pb2.ProducerMarker(producer_id=7, committed=False)
    assert write(world, image, marker) == "NOT_COORDINATOR"
    assert not world[1].headers()
