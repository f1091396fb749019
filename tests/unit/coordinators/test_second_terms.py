"""A broker keeps one coordinator for all its terms: what the second term must not know of the first one."""

from __future__ import annotations

import pytest

from minilog.errors import NotCoordinator, NotEnoughReplicas
from minilog.v1 import coordinator_pb2, queue_pb2
from minilog_broker.replication.stable_offsets import StableOffset
from tests.rules import proves
from tests.unit.coordinators.cluster import error_of
from tests.unit.coordinators.forgetting import known_beyond
from tests.unit.coordinators.grouping import SETTINGS
from tests.unit.coordinators.membering import Membering, orders
from tests.unit.coordinators.queueing import ACCEPT, LOCK_MS, P0, RELEASE, Queueing, offsets
from tests.unit.coordinators.transacting import ORDERS_0, TIMEOUT_MS, TransactionCalls

pytestmark = proves("CO.4")


def test_an_answer_to_a_question_of_the_first_term_says_nothing_in_the_second() -> None:
    world = Queueing()
    world.ask_to_lease()
    (asked,) = world.asked
    world.second_term()
    world.asked.clear()
    ticket = world.ask_to_lease()
    world.coordinator.stable_offset(asked, StableOffset(1, 0, 5, 5, 100), world.now)
    world.commit()
    assert world.waits(ticket), "the leader of today has said nothing"
    world.has(2)
    assert offsets(world.lease_answer(ticket)) == [0, 1]


def test_a_second_term_asks_for_the_end_of_each_partition_anew() -> None:
    world = Queueing()
    world.has(3)
    world.lease(1)
    world.stable[P0] = StableOffset(2, 0, 1, 1, 100)  # the log is cut meanwhile
    world.second_term()
    ticket = world.ask_to_lease()
    world.commit()
    assert world.waits(ticket), "the first term knew of three records"


def test_the_call_of_a_first_term_is_refused_and_not_served_in_the_second() -> None:
    world = Queueing()
    world.has(0)
    ticket = world.ask_to_lease()
    world.commit()
    world.second_term()
    assert isinstance(error_of(world.answer(ticket, queue_pb2.LeaseResponse)), NotCoordinator)
    world.has(3)
    world.commit()
    assert ticket not in world.answers
    assert offsets(world.lease(10)) == [0, 1, 2], "nobody has them"


@pytest.mark.parametrize("passed_ms", [0, 1_000])
def test_a_lock_of_the_first_term_ends_in_the_second_no_sooner_than_one_that_began_with_it(passed_ms: int) -> None:
    world = Queueing()
    world.has(2)
    leased = world.lease(1)
    world.pass_ms(LOCK_MS - 1_000)
    world.second_term(lambda: world.pass_ms(passed_ms))
    world.pass_ms(LOCK_MS - 1)
    assert world.settle(leased, 0, 0, ACCEPT) is None


def test_a_lock_that_another_coordinator_ended_ends_nothing_in_a_second_term() -> None:
    """The record has another lease by then."""
    world = Queueing()
    world.has(1)
    first = world.lease(1)

    def meanwhile() -> None:
        assert world.settle(first, 0, 0, RELEASE) is None
        assert offsets(world.lease(1)) == [0]
        world.pass_ms(LOCK_MS / 2)

    world.second_term(meanwhile)
    assert world.settle(first, 0, 0) is not None
    world.pass_ms(LOCK_MS - 1)
    ticket = world.ask_to_lease(1)
    world.commit()
    assert world.waits(ticket)


def test_a_delay_begins_anew_with_a_second_term() -> None:
    world = Queueing()
    world.has(1)
    assert world.settle(world.lease(1), 0, 0, RELEASE, delay_ms=2_000) is None
    waiting = world.ask_to_lease(1)
    world.pass_ms(500)
    world.second_term()
    assert isinstance(error_of(world.answer(waiting, queue_pb2.LeaseResponse)), NotCoordinator)
    ticket = world.ask_to_lease(1)
    world.pass_ms(1_999)
    world.commit()
    assert ticket not in world.answers
    world.pass_ms(1)
    assert offsets(world.lease_answer(ticket)) == [0]


def test_a_coordinator_forgets_what_it_was_in_the_midst_of() -> None:
    """Each field that a term fills has something before the term ends: so that it is known to be forgotten."""
    world = Queueing()
    world.alter(limit="2")
    world.has(20)
    world.lease(4)
    world.pass_ms(LOCK_MS)
    world.lease(4, worker="w2")  # a redelivery; before their last one records are leased alone
    leased = world.lease(4, worker="w3")
    world.ask_to_settle_in_transaction([world.settlement(leased, *[offsets(leased)[0]] * 2)])
    world.register_producers()
    world.commit()
    world.has(20, start=15)  # retention takes what nobody has
    world.refusal = NotEnoughReplicas("the ISR is small")
    world.pass_ms(LOCK_MS)  # locks end, and that cannot be written
    world.ask_to_lease(1, worker="w4")
    world.fail_questions(NotEnoughReplicas("no leader"))
    world.refusal = None
    known = " ".join(known_beyond(world.coordinator, world.make()))
    for field in ("expired", "redelivered", "_retries", "_unwritten", "_retry_at_ms", "_owners_of", "_alone", "_turns"):
        assert f".{field}" in known, field
    world.fail_over()


def test_a_member_has_a_whole_session_in_a_second_term_and_none_of_the_first() -> None:
    world = Membering()
    member = world.member("a")
    world.settle()
    assert member.hands_out() == orders(*range(6))
    world.pass_ms(SETTINGS.session_timeout_ms - 1_000.0)
    member.break_link(tell=False)
    world.second_term(lambda: world.pass_ms(500.0))
    world.pass_ms(SETTINGS.session_timeout_ms - 200.0)
    world.commit()
    assert world.held("a").assigned, "its session lasts"
    world.pass_ms(400.0)
    world.commit()
    assert not world.held("a").assigned


def test_a_transaction_that_another_coordinator_ended_does_not_time_out_in_a_second_term() -> None:
    world = TransactionCalls()
    producer_id = world.writer(ORDERS_0)

    def meanwhile() -> None:
        world.end([producer_id])

    world.second_term(meanwhile)
    world.asked_markers()
    world.wait(2 * TIMEOUT_MS)
    world.write_markers()
    assert set(world.marks().values()) == {True}


def test_a_call_that_waits_for_markers_is_refused_once_and_ends_in_the_second_term() -> None:
    world = TransactionCalls()
    ticket = world.ask_to_end([world.writer(ORDERS_0)])
    world.commit()
    asked = world.asked_markers()
    world.second_term()
    response = world.answer(ticket, coordinator_pb2.EndTransactionResponse)
    assert isinstance(error_of(response), NotCoordinator)
    for effect in asked:
        world.coordinator.markers_written(effect, world.now)  # of the first term
    world.write_markers()
    assert ticket not in world.answers
    assert set(world.marks().values()) == {True}
