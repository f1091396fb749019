"""Leader epochs, divergence over the wire, and consumers: docs/spec/replication.md § Sessions and § Reading."""

from __future__ import annotations

from minilog.v1 import common_pb2
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.replica_effects import AppendToLog, RecordEpochStart
from tests.rules import proves
from tests.unit.replication.cluster import KEY, ReplicaCluster

# -- leader epochs


@proves("SE.12")
def test_the_start_of_an_epoch_is_recorded_before_its_first_append() -> None:
    cluster = ReplicaCluster()
    cluster.controller.move(KEY, 2)
    cluster.settle()
    cluster.produce(2)
    cluster.settle()
    of_epoch = [e for e in cluster[2].history if isinstance(e, RecordEpochStart | AppendToLog)]
    assert of_epoch[0] == RecordEpochStart(KEY, 1, 0)
    assert isinstance(of_epoch[1], AppendToLog)


def leads(leader: LeaderPartition) -> bool:
    return leader.leading


@proves("SE.12")
def test_a_new_leader_waits_for_its_own_disk_before_it_begins() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    while not cluster[2].disk:
        next(step for step in cluster.steps() if step.__name__ != "flush")()
    cluster.controller.move(KEY, 2)
    while cluster[2].images_replayed < len(cluster.controller.images):
        cluster.replay(cluster[2])
    leader = cluster[2].leader()
    assert leader is not None
    assert not leads(leader)
    cluster[2].work()
    assert leads(leader)
    assert leader.epoch_start == 1


@proves("SE.5")
def test_its_own_reelection_makes_a_leader_forget_all_positions_and_progress() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    cluster.controller.move(KEY, 1)
    while cluster[1].images_replayed < len(cluster.controller.images):
        cluster.replay(cluster[1])
    leader = cluster[1].leader()
    assert leader is not None
    assert all(view.durable_end is None and not view.accepted for view in leader.in_sync.views.values())
    cluster.produce(1, acks=1)
    while cluster[1].disk:
        cluster[1].work()
    for link in cluster.links():
        while link.down_ready:
            cluster.pull_down(link)
        assert not any(batches for sent in link.down for batches in sent.payloads), "pushed before a new position"
    cluster.settle()
    cluster.advance(100)
    assert [cluster[b].ends()[2] for b in (1, 2, 3)] == [2, 2, 2]


@proves("ISR.14")
def test_a_leader_epoch_belongs_to_one_life() -> None:
    cluster = ReplicaCluster(brokers=1)
    cluster[1].crash()
    before = cluster.controller.partitions[KEY]
    cluster[1].restart()
    while cluster[1].images_replayed < len(cluster.controller.images) - 1:
        cluster.replay(cluster[1])
        assert cluster[1].leader() is None, "an epoch of its earlier life"
    cluster.settle()
    leader = cluster[1].leader()
    assert leader is not None
    assert leader.leader_epoch > before.leader_epoch


@proves("SE.11")
def test_all_seven_shapes_end_as_a_prefix_over_the_wire() -> None:
    """Two leaders that cannot hear each other write; whoever leads last has it their way."""
    cluster = ReplicaCluster(min_in_sync=1)
    for round_ in range(6):
        leader_id, other_id = (1, 2) if round_ % 2 else (2, 1)
        cluster.cut = {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b}
        for link in cluster.links():
            cluster.break_link(link)
        cluster.controller.move(KEY, leader_id)
        cluster.settle()
        for _ in range(round_ % 3 + 1):
            cluster.produce(leader_id, acks=1)
        cluster.settle()
        cluster.controller.move(KEY, other_id)
        cluster.settle()
        cluster.produce(other_id, acks=1)
        cluster.settle()
    cluster.cut.clear()
    cluster.advance(1_000)
    logs = [[(h.base_offset, h.partition_leader_epoch, h.crc) for h in cluster[b].headers()] for b in (1, 2, 3)]
    assert logs[0] == logs[1] == logs[2]
    assert len({cluster[b].ends() for b in (1, 2, 3)}) == 1


@proves("SE.20")
def test_a_leader_whose_own_copy_is_bad_resigns_as_damaged() -> None:
    cluster = ReplicaCluster()
    cluster[2].crash()
    cluster.controller.fence(2)
    cluster.settle()
    cluster.produce(1)
    cluster.settle()
    cluster[1].flip_bit()
    cluster[2].restart()
    cluster.advance(2_000)
    assert KEY in cluster[1].offline
    assert cluster[1].leader() is None


# -- consumers


@proves("HW.7")
def test_a_read_above_the_high_watermark_waits() -> None:
    cluster = ReplicaCluster()
    session_id = cluster.consume(1, 1)
    cluster.controller_answers(1)
    cluster.settle()
    cluster.produce(1)
    while cluster[1].disk:
        cluster[1].work()
    again = cluster.consume(1, 1)
    while again in cluster[1].consumers_ready:
        cluster.pull_consumer(cluster[1], again)
    assert not any(run.error.code or batches for run, batches in cluster.pushed(1, again))
    assert cluster.runs(1, session_id)[0].error.code == common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    cluster.produce(1)
    cluster.settle()
    assert cluster.runs(1, again)[-1].first_offset == 1


def test_a_broker_without_a_replica_says_so() -> None:
    cluster = ReplicaCluster(leader_id=None)
    cluster.controller.create(KEY, (1, 2), 1)
    session_id = cluster.consume(3, 0)
    cluster.settle()
    assert cluster.runs(3, session_id)[0].error.code == common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


def test_a_follower_whose_cut_finds_the_disk_full_is_cut_when_there_is_space() -> None:
    """Found by the simulator (seed 1100530): its replica was offline until the broker started anew."""
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    for follower_id in (2, 3):
        cluster.cut.add((follower_id, 1))
        cluster.break_link(cluster[follower_id].links[1])
    cluster.produce(1)
    cluster.settle(controller=False)
    old_leader = cluster[1]
    old_leader.logs[KEY].write_checkpoint()
    assert old_leader.logs[KEY].durable_end_offset == 2
    old_leader.files.fill("/")
    cluster.controller.move(KEY, 2)
    cluster.settle()
    assert KEY not in old_leader.offline
    assert old_leader.logs[KEY].log_end_offset == 2, "nothing is cut yet"
    old_leader.files.fill()
    cluster.produce(2)
    cluster.advance(3_000)
    logs = [[(h.base_offset, h.partition_leader_epoch) for h in cluster[broker].headers()] for broker in (1, 2)]
    assert logs[0] == logs[1]
    assert len(logs[0]) == 2
