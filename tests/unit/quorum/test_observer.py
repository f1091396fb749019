"""Observers: every image is the replay of a committed prefix of the one log (V13)."""

from __future__ import annotations

import pytest

from minilog.errors import InconsistentClusterId, InconsistentVoters, NotController, NotLeaderOrFollower
from minilog.v1 import peer_pb2
from minilog_broker.quorum.effects import SessionRefused
from minilog_broker.quorum.records import encode_records, place
from tests.unit.quorum.world import TIMESTAMP_US, World, directory_id, topic_record


def pair() -> World:
    world = World()
    world.start(1)
    world.start(2)
    world.settle()
    return world


def test_an_observer_adopts_the_epoch_and_replays_what_is_committed() -> None:
    world = pair()
    world.node(1).append_records([topic_record("a")], TIMESTAMP_US)
    world.settle()
    assert world.node(2).epoch == 1
    assert world.machine(2).image == world.machine(1).image
    assert world.machine(2).image.end_offset == 3


def test_an_observer_has_what_is_not_committed_and_does_not_replay_it() -> None:
    world = pair()
    world.node(1).append_records([topic_record("a")], TIMESTAMP_US)
    world.write(1)  # not synced
    for _ in range(5):
        world.now_ms += 6.0
        while world.exchange(2):
            world.write(2)
            world.flush(2)
    assert world.node(2).log_end_offset == 3
    assert "a" not in world.machine(2).image.topic_ids
    world.settle()
    assert "a" in world.machine(2).image.topic_ids


def test_an_observer_does_not_count_for_the_commit() -> None:
    world = pair()
    world.node(1).append_records([topic_record("a")], TIMESTAMP_US)
    world.write(1)
    while world.exchange(2):
        world.write(2)
        world.flush(2)
    assert world.node(1).committed_end_offset == 2


def test_an_observer_that_has_what_the_leader_lost_truncates_it() -> None:
    world = pair()
    world.node(1).append_records([topic_record("lost")], TIMESTAMP_US)
    world.write(1)
    while world.exchange(2):
        world.write(2)
        world.flush(2)
    assert world.node(2).log_end_offset == 3
    world.stop(1, power_loss=True)
    world.start(1)
    world.settle()
    if "lost" not in world.machine(1).image.topic_ids:
        assert "lost" not in world.machine(2).image.topic_ids
    world.node(1).append_records([topic_record("kept")], TIMESTAMP_US)
    world.settle()
    assert world.machine(2).image == world.machine(1).image
    assert world.node(2).epoch == 2
    first, second = world.machine(1).log, world.machine(2).log
    assert first is not None
    assert second is not None
    assert first.read(0, 1 << 20) == second.read(0, 1 << 20)


@pytest.mark.parametrize("seed", range(15))
def test_after_any_history_of_crashes_all_have_the_same_log(seed: int) -> None:
    world = World(seed)
    for node_id in (1, 2, 3):
        world.start(node_id)
    world.settle()
    for step in range(12):
        victim = world.random.choice((1, 2, 3))
        if world.node(1).is_active:
            world.node(1).append_records([topic_record(f"t{step}")], TIMESTAMP_US)
        world.write(1)
        world.exchange(world.random.choice((2, 3)))
        if world.random.random() < 0.5:
            world.stop(victim, power_loss=world.random.random() < 0.5)
            world.start(victim)
        else:
            world.break_stream(victim)
        world.settle(for_ms=world.random.choice((10.0, 50.0, 700.0)))
    world.settle(for_ms=2_000)
    logs = [world.machine(node_id).log for node_id in (1, 2, 3)]
    contents = [log.read(0, 1 << 20) for log in logs if log is not None]
    assert contents[0] == contents[1] == contents[2]
    assert world.machine(1).image == world.machine(2).image == world.machine(3).image


def test_what_was_replayed_is_never_truncated() -> None:
    world = pair()
    world.node(1).append_records([topic_record("a")], TIMESTAMP_US)
    world.settle()
    # Another cluster answers at the leader's address, in a higher epoch.
    world.stop(1)
    other = World(seed=5)
    for _ in range(3):
        other.start(1)
        other.settle()
        other.stop(1)
    world.machines[1] = other.machines[1]
    world.start(1)
    with pytest.raises((InconsistentClusterId, InconsistentVoters)):
        world.settle(for_ms=2_000)


def test_an_observer_of_another_cluster_is_told_so() -> None:
    world = World()
    world.start(1)
    world.machine(2).cluster_id = "another"
    world.start(2)
    with pytest.raises(InconsistentClusterId, match="belongs to cluster another"):
        world.settle()


def test_an_observer_decides_nothing_and_serves_nobody() -> None:
    world = pair()
    node = world.node(2)
    assert not node.is_active
    assert node.leader_id == 1
    with pytest.raises(NotController, match="broker 1 is"):
        node.append_records([topic_record("a")], TIMESTAMP_US)
    node.open_session(7, peer_pb2.ReplicateRequest(broker_id=3, broker_epoch=-1), world.now_ms)
    (refusal,) = [effect for effect in node.take_effects() if isinstance(effect, SessionRefused)]
    assert isinstance(refusal.error, NotLeaderOrFollower)


def test_a_session_is_opened_before_registration_and_says_that_it_is_the_metadata_logs() -> None:
    world = World()
    world.start(1)
    world.settle()
    world.start(2)
    world.collect(2)
    request = world.node(2).next_request(world.now_ms)
    assert request is not None
    assert (request.cluster_metadata, request.broker_id, request.broker_epoch) == (True, 2, -1)


def test_a_silent_stream_is_dropped_on_both_sides_and_opened_anew() -> None:
    world = pair()
    before = world.streams[2]
    for _ in range(70):  # nothing is carried between the two for 700 ms
        world.now_ms += 10.0
        world.node(1).tick(world.now_ms)
        world.node(2).tick(world.now_ms)
        world.collect(1)
        world.collect(2)
    assert world.refused
    world.settle(for_ms=1_000)
    assert world.streams[2] != before
    world.node(1).append_records([topic_record("a")], TIMESTAMP_US)
    world.settle()
    assert "a" in world.machine(2).image.topic_ids


def test_a_node_that_stood_still_blames_nobody() -> None:
    world = pair()
    before = world.streams[2]
    world.now_ms += 60_000.0
    world.node(1).tick(world.now_ms)
    world.node(2).tick(world.now_ms)
    world.collect(1)
    world.collect(2)
    assert world.refused == []
    assert world.streams[2] == before


def test_a_replica_that_lost_its_directory_starts_anew_from_the_beginning() -> None:
    world = pair()
    world.node(1).append_records([topic_record("a")], TIMESTAMP_US)
    world.settle()
    world.stop(2)
    del world.machines[2]
    world.start(2, directory=directory_id(9))
    world.settle()
    assert world.machine(2).image == world.machine(1).image


def test_a_batch_meant_for_another_log_is_not_appended() -> None:
    world = pair()
    batch = bytearray(bytes(place(encode_records([topic_record("a")], TIMESTAMP_US), 2, 1).buffers[0]))
    batch[-12] ^= 1
    leader = world.node(1)
    assert leader._leader is not None
    end = world.node(2).log_end_offset
    message = leader.next_message(world.streams[2], world.now_ms + 200)
    assert message is not None
    run = message.runs.add(leader_epoch=1, first_offset=2, previous_epoch=1, batches=bytes(batch), high_watermark=3)
    run.partition_id.topic_id = bytes(15) + b"\x01"
    assert world.node(2)._observer is not None
    run.position_number = world.node(2)._observer._follower.position_number
    world.node(2).leader_message(message, world.now_ms + 200)
    world.write(2)
    assert world.node(2).log_end_offset == end
