"""The offsets of groups: committed, fetched, listed, described, deleted; hidden while a transaction has them."""

from __future__ import annotations

import pytest

from minilog.errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    InvalidArgument,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    OffsetMetadataTooLarge,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    UnknownTopicId,
    UnstableOffsetCommit,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.coordinator_effects import RegisterProducer
from minilog_broker.coordinators.registrations import MAX_WAITING
from tests.rules import proves
from tests.unit.coordinators.cluster import PAYMENTS, START_US, error_of
from tests.unit.coordinators.grouping import G, Grouping, T
from tests.unit.coordinators.transacting import ORDERS_0, ORDERS_1, PAYMENTS_0

Commit, Fetch = coordinator_pb2.CommitOffsetsResponse, coordinator_pb2.FetchOffsetsResponse
Mark = coordinator_pb2.WriteMarkersResponse
P = 500
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


# -- by themselves


def test_what_was_committed_is_fetched_and_survives_a_failover() -> None:
    cluster = Grouping()
    assert cluster.commit_offsets({ORDERS_0: 5, ORDERS_1: 9}, metadata="m") is None
    cluster.commit_offsets({ORDERS_0: 7})
    cluster.fail_over()
    assert cluster.fetched() == {ORDERS_0: 7, ORDERS_1: 9}
    assert cluster.fetched(ORDERS_1, PAYMENTS_0) == {ORDERS_1: 9, PAYMENTS_0: -1}
    (offset,) = cluster.fetch(ORDERS_1).offsets
    assert (offset.leader_epoch, offset.metadata, offset.committed_us) == (2, "m", START_US)
    assert cluster.fetched(group="another") == {}


def test_a_commit_is_answered_when_it_is_committed() -> None:
    cluster = Grouping()
    ticket = cluster.ask_to_commit({ORDERS_0: 5})
    assert cluster.waits(ticket)
    cluster.fail_over(kept_batches=0)
    assert isinstance(error_of(cluster.answer(ticket, Commit)), NotCoordinator)
    assert cluster.fetched(ORDERS_0) == {ORDERS_0: -1}


def test_a_fetch_is_answered_by_a_coordinator_that_still_is_one() -> None:
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 5})
    ticket = cluster.ask_to_fetch(ORDERS_0)
    assert cluster.waits(ticket)  # nothing shows yet that nobody has taken over
    cluster.coordinator.deposed()
    assert isinstance(error_of(cluster.answer(ticket, Fetch)), NotCoordinator)


def test_nothing_is_said_before_all_is_loaded() -> None:
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 5})
    cluster.lead()
    assert isinstance(error_of(cluster.answer(cluster.ask_to_fetch(), Fetch)), CoordinatorLoadInProgress)
    ticket = cluster.ask_to_commit({ORDERS_0: 1}, producer_id=P)
    assert isinstance(error_of(cluster.answer(ticket, Commit)), CoordinatorLoadInProgress)


def test_all_or_none_of_the_offsets_are_committed() -> None:
    cluster = Grouping()
    unknown = PartitionKey(bytes(15) + b"\x55", 0)
    assert isinstance(cluster.commit_offsets({ORDERS_0: 5, unknown: 1}), UnknownTopicId)
    assert isinstance(cluster.commit_offsets({ORDERS_0: 5, ORDERS_1: -1}), InvalidArgument)
    assert isinstance(cluster.commit_offsets({ORDERS_0: 5}, metadata="x" * 4_097), OffsetMetadataTooLarge)
    assert isinstance(cluster.commit_offsets({}), InvalidArgument)
    assert isinstance(cluster.commit_offsets({ORDERS_0: 5}, group=""), InvalidArgument)
    cluster.refusal = NotEnoughReplicas("the ISR is too small")
    assert isinstance(cluster.commit_offsets({ORDERS_0: 5}), NotEnoughReplicas)
    cluster.refusal = None
    assert cluster.coordinator.committed_state() == {}
    assert cluster.fetched() == {}


# -- in transactions


def test_offsets_of_a_transaction_are_hidden_until_its_marker_and_then_the_groups() -> None:
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 5, ORDERS_1: 1})
    assert cluster.commit_offsets({ORDERS_0: 7}, producer_id=P) is None
    assert cluster.fetched() == {ORDERS_0: UNSTABLE, ORDERS_1: 1}
    cluster.fail_over()
    assert cluster.fetched() == {ORDERS_0: UNSTABLE, ORDERS_1: 1}
    assert cluster.mark(P, committed=True) is None
    assert cluster.fetched() == {ORDERS_0: 7, ORDERS_1: 1}


def test_offsets_of_an_aborted_transaction_never_were() -> None:
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 5})
    cluster.commit_offsets({ORDERS_0: 7, ORDERS_1: 7}, producer_id=P)
    assert cluster.fetched(ORDERS_1) == {ORDERS_1: UNSTABLE}
    cluster.mark(P, committed=False)
    assert cluster.fetched() == {ORDERS_0: 5}


def test_a_marker_is_answered_when_what_it_does_is_committed() -> None:
    """KAFKA-17507."""
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 7}, producer_id=P)
    ticket = cluster.ask_to_mark(P, committed=True)
    assert cluster.waits(ticket)
    again = cluster.ask_to_mark(P, committed=True)
    assert cluster.waits(again)  # the first is in flight, and may be lost
    cluster.fail_over(kept_batches=0)
    for each in (ticket, again):
        assert isinstance(error_of(cluster.answer(each, coordinator_pb2.WriteMarkersResponse)), NotCoordinator)
    assert cluster.fetched() == {ORDERS_0: UNSTABLE}


def test_markers_are_idempotent() -> None:
    """Wrong rule 18: written again later, a marker must not take back what was committed since."""
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 7}, producer_id=P)
    cluster.mark(P, committed=True)
    cluster.commit_offsets({ORDERS_0: 9})
    assert cluster.mark(P, committed=True) is None
    assert cluster.mark(999, committed=True, last_sequence=-1) is None
    assert cluster.fetched() == {ORDERS_0: 9}


@proves("CO.7")
def test_a_marker_without_anything_pending_is_answered_by_a_coordinator_that_still_is_one() -> None:
    """Another may have offsets pending: a deposed one that says "written" leaves them so for ever."""
    cluster = Grouping()
    ticket = cluster.ask_to_mark(P, committed=True)
    assert cluster.waits(ticket)
    cluster.commit()
    assert error_of(cluster.answer(ticket, Mark)) is None
    assert cluster.waits(deposed := cluster.ask_to_mark(P, committed=True))
    cluster.coordinator.deposed()
    assert isinstance(error_of(cluster.answer(deposed, Mark)), NotCoordinator)
    assert cluster.coordinator.committed_state() == {}


def test_of_two_commits_the_later_one_holds_whenever_their_transactions_end() -> None:
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 7, ORDERS_1: 7}, producer_id=P)
    cluster.commit_offsets({ORDERS_0: 8}, producer_id=P + 1)
    cluster.mark(P + 1, committed=True)
    assert cluster.fetched() == {ORDERS_0: UNSTABLE, ORDERS_1: UNSTABLE}
    cluster.fail_over()
    cluster.mark(P, committed=True)
    assert cluster.fetched() == {ORDERS_0: 8, ORDERS_1: 7}


def test_two_markers_of_one_transaction_for_one_partition() -> None:
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 8}, producer_id=P)
    cluster.commit_offsets({ORDERS_0: 9}, producer_id=P + 1)
    request = coordinator_pb2.WriteMarkersRequest(
        markers=[coordinator_pb2.ProducerMarker(producer_id=each, committed=True) for each in (P + 1, P)]
    )
    ticket = cluster.ticket()
    cluster.coordinator.write_markers(ticket, request, cluster.now)
    cluster.commit()
    assert error_of(cluster.answer(ticket, coordinator_pb2.WriteMarkersResponse)) is None
    assert cluster.fetched() == {ORDERS_0: 9}


def test_a_producer_commits_for_several_groups_and_more_than_once() -> None:
    cluster = Grouping()
    assert cluster.commit_offsets({ORDERS_0: 1, ORDERS_1: 1}, producer_id=P, sequence=0) is None
    assert cluster.commit_offsets({ORDERS_0: 2}, producer_id=P, sequence=1) is None
    assert cluster.commit_offsets({ORDERS_0: 3}, group="other", producer_id=P, sequence=2) is None
    cluster.fail_over()
    assert cluster.mark(P, committed=True, last_sequence=2) is None
    assert cluster.fetched() == {ORDERS_0: 2, ORDERS_1: 1}
    assert cluster.fetched(group="other") == {ORDERS_0: 3}


def test_a_commit_that_comes_twice_or_out_of_order_changes_nothing() -> None:
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 1}, producer_id=P, sequence=0)
    cluster.commit_offsets({ORDERS_0: 2}, producer_id=P, sequence=1)
    assert cluster.commit_offsets({ORDERS_0: 1}, producer_id=P, sequence=0) is None
    assert isinstance(cluster.commit_offsets({ORDERS_0: 9}, producer_id=P, sequence=3), OutOfOrderSequenceNumber)
    assert isinstance(cluster.commit_offsets({ORDERS_0: 9}, producer_id=P + 1, sequence=1), OutOfOrderSequenceNumber)
    cluster.mark(P, committed=True, last_sequence=1)
    assert cluster.fetched() == {ORDERS_0: 2}


def test_a_commit_marker_that_does_not_match_what_is_pending_is_refused() -> None:
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 1}, producer_id=P, sequence=0)
    assert isinstance(cluster.mark(P, committed=True, last_sequence=1), InvalidTxnState)
    assert cluster.fetched() == {ORDERS_0: UNSTABLE}
    assert cluster.mark(P, committed=False, last_sequence=-1) is None
    assert cluster.fetched() == {}


def test_the_producer_is_registered_before_its_first_commit_and_once() -> None:
    cluster = Grouping()
    ticket = cluster.ask_to_commit({ORDERS_0: 1}, producer_id=P)
    cluster.commit()
    assert cluster.waits(ticket)
    assert cluster.log_end == 0
    (effect,) = cluster.take(RegisterProducer)
    assert effect == RegisterProducer(1, T, P)
    cluster.coordinator.registered(1, None, cluster.now)
    cluster.commit()
    assert error_of(cluster.answer(ticket, Commit)) is None
    cluster.commit_offsets({ORDERS_0: 2}, group="other", producer_id=P, sequence=1)
    assert cluster.register_producers() == []


def test_a_producer_that_has_ended_commits_nothing() -> None:
    """Wrong rule 17."""
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 1}, producer_id=P)
    cluster.mark(P, committed=True)
    cluster.ended[P] = ProducerFenced("it has ended")
    assert isinstance(cluster.commit_offsets({ORDERS_0: 9}, producer_id=P), ProducerFenced)
    assert cluster.fetched() == {ORDERS_0: 1}


def test_a_marker_cancels_the_commits_that_wait_for_the_registration() -> None:
    """Wrong rule 17: the registration was answered before the decision, and its answer came after the marker."""
    cluster = Grouping()
    ticket = cluster.ask_to_commit({ORDERS_0: 1}, producer_id=P)
    (effect,) = cluster.take(RegisterProducer)
    assert isinstance(effect, RegisterProducer)
    assert cluster.mark(P, committed=False) is None
    assert isinstance(error_of(cluster.answer(ticket, Commit)), ProducerFenced)
    late = cluster.ask_to_commit({ORDERS_0: 1}, producer_id=P)
    cluster.coordinator.registered(effect.number, None, cluster.now)  # this is no answer to the second question
    cluster.commit()
    assert cluster.waits(late)
    assert cluster.coordinator.committed_state() == {}
    cluster.ended[P] = ProducerFenced("it has ended")
    cluster.register_producers()
    assert isinstance(error_of(cluster.answer(late, Commit)), ProducerFenced)


def test_commits_that_wait_are_bounded_and_refused_when_the_term_ends() -> None:
    cluster = Grouping()
    tickets = [cluster.ask_to_commit({ORDERS_0: n}, producer_id=P, sequence=n) for n in range(MAX_WAITING + 1)]
    assert isinstance(error_of(cluster.answer(tickets.pop(), Commit)), InvalidTxnState)
    cluster.coordinator.deposed()
    for ticket in tickets:
        assert isinstance(error_of(cluster.answer(ticket, Commit)), NotCoordinator)


# -- for people, and deleted topics


def test_groups_are_listed_and_described() -> None:
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 5, ORDERS_1: 6})
    cluster.commit_offsets({ORDERS_0: 7}, producer_id=P)
    cluster.commit_offsets({ORDERS_0: 1}, group="only pending", producer_id=P, sequence=1)
    ticket = cluster.ticket()
    cluster.coordinator.list(ticket, coordinator_pb2.ListGroupsRequest())
    response = cluster.answer(ticket, coordinator_pb2.ListGroupsResponse)
    assert [(each.group_id, each.partition_count) for each in response.groups] == [("only pending", 0), (G, 2)]
    cluster.coordinator.describe(ticket, coordinator_pb2.DescribeGroupRequest(group_id=G), cluster.now)
    described = cluster.answer(ticket, coordinator_pb2.DescribeGroupResponse)
    assert [each.offset for each in described.offsets] == [5, 6]
    (pending,) = described.pending
    assert (pending.transactional_id, pending.producer_id, pending.offsets[0].offset) == (T, P, 7)
    cluster.coordinator.describe(ticket, coordinator_pb2.DescribeGroupRequest(group_id="unknown"), cluster.now)
    assert isinstance(error_of(cluster.answer(ticket, coordinator_pb2.DescribeGroupResponse)), GroupIdNotFound)


def test_a_group_or_some_of_it_is_deleted_but_not_while_a_transaction_has_offsets_of_it() -> None:
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 5, ORDERS_1: 6})
    cluster.commit_offsets({PAYMENTS_0: 7}, producer_id=P)
    assert isinstance(cluster.delete(), UnstableOffsetCommit)
    cluster.mark(P, committed=False)
    assert cluster.delete(ORDERS_0) is None
    assert cluster.fetched() == {ORDERS_1: 6}
    assert cluster.delete() is None
    assert isinstance(cluster.delete(), GroupIdNotFound)
    assert cluster.coordinator.committed_state() == {}


@pytest.mark.parametrize("fails_over", [False, True])
def test_offsets_of_a_deleted_topic_are_dropped(fails_over: bool) -> None:
    cluster = Grouping()
    cluster.commit_offsets({ORDERS_0: 5, PAYMENTS_0: 6})
    cluster.commit_offsets({PAYMENTS_0: 7, ORDERS_1: 8}, producer_id=P)
    cluster.topics.discard(PAYMENTS)
    if fails_over:
        cluster.fail_over()
    else:
        cluster.coordinator.drop_deleted_topics()
    cluster.mark(P, committed=True)
    assert cluster.fetched() == {ORDERS_0: 5, ORDERS_1: 8}
