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
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.effects import RegisterProducer
from minilog_broker.coordinators.groups.registrations import MAX_WAITING
from minilog_broker.replication.state import PartitionKey
from tests.unit.coordinators.grouping import G, Grouping, T
from tests.unit.coordinators.transacting import ORDERS_0, ORDERS_1, PAYMENTS_0
from tests.unit.coordinators.world import PAYMENTS, START_US, error_of

Commit, Fetch = coordinator_pb2.CommitOffsetsResponse, coordinator_pb2.FetchOffsetsResponse
Mark = coordinator_pb2.WriteMarkersResponse
P = 500
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


# -- by themselves


def test_what_was_committed_is_fetched_and_survives_a_failover() -> None:
    world = Grouping()
    assert world.commit_offsets({ORDERS_0: 5, ORDERS_1: 9}, metadata="m") is None
    world.commit_offsets({ORDERS_0: 7})
    world.fail_over()
    assert world.fetched() == {ORDERS_0: 7, ORDERS_1: 9}
    assert world.fetched(ORDERS_1, PAYMENTS_0) == {ORDERS_1: 9, PAYMENTS_0: -1}
    (offset,) = world.fetch(ORDERS_1).offsets
    assert (offset.leader_epoch, offset.metadata, offset.committed_us) == (2, "m", START_US)
    assert world.fetched(group="another") == {}


def test_a_commit_is_answered_when_it_is_committed() -> None:
    world = Grouping()
    ticket = world.ask_to_commit({ORDERS_0: 5})
    assert world.waits(ticket)
    world.fail_over(kept_batches=0)
    assert isinstance(error_of(world.answer(ticket, Commit)), NotCoordinator)
    assert world.fetched(ORDERS_0) == {ORDERS_0: -1}


def test_a_fetch_is_answered_by_a_coordinator_that_still_is_one() -> None:
    world = Grouping()
    world.commit_offsets({ORDERS_0: 5})
    ticket = world.ask_to_fetch(ORDERS_0)
    assert world.waits(ticket)  # nothing shows yet that nobody has taken over
    world.coordinator.deposed()
    assert isinstance(error_of(world.answer(ticket, Fetch)), NotCoordinator)


def test_nothing_is_said_before_all_is_loaded() -> None:
    world = Grouping()
    world.commit_offsets({ORDERS_0: 5})
    world.lead()
    assert isinstance(error_of(world.answer(world.ask_to_fetch(), Fetch)), CoordinatorLoadInProgress)
    ticket = world.ask_to_commit({ORDERS_0: 1}, producer_id=P)
    assert isinstance(error_of(world.answer(ticket, Commit)), CoordinatorLoadInProgress)


def test_all_or_none_of_the_offsets_are_committed() -> None:
    world = Grouping()
    unknown = PartitionKey(bytes(15) + b"\x55", 0)
    assert isinstance(world.commit_offsets({ORDERS_0: 5, unknown: 1}), UnknownTopicId)
    assert isinstance(world.commit_offsets({ORDERS_0: 5, ORDERS_1: -1}), InvalidArgument)
    assert isinstance(world.commit_offsets({ORDERS_0: 5}, metadata="x" * 4_097), OffsetMetadataTooLarge)
    assert isinstance(world.commit_offsets({}), InvalidArgument)
    assert isinstance(world.commit_offsets({ORDERS_0: 5}, group=""), InvalidArgument)
    world.refusal = NotEnoughReplicas("the ISR is too small")
    assert isinstance(world.commit_offsets({ORDERS_0: 5}), NotEnoughReplicas)
    world.refusal = None
    assert world.coordinator.committed_state() == {}
    assert world.fetched() == {}


# -- in transactions


def test_offsets_of_a_transaction_are_hidden_until_its_marker_and_then_the_groups() -> None:
    world = Grouping()
    world.commit_offsets({ORDERS_0: 5, ORDERS_1: 1})
    assert world.commit_offsets({ORDERS_0: 7}, producer_id=P) is None
    assert world.fetched() == {ORDERS_0: UNSTABLE, ORDERS_1: 1}
    world.fail_over()
    assert world.fetched() == {ORDERS_0: UNSTABLE, ORDERS_1: 1}
    assert world.mark(P, committed=True) is None
    assert world.fetched() == {ORDERS_0: 7, ORDERS_1: 1}


def test_offsets_of_an_aborted_transaction_never_were() -> None:
    world = Grouping()
    world.commit_offsets({ORDERS_0: 5})
    world.commit_offsets({ORDERS_0: 7, ORDERS_1: 7}, producer_id=P)
    assert world.fetched(ORDERS_1) == {ORDERS_1: UNSTABLE}
    world.mark(P, committed=False)
    assert world.fetched() == {ORDERS_0: 5}


def test_a_marker_is_answered_when_what_it_does_is_committed() -> None:
    """KAFKA-17507."""
    world = Grouping()
    world.commit_offsets({ORDERS_0: 7}, producer_id=P)
    ticket = world.ask_to_mark(P, committed=True)
    assert world.waits(ticket)
    again = world.ask_to_mark(P, committed=True)
    assert world.waits(again)  # the first is in flight, and may be lost
    world.fail_over(kept_batches=0)
    for each in (ticket, again):
        assert isinstance(error_of(world.answer(each, coordinator_pb2.WriteMarkersResponse)), NotCoordinator)
    assert world.fetched() == {ORDERS_0: UNSTABLE}


def test_markers_are_idempotent() -> None:
    """Wrong rule 18: written again later, a marker must not take back what was committed since."""
    world = Grouping()
    world.commit_offsets({ORDERS_0: 7}, producer_id=P)
    world.mark(P, committed=True)
    world.commit_offsets({ORDERS_0: 9})
    assert world.mark(P, committed=True) is None
    assert world.mark(999, committed=True, last_sequence=-1) is None
    assert world.fetched() == {ORDERS_0: 9}


def test_a_marker_without_anything_pending_is_answered_by_a_coordinator_that_still_is_one() -> None:
    """Another may have offsets pending: a deposed one that says "written" leaves them so for ever."""
    world = Grouping()
    ticket = world.ask_to_mark(P, committed=True)
    assert world.waits(ticket)
    world.commit()
    assert error_of(world.answer(ticket, Mark)) is None
    assert world.waits(deposed := world.ask_to_mark(P, committed=True))
    world.coordinator.deposed()
    assert isinstance(error_of(world.answer(deposed, Mark)), NotCoordinator)
    assert world.coordinator.committed_state() == {}


def test_of_two_commits_the_later_one_holds_whenever_their_transactions_end() -> None:
    world = Grouping()
    world.commit_offsets({ORDERS_0: 7, ORDERS_1: 7}, producer_id=P)
    world.commit_offsets({ORDERS_0: 8}, producer_id=P + 1)
    world.mark(P + 1, committed=True)
    assert world.fetched() == {ORDERS_0: UNSTABLE, ORDERS_1: UNSTABLE}
    world.fail_over()
    world.mark(P, committed=True)
    assert world.fetched() == {ORDERS_0: 8, ORDERS_1: 7}


def test_two_markers_of_one_transaction_for_one_partition() -> None:
    world = Grouping()
    world.commit_offsets({ORDERS_0: 8}, producer_id=P)
    world.commit_offsets({ORDERS_0: 9}, producer_id=P + 1)
    request = coordinator_pb2.WriteMarkersRequest(
        markers=[coordinator_pb2.ProducerMarker(producer_id=each, committed=True) for each in (P + 1, P)]
    )
    ticket = world.ticket()
    world.coordinator.write_markers(ticket, request)
    world.commit()
    assert error_of(world.answer(ticket, coordinator_pb2.WriteMarkersResponse)) is None
    assert world.fetched() == {ORDERS_0: 9}


def test_a_producer_commits_for_several_groups_and_more_than_once() -> None:
    world = Grouping()
    assert world.commit_offsets({ORDERS_0: 1, ORDERS_1: 1}, producer_id=P, sequence=0) is None
    assert world.commit_offsets({ORDERS_0: 2}, producer_id=P, sequence=1) is None
    assert world.commit_offsets({ORDERS_0: 3}, group="other", producer_id=P, sequence=2) is None
    world.fail_over()
    assert world.mark(P, committed=True, last_sequence=2) is None
    assert world.fetched() == {ORDERS_0: 2, ORDERS_1: 1}
    assert world.fetched(group="other") == {ORDERS_0: 3}


def test_a_commit_that_comes_twice_or_out_of_order_changes_nothing() -> None:
    world = Grouping()
    world.commit_offsets({ORDERS_0: 1}, producer_id=P, sequence=0)
    world.commit_offsets({ORDERS_0: 2}, producer_id=P, sequence=1)
    assert world.commit_offsets({ORDERS_0: 1}, producer_id=P, sequence=0) is None
    assert isinstance(world.commit_offsets({ORDERS_0: 9}, producer_id=P, sequence=3), OutOfOrderSequenceNumber)
    assert isinstance(world.commit_offsets({ORDERS_0: 9}, producer_id=P + 1, sequence=1), OutOfOrderSequenceNumber)
    world.mark(P, committed=True, last_sequence=1)
    assert world.fetched() == {ORDERS_0: 2}


def test_a_commit_marker_that_does_not_match_what_is_pending_is_refused() -> None:
    world = Grouping()
    world.commit_offsets({ORDERS_0: 1}, producer_id=P, sequence=0)
    assert isinstance(world.mark(P, committed=True, last_sequence=1), InvalidTxnState)
    assert world.fetched() == {ORDERS_0: UNSTABLE}
    assert world.mark(P, committed=False, last_sequence=-1) is None
    assert world.fetched() == {}


def test_the_producer_is_registered_before_its_first_commit_and_once() -> None:
    world = Grouping()
    ticket = world.ask_to_commit({ORDERS_0: 1}, producer_id=P)
    world.commit()
    assert world.waits(ticket)
    assert world.log_end == 0
    (effect,) = world.take(RegisterProducer)
    assert effect == RegisterProducer(1, T, P)
    world.coordinator.registered(1, None, world.now)
    world.commit()
    assert error_of(world.answer(ticket, Commit)) is None
    world.commit_offsets({ORDERS_0: 2}, group="other", producer_id=P, sequence=1)
    assert world.register_producers() == []


def test_a_producer_that_has_ended_commits_nothing() -> None:
    """Wrong rule 17."""
    world = Grouping()
    world.commit_offsets({ORDERS_0: 1}, producer_id=P)
    world.mark(P, committed=True)
    world.ended[P] = ProducerFenced("it has ended")
    assert isinstance(world.commit_offsets({ORDERS_0: 9}, producer_id=P), ProducerFenced)
    assert world.fetched() == {ORDERS_0: 1}


def test_a_marker_cancels_the_commits_that_wait_for_the_registration() -> None:
    """Wrong rule 17: the registration was answered before the decision, and its answer came after the marker."""
    world = Grouping()
    ticket = world.ask_to_commit({ORDERS_0: 1}, producer_id=P)
    (effect,) = world.take(RegisterProducer)
    assert isinstance(effect, RegisterProducer)
    assert world.mark(P, committed=False) is None
    assert isinstance(error_of(world.answer(ticket, Commit)), ProducerFenced)
    late = world.ask_to_commit({ORDERS_0: 1}, producer_id=P)
    world.coordinator.registered(effect.number, None, world.now)  # this is no answer to the second question
    world.commit()
    assert world.waits(late)
    assert world.coordinator.committed_state() == {}
    world.ended[P] = ProducerFenced("it has ended")
    world.register_producers()
    assert isinstance(error_of(world.answer(late, Commit)), ProducerFenced)


def test_commits_that_wait_are_bounded_and_refused_when_the_term_ends() -> None:
    world = Grouping()
    tickets = [world.ask_to_commit({ORDERS_0: n}, producer_id=P, sequence=n) for n in range(MAX_WAITING + 1)]
    assert isinstance(error_of(world.answer(tickets.pop(), Commit)), InvalidTxnState)
    world.coordinator.deposed()
    for ticket in tickets:
        assert isinstance(error_of(world.answer(ticket, Commit)), NotCoordinator)


# -- for people, and deleted topics


def test_groups_are_listed_and_described() -> None:
    world = Grouping()
    world.commit_offsets({ORDERS_0: 5, ORDERS_1: 6})
    world.commit_offsets({ORDERS_0: 7}, producer_id=P)
    world.commit_offsets({ORDERS_0: 1}, group="only pending", producer_id=P, sequence=1)
    ticket = world.ticket()
    world.coordinator.list(ticket, coordinator_pb2.ListGroupsRequest())
    response = world.answer(ticket, coordinator_pb2.ListGroupsResponse)
    assert [(each.group_id, each.partition_count) for each in response.groups] == [("only pending", 0), (G, 2)]
    world.coordinator.describe(ticket, coordinator_pb2.DescribeGroupRequest(group_id=G))
    described = world.answer(ticket, coordinator_pb2.DescribeGroupResponse)
    assert [each.offset for each in described.offsets] == [5, 6]
    (pending,) = described.pending
    assert (pending.transactional_id, pending.producer_id, pending.offsets[0].offset) == (T, P, 7)
    world.coordinator.describe(ticket, coordinator_pb2.DescribeGroupRequest(group_id="unknown"))
    assert isinstance(error_of(world.answer(ticket, coordinator_pb2.DescribeGroupResponse)), GroupIdNotFound)


def test_a_group_or_some_of_it_is_deleted_but_not_while_a_transaction_has_offsets_of_it() -> None:
    world = Grouping()
    world.commit_offsets({ORDERS_0: 5, ORDERS_1: 6})
    world.commit_offsets({PAYMENTS_0: 7}, producer_id=P)
    assert isinstance(world.delete(), UnstableOffsetCommit)
    world.mark(P, committed=False)
    assert world.delete(ORDERS_0) is None
    assert world.fetched() == {ORDERS_1: 6}
    assert world.delete() is None
    assert isinstance(world.delete(), GroupIdNotFound)
    assert world.coordinator.committed_state() == {}


@pytest.mark.parametrize("fails_over", [False, True])
def test_offsets_of_a_deleted_topic_are_dropped(fails_over: bool) -> None:
    world = Grouping()
    world.commit_offsets({ORDERS_0: 5, PAYMENTS_0: 6})
    world.commit_offsets({PAYMENTS_0: 7, ORDERS_1: 8}, producer_id=P)
    world.topics.discard(PAYMENTS)
    if fails_over:
        world.fail_over()
    else:
        world.coordinator.drop_deleted_topics()
    world.mark(P, committed=True)
    assert world.fetched() == {ORDERS_0: 5, ORDERS_1: 8}
