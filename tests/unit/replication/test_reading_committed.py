"""The last stable offset, and who reads what below it; through failover, restart and truncation."""

from __future__ import annotations

import pytest

from minilog.errors import (
    ProducerFenced,
)
from minilog.v1 import metadata_pb2
from tests.rules import proves
from tests.unit.replication.broker import KEY
from tests.unit.replication.cluster import ReplicaCluster
from tests.unit.replication.transacting import (
    UNCOMMITTED,
    abort,
    begin,
    commit,
    cut_off,
    error_of,
    offsets,
    send,
    stable,
)


@proves("TX.11")
def test_the_last_stable_offset_waits_for_the_marker_to_be_committed_on_every_replica() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    begin(cluster, 7)
    cluster.produce(1)
    cluster.settle()
    assert [stable(cluster, broker_id) for broker_id in (1, 2, 3)] == [1, 1, 1]
    cut_off(cluster, 2, 3)
    cluster.write_markers(1, commit(7))
    cluster.settle()
    assert stable(cluster) == 1, "an uncommitted marker moves nothing"
    cluster.cut.clear()
    cluster.advance(500)
    assert [stable(cluster, broker_id) for broker_id in (1, 2, 3)] == [4, 4, 4]


def test_list_offsets_tells_the_last_stable_offset() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    begin(cluster, 7)
    entry = metadata_pb2.ListOffsetsEntry(leader_epoch=-1, timestamp_us=0)
    entry.partition_id.topic_id, entry.partition_id.partition = KEY
    told = cluster[1].list_offsets(entry)
    assert (told.last_stable_offset, told.high_watermark, told.offset) == (1, 2, 0)


@proves("PR.9", "TX.13")
def test_a_restart_knows_what_was_open_and_what_had_ended() -> None:
    cluster = ReplicaCluster(brokers=1)
    begin(cluster, 7)
    begin(cluster, 8)
    cluster.write_markers(1, abort(8))
    cluster.settle()
    cluster[1].manager.stop_leading(cluster.now_ms)
    cluster[1].run()
    cluster[1].work()
    cluster[1].crash()
    cluster[1].restart()
    cluster.settle()
    assert stable(cluster) == 0
    leader = cluster[1].leader()
    assert leader is not None
    assert leader.aborted_within(0, 10) == [8]
    assert error_of(cluster, send(cluster, 8, 1)) is ProducerFenced


@proves("TX.13")
def test_transactions_are_truncated_with_the_log() -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    cut_off(cluster, 2, 3)
    cluster.write_markers(1, abort(7))
    cluster.settle()
    cluster.controller.move(KEY, 2)
    cluster.settle()
    cluster.cut.clear()
    cluster.produce(2)
    cluster.advance(500)
    assert [stable(cluster, broker_id) for broker_id in (1, 2, 3)] == [0, 0, 0], "the marker is gone, 7 is open again"
    ticket = cluster.write_markers(2, commit(7))
    cluster.settle()
    assert cluster[2].marked[ticket] is None
    cluster.advance(100)
    assert [stable(cluster, broker_id) for broker_id in (1, 2, 3)] == [3, 3, 3]


# -- who reads what


@proves("TX.12")
@pytest.mark.parametrize("broker_id", [1, 2])
def test_who_reads_what_is_committed_is_sent_nothing_above_the_last_stable_offset(broker_id: int) -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    begin(cluster, 7)
    cluster.advance(10)
    committed, all_ = cluster.consume(broker_id, 0), cluster.consume(broker_id, 0, isolation=UNCOMMITTED)
    cluster.settle()
    assert offsets(cluster, broker_id, committed) == [0]
    assert offsets(cluster, broker_id, all_) == [0, 1]
    cluster.write_markers(1, commit(7))
    cluster.settle()
    cluster.advance(10)
    assert offsets(cluster, broker_id, committed) == [0, 1, 2], "woken, with the transaction and its marker"
    assert [run.last_stable_offset for run in cluster.runs(broker_id, committed)][-1] == 3


@proves("TX.12")
@pytest.mark.parametrize("broker_id", [1, 2])
def test_a_run_tells_whose_batches_in_it_were_aborted(broker_id: int) -> None:
    cluster = ReplicaCluster()
    begin(cluster, 7)
    begin(cluster, 8)
    cluster.write_markers(1, commit(7), abort(8))
    cluster.settle()
    begin(cluster, 9)
    cluster.write_markers(1, abort(9))
    cluster.settle()
    cluster.advance(100)
    whole = cluster.consume(broker_id, 0)
    later = cluster.consume(broker_id, 3)
    all_ = cluster.consume(broker_id, 0, isolation=UNCOMMITTED)
    cluster.settle()
    told = [
        [list(run.aborted_producer_ids) for run, batches in cluster.pushed(broker_id, s) if batches]
        for s in (whole, later)
    ]
    assert told == [[[8, 9]], [[9]]]
    assert [list(run.aborted_producer_ids) for run, batches in cluster.pushed(broker_id, all_) if batches] == [[]]


@proves("TX.12")
def test_without_transactions_both_isolation_levels_are_sent_the_same() -> None:
    cluster = ReplicaCluster()
    sessions = [cluster.consume(1, 0), cluster.consume(1, 0, isolation=UNCOMMITTED)]
    for _ in range(3):
        cluster.produce(1)
    cluster.settle()
    assert [offsets(cluster, 1, session_id) for session_id in sessions] == [[0, 1, 2], [0, 1, 2]]
