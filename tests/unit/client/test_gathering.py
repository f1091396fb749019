"""`send_batch` over several partitions: what its future says where its parts end differently (rule V16)."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from minilog.errors import InvalidRecord, MessageTooLarge, UnknownOutcome
from minilog.producer.gathering import Gathering
from minilog.types import BatchMetadata
from minilog.v1 import common_pb2
from tests.unit.client.brokers import TOPIC, Brokers
from tests.unit.client.producing import Producing
from tests.unit.client.test_sender_transactions import enlistment

TOO_LARGE = common_pb2.ERROR_CODE_MESSAGE_TOO_LARGE


def sent_over(cluster: Producing, rows: dict[int, int]) -> Future[Any]:
    """One batch: so many rows for each partition."""
    future: Future[Any] = Future()
    parts = [(partition, pa.record_batch({"value": [b"v"] * count})) for partition, count in rows.items()]
    cluster.accumulator.append_columns(cluster.cache.topics[TOPIC], parts, future, cluster.now)
    return future


def written_first() -> Producing:
    """Three partitions, with one record in each."""
    cluster = Producing(Brokers(3))
    for partition in range(3):
        cluster.send(b"before", partition=partition)
    cluster.run()
    return cluster


def test_where_one_part_is_refused_and_others_are_written_the_outcome_says_where_rows_are() -> None:
    cluster = written_first()
    future = sent_over(cluster, {0: 2, 1: 3, 2: 4})
    cluster.brokers.script.extend([None, TOO_LARGE, None])
    cluster.run()
    error = future.exception(0)
    assert type(error) is UnknownOutcome
    assert str(error) == (
        "of 9 records of one batch, 6 are written (partition 0 at offsets 1 to 2, partition 2 at offsets 1 to 4), 3 "
        "are not written. MESSAGE_TOO_LARGE: as the test says. Read the topic before writing them again"
    )
    assert [cluster.brokers.log(partition).end for partition in range(3)] == [3, 1, 5]


def test_a_part_that_cannot_be_sent_at_all_does_not_hide_those_that_are_written() -> None:
    cluster = written_first()
    future: Future[Any] = Future()
    parts = [(0, pa.record_batch({"value": [b"v"]})), (1, pa.record_batch({"value": [1]}))]
    cluster.accumulator.append_columns(cluster.cache.topics[TOPIC], parts, future, cluster.now)
    cluster.run()
    with pytest.raises(
        UnknownOutcome, match=r"1 are written \(partition 0 at offsets 1 to 1\), 1 are not.*INVALID_REC"
    ):
        future.result(0)


def test_a_time_out_of_one_partition_does_not_hide_those_that_are_written() -> None:
    cluster = written_first()
    cluster.brokers.move(2, partition=1)
    cluster.down = {2}
    future = sent_over(cluster, {0: 2, 1: 3})
    cluster.run(cluster.config.delivery_timeout_ms + 1_000, step_ms=500)
    with pytest.raises(
        UnknownOutcome, match=r"2 are written \(partition 0.*3 are not written. TIMED_OUT: 3 records for"
    ):
        future.result(0)


def test_an_unknown_part_counts_apart_from_those_that_are_surely_not_written() -> None:
    future: Future[Any] = Future()
    gathering = Gathering(future, 3)
    gathering.arrived(0, BatchMetadata(TOPIC, 4, 7, 8), 2)
    gathering.failed(1, MessageTooLarge("too large"), 5)
    gathering.failed(2, UnknownOutcome("no answer"), 3)
    with pytest.raises(UnknownOutcome) as caught:
        future.result(0)
    assert str(caught.value) == (
        "of 10 records of one batch, 2 are written (partition 4 at offsets 7 to 8), 5 are not written, 3 may or may "
        "not have been written. UNKNOWN_OUTCOME: no answer"
    )


def test_where_no_part_is_written_the_first_failure_keeps_its_kind_and_says_so() -> None:
    cluster = written_first()
    future = sent_over(cluster, {0: 2, 1: 3})
    cluster.brokers.script.extend([TOO_LARGE, TOO_LARGE])
    cluster.run()
    with pytest.raises(MessageTooLarge, match="none of the other parts of this batch is written"):
        future.result(0)
    assert [cluster.brokers.log(partition).end for partition in range(2)] == [1, 1]


def test_the_only_part_fails_with_its_own_error() -> None:
    future: Future[Any] = Future()
    error = InvalidRecord("no")
    Gathering(future, 1).failed(0, error, 1)
    assert future.exception(0) is error


def test_in_a_transaction_a_part_fails_with_its_own_error_since_no_part_is_committed() -> None:
    cluster = Producing(Brokers(2), transactional_id="t")
    cluster.sender.begin(enlistment())
    future = sent_over(cluster, {0: 2, 1: 3})
    cluster.brokers.script.extend([None, TOO_LARGE])
    cluster.run()
    assert isinstance(future.exception(0), MessageTooLarge)
    assert cluster.brokers.log(0).end == 2
    cluster.sender.end()
    assert not cluster.accumulator.is_in_transaction


def test_an_error_names_a_few_of_many_places() -> None:
    future: Future[Any] = Future()
    gathering = Gathering(future, 1_000)
    for partition in range(999):
        gathering.arrived(partition, BatchMetadata(TOPIC, partition, 0, 0), 1)
    gathering.failed(999, MessageTooLarge("too large"), 1)
    with pytest.raises(UnknownOutcome, match=r"partition 19 at offsets 0 to 0, and 979 more places\)") as caught:
        future.result(0)
    assert len(str(caught.value)) < 2_000
