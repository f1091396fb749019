"""The compaction point: decided by the leader, carried with the runs, begun by each replica; and who begins anew."""

from __future__ import annotations

import pytest

from minilog.record_batch.gaps import joined_gap_batch
from minilog.record_batch.header import PLACEMENT_BYTES, decode_header, placement
from minilog_broker.replication.leader.expiring_deletions import MOST_REMEMBERED, ExpiringDeletions
from minilog_broker.replication.replica_effects import (
    AbortUnmarked,
    AppendToLog,
    BeginCompaction,
    StartLogAt,
    TruncateLog,
)
from minilog_broker.storage.compaction_point import NOT_COMPACTED, CompactionPoint
from minilog_broker.storage.producer_state import restored
from tests.rules import proves
from tests.unit.replication.broker import KEY, batch, transactional
from tests.unit.replication.cluster import ReplicaCluster
from tests.unit.replication.hand_cleaning import carry_out
from tests.unit.replication.test_delete_records import filled, rest
from tests.unit.replication.test_follower import FollowerBench, placed
from tests.unit.replication.transacting import begin, commit


def compact(cluster: ReplicaCluster, point: CompactionPoint, *, at: int = 1) -> None:
    cluster[at].manager.compact(KEY, point, cluster.now_ms)
    cluster[at].run()


def begun(cluster: ReplicaCluster) -> list[CompactionPoint]:
    return [broker.logs[KEY].compaction.begun for broker in cluster.brokers.values()]


# -- the point travels


def test_all_replicas_begin_the_point_of_their_leader() -> None:
    cluster = filled(6)
    compact(cluster, CompactionPoint(4, 2))
    rest(cluster)
    assert begun(cluster) == [CompactionPoint(4, 2)] * 3
    assert {broker.logs[KEY].sealed_end_offset >= 4 for broker in cluster.brokers.values()} == {True}


def test_a_point_above_the_last_stable_offset_is_dropped() -> None:
    cluster = filled(2)
    begin(cluster, 7)
    cluster.produce(1)
    rest(cluster)
    compact(cluster, CompactionPoint(4, 0))
    rest(cluster)
    assert begun(cluster) == [NOT_COMPACTED] * 3
    cluster.write_markers(1, commit(7))
    rest(cluster)
    compact(cluster, CompactionPoint(4, 0))
    rest(cluster)
    assert begun(cluster) == [CompactionPoint(4, 0)] * 3


def test_a_follower_begins_only_when_its_own_last_stable_offset_is_there() -> None:
    bench = FollowerBench()
    run, batches = bench.run(high_watermark=5)
    run.compaction.clean_to = 6
    bench.follower.receive(run, batches, 0.0)
    assert not [effect for effect in bench.effects if isinstance(effect, BeginCompaction)]
    bench.disk()
    bench.sync()
    assert not bench.effects
    run, _ = bench.run(batches=b"", high_watermark=6)
    run.compaction.clean_to = 6
    bench.follower.receive(run, b"", 0.0)
    (begin_it,) = [effect for effect in bench.effects if isinstance(effect, BeginCompaction)]
    assert (begin_it.point, begin_it.snapshot_offset) == (CompactionPoint(6, 0), bench.replica.appended_end)
    bench.follower.receive(run, b"", 0.0)
    assert len([effect for effect in bench.effects if isinstance(effect, BeginCompaction)]) == 1, "once"


def test_points_of_several_leaders_are_joined() -> None:
    cluster = filled(8)
    compact(cluster, CompactionPoint(6, 1))
    rest(cluster)
    cluster.controller.move(KEY, 2)
    rest(cluster)
    compact(cluster, CompactionPoint(4, 3), at=2)
    rest(cluster)
    assert begun(cluster) == [CompactionPoint(6, 3)] * 3


# -- producers


@pytest.mark.parametrize("restarts", [False, True])
def test_a_follower_below_the_point_is_told_of_the_producers_that_the_log_does_not_show(restarts: bool) -> None:
    cluster = filled(1)
    cluster[3].crash()
    cluster.controller.fence(3)
    cluster.settle()
    cluster.produce(1, batch(1, producer=(7, 0, 0)))
    cluster.produce(1, batch(1))
    rest(cluster)
    before = cluster[1].manager.copy_of(KEY).log.producers.entry(7)  # type: ignore[union-attr]
    compact(cluster, CompactionPoint(3, 0))
    rest(cluster)
    carry_out(cluster[1], gaps=(1, 3))
    cluster[3].restart()
    cluster.advance(2_000)
    if restarts:
        cluster[3].crash()
        cluster[3].restart()
        cluster.advance(2_000)
    replica = cluster[3].manager.copy_of(KEY)
    assert replica is not None
    assert replica.log is not None
    assert replica.log.appended_end == 3
    assert replica.log.producers.entry(7) == before


# -- transactions whose markers are gone


@proves("TX.16")
@pytest.mark.parametrize("is_under_load", [False, True])
def test_a_follower_aborts_a_transaction_whose_marker_its_leader_has_removed(*, is_under_load: bool) -> None:
    """It fetched the record before the leader removed both (found by the simulator, seed 43000121)."""
    bench = FollowerBench()
    open_one = transactional(batch(producer=(7, 0, 0)))
    bench.follower.receive(*bench.run(batches=placement(open_one, 5, 5) + open_one[PLACEMENT_BYTES:]), 0.0)
    bench.disk()
    bench.sync()
    bench.replica.clean_at_start = 8
    run, batches = bench.run(batches=placed(6, 5, 2), first_offset=6, previous_epoch=5, high_watermark=8)
    run.last_stable_offset, run.compaction.clean_to, run.compaction.deletes_before = 8, 8, 7
    run.compaction.done_clean_to = 8
    bench.follower.receive(run, batches, 0.0)
    bench.disk()
    assert not bench.effects, "the marker may be in what is not durable here"
    if is_under_load:
        run.first_offset, run.high_watermark = 8, 9
        bench.follower.receive(run, placed(8, 5), 0.0)
    bench.sync()
    *_, abort = bench.effects
    assert isinstance(abort, AbortUnmarked)
    assert restored(abort.snapshot).transactions.aborted_within(5, 6) == [7]
    assert durable_end(bench) == 5, "a leader must not count on a copy that may hold the transaction open"
    assert bench.replica.transactions_aborted(abort.below)
    bench.follower.proven_end_moved()
    assert durable_end(bench) == 8
    assert [type(effect) for effect in bench.effects[-2:]] == [AbortUnmarked, BeginCompaction]
    assert bench.replica.last_stable_offset == 8


def durable_end(bench: FollowerBench) -> int | None:
    progress = bench.follower.progress()
    return None if progress is None else progress.durable_end_offset


# -- positions inside of joined gaps


def test_a_follower_whose_end_lies_in_a_joined_gap_gets_the_rest_of_it() -> None:
    cluster = filled(3)
    cluster[3].crash()
    cluster.controller.fence(3)
    cluster.settle()
    for _ in range(4):
        cluster.produce(1)
    rest(cluster)
    compact(cluster, CompactionPoint(6, 0))
    rest(cluster)
    carry_out(cluster[1], gaps=(1, 6))
    cluster[3].restart()
    cluster.advance(2_000)
    assert cluster[3].logs[KEY].log_end_offset == 7
    appended = [effect for effect in cluster[3].history if isinstance(effect, AppendToLog)]
    header = next(header for effect in appended for header in effect.batches.headers if header.has_gaps)
    assert (header.base_offset, header.next_offset) == (3, 6)


# -- who begins anew


def test_a_cut_below_what_was_begun_begins_anew() -> None:
    bench = FollowerBench()
    run, _ = bench.run(batches=b"", high_watermark=5)
    run.compaction.clean_to = 4
    bench.follower.receive(run, b"", 0.0)
    bench.disk()
    bench.diverging(4, 3)
    assert [effect for effect in bench.effects if isinstance(effect, StartLogAt | TruncateLog)] == [
        StartLogAt(KEY, 0, 2)
    ]


def overtaken(*, clean_at_start: int = 0, deletes_before: int = 9, is_empty: bool = False) -> list[StartLogAt]:
    """The commands to begin anew of a follower at offset 5, whose leader lets deletions below 9 go."""
    bench = FollowerBench(entries=()) if is_empty else FollowerBench()
    bench.replica.clean_at_start = clean_at_start
    bench.follower.accepted = True
    first = 0 if is_empty else 5
    run, batches = bench.run(batches=placed(first, 5), first_offset=first, log_start_offset=0)
    run.compaction.clean_to = run.compaction.done_clean_to = 9
    run.compaction.deletes_before = deletes_before
    bench.follower.receive(run, batches, 0.0)
    return [effect for effect in bench.effects if isinstance(effect, StartLogAt)]


def test_a_follower_that_lacks_deletions_which_are_gone_begins_anew_and_loses_nothing() -> None:
    assert overtaken() == [StartLogAt(KEY, 0, 0)]


def test_a_follower_that_has_all_of_them_or_began_when_the_log_was_clean_goes_on() -> None:
    assert overtaken(deletes_before=5) == []
    assert overtaken(clean_at_start=9) == []
    assert overtaken(is_empty=True) == []


def test_another_leader_may_be_less_clean_than_the_one_at_the_start() -> None:
    bench = FollowerBench()
    bench.replica.clean_at_start = 9
    assert not bench.replica.lacks_deletions(6, 6, is_new_leader=True)
    assert bench.replica.clean_at_start == 6
    assert bench.replica.lacks_deletions(7, 9, is_new_leader=False)


def test_another_leader_raises_nothing_of_what_was_clean_at_the_start() -> None:
    bench = FollowerBench()
    bench.replica.clean_at_start = 3
    assert bench.replica.lacks_deletions(7, 9, is_new_leader=True)
    assert bench.replica.clean_at_start == 3


# -- when deletions expire


def test_deletions_expire_after_their_time_since_the_copy_was_clean() -> None:
    expiring = ExpiringDeletions(CompactionPoint(10, 4), 1_000.0)
    assert expiring.deletes_before(1_999.0, 1_000) == 4
    assert expiring.deletes_before(2_000.0, 1_000) == 10, "a new leader counts from its begin"
    expiring.cleaned(CompactionPoint(20, 10), 2_500.0)
    expiring.cleaned(CompactionPoint(30, 10), 2_600.0)
    assert expiring.deletes_before(3_550.0, 1_000) == 20
    expiring.cleaned(CompactionPoint(30, 20), 3_550.0)
    assert expiring.deletes_before(3_550.0, 1_000) == 20
    assert expiring.deletes_before(3_600.0, 1_000) == 30


def test_deletions_wait_for_followers_that_fetch_and_not_for_those_that_are_gone() -> None:
    cluster = filled(8)
    compact(cluster, CompactionPoint(6, 0))
    rest(cluster)
    (leader,) = cluster[1].manager.led_partitions()
    leader.expiring_deletions.cleaned(CompactionPoint(6, 0), cluster.now_ms)
    expired_ms = cluster.now_ms + leader.config.delete_retention_ms
    assert leader.expired_deletions(expired_ms - 1.0) == 0
    assert leader.expired_deletions(expired_ms) == 6
    leader.in_sync.views[3].durable_end = 2  # its first copy is under way
    assert leader.expired_deletions(expired_ms) == 2
    cluster[3].crash()
    cluster.settle()
    assert leader.expired_deletions(expired_ms) == 6


def test_the_memory_of_cleanings_is_bounded() -> None:
    expiring = ExpiringDeletions(NOT_COMPACTED, 0.0)
    for number in range(1, MOST_REMEMBERED + 2):
        expiring.cleaned(CompactionPoint(number, 0), float(number))
    assert expiring.deletes_before(1e9, 0) == MOST_REMEMBERED + 1
    assert expiring.deletes_before(3.0, 0) == 3
    assert expiring.deletes_before(2.0, 0) == 1, "the second one waits for the third"


def test_a_joined_gap_has_no_producer() -> None:
    header = decode_header(batch(1, producer=(7, 0, 0)))
    assert decode_header(joined_gap_batch(*KEY, header, header)).producer_id == -1
