"""A voter that lost its disk is replaced by command, and never by itself."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidArgument
from minilog.v1 import admin_pb2
from tests.unit.controller.world import SESSION_TIMEOUT_MS, World, directory_id, error_of


@pytest.fixture
def world() -> World:
    world = World()
    world.start_all(3)
    return world


def replace(world: World, broker_id: int, lost: bytes = b"") -> admin_pb2.ReplaceVoterResponse:
    ticket = world.ticket()
    request = admin_pb2.ReplaceVoterRequest(broker_id=broker_id, lost_directory_id=lost)
    world.controller.replace_voter(ticket, request)
    return world.answer(ticket, admin_pb2.ReplaceVoterResponse)


def with_an_empty_disk(world: World, broker_id: int) -> None:
    world.fence(broker_id)
    world.advance(SESSION_TIMEOUT_MS * 1.1)
    world.start(broker_id, disk=7)


def test_the_disk_that_the_broker_is_registered_with_votes_from_then_on(world: World) -> None:
    with_an_empty_disk(world, 1)
    assert [voter.directory_id for voter in world.image.voters] == [directory_id(1)], "not by itself"
    response = replace(world, 1)
    assert error_of(response) is None
    assert (response.lost_directory_id, response.directory_id) == (directory_id(1), directory_id(1, 7))
    assert [voter.directory_id for voter in world.image.voters] == [directory_id(1, 7)]


def test_given_twice_with_the_lost_directory_it_replaces_once(world: World) -> None:
    with_an_empty_disk(world, 1)
    assert error_of(replace(world, 1, directory_id(1))) is None
    refusal = error_of(replace(world, 1, directory_id(1)))
    assert isinstance(refusal, InvalidArgument)
    assert "replaced already" in str(refusal)


@pytest.mark.parametrize(("broker_id", "why"), [(2, "is no voter"), (1, "nothing is lost")])
def test_what_lost_nothing_is_refused(world: World, broker_id: int, why: str) -> None:
    before = len(world.records)
    refusal = error_of(replace(world, broker_id))
    assert isinstance(refusal, InvalidArgument)
    assert why in str(refusal)
    assert len(world.records) == before


def test_a_voter_that_is_not_running_is_refused(world: World) -> None:
    world.fence(1)
    assert "is not running" in str(error_of(replace(world, 1)))


def test_one_at_a_time() -> None:
    world = World(voters=(1, 2, 3))
    world.start_all(3)
    with_an_empty_disk(world, 2)
    with_an_empty_disk(world, 3)
    world.heartbeat(2)
    for broker_id in (2, 3):
        world.controller.replace_voter(broker_id, admin_pb2.ReplaceVoterRequest(broker_id=broker_id))
    world.commit()
    first, second = (error_of(world.answer(each, admin_pb2.ReplaceVoterResponse)) for each in (2, 3))
    assert first is None
    assert isinstance(second, InvalidArgument)
    assert "one at a time" in str(second)
    assert error_of(replace(world, 3)) is None
