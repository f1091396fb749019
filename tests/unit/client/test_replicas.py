"""A consumer with client.rack reads from the replica in its rack, and goes back to the leader when it stands still."""

from __future__ import annotations

import pytest

from minilog.errors import OffsetOutOfRange, UnknownTopicId
from minilog.types import TopicPartition
from minilog.v1 import common_pb2, data_pb2, metadata_pb2
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers
from tests.unit.client.consuming import Consuming, fill

P0 = TopicPartition(TOPIC, 0)
RACKS = {1: "a", 2: "b", 3: "c"}


def near(*batches: int, rack: str = "b", end_offset: int | None = None, **settings: object) -> Consuming:
    """A consumer of partition 0, led by broker 1 in rack a; brokers 2 and 3 are in b and c."""
    world = Consuming(Brokers(brokers=(1, 2, 3)), client_rack=rack, **settings)
    world.brokers.racks = dict(RACKS)
    fill(world.brokers, *batches)
    world.core.assign([TopicPartition(TOPIC, 0, 0, end_offset)])
    world.run()
    return world


def offsets(world: Consuming) -> list[int]:
    return [offset for _, offset in world.read()]


def read_from(world: Consuming) -> int:
    """The broker that has the position now."""
    [broker] = [broker for broker, _ in world.positions]
    return broker


def refresh(world: Consuming) -> None:
    world.brokers.metadata_offset += 1
    world.cache.apply(world.brokers.metadata())
    world.core.metadata_changed(world.now)
    world.run()


def say(world: Consuming, broker: int, code: common_pb2.ErrorCode.ValueType) -> None:
    """An error from a broker that has the position."""
    run = data_pb2.PartitionRun(
        partition_id=common_pb2.PartitionId(topic_id=TOPIC_ID),
        position_number=world.positions[broker, 0].position_number,
        leader_epoch=world.brokers.log().epoch,
        error=common_pb2.Error(code=code),
    )
    world.receive(broker, (run, b""))
    del world.positions[broker, 0]
    world.run()


# -- the choice


@pytest.mark.parametrize(("rack", "broker"), [("b", 2), ("c", 3), ("a", 1), ("nowhere", 1), ("", 1)])
def test_the_replica_of_the_rack_is_read_from_or_the_leader(rack: str, broker: int) -> None:
    world = near(3, rack=rack)
    assert read_from(world) == broker
    world.push()
    assert offsets(world) == [0, 1, 2]


def test_a_leader_in_the_rack_is_preferred_to_a_follower_there() -> None:
    world = Consuming(Brokers(brokers=(1, 2, 3)), client_rack="a")
    world.brokers.racks = {1: "a", 2: "a", 3: "a"}
    world.core.assign([TopicPartition(TOPIC, 0, 0)])
    world.run()
    assert read_from(world) == 1


def test_partitions_spread_over_the_brokers_of_a_rack() -> None:
    world = Consuming(Brokers(partitions=4, brokers=(1, 2, 3)), client_rack="b")
    world.brokers.racks = {1: "a", 2: "b", 3: "b"}
    world.core.assign([TopicPartition(TOPIC, number, 0) for number in range(4)])
    world.run()
    assert sorted(world.positions) == [(2, 0), (2, 2), (3, 1), (3, 3)]


@pytest.mark.parametrize("how", ["not in sync", "fenced", "stopping"])
def test_only_a_replica_that_is_in_sync_and_running_is_chosen(how: str) -> None:
    brokers = Brokers(brokers=(1, 2, 3))
    brokers.racks = dict(RACKS)
    if how == "not in sync":
        brokers.in_sync = (1, 3)
    else:
        state = metadata_pb2.BROKER_STATE_FENCED if how == "fenced" else metadata_pb2.BROKER_STATE_STOPPING
        brokers.states[2] = state
    world = Consuming(brokers, client_rack="b")
    world.core.assign([TopicPartition(TOPIC, 0, 0)])
    world.run()
    assert read_from(world) == 1


def test_one_that_leaves_the_isr_is_left_and_one_that_joins_is_turned_to() -> None:
    world = near(2)
    world.push()
    world.brokers.in_sync = (1, 3)
    refresh(world)
    assert read_from(world) == 1
    world.brokers.in_sync = (1, 2, 3)
    fill(world.brokers, 2)
    refresh(world)
    assert read_from(world) == 2
    world.push()
    assert offsets(world) == [0, 1, 2, 3]


def test_offsets_are_asked_of_the_leader() -> None:
    world = Consuming(Brokers(brokers=(1, 2, 3)), client_rack="b", auto_offset_reset="latest")
    world.brokers.racks = dict(RACKS)
    fill(world.brokers, 2)
    world.core.assign([P0])
    world.run()
    assert [asked.where for asked in world.asked] == ["latest"]
    assert world.positions[2, 0].fetch_offset == 2


# -- going back to the leader


def test_a_follower_that_dies_is_left_at_once_without_a_gap_or_a_repeat() -> None:
    world = near(3)
    world.push()
    world.down = {2}
    del world.positions[2, 0]
    world.core.session_lost(2, world.now)
    fill(world.brokers, 2)
    world.run()
    assert read_from(world) == 1
    assert world.positions[1, 0].fetch_offset == 3
    world.push()
    assert offsets(world) == [0, 1, 2, 3, 4]


def test_where_the_rack_has_another_replica_that_one_is_next() -> None:
    world = Consuming(Brokers(brokers=(1, 2, 3)), client_rack="b")
    world.brokers.racks = {1: "a", 2: "b", 3: "b"}
    fill(world.brokers, 3)
    world.core.assign([TopicPartition(TOPIC, 0, 0)])
    world.run()
    world.push(limit=1)
    del world.positions[2, 0]
    world.core.session_lost(2, world.now)
    world.run()
    assert read_from(world) == 3


def test_it_is_not_turned_to_again_before_a_while() -> None:
    world = near(3)
    del world.positions[2, 0]
    world.core.session_lost(2, world.now)
    world.run(4_000)
    assert read_from(world) == 1
    world.run(1_200)
    assert read_from(world) == 2


@pytest.mark.parametrize(
    "code",
    [
        common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER,
        common_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH,
        common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE,
        common_pb2.ERROR_CODE_CORRUPT_MESSAGE,
    ],
)
def test_whatever_a_follower_says_the_leader_is_asked(code: common_pb2.ErrorCode.ValueType) -> None:
    world = near(3, auto_offset_reset="error")
    say(world, 2, code)
    assert read_from(world) == 1
    assert not world.asked
    world.push()
    assert offsets(world) == [0, 1, 2]


def test_what_the_leader_then_says_counts() -> None:
    world = near(3, auto_offset_reset="error")
    say(world, 2, common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE)
    say(world, 1, common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE)
    with pytest.raises(OffsetOutOfRange):
        world.core.take(1)


def test_a_follower_that_shows_a_divergence_is_not_believed() -> None:
    world = near(3)
    run = data_pb2.PartitionRun(
        partition_id=common_pb2.PartitionId(topic_id=TOPIC_ID), position_number=world.positions[2, 0].position_number
    )
    run.diverging_epoch.end_offset = 1
    del world.positions[2, 0]
    world.receive(2, (run, b""))
    world.run()
    assert read_from(world) == 1


def test_a_follower_whose_image_is_behind_is_left() -> None:
    world = near(3)
    stale = world.brokers.run(world.positions[2, 0])
    world.brokers.move(leader=3)
    world.cache.see_epoch(next(iter(world.cache._leaders)), 1)
    assert not world.receive(2, stale)
    assert offsets(world) == []


def test_a_bad_copy_on_the_follower_is_read_from_the_leader() -> None:
    world = near(2)
    run, batches = world.brokers.run(world.positions[2, 0])
    world.receive(2, (run, batches[:-8]))
    world.run(1_000)
    assert read_from(world) == 1
    world.push()
    assert offsets(world) == [0, 1]


def test_a_new_leader_epoch_is_followed_and_the_rack_counts_again() -> None:
    world = near(3)
    world.push()
    say(world, 2, common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER)
    assert read_from(world) == 1
    world.positions.clear()
    world.brokers.move(leader=3)
    refresh(world)
    assert read_from(world) == 2, "another epoch: what it could not do in the last one is no reason"
    assert world.positions[2, 0].leader_epoch == 1
    fill(world.brokers, 1)
    world.push()
    assert offsets(world) == [0, 1, 2, 3]


def test_a_follower_that_becomes_the_leader_is_told_the_new_epoch() -> None:
    world = near(3)
    world.push()
    world.brokers.move(leader=2)
    refresh(world)
    assert world.positions[2, 0].leader_epoch == 1
    fill(world.brokers, 1)
    world.push()
    assert offsets(world) == [0, 1, 2, 3]


def test_a_topic_that_is_deleted_is_an_error_as_from_a_leader() -> None:
    world = near(3)
    answer = world.brokers.metadata()
    answer.topics[0].topic_id = bytes(16)
    answer.metadata_offset += 1
    world.cache.apply(answer)
    world.core.metadata_changed(world.now)
    with pytest.raises(UnknownTopicId):
        world.core.take(1)


# -- standing still


def test_a_follower_that_cannot_be_opened_holds_nobody_up() -> None:
    world = Consuming(Brokers(brokers=(1, 2, 3)), client_rack="b")
    world.brokers.racks = dict(RACKS)
    world.hanging = {2}
    fill(world.brokers, 3)
    world.core.assign([TopicPartition(TOPIC, 0, 0)])
    world.run(400)
    assert not world.positions
    world.run(200)
    assert read_from(world) == 1


def test_a_follower_that_says_nothing_to_a_position_is_left() -> None:
    world = near(3)
    world.run(600)
    assert read_from(world) == 1


def test_a_follower_that_makes_no_progress_below_a_known_end_is_left() -> None:
    world = near(3)
    fill(world.brokers, 2)
    world.push()  # end 5 is known
    offsets(world)
    world.brokers.high_watermarks[2] = 5
    fill(world.brokers, 4)
    world.push()
    world.run(2_000)
    assert read_from(world) == 2, "it has no more, as far as anybody said"
    told, _ = world.brokers.run(world.positions[2, 0])
    world.receive(2, (told, b""))  # the end is known, and nothing comes
    world.run(400)
    assert read_from(world) == 2
    world.run(200)
    assert read_from(world) == 1
    world.push()
    assert offsets(world) == [5, 6, 7, 8]


def test_the_end_of_what_is_assigned_is_a_known_end() -> None:
    world = near(6, end_offset=6)
    world.brokers.high_watermarks[2] = 0
    world.push()
    world.run(600)
    assert read_from(world) == 1
    world.push()
    assert offsets(world) == list(range(6))
    assert world.core.finished()


def test_at_the_end_nothing_is_expected() -> None:
    world = near(3)
    world.push()
    offsets(world)
    world.run(20_000)
    assert read_from(world) == 2


def test_a_user_who_takes_nothing_is_no_fault_of_the_follower() -> None:
    world = near(5, 5, fetch_max_bytes=100)
    world.push(limit=1)  # more than the credit there was
    told, _ = world.brokers.run(world.positions[2, 0])
    world.receive(2, (told, b""))
    world.run(5_000)
    assert read_from(world) == 2
    world.push()
    assert offsets(world) == list(range(10))


def test_a_replica_that_is_left_is_told_to_send_no_more() -> None:
    world = near(3)
    world.push()
    world.brokers.log().leader = -1  # an election is under way, of which the follower knows nothing yet
    world.brokers.log().epoch += 1
    refresh(world)
    assert not world.positions
    assert [key.partition for broker, request in world.requests for key in request.forgotten if broker == 2] == [0]
