"""A consumer with client.rack reads from the replica in its rack, and goes back to the leader when it stands still."""

from __future__ import annotations

import pytest

from minilog.errors import OffsetOutOfRange, UnknownTopicId
from minilog.types import TopicPartition
from minilog.v1 import common_pb2, data_pb2, metadata_pb2
from tests.rules import proves
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers
from tests.unit.client.consuming import Consuming, fill

pytestmark = proves("HW.10")

P0 = TopicPartition(TOPIC, 0)
RACKS = {1: "a", 2: "b", 3: "c"}


def near(*batches: int, rack: str = "b", end_offset: int | None = None, **settings: object) -> Consuming:
    """A consumer of partition 0, led by broker 1 in rack a; brokers 2 and 3 are in b and c."""
    cluster = Consuming(Brokers(brokers=(1, 2, 3)), client_rack=rack, **settings)
    cluster.brokers.racks = dict(RACKS)
    fill(cluster.brokers, *batches)
    cluster.core.assign([TopicPartition(TOPIC, 0, 0, end_offset)])
    cluster.run()
    return cluster


def offsets(cluster: Consuming) -> list[int]:
    return [offset for _, offset in cluster.read()]


def read_from(cluster: Consuming) -> int:
    """The broker that has the position now."""
    [broker] = [broker for broker, _ in cluster.positions]
    return broker


def refresh(cluster: Consuming) -> None:
    cluster.brokers.metadata_offset += 1
    cluster.cache.apply(cluster.brokers.metadata())
    cluster.core.metadata_changed(cluster.now)
    cluster.run()


def say(cluster: Consuming, broker: int, code: common_pb2.ErrorCode.ValueType) -> None:
    """An error from a broker that has the position."""
    run = data_pb2.PartitionRun(
        partition_id=common_pb2.PartitionId(topic_id=TOPIC_ID),
        position_number=cluster.positions[broker, 0].position_number,
        leader_epoch=cluster.brokers.log().epoch,
        error=common_pb2.Error(code=code),
    )
    cluster.receive(broker, (run, b""))
    del cluster.positions[broker, 0]
    cluster.run()


# -- the choice


@pytest.mark.parametrize(("rack", "broker"), [("b", 2), ("c", 3), ("a", 1), ("nowhere", 1), ("", 1)])
def test_the_replica_of_the_rack_is_read_from_or_the_leader(rack: str, broker: int) -> None:
    cluster = near(3, rack=rack)
    assert read_from(cluster) == broker
    cluster.push()
    assert offsets(cluster) == [0, 1, 2]


def test_a_leader_in_the_rack_is_preferred_to_a_follower_there() -> None:
    cluster = Consuming(Brokers(brokers=(1, 2, 3)), client_rack="a")
    cluster.brokers.racks = {1: "a", 2: "a", 3: "a"}
    cluster.core.assign([TopicPartition(TOPIC, 0, 0)])
    cluster.run()
    assert read_from(cluster) == 1


def test_partitions_spread_over_the_brokers_of_a_rack() -> None:
    cluster = Consuming(Brokers(partitions=4, brokers=(1, 2, 3)), client_rack="b")
    cluster.brokers.racks = {1: "a", 2: "b", 3: "b"}
    cluster.core.assign([TopicPartition(TOPIC, number, 0) for number in range(4)])
    cluster.run()
    assert sorted(cluster.positions) == [(2, 0), (2, 2), (3, 1), (3, 3)]


@pytest.mark.parametrize("how", ["not in sync", "fenced", "stopping"])
def test_only_a_replica_that_is_in_sync_and_running_is_chosen(how: str) -> None:
    brokers = Brokers(brokers=(1, 2, 3))
    brokers.racks = dict(RACKS)
    if how == "not in sync":
        brokers.in_sync = (1, 3)
    else:
        state = metadata_pb2.BROKER_STATE_FENCED if how == "fenced" else metadata_pb2.BROKER_STATE_STOPPING
        brokers.states[2] = state
    cluster = Consuming(brokers, client_rack="b")
    cluster.core.assign([TopicPartition(TOPIC, 0, 0)])
    cluster.run()
    assert read_from(cluster) == 1


def test_a_replica_that_leaves_the_isr_is_left_for_one_that_joins() -> None:
    cluster = near(2)
    cluster.push()
    cluster.brokers.in_sync = (1, 3)
    refresh(cluster)
    assert read_from(cluster) == 1
    cluster.brokers.in_sync = (1, 2, 3)
    fill(cluster.brokers, 2)
    refresh(cluster)
    assert read_from(cluster) == 2
    cluster.push()
    assert offsets(cluster) == [0, 1, 2, 3]


def test_offsets_are_asked_of_the_leader() -> None:
    cluster = Consuming(Brokers(brokers=(1, 2, 3)), client_rack="b", auto_offset_reset="latest")
    cluster.brokers.racks = dict(RACKS)
    fill(cluster.brokers, 2)
    cluster.core.assign([P0])
    cluster.run()
    assert [asked.where for asked in cluster.asked] == ["latest"]
    assert cluster.positions[2, 0].fetch_offset == 2


# -- going back to the leader


def test_a_follower_that_dies_is_left_at_once_without_a_gap_or_a_repeat() -> None:
    cluster = near(3)
    cluster.push()
    cluster.down = {2}
    del cluster.positions[2, 0]
    cluster.core.session_lost(2, cluster.now)
    fill(cluster.brokers, 2)
    cluster.run()
    assert read_from(cluster) == 1
    assert cluster.positions[1, 0].fetch_offset == 3
    cluster.push()
    assert offsets(cluster) == [0, 1, 2, 3, 4]


def test_where_the_rack_has_another_replica_that_one_is_next() -> None:
    cluster = Consuming(Brokers(brokers=(1, 2, 3)), client_rack="b")
    cluster.brokers.racks = {1: "a", 2: "b", 3: "b"}
    fill(cluster.brokers, 3)
    cluster.core.assign([TopicPartition(TOPIC, 0, 0)])
    cluster.run()
    cluster.push(limit=1)
    del cluster.positions[2, 0]
    cluster.core.session_lost(2, cluster.now)
    cluster.run()
    assert read_from(cluster) == 3


def test_a_left_replica_is_not_turned_to_again_before_a_while() -> None:
    cluster = near(3)
    del cluster.positions[2, 0]
    cluster.core.session_lost(2, cluster.now)
    cluster.run(4_000)
    assert read_from(cluster) == 1
    cluster.run(1_200)
    assert read_from(cluster) == 2


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
    cluster = near(3, auto_offset_reset="error")
    say(cluster, 2, code)
    assert read_from(cluster) == 1
    assert not cluster.asked
    cluster.push()
    assert offsets(cluster) == [0, 1, 2]


def test_the_answer_of_the_leader_counts_then() -> None:
    cluster = near(3, auto_offset_reset="error")
    say(cluster, 2, common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE)
    say(cluster, 1, common_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE)
    with pytest.raises(OffsetOutOfRange):
        cluster.core.take(1)


def test_a_follower_that_shows_a_divergence_is_not_believed() -> None:
    cluster = near(3)
    run = data_pb2.PartitionRun(
        partition_id=common_pb2.PartitionId(topic_id=TOPIC_ID), position_number=cluster.positions[2, 0].position_number
    )
    run.diverging_epoch.end_offset = 1
    del cluster.positions[2, 0]
    cluster.receive(2, (run, b""))
    cluster.run()
    assert read_from(cluster) == 1


def test_a_follower_whose_image_is_behind_is_left() -> None:
    cluster = near(3)
    stale = cluster.brokers.run(cluster.positions[2, 0])
    cluster.brokers.move(leader=3)
    cluster.cache.see_epoch(next(iter(cluster.cache._leaders)), 1)
    assert not cluster.receive(2, stale)
    assert offsets(cluster) == []


def test_a_bad_copy_on_the_follower_is_read_from_the_leader() -> None:
    cluster = near(2)
    run, batches = cluster.brokers.run(cluster.positions[2, 0])
    cluster.receive(2, (run, batches[:-8]))
    cluster.run(1_000)
    assert read_from(cluster) == 1
    cluster.push()
    assert offsets(cluster) == [0, 1]


def test_a_new_leader_epoch_is_followed_and_the_rack_counts_again() -> None:
    cluster = near(3)
    cluster.push()
    say(cluster, 2, common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER)
    assert read_from(cluster) == 1
    cluster.positions.clear()
    cluster.brokers.move(leader=3)
    refresh(cluster)
    assert read_from(cluster) == 2, "another epoch: what it could not do in the last one is no reason"
    assert cluster.positions[2, 0].leader_epoch == 1
    fill(cluster.brokers, 1)
    cluster.push()
    assert offsets(cluster) == [0, 1, 2, 3]


def test_a_follower_that_becomes_the_leader_is_told_the_new_epoch() -> None:
    cluster = near(3)
    cluster.push()
    cluster.brokers.move(leader=2)
    refresh(cluster)
    assert cluster.positions[2, 0].leader_epoch == 1
    fill(cluster.brokers, 1)
    cluster.push()
    assert offsets(cluster) == [0, 1, 2, 3]


def test_a_topic_that_is_deleted_is_an_error_as_from_a_leader() -> None:
    cluster = near(3)
    answer = cluster.brokers.metadata()
    answer.topics[0].topic_id = bytes(16)
    answer.metadata_offset += 1
    cluster.cache.apply(answer)
    cluster.core.metadata_changed(cluster.now)
    with pytest.raises(UnknownTopicId):
        cluster.core.take(1)


# -- standing still


def test_a_follower_that_cannot_be_opened_holds_nobody_up() -> None:
    cluster = Consuming(Brokers(brokers=(1, 2, 3)), client_rack="b")
    cluster.brokers.racks = dict(RACKS)
    cluster.hanging = {2}
    fill(cluster.brokers, 3)
    cluster.core.assign([TopicPartition(TOPIC, 0, 0)])
    cluster.run(400)
    assert not cluster.positions
    cluster.run(200)
    assert read_from(cluster) == 1


def test_a_follower_that_says_nothing_to_a_position_is_left() -> None:
    cluster = near(3)
    cluster.run(600)
    assert read_from(cluster) == 1


def test_a_follower_that_makes_no_progress_below_a_known_end_is_left() -> None:
    cluster = near(3)
    fill(cluster.brokers, 2)
    cluster.push()  # end 5 is known
    offsets(cluster)
    cluster.brokers.high_watermarks[2] = 5
    fill(cluster.brokers, 4)
    cluster.push()
    cluster.run(2_000)
    assert read_from(cluster) == 2, "it has no more, as far as anybody said"
    told, _ = cluster.brokers.run(cluster.positions[2, 0])
    cluster.receive(2, (told, b""))  # the end is known, and nothing comes
    cluster.run(400)
    assert read_from(cluster) == 2
    cluster.run(200)
    assert read_from(cluster) == 1
    cluster.push()
    assert offsets(cluster) == [5, 6, 7, 8]


def test_the_end_of_what_is_assigned_is_a_known_end() -> None:
    cluster = near(6, end_offset=6)
    cluster.brokers.high_watermarks[2] = 0
    cluster.push()
    cluster.run(600)
    assert read_from(cluster) == 1
    cluster.push()
    assert offsets(cluster) == list(range(6))
    assert cluster.core.finished()


def test_at_the_end_nothing_is_expected() -> None:
    cluster = near(3)
    cluster.push()
    offsets(cluster)
    cluster.run(20_000)
    assert read_from(cluster) == 2


def test_a_user_who_takes_nothing_is_no_fault_of_the_follower() -> None:
    cluster = near(5, 5, fetch_max_bytes=100)
    cluster.push(limit=1)  # more than the credit there was
    told, _ = cluster.brokers.run(cluster.positions[2, 0])
    cluster.receive(2, (told, b""))
    cluster.run(5_000)
    assert read_from(cluster) == 2
    cluster.push()
    assert offsets(cluster) == list(range(10))


def test_a_replica_that_is_left_is_told_to_send_no_more() -> None:
    cluster = near(3)
    cluster.push()
    cluster.brokers.log().leader = -1  # an election is under way, of which the follower knows nothing yet
    cluster.brokers.log().epoch += 1
    refresh(cluster)
    assert not cluster.positions
    assert [key.partition for broker, request in cluster.requests for key in request.forgotten if broker == 2] == [0]
