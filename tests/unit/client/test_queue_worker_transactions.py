"""A worker of a queue whose messages a transaction settles (docs/spec/queues.md § Settlement within transactions)."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidRecordState
from minilog.queues.message import Verdict
from tests.unit.client.queueing import Working, leased_range


def test_messages_settled_by_a_transaction_are_neither_sent_nor_given_back() -> None:
    working = Working()
    working.grant(leased_range(0, 3))
    working.read([0, 1, 2, 3], 4)
    messages = working.hand_out()
    for message in messages[1:3]:
        working.enlist(message)
    working.worker.close(working.now_ms)
    assert [(span.first_offset, span.last_offset, span.verdict) for span in working.sent()] == [
        (0, 0, Verdict.RELEASE),
        (3, 3, Verdict.RELEASE),
    ]


def test_a_committed_transaction_ends_the_lease() -> None:
    working = Working()
    working.grant(leased_range(0, 1))
    working.read([0, 1], 2)
    messages = working.hand_out()
    for message in messages:
        working.enlist(message)
        working.transaction_ended(message, committed=True)
    working.poll()
    assert not working.sent()
    assert messages[0].held.lease.unsettled() == 0


def test_an_aborted_transaction_gives_its_messages_back() -> None:
    working = Working()
    working.grant(leased_range(0, 1))
    working.read([0, 1], 2)
    for message in working.hand_out():
        working.enlist(message)
        working.transaction_ended(message, committed=False)
    assert [(span.first_offset, span.last_offset, span.verdict) for span in working.sent()] == [(0, 1, Verdict.RELEASE)]


def test_a_message_of_a_transaction_is_settled_once() -> None:
    working = Working()
    working.grant(leased_range(0, 0))
    working.read([0], 1)
    [message] = working.hand_out()
    working.enlist(message)
    with pytest.raises(InvalidRecordState):
        message.accept()
