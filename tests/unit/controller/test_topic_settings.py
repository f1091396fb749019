"""What a topic has is one value for all, in metadata; a broker's configuration only says what topics are made with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from minilog.v1 import records_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_record, records_of
from minilog_broker.controller.topic_config import BUILT_IN
from minilog_broker.replication.partition_state import NO_LEADER
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.shells.controller_shell import default_topic_config
from tests.rules import proves
from tests.unit.controller.cluster import DEFAULTS, ControllerCluster, error_of

pytestmark = proves("MD.56", "MD.57")

OTHERWISE = replace(
    DEFAULTS,
    min_in_sync_replicas=1,
    max_message_bytes=4096,
    segment_bytes=1 << 20,
    segment_ms=60_000,
    flush_on_append=False,
    retention_ms=-1,
    retention_bytes=1 << 30,
    unclean_leader_election=True,
)


@pytest.fixture
def cluster() -> Iterator[ControllerCluster]:
    cluster = ControllerCluster()
    cluster.start_all()
    yield cluster
    cluster.check()


# -- one value for all


def test_a_topic_has_what_it_was_made_with_whoever_is_the_controller_later(cluster: ControllerCluster) -> None:
    key = cluster.created("before")
    cluster.fail_over(defaults=OTHERWISE)
    assert cluster.image.effective_config(key.topic_id) == DEFAULTS
    other = cluster.created("after")
    assert cluster.image.effective_config(other.topic_id) == OTHERWISE
    cluster.fail_over(defaults=DEFAULTS)
    assert cluster.image.effective_config(other.topic_id) == OTHERWISE


def test_eligibility_does_not_rest_on_the_controllers_own_configuration(cluster: ControllerCluster) -> None:
    """Half of a rolling change: the leader would commit alone, and the controller would keep the other eligible."""
    cluster.fail_over(defaults=OTHERWISE)
    key = cluster.created("t", replication_factor=2)
    cluster.fail_over(defaults=DEFAULTS)
    leader = cluster.state(key).leader_id
    cluster.propose(key, [leader])
    assert cluster.image.effective_config(key.topic_id).min_in_sync_replicas == 1, "the leader may commit alone"
    assert cluster.state(key).eligible_leaders == ()


def test_unset_a_topic_has_again_what_it_was_made_with(cluster: ControllerCluster) -> None:
    cluster.fail_over(defaults=OTHERWISE)
    key = cluster.created("t", min_insync_replicas="2")
    cluster.fail_over(defaults=DEFAULTS)
    assert cluster.image.effective_config(key.topic_id).min_in_sync_replicas == 2
    assert error_of(cluster.alter("t", unset=["min.insync.replicas"])) is None
    assert cluster.image.effective_config(key.topic_id) == OTHERWISE


def test_a_topic_whose_record_names_no_defaults_has_what_is_built_in_on_every_broker() -> None:
    image = MetadataImage()
    record = records_pb2.TopicRecord(name="old", topic_id=b"o" * 16)
    apply_record(image, 0, records_pb2.MetadataRecord(topic=record))
    assert image.effective_config(b"o" * 16) == BUILT_IN


def test_built_in_settings_count_for_brokers_without_their_own() -> None:
    assert default_topic_config(BrokerConfig()) == BUILT_IN


def test_a_snapshot_keeps_what_a_topic_was_made_with(cluster: ControllerCluster) -> None:
    cluster.fail_over(defaults=OTHERWISE)
    key = cluster.created("t", segment_ms="5")
    copy = MetadataImage()
    for offset, record in enumerate(records_of(cluster.image)):
        apply_record(copy, offset, record)
    assert copy == cluster.image
    image = MetadataImage()
    image.become(copy)
    assert image.effective_config(key.topic_id) == replace(OTHERWISE, segment_ms=5)


def test_people_are_shown_min_insync_replicas_what_was_set_and_what_is_not_built_in(cluster: ControllerCluster) -> None:
    plain, said = cluster.created("plain"), cluster.created("said", min_insync_replicas="1", retention_ms="7")
    cluster.fail_over(defaults=replace(DEFAULTS, min_in_sync_replicas=1, flush_on_append=False))
    weak = cluster.created("weak")
    assert cluster.image.shown_config(plain.topic_id) == {"min.insync.replicas": "2"}
    assert cluster.image.shown_config(said.topic_id) == {"min.insync.replicas": "1", "retention.ms": "7"}
    assert cluster.image.shown_config(weak.topic_id) == {"min.insync.replicas": "1", "flush.policy": "os"}


# -- changed while running


def test_min_is_changed_in_one_batch_with_the_states_that_follow_from_it(cluster: ControllerCluster) -> None:
    cluster.created("t")
    cluster.fence(3)
    cluster.fence(2)
    before = len(cluster.batches)
    cluster.alter("t", min_insync_replicas="1")
    assert len(cluster.batches) == before + 1


def test_raised_above_the_isr_nobody_who_left_before_is_eligible(cluster: ControllerCluster) -> None:
    key = cluster.created("t", min_insync_replicas="1")
    cluster.fence(3)
    cluster.fence(2)
    cluster.alter("t", min_insync_replicas="3")
    state = cluster.state(key)
    assert (state.leader_id, state.in_sync_replicas, state.eligible_leaders) == (1, (1,), ())
    for broker_id in (2, 3):
        cluster.start(broker_id)
        cluster.propose(key, {*cluster.state(key).in_sync_replicas, broker_id})
    assert set(cluster.state(key).in_sync_replicas) == {1, 2, 3}, "and it is not refused for ever"


@pytest.mark.parametrize(("before", "after", "eligible"), [("2", "1", 0), ("1", "2", 1)])
def test_a_proposal_made_under_the_former_value_is_judged_by_the_present_one(
    cluster: ControllerCluster, before: str, after: str, eligible: int
) -> None:
    key = cluster.created("t", replication_factor=2, min_insync_replicas=before)
    replicas, made_from = cluster.state(key).replicas, cluster.state(key).partition_epoch
    cluster.alter("t", min_insync_replicas=after)
    answer = cluster.propose(key, replicas[:1], partition_epoch=made_from)
    assert answer.error.code == 0
    assert len(cluster.state(key).eligible_leaders) == eligible


def test_lowered_where_nobody_leads_the_eligible_may_still_lead(cluster: ControllerCluster) -> None:
    """2 has all that 1 could commit alone, for nobody led when min was lowered: nothing is to be waited for."""
    key = cluster.created("t", replication_factor=2)
    (first, second) = cluster.state(key).replicas
    cluster.fence(second)
    cluster.fence(first)
    assert (cluster.state(key).in_sync_replicas, cluster.state(key).eligible_leaders) == ((first,), (second,))
    cluster.alter("t", min_insync_replicas="1")
    assert cluster.state(key).leader_id == NO_LEADER
    cluster.heartbeat(second)
    state = cluster.state(key)
    assert (state.leader_id, state.in_sync_replicas, state.eligible_leaders) == (second, (second,), ())


def test_lowered_where_nobody_leads_they_are_eligible_until_the_isr_leads(cluster: ControllerCluster) -> None:
    key = cluster.created("t", replication_factor=2)
    (first, second) = cluster.state(key).replicas
    cluster.fence(second)
    cluster.fence(first)
    cluster.alter("t", min_insync_replicas="1")
    cluster.heartbeat(first)
    assert (cluster.state(key).leader_id, cluster.state(key).eligible_leaders) == (first, ())
