"""The bounds of what a coordinator keeps of the offsets of groups. Scenarios have the rest (scenarios/groups.txt)."""

from __future__ import annotations

from minilog.errors import (
    InvalidTxnState,
    NotCoordinator,
    OffsetMetadataTooLarge,
)
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.registrations import MAX_WAITING
from tests.unit.coordinators.cluster import error_of
from tests.unit.coordinators.grouping import Grouping
from tests.unit.coordinators.transacting import ORDERS_0

P = 500


def test_commits_that_wait_are_bounded_and_refused_when_the_term_ends() -> None:
    cluster = Grouping()
    tickets = [cluster.ask_to_commit({ORDERS_0: n}, producer_id=P, sequence=n) for n in range(MAX_WAITING + 1)]
    assert isinstance(error_of(cluster.answer(tickets.pop(), coordinator_pb2.CommitOffsetsResponse)), InvalidTxnState)
    cluster.coordinator.deposed()
    for ticket in tickets:
        assert isinstance(error_of(cluster.answer(ticket, coordinator_pb2.CommitOffsetsResponse)), NotCoordinator)


def test_the_metadata_of_an_offset_is_bounded() -> None:
    assert isinstance(Grouping().commit_offsets({ORDERS_0: 5}, metadata="x" * 4_097), OffsetMetadataTooLarge)
