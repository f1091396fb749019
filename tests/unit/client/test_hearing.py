"""Which brokers know of a change of users, rules or tokens: told by the controller's metadata."""

from __future__ import annotations

from minilog.admin.hearing import hearing
from minilog.v1 import metadata_pb2
from tests.rules import proves

pytestmark = proves("MD.11")

RUNNING, FENCED = metadata_pb2.BROKER_STATE_RUNNING, metadata_pb2.BROKER_STATE_FENCED
CHANGED_AT = 100


def broker(
    broker_id: int, offset: int | None, state: metadata_pb2.BrokerState.ValueType = RUNNING
) -> metadata_pb2.BrokerMetadata:
    return metadata_pb2.BrokerMetadata(broker_id=broker_id, state=state, metadata_offset=offset)


def test_all_have_heard_of_it() -> None:
    answer = metadata_pb2.GetMetadataResponse(brokers=[broker(1, 100), broker(2, 240)])
    found = hearing(answer, CHANGED_AT)
    assert (found.missing, found.is_worth_waiting) == ([], False)


def test_a_running_broker_may_hear_of_it_soon() -> None:
    answer = metadata_pb2.GetMetadataResponse(brokers=[broker(2, 99), broker(1, 100)])
    found = hearing(answer, CHANGED_AT)
    assert (found.missing, found.is_worth_waiting) == ([2], True)


def test_a_fenced_broker_is_named_and_not_waited_for() -> None:
    """So is one without a listener of the name that was asked by, and one that this controller has not heard."""
    answer = metadata_pb2.GetMetadataResponse(
        brokers=[broker(3, 99, FENCED), broker(1, 100), broker(2, None, FENCED)],
        unreachable_brokers=[broker(4, 7, FENCED)],
    )
    found = hearing(answer, CHANGED_AT)
    assert (found.missing, found.is_worth_waiting) == ([2, 3, 4], False)


def test_a_broker_fenced_since_it_heard_of_it_knows_it() -> None:
    answer = metadata_pb2.GetMetadataResponse(brokers=[broker(3, 100, FENCED)])
    assert hearing(answer, CHANGED_AT).missing == []
