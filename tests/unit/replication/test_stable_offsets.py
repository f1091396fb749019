"""A leader's answer to a broker that asks for the stable offset with what it knows; and when to ask again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import LeaderNotAvailable, NotLeaderOrFollower, UnknownTopicId
from minilog.partition_key import PartitionKey
from minilog_broker.replication.replica_effects import StableOffsetMoved
from minilog_broker.replication.stable_offsets import KnownPartition, Question, StableOffset
from tests.rules import proves
from tests.unit.replication.broker import KEY
from tests.unit.replication.cluster import ReplicaCluster
from tests.unit.replication.transacting import begin, commit, cut_off

NOTHING = KnownPartition()


def ask(
    cluster: ReplicaCluster, known: KnownPartition = NOTHING, *, at: int = 1, key: PartitionKey = KEY
) -> StableOffset | None:
    return cluster[at].manager.stable_offset(Question(key, known), cluster.now_ms)


def news(cluster: ReplicaCluster, known: KnownPartition = NOTHING, *, at: int = 1) -> StableOffset:
    answer = ask(cluster, known, at=at)
    assert answer is not None
    return answer


def as_known(answer: StableOffset) -> KnownPartition:
    return KnownPartition(answer.leader_epoch, answer.last_stable_offset, answer.log_start_offset)


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


def put_out(cluster: ReplicaCluster, broker_id: int) -> None:
    """A follower is out of the ISR, and hears nothing."""
    cut_off(cluster, broker_id)
    cluster.controller.fence(broker_id)
    cluster.settle()


def rest(cluster: ReplicaCluster) -> None:
    """All that can happen soon."""
    cluster.settle()
    cluster.advance(50)
    cluster.settle()


# -- the answer


@proves("SO.1")
def test_who_knows_nothing_gets_news_at_once() -> None:
    answer = news(filled())
    assert (answer.leader_epoch, answer.log_start_offset, answer.last_stable_offset) == (0, 0, 3)
    assert answer.end_of_epoch == 3, "nothing is cut"
    assert answer.record_bytes > 10


def test_an_empty_log_has_no_size_of_a_record() -> None:
    assert news(filled(0)) == StableOffset(0, 0, 0, 0, 0)


@proves("SO.1")
def test_who_knows_all_gets_nothing_until_the_high_watermark_moves() -> None:
    cluster = filled()
    known = as_known(news(cluster))
    assert ask(cluster, known) is None
    cut_off(cluster, 2, 3)
    cluster.produce(1)
    cluster.settle()
    assert ask(cluster, known) is None, "the record is not committed"
    cluster.cut.clear()
    cluster.advance(500)
    assert news(cluster, known).last_stable_offset == 4


@proves("SO.1")
def test_an_open_transaction_holds_the_offset_back_until_its_marker() -> None:
    cluster = filled(1)
    begin(cluster, 7)
    known = as_known(news(cluster))
    assert known.last_stable_offset == 1
    cluster.produce(1)
    cluster.settle()
    assert ask(cluster, known) is None
    cluster.write_markers(1, commit(7))
    cluster.settle()
    assert news(cluster, known).last_stable_offset == 4


@proves("SO.3")
def test_a_clean_election_takes_nothing_back() -> None:
    cluster = filled()
    known = as_known(news(cluster))
    cluster.controller.move(KEY, 2)
    cluster.settle()
    cluster.produce(2)
    cluster.settle()
    answer = news(cluster, known, at=2)
    assert (answer.leader_epoch, answer.last_stable_offset) == (1, 4)
    assert answer.end_of_epoch == 3 == known.last_stable_offset
    with pytest.raises(NotLeaderOrFollower):
        ask(cluster, known, at=1)


@proves("SO.3")
def test_after_an_unclean_election_the_epochs_end_is_below_what_was_known() -> None:
    cluster = filled(2)
    put_out(cluster, 3)
    cluster.produce(1)
    cluster.settle()
    known = as_known(news(cluster))
    assert known.last_stable_offset == 3
    cluster.controller.change_life(3)
    cluster.controller.move(KEY, 3)
    cluster.settle()
    cluster.advance(cluster.settings.replica_lag_time_max_ms)
    answer = news(cluster, known, at=3)
    assert answer.leader_epoch == 1
    assert answer.end_of_epoch == 2 < known.last_stable_offset


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


@proves("SO.1")
def test_deleted_records_move_the_log_start() -> None:
    cluster = filled()
    known = as_known(news(cluster))
    cluster.delete_records(1, 2)
    rest(cluster)
    answer = news(cluster, known)
    assert (answer.log_start_offset, answer.last_stable_offset, answer.end_of_epoch) == (2, 3, 3)
    assert answer.record_bytes < 1_000, "the segment still has the deleted records"


# -- errors


@proves("SO.4")
def test_only_the_leader_answers() -> None:
    cluster = filled()
    with pytest.raises(NotLeaderOrFollower):
        ask(cluster, at=2)


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


@proves("SO.4")
def test_a_leader_that_is_cut_off_does_not_answer() -> None:
    cluster = filled()
    cluster.controller.alter(replace(cluster.config, unclean_leader_election=True))
    cluster.settle()
    with pytest.raises(LeaderNotAvailable):
        ask(cluster)
    cluster.controller_answers(1)
    assert news(cluster).last_stable_offset == 3


# -- when to ask again


@proves("SO.5")
def test_nobody_is_woken_who_does_not_watch() -> None:
    cluster = filled()
    cluster[1].manager.watch(KEY)
    cluster[1].manager.watch(KEY)
    cluster[1].manager.unwatch(KEY)
    cluster.produce(1)
    cluster.settle()
    assert wakes(cluster) == 1
    cluster[1].manager.unwatch(KEY)
    cluster.produce(1)
    cluster.settle()
    assert wakes(cluster) == 1
    assert not cluster[1].manager._context.watched


def test_a_watch_is_woken_when_the_log_start_moves() -> None:
    cluster = filled()
    cluster[1].manager.watch(KEY)
    cluster.delete_records(1, 2)
    rest(cluster)
    assert wakes(cluster) >= 1


def test_a_watch_is_woken_when_the_leadership_ends_and_when_it_begins() -> None:
    cluster = filled()
    for broker_id in (1, 2):
        cluster[broker_id].manager.watch(KEY)
    cluster.controller.move(KEY, 2)
    cluster.settle()
    assert wakes(cluster, at=1) == 1
    assert wakes(cluster, at=2) >= 1
