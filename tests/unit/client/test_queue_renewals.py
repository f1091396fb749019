"""max.lock.renewals: the lock of a message that a program forgets ends."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidRecordState
from minilog.queues.worker import RenewLeases
from minilog.v1 import queue_pb2
from tests.unit.client.queueing import LOCK_MS, Working, leased_range


def pass_lock(working: Working) -> bool:
    """A lock passes while the program polls, and the coordinator renews what it is asked to. Whether it was asked."""
    asked = False
    for _ in range(3):
        working.now_ms += LOCK_MS / 3
        working.worker.polled(working.now_ms)
        working.poll()
        for renewal in working.wanted(RenewLeases):
            asked = True
            working.worker.renewed(
                renewal.lease_ids, queue_pb2.RenewLeasesResponse(lock_duration_ms=LOCK_MS), working.now_ms
            )
    return asked


def with_one_forgotten(max_lock_renewals: int = 0) -> Working:
    work = Working(max_lock_renewals=max_lock_renewals)
    work.grant(leased_range(0, 2))
    work.read(range(3), 3)
    for message in work.hand_out():
        if message.offset != 1:
            message.accept()
    return work


def test_without_the_setting_a_forgotten_message_is_locked_while_the_program_polls() -> None:
    work = with_one_forgotten()
    assert all(pass_lock(work) for _ in range(20))


def test_the_lock_of_a_forgotten_message_ends_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    work = with_one_forgotten(max_lock_renewals=4)
    work.sent()
    work.settled()
    assert pass_lock(work)
    assert not caplog.records
    assert pass_lock(work)
    assert not pass_lock(work)
    (record,) = caplog.records
    assert "offset 1 of partition 0 of topic 'orders'" in record.getMessage()
    assert "4 renewals (max.lock.renewals)" in record.getMessage()
    assert work.worker._leases == {}, "the worker holds it no more, and others get it"


def test_a_verdict_before_the_end_of_the_lock_counts_and_a_later_one_names_the_setting() -> None:
    work = Working(max_lock_renewals=1)
    work.grant(leased_range(0, 1))
    work.read(range(2), 2)
    first, second = work.hand_out()
    pass_lock(work)
    first.accept()
    assert [span.first_offset for span in work.sent()] == [0]
    pass_lock(work)
    with pytest.raises(InvalidRecordState, match=r"max\.lock\.renewals"):
        second.accept()


def test_leases_of_waiting_messages_are_renewed_however_long_it_takes() -> None:
    """A program of one message a lock loses none of those that it has not got."""
    work = Working(max_lock_renewals=1)
    work.grant(leased_range(0, 9))
    work.read(range(10), 10)
    for _ in range(10):
        (message,) = work.hand_out(1)
        assert pass_lock(work)
        message.accept()


def test_a_message_in_a_transaction_is_not_forgotten() -> None:
    work = Working(max_lock_renewals=1)
    work.grant(leased_range(0, 0))
    work.read([0], 1)
    (message,) = work.hand_out()
    work.enlist(message)
    assert all(pass_lock(work) for _ in range(5))
