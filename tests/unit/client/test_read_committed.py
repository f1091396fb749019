"""isolation.level=read_committed: what was aborted and markers are passed over, at the granularity of batches."""

from __future__ import annotations

import pytest

from minilog.consumer.decode import decode
from minilog.errors import CorruptMessage
from minilog.types import TopicPartition
from minilog.v1 import data_pb2, metadata_pb2
from tests.unit.client.brokers import TOPIC, Brokers
from tests.unit.client.consuming import Consuming, fill, fill_in_transaction, mark

P0 = TopicPartition(TOPIC, 0)


def reading(brokers: Brokers, *, offset: int = 0, end_offset: int | None = None, **settings: object) -> Consuming:
    cluster = Consuming(brokers, **settings)
    cluster.core.assign([TopicPartition(TOPIC, 0, offset, end_offset)])
    cluster.run()
    return cluster


def offsets(cluster: Consuming) -> list[int]:
    return [offset for _, offset in cluster.read()]


def test_aborted_batches_are_dropped_and_those_around_them_are_read() -> None:
    brokers = Brokers()
    fill(brokers, 2)
    fill_in_transaction(brokers, 7, 3)
    fill_in_transaction(brokers, 8, 2)
    mark(brokers, 7, committed=False)
    mark(brokers, 8, committed=True)
    fill(brokers, 1)
    cluster = reading(brokers)
    cluster.push()
    assert offsets(cluster) == [0, 1, 5, 6, 9]
    assert cluster.core.position(P0) == 10


def test_records_of_an_aborted_producer_id_outside_transactions_are_read() -> None:
    brokers = Brokers()
    fill(brokers, 2)
    brokers.log().aborted = {-1}
    cluster = reading(brokers)
    cluster.push()
    assert offsets(cluster) == [0, 1]


def test_the_position_goes_past_a_stretch_that_holds_nothing_to_read() -> None:
    brokers = Brokers()
    fill_in_transaction(brokers, 7, 3, 4)
    mark(brokers, 7, committed=False)
    cluster = reading(brokers)
    assert cluster.push()
    assert offsets(cluster) == []
    assert cluster.core.position(P0) == 8
    fill(brokers, 1)
    cluster.push()
    assert offsets(cluster) == [8]


def test_every_run_moves_the_position_so_that_an_aborted_stretch_is_crossed_run_by_run() -> None:
    brokers = Brokers()
    fill_in_transaction(brokers, 7, 1, 1, 1)
    cluster = reading(brokers)
    brokers.log().aborted = {7}
    for expected in (1, 2, 3):
        assert cluster.push(limit=1)
        [run] = cluster.core.take(1)
        assert decode(run, 1 << 30).rows == []
        assert cluster.core.position(P0) == expected


def test_the_position_ends_at_the_last_stable_offset() -> None:
    brokers = Brokers()
    fill(brokers, 2)
    fill_in_transaction(brokers, 7, 3)
    brokers.log().last_stable_offset = 2
    cluster = reading(brokers)
    cluster.push()
    assert offsets(cluster) == [0, 1]
    assert cluster.core.position(P0) == 2
    mark(brokers, 7, committed=True)
    brokers.log().last_stable_offset = None
    cluster.push()
    assert offsets(cluster) == [2, 3, 4]
    assert cluster.core.position(P0) == 6


@pytest.mark.parametrize("end_offset", [4, 5, 6])
def test_a_bounded_partition_finishes_though_its_last_batches_hold_nothing(end_offset: int) -> None:
    brokers = Brokers()
    fill(brokers, 2)
    fill_in_transaction(brokers, 7, 3)
    mark(brokers, 7, committed=False)
    cluster = reading(brokers, end_offset=end_offset)
    cluster.push()
    assert not cluster.core.finished()
    assert offsets(cluster) == [0, 1]
    assert cluster.core.finished()
    assert cluster.core.position(P0) == end_offset


def test_the_aborted_producers_hold_for_the_run_they_came_with() -> None:
    brokers = Brokers()
    fill_in_transaction(brokers, 7, 2)
    cluster = reading(brokers)
    brokers.log().aborted = {7}
    cluster.push()
    brokers.log().aborted = set()
    fill_in_transaction(brokers, 7, 1)
    cluster.push()
    first, second = cluster.core.take(1 << 20)
    assert (first.aborted_producer_ids, second.aborted_producer_ids) == (frozenset({7}), frozenset())
    assert decode(first, 1 << 30).rows == []
    assert [rows.column("offset").to_pylist() for rows in decode(second, 1 << 30).rows] == [[2]]


def test_a_damaged_batch_is_never_dropped_as_an_aborted_one() -> None:
    brokers = Brokers()
    fill_in_transaction(brokers, 7, 2)
    log = brokers.log()
    first, behind, batch = log.batches[0]
    log.batches[0] = (first, behind, batch[:-1] + bytes([batch[-1] ^ 1]))
    log.aborted = {7}
    cluster = reading(brokers)
    cluster.push()
    [run] = cluster.core.take(1)
    with pytest.raises(CorruptMessage, match="crc"):
        decode(run, 1 << 30)


def test_a_follower_owes_nothing_above_the_last_stable_offset() -> None:
    brokers = Brokers()
    brokers.racks = {1: "far", 2: "near"}
    brokers.states[2] = metadata_pb2.BROKER_STATE_RUNNING
    fill(brokers, 2)
    fill_in_transaction(brokers, 7, 3)
    brokers.log().last_stable_offset = 2
    cluster = reading(brokers, client_rack="near")
    assert (2, 0) in cluster.positions
    cluster.push()
    assert offsets(cluster) == [0, 1]
    cluster.push()
    cluster.run(for_ms=5_000.0)
    assert set(cluster.positions) == {(2, 0)}
    assert cluster.core.position(P0) == 2


def test_read_uncommitted_reads_what_was_aborted_since_no_broker_says_so() -> None:
    brokers = Brokers()
    fill_in_transaction(brokers, 7, 2)
    mark(brokers, 7, committed=False)
    brokers.log().aborted = set()
    cluster = reading(brokers, isolation_level="read_uncommitted")
    cluster.push()
    assert offsets(cluster) == [0, 1]
    assert cluster.core.position(P0) == 3


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_session_that_begins_with_a_sign_of_life_has_its_isolation_all_the_same(isolation: str) -> None:
    """The broker takes it from the first message, and from no other."""
    cluster = Consuming(Brokers(), **{"isolation.level": isolation})
    said = data_pb2.IsolationLevel.Name(cluster.core.keepalive(1).isolation_level)
    assert said == f"ISOLATION_LEVEL_{isolation.upper()}"
