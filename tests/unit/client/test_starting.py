"""Where a partition begins without an offset: at the group's, else at auto.offset.reset."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidArgument, OffsetOutOfRange, UnstableOffsetCommit
from minilog.groups.messages import Committed
from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers
from tests.unit.client.consuming import Consuming, fill

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
K0, K1 = PartitionKey(TOPIC_ID, 0), PartitionKey(TOPIC_ID, 1)


def grouped(partitions: int = 1, *, reset: str = "earliest", **committed: int) -> Consuming:
    """A consumer of the group "report", which has committed p0=…, p1=…."""
    cluster = Consuming(Brokers(partitions), **{"group.id": "report", "auto.offset.reset": reset})
    for partition in range(partitions):
        fill(cluster.brokers, 3, 3, partition=partition)
    cluster.committed = {int(name[1:]): Committed(offset, 0) for name, offset in committed.items()}
    return cluster


def test_a_group_goes_on_where_it_got_to() -> None:
    cluster = grouped(p0=4)
    cluster.core.assign([TopicPartition(TOPIC, 0)])
    cluster.run()
    cluster.push()
    assert cluster.read() == [(0, 4), (0, 5)]
    assert cluster.asked == []
    assert cluster.positions[1, 0].last_fetched_epoch == 0  # so that a log that was cut back meanwhile is noticed


def test_where_nothing_is_committed_auto_offset_reset_says_where_to_begin() -> None:
    for reset, expected in (("earliest", 0), ("latest", 6)):
        cluster = grouped(reset=reset)
        cluster.core.assign([TopicPartition(TOPIC, 0)])
        cluster.run()
        assert cluster.core.position(P0) == expected


def test_where_nothing_is_committed_and_the_reset_is_error_the_user_is_told() -> None:
    cluster = grouped(reset="error")
    cluster.core.assign([TopicPartition(TOPIC, 0)])
    cluster.run()
    with pytest.raises(OffsetOutOfRange, match="no offset that group 'report' committed"):
        cluster.core.take(1)


def test_an_offset_that_is_given_wins_and_nobody_is_asked() -> None:
    cluster = grouped(p0=4)
    cluster.core.assign([TopicPartition(TOPIC, 0, 1)])
    cluster.run()
    assert (cluster.core.position(P0), cluster.group_asked) == (1, [])


def test_the_group_is_asked_once_for_all_partitions() -> None:
    cluster = grouped(4, p0=1, p2=5)
    cluster.core.subscribe([TOPIC])
    cluster.run()
    [asked] = cluster.group_asked
    assert len(asked.wanted) == 4
    assert [cluster.core.position(TopicPartition(TOPIC, n)) for n in range(4)] == [1, 0, 5, 0]


def test_a_partition_that_came_later_begins_at_its_start_unless_the_group_has_got_further() -> None:
    cluster = grouped(1, reset="latest", p2=2)
    cluster.core.subscribe([TOPIC])
    cluster.run()
    add(cluster, 1, 2)
    cluster.core.metadata_changed(cluster.now)
    cluster.run()
    assert [cluster.core.position(TopicPartition(TOPIC, n)) for n in range(3)] == [6, 0, 2]


def add(cluster: Consuming, *partitions: int) -> None:
    """Add partitions with 4 records. The cache learns of them."""
    for partition in partitions:
        cluster.brokers.logs[TOPIC_ID, partition] = type(cluster.brokers.log())()
        fill(cluster.brokers, 4, partition=partition)
    cluster.brokers.metadata_offset += 1
    cluster.cache.apply(cluster.brokers.metadata())


def test_a_member_reads_a_partition_that_came_later_from_its_start_too() -> None:
    cluster = Consuming(Brokers(2), **{"group.id": "report", "group.protocol": "consumer"})
    for partition in range(2):
        fill(cluster.brokers, 3, partition=partition)
    cluster.core.subscribe([TOPIC])
    cluster.run()
    cluster.core.read_more([P0])
    cluster.core.read_more([TopicPartition(TOPIC, 2)])  # the coordinator has other brokers' metadata
    cluster.run()
    add(cluster, 2, 3)
    cluster.core.metadata_changed(cluster.now)
    cluster.core.read_more([P1, TopicPartition(TOPIC, 3)])
    cluster.run(for_ms=2_000.0)
    assert [cluster.core.position(TopicPartition(TOPIC, n)) for n in range(4)] == [3, 3, 0, 0]


def test_retention_that_overtakes_a_partition_that_came_later_skips_no_record_that_is_there() -> None:
    cluster = Consuming(Brokers(1), auto_offset_reset="latest")
    cluster.core.subscribe([TOPIC])
    cluster.run()
    add(cluster, 1)
    cluster.core.metadata_changed(cluster.now)
    cluster.run()
    cluster.brokers.log(1).start = 2
    cluster.push()
    cluster.run()
    assert cluster.core.position(P1) == 2


def test_passing_errors_are_asked_again_and_others_are_raised() -> None:
    cluster = grouped(p0=4)
    cluster.group_error = UnstableOffsetCommit("a transaction has not ended")
    cluster.core.assign([TopicPartition(TOPIC, 0)])
    cluster.run(for_ms=200.0)
    assert cluster.core.position(P0) is None
    assert 2 <= len(cluster.group_asked) <= 6
    cluster.group_error = None
    cluster.run(for_ms=200.0)
    assert cluster.core.position(P0) == 4
    cluster = grouped(p0=4)
    cluster.group_error = InvalidArgument("a group id has 1 to 255 characters")
    cluster.core.assign([TopicPartition(TOPIC, 0)])
    cluster.run()
    with pytest.raises(InvalidArgument, match="255"):
        cluster.core.take(1)


def test_an_answer_that_comes_after_a_seek_changes_nothing() -> None:
    cluster = grouped(p0=4)
    cluster.group_error = UnstableOffsetCommit("not yet")
    cluster.core.assign([TopicPartition(TOPIC, 0)])
    cluster.run()
    [asked] = cluster.group_asked
    cluster.core.seek(P0, 2)
    cluster.core.committed_offset_came(P0, asked.wanted[P0][1], Committed(5))
    assert cluster.core.position(P0) == 2


def test_a_committed_offset_that_the_log_does_not_hold_any_more_follows_auto_offset_reset() -> None:
    cluster = grouped(p0=40)
    cluster.core.assign([TopicPartition(TOPIC, 0)])
    cluster.run()
    cluster.push()
    cluster.run()
    assert cluster.core.position(P0) == 0


def test_commits_are_the_handed_out_positions_with_their_epochs() -> None:
    cluster = grouped(2, p0=0)
    cluster.brokers.log(0).epoch = cluster.brokers.log(1).epoch = 3
    fill(cluster.brokers, 2)
    cluster.brokers.log(0).epoch = 4
    cluster.core.assign([TopicPartition(TOPIC, 0, 0), TopicPartition(TOPIC, 1, 2)])
    assert cluster.core.consumed() == {}  # which topic that is, nobody knows yet
    cluster.run()
    cluster.push(limit=1)
    cluster.push(limit=1)
    assert cluster.core.consumed() == {K0: Committed(0), K1: Committed(2)}
    cluster.core.take(1 << 20)
    cluster.core.take(1 << 20)
    assert cluster.core.consumed()[K0] == Committed(6, 0)
    cluster.push()
    cluster.core.take(1 << 20)
    assert cluster.core.consumed()[K0] == Committed(8, 3)
