"""Where a partition begins without an offset: at the group's, else at auto.offset.reset."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidArgument, OffsetOutOfRange, UnstableOffsetCommit
from minilog.group_messages import Committed
from minilog.metadata_cache import PartitionKey
from minilog.types import TopicPartition
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers
from tests.unit.client.consuming import Consuming, fill

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
K0, K1 = PartitionKey(TOPIC_ID, 0), PartitionKey(TOPIC_ID, 1)


def grouped(partitions: int = 1, *, reset: str = "earliest", **committed: int) -> Consuming:
    """A consumer of the group "report", which has committed p0=…, p1=…."""
    world = Consuming(Brokers(partitions), **{"group.id": "report", "auto.offset.reset": reset})
    for partition in range(partitions):
        fill(world.brokers, 3, 3, partition=partition)
    world.committed = {int(name[1:]): Committed(offset, 0) for name, offset in committed.items()}
    return world


def test_a_group_goes_on_where_it_got_to() -> None:
    world = grouped(p0=4)
    world.core.assign([TopicPartition(TOPIC, 0)])
    world.run()
    world.push()
    assert world.read() == [(0, 4), (0, 5)]
    assert world.asked == []
    assert world.positions[1, 0].last_fetched_epoch == 0  # so that a log that was cut back meanwhile is noticed


def test_where_nothing_is_committed_auto_offset_reset_says_where_to_begin() -> None:
    for reset, expected in (("earliest", 0), ("latest", 6)):
        world = grouped(reset=reset)
        world.core.assign([TopicPartition(TOPIC, 0)])
        world.run()
        assert world.core.position(P0) == expected


def test_where_nothing_is_committed_and_the_reset_is_error_the_user_is_told() -> None:
    world = grouped(reset="error")
    world.core.assign([TopicPartition(TOPIC, 0)])
    world.run()
    with pytest.raises(OffsetOutOfRange, match="no offset that group 'report' committed"):
        world.core.take(1)


def test_an_offset_that_is_given_wins_and_nobody_is_asked() -> None:
    world = grouped(p0=4)
    world.core.assign([TopicPartition(TOPIC, 0, 1)])
    world.run()
    assert (world.core.position(P0), world.group_asked) == (1, [])


def test_the_group_is_asked_once_for_all_partitions() -> None:
    world = grouped(4, p0=1, p2=5)
    world.core.subscribe([TOPIC])
    world.run()
    [asked] = world.group_asked
    assert len(asked.wanted) == 4
    assert [world.core.position(TopicPartition(TOPIC, n)) for n in range(4)] == [1, 0, 5, 0]


def test_a_partition_that_came_later_begins_at_its_start_unless_the_group_has_got_further() -> None:
    world = grouped(1, reset="latest", p2=2)
    world.core.subscribe([TOPIC])
    world.run()
    for partition in (1, 2):
        world.brokers.logs[TOPIC_ID, partition] = type(world.brokers.log())()
        fill(world.brokers, 4, partition=partition)
    world.brokers.metadata_offset += 1
    world.cache.apply(world.brokers.metadata())
    world.core.metadata_changed(world.now)
    world.run()
    assert [world.core.position(TopicPartition(TOPIC, n)) for n in range(3)] == [6, 0, 2]


def test_what_passes_is_asked_again_and_what_does_not_is_told() -> None:
    world = grouped(p0=4)
    world.group_error = UnstableOffsetCommit("a transaction has not ended")
    world.core.assign([TopicPartition(TOPIC, 0)])
    world.run(for_ms=200.0)
    assert world.core.position(P0) is None
    assert 2 <= len(world.group_asked) <= 6
    world.group_error = None
    world.run(for_ms=200.0)
    assert world.core.position(P0) == 4
    world = grouped(p0=4)
    world.group_error = InvalidArgument("a group id has 1 to 255 characters")
    world.core.assign([TopicPartition(TOPIC, 0)])
    world.run()
    with pytest.raises(InvalidArgument, match="255"):
        world.core.take(1)


def test_an_answer_that_comes_after_a_seek_changes_nothing() -> None:
    world = grouped(p0=4)
    world.group_error = UnstableOffsetCommit("not yet")
    world.core.assign([TopicPartition(TOPIC, 0)])
    world.run()
    [asked] = world.group_asked
    world.core.seek(P0, 2)
    world.core.committed_told(P0, asked.wanted[P0][1], Committed(5))
    assert world.core.position(P0) == 2


def test_a_committed_offset_that_the_log_does_not_hold_any_more_follows_auto_offset_reset() -> None:
    world = grouped(p0=40)
    world.core.assign([TopicPartition(TOPIC, 0)])
    world.run()
    world.push()
    world.run()
    assert world.core.position(P0) == 0


def test_what_is_committed_is_what_was_handed_out_with_its_epoch() -> None:
    world = grouped(2, p0=0)
    world.brokers.log(0).epoch = world.brokers.log(1).epoch = 3
    fill(world.brokers, 2)
    world.brokers.log(0).epoch = 4
    world.core.assign([TopicPartition(TOPIC, 0, 0), TopicPartition(TOPIC, 1, 2)])
    assert world.core.consumed() == {}  # which topic that is, nobody knows yet
    world.run()
    world.push(limit=1)
    world.push(limit=1)
    assert world.core.consumed() == {K0: Committed(0), K1: Committed(2)}
    world.core.take(1 << 20)
    world.core.take(1 << 20)
    assert world.core.consumed()[K0] == Committed(6, 0)
    world.push()
    world.core.take(1 << 20)
    assert world.core.consumed()[K0] == Committed(8, 3)
