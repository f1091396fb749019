"""Dead records that a worker carries to the dead-letter topic (docs/spec/queues.md § Dead letters)."""

from __future__ import annotations

import pytest

from minilog.aio.dead_letters import carrying_config
from minilog.config import parse_queue_config
from minilog.errors import InvalidConfig, InvalidRecordState
from minilog.queues.dead_letters import CarryDeadLetters, letter_of, origin_of
from minilog.queues.leases import DeadLetterTopic
from minilog.queues.message import Message, Verdict
from minilog.types import Record
from minilog.v1 import queue_pb2
from tests.unit.client.queueing import LOCK_MS, P0, Working, leased_range

TOPIC = DeadLetterTopic("dead", True)


def dead_range(first: int, last: int) -> queue_pb2.LeasedRange:
    leased = leased_range(first, last, delivery_count=5)
    leased.death_reason = "no such customer"
    return leased


def granted(working: Working, *ranges: queue_pb2.LeasedRange, lease_id: int = 1, topic: str = "dead") -> None:
    working.worker.leased(
        queue_pb2.LeaseResponse(
            lease_id=lease_id,
            ranges=ranges,
            lock_duration_ms=LOCK_MS,
            dead_letter_topic=topic,
            copies_dead_records=True,
        ),
        working.now_ms,
        working.now_ms,
    )
    working.poll()


def carrying() -> tuple[Working, tuple[Message, ...]]:
    working = Working()
    granted(working, dead_range(0, 2))
    working.read([0, 1], 3)
    [ask] = working.wanted(CarryDeadLetters)
    assert ask.topic == TOPIC
    return working, ask.messages


def test_dead_records_go_to_the_carrier_and_not_to_the_program() -> None:
    working, messages = carrying()
    assert [message.offset for message in messages] == [0, 1]
    assert working.hand_out() == []
    assert [(span.first_offset, span.last_offset) for span in working.sent()] == [(2, 2)]  # it holds no record


def test_dead_and_living_records_of_one_lease_go_their_ways() -> None:
    working = Working()
    granted(working, dead_range(0, 0), leased_range(1, 1))
    working.read([0], 1)
    working.read([1], 2)
    assert [message.offset for message in working.hand_out()] == [1]
    [ask] = working.wanted(CarryDeadLetters)
    assert [message.offset for message in ask.messages] == [0]


def test_transactions_of_letters_run_one_at_a_time() -> None:
    working, messages = carrying()
    granted(working, dead_range(5, 5), lease_id=2)
    working.read([5], 6)
    assert working.wanted(CarryDeadLetters) == []
    working.worker.carried(messages, working.now_ms)
    working.poll()
    [ask] = working.wanted(CarryDeadLetters)
    assert [message.offset for message in ask.messages] == [5]


def test_letters_for_two_topics_are_two_transactions() -> None:
    working, messages = carrying()
    granted(working, dead_range(5, 5), lease_id=2, topic="first")
    granted(working, dead_range(6, 6), lease_id=3, topic="second")
    working.read([5], 6)
    working.read([6], 7)
    working.worker.carried(messages, working.now_ms)
    working.poll()
    [ask] = working.wanted(CarryDeadLetters)
    assert (ask.topic.name, [message.offset for message in ask.messages]) == ("first", [5])


def test_letters_that_were_not_carried_are_given_back_for_later() -> None:
    working, messages = carrying()
    working.sent()
    working.settled()
    working.worker.carried(messages, working.now_ms)
    [span] = working.sent()
    assert (span.first_offset, span.last_offset, span.verdict, span.delay_ms) == (0, 1, Verdict.RELEASE, 10_000)


def test_messages_of_an_aborted_transaction_are_given_back_for_later() -> None:
    working, messages = carrying()
    for message in messages:
        working.enlist(message)
        working.transaction_ended(message, committed=False)
    working.worker.carried(messages, working.now_ms)
    spans = working.sent()
    assert [(span.first_offset, span.last_offset, span.delay_ms) for span in spans] == [(0, 1, 10_000), (2, 2, 0)]


def test_dead_records_whose_lock_ends_first_are_not_carried() -> None:
    working, messages = carrying()
    granted(working, dead_range(5, 5), lease_id=2)
    working.read([5], 6)
    working.now_ms += LOCK_MS
    working.worker.carried(messages, working.now_ms)
    working.poll()
    assert working.wanted(CarryDeadLetters) == []


def test_a_worker_that_closes_waits_for_the_transaction_under_way() -> None:
    working, messages = carrying()
    for message in messages:
        working.enlist(message)
    working.worker.close(working.now_ms)
    working.sent()
    working.settled()
    working.worker.lease_stopped(working.now_ms)
    assert not working.worker.is_closed()
    for message in messages:
        working.transaction_ended(message, committed=True)
    working.worker.carried(messages, working.now_ms)
    working.poll()
    assert working.worker.is_closed()


def test_a_worker_that_closes_carries_nothing_more() -> None:
    working, messages = carrying()
    working.worker.close(working.now_ms)
    with pytest.raises(InvalidRecordState):
        working.enlist(messages[0])


def test_a_rejection_sends_its_reason() -> None:
    working = Working()
    working.grant(leased_range(0, 2))
    working.read([0, 1, 2], 3)
    for message, reason in zip(working.hand_out(), ("bad", "bad", "worse"), strict=True):
        message.reject(reason)
    settlements = [span.to_wire() for span in working.sent()]
    assert [(settlement.first_offset, settlement.reason) for settlement in settlements] == [(0, "bad"), (2, "worse")]


def message_of(working: Working, record: Record) -> Message:
    granted(working, dead_range(0, 0))
    return Message.of(record, working.worker.reading[P0], working)


def test_a_letter_says_where_its_record_was_and_why_it_died() -> None:
    message = message_of(Working(), Record("orders", 0, 7, 0, b"key", b"value", [("trace", b"1")]))
    marks = [
        ("_dlq.errors.group", b"jobs"),
        ("_dlq.errors.topic", b"orders"),
        ("_dlq.errors.topic.id", message.held.key.topic_id.hex().encode()),
        ("_dlq.errors.partition", b"0"),
        ("_dlq.errors.offset", b"7"),
        ("_dlq.errors.delivery.count", b"5"),
        ("_dlq.errors.message", b"no such customer"),
    ]
    assert letter_of(message, copies_record=True) == (b"key", b"value", [("trace", b"1"), *marks])
    assert letter_of(message, copies_record=False) == (None, b"", marks)
    assert origin_of(letter_of(message, copies_record=True).headers, "jobs") == ("orders", message.held.key, 7)


@pytest.mark.parametrize(("given", "expected_ms"), [({}, 60_000), ({"transaction.timeout.ms": 5_000}, 5_000)])
def test_readers_of_the_letters_do_not_wait_long_behind_a_worker_that_died(
    given: dict[str, object], expected_ms: int
) -> None:
    config = parse_queue_config({"bootstrap.servers": "h:1", "queue": "jobs", **given})
    carrying = carrying_config(config, "jobs-dead-letters-1")
    assert (carrying.transaction_timeout_ms, carrying.transactional_id) == (expected_ms, "jobs-dead-letters-1")


def test_dead_records_in_the_last_part_of_a_lock_wait_for_its_renewal() -> None:
    working, messages = carrying()
    granted(working, dead_range(5, 5), lease_id=2)
    working.read([5], 6)
    working.now_ms += 0.95 * LOCK_MS
    working.worker.carried(messages, working.now_ms)
    working.poll()
    assert working.wanted(CarryDeadLetters) == []
    working.worker.renewed([2], queue_pb2.RenewLeasesResponse(lock_duration_ms=LOCK_MS), working.now_ms)
    working.poll()
    [ask] = working.wanted(CarryDeadLetters)
    assert [message.offset for message in ask.messages] == [5]


def test_a_topic_of_the_queue_is_no_dead_letter_topic() -> None:
    working = Working()
    granted(working, dead_range(0, 0), topic="orders")
    working.read([0], 1)
    assert working.wanted(CarryDeadLetters) == []
    [error] = working.worker.errors
    assert isinstance(error, InvalidConfig)
    [span] = working.sent()
    assert (span.verdict, span.delay_ms) == (Verdict.RELEASE, 10_000)


MARKS = [
    ("_dlq.errors.group", b"jobs"),
    ("_dlq.errors.topic", b"t"),
    ("_dlq.errors.topic.id", b"0123456789abcdef" * 2),
    ("_dlq.errors.partition", b"0"),
    ("_dlq.errors.offset", b"7"),
]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("_dlq.errors.group", b"other"), ("_dlq.errors.topic", b"t")],
        [("_dlq.errors.group", b"jobs")],
        [("_dlq.errors.group", b"jobs"), ("_dlq.errors.topic", b"\xff"), ("_dlq.errors.partition", b"0")],
        [("_dlq.errors.group", b"jobs"), ("_dlq.errors.topic", b"t"), ("_dlq.errors.partition", b"x")],
        [("_dlq.errors.group", None)],
        [*MARKS[:2], ("_dlq.errors.topic.id", b"00"), *MARKS[3:]],
        [*MARKS[:4], ("_dlq.errors.offset", b"-1")],
        [*MARKS[:3], ("_dlq.errors.partition", b"%d" % (1 << 40)), *MARKS[4:]],
    ],
)
def test_a_record_that_is_no_letter_of_the_queue_has_no_origin(headers: list[tuple[str, bytes | None]]) -> None:
    assert origin_of(headers, "jobs") is None
