"""min.insync.replicas and flush.policy change while records are written: from which moment on which value counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog_broker.replication.leader.partition import LeaderPartition
from tests.rules import proves
from tests.unit.replication.cluster import KEY, ReplicaCluster


def alone(cluster: ReplicaCluster) -> None:
    """The ISR is the leader, 1, alone, with a record of its own; the others are fenced, and eligible below min."""
    for broker_id in (2, 3):
        cluster.controller.fence(broker_id)
    cluster.settle()
    cluster.produce(1, acks=1)
    while cluster[1].disk or cluster[1].dirty:
        cluster[1].work() if cluster[1].disk else cluster[1].flush()


def high_watermark(cluster: ReplicaCluster, broker_id: int) -> int:
    return cluster[broker_id].ends()[0]


@proves("ISR.11")
def test_a_deposed_leader_that_sees_both_at_once_does_not_commit_alone_under_the_lower_value() -> None:
    """It was deposed, an eligible one leads, and then min was lowered: its ISR is older than the value."""
    cluster = ReplicaCluster()
    alone(cluster)
    cluster.controller.move(KEY, 2)
    cluster.controller.alter(replace(cluster.config, min_in_sync_replicas=1))
    cluster.replay_slice(cluster[1], 2)
    assert high_watermark(cluster, 1) == 0
    assert cluster[1].leader() is None


# -- flush.policy


def under(cluster: ReplicaCluster, *, flush_on_append: bool) -> None:
    cluster.controller.alter(replace(cluster.config, flush_on_append=flush_on_append))


@proves("ISR.12")
def test_under_fsync_a_follower_that_does_not_know_it_yet_is_not_counted() -> None:
    cluster = ReplicaCluster(flush_on_append=False)
    under(cluster, flush_on_append=True)
    for broker_id in (1, 3):
        cluster.replay(cluster[broker_id])
        cluster[broker_id].work()
    ticket = cluster.produce(1)
    slow = cluster[2]
    replayed, slow.images_replayed = slow.images_replayed, len(cluster.controller.images)  # 2 hears nothing of it yet
    cluster.settle()
    assert slow.ends()[1:] == (1, 1), "under os it counts as durable there"
    assert high_watermark(cluster, 1) == 0
    assert ticket not in cluster[1].answers
    slow.images_replayed = replayed
    cluster.settle()
    assert cluster[1].answers[ticket].error is None


def durable_end(leader: LeaderPartition, follower_id: int) -> int | None:
    return leader.in_sync.views[follower_id].durable_end


@proves("ISR.12")
def test_under_fsync_what_was_told_before_counts_no_more() -> None:
    """3 holds the high watermark back; 2 had said 1 under os, and loses it with its power: nothing may rest on that."""
    cluster = ReplicaCluster(flush_on_append=False)
    cluster.cut.add((3, 1))
    for link in [link for link in cluster.links() if link.follower_id == 3]:
        cluster.break_link(link)
    cluster.produce(1)
    cluster.settle()
    leader = cluster[1].leader()
    assert leader is not None
    assert durable_end(leader, 2) == 1
    under(cluster, flush_on_append=True)
    cluster.replay(cluster[1])
    cluster[1].work()
    assert durable_end(leader, 2) is None
    cluster.settle()
    assert durable_end(leader, 2) == 1, "2 has synced it, and says so again"


@proves("ISR.12")
@pytest.mark.parametrize("first", [1, 2])
def test_to_os_and_back_writing_goes_on_whoever_hears_of_it_first(first: int) -> None:
    cluster = ReplicaCluster()
    for flush_on_append in (False, True, False):
        under(cluster, flush_on_append=flush_on_append)
        cluster.replay(cluster[first])
        ticket = cluster.produce(1)
        cluster.settle()
        assert cluster[1].answers[ticket].error is None
    assert high_watermark(cluster, 1) == 3


@proves("ISR.12")
def test_a_setting_dropped_by_a_full_disk_is_asked_of_it_again() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster[1].files.fill("/")
    under(cluster, flush_on_append=False)
    cluster.replay(cluster[1])
    cluster[1].work()  # the append fails, and the disk thread drops what was asked behind it
    cluster[1].disk.popleft()
    cluster[1].files.fill()
    cluster.settle()
    assert not cluster[1].logs[KEY].settings.flush_on_append
    leader = cluster[1].leader()
    assert leader is not None
    assert not leader.log.flush_on_append


def test_to_os_what_a_follower_told_that_heard_of_it_before_its_leader_counts_when_that_hears_of_it() -> None:
    """Seed 600691: nothing is written, so it says nothing more; it stayed out of the ISR for ever."""
    cluster = ReplicaCluster()
    cluster.controller.fence(3)
    cluster.cut.add((3, 1))
    for link in [link for link in cluster.links() if link.follower_id == 3]:
        cluster.break_link(link)
    cluster.settle()
    cluster.controller.change_life(3)  # not fenced any more: it is to join
    cluster.settle()
    under(cluster, flush_on_append=False)
    cluster.cut.clear()
    late, cluster[1].images_replayed = cluster[1].images_replayed, len(cluster.controller.images)
    cluster.advance(1_000)
    assert 3 not in cluster.controller.partitions[KEY].in_sync_replicas, "under fsync it does not count"
    cluster[1].images_replayed = late
    cluster.advance(1_000)
    assert 3 in cluster.controller.partitions[KEY].in_sync_replicas


def test_to_fsync_and_back_before_a_follower_hears_of_either_what_it_told_counts_again() -> None:
    """It sees what both come to, which is nothing: so it says nothing."""
    cluster = ReplicaCluster(flush_on_append=False)
    cluster.produce(1)
    cluster.settle()
    leader = cluster[1].leader()
    assert leader is not None
    for flush_on_append in (True, False):
        under(cluster, flush_on_append=flush_on_append)
        cluster.replay(cluster[1])
        cluster[1].work()
    for follower_id in (2, 3):
        cluster.replay_slice(cluster[follower_id], 2)
    cluster.settle()
    assert [durable_end(leader, follower_id) for follower_id in (2, 3)] == [1, 1]
