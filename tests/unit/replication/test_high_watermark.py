"""How far a log is committed, and what waits for it. docs/spec/replication.md § High watermark."""

from __future__ import annotations

from minilog.v1 import common_pb2, metadata_pb2
from minilog_broker.replication.rules.high_watermark import next_high_watermark
from tests.rules import proves
from tests.unit.replication.cluster import KEY, ReplicaCluster, batch, quick_settings


def high_watermark(
    current: int, own: int, members: list[int | None], joiners: tuple[int, ...] = (), isr: int = 3
) -> int:
    return next_high_watermark(
        current, own_durable_end=own, member_ends=members, joiner_ends=joiners, in_sync_count=isr, min_in_sync=2
    )


@proves("HW.1")
def test_the_high_watermark_is_the_smallest_durable_end_the_leaders_own_included() -> None:
    assert high_watermark(0, 10, [7, 9]) == 7
    assert high_watermark(0, 5, [7, 9]) == 5


@proves("HW.2")
def test_a_member_not_heard_holds_it() -> None:
    assert high_watermark(3, 10, [None, 9]) == 3


def test_the_high_watermark_never_goes_back() -> None:
    assert high_watermark(8, 10, [7, 9]) == 8


@proves("HW.3")
def test_the_high_watermark_waits_for_a_joiner() -> None:
    assert high_watermark(3, 10, [9], (6,)) == 6


def test_the_high_watermark_stays_while_the_isr_is_below_min() -> None:
    assert high_watermark(3, 10, [], isr=1) == 3


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
def test_a_joiner_is_waited_for_under_load() -> None:
    """There is never a moment without something on its way: where it is not waited for, it never catches up."""
    cluster = ReplicaCluster(settings=quick_settings(replica_lag_time_max_ms=200.0))
    cluster[3].crash()
    cluster.controller.fence(3)
    cluster.settle()
    for _ in range(5):
        cluster.produce(1)
    cluster.settle()
    cluster[3].restart()
    for _ in range(60):
        cluster.produce(1)
        for _ in range(16):
            if steps := cluster.steps():
                steps[0]()
        cluster.advance(10, settle=False)
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
