"""Who is put out of the ISR, by a whole cluster with the real controller: by hand, where a search seldom goes.

A copy that rots, is found and is cut within one life of its broker; a follower that its leader alone does not hear; a
disk that fails, or is full. The rules by themselves: tests/unit/replication/test_put_out.py.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass

import pytest

from minilog.v1 import data_pb2
from minilog_broker.replication.partition_state import PartitionKey, PartitionState
from tests.simulation.cluster import Cluster
from tests.simulation.history import History, Outcome
from tests.simulation.invariants.judge import Judge
from tests.simulation.node import Node
from tests.simulation.plan import Plan
from tests.simulation.rot import spot_below_the_recorded_mark
from tests.simulation.workload import Workload


@dataclass
class Scene:
    """A calm cluster of four nodes with one partition of three replicas, one producer and all invariants. Node 1 is the
    controller and has no replica: what is done to the others is not done to it."""

    cluster: Cluster
    history: History
    judge: Judge
    key: PartitionKey

    @property
    def state(self) -> PartitionState:
        return self.judge.metadata.image.partitions[self.key]

    @property
    def leader(self) -> Node:
        return self.cluster.nodes[self.state.leader_id]

    def followers(self) -> list[Node]:
        return [self.cluster.nodes[each] for each in self.state.replicas if each != self.state.leader_id]

    def high_watermark(self) -> int:
        assert self.leader.life is not None
        return self.leader.life.logs[self.key].high_watermark

    def cut(self, follower: Node) -> None:
        """From the leader only."""
        ids = (follower.node_id, self.leader.node_id)
        for one, other in (ids, ids[::-1]):
            self.cluster.network.condition(one, other).cut = True


def scene(write_pause_ms: float, lag_ms: float = 10_000.0) -> Scene:
    plan = Plan.calm(
        nodes=4,
        voters=1,
        topic_count=1,
        partitions=1,
        replication_factor=3,
        min_in_sync=2,
        segment_bytes=1 << 20,
        checkpoint_interval_ms=300.0,
        safety_ms=120_000.0,
        producer_counts=(1,),
        consumer_counts=(1,),
        consumer_racks=("",),
        write_pauses_ms=(write_pause_ms,),
        replica_lag_time_max_ms=lag_ms,
        delivery_timeouts_ms=(12_000,),
    )
    for seed in range(1, 40):
        cluster, history = Cluster(seed, plan), History()
        judge = Judge(cluster, history)
        cluster.observers.append(judge)
        Workload(cluster, history, judge)
        cluster.run_for(3_500.0)
        image = judge.metadata.image
        key = next(each for each in image.partitions if image.topics[each.topic_id].name == "t0")
        if len(image.partitions[key].in_sync_replicas) == 3 and 1 not in image.partitions[key].replicas:
            return Scene(cluster, history, judge, key)
    raise AssertionError("no seed places the replicas beside the controller")


LOOKS = 100


def find_rot(scene: Scene, node: Node) -> None:
    """A bit flips below the high watermark; a consumer says that what it was sent came damaged."""
    life = node.life
    assert life is not None
    spot = spot_below_the_recorded_mark(life.logs[scene.key], random.Random(3))
    assert spot is not None
    node.files.flip_bit(*spot, 3)
    node.harmed[scene.key] = scene.cluster.now_ms
    session_id = 10**9
    life.manager.open_consumer_session(session_id, data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED, life.now_ms)
    request = data_pb2.FetchRequest(credit_bytes=1 << 20)
    position = request.positions.add(fetch_offset=0, position_number=2, leader_epoch=-1, came_damaged=True)
    position.partition_id.topic_id, position.partition_id.partition = scene.key
    life.manager.fetch_request(session_id, request, life.now_ms)
    life.replicas.run()
    for _ in range(LOOKS):  # the disk's thread looks at the copy
        if scene.key in life.offline:
            return
        scene.cluster.run_for(1.0)
    raise AssertionError("the rot was not found")


def test_a_copy_that_was_cut_joins_by_what_it_told_since() -> None:
    """Cut off from its leader only; then the leader is killed: nothing that is committed is lost (V5, V14)."""
    here = scene(write_pause_ms=300.0)
    leader, node = here.leader, here.followers()[0]
    here.cut(node)
    find_rot(here, node)
    here.cluster.run_for(3_000.0)
    assert here.judge.states["damaged logs cut in one life"] == 1
    assert node.node_id not in here.state.in_sync_replicas
    leader.kill()
    here.cluster.run_for(3_000.0)
    here.cluster.network.heal()
    leader.start()
    here.cluster.run_for(5_000.0)
    assert len(here.state.in_sync_replicas) == 3


def test_a_follower_that_its_leader_does_not_hear_stays_out() -> None:
    here = scene(write_pause_ms=100.0, lag_ms=2_000.0)
    cut_off, dead = here.followers()
    dead.wants_life = False
    dead.kill()
    here.cluster.run_for(1_000.0)
    here.cut(cut_off)
    epoch, high_watermark = here.state.partition_epoch, here.high_watermark()
    here.cluster.run_for(15_000.0)
    assert here.state.partition_epoch == epoch + 1, "put out, once"
    assert here.state.in_sync_replicas == (here.leader.node_id,)
    assert here.history.counts()[Outcome.FAILED] > 20, "what cannot be committed is refused before it is written"
    here.cluster.network.heal()
    here.cluster.run_for(4_000.0)
    assert cut_off.node_id in here.state.in_sync_replicas
    assert here.high_watermark() > high_watermark


@pytest.mark.parametrize("what", ["I/O error", "full disk"])
def test_nobody_waits_for_a_disk_that_fails(what: str) -> None:
    here = scene(write_pause_ms=50.0)
    node = here.followers()[0]
    assert node.life is not None
    if what == "full disk":
        node.files.fill(".log", "/reserve")
    else:
        node.files.fail("fdatasync", errno.EIO, node.life.logs[here.key].directory + "/")
    longest_ms, moved_ms, high_watermark = 0.0, here.cluster.now_ms, here.high_watermark()
    end_ms = moved_ms + 13_000.0
    while here.cluster.now_ms < end_ms and here.cluster.step():
        if here.high_watermark() != high_watermark:
            high_watermark = here.high_watermark()
            longest_ms, moved_ms = max(longest_ms, here.cluster.now_ms - moved_ms), here.cluster.now_ms
    longest_ms = max(longest_ms, here.cluster.now_ms - moved_ms)
    assert node.node_id not in here.state.in_sync_replicas
    assert longest_ms < 1_000.0, f"the high watermark stood for {longest_ms:.0f} ms"
