"""Producing (docs/spec/replication.md § Producing): order, retries, unknown outcomes, producer ids."""

from __future__ import annotations

import gc
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import (
    AuthorizationFailed,
    BrokerNotAvailable,
    Closed,
    InvalidRecord,
    MessageTooLarge,
    MinilogError,
    TimedOut,
    UnknownOutcome,
)
from minilog.partition_key import PartitionKey
from minilog.producer.batch import Batch
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
    cluster = Producing(Brokers(), **settings)
    cluster.send(b"first")
    cluster.run()
    return cluster


def test_a_record_is_written_and_its_future_names_the_place() -> None:
    cluster = Producing(Brokers())
    future = cluster.send(b"a")
    cluster.run()
    assert future.result(0) == (TOPIC, 0, 0, 7)
    assert values(cluster.brokers) == [b"a"]
    assert cluster.accumulator.used_bytes() == 0


def test_nothing_is_sent_before_there_is_a_producer_id() -> None:
    cluster = Producing(Brokers())
    cluster.send(b"a")
    cluster.run()
    header = decode_header(cluster.sent[0][2])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (101, 0, 0)


def test_a_refused_producer_id_is_reported_at_once() -> None:
    producing = Producing(Brokers())
    producing.refuses_ids = AuthorizationFailed("User:poor is not allowed to idempotent write cluster")
    first, other = producing.send(), producing.send(partition=1)
    producing.run()
    for each in (first, other):
        assert each.done()
        assert each.exception() is producing.refuses_ids
    producing.refuses_ids = None
    allowed = producing.send()
    producing.run(for_ms=1_000)
    assert allowed.result().offset == 0


def test_an_id_that_cannot_be_had_now_is_asked_for_again() -> None:
    producing = Producing(Brokers())
    producing.refuses_ids = BrokerNotAvailable("nobody answers")
    future = producing.send()
    producing.run(for_ms=2_000)
    assert not future.done()
    producing.refuses_ids = None
    producing.run(for_ms=1_000)
    assert future.result().offset == 0


def test_without_idempotence_no_id_is_asked_for() -> None:
    cluster = Producing(Brokers(), enable_idempotence=False)
    cluster.send(b"a")
    cluster.run()
    assert cluster.ids_given == 0
    assert decode_header(cluster.sent[0][2]).producer_id == -1


def test_only_one_batch_is_out_until_the_first_is_acknowledged() -> None:
    cluster = Producing(Brokers())
    cluster.hold = True
    for number in range(3):
        cluster.send(b"%d" % number)
    cluster.run()
    assert len(cluster.sent) == 1
    cluster.release()
    cluster.run()
    assert values(cluster.brokers) == [b"0", b"1", b"2"]


def test_at_most_five_batches_are_unanswered() -> None:
    cluster = proven()
    cluster.hold = True
    for number in range(9):
        cluster.send(b"%d" % number)
    cluster.run()
    assert len(cluster.held) == 5
    cluster.release()
    cluster.run()
    assert values(cluster.brokers) == [b"first", *(b"%d" % number for number in range(9))]


def test_after_a_lost_connection_all_go_again_in_order_and_none_is_written_twice() -> None:
    cluster = proven()
    cluster.mute = True
    futures = [cluster.send(b"%d" % number) for number in range(4)]
    cluster.run()
    cluster.mute = False
    cluster.lose_connection(1)
    cluster.run(500)
    assert [future.result(0).offset for future in futures] == [1, 2, 3, 4]
    assert values(cluster.brokers) == [b"first", b"0", b"1", b"2", b"3"]


def test_a_new_leader_is_found_and_gets_what_is_missing() -> None:
    cluster = proven()
    cluster.brokers.move(leader=2)
    futures = [cluster.send(b"%d" % number) for number in range(3)]
    cluster.run(300)
    assert [future.result(0).offset for future in futures] == [1, 2, 3]
    assert cluster.sent[-1][0] == 2
    assert cluster.sent[-1][1].leader_epoch == 1


def test_a_refused_batch_holds_back_those_behind_it() -> None:
    cluster = proven()
    cluster.brokers.script.extend([NOT_ENOUGH_REPLICAS])
    futures = [cluster.send(b"%d" % number) for number in range(3)]
    cluster.run(1000)
    assert all(future.done() for future in futures)
    assert values(cluster.brokers) == [b"first", b"0", b"1", b"2"]


def test_a_batch_that_was_always_refused_is_timed_out_and_not_unknown() -> None:
    cluster = proven(delivery_timeout_ms=1000)
    cluster.brokers.script.extend([NOT_ENOUGH_REPLICAS] * 1000)
    future = cluster.send(b"a")
    cluster.run(1100)
    with pytest.raises(TimedOut, match=r"partition 0 of topic 'flights'.*NOT_ENOUGH_REPLICAS"):
        future.result(0)
    cluster.brokers.script.clear()
    after = cluster.send(b"b")
    cluster.run(1000)
    assert after.result(0).offset == 1  # the gap in the sequence was closed
    assert cluster.ids_given == 1


def test_a_batch_that_could_never_be_sent_is_timed_out() -> None:
    cluster = Producing(Brokers(), delivery_timeout_ms=1000)
    cluster.down = {1, 2}
    future = cluster.send(b"a")
    cluster.run(1100)
    with pytest.raises(TimedOut):
        future.result(0)
    assert cluster.sent == []


def test_batches_for_a_leader_without_the_listener_wait_for_it_and_name_it_in_the_end() -> None:
    cluster = Producing(Brokers(), delivery_timeout_ms=1000)
    cluster.brokers.listener, cluster.brokers.unreachable = "outside", {1}
    cluster.cache.apply(cluster.brokers.metadata())
    waits = cluster.send(b"a")
    cluster.run(500)
    cluster.brokers.unreachable.clear()
    cluster.run(300)
    assert waits.result(0).offset == 0
    cluster.brokers.unreachable.add(1)
    cluster.cache.apply(cluster.brokers.metadata())
    future = cluster.send(b"b")
    cluster.run(1100)
    with pytest.raises(TimedOut, match="LISTENER_NOT_FOUND: broker 1 has no listener 'outside'"):
        future.result(0)


def test_a_batch_without_an_answer_is_unknown_and_so_are_those_sent_behind_it() -> None:
    cluster = proven(delivery_timeout_ms=1000)
    cluster.hold = True
    futures = [cluster.send(b"%d" % number) for number in range(3)]
    cluster.run(1100)
    for future in futures:
        with pytest.raises(UnknownOutcome):
            future.result(0)


def test_a_timeout_at_the_leader_is_asked_again_and_then_unknown() -> None:
    cluster = proven(delivery_timeout_ms=1000)
    cluster.brokers.script.extend([TIMED_OUT_THERE] * 1000)
    future = cluster.send(b"a")
    cluster.run(1100)
    with pytest.raises(UnknownOutcome):
        future.result(0)


def test_a_timeout_at_the_leader_that_ends_well_is_no_error() -> None:
    cluster = proven()
    cluster.brokers.script.extend([TIMED_OUT_THERE])
    future = cluster.send(b"a")
    cluster.run(500)
    assert future.result(0).offset == 1


def test_a_new_producer_id_waits_until_nothing_is_out_anywhere() -> None:
    cluster = Producing(Brokers(partitions=2), delivery_timeout_ms=1000)
    for partition in (0, 1):
        cluster.send(b"first", partition=partition)
    cluster.run()
    cluster.hold = True
    lost = cluster.send(b"lost", partition=0)
    cluster.run(600)
    other = cluster.send(b"other", partition=1)
    cluster.run(500)
    with pytest.raises(UnknownOutcome):
        lost.result(0)
    later = cluster.send(b"later", partition=0)
    cluster.run(100)
    assert cluster.ids_given == 1  # `other` is still out
    assert not later.done()
    cluster.held = [out for out in cluster.held if out[1].partition_id.partition == 1]
    cluster.release()
    cluster.run()
    assert other.result(0).offset == 1
    assert cluster.ids_given == 2
    assert later.result(0).offset == 1


def test_an_answer_after_the_end_changes_nothing() -> None:
    cluster = proven(delivery_timeout_ms=1000)
    cluster.hold = True
    future = cluster.send(b"a")
    cluster.run(1100)
    assert isinstance(future.exception(0), UnknownOutcome)
    cluster.release()
    cluster.run()
    assert values(cluster.brokers) == [b"first", b"a"]  # unknown was the truth


def test_an_error_that_stays_fails_one_batch_and_the_next_ones_take_its_sequence() -> None:
    cluster = proven()
    cluster.hold = True
    futures = [cluster.send(b"%d" % number) for number in range(3)]
    cluster.run()
    cluster.brokers.script.append(TOO_LARGE)
    cluster.release()
    cluster.run(500)
    with pytest.raises(MessageTooLarge):
        futures[0].result(0)
    assert [future.result(0).offset for future in futures[1:]] == [1, 2]
    assert cluster.ids_given == 1


def test_a_leader_that_lost_our_state_leads_to_a_new_producer_id() -> None:
    cluster = proven()
    for number in range(2):
        cluster.send(b"%d" % number)
    cluster.run()
    producers = cluster.brokers.log().producers
    producers[101].clear()
    producers[101].append((7, 1, 0))  # of another history
    future = cluster.send(b"after")
    cluster.run(2000)
    assert future.result(0).offset == 3
    assert cluster.ids_given == 2


def test_closing_reports_everything() -> None:
    cluster = proven()
    cluster.hold = True
    out = cluster.send(b"out")
    cluster.run()
    waiting = cluster.append(b"waiting")
    for effect in cluster.sender.abandon():
        effect.batch.completion.failed(effect.error)  # type: ignore[union-attr]
    assert isinstance(out.exception(0), UnknownOutcome)
    assert isinstance(waiting.exception(0), Closed)


def test_columns_that_are_no_records_fail_alone() -> None:
    cluster = proven()
    future = _send_columns(cluster, pa.RecordBatch.from_pydict({"value": [1]}))
    good = cluster.send(b"good")
    cluster.run()
    assert isinstance(future.exception(0), InvalidRecord)
    assert good.result(0).offset == 1


def _send_columns(cluster: Producing, columns: pa.RecordBatch) -> Future[Any]:
    future: Future[Any] = Future()
    cluster.accumulator.append_columns(cluster.cache.topics[TOPIC], [(0, columns)], future, cluster.now)
    return future


def test_an_arrow_batch_is_written_whole_behind_the_records_before_it() -> None:
    cluster = proven()
    cluster.append(b"before")
    future = _send_columns(cluster, pa.RecordBatch.from_pydict({"value": [b"x", b"y"]}))
    cluster.run()
    assert values(cluster.brokers) == [b"first", b"before", b"x", b"y"]
    [part] = future.result(0)
    assert (part.partition, part.first_offset, part.last_offset) == (0, 2, 3)


def test_lanes_of_other_partitions_go_on() -> None:
    cluster = Producing(Brokers(partitions=2))
    cluster.brokers.logs[PartitionKey(TOPIC_ID, 1)].leader = 2
    cluster.cache.topics.clear()
    cluster.brokers.metadata_offset += 1
    cluster.brokers.log(1).epoch = 1
    cluster.cache.apply(cluster.brokers.metadata())
    cluster.down = {2}
    stuck, fine = cluster.send(b"stuck", partition=1), cluster.send(b"fine", partition=0)
    cluster.run(200)
    assert fine.result(0).offset == 0
    assert not stuck.done()
    cluster.down = set()
    cluster.run(1000)
    assert stuck.result(0).offset == 0


def test_batches_lost_with_a_connection_are_unknown_and_never_failed() -> None:
    cluster = proven(delivery_timeout_ms=1000)
    cluster.hold = True
    future = cluster.send(b"a")
    cluster.run()
    cluster.down = {1, 2}
    cluster.lose_connection(1)
    cluster.run(1100)
    assert isinstance(future.exception(0), UnknownOutcome)


def test_nothing_is_sent_again_while_others_of_the_partition_are_out() -> None:
    cluster = proven()
    cluster.hold = True
    for number in range(3):
        cluster.send(b"%d" % number)
    cluster.run()
    others, cluster.held = cluster.held[1:], cluster.held[:1]
    cluster.brokers.script.append(NOT_ENOUGH_REPLICAS)
    cluster.release()
    cluster.hold = True
    cluster.run(500)
    assert len(cluster.sent) == 4
    cluster.held = others
    cluster.release()
    cluster.run(500)
    assert values(cluster.brokers) == [b"first", b"0", b"1", b"2"]


def test_a_batch_that_cannot_be_encoded_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Producing(Brokers(partitions=3))
    encode = Batch.encode

    def without_memory(batch: Batch, *given: Any, **named: Any) -> None:
        if batch.key.partition == 0:
            raise MemoryError("as the test says")
        encode(batch, *given, **named)

    monkeypatch.setattr(Batch, "encode", without_memory)
    futures = [cluster.send(b"a", partition=partition) for partition in (0, 1, 2, 0)]
    cluster.run(100)
    for index in (0, 3):
        with pytest.raises(MinilogError, match="could not encode them: MemoryError"):
            futures[index].result(timeout=0)
    assert [futures[index].result(timeout=0).partition for index in (1, 2)] == [1, 2]
    assert cluster.accumulator.used_bytes() == 0


def test_delivered_batches_are_freed_without_the_garbage_collector() -> None:
    """A batch is up to a mebibyte: the next one is to have its memory."""
    cluster = proven()
    gc.collect()
    gc.disable()
    try:
        one, many = cluster.send(partition=None), Future[object]()
        columns = pa.record_batch({"value": [b"a", b"b"]})
        cluster.accumulator.append_columns(cluster.cache.topics[TOPIC], [(0, columns)], many, cluster.now)
        cluster.run()
        assert one.done()
        assert many.done()
        assert [each for each in gc.get_objects() if isinstance(each, Batch)] == []
    finally:
        gc.enable()


def test_a_batch_that_lingers_behind_a_due_one_is_waited_for() -> None:
    cluster = proven(linger_ms=5)
    cluster.now = 2_000.0
    cluster.append(b"a", partition=1)
    cluster.now = 2_003.0
    cluster.append(b"b", partition=2)
    cluster.now = 2_004.9
    cluster.step()
    assert cluster.sender.next_wake_ms(2_005.1) <= 2_008.0


def test_a_record_goes_at_once_while_nothing_is_on_its_way_and_others_gather_meanwhile() -> None:
    cluster = proven(linger_ms=None)
    sent, cluster.hold = len(cluster.sent), True
    cluster.append(b"a")
    cluster.step()
    assert len(cluster.sent) == sent + 1, "at once"
    for value in (b"b", b"c"):
        cluster.append(value)
        cluster.step()
    assert len(cluster.sent) == sent + 1, "they wait for more"
    cluster.now += 5.0
    cluster.step()
    assert len(cluster.sent) == sent + 2, "no longer than linger.ms"
    cluster.append(b"d")
    cluster.step()
    assert len(cluster.sent) == sent + 2
    cluster.release()
    cluster.run()
    assert len(cluster.sent) == sent + 3, "all that was answered: nothing lingers"


def test_a_linger_that_was_asked_for_is_kept() -> None:
    cluster = proven(linger_ms=5)
    sent = len(cluster.sent)
    cluster.append(b"a")
    cluster.step()
    assert len(cluster.sent) == sent
    cluster.now += 5.0
    cluster.step()
    assert len(cluster.sent) == sent + 1


def test_batches_that_cannot_go_gather_though_nothing_is_on_its_way() -> None:
    cluster = proven(linger_ms=None)
    cluster.down.add(1)
    cluster.lose_connection(1)
    futures = []
    for _ in range(5):
        futures.append(cluster.append(b"a"))
        cluster.step()
    cluster.down.clear()
    sent = len(cluster.sent)
    for _ in range(10):
        cluster.now += 100.0
        cluster.step()
    cluster.run()
    assert all(each.done() for each in futures)
    assert len(cluster.sent) == sent + 1, "one batch"
