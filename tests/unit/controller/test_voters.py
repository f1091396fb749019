"""A voter that lost its disk is replaced by command, and never by itself."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidArgument, VotersNotReady
from minilog.v1 import admin_pb2
from tests.rules import proves
from tests.unit.controller.cluster import SESSION_TIMEOUT_MS, ControllerCluster, directory_id, error_of

pytestmark = proves("MD.49")


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    return cluster


def replace(cluster: ControllerCluster, broker_id: int, lost: bytes = b"") -> admin_pb2.ReplaceVoterResponse:
    ticket = cluster.ticket()
    request = admin_pb2.ReplaceVoterRequest(broker_id=broker_id, lost_directory_id=lost)
    cluster.controller.replace_voter(ticket, request)
    return cluster.answer(ticket, admin_pb2.ReplaceVoterResponse)


def with_an_empty_disk(cluster: ControllerCluster, broker_id: int) -> None:
    cluster.fence(broker_id)
    cluster.advance(SESSION_TIMEOUT_MS * 1.1)
    cluster.start(broker_id, disk=7)


def test_the_disk_that_the_broker_is_registered_with_votes_from_then_on(cluster: ControllerCluster) -> None:
    with_an_empty_disk(cluster, 1)
    assert [voter.directory_id for voter in cluster.image.voters] == [directory_id(1)], "not by itself"
    response = replace(cluster, 1)
    assert error_of(response) is None
    assert (response.lost_directory_id, response.directory_id) == (directory_id(1), directory_id(1, 7))
    assert [voter.directory_id for voter in cluster.image.voters] == [directory_id(1, 7)]


def test_given_twice_with_the_lost_directory_it_replaces_once(cluster: ControllerCluster) -> None:
    with_an_empty_disk(cluster, 1)
    assert error_of(replace(cluster, 1, directory_id(1))) is None
    refusal = error_of(replace(cluster, 1, directory_id(1)))
    assert isinstance(refusal, InvalidArgument)
    assert "replaced already" in str(refusal)


@pytest.mark.parametrize(("broker_id", "why"), [(2, "is no voter"), (1, "nothing is lost")])
def test_a_replacement_of_a_sound_voter_is_refused(cluster: ControllerCluster, broker_id: int, why: str) -> None:
    before = len(cluster.records)
    refusal = error_of(replace(cluster, broker_id))
    assert isinstance(refusal, InvalidArgument)
    assert why in str(refusal)
    assert len(cluster.records) == before


def test_a_voter_that_is_not_running_is_refused(cluster: ControllerCluster) -> None:
    cluster.fence(1)
    assert "is not running" in str(error_of(replace(cluster, 1)))


def test_replacements_go_one_at_a_time() -> None:
    cluster = ControllerCluster(voters=(1, 2, 3))
    cluster.start_all(3)
    with_an_empty_disk(cluster, 2)
    with_an_empty_disk(cluster, 3)
    cluster.heartbeat(2)
    for broker_id in (2, 3):
        cluster.controller.replace_voter(broker_id, admin_pb2.ReplaceVoterRequest(broker_id=broker_id))
    cluster.commit()
    first, second = (error_of(cluster.answer(each, admin_pb2.ReplaceVoterResponse)) for each in (2, 3))
    assert first is None
    assert isinstance(second, VotersNotReady)
    assert "one at a time" in str(second)
    assert error_of(replace(cluster, 3)) is None
