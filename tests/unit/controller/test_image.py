"""The image: what a prefix of the log says, what changed, and that a copy is its own."""

from __future__ import annotations

import random

from minilog.v1 import records_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.controller.record_kinds import apply_decision, apply_record
from minilog_broker.controller.topic_records import record_of, state_of
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster


def history() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    cluster.created("a", partitions=3, retention_ms="5")
    cluster.created("b")
    cluster.fence(2)
    cluster.delete("b")
    return cluster


@proves("MD.6")
def test_the_image_is_the_replay_of_the_log_however_it_is_cut() -> None:
    cluster = history()
    rng = random.Random(1)
    for _ in range(10):
        image = MetadataImage()
        offset = 0
        while offset < len(cluster.records):
            end = min(len(cluster.records), offset + rng.randrange(1, 6))
            apply_decision(image, offset, end, cluster.records[offset:end])
            offset = end
        assert image == cluster.image
        assert image.end_offset == len(cluster.records)


def test_changes_name_what_changed_and_are_handed_over_once() -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    cluster.image.take_changes()
    key = cluster.created("a", partitions=2, retention_ms="5")
    changes = cluster.image.take_changes()
    assert changes.partitions == {key, (key.topic_id, 1)}
    assert (changes.topics, changes.configs) == ({key.topic_id}, {key.topic_id})
    assert changes.brokers == set()
    cluster.fence(3)
    assert cluster.image.take_changes().brokers == {3}
    assert cluster.image.take_changes().partitions == set()


def test_a_deleted_topics_partitions_are_removed_not_changed() -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    cluster.image.take_changes()
    key = cluster.created("a")
    cluster.delete("a")
    changes = cluster.image.take_changes()
    assert changes.removed == {key}
    assert changes.partitions == set()


def test_a_copy_does_not_change_with_its_original() -> None:
    cluster = history()
    twin = cluster.image.copy()
    assert twin == cluster.image
    cluster.created("c", replication_factor=2)
    cluster.fence(3)
    assert twin != cluster.image
    assert "c" not in twin.topic_ids


def test_a_setting_of_the_copy_is_none_of_the_originals() -> None:
    """The controller writes into its copy what is not committed yet: its broker goes by the original."""
    cluster = history()
    topic_id, twin = cluster.image.topic_ids["a"], cluster.image.copy()
    config = records_pb2.TopicConfigRecord(topic_id=topic_id, name="retention.ms", value="7")
    apply_record(twin, twin.end_offset, records_pb2.MetadataRecord(topic_config=config))
    assert twin.topic_config(topic_id) == {"retention.ms": "7"}
    assert cluster.image.topic_config(topic_id) == {"retention.ms": "5"}


def test_a_state_and_its_record_are_the_same_thing() -> None:
    for state in history().image.partitions.values():
        assert state_of(record_of(state).partition, state.topic_name) == state


def test_a_broker_state_of_a_former_life_changes_nothing() -> None:
    cluster = history()
    state = records_pb2.BrokerStateRecord(broker_id=1, broker_epoch=cluster.epoch(1) - 1, fenced=True)
    apply_record(cluster.image, cluster.image.end_offset, records_pb2.MetadataRecord(broker_state=state))
    assert not cluster.image.brokers[1].fenced
