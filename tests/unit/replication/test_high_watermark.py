"""How far a log is committed, and what waits for it. docs/spec/replication.md § High watermark."""

from __future__ import annotations

import pytest

from minilog.v1 import common_pb2, metadata_pb2
from minilog_broker.replication.replica_log import ReplicaLog
from minilog_broker.replication.rules.high_watermark import next_high_watermark
from tests.rules import proves
from tests.unit.replication.cluster import KEY, ReplicaCluster, batch, quick_settings


def high_watermark(
    current: int, own: int, members: list[int | None], joiners: tuple[int, ...] = (), isr: int = 3
) -> int:
    return next_high_watermark(
        current, own_durable_end=own, member_ends=members, joiner_ends=joiners, in_sync_count=isr, min_in_sync=2
    )


def latest(cluster: ReplicaCluster, broker_id: int) -> metadata_pb2.ListOffsetsResult:
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    return cluster[broker_id].manager.list_offsets(entry, cluster.now_ms)


@proves("HW.1")
def test_it_is_the_smallest_durable_end_the_leaders_own_included() -> None:
    assert high_watermark(0, 10, [7, 9]) == 7
    assert high_watermark(0, 5, [7, 9]) == 5


@proves("HW.2")
def test_a_member_not_heard_holds_it() -> None:
    assert high_watermark(3, 10, [None, 9]) == 3


def test_it_never_goes_back() -> None:
    assert high_watermark(8, 10, [7, 9]) == 8


@proves("HW.3")
def test_it_waits_for_a_joiner() -> None:
    assert high_watermark(3, 10, [9], (6,)) == 6


def test_it_stays_while_the_isr_is_below_min() -> None:
    assert high_watermark(3, 10, [], isr=1) == 3


def led_log(cluster: ReplicaCluster, broker_id: int) -> ReplicaLog:
    leader = cluster[broker_id].leader()
    assert leader is not None
    return leader.log


@proves("HW.1")
def test_what_is_appended_and_not_synced_does_not_count() -> None:
    cluster = ReplicaCluster()
    ticket = cluster.produce(1)
    while cluster[1].disk:
        cluster[1].work()
    cluster[1].dirty.clear()  # the leader's own sync does not come
    cluster.settle()
    assert cluster[2].ends()[1:] == (1, 1)
    assert led_log(cluster, 1).high_watermark == 0
    assert ticket not in cluster[1].answers


def test_under_flush_policy_os_the_log_end_is_the_durable_end() -> None:
    cluster = ReplicaCluster(flush_on_append=False)
    ticket = cluster.produce(1)
    cluster[1].work()
    assert led_log(cluster, 1).durable_end == 1
    cluster.settle()
    assert cluster[1].answers[ticket].error is None


@proves("HW.2")
def test_a_member_not_heard_in_this_life_holds_it() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    cluster.controller.register(3)  # a new life of 3 registers; the old process is still heard
    state = cluster.controller.partitions[KEY]
    cluster.controller.set_state(KEY, in_sync_replicas=(1, 2, 3))
    assert state.leader_id == 1
    cluster.settle()
    ticket = cluster.produce(1)
    cluster.settle()
    assert ticket not in cluster[1].answers
    assert led_log(cluster, 1).high_watermark == 1


@proves("HW.2")
def test_a_new_leader_holds_it_until_every_member_was_heard_in_its_epoch() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    cluster.cut.add((3, 2))
    cluster.controller.move(KEY, 2)
    cluster.settle()
    ticket = cluster.produce(2)
    cluster.settle()
    assert led_log(cluster, 2).high_watermark <= 1
    assert ticket not in cluster[2].answers
    cluster.cut.clear()
    cluster.advance(1_000)
    assert cluster[2].answers[ticket].error is None


@proves("HW.4")
def test_it_moves_only_with_min_members_and_then_catches_up() -> None:
    cluster = ReplicaCluster(brokers=2)
    cluster[2].crash()
    cluster.controller.fence(2)
    cluster.settle()
    ticket = cluster.produce(1, acks=1)
    cluster.settle()
    assert cluster[1].answers[ticket].error is None
    assert cluster[1].ends() == (0, 1, 1), "stored, and not visible"
    cluster[2].restart()
    cluster.advance(1_000)
    assert cluster[1].ends() == (1, 1, 1)


@proves("HW.4")
def test_min_is_at_most_the_replication_factor() -> None:
    cluster = ReplicaCluster(brokers=1, min_in_sync=2)
    ticket = cluster.produce(1)
    cluster.settle()
    assert cluster[1].answers[ticket].error is None


def test_a_follower_clamps_it_to_its_own_durable_end() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    for _ in range(3):
        cluster.settle()
        cluster.advance(50)
    assert [cluster[b].ends() for b in (2, 3)] == [(1, 1, 1), (1, 1, 1)]
    cluster[1].crash()
    for broker in (2, 3):
        high_watermark, durable_end, _ = cluster[broker].ends()
        assert high_watermark <= durable_end


@proves("HW.5")
def test_at_start_it_is_the_checkpoint_clamped() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    cluster.advance(100)
    cluster[2].logs[KEY].write_checkpoint()
    cluster[2].crash()
    cluster[2].restart()
    high_watermark, durable_end, _ = cluster[2].ends()
    assert high_watermark == 1 <= durable_end


@proves("HW.6")
def test_latest_is_not_available_before_it_reached_the_epochs_start() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    cluster.cut.update({(3, 2), (1, 2)})
    cluster.controller.move(KEY, 2)
    cluster.settle()
    assert cluster[2].ends() == (0, 1, 1), "the new leader was not told yet"
    assert latest(cluster, 2).error.code == common_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE
    cluster.cut.clear()
    cluster.advance(1_000)
    assert latest(cluster, 2).error.code == common_pb2.ERROR_CODE_NONE
    assert latest(cluster, 2).high_watermark == 1


@proves("HW.6")
def test_the_four_ends_of_an_answer_are_one_snapshot() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1, batch(5))
    cluster.settle()
    cluster.produce(1, batch(2))
    while cluster[1].disk:
        cluster[1].work()
    found = latest(cluster, 1)
    assert (found.log_start_offset, found.last_stable_offset, found.high_watermark, found.log_end_offset) == (
        0,
        5,
        5,
        7,
    )


def test_only_the_leader_answers_latest() -> None:
    cluster = ReplicaCluster()
    assert latest(cluster, 2).error.code == common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


def test_an_offset_for_a_timestamp_is_below_it() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    while cluster[1].disk:
        cluster[1].work()
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1, timestamp_us=0)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    assert not cluster[1].list_offsets(entry).HasField("offset")
    cluster.settle()
    assert cluster[1].list_offsets(entry).offset == 0


def test_sizes_are_told_up_to_it() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    while cluster[1].disk:
        cluster[1].work()
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1, sizes_bytes=[1, 2**62])
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    assert [each.size_bytes for each in cluster[1].list_offsets(entry).sizes] == [0, 0]
    cluster.settle()
    told = cluster[1].list_offsets(entry).sizes
    assert [(each.offset, each.size_bytes) for each in told] == [(1, len(batch()))] * 2


def test_more_sizes_than_a_question_may_have_are_refused() -> None:
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1, sizes_bytes=[1] * 65)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    answer = ReplicaCluster()[1].manager.list_offsets(entry, 0.0)
    assert answer.error.code == common_pb2.ERROR_CODE_INVALID_REQUEST
    assert "at most 64 sizes, and this one names 65" in answer.error.message


@proves("HW.3")
@pytest.mark.parametrize("lag_ms", [200.0])
def test_a_joiner_is_waited_for_under_load(lag_ms: float) -> None:
    cluster = ReplicaCluster(settings=quick_settings(replica_lag_time_max_ms=lag_ms))
    cluster[3].crash()
    cluster.controller.fence(3)
    cluster.settle()
    for _ in range(5):
        cluster.produce(1)
    cluster.settle()
    cluster[3].restart()
    for _ in range(60):  # there is never a moment without something on its way
        cluster.produce(1)
        for _ in range(12):
            if steps := cluster.steps():
                steps[-1]()
        cluster.advance(10, settle=False)
    cluster.advance(300)
    assert 3 in cluster.controller.partitions[KEY].in_sync_replicas


def hung_joiner() -> ReplicaCluster:
    """3 is outside the ISR and could join; its process is stopped, and its session still open."""
    cluster = ReplicaCluster(settings=quick_settings(replica_lag_time_max_ms=200.0))
    cluster.controller.set_state(KEY, in_sync_replicas=(1, 2))
    cluster.settle(controller=False)
    cluster.lose_proposal(cluster[1])
    cluster[1].proposal_answers.clear()  # the controller does not answer: 3 stays a joiner
    leader = cluster[1].leader()
    assert leader is not None
    leader.in_sync.proposal = None
    cluster[3].alive = False
    return cluster


@proves("HW.3")
def test_a_joiner_that_stops_is_not_waited_for_longer_than_the_lag_time() -> None:
    cluster = hung_joiner()
    ticket = cluster.produce(1)
    cluster.settle()
    assert ticket not in cluster[1].answers, "it was caught up a moment ago"
    cluster.advance(600)
    assert cluster[1].answers[ticket].error is None


@proves("ISR.5")
def test_a_joiner_whose_session_closes_is_not_waited_for_at_all() -> None:
    cluster = hung_joiner()
    ticket = cluster.produce(1)
    cluster.settle()
    assert ticket not in cluster[1].answers
    cluster.break_link(cluster[3].links[1])
    cluster.settle()
    assert cluster[1].answers[ticket].error is None
