"""What a broker appends to the log of an internal topic by itself, and what its coordinator is told of that log."""

from __future__ import annotations

import errno

import pytest

from minilog.errors import InvalidTopic, MessageTooLarge, NoSpace, NotEnoughReplicas, NotLeaderOrFollower
from minilog_broker.replication.replica_effects import (
    BeganToLead,
    HighWatermarkMoved,
    LeadershipEffect,
    StoppedLeading,
)
from tests.rules import proves
from tests.unit.replication.cluster import KEY, ReplicaCluster, batch

pytestmark = proves("CO.3")

TOLD = (BeganToLead, HighWatermarkMoved, StoppedLeading)


@pytest.fixture
def cluster() -> ReplicaCluster:
    cluster = ReplicaCluster(leader_id=None)
    cluster.controller.create(KEY, (1, 2, 3), 1, "__groups")
    cluster.settle()
    return cluster


def told(cluster: ReplicaCluster, broker_id: int) -> list[LeadershipEffect]:
    """Since it was asked last."""
    broker = cluster[broker_id]
    found = [each for each in broker.history if isinstance(each, TOLD)]
    broker.history.clear()
    return found


def append(cluster: ReplicaCluster, base_offset: int, *, broker_id: int = 1, epoch: int = 0, rows: int = 1) -> int:
    manager = cluster[broker_id].manager
    manager.require_own_room(KEY, epoch, cluster.now_ms)
    end = manager.append_own(KEY, epoch, base_offset, batch(rows))
    cluster[broker_id].run()
    return end


def test_the_leader_of_an_internal_partition_is_told_that_it_leads_and_what_is_committed(
    cluster: ReplicaCluster,
) -> None:
    assert told(cluster, 1) == [BeganToLead(KEY, "__groups", 0, 0), HighWatermarkMoved(KEY, 0, 0)]
    assert told(cluster, 2) == []


def test_nothing_is_told_of_the_partitions_of_others_topics() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    assert told(cluster, 1) == []


def test_its_own_batch_has_its_place_at_once_and_is_committed_by_the_high_watermark(cluster: ReplicaCluster) -> None:
    told(cluster, 1)
    assert append(cluster, 0, rows=2) == 2
    assert append(cluster, 2) == 3
    cluster.settle()
    assert [each.partition_leader_epoch for each in cluster[3].headers()] == [0, 0]
    assert told(cluster, 1)[-1] == HighWatermarkMoved(KEY, 0, 3)


def test_nothing_is_told_to_be_committed_before_the_isr_has_it(cluster: ReplicaCluster) -> None:
    told(cluster, 1)
    append(cluster, 0)
    while cluster[1].disk:
        cluster[1].work()
    cluster[1].flush()
    assert told(cluster, 1) == []


@proves("CO.2")
def test_clients_write_nothing_to_an_internal_topic(cluster: ReplicaCluster) -> None:
    answer = cluster[1].answers[cluster.produce(1)]
    assert isinstance(answer.error, InvalidTopic)
    assert cluster[1].ends()[2] == 0


@proves("CO.5")
def test_a_new_leader_is_told_where_its_log_ended_and_the_former_that_it_is_over(cluster: ReplicaCluster) -> None:
    append(cluster, 0, rows=3)
    cluster.settle()
    told(cluster, 1)
    cluster.controller.move(KEY, 2)
    cluster.settle()
    assert told(cluster, 1) == [StoppedLeading(KEY)]
    epoch = cluster.controller.partitions[KEY].leader_epoch
    assert BeganToLead(KEY, "__groups", epoch, 3) in told(cluster, 2)
    with pytest.raises(NotLeaderOrFollower):
        append(cluster, 3, epoch=0)
    with pytest.raises(NotLeaderOrFollower):
        append(cluster, 3, broker_id=2, epoch=0)
    assert append(cluster, 3, broker_id=2, epoch=epoch) == 4


def test_a_batch_that_is_meant_for_another_place_is_not_appended(cluster: ReplicaCluster) -> None:
    append(cluster, 0)
    for base_offset in (0, 2):
        with pytest.raises(NotLeaderOrFollower):
            append(cluster, base_offset)
    assert append(cluster, 1) == 2


def test_below_min_nothing_is_written(cluster: ReplicaCluster) -> None:
    for broker_id in (2, 3):
        cluster.cut.add((broker_id, 1))
        cluster.break_link(cluster[broker_id].links[1])
        cluster.controller.fence(broker_id)
    cluster.settle()
    with pytest.raises(NotEnoughReplicas):
        append(cluster, 0)
    assert cluster[1].ends()[2] == 0


def test_a_decision_that_no_follower_could_be_sent_is_refused(cluster: ReplicaCluster) -> None:
    large = batch(2, size_bytes=5 << 20)
    with pytest.raises(MessageTooLarge):
        cluster[1].manager.append_own(KEY, 0, 0, large)


def test_appends_that_a_full_disk_dropped_are_told_by_leading_anew_from_where_the_log_ends(
    cluster: ReplicaCluster,
) -> None:
    append(cluster, 0)
    cluster.settle()
    told(cluster, 1)
    cluster[1].files.fill("/")
    append(cluster, 1)
    append(cluster, 2)
    cluster.settle()
    assert told(cluster, 1) == [BeganToLead(KEY, "__groups", 0, 1), HighWatermarkMoved(KEY, 0, 1)]
    with pytest.raises(NoSpace):
        append(cluster, 1)
    cluster[1].files.fill()
    cluster.advance(cluster.settings.no_space_pause_ms + 1)
    assert append(cluster, 1) == 2


def test_a_broken_disk_ends_the_term(cluster: ReplicaCluster) -> None:
    told(cluster, 1)
    append(cluster, 0)
    cluster[1].files.fail("fdatasync", errno.EIO)
    cluster.settle()
    assert StoppedLeading(KEY) in told(cluster, 1)
