"""Deleting records up to an offset: refused, on its way, answered; and what no election brings back."""

from __future__ import annotations

import errno

import pytest

from minilog.errors import (
    FencedLeaderEpoch,
    InvalidArgument,
    InvalidTxnState,
    MinilogError,
    NoSpace,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
)
from minilog_broker.replication.replica_effects import AdvanceLogStart, StartLogAt
from tests.rules import proves
from tests.unit.replication.broker import KEY, batch
from tests.unit.replication.cluster import ReplicaCluster
from tests.unit.replication.test_put_out import rot
from tests.unit.replication.transacting import begin, commit, cut_off


def filled(records: int = 5, *, rows: int = 1, brokers: int = 3) -> ReplicaCluster:
    cluster = ReplicaCluster(brokers)
    for _ in range(records):
        cluster.produce(1, batch(rows))
    rest(cluster)
    return cluster


def rest(cluster: ReplicaCluster) -> None:
    """All that can happen soon: news is held back for some milliseconds."""
    cluster.settle()
    cluster.advance(20)
    cluster.settle()


def starts(cluster: ReplicaCluster) -> list[int]:
    return [broker.logs[KEY].log_start_offset for broker in cluster.brokers.values()]


def refused(cluster: ReplicaCluster, ticket: int, *, at: int = 1) -> MinilogError:
    error = cluster[at].deleted[ticket].error
    assert error is not None
    return error


# -- what is refused


@proves("DEL.1")
def test_above_the_high_watermark_is_out_of_range_with_both_numbers() -> None:
    cluster = filled()
    error = refused(cluster, cluster.delete_records(1, 6))
    assert isinstance(error, OffsetOutOfRange)
    assert "offset 6 is above the high watermark 5" in str(error)
    assert starts(cluster) == [0, 0, 0]


def test_what_is_appended_and_not_committed_is_above_the_high_watermark() -> None:
    cluster = filled()
    cut_off(cluster, 2, 3)
    cluster.produce(1)
    cluster.settle()
    assert isinstance(refused(cluster, cluster.delete_records(1, 6)), OffsetOutOfRange)


@proves("DEL.1")
def test_above_the_last_stable_offset_is_refused_and_a_transaction_is_never_cut_in_two() -> None:
    cluster = filled(2)
    begin(cluster, 7)
    cluster.produce(1)
    cluster.settle()
    error = refused(cluster, cluster.delete_records(1, 3))
    assert isinstance(error, InvalidTxnState)
    assert "offset 3 is above the last stable offset 2" in str(error)
    ticket = cluster.delete_records(1, 2)
    rest(cluster)
    assert cluster[1].deleted[ticket].low_watermark == 2
    cluster.write_markers(1, commit(7))
    rest(cluster)
    ticket = cluster.delete_records(1, 5)
    rest(cluster)
    assert cluster[1].deleted[ticket].low_watermark == 5


def test_a_new_leader_that_does_not_know_its_end_says_retry() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()  # the followers were not told yet that it is committed
    cluster.cut.update({(3, 2), (1, 2)})
    cluster.controller.move(KEY, 2)
    cluster.settle()
    assert isinstance(refused(cluster, cluster.delete_records(2, 99), at=2), OffsetNotAvailable)


def test_a_follower_an_old_epoch_and_a_negative_offset_are_refused() -> None:
    cluster = filled()
    assert isinstance(refused(cluster, cluster.delete_records(2, 1), at=2), NotLeaderOrFollower)
    assert isinstance(refused(cluster, cluster.delete_records(1, -1)), InvalidArgument)
    cluster.controller.move(KEY, 2)
    cluster.settle()
    old = cluster.delete_records(2, 1, leader_epoch=0)
    assert isinstance(refused(cluster, old, at=2), FencedLeaderEpoch)


# -- when it is answered


@proves("DEL.2")
def test_it_is_answered_when_the_start_is_durable_on_every_member_of_the_isr() -> None:
    cluster = filled()
    cut_off(cluster, 3)
    ticket = cluster.delete_records(1, 3)
    rest(cluster)
    assert starts(cluster) == [3, 3, 0]
    assert ticket not in cluster[1].deleted
    cluster.cut.clear()
    cluster.advance(500)
    assert starts(cluster) == [3, 3, 3]
    answer = cluster[1].deleted[ticket]
    assert (answer.error, answer.low_watermark) == (None, 3)


def test_a_member_that_left_the_isr_is_not_waited_for() -> None:
    cluster = filled()
    cluster[3].crash()
    ticket = cluster.delete_records(1, 3)
    rest(cluster)
    assert ticket not in cluster[1].deleted
    cluster.controller.fence(3)
    rest(cluster)
    assert cluster[1].deleted[ticket].low_watermark == 3


@proves("DEL.2")
def test_an_eligible_leader_is_waited_for_too() -> None:
    """With the ISR below min it could be elected: then its records would be back."""
    cluster = filled()
    for each in (3, 2):
        cluster[each].crash()
        cluster.controller.fence(each)
        cluster.settle()
    leader = cluster[1].leader()
    assert leader is not None
    assert leader.state.eligible_leaders, "the ISR is below min"
    ticket = cluster.delete_records(1, 3)
    rest(cluster)
    assert starts(cluster)[0] == 3
    assert ticket not in cluster[1].deleted
    for each in (2, 3):
        cluster[each].restart()
    cluster.advance(1_000)
    assert cluster[1].deleted[ticket].low_watermark == 3
    assert starts(cluster) == [3, 3, 3]


def test_asking_again_writes_nothing_and_is_answered() -> None:
    cluster = filled()
    for offset in (3, 3, 2, 0):
        ticket = cluster.delete_records(1, offset)
        rest(cluster)
        assert cluster[1].deleted[ticket].low_watermark == 3
    assert sum(isinstance(effect, AdvanceLogStart) for effect in cluster[1].history) == 1


def test_two_that_wait_are_answered_each_by_its_own_offset() -> None:
    cluster = filled()
    cut_off(cluster, 3)
    low, high = cluster.delete_records(1, 2), cluster.delete_records(1, 4)
    rest(cluster)
    cluster.cut.clear()
    cluster.advance(500)
    assert {ticket: cluster[1].deleted[ticket].error for ticket in (low, high)} == {low: None, high: None}
    assert cluster[1].deleted[high].low_watermark == 4


def test_a_time_out_is_unknown_and_the_records_go_nevertheless() -> None:
    cluster = filled()
    cut_off(cluster, 3)
    ticket = cluster.delete_records(1, 3, timeout_ms=100)
    rest(cluster)
    cluster.advance(200)
    assert isinstance(refused(cluster, ticket), RequestTimedOut)
    cluster.cut.clear()
    cluster.advance(500)
    assert starts(cluster) == [3, 3, 3]


def test_a_leader_that_is_one_no_more_sends_to_the_next() -> None:
    cluster = filled()
    cut_off(cluster, 3)
    ticket = cluster.delete_records(1, 3)
    rest(cluster)
    cluster.controller.move(KEY, 2)
    cluster.settle()
    assert isinstance(refused(cluster, ticket), NotLeaderOrFollower)
    cluster.cut.clear()
    again = cluster.delete_records(2, 3)
    cluster.advance(500)
    assert cluster[2].deleted[again].low_watermark == 3


def test_a_full_disk_is_said_and_it_can_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = filled()
    log = cluster[1].logs[KEY]
    with monkeypatch.context() as full:

        def no_space(offset: int | None = None) -> None:
            raise OSError(errno.ENOSPC, "no space")

        full.setattr(log, "write_checkpoint", no_space)
        ticket = cluster.delete_records(1, 3)
        with pytest.raises(OSError, match="no space"):
            cluster[1].work()
        cluster[1].manager.log_failed(KEY, OSError(errno.ENOSPC, "no space"), cluster.now_ms)
        cluster[1].run()
    assert isinstance(refused(cluster, ticket), NoSpace)
    assert log.log_start_offset == 0, "what is not durable is not seen"
    ticket = cluster.delete_records(1, 3)
    rest(cluster)
    assert cluster[1].deleted[ticket].low_watermark == 3


# -- what no election brings back


@proves("DEL.4")
@pytest.mark.parametrize("next_leader", [2, 3])
def test_after_the_answer_every_leader_starts_there(next_leader: int) -> None:
    cluster = filled()
    ticket = cluster.delete_records(1, 3)
    rest(cluster)
    assert cluster[1].deleted[ticket].error is None
    cluster[1].crash()
    cluster.controller.fence(1)
    cluster.settle()
    cluster.controller.move(KEY, next_leader)
    cluster.settle()
    assert cluster[next_leader].logs[KEY].log_start_offset == 3
    for each in (2, 3):
        cluster[each].crash()
        cluster[each].restart()
    cluster.advance(500)
    assert starts(cluster)[1:] == [3, 3]


@proves("DEL.3")
def test_nobody_joins_the_isr_with_a_lower_log_start() -> None:
    """Cut off from the news, a follower has all records and not the start: it could bring them back."""
    cluster = filled()
    cluster[3].crash()
    cluster.controller.fence(3)
    cluster.settle()
    ticket = cluster.delete_records(1, 5)
    rest(cluster)
    assert cluster[1].deleted[ticket].low_watermark == 5
    cluster[3].restart()
    for _ in range(2_000):
        leader = cluster[1].leader()
        if leader is not None and 3 in leader.in_sync.maximal:
            break
        steps = cluster.steps()
        if not steps:
            cluster.advance(20, settle=False)
            continue
        steps[0]()
    assert leader is not None
    assert 3 in leader.in_sync.maximal
    assert starts(cluster)[2] == 5


@proves("DEL.5")
def test_followers_follow_retention_too() -> None:
    cluster = filled()
    cluster[1].logs[KEY].advance_log_start(2)
    cluster[1].manager.log_start_moved(KEY, cluster.now_ms)
    cluster.advance(100)
    assert starts(cluster) == [2, 2, 2]


@proves("DEL.5")
def test_a_follower_follows_when_its_own_stable_offset_allows_it() -> None:
    """Never above what it knows to be committed (V1)."""
    cluster = filled()
    cluster.advance(100)  # the high watermark of the last batch comes with a sign of life
    replica = cluster[2].manager._replicas[KEY].log
    assert replica is not None
    assert not replica.ask_log_start(6)
    assert replica.ask_log_start(5)
    assert not replica.ask_log_start(5), "it is on its way"


# -- a start in the middle of a batch (KAFKA-6975)


@proves("DEL.6")
def test_a_follower_that_starts_anew_begins_with_the_whole_of_a_cut_batch() -> None:
    cluster = filled(3, rows=10)
    cluster[3].crash()
    cluster.controller.fence(3)
    cluster.settle()
    ticket = cluster.delete_records(1, 15)
    rest(cluster)
    assert cluster[1].deleted[ticket].low_watermark == 15
    cluster[3].files.wipe()  # an emptied disk
    cluster[3].restart()
    cluster.advance(2_000)
    assert starts(cluster) == [15, 15, 15]
    assert cluster[3].ends() == (30, 30, 30)
    assert [header.base_offset for header in cluster[3].headers()] == [10, 20]


def test_a_follower_behind_the_start_gets_back_in() -> None:
    cluster = filled(1, rows=10)
    cluster[3].crash()
    cluster.controller.fence(3)
    cluster.settle()
    for _ in range(3):
        cluster.produce(1, batch(10))
    cluster.settle()
    cluster.delete_records(1, 25)
    rest(cluster)
    cluster[3].restart()
    cluster.advance(2_000)
    assert starts(cluster) == [25, 25, 25]
    assert cluster[3].ends() == (40, 40, 40)
    leader = cluster[1].leader()
    assert leader is not None
    assert 3 in leader.state.in_sync_replicas


@proves("DEL.6")
@pytest.mark.parametrize("trimmed_to", [5, 15])
def test_an_empty_copy_that_starts_inside_a_batch_of_its_leader_gets_back_in(trimmed_to: int) -> None:
    """It was trimmed as a leader, and damaged then; who leads now was not told of the trim, and has the whole batch."""
    cluster = filled(3, rows=10, brokers=2)
    cut_off(cluster, 2)
    cluster.delete_records(1, trimmed_to)
    rest(cluster)
    assert starts(cluster) == [trimmed_to, 0]
    rot(cluster[1])
    cluster.controller.damage(1, KEY)
    cluster.advance(2_000)
    assert cluster[1].ends() == cluster[2].ends() == (30, 30, 30)
    assert sorted(cluster.controller.partitions[KEY].in_sync_replicas) == [1, 2]
    lost = [effect.committed_lost for effect in cluster[1].history if isinstance(effect, StartLogAt)]
    assert lost == [0], "the empty copy had nothing that it could lose"


def test_a_log_emptied_to_its_end_goes_on() -> None:
    cluster = filled(3, rows=10)
    ticket = cluster.delete_records(1, 30)
    rest(cluster)
    assert cluster[1].deleted[ticket].low_watermark == 30
    for each in (2, 3):
        cluster[each].crash()
        cluster[each].restart()
    cluster.advance(1_000)
    cluster.produce(1, batch(5))
    cluster.settle()
    cluster.advance(100)
    assert [broker.ends() for broker in cluster.brokers.values()] == [(35, 35, 35)] * 3
    assert starts(cluster) == [30, 30, 30]


# -- producers of deleted batches: what they send again is in no log, and was written all the same


def written_again(cluster: ReplicaCluster, leader_id: int) -> int:
    """What the leader answers to the first batch of producer 7, which is sent once more."""
    ticket = cluster.produce(leader_id, batch(10, producer=(7, 0, 0)))
    rest(cluster)
    answer = cluster[leader_id].answers[ticket]
    assert answer.error is None
    return answer.base_offset


@proves("DEL.8")
def test_a_log_emptied_to_its_end_knows_its_producers_under_the_next_leader() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1, batch(10, producer=(7, 0, 0)))
    rest(cluster)
    cluster.delete_records(1, 10)
    rest(cluster)
    cluster.controller.move(KEY, 2)
    rest(cluster)
    assert not [each for each in cluster[3].history if isinstance(each, StartLogAt)], "there is nothing to compare"
    cluster.controller.move(KEY, 3)
    rest(cluster)
    assert written_again(cluster, 3) == 0
    assert cluster[3].ends() == (10, 10, 10)


@proves("DEL.6", "DEL.8")
@pytest.mark.parametrize("emptied_disk", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_follower_that_starts_anew_is_told_of_producers_below(*, emptied_disk: bool, restarted: bool) -> None:
    cluster = filled(1, rows=10)
    cluster[3].crash()
    cluster.controller.fence(3)
    cluster.settle()
    cluster.produce(1, batch(10, producer=(7, 0, 0)))
    cluster.produce(1, batch(10))
    rest(cluster)
    cluster.delete_records(1, 20)
    rest(cluster)
    if emptied_disk:
        cluster[3].files.wipe()
    cluster[3].restart()
    cluster.advance(2_000)
    assert starts(cluster) == [20, 20, 20]
    if restarted:
        cluster[3].crash()
        cluster[3].restart()
        cluster.advance(2_000)
    cluster.controller.move(KEY, 3)
    rest(cluster)
    assert written_again(cluster, 3) == 10
    assert cluster[3].ends() == (30, 30, 30)


# -- readers and producers


@proves("DEL.7")
def test_a_consumer_below_the_start_is_told_so_and_one_at_it_reads() -> None:
    cluster = filled(3, rows=10)
    slow = cluster.consume(1, 0, credit=1)
    cluster.settle()
    assert len(cluster.pushed(1, slow)[-1][1]) > 0
    cluster.delete_records(1, 25)
    rest(cluster)
    cluster.fetch(1, slow, 10, position_number=2)
    inside = cluster.consume(1, 25)
    rest(cluster)
    run, batches = cluster.pushed(1, slow)[-1]
    assert "below the log start 25" in run.error.message
    assert (run.log_start_offset, batches) == (25, b"")
    assert cluster.runs(1, inside)[0].first_offset == 20, "the batch around it; the client shows what is from 25 on"


@proves("DEL.7")
def test_a_consumer_at_the_start_goes_on_though_the_epoch_of_what_it_read_is_forgotten() -> None:
    cluster = filled(2)
    cluster.controller.move(KEY, 2)
    cluster.settle()
    cluster.produce(2)
    cluster.settle()
    cluster.delete_records(2, 2, leader_epoch=1)
    rest(cluster)
    session_id = cluster.consume(2, 2, leader_epoch=1, last_fetched_epoch=0)
    cluster.settle()
    run, batches = cluster.pushed(2, session_id)[0]
    assert not run.HasField("diverging_epoch")
    assert batches


@proves("DEL.8")
def test_what_is_known_of_producers_outlives_their_records_and_a_restart() -> None:
    """KAFKA-7190: the last sequences of a producer were forgotten with its records."""
    cluster = ReplicaCluster()
    cluster.produce(1, batch(producer=(9, 0, 0)))
    cluster.settle()
    cluster.delete_records(1, 1)
    rest(cluster)
    for each in (2, 1, 3):
        cluster[each].crash()
        cluster.controller.fence(each)
        cluster.settle()
        cluster[each].restart()
        cluster.advance(500)
    leader = next(broker for broker in cluster.live() if broker.leader() is not None)
    ticket = cluster.produce(leader.broker_id, batch(producer=(9, 0, 0)))
    cluster.settle()
    assert leader.answers[ticket].base_offset == 0, "a duplicate of what was deleted since"
