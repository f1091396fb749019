"""How far groups have got, and where people tell them to go on."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidArgument, UnstableOffsetCommit
from minilog.groups.descriptions import (
    ReadableEnds,
    check_none_pending,
    committed_positions,
    describe_group,
    look_ups,
    place,
    unread,
)
from minilog.partition_key import PartitionKey
from minilog.types import GroupPosition, TopicPartition
from minilog.v1 import coordinator_pb2
from tests.unit.client.brokers import TOPIC, TOPIC_ID

GONE = bytes(15) + b"\x09"
NAMES = {TOPIC_ID: TOPIC}
P0, P1, P2 = (TopicPartition(TOPIC, number) for number in range(3))


def told(**offsets: int) -> coordinator_pb2.DescribeGroupResponse:
    response = coordinator_pb2.DescribeGroupResponse()
    for name, offset in offsets.items():
        key = PartitionKey(GONE, 0) if name == "gone" else PartitionKey(TOPIC_ID, int(name[1:]))
        response.offsets.add(partition_id=key.to_wire(), offset=offset, metadata="m", committed_us=5_000_000)
    return response


def test_the_lag_is_what_may_be_read_and_was_not() -> None:
    ends = {P0: ReadableEnds(0, 10), P1: ReadableEnds(5, 10)}
    found = describe_group(told(p0=10, p1=2), "report", NAMES, ends, {P1: 3.5})
    assert [(each.partition, each.lag_records, each.lag_seconds) for each in found.offsets] == [
        (0, 0, 0.0),
        (1, 5, 3.5),
    ]
    assert (found.offsets[0].committed_ms, found.offsets[0].metadata, found.offsets[0].end_offset) == (5_000, "m", 10)


def test_only_what_the_log_still_holds_is_before_a_group() -> None:
    ends = {P0: ReadableEnds(0, 10), P1: ReadableEnds(5, 10), P2: ReadableEnds(7, 7)}
    positions = {P0: 4, P1: 2, P2: 3, TopicPartition(TOPIC, 3): 0}
    assert unread(positions, ends) == {P0: ReadableEnds(4, 10), P1: ReadableEnds(5, 10)}


def test_a_leader_that_does_not_answer_leaves_the_lag_unknown() -> None:
    [found] = describe_group(told(p0=10), "report", NAMES, {}, {}).offsets
    assert (found.offset, found.end_offset, found.lag_records, found.lag_seconds) == (10, None, None, None)


def test_an_age_that_was_not_found_in_time_is_unknown() -> None:
    [found] = describe_group(told(p0=4), "report", NAMES, {P0: ReadableEnds(0, 10)}, {P0: None}).offsets
    assert (found.lag_records, found.lag_seconds) == (6, None)


def test_partitions_of_deleted_topics_are_left_out() -> None:
    assert committed_positions(told(p1=3, gone=9, p0=4).offsets, NAMES) == {P0: 4, P1: 3}


def test_pending_offsets_are_told_and_forbid_a_seek() -> None:
    response = told(p0=4)
    pending = response.pending.add(transactional_id="job", producer_id=70)
    pending.offsets.add(partition_id=PartitionKey(TOPIC_ID, 0).to_wire(), offset=9)
    [found] = describe_group(response, "report", NAMES, {}, {}).pending
    assert (found.transactional_id, found.producer_id, found.offsets) == ("job", 70, {P0: 9})
    with pytest.raises(UnstableOffsetCommit, match="minilog transaction abort job"):
        check_none_pending("report", response)
    check_none_pending("report", told(p0=4))


def test_a_seek_names_no_transaction_that_may_not_be_seen() -> None:
    response = coordinator_pb2.DescribeGroupResponse(pending=[coordinator_pb2.PendingOffsets(producer_id=-1)])
    with pytest.raises(UnstableOffsetCommit, match="may not describe: seek when it has ended"):
        check_none_pending("report", response)


@pytest.mark.parametrize(
    ("to", "found", "offset"),
    [
        ("earliest", None, 5),
        ("latest", None, 10),
        (7, None, 7),
        (10, None, 10),
        ("@1714566600000", 8, 8),
        ("@1714566600000", 12, 10),  # a record above the last stable offset
        ("@1714566600000", None, 10),
    ],
)
def test_where_a_group_goes_on(to: GroupPosition, found: int | None, offset: int) -> None:
    assert place(P0, to, found, ReadableEnds(5, 10)) == offset


@pytest.mark.parametrize("to", [4, 11])
def test_an_offset_that_the_log_does_not_hold_is_refused_with_both_ends(to: int) -> None:
    with pytest.raises(InvalidArgument, match="its log goes from 5 to 10"):
        place(P0, to, None, ReadableEnds(5, 10))


@pytest.mark.parametrize("to", [-1, True, "first", "@", "@-1", "@x"])
def test_texts_that_are_no_place_are_refused(to: GroupPosition) -> None:
    with pytest.raises(InvalidArgument, match="cannot go on at"):
        look_ups({P0: to})


def test_only_timestamps_are_looked_up() -> None:
    assert look_ups({P0: "@17", P1: "latest", P2: 4}) == {P0: 17}
