"""Consumers read from a follower (KIP-392) what is committed, and are sent to the leader where it cannot tell."""

from __future__ import annotations

import pytest

from minilog.record_batch.header import iterate_headers
from minilog.v1 import common_pb2, data_pb2, metadata_pb2
from tests.rules import proves
from tests.unit.replication.cluster import KEY, ReplicaCluster, batch

NOT_HERE = common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


def offsets(cluster: ReplicaCluster, broker_id: int, session_id: int) -> list[int]:
    """The base offsets of the batches that a consumer was sent."""
    return [
        header.base_offset
        for _, batches in cluster.pushed(broker_id, session_id)
        for _, header in iterate_headers(batches)
    ]


def last_run(cluster: ReplicaCluster, broker_id: int, session_id: int) -> data_pb2.PartitionRun:
    return cluster.runs(broker_id, session_id)[-1]


def later(cluster: ReplicaCluster, ms: float) -> None:
    """All that can happen does, time passes, and all that can happen does."""
    cluster.settle()
    cluster.advance(ms)
    cluster.settle()


def produced(count: int, *, brokers: int = 3) -> ReplicaCluster:
    cluster = ReplicaCluster(brokers)
    for _ in range(count):
        cluster.produce(1)
        later(cluster, 10)
    return cluster


def test_a_consumer_reads_from_a_follower_what_is_committed_and_then_what_comes() -> None:
    cluster = produced(3)
    session_id = cluster.consume(2, 0, leader_epoch=0)
    cluster.settle()
    assert offsets(cluster, 2, session_id) == [0, 1, 2]
    cluster.produce(1)
    later(cluster, 20)
    assert offsets(cluster, 2, session_id) == [0, 1, 2, 3]
    assert last_run(cluster, 2, session_id).high_watermark == 4


@proves("HW.8")
def test_nothing_above_the_followers_high_watermark_is_shown() -> None:
    cluster = produced(1)
    cluster.cut.add((3, 1))
    cluster.break_link(cluster[3].links[1])  # 3 is in the ISR and hears nothing: nothing more is committed
    session_id = cluster.consume(2, 0, leader_epoch=0)
    cluster.produce(1, acks=1)
    later(cluster, 50)
    assert cluster[2].ends() == (1, 2, 2)
    assert offsets(cluster, 2, session_id) == [0]
    cluster.cut.clear()
    later(cluster, 1_000)
    assert offsets(cluster, 2, session_id) == [0, 1]


@proves("HW.8")
def test_an_offset_above_the_high_watermark_waits_and_is_never_out_of_range() -> None:
    cluster = produced(1)
    session_id = cluster.consume(2, 3, leader_epoch=0, last_fetched_epoch=0)
    cluster.settle()
    assert not last_run(cluster, 2, session_id).error.code
    assert not last_run(cluster, 2, session_id).HasField("diverging_epoch")
    for _ in range(4):
        cluster.produce(1)
        later(cluster, 10)
    assert offsets(cluster, 2, session_id) == [3, 4]


@proves("HW.8")
def test_below_the_followers_log_start_is_the_leaders_matter() -> None:
    cluster = produced(3)
    cluster[2].logs[KEY].advance_log_start(2)
    cluster[2].manager.log_start_moved(KEY, cluster.now_ms)
    session_id = cluster.consume(2, 1, leader_epoch=0)
    cluster.settle()
    assert last_run(cluster, 2, session_id).error.code == NOT_HERE


@proves("HW.8")
def test_behind_a_record_of_another_epoch_is_the_leaders_matter() -> None:
    cluster = produced(2)
    cluster.controller.move(KEY, 2)
    later(cluster, 100)
    cluster.produce(2)
    later(cluster, 100)
    session_id = cluster.consume(3, 2, leader_epoch=1, last_fetched_epoch=1)
    cluster.settle()
    assert last_run(cluster, 3, session_id).error.code == NOT_HERE
    good = cluster.consume(3, 2, leader_epoch=1, last_fetched_epoch=0)
    cluster.settle()
    assert offsets(cluster, 3, good) == [2]


@proves("HW.8")
@pytest.mark.parametrize(("epoch", "code"), [(0, "FENCED_LEADER_EPOCH"), (2, "UNKNOWN_LEADER_EPOCH")])
def test_leader_epochs_are_checked_on_a_follower_too(epoch: int, code: str) -> None:
    cluster = produced(1)
    cluster.controller.move(KEY, 2)
    later(cluster, 100)
    session_id = cluster.consume(3, 0, leader_epoch=epoch)
    cluster.settle()
    assert last_run(cluster, 3, session_id).error.code == common_pb2.ErrorCode.Value(f"ERROR_CODE_{code}")
    assert offsets(cluster, 3, session_id) == []


def test_a_follower_whose_image_is_behind_waits_for_the_epoch_and_then_sends() -> None:
    cluster = produced(1)
    cluster.controller.move(KEY, 2)
    cluster[3].alive = False
    cluster.settle()
    cluster[3].alive = True
    session_id = cluster.consume(3, 0, leader_epoch=1)
    while session_id in cluster[3].consumers_ready:
        cluster.pull_consumer(cluster[3], session_id)
    assert last_run(cluster, 3, session_id).error.code == common_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH
    later(cluster, 1_000)
    assert offsets(cluster, 3, session_id) == [0]


@proves("HW.9")
def test_a_follower_that_loses_its_leader_sends_consumers_away() -> None:
    cluster = produced(1)
    session_id = cluster.consume(2, 0, leader_epoch=0)
    cluster.settle()
    cluster[1].crash()
    later(cluster, 10)
    assert last_run(cluster, 2, session_id).error.code == NOT_HERE
    late = cluster.consume(2, 0, leader_epoch=0)
    cluster.settle()
    assert cluster.runs(2, late) == [], "it waits: whether there is anything to read here, nobody knows yet"


@proves("HW.9")
def test_a_follower_that_hears_nothing_of_its_leader_sends_consumers_away() -> None:
    cluster = produced(1)
    session_id = cluster.consume(2, 0, leader_epoch=0)
    cluster.settle()
    cluster[1].alive = False  # it hangs
    later(cluster, 700)
    assert last_run(cluster, 2, session_id).error.code == NOT_HERE


@proves("HW.9")
def test_a_follower_that_leaves_the_isr_sends_consumers_away_and_takes_none() -> None:
    cluster = produced(1)
    session_id = cluster.consume(3, 0, leader_epoch=0)
    cluster.settle()
    cluster.controller.fence(3)
    later(cluster, 5)
    assert last_run(cluster, 3, session_id).error.code == NOT_HERE
    again = cluster.consume(3, 0, leader_epoch=0)
    cluster.settle()
    assert last_run(cluster, 3, again).error.code == NOT_HERE
    assert offsets(cluster, 3, again) == []


def test_a_leader_that_becomes_a_follower_fences_and_serves_the_new_epoch() -> None:
    cluster = produced(2)
    session_id = cluster.consume(1, 0, leader_epoch=0)
    cluster.settle()
    cluster.controller.move(KEY, 2)
    later(cluster, 100)
    assert last_run(cluster, 1, session_id).error.code == common_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
    cluster.produce(2)
    later(cluster, 20)
    cluster.fetch(1, session_id, 2, position_number=2, leader_epoch=1, last_fetched_epoch=0)
    cluster.settle()
    assert offsets(cluster, 1, session_id) == [0, 1, 2]


@proves("HW.9")
def test_a_follower_that_truncates_shows_nothing_of_what_it_cuts() -> None:
    cluster = ReplicaCluster(min_in_sync=1)
    cluster.produce(1)
    later(cluster, 50)
    cluster.cut = {(2, 1), (3, 1)}
    for link in list(cluster.links()):
        cluster.break_link(link)
    cluster.produce(1, acks=1)  # on the old leader's disk alone
    cluster.settle()
    cluster.controller.move(KEY, 2)
    cluster.settle()
    cluster.produce(2, batch(size_bytes=77))
    session_id = cluster.consume(1, 0, leader_epoch=1)
    later(cluster, 1_000)
    cluster.cut.clear()
    later(cluster, 1_000)
    pushed = cluster.pushed(1, session_id)
    found = [(h.base_offset, h.partition_leader_epoch) for _, run in pushed for _, h in iterate_headers(run)]
    assert found == [(0, 0), (1, 1)]


def test_a_deleted_topic_ends_the_reading_from_a_follower() -> None:
    cluster = produced(1)
    session_id = cluster.consume(2, 0, leader_epoch=0)
    cluster.settle()
    cluster.controller.delete(KEY)
    later(cluster, 50)
    assert last_run(cluster, 2, session_id).error.code == NOT_HERE


def test_a_follower_that_registers_anew_never_leaves_a_reader_waiting_in_silence() -> None:
    cluster = produced(1)
    session_id = cluster.consume(2, 0, leader_epoch=0)
    cluster.settle()
    cluster[2].manager.set_broker_epoch(999, cluster.now_ms)
    cluster[2].run()
    later(cluster, 5)
    assert last_run(cluster, 2, session_id).error.code == NOT_HERE


def test_offsets_are_told_by_the_leader_only() -> None:
    cluster = produced(1)
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    assert cluster[2].manager.list_offsets(entry, cluster.now_ms).error.code == NOT_HERE
