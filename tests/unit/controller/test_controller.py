"""When the controller answers, and what it forgets when it is deposed (docs/spec/quorum.md § The controller)."""

from __future__ import annotations

import pytest

from minilog.errors import NotController, StaleBrokerEpoch
from minilog.v1 import admin_pb2, peer_pb2
from minilog_broker.controller.effects import Answer, ProbeBroker
from minilog_broker.replication.state import NO_LEADER
from tests.unit.controller.world import CLUSTER_ID, SESSION_TIMEOUT_MS, World, directory_id, error_of


@pytest.fixture
def world() -> World:
    world = World()
    world.start_all(3)
    return world


def create(world: World, ticket: str, name: str) -> None:
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name)])
    world.controller.create_topics(ticket, request)


def test_every_answer_waits_for_its_commit(world: World) -> None:
    create(world, "first", "a")
    first_end = len(world.records)
    create(world, "second", "b")
    assert world.controller.take_effects() == []
    world.controller.committed(first_end - 1)
    assert world.controller.take_effects() == []
    world.controller.committed(first_end)
    assert [effect.ticket for effect in world.controller.take_effects() if isinstance(effect, Answer)] == ["first"]
    world.controller.committed(len(world.records))
    assert [effect.ticket for effect in world.controller.take_effects() if isinstance(effect, Answer)] == ["second"]


def test_an_answer_that_rests_on_what_is_not_committed_waits_for_it_too(world: World) -> None:
    create(world, "first", "a")
    create(world, "again", "a")
    assert world.controller.take_effects() == []
    world.commit()
    refused = world.answers["again"]
    assert isinstance(refused, admin_pb2.CreateTopicsResponse)
    assert refused.results[0].error.message.startswith("topic a exists")


def test_what_changes_nothing_is_answered_at_once(world: World) -> None:
    world.controller.heartbeat(
        "beat", peer_pb2.HeartbeatRequest(broker_id=2, broker_epoch=world.epoch(2), metadata_offset=99), world.now_ms
    )
    (answer,) = world.controller.take_effects()
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, peer_pb2.HeartbeatResponse)
    assert (answer.message.controller_epoch, answer.message.fenced) == (1, False)


def test_decisions_rest_on_what_is_not_committed_yet(world: World) -> None:
    request = peer_pb2.RegisterRequest(
        cluster_id=CLUSTER_ID, broker_id=4, directory_id=directory_id(4), host="h", port=1, kernel_boot_id="b"
    )
    world.controller.register("r", request, world.now_ms)
    epoch = len(world.records) - 1
    beat = peer_pb2.HeartbeatRequest(broker_id=4, broker_epoch=epoch, metadata_offset=epoch + 1)
    world.controller.heartbeat("h", beat, world.now_ms)
    world.commit()
    registered, beaten = world.answers["r"], world.answers["h"]
    assert isinstance(registered, peer_pb2.RegisterResponse)
    assert isinstance(beaten, peer_pb2.HeartbeatResponse)
    assert registered.broker_epoch == epoch
    assert not beaten.fenced


def test_deposed_it_answers_that_it_is_not_the_controller_and_drops_what_was_not_committed(world: World) -> None:
    create(world, "waiting", "a")
    world.controller.take_effects()
    del world.records[world.image.end_offset :]  # another leader has truncated it
    world.controller.deactivate(2)
    (answer,) = world.controller.take_effects()
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, admin_pb2.CreateTopicsResponse)
    (result,) = answer.message.results
    assert isinstance(error_of(result), NotController)
    assert "broker 2 is" in result.error.message
    assert result.topic_id == b""
    assert not world.controller.is_active
    world.controller.activate(3, world.image, world.image.end_offset, world.now_ms)
    world.created("a")


def test_who_is_not_active_says_so_and_who_is(world: World) -> None:
    world.controller.deactivate(3)
    response = world.register(4)
    assert isinstance(error_of(response), NotController)
    assert response.controller_id == 3
    assert world.heartbeat(2).fenced
    assert isinstance(error_of(world.create("a")), NotController)
    world.controller.tick(1e9)
    world.controller.heartbeat_stream_broken(2, world.epoch(2), 0.0)
    world.controller.broker_refused_connection(2, world.epoch(2), 0.0)
    assert world.controller.take_effects() == []
    assert world.controller.next_tick_ms == float("inf")


def test_one_decision_is_one_batch(world: World) -> None:
    for index in range(4):
        world.created(f"t{index}", partitions=3)
    before = len(world.batches)
    world.fence(2)
    assert len(world.batches) == before + 1


def test_producer_ids_are_given_once_in_blocks(world: World) -> None:
    given: list[int] = []
    for ticket in range(3):
        request = peer_pb2.AllocateProducerIdsRequest(broker_id=2, broker_epoch=world.epoch(2))
        world.controller.allocate_producer_ids(ticket + 1000, request)
        response = world.answer(ticket + 1000, peer_pb2.AllocateProducerIdsResponse)
        given.extend(range(response.first_producer_id, response.first_producer_id + response.count))
    assert len(given) == 3000
    assert len(set(given)) == 3000


def test_a_former_life_gets_no_producer_ids(world: World) -> None:
    request = peer_pb2.AllocateProducerIdsRequest(broker_id=2, broker_epoch=world.epoch(2) - 1)
    world.controller.allocate_producer_ids("t", request)
    world.commit()
    response = world.answers["t"]
    assert isinstance(response, peer_pb2.AllocateProducerIdsResponse)
    assert isinstance(error_of(response), StaleBrokerEpoch)


def test_a_new_controller_probes_every_unfenced_broker_but_its_own(world: World) -> None:
    world.start(4)
    world.fence(3)
    world.effects.clear()
    world.fail_over()
    probes = [effect for effect in world.effects if isinstance(effect, ProbeBroker)]
    assert [(probe.broker_id, probe.broker_epoch) for probe in probes] == [(2, world.epoch(2)), (4, world.epoch(4))]
    assert {(probe.host, probe.port) for probe in probes} == {("host2", 9092), ("host4", 9092)}


def test_a_broker_that_died_with_the_former_controller_is_fenced_at_once(world: World) -> None:
    world.created()
    world.fail_over()
    world.controller.broker_refused_connection(2, world.epoch(2), world.now_ms)
    world.commit()
    assert world.image.brokers[2].fenced
    assert not world.image.brokers[3].fenced


def test_a_broker_that_was_heard_by_the_new_controller_outlives_its_probe(world: World) -> None:
    world.fail_over()
    world.heartbeat(2)
    world.controller.broker_refused_connection(2, world.epoch(2), world.now_ms)
    world.commit()
    assert not world.image.brokers[2].fenced


def test_a_new_controller_gives_those_that_do_not_refuse_a_full_period(world: World) -> None:
    world.advance(SESSION_TIMEOUT_MS * 0.9)
    world.fail_over()
    world.advance(SESSION_TIMEOUT_MS * 0.9)
    assert not any(broker.fenced for broker in world.image.brokers.values())
    world.advance(SESSION_TIMEOUT_MS * 0.3)
    assert all(broker.fenced for broker in world.image.brokers.values())


def test_deposed_in_between_it_drops_the_decision_and_all_that_wait(world: World) -> None:
    create(world, "waiting", "a")
    world.appends_left = 0
    create(world, "late", "b")
    assert not world.controller.is_active
    answers = {
        effect.ticket: effect.message for effect in world.controller.take_effects() if isinstance(effect, Answer)
    }
    assert answers.keys() == {"waiting", "late"}
    for answer in answers.values():
        assert isinstance(answer, admin_pb2.CreateTopicsResponse)
        assert isinstance(error_of(answer.results[0]), NotController)
    world.fail_over()
    assert world.image.topics == {}


def test_deposed_in_between_no_topic_of_the_request_is_promised(world: World) -> None:
    world.appends_left = 1
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name) for name in ("a", "b", "c")])
    world.controller.create_topics("all", request)
    (answer,) = world.controller.take_effects()
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, admin_pb2.CreateTopicsResponse)
    assert [type(error_of(result)) for result in answer.message.results] == [NotController] * 3
    assert {result.topic_id for result in answer.message.results} == {b""}


def test_deposed_in_between_lives_of_brokers_are_answered_too(world: World) -> None:
    world.created()
    for ask in (lambda: world.heartbeat(2, wants_stop=True), lambda: world.register(4)):
        world.appends_left = 0
        assert isinstance(error_of(ask()), NotController)
        assert not world.controller.is_active
        world.fail_over()
    assert not world.image.brokers[2].stopping
    assert 4 not in world.image.brokers


def test_deposed_in_between_silence_fences_nobody_and_tells_nothing(world: World) -> None:
    world.created()
    world.effects.clear()
    world.appends_left = 0
    world.advance(SESSION_TIMEOUT_MS * 1.2)
    assert not world.controller.is_active
    assert world.effects == []
    world.fail_over()
    assert not any(broker.fenced for broker in world.image.brokers.values())


def test_a_voter_with_an_emptied_disk_may_register_and_its_replicas_count_as_gone(world: World) -> None:
    shared, alone = world.created("shared"), world.created("alone", replication_factor=1)
    while world.state(alone).replicas != (1,):
        alone = world.created(f"alone{len(world.image.topics)}", replication_factor=1)
    world.fence(1)
    world.advance(SESSION_TIMEOUT_MS * 1.1)
    world.start(1, disk=7)
    assert world.image.voters[0].directory_id != world.image.brokers[1].directory_id
    assert 1 in world.state(shared).damaged_replicas
    assert world.state(alone).leader_id == NO_LEADER
