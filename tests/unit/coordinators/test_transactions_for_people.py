"""`minilog transaction list`, `describe`, `abort`, and what is forgotten when."""

from __future__ import annotations

from minilog.errors import InvalidTxnState, ProducerFenced, TransactionalIdNotFound
from minilog.v1 import coordinator_pb2
from tests.unit.coordinators.transacting import (
    COMMITTED,
    ENDING,
    ENLISTED,
    IDLE,
    OPEN,
    ORDERS_0,
    REQUEST_TIMEOUT_MS,
    T,
    Transacting,
    partition_id,
)
from tests.unit.coordinators.world import START_US, error_of

DAY_US = 86_400_000_000


def abort_by_command(world: Transacting, name: str = T) -> coordinator_pb2.AbortTransactionResponse:
    ticket = world.ticket()
    request = coordinator_pb2.AbortTransactionRequest(transactional_id=name)
    world.coordinator.abort_by_command(ticket, request, world.now)
    world.commit()
    return world.answer(ticket, coordinator_pb2.AbortTransactionResponse)


def forget(world: Transacting, name: str = T) -> coordinator_pb2.ForgetTransactionResponse:
    ticket = world.ticket()
    world.coordinator.forget(ticket, coordinator_pb2.ForgetTransactionRequest(transactional_id=name))
    world.commit()
    return world.answer(ticket, coordinator_pb2.ForgetTransactionResponse)


def listed(world: Transacting) -> list[tuple[str, int]]:
    ticket = world.ticket()
    world.coordinator.list(ticket, coordinator_pb2.ListTransactionsRequest())
    response = world.answer(ticket, coordinator_pb2.ListTransactionsResponse)
    return [(each.transactional_id, each.state) for each in response.transactions]


def test_list_tells_which_are_open_ending_and_idle() -> None:
    world = Transacting()
    world.writer(ORDERS_0, name="open")
    world.ask_to_end([world.writer(ORDERS_0, name="ending")], name="ending")
    world.ask_to_end([world.enlisted(name="idle")], name="idle")
    world.commit()
    assert listed(world) == [("ending", ENDING), ("idle", IDLE), ("open", OPEN)]


def test_list_tells_nothing_that_may_be_forgotten_again() -> None:
    world = Transacting()
    world.ask_to_enlist()
    ticket = world.ticket()
    world.coordinator.list(ticket, coordinator_pb2.ListTransactionsRequest())
    assert world.waits(ticket)
    world.coordinator.deposed()
    assert world.answer(ticket, coordinator_pb2.ListTransactionsResponse).transactions == []


def test_describe_tells_all_that_is_known() -> None:
    world = Transacting()
    producer_id = world.writer(ORDERS_0, generation=3, task=7, timeout_ms=9_000, expires=True)
    world.now_ms += 250
    described = world.describe()
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
    world = Transacting()
    for response in (world.describe(), abort_by_command(world), forget(world)):
        assert isinstance(error_of(response), TransactionalIdNotFound)


def test_an_abort_by_command_aborts_what_is_open_and_ends_the_attempt() -> None:
    world = Transacting()
    producers = [world.writer(ORDERS_0), world.enlisted()]
    assert abort_by_command(world).aborted_producers == 2
    assert isinstance(error_of(world.end(producers)), ProducerFenced)
    assert isinstance(error_of(world.enlist()), ProducerFenced)
    assert world.marks() == {(ORDERS_0, producers[0]): False}
    assert world.enlist(attempt="b").outcome == ENLISTED


def test_an_abort_by_command_after_a_commit_changes_nothing() -> None:
    world = Transacting()
    won = world.writer(ORDERS_0)
    ending = world.ask_to_end([won])
    assert abort_by_command(world).aborted_producers == 0
    world.write_markers()
    assert world.answer(ending, coordinator_pb2.EndTransactionResponse).outcome == COMMITTED
    assert world.marks() == {(ORDERS_0, won): True}


def test_an_id_is_forgotten_by_command_when_it_is_idle() -> None:
    world = Transacting()
    won = world.writer(ORDERS_0, generation=9)
    assert isinstance(error_of(forget(world)), InvalidTxnState)
    world.ask_to_end([won], 9)
    world.commit()
    assert isinstance(error_of(forget(world)), InvalidTxnState)
    world.write_markers()
    assert error_of(forget(world)) is None
    assert world.enlist(generation=0, attempt="b").outcome == ENLISTED


def test_ids_of_batch_writes_are_forgotten_after_seven_days_and_others_never() -> None:
    world = Transacting()
    for name, expires in (("batch", True), ("stream", False), ("open batch", True)):
        producer_id = world.enlisted(name=name, expires=expires)
        if name != "open batch":
            world.end([producer_id], name=name)
    world.coordinator.expire(START_US + 7 * DAY_US - 1)
    world.commit()
    assert len(listed(world)) == 3
    world.coordinator.expire(START_US + 7 * DAY_US)
    world.commit()
    assert listed(world) == [("open batch", OPEN), ("stream", IDLE)]
    world.fail_over()
    assert listed(world) == [("open batch", OPEN), ("stream", IDLE)]


def test_the_seven_days_begin_anew_with_every_use() -> None:
    world = Transacting()
    world.enlisted(expires=True)
    world.wall_us += 6 * DAY_US
    world.enlisted(attempt="b", expires=True)
    world.abort(attempt="b")
    world.wait(REQUEST_TIMEOUT_MS)
    world.coordinator.expire(world.wall_us + 6 * DAY_US)
    world.commit()
    assert listed(world) == [(T, IDLE)]
