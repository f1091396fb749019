"""Leader epochs, divergence over the wire, and consumers: docs/spec/replication.md § Sessions and § Reading."""

from __future__ import annotations

from minilog.record_batch.header import iterate_headers
from minilog.v1 import common_pb2
from minilog_broker.replication.effects import AppendToLog, RecordEpochStart
from minilog_broker.replication.leader import LeaderPartition
from tests.unit.replication.world import KEY, World, batch

# -- leader epochs


def test_the_start_of_an_epoch_is_recorded_before_its_first_append() -> None:
    world = World()
    world.controller.move(KEY, 2)
    world.settle()
    world.produce(2)
    world.settle()
    of_epoch = [e for e in world[2].history if isinstance(e, RecordEpochStart | AppendToLog)]
    assert of_epoch[0] == RecordEpochStart(KEY, 1, 0)
    assert isinstance(of_epoch[1], AppendToLog)


def leads(leader: LeaderPartition) -> bool:
    return leader.leading


def test_a_new_leader_waits_for_its_own_disk_before_it_begins() -> None:
    world = World()
    world.produce(1)
    while not world[2].disk:
        next(step for step in world.steps() if step.__name__ != "flush")()
    world.controller.move(KEY, 2)
    while world[2].images_replayed < len(world.controller.images):
        world.replay(world[2])
    leader = world[2].leader()
    assert leader is not None
    assert not leads(leader)
    world[2].work()
    assert leads(leader)
    assert leader.epoch_start == 1


def test_its_own_reelection_makes_a_leader_forget_all_positions_and_progress() -> None:
    world = World()
    world.produce(1)
    world.settle()
    world.controller.move(KEY, 1)
    while world[1].images_replayed < len(world.controller.images):
        world.replay(world[1])
    leader = world[1].leader()
    assert leader is not None
    assert all(view.durable_end is None and not view.accepted for view in leader.in_sync.views.values())
    world.produce(1, acks=1)
    while world[1].disk:
        world[1].work()
    for link in world.links():
        while link.down_ready:
            world.pull_down(link)
        assert not any(batches for sent in link.down for batches in sent.payloads), "pushed before a new position"
    world.settle()
    world.advance(100)
    assert [world[b].ends()[2] for b in (1, 2, 3)] == [2, 2, 2]


def test_a_position_of_a_lower_epoch_is_fenced_and_of_a_higher_one_waits_for_it() -> None:
    world = World()
    world.produce(1)
    world.settle()
    fenced, early = world.consume(1, 0, leader_epoch=0), world.consume(1, 0, leader_epoch=1)
    world.settle()
    assert world.runs(1, early)[0].error.code == common_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH
    world.controller.move(KEY, 1)
    world.advance(100)
    assert world.runs(1, fenced)[-1].error.code == common_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
    assert world.pushed(1, early)[-1][1], "the epoch came, and with it the records"


def test_a_leader_epoch_belongs_to_one_life() -> None:
    world = World(brokers=1)
    world[1].crash()
    before = world.controller.partitions[KEY]
    world[1].restart()
    while world[1].images_replayed < len(world.controller.images) - 1:
        world.replay(world[1])
        assert world[1].leader() is None, "an epoch of its earlier life"
    world.settle()
    leader = world[1].leader()
    assert leader is not None
    assert leader.leader_epoch > before.leader_epoch


def test_all_seven_shapes_end_as_a_prefix_over_the_wire() -> None:
    """Two leaders that cannot hear each other write; whoever leads last has it their way."""
    world = World(min_in_sync=1)
    for round_ in range(6):
        leader_id, other_id = (1, 2) if round_ % 2 else (2, 1)
        world.cut = {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b}
        for link in world.links():
            world.break_link(link)
        world.controller.move(KEY, leader_id)
        world.settle()
        for _ in range(round_ % 3 + 1):
            world.produce(leader_id, acks=1)
        world.settle()
        world.controller.move(KEY, other_id)
        world.settle()
        world.produce(other_id, acks=1)
        world.settle()
    world.cut.clear()
    world.advance(1_000)
    logs = [[(h.base_offset, h.partition_leader_epoch, h.crc) for h in world[b].headers()] for b in (1, 2, 3)]
    assert logs[0] == logs[1] == logs[2]
    assert len({world[b].ends() for b in (1, 2, 3)}) == 1


def test_a_follower_below_the_leaders_log_start_starts_anew_there() -> None:
    world = World()
    world[3].crash()
    world.controller.fence(3)
    world.settle()
    for _ in range(4):
        world.produce(1)
    world.settle()
    world[1].logs[KEY].advance_log_start(3)
    world[1].manager.log_start_moved(KEY, world.now_ms)
    world[3].restart()
    world.advance(500)
    assert world[3].logs[KEY].log_start_offset == 3
    assert world[3].ends() == (4, 4, 4)


def test_a_leader_whose_own_copy_is_bad_resigns_as_damaged() -> None:
    world = World()
    world[2].crash()
    world.controller.fence(2)
    world.settle()
    world.produce(1)
    world.settle()
    path = next(name for name in world[1].files._files if name.endswith(".log"))
    world[1].files._files[path].content[-1] ^= 1
    world[2].restart()
    world.advance(2_000)
    assert KEY in world[1].offline
    assert world[1].leader() is None


# -- consumers


def test_a_consumer_reads_up_to_the_high_watermark_and_waits_there() -> None:
    world = World()
    world.produce(1)
    world.settle()
    session_id = world.consume(1, 0)
    world.produce(1)
    while world[1].disk:
        world[1].work()
    while session_id in world[1].consumers_ready:
        world.pull_consumer(world[1], session_id)
    assert [run.first_offset for run, batches in world.pushed(1, session_id) if batches] == [0]
    world.settle()
    assert [run.first_offset for run, batches in world.pushed(1, session_id) if batches] == [0, 1]


def test_a_read_above_the_high_watermark_waits() -> None:
    world = World()
    session_id = world.consume(1, 1)
    world.settle()
    world.produce(1)
    while world[1].disk:
        world[1].work()
    again = world.consume(1, 1)
    while again in world[1].consumers_ready:
        world.pull_consumer(world[1], again)
    assert not any(run.error.code or batches for run, batches in world.pushed(1, again))
    assert world.runs(1, session_id)[0].error.code == common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    world.produce(1)
    world.settle()
    assert world.runs(1, again)[-1].first_offset == 1


def test_out_of_range_is_only_below_the_log_start_or_above_a_known_end() -> None:
    world = World()
    for _ in range(3):
        world.produce(1)
    world.settle()
    world[1].logs[KEY].advance_log_start(2)
    below, above, inside = world.consume(1, 1), world.consume(1, 4), world.consume(1, 3)
    world.settle()
    for session_id in (below, above):
        assert world.runs(1, session_id)[0].error.code == common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    assert not world.runs(1, inside)[0].error.code


def test_above_the_end_of_a_leader_that_does_not_know_its_end_waits() -> None:
    world = World()
    world.produce(1)
    world.settle()
    world.cut.update({(3, 2), (1, 2)})
    world.controller.move(KEY, 2)
    world.settle()
    session_id = world.consume(2, 9)
    world.settle()
    assert world.runs(2, session_id) == []
    world.cut.clear()
    world.advance(1_000)
    assert world.runs(2, session_id)[0].error.code == common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE


def test_nothing_at_or_above_a_given_end_is_sent_but_the_batch_around_it() -> None:
    world = World()
    for _ in range(3):
        world.produce(1, batch(4))
        world.settle()
    session_id = world.consume(1, 0, end_offset=6)
    world.settle()
    offsets = [h.base_offset for _, batches in world.pushed(1, session_id) for _, h in iterate_headers(batches)]
    assert offsets == [0, 4]
    world.produce(1)
    world.settle()
    assert len([run for run, batches in world.pushed(1, session_id) if batches]) == 2


def test_a_position_inside_a_batch_is_sent_the_whole_batch() -> None:
    world = World()
    world.produce(1, batch(4))
    world.settle()
    session_id = world.consume(1, 2)
    world.settle()
    assert world.runs(1, session_id)[0].first_offset == 0


def test_a_seek_is_a_new_position_number_and_runs_name_it() -> None:
    world = World()
    world.produce(1)
    world.settle()
    session_id = world.consume(1, 0)
    world.settle()
    world.fetch(1, session_id, 0, position_number=2)
    world.settle()
    assert [run.position_number for run, batches in world.pushed(1, session_id) if batches] == [1, 2]


def test_a_consumers_divergence_is_told() -> None:
    world = World()
    world.produce(1)
    world.settle()
    session_id = world.consume(1, 5, last_fetched_epoch=0)
    world.settle()
    told = world.runs(1, session_id)[0].diverging_epoch
    assert (told.epoch, told.end_offset) == (0, 1)


def test_who_has_no_replica_says_so() -> None:
    world = World(leader_id=None)
    world.controller.create(KEY, (1, 2), 1)
    session_id = world.consume(3, 0)
    world.settle()
    assert world.runs(3, session_id)[0].error.code == common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


def test_a_topic_that_is_deleted_ends_its_replicas_and_sessions() -> None:
    world = World()
    session_id = world.consume(1, 0)
    world.controller.delete(KEY)
    world.advance(100)
    assert world.runs(1, session_id)[-1].error.code == common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert not world[1].logs
    assert not world[2].links
