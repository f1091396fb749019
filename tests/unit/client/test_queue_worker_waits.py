"""How long a worker of a queue lets its request for a lease wait at the coordinator, and what ends the wait."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidArgument, UnknownTopicId
from minilog.queues.worker import LEASE_WAIT_MS, LONGEST_LEASE_WAIT_MS, AskLease, RenewLeases
from minilog.v1 import queue_pb2
from tests.unit.client.queueing import LOCK_MS, TOPIC, TOPIC_ID, Working, leased_range


def waits_ms(working: Working) -> list[int]:
    return [ask.max_wait_ms for ask in working.wanted(AskLease)]


def answer_without_records(working: Working) -> None:
    working.now_ms += LONGEST_LEASE_WAIT_MS
    working.worker.polled(working.now_ms)
    working.worker.leased(queue_pb2.LeaseResponse(), working.now_ms - LONGEST_LEASE_WAIT_MS, working.now_ms)
    working.poll()


def test_a_worker_without_work_asks_less_and_less() -> None:
    working = Working()
    for _ in range(8):
        answer_without_records(working)
    assert waits_ms(working) == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 32_000, 32_000]


def test_records_and_a_new_subscription_begin_the_waits_anew() -> None:
    working = Working()
    answer_without_records(working)
    answer_without_records(working)
    working.grant(leased_range(0, 0))
    working.read([0], 1)
    working.hand_out()
    working.poll()
    assert waits_ms(working)[-1] == LEASE_WAIT_MS
    answer_without_records(working)
    working.worker.subscribe({TOPIC: TOPIC_ID})
    working.worker.lease_stopped(working.now_ms)
    working.poll()
    assert waits_ms(working)[-1] == LEASE_WAIT_MS


def test_the_program_learns_of_a_topic_that_is_gone_and_what_to_do() -> None:
    work = Working()
    (ask,) = work.wanted(AskLease)
    for _ in range(2):
        work.worker.lease_failed(ask, UnknownTopicId("topic id 01"), 0.0)
    (error,) = work.worker.errors
    assert "(orders) was deleted, or made anew: subscribe anew" in str(error)


def test_messages_leased_before_are_handed_out_when_their_lease_is_renewed() -> None:
    work = Working()
    work.grant(leased_range(0, 9), must_be_renewed_first=True)
    work.read(range(10), 10)
    assert work.hand_out() == []
    work.poll()
    assert work.wanted(RenewLeases) == [RenewLeases((1,))]
    work.worker.renewed([1], queue_pb2.RenewLeasesResponse(lock_duration_ms=LOCK_MS), 0.0)
    assert len(work.hand_out()) == 10


def test_a_message_without_a_verdict_is_named_once_after_three_locks(caplog: pytest.LogCaptureFixture) -> None:
    work = Working()
    work.grant(leased_range(0, 2))
    work.read(range(3), 3)
    first, _ = work.hand_out(2)
    first.accept()
    work.poll()
    for number in range(1, 20):
        assert bool(caplog.records) == (number > 9)
        work.worker.renewed([1], queue_pb2.RenewLeasesResponse(lock_duration_ms=LOCK_MS), number * LOCK_MS / 3)
    (record,) = caplog.records
    assert "offset 1 of partition 0 of topic 'orders'" in record.getMessage()


def test_a_delay_and_a_reason_of_another_type_are_typed_errors() -> None:
    work = Working()
    work.grant(leased_range(0, 0))
    work.read([0], 1)
    (message,) = work.hand_out()
    for delay in ("3", None, True, float("nan"), [1]):
        with pytest.raises(InvalidArgument, match="give a number from 0"):
            message.release(delay)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="is a text"):
        message.reject(5)  # type: ignore[arg-type]
    message.accept()
