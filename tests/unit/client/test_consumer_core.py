"""Sessions as a consumer sees them (docs/spec/replication.md § Reading): positions, credit, resets; V8 and V14."""

from __future__ import annotations

import uuid

import pytest

from minilog.consumer.decode import decode
from minilog.consumer.row_selection import RowSelection
from minilog.errors import (
    CorruptMessage,
    InvalidArgument,
    OffsetOutOfRange,
    UnknownSchemaVersion,
    UnknownTopicId,
    UnknownTopicOrPartition,
    wire_error,
)
from minilog.groups.messages import Committed
from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from minilog.v1 import common_pb2, data_pb2
from tests.rules import proves
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers, LeaderLog
from tests.unit.client.consuming import Consuming, fill

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def reading(
    *batches: int, offset: int = 0, end_offset: int | None = None, topic_id: bytes | None = None, **settings: object
) -> Consuming:
    """A consumer of partition 0, whose position the leader has."""
    cluster = Consuming(Brokers(), **settings)
    fill(cluster.brokers, *batches)
    named = None if topic_id is None else str(uuid.UUID(bytes=topic_id))
    cluster.core.assign([TopicPartition(TOPIC, 0, offset, end_offset, topic_id=named)])
    cluster.run()
    return cluster


def offsets(cluster: Consuming) -> list[int]:
    return [offset for _, offset in cluster.read()]


def test_everything_is_read_once_and_in_order() -> None:
    cluster = reading(3, 2, 4)
    cluster.push()
    assert offsets(cluster) == list(range(9))
    assert cluster.core.position(P0) == 9


def test_the_first_message_says_who_and_which_isolation_and_grants_credit() -> None:
    cluster = reading(1)
    _, first = cluster.requests[0]
    assert first.client.client_id == "minilog-python"
    assert first.isolation_level == data_pb2.ISOLATION_LEVEL_READ_COMMITTED
    assert first.credit_bytes == cluster.config.fetch_max_bytes
    assert first.positions[0].fetch_offset == 0


def test_a_position_inside_a_batch_hands_out_only_what_follows() -> None:
    cluster = reading(5, offset=3)
    cluster.push()
    assert offsets(cluster) == [3, 4]


def test_a_bounded_partition_ends_at_its_end() -> None:
    cluster = reading(4, 4, 4, end_offset=6)
    assert not cluster.core.finished()
    cluster.push()
    assert offsets(cluster) == [0, 1, 2, 3, 4, 5]
    assert cluster.core.finished()
    cluster.run()
    assert (1, 0) not in cluster.positions  # and nothing more is wanted of it


def test_a_stream_is_closed_when_nothing_has_been_read_from_it_for_a_while() -> None:
    cluster = reading(4, end_offset=4)
    cluster.push()
    cluster.run(for_ms=29_000.0)
    assert cluster.closed == []
    cluster.run(for_ms=2_000.0)
    assert cluster.closed == [1]


def test_partitions_assigned_next_are_read_from_the_same_stream() -> None:
    cluster = reading(4, 4, end_offset=4)
    cluster.push()
    assert offsets(cluster) == [0, 1, 2, 3]
    cluster.core.assign([])
    cluster.run(for_ms=1_000.0)
    cluster.core.assign([TopicPartition(TOPIC, 0, 4, 8)])
    cluster.run()
    cluster.push()
    assert offsets(cluster) == [4, 5, 6, 7]
    assert sum(request.isolation_level != data_pb2.ISOLATION_LEVEL_NONE for _, request in cluster.requests) == 1
    assert cluster.refreshes == 1  # who leads is known


def test_a_topic_that_is_known_under_another_id_is_asked_for() -> None:
    cluster = reading(4, end_offset=4)
    cluster.core.assign([TopicPartition(TOPIC, 0, 0, topic_id=str(uuid.UUID(bytes=bytes(15) + b"x")))])
    cluster.run()
    assert cluster.refreshes == 2


def test_an_empty_range_is_finished_at_once() -> None:
    assert reading(4, offset=2, end_offset=2).core.finished()


def test_without_bounds_nothing_is_ever_finished() -> None:
    cluster = reading(1)
    cluster.push()
    cluster.read()
    assert not cluster.core.finished()


def test_a_run_of_an_old_position_is_dropped_and_its_bytes_given_back() -> None:
    cluster = reading(3, 3)
    late = cluster.brokers.run(cluster.positions[1, 0])
    cluster.core.seek(P0, 4)
    cluster.run()
    assert not cluster.receive(1, late)
    assert offsets(cluster) == []
    cluster.push()
    assert offsets(cluster) == [4, 5]


def test_seeking_back_reads_again() -> None:
    cluster = reading(3)
    cluster.push()
    assert offsets(cluster) == [0, 1, 2]
    cluster.core.seek(P0, 1)
    cluster.run()
    cluster.push()
    assert offsets(cluster) == [1, 2]


def test_credit_is_absolute_and_grows_as_runs_are_taken() -> None:
    cluster = reading(1, fetch_max_bytes=100)
    fill(cluster.brokers, 5)
    cluster.push()
    cluster.run()
    assert all(request.credit_bytes == 100 for _, request in cluster.requests)
    size = sum(len(batch) for _, _, batch in cluster.brokers.log().batches)
    cluster.read()
    cluster.run()
    assert cluster.requests[-1][1].credit_bytes == 100 + size


def test_dropped_runs_give_their_bytes_back_too() -> None:
    cluster = reading(5, fetch_max_bytes=100)
    late = cluster.brokers.run(cluster.positions[1, 0])
    cluster.core.seek(P0, 2)
    cluster.run()
    cluster.receive(1, late)
    cluster.run()
    assert cluster.requests[-1][1].credit_bytes == 100 + len(late[1])


def test_a_gap_is_never_skipped() -> None:
    cluster = reading(2, 2, 2)
    log = cluster.brokers.log()
    whole = list(log.batches)
    log.batches = [whole[0], whole[2]]
    cluster.push()
    assert offsets(cluster) == []
    log.batches = whole
    cluster.run(1000)
    cluster.push()
    assert offsets(cluster) == list(range(6))


def test_a_run_that_steps_back_is_refused() -> None:
    cluster = reading(2, 2)
    cluster.push()
    again = cluster.brokers.run(
        data_pb2.FetchPosition(partition_id=_id(0), position_number=cluster.positions[1, 0].position_number)
    )
    assert not cluster.receive(1, again)
    assert offsets(cluster) == [0, 1, 2, 3]


def test_a_cut_run_is_asked_for_again_and_reported_the_third_time() -> None:
    cluster = reading(2)
    for _ in range(3):
        run, batches = cluster.brokers.run(cluster.positions[1, 0])
        cluster.receive(1, (run, batches[:-8]))
        cluster.run(2000)
    with pytest.raises(CorruptMessage, match="partition 0 of topic 'flights' cannot be read at 0"):
        cluster.core.take(1)


def came_damaged(cluster: Consuming) -> bool:
    return cluster.positions[1, 0].came_damaged


def test_a_run_that_does_not_decode_is_read_again_from_its_start() -> None:
    cluster = reading(3)
    cluster.push()
    [run] = cluster.core.take(1)
    assert not came_damaged(cluster)
    cluster.core.runs_are_corrupt([(run, CorruptMessage("as the test says"))], cluster.now)
    assert cluster.core.position(P0) == 0
    cluster.run(1000)
    assert came_damaged(cluster), "the replica has to look at its own copy"
    cluster.push()
    assert offsets(cluster) == [0, 1, 2]


def test_partitions_that_meet_an_unknown_schema_together_are_each_read_from_there() -> None:
    """Seed 1300006: the first of them had the second read anew from behind what was taken of it."""
    cluster = Consuming(Brokers(partitions=2), auto_offset_reset="earliest")
    cluster.core.assign([P0, P1])
    for count in (3, 2):
        fill(cluster.brokers, count, partition=0)
        fill(cluster.brokers, count, partition=1)
        cluster.run()
        cluster.push()
    runs = cluster.core.take(1 << 30)
    assert [run.partition for run in runs] in ([P0, P1, P0, P1], [P1, P0, P1, P0])
    error = UnknownSchemaVersion("as the test says")
    cluster.core.runs_are_corrupt([(run, error) for run in runs[:2]], cluster.now)
    assert [cluster.core.position(each) for each in (P0, P1)] == [0, 0]
    cluster.run(1000)
    cluster.push()
    assert sorted(cluster.read()) == [(each, offset) for each in (0, 1) for offset in range(5)]


def test_a_lost_session_is_opened_anew_where_the_stream_was() -> None:
    cluster = reading(3)
    cluster.push()
    cluster.core.session_lost(1, cluster.now)
    fill(cluster.brokers, 2)
    cluster.run(200)
    assert cluster.positions[1, 0].fetch_offset == 3  # what is buffered is not asked for again
    cluster.push()
    assert offsets(cluster) == [0, 1, 2, 3, 4]


def test_a_broker_that_is_down_is_tried_again_with_pauses() -> None:
    cluster = Consuming(Brokers())
    fill(cluster.brokers, 1)
    cluster.down = {1}
    cluster.core.assign([TopicPartition(TOPIC, 0, 0)])
    cluster.run(300)
    cluster.down = set()
    cluster.run(300)
    cluster.push()
    assert offsets(cluster) == [0]


def test_a_new_leader_gets_the_position_under_its_epoch() -> None:
    cluster = reading(3)
    cluster.push()
    cluster.brokers.move(leader=2)
    refused = data_pb2.PartitionRun(
        partition_id=_id(0),
        position_number=cluster.positions[1, 0].position_number,
        leader_epoch=1,
        error=common_pb2.Error(code=common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER),
    )
    cluster.receive(1, (refused, b""))
    cluster.run(500)
    position = cluster.positions[2, 0]
    assert (position.fetch_offset, position.leader_epoch, position.last_fetched_epoch) == (3, 1, 0)


def test_a_silent_leader_is_left_when_metadata_tells_another() -> None:
    """Its stream takes a while to open: until then the former one has our position."""
    cluster = reading(3)
    cluster.push()
    cluster.brokers.move(leader=2)
    cluster.hanging = {2}
    cluster.cache.apply(cluster.brokers.metadata())
    cluster.core.metadata_changed(cluster.now)
    cluster.run(300)
    assert (2, 0) not in cluster.positions
    cluster.core.session_opened(2)
    cluster.run(10)
    assert cluster.positions[2, 0].fetch_offset == 3


def test_a_run_of_a_deposed_leader_is_not_believed() -> None:
    cluster = reading(3)
    stale = cluster.brokers.run(cluster.positions[1, 0])
    cluster.brokers.move(leader=2)
    cluster.cache.apply(cluster.brokers.metadata())
    assert not cluster.receive(1, stale)
    cluster.run(500)
    assert (2, 0) in cluster.positions


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [5, 6]), ("latest", [])])
def test_out_of_range_follows_the_reset(reset: str, expected: list[int]) -> None:
    cluster = Consuming(Brokers(), auto_offset_reset=reset)
    cluster.brokers.log().start = 5
    fill(cluster.brokers, 2)
    cluster.core.assign([TopicPartition(TOPIC, 0, 1)])
    cluster.run()
    cluster.push()
    cluster.run()
    assert [asked.where for asked in cluster.asked] == [reset]
    cluster.push()
    assert offsets(cluster) == expected


@proves("DEL.7")
def test_out_of_range_at_one_leader_reads_nothing_again_at_the_next_whose_log_starts_lower() -> None:
    cluster = reading(3, 2, auto_offset_reset="earliest")
    cluster.push(limit=1)
    cluster.read()
    cluster.core.seek(P0, 3)
    cluster.run()
    cluster.brokers.log().start = 4  # records are being deleted, and that leader is deposed before it is answered
    cluster.push()
    cluster.brokers.log().start = 0
    cluster.run()
    assert [asked.where for asked in cluster.asked] == ["earliest"]
    cluster.push()
    assert offsets(cluster) == [3, 4]


def test_out_of_range_is_an_error_where_the_reset_says_so() -> None:
    cluster = Consuming(Brokers(), auto_offset_reset="error")
    cluster.brokers.log().start = 5
    cluster.core.assign([TopicPartition(TOPIC, 0, 1)])
    cluster.run()
    assert cluster.push()
    with pytest.raises(
        OffsetOutOfRange, match="partition 0 of topic 'flights' has offsets 5 to 5, the consumer asked for 1"
    ):
        cluster.core.take(1)
    cluster.core.seek(P0, 5)
    assert cluster.core.take(1) == []


def test_a_log_without_what_was_read_is_an_error_whatever_the_reset() -> None:
    cluster = reading(3, auto_offset_reset="earliest")
    cluster.push()
    cluster.read()
    run = data_pb2.PartitionRun(partition_id=_id(0), position_number=cluster.positions[1, 0].position_number)
    run.diverging_epoch.end_offset = 1
    cluster.receive(1, (run, b""))
    with pytest.raises(OffsetOutOfRange, match="the log has lost records below 3"):
        cluster.core.take(1)


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_leader_of_an_earlier_epoch_does_not_judge_what_was_lost(is_refused: bool) -> None:
    """Its log may lack what the later leader has: to believe it would skip records, or end the reading."""
    cluster = reading(3, auto_offset_reset="earliest")
    cluster.push()
    cluster.read()
    key = PartitionKey(TOPIC_ID, 0)
    cluster.cache.see_epoch(key, cluster.cache.seen_epoch(key) + 1)
    run = data_pb2.PartitionRun(partition_id=_id(0), position_number=cluster.positions[1, 0].position_number)
    if is_refused:
        run.error.CopyFrom(wire_error(OffsetOutOfRange("offset 3 is above the log end 1")))
    else:
        run.diverging_epoch.end_offset = 1
    cluster.receive(1, (run, b""))
    assert cluster.core.take(1) == []
    assert cluster.core.position(P0) == 3


def test_a_committed_offset_names_a_later_leader_than_the_metadata() -> None:
    cluster = Consuming(Brokers(), group_id="report")
    fill(cluster.brokers, 3)
    cluster.committed[0] = Committed(3, 7)
    cluster.core.assign([P0])
    refreshes = cluster.refreshes
    cluster.run()
    assert cluster.cache.seen_epoch(PartitionKey(TOPIC_ID, 0)) == 7
    assert cluster.refreshes > refreshes + 1


def test_without_an_offset_the_reset_says_where_to_begin() -> None:
    cluster = Consuming(Brokers(), auto_offset_reset="latest")
    fill(cluster.brokers, 3)
    cluster.core.assign([P0])
    cluster.run()
    fill(cluster.brokers, 2)
    cluster.push()
    assert offsets(cluster) == [3, 4]


def test_an_answer_for_an_earlier_question_is_ignored() -> None:
    cluster = Consuming(Brokers(), auto_offset_reset="latest")
    cluster.core.assign([P0])
    cluster.run()
    number = cluster.asked[0].position_number
    cluster.core.seek(P0, 0)
    cluster.core.offset_resolved(P0, number, 77)
    assert cluster.core.position(P0) == 0


def test_new_partitions_of_a_subscription_are_read_from_their_start() -> None:
    cluster = Consuming(Brokers(), auto_offset_reset="latest")
    fill(cluster.brokers, 3)
    cluster.core.subscribe([TOPIC])
    cluster.run()
    cluster.brokers.logs[(TOPIC_ID, 1)] = LeaderLog()
    fill(cluster.brokers, 2, partition=1)
    cluster.brokers.metadata_offset += 1
    cluster.cache.apply(cluster.brokers.metadata())
    cluster.core.metadata_changed(cluster.now)
    cluster.run()
    cluster.push()
    assert cluster.core.assignment() == [P0, P1]
    assert cluster.read() == [(1, 0), (1, 1)]


def test_partitions_take_turns() -> None:
    cluster = Consuming(Brokers(partitions=2))
    for partition in (0, 1):
        fill(cluster.brokers, 1, 1, 1, partition=partition)
    cluster.core.assign([TopicPartition(TOPIC, number, 0) for number in (0, 1)])
    cluster.run()
    for _ in range(3):
        cluster.push(limit=1)
    firsts = [cluster.core.take(1)[0].partition.partition for _ in range(6)]
    assert sorted(firsts[:2]) == [0, 1]
    assert sorted(firsts) == [0, 0, 0, 1, 1, 1]


def test_a_topic_that_does_not_come_is_reported() -> None:
    cluster = Consuming(Brokers())
    cluster.core.assign([TopicPartition("nowhere", 0, 0)])
    cluster.run(4000)
    assert cluster.core.take(1) == []
    cluster.run(2000)
    with pytest.raises(UnknownTopicOrPartition, match="'nowhere'"):
        cluster.core.take(1)


def test_a_topic_created_again_is_not_the_same() -> None:
    cluster = reading(3)
    answer = cluster.brokers.metadata()
    answer.topics[0].topic_id = bytes(16)
    answer.metadata_offset += 1
    cluster.cache.apply(answer)
    cluster.core.metadata_changed(cluster.now)
    with pytest.raises(UnknownTopicId, match="created again"):
        cluster.core.take(1)


def test_the_topic_of_the_id_that_is_named_is_read() -> None:
    cluster = reading(3, topic_id=TOPIC_ID)
    cluster.push()
    assert offsets(cluster) == [0, 1, 2]


def test_another_topic_of_the_name_is_not_read() -> None:
    cluster = reading(3, topic_id=bytes(16))
    cluster.run(for_ms=1000.0)
    assert cluster.requests == []
    cluster.run(for_ms=5000.0)
    with pytest.raises(UnknownTopicId, match="created again"):
        cluster.core.take(1)


def test_a_consumer_that_knew_the_former_topic_of_the_name_asks_anew() -> None:
    cluster = reading(3)
    cluster.brokers.told_topic_id = bytes(16)
    cluster.brokers.metadata_offset += 1
    cluster.core.assign([TopicPartition(TOPIC, 0, 0, topic_id=str(uuid.UUID(bytes=bytes(16))))])
    cluster.run()
    assert [request.positions[0].partition_id.topic_id for _, request in cluster.requests if request.positions] == [
        TOPIC_ID,
        bytes(16),
    ]


def test_wrong_requests_are_refused() -> None:
    cluster = reading(1)
    for wrong in (
        [P0, P0],
        [TopicPartition(TOPIC, 0, -1)],
        [TopicPartition(TOPIC, 0, 0, -2)],
    ):
        with pytest.raises(InvalidArgument):
            cluster.core.assign(wrong)
    with pytest.raises(InvalidArgument, match="'7' is no topic id"):
        TopicPartition(TOPIC, 0, topic_id="7")
    with pytest.raises(InvalidArgument, match="not assigned"):
        cluster.core.seek(P1, 0)
    with pytest.raises(InvalidArgument, match=r"give \['flights'\]"):
        cluster.core.subscribe(TOPIC)


def test_a_poll_for_offsets_asks_for_headers_and_a_fuller_poll_drops_them() -> None:
    cluster = Consuming(Brokers())
    fill(cluster.brokers, 3, 2)
    cluster.core.select(RowSelection(offsets_only=True))
    cluster.core.assign([TopicPartition(TOPIC, 0, 1)])
    cluster.run()
    [first] = cluster.requests[-1][1].positions
    assert first.headers_only
    cluster.push()
    runs = cluster.core.take(1)
    assert [rows.to_pydict() for run in runs for rows in decode(run, 1 << 30).rows] == [{"offset": [1, 2, 3, 4]}]
    fill(cluster.brokers, 1)
    cluster.push()
    cluster.core.select(RowSelection())
    cluster.run()
    [second] = cluster.requests[-1][1].positions
    assert (second.headers_only, second.fetch_offset) == (False, 5)
    cluster.push()
    assert offsets(cluster) == [5]


def _id(partition: int) -> common_pb2.PartitionId:
    return common_pb2.PartitionId(topic_id=TOPIC_ID, partition=partition)


def test_runs_buffered_before_a_seek_give_their_bytes_back() -> None:
    cluster = reading(5, fetch_max_bytes=100)
    cluster.push()
    cluster.core.seek(P0, 2)
    cluster.run()
    size = sum(len(batch) for _, _, batch in cluster.brokers.log().batches)
    assert cluster.requests[-1][1].credit_bytes == 100 + size
