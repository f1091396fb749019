"""The image: what a prefix of the log says, what changed, and that a copy is its own."""

from __future__ import annotations

import random

from minilog.v1 import records_pb2
from minilog_broker.controller.image import MetadataImage, record_of, state_of
from tests.unit.controller.world import World


def history() -> World:
    world = World()
    world.start_all(3)
    world.created("a", partitions=3, retention_ms="5")
    world.created("b")
    world.fence(2)
    world.delete("b")
    return world


def test_the_image_is_the_replay_of_the_log_however_it_is_cut() -> None:
    world = history()
    rng = random.Random(1)
    for _ in range(10):
        image = MetadataImage()
        offset = 0
        while offset < len(world.records):
            end = min(len(world.records), offset + rng.randrange(1, 6))
            image.apply_batch(offset, end, world.records[offset:end])
            offset = end
        assert image == world.image
        assert image.end_offset == len(world.records)


def test_changes_name_what_changed_and_are_handed_over_once() -> None:
    world = World()
    world.start_all(3)
    world.image.take_changes()
    key = world.created("a", partitions=2, retention_ms="5")
    changes = world.image.take_changes()
    assert changes.partitions == {key, (key.topic_id, 1)}
    assert (changes.topics, changes.configs) == ({key.topic_id}, {key.topic_id})
    assert changes.brokers == set()
    world.fence(3)
    assert world.image.take_changes().brokers == {3}
    assert world.image.take_changes().partitions == set()


def test_a_deleted_topics_partitions_are_removed_not_changed() -> None:
    world = World()
    world.start_all(3)
    world.image.take_changes()
    key = world.created("a")
    world.delete("a")
    changes = world.image.take_changes()
    assert changes.removed == {key}
    assert changes.partitions == set()


def test_a_copy_does_not_change_with_its_original() -> None:
    world = history()
    twin = world.image.copy()
    assert twin == world.image
    world.created("c", replication_factor=2)
    world.fence(3)
    assert twin != world.image
    assert "c" not in twin.topic_ids


def test_a_state_and_its_record_are_the_same_thing() -> None:
    for state in history().image.partitions.values():
        assert state_of(record_of(state).partition, state.topic_name) == state


def test_a_broker_state_of_a_former_life_changes_nothing() -> None:
    world = history()
    state = records_pb2.BrokerStateRecord(broker_id=1, broker_epoch=world.epoch(1) - 1, fenced=True)
    world.image.apply(world.image.end_offset, records_pb2.MetadataRecord(broker_state=state))
    assert not world.image.brokers[1].fenced
