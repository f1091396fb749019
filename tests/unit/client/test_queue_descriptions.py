"""What Admin tells of a queue."""

from __future__ import annotations

from minilog.partition_key import PartitionKey
from minilog.queues.descriptions import Ends, describe_queue, with_ends
from minilog.types import QueueRange, TopicPartition
from minilog.v1 import queue_pb2

TOPIC_ID, GONE = b"\x01" * 16, b"\x09" * 16


def described(partition: int, topic_id: bytes = TOPIC_ID, *, end: int = 12) -> queue_pb2.DescribedQueuePartition:
    return queue_pb2.DescribedQueuePartition(
        partition_id=PartitionKey(topic_id, partition).to_wire(),
        settled_to=4,
        next_offset=9,
        last_stable_offset=end,
        ranges=[
            queue_pb2.DescribedRange(
                first_offset=4,
                last_offset=6,
                state=queue_pb2.RANGE_STATE_LEASED,
                delivery_count=2,
                lease_id=11,
                worker_id="shipper-1",
                remaining_ms=20_000,
            ),
            queue_pb2.DescribedRange(
                first_offset=7, last_offset=8, state=queue_pb2.RANGE_STATE_READY, delivery_count=1
            ),
        ],
        dead_count=1,
    )


def test_a_queue_has_its_settings_and_its_progress() -> None:
    response = queue_pb2.DescribeQueueResponse(settings={"b": "2", "a": "1"}, partitions=[described(1), described(0)])
    description = describe_queue(response, "jobs", {TOPIC_ID: "orders"})
    assert list(description.settings) == ["a", "b"]
    first, second = description.partitions
    assert [(position.topic, position.partition) for position in (first, second)] == [("orders", 0), ("orders", 1)]
    assert (first.settled_to, first.next_offset, first.end_offset, first.backlog) == (4, 9, 12, 3)
    assert first.ranges[0] == QueueRange(4, 6, "leased", 2, 11, "shipper-1", 20_000)
    assert [first.count(state) for state in ("ready", "leased", "settling", "dead")] == [2, 3, 0, 0]


def test_an_end_that_the_coordinator_does_not_know_is_none() -> None:
    response = queue_pb2.DescribeQueueResponse(partitions=[described(0, end=-1)])
    (position,) = describe_queue(response, "jobs", {TOPIC_ID: "orders"}).partitions
    assert position.end_offset is None
    assert position.backlog is None


def test_partitions_of_deleted_topics_are_left_out() -> None:
    response = queue_pb2.DescribeQueueResponse(partitions=[described(0, GONE)])
    assert describe_queue(response, "jobs", {TOPIC_ID: "orders"}).partitions == []


def test_the_end_of_a_leader_counts_before_that_of_the_coordinator() -> None:
    response = queue_pb2.DescribeQueueResponse(partitions=[described(0), described(1)])
    description = with_ends(
        describe_queue(response, "jobs", {TOPIC_ID: "orders"}), {TopicPartition("orders", 1): Ends(20, 20)}
    )
    assert [position.end_offset for position in description.partitions] == [12, 20]
    assert [position.undecided_count for position in description.partitions] == [None, 0]


def test_records_behind_an_open_transaction_are_shown_beside_the_backlog() -> None:
    """The last stable offset was the end: all was settled, though letters waited behind it."""
    response = queue_pb2.DescribeQueueResponse(partitions=[described(0)])
    ends = {TopicPartition("orders", 0): Ends(12, 30)}
    (position,) = with_ends(describe_queue(response, "jobs", {TOPIC_ID: "orders"}), ends).partitions
    assert (position.end_offset, position.backlog, position.undecided_count) == (12, 3, 18)
