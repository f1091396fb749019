"""`minilog transaction list`, `describe`, `abort`, and what is forgotten when."""

from __future__ import annotations

from minilog.errors import InvalidTxnState, ProducerFenced, TransactionalIdNotFound
from minilog.v1 import coordinator_pb2
from tests.unit.coordinators.cluster import START_US, error_of
from tests.unit.coordinators.transacting import (
    COMMITTED,
    ENDING,
    ENLISTED,
    IDLE,
    OPEN,
    ORDERS_0,
    REQUEST_TIMEOUT_MS,
    T,
    TransactionCalls,
    partition_id,
)

DAY_US = 86_400_000_000
HOUR_US = DAY_US // 24


def abort_by_command(cluster: TransactionCalls, name: str = T) -> coordinator_pb2.AbortTransactionResponse:
    ticket = cluster.ticket()
    request = coordinator_pb2.AbortTransactionRequest(transactional_id=name)
    cluster.coordinator.abort_by_command(ticket, request, cluster.now)
    cluster.commit()
    return cluster.answer(ticket, coordinator_pb2.AbortTransactionResponse)


def forget(cluster: TransactionCalls, name: str = T) -> coordinator_pb2.ForgetTransactionResponse:
    ticket = cluster.ticket()
    cluster.coordinator.forget(ticket, coordinator_pb2.ForgetTransactionRequest(transactional_id=name))
    cluster.commit()
    return cluster.answer(ticket, coordinator_pb2.ForgetTransactionResponse)


def listed(cluster: TransactionCalls) -> list[tuple[str, int]]:
    ticket = cluster.ticket()
    cluster.coordinator.list(ticket, coordinator_pb2.ListTransactionsRequest())
    response = cluster.answer(ticket, coordinator_pb2.ListTransactionsResponse)
    return [(each.transactional_id, each.state) for each in response.transactions]


def test_list_tells_which_are_open_ending_and_idle() -> None:
    cluster = TransactionCalls()
    cluster.writer(ORDERS_0, name="open")
    cluster.ask_to_end([cluster.writer(ORDERS_0, name="ending")], name="ending")
    cluster.ask_to_end([cluster.enlisted(name="idle")], name="idle")
    cluster.commit()
    assert listed(cluster) == [("ending", ENDING), ("idle", IDLE), ("open", OPEN)]


def test_list_tells_nothing_that_may_be_forgotten_again() -> None:
    cluster = TransactionCalls()
    cluster.ask_to_enlist()
    ticket = cluster.ticket()
    cluster.coordinator.list(ticket, coordinator_pb2.ListTransactionsRequest())
    assert cluster.waits(ticket)
    cluster.coordinator.deposed()
    assert cluster.answer(ticket, coordinator_pb2.ListTransactionsResponse).transactions == []


def test_describe_tells_all_that_is_known() -> None:
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


def test_an_unknown_id_is_told_so() -> None:
    cluster = TransactionCalls()
    for response in (cluster.describe(), abort_by_command(cluster), forget(cluster)):
        assert isinstance(error_of(response), TransactionalIdNotFound)


def test_an_abort_by_command_aborts_what_is_open_and_ends_the_attempt() -> None:
    cluster = TransactionCalls()
    producers = [cluster.writer(ORDERS_0), cluster.enlisted()]
    assert abort_by_command(cluster).aborted_producers == 2
    assert isinstance(error_of(cluster.end(producers)), ProducerFenced)
    assert isinstance(error_of(cluster.enlist()), ProducerFenced)
    assert cluster.marks() == {(ORDERS_0, producers[0]): False}
    assert cluster.enlist(attempt="b").outcome == ENLISTED


def test_an_abort_by_command_after_a_commit_changes_nothing() -> None:
    cluster = TransactionCalls()
    won = cluster.writer(ORDERS_0)
    ending = cluster.ask_to_end([won])
    assert abort_by_command(cluster).aborted_producers == 0
    cluster.write_markers()
    assert cluster.answer(ending, coordinator_pb2.EndTransactionResponse).outcome == COMMITTED
    assert cluster.marks() == {(ORDERS_0, won): True}


def test_an_id_is_forgotten_by_command_when_it_is_idle() -> None:
    cluster = TransactionCalls()
    won = cluster.writer(ORDERS_0, generation=9)
    assert isinstance(error_of(forget(cluster)), InvalidTxnState)
    cluster.ask_to_end([won], 9)
    cluster.commit()
    assert isinstance(error_of(forget(cluster)), InvalidTxnState)
    cluster.write_markers()
    assert error_of(forget(cluster)) is None
    assert cluster.enlist(generation=0, attempt="b").outcome == ENLISTED


def test_ids_of_batch_writes_are_forgotten_after_seven_days_and_others_never() -> None:
    cluster = TransactionCalls()
    for name, expires in (("batch", True), ("stream", False), ("open batch", True)):
        producer_id = cluster.enlisted(name=name, expires=expires)
        if name != "open batch":
            cluster.end([producer_id], name=name)
    cluster.coordinator.expire(START_US + 7 * DAY_US - 1)
    cluster.commit()
    assert len(listed(cluster)) == 3
    cluster.coordinator.expire(START_US + 7 * DAY_US)
    cluster.commit()
    assert listed(cluster) == [("open batch", OPEN), ("stream", IDLE)]
    cluster.fail_over()
    assert listed(cluster) == [("open batch", OPEN), ("stream", IDLE)]


def test_ids_that_one_run_alone_can_have_are_forgotten_after_an_hour() -> None:
    """Those of batch writes without a name end in the id of their run: no other run comes back for them."""
    cluster = TransactionCalls()
    run = "0b0d2f6e-4b1c-4a52-9b7a-2f6f6b1f6c11"
    for name in (f"spark-write-{run}", "daily", f"spark-write-{run}-open"):
        producer_id = cluster.enlisted(name=name, run=run, expires=True)
        if not name.endswith("open"):
            cluster.end([producer_id], name=name, run=run)
    cluster.coordinator.expire(START_US + HOUR_US - 1)
    cluster.commit()
    assert len(listed(cluster)) == 3
    cluster.coordinator.expire(START_US + HOUR_US)
    cluster.commit()
    assert listed(cluster) == [("daily", IDLE), (f"spark-write-{run}-open", OPEN)]


def test_the_seven_days_begin_anew_with_every_use() -> None:
    cluster = TransactionCalls()
    cluster.enlisted(expires=True)
    cluster.wall_us += 6 * DAY_US
    cluster.enlisted(attempt="b", expires=True)
    cluster.abort(attempt="b")
    cluster.wait(REQUEST_TIMEOUT_MS)
    cluster.coordinator.expire(cluster.wall_us + 6 * DAY_US)
    cluster.commit()
    assert listed(cluster) == [(T, IDLE)]
