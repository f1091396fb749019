"""What a description of a transaction has, and the bounds of what a coordinator remembers of one."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidArgument, InvalidTxnState, ProducerFenced
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.transactions import enlisting
from tests.unit.coordinators.cluster import START_US, error_of
from tests.unit.coordinators.transacting import OPEN, ORDERS_0, ORDERS_1, T, TransactionCalls, partition_id


def test_a_description_has_all_that_is_known() -> None:
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0, generation=3, task=7, timeout_ms=9_000, expires=True)
    cluster.now_ms += 250
    described = cluster.describe()
    assert described == coordinator_pb2.DescribeTransactionResponse(
        listing=coordinator_pb2.TransactionListing(transactional_id=T, state=OPEN, generation=3, producer_count=1),
        attempt_id=b"a",
        run_id=b"r",
        timeout_ms=9_000,
        expires=True,
        updated_us=START_US,
        silent_ms=250,
        producers=[
            coordinator_pb2.EnlistedProducer(
                producer_id=producer_id,
                generation=3,
                task=7,
                fate=coordinator_pb2.PRODUCER_FATE_OPEN,
                partitions=[partition_id(ORDERS_0)],
            )
        ],
    )


def test_an_id_of_a_transaction_has_a_bound() -> None:
    assert isinstance(error_of(TransactionCalls().enlist(name="x" * 1001)), InvalidArgument)


def test_superseded_runs_are_remembered_within_a_bound() -> None:
    cluster = TransactionCalls()
    for run in range(enlisting.MAX_SUPERSEDED + 5):
        cluster.enlisted(run=f"r{run}", attempt=f"a{run}")
    assert isinstance(error_of(cluster.enlist(run="r10", attempt="x")), ProducerFenced)
    state = cluster.coordinator.committed_state()
    assert max(len(getattr(value, "superseded_runs", ())) for value in state.values()) == enlisting.MAX_SUPERSEDED


def test_producers_and_registrations_of_one_id_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enlisting, "MAX_PRODUCERS", 2)
    monkeypatch.setattr(enlisting, "MAX_REGISTRATIONS", 1)
    cluster = TransactionCalls()
    producer_id = cluster.writer(ORDERS_0)
    assert isinstance(error_of(cluster.register(producer_id, ORDERS_1)), InvalidTxnState)
    cluster.enlisted()
    assert isinstance(error_of(cluster.enlist()), InvalidTxnState)
