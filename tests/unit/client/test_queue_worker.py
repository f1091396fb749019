"""The decisions of a queue's worker: docs/guides/queues.md, and the docstrings of minilog.queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import (
    AuthorizationFailed,
    BrokerNotAvailable,
    CorruptMessage,
    InvalidArgument,
    InvalidRecordState,
    LevelNotReached,
    UnknownOutcome,
    UnknownTopicId,
)
from minilog.queues.settling import AGAIN_MS, GATHER_MS
from minilog.queues.worker import AskLease, BeginReading, EndReading, RenewLeases, SendSettlements
from minilog.types import Record, TopicPartition
from minilog.v1 import queue_pb2
from tests.unit.client.queueing import LOCK_MS, MAX_POLL_INTERVAL_MS, P0, Working, leased_range, outline

REFUSED = InvalidRecordState("the lease does not hold all of it")


def working(first: int = 0, last: int = 9, lease_id: int = 1, lock_ms: int = LOCK_MS) -> Working:
    """A worker with one lease, all of whose records are read."""
    work = Working()
    work.grant(leased_range(first, last), lease_id=lease_id, lock_ms=lock_ms)
    work.read(range(first, last + 1), last + 1)
    return work


# -- leases


def test_a_worker_asks_for_a_lease_when_its_program_polls() -> None:
    work = Working(subscribed=False)
    work.worker.subscribe({"orders": b"\x01" * 16})
    assert work.poll() == []
    work.worker.polled(0.0)
    (ask,) = work.poll()
    assert isinstance(ask, AskLease)
    assert ask.topic_ids == (b"\x01" * 16,)
    assert ask.max_records == 500


def test_a_worker_asks_for_one_lease_at_a_time() -> None:
    work = Working()
    assert len(work.wanted(AskLease)) == 1
    work.poll()
    assert work.wanted(AskLease) == []


def test_an_empty_answer_is_asked_again_after_a_little() -> None:
    work = Working()
    work.wanted(AskLease)
    work.grant()
    assert work.wanted(AskLease) == []
    assert work.worker.next_wake_ms(0.0) == 20.0
    work.now_ms = 20.0
    work.poll()
    assert len(work.wanted(AskLease)) == 1


def test_the_next_lease_is_asked_for_when_fewer_than_half_are_left() -> None:
    work = working(0, 9)
    work.wanted(AskLease)
    work.hand_out(5)
    work.poll()
    assert not work.worker.runs_low()
    assert work.wanted(AskLease) == []
    work.hand_out(1)
    assert work.worker.runs_low()
    work.poll()
    assert len(work.wanted(AskLease)) == 1
    assert not work.worker.runs_low()


def test_a_worker_has_one_lease_ahead() -> None:
    work = working(0, 9)
    work.hand_out()
    work.poll()
    work.wanted(AskLease)
    work.grant(leased_range(10, 19), lease_id=2)
    work.read(range(10, 20), 20)
    assert work.wanted(AskLease) == []


def test_a_program_that_does_not_poll_gets_no_lease() -> None:
    work = working(0, 9)
    work.hand_out()
    work.wanted(AskLease)
    work.now_ms = MAX_POLL_INTERVAL_MS
    work.poll()
    assert work.wanted(AskLease) == []


def test_a_call_without_an_answer_is_made_again() -> None:
    work = Working()
    (ask,) = work.wanted(AskLease)
    work.worker.lease_failed(ask, UnknownOutcome("no answer"), 0.0)
    work.poll()
    assert work.wanted(AskLease) == []
    work.now_ms = 200.0
    work.poll()
    assert len(work.wanted(AskLease)) == 1
    assert not work.worker.errors


@pytest.mark.parametrize("error", [AuthorizationFailed("no right"), LevelNotReached("level 6")])
def test_the_program_learns_once_that_it_gets_no_lease(error: Exception) -> None:
    work = Working()
    (ask,) = work.wanted(AskLease)
    for _ in range(2):
        work.worker.lease_failed(ask, error, 0.0)  # type: ignore[arg-type]
    assert list(work.worker.errors) == [error]


def test_answers_for_earlier_topics_are_no_error_of_the_next() -> None:
    work = Working()
    (ask,) = work.wanted(AskLease)
    work.worker.fail(UnknownTopicId("it is gone"))
    work.worker.subscribe({"orders": b"\x02" * 16})
    work.worker.lease_failed(ask, UnknownTopicId("it is gone"), 0.0)
    assert not work.worker.errors


# -- reading


def test_a_worker_reads_one_range_of_each_partition_at_a_time() -> None:
    work = Working()
    work.grant(leased_range(0, 4), leased_range(7, 9), leased_range(3, 3, partition=1))
    assert [(e.held.partition.partition, e.held.first_offset) for e in work.wanted(BeginReading)] == [(0, 0), (1, 3)]
    work.read(range(5), 5)
    assert work.wanted(EndReading) == [EndReading(P0)]
    assert [e.held.first_offset for e in work.wanted(BeginReading)] == [7]


def test_a_range_is_a_bounded_read_of_the_topic_with_its_id() -> None:
    work = Working()
    work.grant(leased_range(3, 9))
    (begin,) = work.wanted(BeginReading)
    bounded = begin.held.bounded()
    assert (bounded.offset, bounded.end_offset) == (3, 10)
    assert bounded.topic_id == "01010101-0101-0101-0101-010101010101"


def test_a_message_has_what_the_record_has_and_its_delivery_count() -> None:
    work = Working()
    work.grant(leased_range(0, 0, delivery_count=3))
    work.read([0], 1)
    (message,) = work.hand_out()
    assert isinstance(message, Record)
    assert (message.topic, message.partition, message.offset, message.delivery_count) == ("orders", 0, 0, 3)


def test_offsets_without_a_record_are_accepted_when_they_are_read() -> None:
    work = Working()
    work.grant(leased_range(0, 9))
    work.read([2, 3, 7], 10)
    assert outline(work.sent()) == [(0, 1, "accept"), (4, 6, "accept"), (8, 9, "accept")]


def test_offsets_that_are_not_read_yet_have_no_verdict() -> None:
    work = Working()
    work.grant(leased_range(0, 9))
    work.read([2], 4)
    assert outline(work.sent()) == [(0, 1, "accept"), (3, 3, "accept")]


def test_a_range_that_retention_took_is_accepted() -> None:
    work = Working()
    work.grant(leased_range(0, 9))
    work.read([], 1_000)  # the log begins there now
    assert outline(work.sent()) == [(0, 9, "accept")]
    work.settled()
    assert len(work.wanted(AskLease)) == 2
    assert work.worker.next_wake_ms(0.0) == float("inf")  # nothing is held


def test_messages_that_cannot_be_read_here_go_to_another_worker_later() -> None:
    work = Working()
    work.grant(leased_range(0, 9))
    work.read([0, 1], 2)
    work.worker.reading_failed(P0, CorruptMessage("damaged"), 0.0)
    (span,) = work.sent()
    assert outline([span]) == [(2, 9, "return")]
    assert span.delay_ms == 10_000
    assert isinstance(work.worker.errors.popleft(), CorruptMessage)


def test_a_partition_that_cannot_be_read_now_does_not_hold_up_others() -> None:
    work = Working()
    work.wanted(AskLease)
    work.grant(leased_range(0, 9))
    work.now_ms = 4_999.0
    work.poll()
    assert work.wanted(AskLease) == []
    work.now_ms = 5_000.0
    work.poll()
    assert len(work.wanted(AskLease)) == 1
    work.grant(leased_range(0, 9, partition=1), lease_id=2)
    work.read(range(10), 10, TopicPartition("orders", 1))
    assert work.wanted(AskLease) == []


# -- verdicts


def test_verdicts_gather_for_a_moment() -> None:
    work = working()
    first, second, *_ = work.hand_out()
    first.accept()
    work.poll()
    assert work.wanted(SendSettlements) == []
    assert work.worker.next_wake_ms(0.0) == GATHER_MS
    second.accept()
    work.now_ms = GATHER_MS
    work.poll()
    (send,) = work.wanted(SendSettlements)
    assert outline(send.spans) == [(0, 1, "accept")]


def test_neighbours_with_one_verdict_are_one_settlement() -> None:
    work = working()
    messages = work.hand_out()
    for message in reversed(messages[:4]):
        message.accept()
    messages[4].reject("no json")
    messages[5].release()
    messages[6].release(2.5)
    for message in messages[7:]:
        message.accept()
    spans = work.sent()
    assert outline(spans) == [
        (0, 3, "accept"),
        (4, 4, "reject"),
        (5, 5, "release"),
        (6, 6, "release"),
        (7, 9, "accept"),
    ]
    assert [span.delay_ms for span in spans] == [0, 0, 0, 2_500, 0]
    assert spans[3].to_wire() == queue_pb2.Settlement(
        lease_id=1,
        partition_id=spans[3].held.key.to_wire(),
        first_offset=6,
        last_offset=6,
        verdict=queue_pb2.VERDICT_RELEASE,
        delay_ms=2_500,
    )


def test_a_message_is_settled_once() -> None:
    work = working()
    message = work.hand_out()[0]
    message.accept()
    with pytest.raises(InvalidRecordState, match=r"offset 0 of partition 0 of topic 'orders' .* by accept"):
        message.release()


def test_a_message_is_settled_while_its_lock_lasts() -> None:
    work = working()
    message = work.hand_out()[0]
    work.now_ms = LOCK_MS
    with pytest.raises(InvalidRecordState, match=r"lock .* has ended"):
        message.accept()
    assert message.verdict is None


def test_a_message_of_a_closed_consumer_cannot_be_settled() -> None:
    work = working()
    message = work.hand_out()[0]
    work.worker.close(0.0)
    with pytest.raises(InvalidRecordState, match="closed"):
        message.accept()


@pytest.mark.parametrize("delay", [-1.0, 1e9, float("inf"), float("nan")])
def test_a_delay_is_checked(delay: float) -> None:
    message = working().hand_out()[0]
    with pytest.raises(InvalidArgument):
        message.release(delay)
    message.accept()  # a refused argument is no verdict


def test_a_worker_has_one_request_of_settlements_under_way() -> None:
    work = working()
    messages = work.hand_out()
    messages[0].accept()
    assert outline(work.sent()) == [(0, 0, "accept")]
    messages[1].accept()
    assert work.sent() == []
    work.settled()
    assert outline(work.sent()) == [(1, 1, "accept")]
    assert not work.worker.is_flushed()
    work.settled()
    assert work.worker.is_flushed()


def test_the_program_learns_of_a_refusal() -> None:
    work = working()
    for message in work.hand_out()[:2]:
        message.accept()
    work.sent()
    work.settled({0: REFUSED})
    error = work.worker.errors.popleft()
    assert isinstance(error, InvalidRecordState)
    assert "accept of offsets 0 to 1 of partition 0 of topic 'orders'" in str(error)


def test_a_refusal_of_a_second_attempt_means_that_it_is_done() -> None:
    work = working()
    work.hand_out()[0].accept()
    work.sent()
    work.settled({0: REFUSED}, is_repeat=True)
    assert not work.worker.errors


def test_a_refusal_of_a_second_attempt_after_the_lock_says_nothing_of_the_first() -> None:
    """The first may have been lost on its way, and the lock have ended before the second came."""
    work = working()
    work.hand_out()[0].accept()
    work.sent()
    work.now_ms = LOCK_MS
    work.settled({0: REFUSED}, is_repeat=True)
    assert [type(error) for error in work.worker.errors] == [UnknownOutcome]


def test_settlements_without_an_outcome_go_again_as_they_were() -> None:
    work = working()
    messages = work.hand_out()
    messages[0].accept()
    first = work.sent()
    work.worker.settling_failed(UnknownOutcome("no answer"), 0.0)
    messages[1].accept()
    assert work.sent() == []  # after a pause
    work.now_ms = AGAIN_MS
    again = work.sent()
    assert outline(again) == outline(first)
    work.settled({0: REFUSED})
    assert not work.worker.errors
    assert outline(work.sent()) == [(1, 1, "accept")]


def test_settlements_that_were_not_done_go_again() -> None:
    work = working()
    work.hand_out()[0].accept()
    work.sent()
    work.worker.settling_failed(BrokerNotAvailable("away"), 0.0)
    work.now_ms = AGAIN_MS
    assert outline(work.sent()) == [(0, 0, "accept")]
    work.settled({0: REFUSED})  # it was the first attempt that came there
    assert len(work.worker.errors) == 1


def test_a_refusal_as_a_whole_is_an_error_for_the_program() -> None:
    work = working()
    work.hand_out()[0].accept()
    work.sent()
    work.worker.settling_failed(AuthorizationFailed("no right"), 0.0)
    assert isinstance(work.worker.errors.popleft(), AuthorizationFailed)
    assert work.worker.is_flushed()


def test_a_verdict_that_does_not_reach_the_coordinator_in_time_is_an_error() -> None:
    work = working()
    messages = work.hand_out()
    messages[0].accept()
    work.sent()
    work.worker.settling_failed(UnknownOutcome("no answer"), 0.0)
    messages[1].accept()
    messages[2].accept()
    work.now_ms = LOCK_MS
    work.poll()
    errors = list(work.worker.errors)
    assert sorted(map(type, errors), key=str) == [InvalidRecordState, UnknownOutcome]
    assert "offsets 1 to 2" in str(next(error for error in errors if isinstance(error, InvalidRecordState)))
    assert work.worker.is_flushed()


# -- locks


def test_the_lock_counts_from_before_the_request() -> None:
    work = Working()
    work.now_ms = 500.0
    work.grant(leased_range(0, 0), sent_ms=0.0)
    work.read([0], 1)
    (message,) = work.hand_out()
    assert message.held.lease.lock_end_ms == LOCK_MS


def test_a_lease_that_comes_after_its_lock_is_left_to_others() -> None:
    work = Working()
    work.now_ms = LOCK_MS
    work.grant(leased_range(0, 0), sent_ms=0.0)
    assert work.wanted(BeginReading) == []


def test_locks_are_renewed_at_a_third() -> None:
    work = working()
    work.hand_out()
    assert work.worker.next_wake_ms(0.0) <= LOCK_MS / 3
    work.now_ms = LOCK_MS / 3
    work.poll()
    assert work.wanted(RenewLeases) == [RenewLeases((1,))]
    work.worker.renewed([1], queue_pb2.RenewLeasesResponse(lock_duration_ms=LOCK_MS), LOCK_MS / 3)
    work.poll()
    assert work.wanted(RenewLeases) == []
    work.now_ms = LOCK_MS + 1.0
    work.hand_out()
    work.poll()
    assert work.wanted(RenewLeases) == [RenewLeases((1,))]


def test_the_locks_of_a_program_that_stands_still_are_not_renewed() -> None:
    work = Working()
    work.grant(leased_range(0, 9), lock_ms=MAX_POLL_INTERVAL_MS * 6)
    work.read(range(10), 10)
    messages = work.hand_out()
    work.now_ms = MAX_POLL_INTERVAL_MS * 2.0
    work.poll()
    assert work.wanted(RenewLeases) == []
    work.worker.polled(work.now_ms)
    work.poll()
    assert work.wanted(RenewLeases) == [RenewLeases((1,))]
    messages[0].accept()  # the lock has not ended


def test_a_settled_lease_is_not_renewed() -> None:
    work = working(0, 1)
    for message in work.hand_out():
        message.accept()
    work.sent()
    work.settled()
    work.now_ms = LOCK_MS / 2
    work.poll()
    assert work.wanted(RenewLeases) == []


def test_no_message_is_handed_out_late_in_its_lock() -> None:
    work = working()
    work.now_ms = LOCK_MS * 0.9
    assert work.hand_out() == []
    work.worker.renewed([1], queue_pb2.RenewLeasesResponse(lock_duration_ms=LOCK_MS), work.now_ms)
    assert len(work.hand_out()) == 10


def test_no_message_is_handed_out_after_its_lock() -> None:
    work = working()
    work.now_ms = LOCK_MS
    assert work.hand_out() == []
    work.poll()
    assert not work.worker.ready


def test_a_range_of_a_lost_lease_is_read_no_more() -> None:
    work = Working()
    work.grant(leased_range(0, 9), leased_range(20, 29))
    work.wanted(BeginReading)
    work.now_ms = LOCK_MS
    work.poll()
    assert work.wanted(EndReading) == [EndReading(P0)]
    assert work.wanted(BeginReading) == []


def test_a_lease_that_the_coordinator_has_ended_is_lost() -> None:
    work = working()
    message, other, *_ = work.hand_out()
    other.accept()
    work.now_ms = LOCK_MS / 3
    response = queue_pb2.RenewLeasesResponse(ended_lease_ids=[1], lock_duration_ms=LOCK_MS)
    work.worker.renewed([1], response, work.now_ms)
    with pytest.raises(InvalidRecordState):
        message.accept()
    work.poll()
    assert isinstance(work.worker.errors.popleft(), InvalidRecordState)


def test_a_renewal_without_an_answer_is_made_again() -> None:
    work = working()
    work.hand_out()
    work.now_ms = LOCK_MS / 3
    work.poll()
    work.wanted(RenewLeases)
    work.worker.renewal_failed(UnknownOutcome("no answer"), work.now_ms)
    work.poll()
    assert work.wanted(RenewLeases) == []
    work.now_ms += 200.0
    work.poll()
    assert work.wanted(RenewLeases) == [RenewLeases((1,))]


# -- the end


def test_closing_settles_what_is_noted_and_gives_back_uncounted_what_the_program_never_got() -> None:
    work = Working()
    work.grant(leased_range(0, 9), leased_range(0, 4, partition=1))
    work.read(range(6), 6)
    messages = work.hand_out(3)
    messages[0].accept()
    work.worker.close(0.0)
    work.worker.lease_failed(work.wanted(AskLease)[-1], BrokerNotAvailable("away"), 0.0)
    by_partition: dict[int, list[tuple[int, int, str]]] = {}
    for span in work.sent():
        by_partition.setdefault(span.held.key.partition, []).extend(outline([span]))
    assert by_partition == {0: [(0, 0, "accept"), (1, 2, "release"), (3, 9, "return")], 1: [(0, 4, "return")]}
    assert sorted(work.wanted(EndReading), key=str) == [EndReading(TopicPartition("orders", n)) for n in (0, 1)]
    assert not work.worker.is_closed()
    work.settled()
    assert work.worker.is_closed()


def test_a_lease_that_comes_while_the_worker_closes_is_released() -> None:
    work = Working()
    work.worker.close(0.0)
    work.poll()
    assert not work.worker.is_closed()
    work.grant(leased_range(0, 9))
    assert outline(work.sent()) == [(0, 9, "return")]
    work.settled()
    assert work.worker.is_closed()


def test_a_signal_while_messages_are_taken_loses_none() -> None:
    work = working()
    count = 0

    def interrupted(now_ms: float) -> bool:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        return True

    work.worker.has_message = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        work.hand_out()
    del work.worker.has_message
    assert [message.offset for message in work.hand_out()] == list(range(10))


# -- whatever verdicts come, in whatever order


@given(
    data=st.data(),
    records=st.sets(st.integers(0, 19), min_size=1),
    cut=st.integers(0, 20),
)
def test_each_offset_is_settled_once_with_its_verdict(data: st.DataObject, records: set[int], cut: int) -> None:
    work = Working()
    work.grant(leased_range(0, 19))
    expected = dict.fromkeys(range(20), ("accept", 0))
    settled: dict[int, tuple[str, int]] = {}

    def send(outcome: str) -> None:
        spans = work.sent()
        if not spans:
            return
        if outcome == "lost":  # and done all the same: the next attempt is refused
            work.worker.settling_failed(UnknownOutcome("no answer"), work.now_ms)
            work.now_ms += AGAIN_MS
            assert outline(work.sent()) == outline(spans)
            work.settled(dict.fromkeys(range(len(spans)), REFUSED))
        else:
            work.settled()
        for span in spans:
            for offset in range(span.first_offset, span.last_offset + 1):
                assert offset not in settled
                settled[offset] = (span.verdict.name.lower(), span.delay_ms)

    below = sorted(offset for offset in records if offset < cut)
    above = sorted(offset for offset in records if offset >= cut)
    for part, read_to in ((below, cut), (above, 20)):
        if read_to > 0 and work.worker.reading:
            work.read(part, read_to)
    for message in data.draw(st.permutations(work.hand_out())):
        match data.draw(st.sampled_from(["accept", "release", "reject"])):
            case "accept":
                message.accept()
            case "release":
                delay_ms = data.draw(st.sampled_from([0, 1_000]))
                message.release(delay_ms / 1000)
                expected[message.offset] = ("release", delay_ms)
            case "reject":
                message.reject()
                expected[message.offset] = ("reject", 0)
        outcome = data.draw(st.sampled_from(["wait", "wait", "answer", "lost"]))
        if outcome != "wait":
            send(outcome)
    send("answer")
    assert settled == expected
    assert work.worker.is_flushed()
    assert not work.worker.errors
