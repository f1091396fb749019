"""What a topic has is one value for all, in metadata; a broker's configuration only says what topics are made with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from minilog.v1 import records_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.snapshot import image_records
from minilog_broker.controller.topic_config import BUILT_IN
from minilog_broker.replication.state import NO_LEADER
from minilog_broker.server.config import BrokerConfig
from minilog_broker.server.controller_shell import default_topic_config
from tests.unit.controller.world import DEFAULTS, World, error_of

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
def world() -> Iterator[World]:
    world = World()
    world.start_all()
    yield world
    world.check()


# -- one value for all


def test_a_topic_has_what_it_was_made_with_whoever_is_the_controller_later(world: World) -> None:
    key = world.created("before")
    world.fail_over(defaults=OTHERWISE)
    assert world.image.effective_config(key.topic_id) == DEFAULTS
    other = world.created("after")
    assert world.image.effective_config(other.topic_id) == OTHERWISE
    world.fail_over(defaults=DEFAULTS)
    assert world.image.effective_config(other.topic_id) == OTHERWISE


def test_who_is_eligible_does_not_rest_on_the_controllers_own_configuration(world: World) -> None:
    """Half of a rolling change: the leader would commit alone, and the controller would keep the other eligible."""
    world.fail_over(defaults=OTHERWISE)
    key = world.created("t", replication_factor=2)
    world.fail_over(defaults=DEFAULTS)
    leader = world.state(key).leader_id
    world.propose(key, [leader])
    assert world.image.effective_config(key.topic_id).min_in_sync_replicas == 1, "the leader may commit alone"
    assert world.state(key).eligible_leaders == ()


def test_unset_a_topic_has_again_what_it_was_made_with(world: World) -> None:
    world.fail_over(defaults=OTHERWISE)
    key = world.created("t", min_insync_replicas="2")
    world.fail_over(defaults=DEFAULTS)
    assert world.image.effective_config(key.topic_id).min_in_sync_replicas == 2
    assert error_of(world.alter("t", unset=["min.insync.replicas"])) is None
    assert world.image.effective_config(key.topic_id) == OTHERWISE


def test_a_topic_whose_record_names_no_defaults_has_what_is_built_in_on_every_broker() -> None:
    image = MetadataImage()
    record = records_pb2.TopicRecord(name="old", topic_id=b"o" * 16)
    image.apply(0, records_pb2.MetadataRecord(topic=record))
    assert image.effective_config(b"o" * 16) == BUILT_IN


def test_what_is_built_in_is_what_brokers_are_configured_with_unless_they_are_told() -> None:
    assert default_topic_config(BrokerConfig()) == BUILT_IN


def test_a_snapshot_keeps_what_a_topic_was_made_with(world: World) -> None:
    world.fail_over(defaults=OTHERWISE)
    key = world.created("t", segment_ms="5")
    copy = MetadataImage()
    for offset, record in enumerate(image_records(world.image)):
        copy.apply(offset, record)
    assert copy == world.image
    image = MetadataImage()
    image.become(copy)
    assert image.effective_config(key.topic_id) == replace(OTHERWISE, segment_ms=5)


def test_people_are_shown_min_insync_replicas_what_was_set_and_what_is_not_built_in(world: World) -> None:
    plain, said = world.created("plain"), world.created("said", min_insync_replicas="1", retention_ms="7")
    world.fail_over(defaults=replace(DEFAULTS, min_in_sync_replicas=1, flush_on_append=False))
    weak = world.created("weak")
    assert world.image.shown_config(plain.topic_id) == {"min.insync.replicas": "2"}
    assert world.image.shown_config(said.topic_id) == {"min.insync.replicas": "1", "retention.ms": "7"}
    assert world.image.shown_config(weak.topic_id) == {"min.insync.replicas": "1", "flush.policy": "os"}


# -- changed while running


def test_min_is_changed_in_one_batch_with_the_states_that_follow_from_it(world: World) -> None:
    world.created("t")
    world.fence(3)
    world.fence(2)
    before = len(world.batches)
    world.alter("t", min_insync_replicas="1")
    assert len(world.batches) == before + 1


def test_raised_above_the_isr_nobody_who_left_before_is_eligible(world: World) -> None:
    key = world.created("t", min_insync_replicas="1")
    world.fence(3)
    world.fence(2)
    world.alter("t", min_insync_replicas="3")
    state = world.state(key)
    assert (state.leader_id, state.in_sync_replicas, state.eligible_leaders) == (1, (1,), ())
    for broker_id in (2, 3):
        world.start(broker_id)
        world.propose(key, {*world.state(key).in_sync_replicas, broker_id})
    assert set(world.state(key).in_sync_replicas) == {1, 2, 3}, "and it is not refused for ever"


@pytest.mark.parametrize(("before", "after", "eligible"), [("2", "1", 0), ("1", "2", 1)])
def test_a_proposal_made_under_the_former_value_is_judged_by_the_present_one(
    world: World, before: str, after: str, eligible: int
) -> None:
    key = world.created("t", replication_factor=2, min_insync_replicas=before)
    replicas, made_from = world.state(key).replicas, world.state(key).partition_epoch
    world.alter("t", min_insync_replicas=after)
    answer = world.propose(key, replicas[:1], partition_epoch=made_from)
    assert answer.error.code == 0
    assert len(world.state(key).eligible_leaders) == eligible


def test_lowered_where_nobody_leads_the_eligible_may_still_lead(world: World) -> None:
    """2 has all that 1 could commit alone, for nobody led when min was lowered: nothing is to be waited for."""
    key = world.created("t", replication_factor=2)
    (first, second) = world.state(key).replicas
    world.fence(second)
    world.fence(first)
    assert (world.state(key).in_sync_replicas, world.state(key).eligible_leaders) == ((first,), (second,))
    world.alter("t", min_insync_replicas="1")
    assert world.state(key).leader_id == NO_LEADER
    world.heartbeat(second)
    state = world.state(key)
    assert (state.leader_id, state.in_sync_replicas, state.eligible_leaders) == (second, (second,), ())


def test_lowered_where_nobody_leads_they_are_eligible_until_the_isr_leads(world: World) -> None:
    key = world.created("t", replication_factor=2)
    (first, second) = world.state(key).replicas
    world.fence(second)
    world.fence(first)
    world.alter("t", min_insync_replicas="1")
    world.heartbeat(first)
    assert (world.state(key).leader_id, world.state(key).eligible_leaders) == (first, ())
