"""A copy that is damaged where it was sound when it was written: found by whoever reads it, and given up."""

from __future__ import annotations

from minilog.v1 import common_pb2, data_pb2
from minilog_broker.storage.segment import segment_path
from tests.unit.replication.world import KEY, World


def flip_a_bit(world: World, broker_id: int) -> None:
    content = world[broker_id].files.open(segment_path(world[broker_id].logs[KEY].directory, 0)).content
    content[-1] ^= 1


def test_a_leader_whose_consumer_asks_again_looks_at_its_own_copy_and_gives_it_up() -> None:
    world = World()
    world.produce(1)
    world.settle()
    flip_a_bit(world, 1)
    session = world.consume(1, 0)
    world.settle()
    assert not world[1].offline, "what is sent is not looked at"
    world.fetch(1, session, 0, position_number=2)
    world.settle()
    assert KEY in world[1].offline
    last = world.runs(1, session)[-1]
    assert last.error.code == common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


def test_what_a_consumer_had_let_go_of_meanwhile_is_looked_at_too_and_not_the_first_batch_only() -> None:
    world = World()
    for _ in range(3):
        world.produce(1)
    world.settle()
    flip_a_bit(world, 1)
    session = world.consume(1, 0)
    world.settle()
    let_go = data_pb2.FetchRequest(credit_bytes=1 << 30)
    let_go.forgotten.add(topic_id=KEY.topic_id, partition=KEY.partition)
    world[1].manager.fetch_request(session, let_go, world.now_ms)
    assert not world[1].offline
    world.fetch(1, session, 0, position_number=2)
    world.settle()
    assert KEY in world[1].offline


def test_a_sound_copy_is_sent_again() -> None:
    world = World()
    world.produce(1)
    world.settle()
    session = world.consume(1, 0)
    world.settle()
    world.fetch(1, session, 0, position_number=2)
    world.settle()
    assert not world[1].offline
    assert [run.first_offset for run in world.runs(1, session) if run.batches] == [0, 0]
