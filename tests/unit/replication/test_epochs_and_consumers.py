"""Leader epochs, divergence over the wire, and consumers: docs/spec/replication.md § Sessions and § Reading."""

from __future__ import annotations

from minilog.record_batch.header import iterate_headers
from minilog.v1 import common_pb2
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.replica_effects import AppendToLog, RecordEpochStart
from tests.rules import proves
from tests.unit.replication.cluster import KEY, ReplicaCluster, batch

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


@proves("SE.6")
def test_a_position_of_a_lower_epoch_is_fenced_and_of_a_higher_one_waits_for_it() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    fenced, early = cluster.consume(1, 0, leader_epoch=0), cluster.consume(1, 0, leader_epoch=1)
    cluster.settle()
    assert cluster.runs(1, early)[0].error.code == common_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH
    cluster.controller.move(KEY, 1)
    cluster.advance(100)
    assert cluster.runs(1, fenced)[-1].error.code == common_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
    assert cluster.pushed(1, early)[-1][1], "the epoch came, and with it the records"


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


@proves("SE.22")
def test_a_follower_below_the_leaders_log_start_starts_anew_there() -> None:
    cluster = ReplicaCluster()
    cluster[3].crash()
    cluster.controller.fence(3)
    cluster.settle()
    for _ in range(4):
        cluster.produce(1)
    cluster.settle()
    cluster[1].logs[KEY].advance_log_start(3)
    cluster[1].manager.log_start_moved(KEY, cluster.now_ms)
    cluster[3].restart()
    cluster.advance(500)
    assert cluster[3].logs[KEY].log_start_offset == 3
    assert cluster[3].ends() == (4, 4, 4)


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


def test_a_consumer_reads_up_to_the_high_watermark_and_waits_there() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    session_id = cluster.consume(1, 0)
    cluster.produce(1)
    while cluster[1].disk:
        cluster[1].work()
    while session_id in cluster[1].consumers_ready:
        cluster.pull_consumer(cluster[1], session_id)
    assert [run.first_offset for run, batches in cluster.pushed(1, session_id) if batches] == [0]
    cluster.settle()
    assert [run.first_offset for run, batches in cluster.pushed(1, session_id) if batches] == [0, 1]


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


@proves("HW.7")
def test_out_of_range_is_only_below_the_log_start_or_above_a_known_end() -> None:
    cluster = ReplicaCluster()
    for _ in range(3):
        cluster.produce(1)
    cluster.settle()
    cluster[1].logs[KEY].advance_log_start(2)
    below, above, inside = cluster.consume(1, 1), cluster.consume(1, 4), cluster.consume(1, 3)
    cluster.controller_answers(1)
    cluster.settle()
    for session_id in (below, above):
        assert cluster.runs(1, session_id)[0].error.code == common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    assert not cluster.runs(1, inside)[0].error.code


@proves("HW.7")
def test_above_the_end_of_a_leader_that_does_not_know_its_end_waits() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    cluster.cut.update({(3, 2), (1, 2)})
    cluster.controller.move(KEY, 2)
    cluster.settle()
    session_id = cluster.consume(2, 9)
    cluster.controller_answers(2)
    cluster.settle()
    assert cluster.runs(2, session_id) == []
    cluster.cut.clear()
    cluster.advance(1_000)
    assert cluster.runs(2, session_id)[0].error.code == common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE


def test_an_offset_above_the_end_is_refused_when_the_controller_has_answered_since() -> None:
    """Seed 981163: a reader knew it from the next leader, of whom the one that was cut off had heard nothing."""
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    cluster.controller_answers(1)
    cluster.advance(1)
    session_id = cluster.consume(1, 4)
    cluster.settle()
    assert cluster.runs(1, session_id) == []
    cluster.controller.move(KEY, 2)
    cluster.settle()
    assert cluster.runs(1, session_id)[0].error.code != common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE


def test_nothing_at_or_above_a_given_end_is_sent_but_the_batch_around_it() -> None:
    cluster = ReplicaCluster()
    for _ in range(3):
        cluster.produce(1, batch(4))
        cluster.settle()
    session_id = cluster.consume(1, 0, end_offset=6)
    cluster.settle()
    offsets = [h.base_offset for _, batches in cluster.pushed(1, session_id) for _, h in iterate_headers(batches)]
    assert offsets == [0, 4]
    cluster.produce(1)
    cluster.settle()
    assert len([run for run, batches in cluster.pushed(1, session_id) if batches]) == 2


def test_a_position_inside_a_batch_is_sent_the_whole_batch() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1, batch(4))
    cluster.settle()
    session_id = cluster.consume(1, 2)
    cluster.settle()
    assert cluster.runs(1, session_id)[0].first_offset == 0


def test_a_seek_is_a_new_position_number_and_runs_name_it() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    session_id = cluster.consume(1, 0)
    cluster.settle()
    cluster.fetch(1, session_id, 0, position_number=2)
    cluster.settle()
    assert [run.position_number for run, batches in cluster.pushed(1, session_id) if batches] == [1, 2]


def test_a_consumers_divergence_is_told() -> None:
    cluster = ReplicaCluster()
    cluster.produce(1)
    cluster.settle()
    session_id = cluster.consume(1, 5, last_fetched_epoch=0)
    cluster.settle()
    told = cluster.runs(1, session_id)[0].diverging_epoch
    assert (told.epoch, told.end_offset) == (0, 1)


def test_who_has_no_replica_says_so() -> None:
    cluster = ReplicaCluster(leader_id=None)
    cluster.controller.create(KEY, (1, 2), 1)
    session_id = cluster.consume(3, 0)
    cluster.settle()
    assert cluster.runs(3, session_id)[0].error.code == common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


def test_a_topic_that_is_deleted_ends_its_replicas_and_sessions() -> None:
    cluster = ReplicaCluster()
    session_id = cluster.consume(1, 0)
    cluster.controller.delete(KEY)
    cluster.advance(100)
    assert cluster.runs(1, session_id)[-1].error.code == common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert not cluster[1].logs
    assert not cluster[2].links


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
