"""Sessions as a consumer sees them (docs/spec/replication.md § Reading): positions, credit, resets; V8 and V14."""

from __future__ import annotations

import pytest

from minilog.errors import (
    CorruptMessage,
    InvalidArgument,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from minilog.types import TopicPartition
from minilog.v1 import common_pb2, data_pb2
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers, Log
from tests.unit.client.consuming import Consuming, fill

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def reading(*batches: int, offset: int = 0, end_offset: int | None = None, **settings: object) -> Consuming:
    """A consumer of partition 0, whose position the leader has."""
    world = Consuming(Brokers(), **settings)
    fill(world.brokers, *batches)
    world.core.assign([TopicPartition(TOPIC, 0, offset, end_offset)])
    world.run()
    return world


def offsets(world: Consuming) -> list[int]:
    return [offset for _, offset in world.read()]


def test_everything_is_read_once_and_in_order() -> None:
    world = reading(3, 2, 4)
    world.push()
    assert offsets(world) == list(range(9))
    assert world.core.position(P0) == 9


def test_the_first_message_says_who_and_which_isolation_and_grants_credit() -> None:
    world = reading(1)
    _, first = world.requests[0]
    assert first.client.client_id == "minilog-python"
    assert first.isolation_level == data_pb2.ISOLATION_LEVEL_READ_COMMITTED
    assert first.credit_bytes == world.config.fetch_max_bytes
    assert first.positions[0].fetch_offset == 0


def test_a_position_inside_a_batch_hands_out_only_what_follows() -> None:
    world = reading(5, offset=3)
    world.push()
    assert offsets(world) == [3, 4]


def test_a_bounded_partition_ends_at_its_end() -> None:
    world = reading(4, 4, 4, end_offset=6)
    assert not world.core.finished()
    world.push()
    assert offsets(world) == [0, 1, 2, 3, 4, 5]
    assert world.core.finished()
    world.run()
    assert (1, 0) not in world.positions  # and nothing more is wanted of it
    assert world.closed == [1]


def test_an_empty_range_is_finished_at_once() -> None:
    assert reading(4, offset=2, end_offset=2).core.finished()


def test_without_bounds_nothing_is_ever_finished() -> None:
    world = reading(1)
    world.push()
    world.read()
    assert not world.core.finished()


def test_a_run_of_an_old_position_is_dropped_and_its_bytes_given_back() -> None:
    world = reading(3, 3)
    late = world.brokers.run(world.positions[1, 0])
    world.core.seek(P0, 4)
    world.run()
    assert not world.receive(1, late)
    assert offsets(world) == []
    world.push()
    assert offsets(world) == [4, 5]


def test_seeking_back_reads_again() -> None:
    world = reading(3)
    world.push()
    assert offsets(world) == [0, 1, 2]
    world.core.seek(P0, 1)
    world.run()
    world.push()
    assert offsets(world) == [1, 2]


def test_credit_is_absolute_and_grows_as_runs_are_taken() -> None:
    world = reading(1, fetch_max_bytes=100)
    fill(world.brokers, 5)
    world.push()
    world.run()
    assert all(request.credit_bytes == 100 for _, request in world.requests)
    size = sum(len(batch) for _, _, batch in world.brokers.log().batches)
    world.read()
    world.run()
    assert world.requests[-1][1].credit_bytes == 100 + size


def test_dropped_runs_give_their_bytes_back_too() -> None:
    world = reading(5, fetch_max_bytes=100)
    late = world.brokers.run(world.positions[1, 0])
    world.core.seek(P0, 2)
    world.run()
    world.receive(1, late)
    world.run()
    assert world.requests[-1][1].credit_bytes == 100 + len(late[1])


def test_a_gap_is_never_skipped() -> None:
    world = reading(2, 2, 2)
    log = world.brokers.log()
    whole = list(log.batches)
    log.batches = [whole[0], whole[2]]
    world.push()
    assert offsets(world) == []
    log.batches = whole
    world.run(1000)
    world.push()
    assert offsets(world) == list(range(6))


def test_a_run_that_steps_back_is_refused() -> None:
    world = reading(2, 2)
    world.push()
    again = world.brokers.run(
        data_pb2.FetchPosition(partition_id=_id(0), position_number=world.positions[1, 0].position_number)
    )
    assert not world.receive(1, again)
    assert offsets(world) == [0, 1, 2, 3]


def test_a_cut_run_is_asked_for_again_and_reported_the_third_time() -> None:
    world = reading(2)
    for _ in range(3):
        run, batches = world.brokers.run(world.positions[1, 0])
        world.receive(1, (run, batches[:-8]))
        world.run(2000)
    with pytest.raises(CorruptMessage, match="partition 0 of topic 'flights' cannot be read at 0"):
        world.core.take(1)


def came_damaged(world: Consuming) -> bool:
    return world.positions[1, 0].came_damaged


def test_a_run_that_does_not_decode_is_read_again_from_its_start() -> None:
    world = reading(3)
    world.push()
    [run] = world.core.take(1)
    assert not came_damaged(world)
    world.core.run_is_corrupt(run, CorruptMessage("as the test says"), world.now)
    assert world.core.position(P0) == 0
    world.run(1000)
    assert came_damaged(world), "the replica has to look at its own copy"
    world.push()
    assert offsets(world) == [0, 1, 2]


def test_a_lost_session_is_opened_anew_where_the_stream_was() -> None:
    world = reading(3)
    world.push()
    world.core.session_lost(1, world.now)
    fill(world.brokers, 2)
    world.run(200)
    assert world.positions[1, 0].fetch_offset == 3  # what is buffered is not asked for again
    world.push()
    assert offsets(world) == [0, 1, 2, 3, 4]


def test_a_broker_that_is_down_is_tried_again_with_pauses() -> None:
    world = Consuming(Brokers())
    fill(world.brokers, 1)
    world.down = {1}
    world.core.assign([TopicPartition(TOPIC, 0, 0)])
    world.run(300)
    world.down = set()
    world.run(300)
    world.push()
    assert offsets(world) == [0]


def test_a_new_leader_gets_the_position_under_its_epoch() -> None:
    world = reading(3)
    world.push()
    world.brokers.move(leader=2)
    refused = data_pb2.PartitionRun(
        partition_id=_id(0),
        position_number=world.positions[1, 0].position_number,
        leader_epoch=1,
        error=common_pb2.Error(code=common_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER),
    )
    world.receive(1, (refused, b""))
    world.run(500)
    position = world.positions[2, 0]
    assert (position.fetch_offset, position.leader_epoch, position.last_fetched_epoch) == (3, 1, 0)


def test_a_run_of_a_deposed_leader_is_not_believed() -> None:
    world = reading(3)
    stale = world.brokers.run(world.positions[1, 0])
    world.brokers.move(leader=2)
    world.cache.apply(world.brokers.metadata())
    assert not world.receive(1, stale)
    world.run(500)
    assert (2, 0) in world.positions


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [5, 6]), ("latest", [])])
def test_out_of_range_follows_the_reset(reset: str, expected: list[int]) -> None:
    world = Consuming(Brokers(), auto_offset_reset=reset)
    world.brokers.log().start = 5
    fill(world.brokers, 2)
    world.core.assign([TopicPartition(TOPIC, 0, 1)])
    world.run()
    world.push()
    world.run()
    assert [asked.where for asked in world.asked] == [reset]
    world.push()
    assert offsets(world) == expected


def test_out_of_range_at_one_leader_reads_nothing_again_at_the_next_whose_log_starts_lower() -> None:
    world = reading(3, 2, auto_offset_reset="earliest")
    world.push(limit=1)
    world.read()
    world.core.seek(P0, 3)
    world.run()
    world.brokers.log().start = 4  # records are being deleted, and that leader is deposed before it is answered
    world.push()
    world.brokers.log().start = 0
    world.run()
    assert [asked.where for asked in world.asked] == ["earliest"]
    world.push()
    assert offsets(world) == [3, 4]


def test_out_of_range_is_an_error_where_the_reset_says_so() -> None:
    world = Consuming(Brokers(), auto_offset_reset="error")
    world.brokers.log().start = 5
    world.core.assign([TopicPartition(TOPIC, 0, 1)])
    world.run()
    assert world.push()
    with pytest.raises(OffsetOutOfRange, match="partition 0 of topic 'flights' has offsets 5 to 5, 1 was asked for"):
        world.core.take(1)
    world.core.seek(P0, 5)
    assert world.core.take(1) == []


def test_a_log_without_what_was_read_is_an_error_whatever_the_reset() -> None:
    world = reading(3, auto_offset_reset="earliest")
    world.push()
    world.read()
    run = data_pb2.PartitionRun(partition_id=_id(0), position_number=world.positions[1, 0].position_number)
    run.diverging_epoch.end_offset = 1
    world.receive(1, (run, b""))
    with pytest.raises(OffsetOutOfRange, match="not in the log any more"):
        world.core.take(1)


def test_without_an_offset_the_reset_says_where_to_begin() -> None:
    world = Consuming(Brokers(), auto_offset_reset="latest")
    fill(world.brokers, 3)
    world.core.assign([P0])
    world.run()
    fill(world.brokers, 2)
    world.push()
    assert offsets(world) == [3, 4]


def test_an_answer_for_an_earlier_question_is_ignored() -> None:
    world = Consuming(Brokers(), auto_offset_reset="latest")
    world.core.assign([P0])
    world.run()
    number = world.asked[0].position_number
    world.core.seek(P0, 0)
    world.core.offset_resolved(P0, number, 77)
    assert world.core.position(P0) == 0


def test_new_partitions_of_a_subscription_are_read_from_their_start() -> None:
    world = Consuming(Brokers(), auto_offset_reset="latest")
    fill(world.brokers, 3)
    world.core.subscribe([TOPIC])
    world.run()
    world.brokers.logs[(TOPIC_ID, 1)] = Log()
    fill(world.brokers, 2, partition=1)
    world.brokers.metadata_offset += 1
    world.cache.apply(world.brokers.metadata())
    world.core.metadata_changed(world.now)
    world.run()
    world.push()
    assert world.core.assignment() == [P0, P1]
    assert world.read() == [(1, 0), (1, 1)]


def test_partitions_take_turns() -> None:
    world = Consuming(Brokers(partitions=2))
    for partition in (0, 1):
        fill(world.brokers, 1, 1, 1, partition=partition)
    world.core.assign([TopicPartition(TOPIC, number, 0) for number in (0, 1)])
    world.run()
    for _ in range(3):
        world.push(limit=1)
    firsts = [world.core.take(1)[0].partition.partition for _ in range(6)]
    assert sorted(firsts[:2]) == [0, 1]
    assert sorted(firsts) == [0, 0, 0, 1, 1, 1]


def test_a_topic_that_does_not_come_is_reported() -> None:
    world = Consuming(Brokers())
    world.core.assign([TopicPartition("nowhere", 0, 0)])
    world.run(4000)
    assert world.core.take(1) == []
    world.run(2000)
    with pytest.raises(UnknownTopicOrPartition, match="'nowhere'"):
        world.core.take(1)


def test_a_topic_created_again_is_not_the_same() -> None:
    world = reading(3)
    answer = world.brokers.metadata()
    answer.topics[0].topic_id = bytes(16)
    answer.metadata_offset += 1
    world.cache.apply(answer)
    world.core.metadata_changed(world.now)
    with pytest.raises(UnknownTopicId, match="created again"):
        world.core.take(1)


def test_what_is_asked_for_wrongly_is_refused() -> None:
    world = reading(1)
    for wrong in ([P0, P0], [TopicPartition(TOPIC, 0, -1)], [TopicPartition(TOPIC, 0, 0, -2)]):
        with pytest.raises(InvalidArgument):
            world.core.assign(wrong)
    with pytest.raises(InvalidArgument, match="not assigned"):
        world.core.seek(P1, 0)
    with pytest.raises(InvalidArgument, match=r"give \['flights'\]"):
        world.core.subscribe(TOPIC)


def _id(partition: int) -> common_pb2.PartitionId:
    return common_pb2.PartitionId(topic_id=TOPIC_ID, partition=partition)


def test_what_was_buffered_before_a_seek_gives_its_bytes_back() -> None:
    world = reading(5, fetch_max_bytes=100)
    world.push()
    world.core.seek(P0, 2)
    world.run()
    size = sum(len(batch) for _, _, batch in world.brokers.log().batches)
    assert world.requests[-1][1].credit_bytes == 100 + size
