"""Producing (docs/spec/replication.md § Producing): order, retries, unknown outcomes, producer ids."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import (
    Closed,
    InvalidRecord,
    MessageTooLarge,
    TimedOut,
    UnknownOutcome,
    UnknownTopicId,
)
from minilog.metadata_cache import PartitionKey
from minilog.record_batch.header import decode_header
from minilog.record_batch.reader import read_records
from minilog.v1 import common_pb2
from tests.unit.client.brokers import TOPIC, TOPIC_ID, Brokers
from tests.unit.client.producing import Producing

NOT_ENOUGH_REPLICAS = common_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS
TIMED_OUT_THERE = common_pb2.ERROR_CODE_REQUEST_TIMED_OUT
TOO_LARGE = common_pb2.ERROR_CODE_MESSAGE_TOO_LARGE


def values(brokers: Brokers, partition: int = 0) -> list[bytes]:
    run = b"".join(batch for _, _, batch in brokers.log(partition).batches)
    return [v for rows in read_records(run, TOPIC_ID, partition) for v in rows.column("value").to_pylist()]


def proven(**settings: object) -> Producing:
    """A producer whose first batch is acknowledged: it may have five out."""
    world = Producing(Brokers(), **settings)
    world.send(b"first")
    world.run()
    return world


def test_a_record_is_written_and_its_future_names_the_place() -> None:
    world = Producing(Brokers())
    future = world.send(b"a")
    world.run()
    assert future.result(0) == (TOPIC, 0, 0, 7)
    assert values(world.brokers) == [b"a"]
    assert world.accumulator.used_bytes() == 0


def test_nothing_is_sent_before_there_is_a_producer_id() -> None:
    world = Producing(Brokers())
    world.send(b"a")
    world.run()
    header = decode_header(world.sent[0][2])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (101, 0, 0)


def test_without_idempotence_no_id_is_asked_for() -> None:
    world = Producing(Brokers(), enable_idempotence=False)
    world.send(b"a")
    world.run()
    assert world.ids_given == 0
    assert decode_header(world.sent[0][2]).producer_id == -1


def test_only_one_batch_is_out_until_the_first_is_acknowledged() -> None:
    world = Producing(Brokers())
    world.hold = True
    for number in range(3):
        world.send(b"%d" % number)
    world.run()
    assert len(world.sent) == 1
    world.release()
    world.run()
    assert values(world.brokers) == [b"0", b"1", b"2"]


def test_at_most_five_batches_are_unanswered() -> None:
    world = proven()
    world.hold = True
    for number in range(9):
        world.send(b"%d" % number)
    world.run()
    assert len(world.held) == 5
    world.release()
    world.run()
    assert values(world.brokers) == [b"first", *(b"%d" % number for number in range(9))]


def test_after_a_lost_connection_all_go_again_in_order_and_none_is_written_twice() -> None:
    world = proven()
    world.mute = True
    futures = [world.send(b"%d" % number) for number in range(4)]
    world.run()
    world.mute = False
    world.lose_connection(1)
    world.run(500)
    assert [future.result(0).offset for future in futures] == [1, 2, 3, 4]
    assert values(world.brokers) == [b"first", b"0", b"1", b"2", b"3"]


def test_a_new_leader_is_found_and_gets_what_is_missing() -> None:
    world = proven()
    world.brokers.move(leader=2)
    futures = [world.send(b"%d" % number) for number in range(3)]
    world.run(300)
    assert [future.result(0).offset for future in futures] == [1, 2, 3]
    assert world.sent[-1][0] == 2
    assert world.sent[-1][1].leader_epoch == 1


def test_a_refused_batch_holds_back_those_behind_it() -> None:
    world = proven()
    world.brokers.script.extend([NOT_ENOUGH_REPLICAS])
    futures = [world.send(b"%d" % number) for number in range(3)]
    world.run(1000)
    assert all(future.done() for future in futures)
    assert values(world.brokers) == [b"first", b"0", b"1", b"2"]


def test_what_was_always_refused_is_timed_out_and_not_unknown() -> None:
    world = proven(delivery_timeout_ms=1000)
    world.brokers.script.extend([NOT_ENOUGH_REPLICAS] * 1000)
    future = world.send(b"a")
    world.run(1100)
    with pytest.raises(TimedOut, match=r"partition 0 of topic 'flights'.*NOT_ENOUGH_REPLICAS"):
        future.result(0)
    world.brokers.script.clear()
    after = world.send(b"b")
    world.run(1000)
    assert after.result(0).offset == 1  # the gap in the sequence was closed
    assert world.ids_given == 1


def test_what_could_never_be_sent_is_timed_out() -> None:
    world = Producing(Brokers(), delivery_timeout_ms=1000)
    world.down = {1, 2}
    future = world.send(b"a")
    world.run(1100)
    with pytest.raises(TimedOut):
        future.result(0)
    assert world.sent == []


def test_a_batch_without_an_answer_is_unknown_and_so_are_those_sent_behind_it() -> None:
    world = proven(delivery_timeout_ms=1000)
    world.hold = True
    futures = [world.send(b"%d" % number) for number in range(3)]
    world.run(1100)
    for future in futures:
        with pytest.raises(UnknownOutcome):
            future.result(0)


def test_a_timeout_at_the_leader_is_asked_again_and_then_unknown() -> None:
    world = proven(delivery_timeout_ms=1000)
    world.brokers.script.extend([TIMED_OUT_THERE] * 1000)
    future = world.send(b"a")
    world.run(1100)
    with pytest.raises(UnknownOutcome):
        future.result(0)


def test_a_timeout_at_the_leader_that_ends_well_is_no_error() -> None:
    world = proven()
    world.brokers.script.extend([TIMED_OUT_THERE])
    future = world.send(b"a")
    world.run(500)
    assert future.result(0).offset == 1


def test_a_new_producer_id_waits_until_nothing_is_out_anywhere() -> None:
    world = Producing(Brokers(partitions=2), delivery_timeout_ms=1000)
    for partition in (0, 1):
        world.send(b"first", partition=partition)
    world.run()
    world.hold = True
    lost = world.send(b"lost", partition=0)
    world.run(600)
    other = world.send(b"other", partition=1)
    world.run(500)
    with pytest.raises(UnknownOutcome):
        lost.result(0)
    later = world.send(b"later", partition=0)
    world.run(100)
    assert world.ids_given == 1  # `other` is still out
    assert not later.done()
    world.held = [out for out in world.held if out[1].partition_id.partition == 1]
    world.release()
    world.run()
    assert other.result(0).offset == 1
    assert world.ids_given == 2
    assert later.result(0).offset == 1


def test_an_answer_after_the_end_changes_nothing() -> None:
    world = proven(delivery_timeout_ms=1000)
    world.hold = True
    future = world.send(b"a")
    world.run(1100)
    assert isinstance(future.exception(0), UnknownOutcome)
    world.release()
    world.run()
    assert values(world.brokers) == [b"first", b"a"]  # unknown was the truth


def test_an_error_that_stays_fails_one_batch_and_the_next_ones_take_its_sequence() -> None:
    world = proven()
    world.hold = True
    futures = [world.send(b"%d" % number) for number in range(3)]
    world.run()
    world.brokers.script.append(TOO_LARGE)
    world.release()
    world.run(500)
    with pytest.raises(MessageTooLarge):
        futures[0].result(0)
    assert [future.result(0).offset for future in futures[1:]] == [1, 2]
    assert world.ids_given == 1


def test_a_leader_that_lost_our_state_leads_to_a_new_producer_id() -> None:
    world = proven()
    for number in range(2):
        world.send(b"%d" % number)
    world.run()
    producers = world.brokers.log().producers
    producers[101].clear()
    producers[101].append((7, 1, 0))  # of another history
    future = world.send(b"after")
    world.run(2000)
    assert future.result(0).offset == 3
    assert world.ids_given == 2


def test_closing_reports_everything() -> None:
    world = proven()
    world.hold = True
    out = world.send(b"out")
    world.run()
    waiting = world.append(b"waiting")
    for effect in world.sender.abandon():
        effect.batch.completion.failed(effect.error)  # type: ignore[union-attr]
    assert isinstance(out.exception(0), UnknownOutcome)
    assert isinstance(waiting.exception(0), Closed)


def test_columns_that_are_no_records_fail_alone() -> None:
    world = proven()
    future = _send_columns(world, pa.RecordBatch.from_pydict({"value": [1]}))
    good = world.send(b"good")
    world.run()
    assert isinstance(future.exception(0), InvalidRecord)
    assert good.result(0).offset == 1


def _send_columns(world: Producing, columns: pa.RecordBatch) -> Future[Any]:
    future: Future[Any] = Future()
    world.accumulator.append_columns(world.cache.topics[TOPIC], [(0, columns)], future, world.now)
    return future


def test_an_arrow_batch_is_written_whole_behind_the_records_before_it() -> None:
    world = proven()
    world.append(b"before")
    future = _send_columns(world, pa.RecordBatch.from_pydict({"value": [b"x", b"y"]}))
    world.run()
    assert values(world.brokers) == [b"first", b"before", b"x", b"y"]
    [part] = future.result(0)
    assert (part.partition, part.first_offset, part.last_offset) == (0, 2, 3)


def test_lanes_of_other_partitions_go_on() -> None:
    world = Producing(Brokers(partitions=2))
    world.brokers.logs[PartitionKey(TOPIC_ID, 1)].leader = 2
    world.cache.topics.clear()
    world.brokers.metadata_offset += 1
    world.brokers.log(1).epoch = 1
    world.cache.apply(world.brokers.metadata())
    world.down = {2}
    stuck, fine = world.send(b"stuck", partition=1), world.send(b"fine", partition=0)
    world.run(200)
    assert fine.result(0).offset == 0
    assert not stuck.done()
    world.down = set()
    world.run(1000)
    assert stuck.result(0).offset == 0


def test_what_went_down_with_a_connection_is_unknown_and_never_failed() -> None:
    world = proven(delivery_timeout_ms=1000)
    world.hold = True
    future = world.send(b"a")
    world.run()
    world.down = {1, 2}
    world.lose_connection(1)
    world.run(1100)
    assert isinstance(future.exception(0), UnknownOutcome)


def test_nothing_is_sent_again_while_others_of_the_partition_are_out() -> None:
    world = proven()
    world.hold = True
    for number in range(3):
        world.send(b"%d" % number)
    world.run()
    others, world.held = world.held[1:], world.held[:1]
    world.brokers.script.append(NOT_ENOUGH_REPLICAS)
    world.release()
    world.hold = True
    world.run(500)
    assert len(world.sent) == 4
    world.held = others
    world.release()
    world.run(500)
    assert values(world.brokers) == [b"first", b"0", b"1", b"2"]


# -- topics that go


def create_again(world: Producing) -> None:
    """The topic is deleted and created again; the cache hears of it."""
    world.brokers.metadata_offset += 1
    world.brokers.told_topic_id = bytes(16)
    world.cache.apply(world.brokers.metadata())
    world.sender.metadata_changed(world.now)


def test_what_waits_for_a_topic_created_again_is_refused_at_once() -> None:
    world = Producing(Brokers())
    world.brokers.script.extend([common_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID] * 50)
    sent, lingering = world.send(b"a"), world.append(b"b")
    world.step()
    create_again(world)
    world.step()
    for future in (sent, lingering):
        with pytest.raises(UnknownTopicId, match="was deleted or created again"):
            future.result(timeout=0)
    assert world.accumulator.used_bytes() == 0


def test_what_may_have_been_written_before_a_topic_went_is_unknown() -> None:
    world = Producing(Brokers())
    world.run()
    world.mute = True
    future = world.send(b"a")
    world.run(20)
    world.lose_connection(1)
    create_again(world)
    world.step()
    with pytest.raises(UnknownOutcome):
        future.result(timeout=0)


def test_what_is_out_when_a_topic_goes_is_told_as_it_is_answered() -> None:
    world = Producing(Brokers())
    world.run()
    world.hold = True
    future = world.send(b"a")
    world.run(20)
    create_again(world)
    world.step()
    assert not future.done()
    world.release()
    world.step()
    assert future.result(timeout=0) is not None
