"""The last stable offset, and who reads what below it; through failover, restart and truncation."""

from __future__ import annotations

from minilog.errors import (
    ProducerFenced,
)
from minilog.v1 import metadata_pb2
from tests.rules import proves
from tests.unit.replication.broker import KEY
from tests.unit.replication.cluster import ReplicaCluster
from tests.unit.replication.transacting import (
    abort,
    begin,
    commit,
    cut_off,
    error_of,
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
