"""A leader's answer to a broker that asks for the stable offset with what it knows; and when to ask again."""

from __future__ import annotations

import pytest

from minilog.errors import LeaderNotAvailable, NotLeaderOrFollower, UnknownTopicId
from minilog.partition_key import PartitionKey
from minilog_broker.replication.replica_effects import StableOffsetMoved
from minilog_broker.replication.stable_offsets import KnownPartition, Question, StableOffset
from tests.rules import proves
from tests.unit.replication.broker import KEY
from tests.unit.replication.cluster import ReplicaCluster
from tests.unit.replication.transacting import cut_off

NOTHING = KnownPartition()


def ask(
    cluster: ReplicaCluster, known: KnownPartition = NOTHING, *, at: int = 1, key: PartitionKey = KEY
) -> StableOffset | None:
    return cluster[at].manager.stable_offset(Question(key, known), cluster.now_ms)


def news(cluster: ReplicaCluster, known: KnownPartition = NOTHING, *, at: int = 1) -> StableOffset:
    answer = ask(cluster, known, at=at)
    assert answer is not None
    return answer


def wakes(cluster: ReplicaCluster, *, at: int = 1) -> int:
    return sum(isinstance(effect, StableOffsetMoved) for effect in cluster[at].history)


def leads(cluster: ReplicaCluster) -> bool:
    leader = cluster[1].leader()
    return leader is not None and leader.leading


def knows_its_end(cluster: ReplicaCluster) -> bool:
    leader = cluster[1].leader()
    return leader is not None and leader.knows_its_end


def filled(records: int = 3) -> ReplicaCluster:
    cluster = ReplicaCluster()
    for _ in range(records):
        cluster.produce(1)
    cluster.settle()
    return cluster


# -- the answer


def test_an_empty_log_has_no_size_of_a_record() -> None:
    assert news(filled(0)) == StableOffset(0, 0, 0, 0, 0)


@proves("SO.2")
def test_a_leader_that_does_not_know_its_end_has_no_news() -> None:
    cluster = filled()
    cut_off(cluster, 2, 3)
    cluster.produce(1)
    cluster.settle()
    for broker_id in (1, 3):
        cluster.cut.add((broker_id, 2))
    cluster.controller.move(KEY, 2)
    cluster.settle()
    cluster[2].crash()
    cluster.controller.move(KEY, 1)
    for follower_id in (2, 3):
        cluster.cut.add((follower_id, 1))
    cluster.settle()
    assert (leads(cluster), knows_its_end(cluster)) == (True, False)
    assert ask(cluster) is None
    cluster[1].manager.watch(KEY)
    before = wakes(cluster)
    cluster.cut.clear()
    cluster.advance(cluster.settings.replica_lag_time_max_ms * 2)
    assert knows_its_end(cluster)
    assert wakes(cluster) > before
    assert news(cluster).last_stable_offset == 4


# -- errors


def test_a_topic_that_the_broker_does_not_know() -> None:
    with pytest.raises(UnknownTopicId):
        ask(filled(), key=PartitionKey(b"another topic id", 0))


@proves("SO.4")
def test_a_leader_whose_disk_has_not_settled_is_not_available() -> None:
    cluster = filled()
    cluster.produce(1)
    cluster.controller.move(KEY, 2)
    cluster.controller.move(KEY, 1)
    cluster.replay_slice(cluster[1], 2)
    with pytest.raises(LeaderNotAvailable, match="about to begin"):
        ask(cluster)


@proves("SO.4")
def test_a_leader_that_the_asker_knows_to_be_over() -> None:
    with pytest.raises(NotLeaderOrFollower, match="leader epoch 5 has begun"):
        ask(filled(), KnownPartition(5, 3, 0))


# -- when to ask again
