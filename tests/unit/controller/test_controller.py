"""When the controller answers, and what it forgets when it is deposed (docs/spec/quorum.md § The controller)."""

from __future__ import annotations

import pytest

from minilog.errors import NotController, StaleBrokerEpoch
from minilog.v1 import admin_pb2, peer_pb2, records_pb2
from minilog_broker.controller.controller_effects import ControllerAnswer, ProbeBroker
from minilog_broker.levels import PROVEN_PRODUCERS_LEVEL
from minilog_broker.replication.partition_state import NO_LEADER
from minilog_broker.security.producer_proof import KEY_BYTES
from tests.rules import proves
from tests.unit.controller.cluster import CLUSTER_ID, SESSION_TIMEOUT_MS, ControllerCluster, directory_id, error_of


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    return cluster


def create(cluster: ControllerCluster, ticket: str, name: str) -> None:
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name)])
    cluster.controller.create_topics(ticket, request)


@proves("MD.33")
def test_every_answer_waits_for_its_commit(cluster: ControllerCluster) -> None:
    create(cluster, "first", "a")
    first_end = len(cluster.records)
    create(cluster, "second", "b")
    assert cluster.controller.take_effects() == []
    cluster.controller.committed(first_end - 1)
    assert cluster.controller.take_effects() == []
    cluster.controller.committed(first_end)
    assert [effect.ticket for effect in cluster.controller.take_effects() if isinstance(effect, ControllerAnswer)] == [
        "first"
    ]
    cluster.controller.committed(len(cluster.records))
    assert [effect.ticket for effect in cluster.controller.take_effects() if isinstance(effect, ControllerAnswer)] == [
        "second"
    ]


@proves("MD.33")
def test_an_answer_that_rests_on_what_is_not_committed_waits_for_it_too(cluster: ControllerCluster) -> None:
    create(cluster, "first", "a")
    create(cluster, "again", "a")
    assert cluster.controller.take_effects() == []
    cluster.commit()
    refused = cluster.answers["again"]
    assert isinstance(refused, admin_pb2.CreateTopicsResponse)
    assert refused.results[0].error.message.startswith("topic a exists")


def test_requests_that_change_nothing_are_answered_at_once(cluster: ControllerCluster) -> None:
    cluster.controller.heartbeat(
        "beat",
        peer_pb2.HeartbeatRequest(broker_id=2, broker_epoch=cluster.epoch(2), metadata_offset=99),
        cluster.now_ms,
    )
    (answer,) = cluster.controller.take_effects()
    assert isinstance(answer, ControllerAnswer)
    assert isinstance(answer.message, peer_pb2.HeartbeatResponse)
    assert (answer.message.controller_epoch, answer.message.fenced) == (1, False)


def test_decisions_rest_on_what_is_not_committed_yet(cluster: ControllerCluster) -> None:
    request = peer_pb2.RegisterRequest(
        cluster_id=CLUSTER_ID, broker_id=4, directory_id=directory_id(4), host="h", port=1, kernel_boot_id="b"
    )
    cluster.controller.register("r", request, cluster.now_ms)
    epoch = len(cluster.records) - 1
    beat = peer_pb2.HeartbeatRequest(broker_id=4, broker_epoch=epoch, metadata_offset=epoch + 1)
    cluster.controller.heartbeat("h", beat, cluster.now_ms)
    cluster.commit()
    registered, beaten = cluster.answers["r"], cluster.answers["h"]
    assert isinstance(registered, peer_pb2.RegisterResponse)
    assert isinstance(beaten, peer_pb2.HeartbeatResponse)
    assert registered.broker_epoch == epoch
    assert not beaten.fenced


@proves("MD.33")
def test_deposed_it_answers_that_it_is_not_the_controller_and_drops_what_was_not_committed(
    cluster: ControllerCluster,
) -> None:
    create(cluster, "waiting", "a")
    cluster.controller.take_effects()
    del cluster.records[cluster.image.end_offset :]  # another leader has truncated it
    cluster.controller.deactivate(2)
    (answer,) = cluster.controller.take_effects()
    assert isinstance(answer, ControllerAnswer)
    assert isinstance(answer.message, admin_pb2.CreateTopicsResponse)
    (result,) = answer.message.results
    assert isinstance(error_of(result), NotController)
    assert "broker 2 is" in result.error.message
    assert result.topic_id == b""
    assert not cluster.controller.is_active
    cluster.controller.activate(3, cluster.image, cluster.image.end_offset, cluster.now_ms)
    cluster.created("a")


def test_an_inactive_controller_names_the_active_one(cluster: ControllerCluster) -> None:
    cluster.controller.deactivate(3)
    response = cluster.register(4)
    assert isinstance(error_of(response), NotController)
    assert response.controller_id == 3
    assert cluster.heartbeat(2).fenced
    assert isinstance(error_of(cluster.create("a")), NotController)
    cluster.controller.tick(1e9, 0)
    cluster.controller.heartbeat_stream_broken(2, cluster.epoch(2), 0.0)
    cluster.controller.broker_refused_connection(2, cluster.epoch(2), 0.0)
    assert cluster.controller.take_effects() == []
    assert cluster.controller.next_tick_ms == float("inf")


def test_a_decision_is_one_batch(cluster: ControllerCluster) -> None:
    for index in range(4):
        cluster.created(f"t{index}", partitions=3)
    before = len(cluster.batches)
    cluster.fence(2)
    assert len(cluster.batches) == before + 1


def test_producer_ids_are_given_once_in_blocks(cluster: ControllerCluster) -> None:
    given: list[int] = []
    for ticket in range(3):
        request = peer_pb2.AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2))
        cluster.controller.allocate_producer_ids(ticket + 1000, request)
        response = cluster.answer(ticket + 1000, peer_pb2.AllocateProducerIdsResponse)
        given.extend(range(response.first_producer_id, response.first_producer_id + response.count))
    assert len(given) == 3000
    assert len(set(given)) == 3000


def test_producer_ids_are_told_when_their_block_is_committed(cluster: ControllerCluster) -> None:
    """A broker that hands them out earlier, and the controller after this one, would give one id to two producers."""
    request = peer_pb2.AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    cluster.controller.allocate_producer_ids("block", request)
    assert cluster.controller.take_effects() == []
    cluster.controller.committed(len(cluster.records) - 1)
    assert cluster.controller.take_effects() == []
    told = cluster.answer("block", peer_pb2.AllocateProducerIdsResponse)
    assert (told.first_producer_id, told.count) == (0, 1000)


def test_a_block_of_producer_ids_that_was_not_committed_is_given_by_the_next_controller(
    cluster: ControllerCluster,
) -> None:
    lost = peer_pb2.AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    cluster.controller.allocate_producer_ids("lost", lost)
    cluster.fail_over()
    refused = cluster.answers.pop("lost")
    assert isinstance(refused, peer_pb2.AllocateProducerIdsResponse)
    assert isinstance(error_of(refused), NotController)
    assert (refused.first_producer_id, refused.count) == (0, 0)
    again = peer_pb2.AllocateProducerIdsRequest(broker_id=3, broker_epoch=cluster.epoch(3))
    cluster.controller.allocate_producer_ids("again", again)
    assert cluster.answer("again", peer_pb2.AllocateProducerIdsResponse).first_producer_id == 0


def allocated(cluster: ControllerCluster) -> tuple[peer_pb2.AllocateProducerIdsResponse, records_pb2.MetadataRecord]:
    """A block for broker 2, and its record."""
    request = peer_pb2.AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    ticket = cluster.ticket()
    cluster.controller.allocate_producer_ids(ticket, request)
    return cluster.answer(ticket, peer_pb2.AllocateProducerIdsResponse), cluster.records[-1]


def test_a_broker_is_told_which_end_of_the_log_has_its_block(cluster: ControllerCluster) -> None:
    told, _ = allocated(cluster)
    assert told.committed_end_offset == len(cluster.records) == cluster.image.end_offset


@proves("PR.8")
def test_the_first_block_of_level_4_brings_the_key_of_proofs_and_no_later_one(cluster: ControllerCluster) -> None:
    """Another key would end all producers that live; ids of before it have no proof."""
    assert not allocated(cluster)[1].producer_id_block.proof_key
    cluster.upgrade(PROVEN_PRODUCERS_LEVEL)
    told, record = allocated(cluster)
    key = cluster.image.producer_key
    assert key is not None
    assert (len(key.key), key.first_id) == (KEY_BYTES, told.first_producer_id)
    assert record.producer_id_block.proof_key == key.key
    assert not allocated(cluster)[1].producer_id_block.proof_key
    cluster.fail_over()
    assert not allocated(cluster)[1].producer_id_block.proof_key
    assert cluster.image.producer_key == key


@proves("PR.8")
def test_a_key_that_was_not_committed_is_none(cluster: ControllerCluster) -> None:
    cluster.upgrade(PROVEN_PRODUCERS_LEVEL)
    request = peer_pb2.AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    cluster.controller.allocate_producer_ids("lost", request)
    cluster.fail_over()
    assert cluster.image.producer_key is None
    told, record = allocated(cluster)
    assert record.producer_id_block.first_proven_id == told.first_producer_id == 0


def test_a_former_life_gets_no_producer_ids(cluster: ControllerCluster) -> None:
    request = peer_pb2.AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.epoch(2) - 1)
    cluster.controller.allocate_producer_ids("t", request)
    cluster.commit()
    response = cluster.answers["t"]
    assert isinstance(response, peer_pb2.AllocateProducerIdsResponse)
    assert isinstance(error_of(response), StaleBrokerEpoch)


@proves("MD.47")
def test_a_new_controller_probes_every_unfenced_broker_but_its_own(cluster: ControllerCluster) -> None:
    cluster.start(4)
    cluster.fence(3)
    cluster.effects.clear()
    cluster.fail_over()
    probes = [effect for effect in cluster.effects if isinstance(effect, ProbeBroker)]
    assert [(probe.broker_id, probe.broker_epoch) for probe in probes] == [(2, cluster.epoch(2)), (4, cluster.epoch(4))]
    assert {(probe.host, probe.port) for probe in probes} == {("host2", 9092), ("host4", 9092)}


@proves("MD.47")
def test_a_broker_that_died_with_the_former_controller_is_fenced_at_once(cluster: ControllerCluster) -> None:
    cluster.created()
    cluster.fail_over()
    cluster.controller.broker_refused_connection(2, cluster.epoch(2), cluster.now_ms)
    cluster.commit()
    assert cluster.image.brokers[2].fenced
    assert not cluster.image.brokers[3].fenced


def test_a_broker_that_was_heard_by_the_new_controller_outlives_its_probe(cluster: ControllerCluster) -> None:
    cluster.fail_over()
    cluster.heartbeat(2)
    cluster.controller.broker_refused_connection(2, cluster.epoch(2), cluster.now_ms)
    cluster.commit()
    assert not cluster.image.brokers[2].fenced


@proves("MD.47")
def test_a_new_controller_gives_those_that_do_not_refuse_a_full_period(cluster: ControllerCluster) -> None:
    cluster.advance(SESSION_TIMEOUT_MS * 0.9)
    cluster.fail_over()
    cluster.advance(SESSION_TIMEOUT_MS * 0.9)
    assert not any(broker.fenced for broker in cluster.image.brokers.values())
    cluster.advance(SESSION_TIMEOUT_MS * 0.3)
    assert all(broker.fenced for broker in cluster.image.brokers.values())


@proves("MD.48")
def test_deposed_in_between_it_drops_the_decision_and_all_that_wait(cluster: ControllerCluster) -> None:
    create(cluster, "waiting", "a")
    cluster.appends_left = 0
    create(cluster, "late", "b")
    assert not cluster.controller.is_active
    answers = {
        effect.ticket: effect.message
        for effect in cluster.controller.take_effects()
        if isinstance(effect, ControllerAnswer)
    }
    assert answers.keys() == {"waiting", "late"}
    for answer in answers.values():
        assert isinstance(answer, admin_pb2.CreateTopicsResponse)
        assert isinstance(error_of(answer.results[0]), NotController)
    cluster.fail_over()
    assert cluster.image.topics == {}


@proves("MD.48")
def test_deposed_in_between_no_topic_of_the_request_is_promised(cluster: ControllerCluster) -> None:
    cluster.appends_left = 1
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name) for name in ("a", "b", "c")])
    cluster.controller.create_topics("all", request)
    (answer,) = cluster.controller.take_effects()
    assert isinstance(answer, ControllerAnswer)
    assert isinstance(answer.message, admin_pb2.CreateTopicsResponse)
    assert [type(error_of(result)) for result in answer.message.results] == [NotController] * 3
    assert {result.topic_id for result in answer.message.results} == {b""}


@proves("MD.48")
def test_deposed_in_between_lives_of_brokers_are_answered_too(cluster: ControllerCluster) -> None:
    cluster.created()
    for ask in (lambda: cluster.heartbeat(2, wants_stop=True), lambda: cluster.register(4)):
        cluster.appends_left = 0
        assert isinstance(error_of(ask()), NotController)
        assert not cluster.controller.is_active
        cluster.fail_over()
    assert not cluster.image.brokers[2].stopping
    assert 4 not in cluster.image.brokers


def test_deposed_in_between_silence_fences_nobody_and_tells_nothing(cluster: ControllerCluster) -> None:
    cluster.created()
    cluster.effects.clear()
    cluster.appends_left = 0
    cluster.advance(SESSION_TIMEOUT_MS * 1.2)
    assert not cluster.controller.is_active
    assert cluster.effects == []
    cluster.fail_over()
    assert not any(broker.fenced for broker in cluster.image.brokers.values())


def test_a_voter_with_an_emptied_disk_may_register_and_its_replicas_count_as_gone(cluster: ControllerCluster) -> None:
    shared, alone = cluster.created("shared"), cluster.created("alone", replication_factor=1)
    while cluster.state(alone).replicas != (1,):
        alone = cluster.created(f"alone{len(cluster.image.topics)}", replication_factor=1)
    cluster.fence(1)
    cluster.advance(SESSION_TIMEOUT_MS * 1.1)
    cluster.start(1, disk=7)
    assert cluster.image.voters[0].directory_id != cluster.image.brokers[1].directory_id
    assert 1 in cluster.state(shared).damaged_replicas
    assert cluster.state(alone).leader_id == NO_LEADER
