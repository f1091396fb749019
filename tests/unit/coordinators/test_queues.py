"""The coordinator of queues: leases, settlement, locks, leaders' news and fail-overs (docs/spec/queues.md)."""

from __future__ import annotations

import pytest

from minilog.errors import (
    InvalidConfig,
    InvalidRecordState,
    LevelNotReached,
    NonEmptyQueue,
    NoSpace,
    NotCoordinator,
    NotLeaderOrFollower,
    ResourceNotFound,
    UnknownTopicId,
)
from minilog.partition_key import PartitionKey
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues.describing import Progress
from minilog_broker.coordinators.queues.leasing import LOOK_MS
from minilog_broker.coordinators.queues.pieces import QueueKey
from minilog_broker.replication.stable_offsets import StableOffset
from tests.unit.coordinators.cluster import ORDERS, PAYMENTS, error_of
from tests.unit.coordinators.queueing import (
    LOCK_MS,
    P0,
    P1,
    REJECT,
    RELEASE,
    Q,
    Queueing,
    delivery_counts,
    offsets,
)


def test_two_workers_share_the_records_and_none_has_two() -> None:
    world = Queueing()
    world.has(15)
    first, second = world.lease(10), world.lease(10, worker="w2")
    assert offsets(first) == list(range(10))
    assert offsets(second) == list(range(10, 15))
    assert first.lease_id != second.lease_id


def test_a_lease_is_answered_when_it_is_committed() -> None:
    world = Queueing()
    world.has(5)
    ticket = world.ask_to_lease(5)
    assert ticket not in world.answers
    world.commit()
    assert offsets(world.answer(ticket, queue_pb2.LeaseResponse)) == [0, 1, 2, 3, 4]


def test_a_lease_ends_at_the_last_stable_offset() -> None:
    world = Queueing()
    world.has(3)
    assert offsets(world.lease(10)) == [0, 1, 2]


def test_a_call_without_records_waits_and_gets_the_first_that_come() -> None:
    world = Queueing()
    world.has(0)
    earlier, later = world.ask_to_lease(10), world.ask_to_lease(10, worker="w2")
    world.has(1)
    assert offsets(world.lease_answer(earlier)) == [0]
    assert later not in world.answers


def test_a_call_is_answered_without_records_when_it_has_waited_long_enough() -> None:
    world = Queueing()
    world.has(0)
    ticket = world.ask_to_lease(wait_ms=1_000)
    world.pass_ms(999)
    assert ticket not in world.answers
    world.pass_ms(1)
    assert not world.lease_answer(ticket).ranges


def test_a_caller_that_left_gets_no_records() -> None:
    world = Queueing()
    world.has(0)
    gone, here = world.ask_to_lease(), world.ask_to_lease(worker="w2")
    world.coordinator.caller_left(gone)
    world.has(4)
    assert offsets(world.lease_answer(here)) == [0, 1, 2, 3]
    assert gone not in world.answers


def test_the_worker_counts_the_lock_from_before_its_call() -> None:
    world = Queueing()
    world.has(0)
    ticket = world.ask_to_lease(wait_ms=60_000)
    world.pass_ms(7_000)
    world.has(1)
    assert world.lease_answer(ticket).lock_duration_ms == LOCK_MS + 7_000


def test_an_accepted_record_never_comes_back() -> None:
    world = Queueing()
    world.has(4)
    leased = world.lease(4)
    assert world.settle(leased, 0, 1) is None
    assert world.state().settled_to == 2
    world.pass_ms(LOCK_MS)
    assert offsets(world.lease(10)) == [2, 3]


def test_settlement_in_the_middle_moves_the_bound_when_all_below_is_settled() -> None:
    world = Queueing()
    world.has(4)
    leased = world.lease(4)
    assert world.settle(leased, 2, 3) is None
    assert world.state().settled_to == 0
    assert world.settle(leased, 0, 1) is None
    assert world.state().settled_to == 4
    assert not world.state().ranges


def test_a_released_record_comes_again_with_its_count() -> None:
    world = Queueing()
    world.has(3)
    leased = world.lease(3)
    assert world.settle(leased, 1, 1, RELEASE) is None
    again = world.lease(10, worker="w2")
    assert (offsets(again), delivery_counts(again)) == ([1], [2])


def test_a_released_record_comes_after_its_delay_and_others_meanwhile() -> None:
    world = Queueing()
    world.has(1)
    leased = world.lease(1)
    assert world.settle(leased, 0, 0, RELEASE, delay_ms=2_000) is None
    world.has(2)
    assert offsets(world.lease(10)) == [1]
    ticket = world.ask_to_lease(10)
    world.pass_ms(1_999)
    assert ticket not in world.answers
    world.pass_ms(1)
    assert offsets(world.lease_answer(ticket)) == [0]


def test_a_rejected_record_is_dead() -> None:
    world = Queueing()
    world.has(2)
    assert world.settle(world.lease(1), 0, 0, REJECT) is None
    assert offsets(world.lease(10)) == [1]
    assert world.describe().partitions[0].dead_count == 1


def test_a_record_is_dead_after_so_many_deliveries() -> None:
    world = Queueing()
    assert world.alter(limit="2") is None
    world.has(1)
    world.lease(1)
    world.pass_ms(LOCK_MS)
    assert delivery_counts(world.lease(1)) == [2]
    world.pass_ms(LOCK_MS)
    assert world.state().settled_to == 1
    assert world.describe().partitions[0].dead_count == 1


def test_records_whose_lock_ended_go_to_a_worker_that_waits() -> None:
    world = Queueing()
    world.has(2)
    world.lease(2)
    ticket = world.ask_to_lease(wait_ms=60_000, worker="w2")
    world.pass_ms(LOCK_MS - 1)
    assert ticket not in world.answers
    world.pass_ms(1)
    assert offsets(world.lease_answer(ticket)) == [0, 1]


def test_a_renewed_lock_begins_anew() -> None:
    world = Queueing()
    world.has(1)
    leased = world.lease(1)
    world.pass_ms(LOCK_MS - 1)
    renewed = world.renew(leased.lease_id, 999)
    assert list(renewed.ended_lease_ids) == [999]
    world.pass_ms(LOCK_MS - 1)
    assert world.settle(leased, 0, 0) is None


def test_a_renewal_is_answered_behind_a_record() -> None:
    """A deposed coordinator commits nothing, so it confirms no lock that another coordinator ends."""
    world = Queueing()
    world.has(1)
    leased = world.lease(1)
    ticket = world.ticket()
    world.coordinator.renew(ticket, queue_pb2.RenewLeasesRequest(queue=Q, lease_ids=[leased.lease_id]), world.now)
    world.collect()
    assert ticket not in world.answers


@pytest.mark.parametrize("case", ["another's", "twice", "after the lock", "another queue", "more than leased"])
def test_what_a_lease_does_not_hold_cannot_be_settled(case: str) -> None:
    world = Queueing()
    world.has(4)
    mine, others = world.lease(2), world.lease(2, worker="w2")
    match case:
        case "another's":
            error = world.settle(mine, 2, 3)
        case "twice":
            assert world.settle(mine, 0, 1) is None
            error = world.settle(mine, 0, 1)
        case "after the lock":
            world.pass_ms(LOCK_MS)
            error = world.settle(mine, 0, 1)
        case "another queue":
            response = world.settle_all([world.settlement(mine, 0, 1)], queue="other")
            assert response.refused[0].error.code
            error = world.settle(others, 2, 4)
        case _:
            error = world.settle(others, 2, 4)
    assert isinstance(error, InvalidRecordState)


def test_one_bad_settlement_does_not_hold_up_the_others() -> None:
    world = Queueing()
    world.has(4)
    leased = world.lease(2)
    good, bad = world.settlement(leased, 0, 1), world.settlement(leased, 2, 3)
    response = world.settle_all([bad, good])
    assert [refused.index for refused in response.refused] == [0]
    assert world.state().settled_to == 2


def test_the_locks_of_a_partition_are_bounded() -> None:
    world = Queueing()
    assert world.alter(locks="5") is None
    world.has(20)
    leased = world.lease(10)
    assert offsets(leased) == [0, 1, 2, 3, 4]
    ticket = world.ask_to_lease(10, worker="w2")
    assert world.settle(leased, 0, 2) is None
    assert offsets(world.lease_answer(ticket)) == [5, 6, 7]


def test_an_aim_of_bytes_bounds_a_lease_and_one_record_always_comes() -> None:
    world = Queueing()
    world.has(20, record_bytes=100)
    assert offsets(world.lease(10, max_bytes=350)) == [0, 1, 2]
    assert offsets(world.lease(10, max_bytes=1)) == [3]


def test_partitions_come_in_turn() -> None:
    world = Queueing()
    world.counts[ORDERS] = 2
    world.has(100)
    world.has(100, key=P1)
    world.ask_to_lease(1)
    firsts = [PartitionKey.of(world.lease(1).ranges[0].partition_id) for _ in range(4)]
    assert {P0, P1} == set(firsts)


def test_a_queue_begins_at_the_first_record_or_at_the_end() -> None:
    world = Queueing()
    assert world.alter("late", reset="latest") is None
    world.has(5, start=2)
    ticket = world.ask_to_lease(10, queue="late")
    assert offsets(world.lease(10)) == [2, 3, 4]
    world.has(6, start=2)
    assert offsets(world.lease_answer(ticket)) == [5]


def test_records_that_come_while_a_batch_is_on_its_way_share_a_lease() -> None:
    world = Queueing()
    world.has(0)
    first, second, third = (world.ask_to_lease(10) for _ in range(3))
    world.commit()
    world.has(1)
    world.has(2)
    world.has(3)
    assert len(world.ends) == 3, "the queue, its partition, and the first lease, at once"
    assert offsets(world.lease_answer(first)) == [0]
    assert offsets(world.lease_answer(second)) == [1, 2]
    assert world.waits(third)


def test_a_call_that_does_not_wait_gets_what_there_is_though_a_batch_is_on_its_way() -> None:
    world = Queueing()
    world.has(3)
    assert offsets(world.lease(1)) == [0]
    assert offsets(world.lease_answer(world.ask_to_lease(1))) == [1]
    waiting, hurried = world.ask_to_lease(1, queue="other"), world.ask_to_lease(1, wait_ms=0)
    assert world.waits(waiting)
    assert offsets(world.lease_answer(hurried)) == [2]


def test_a_partition_that_comes_later_begins_at_its_first_record() -> None:
    world = Queueing()
    assert world.alter(reset="latest") is None
    world.has(5)
    ticket = world.ask_to_lease(10)
    world.counts[ORDERS] = 2
    world.coordinator.topics_changed(world.now)
    world.collect()
    world.has(3, key=P1)
    assert offsets(world.lease_answer(ticket), P1) == [0, 1, 2]


# -- leaders


def test_retention_that_overtakes_a_queue_is_counted() -> None:
    world = Queueing()
    world.has(10)
    leased = world.lease(4)
    assert world.settle(leased, 0, 1) is None
    assert offsets(world.lease(1)) == [4]
    world.has(10, start=7)
    assert world.expired() == 2  # 5 and 6: two workers have 2, 3 and 4
    assert world.settle(leased, 2, 2) is None
    assert world.settle(leased, 3, 3, RELEASE) is None
    assert isinstance(world.settle(leased, 6, 7), InvalidRecordState)
    assert offsets(world.lease(10)) == [7, 8, 9]
    assert world.expired() == 1  # 3: nobody has it any more
    world.pass_ms(LOCK_MS)
    assert world.expired() == 1  # 4
    assert world.describe().partitions[0].expired_count == 4
    assert world.state().settled_to == 7


def test_what_retention_took_does_not_keep_the_rest_from_being_settled() -> None:
    world = Queueing()
    world.has(10)
    leased = world.lease(10)
    world.ask_to_lease(1)
    world.has(11, start=5)
    assert world.settle(leased, 0, 9) is None
    world.pass_ms(LOCK_MS)
    assert world.state().settled_to == 10


def test_an_unclean_election_drops_what_is_known_of_lost_records() -> None:
    world = Queueing()
    world.has(10)
    leased = world.lease(10)
    world.has(8, epoch=2, end_of_epoch=4)
    world.ask_to_lease(1)
    assert world.state().next_offset in (4, 5)
    assert isinstance(world.settle(leased, 4, 9), InvalidRecordState)
    assert world.settle(leased, 0, 3) is None


def test_records_of_a_new_leader_are_delivered_although_as_many_were_before() -> None:
    world = Queueing()
    world.has(10)
    assert world.settle(world.lease(10), 0, 9) is None
    world.has(12, epoch=2, end_of_epoch=6)
    assert offsets(world.lease(20)) == [6, 7, 8, 9, 10, 11]


def test_a_clean_election_drops_nothing() -> None:
    world = Queueing()
    world.has(10)
    leased = world.lease(10)
    world.has(11, epoch=2, end_of_epoch=10)
    assert offsets(world.lease(20)) == [10]
    assert world.settle(leased, 0, 9) is None


def test_a_leader_of_an_earlier_epoch_is_not_believed() -> None:
    world = Queueing()
    world.has(5, epoch=3)
    assert offsets(world.lease(5)) == [0, 1, 2, 3, 4]
    ticket = world.ask_to_lease(5)
    world.has(9, epoch=2)
    world.pass_ms(150)
    assert ticket not in world.answers
    world.has(7, epoch=3)
    world.pass_ms(150)
    assert offsets(world.lease_answer(ticket)) == [5, 6]


def test_a_question_that_fails_is_asked_again() -> None:
    world = Queueing()
    ticket = world.ask_to_lease(5)
    world.fail_questions(NotLeaderOrFollower("it leads no more"))
    world.stable[P0] = StableOffset(1, 0, 3, 3, 100)
    world.pass_ms(99)
    assert ticket not in world.answers
    world.pass_ms(1)
    assert offsets(world.lease_answer(ticket)) == [0, 1, 2]


# -- terms


def test_a_new_coordinator_knows_the_leases_and_begins_their_locks_anew() -> None:
    world = Queueing()
    world.has(3)
    leased = world.lease(2)
    world.pass_ms(LOCK_MS - 1)
    world.fail_over()
    world.report()
    assert offsets(world.lease(10)) == [2]
    world.pass_ms(LOCK_MS - 1)
    assert world.settle(leased, 0, 0) is None
    world.pass_ms(1)
    assert offsets(world.lease(10)) == [1, 2]


def test_a_new_coordinator_waits_for_a_whole_delay() -> None:
    world = Queueing()
    world.has(1)
    assert world.settle(world.lease(1), 0, 0, RELEASE, delay_ms=2_000) is None
    world.pass_ms(1_500)
    world.fail_over()
    ticket = world.ask_to_lease(1)
    world.pass_ms(1_999)
    assert ticket not in world.answers
    world.pass_ms(1)
    assert offsets(world.lease_answer(ticket)) == [0]


def test_a_call_that_waits_is_answered_once_when_its_lease_shows_that_the_term_is_over() -> None:
    world = Queueing()
    world.has(0)
    ticket = world.ask_to_lease()
    world.commit()
    world.refusal = NotLeaderOrFollower("another broker leads")
    world.has(1)
    assert isinstance(error_of(world.answers[ticket]), NotCoordinator)


def test_a_lock_that_cannot_end_now_ends_later() -> None:
    world = Queueing()
    world.has(1)
    world.lease(1)
    world.refusal = NoSpace("the disk is full")
    world.pass_ms(LOCK_MS + 50)
    ticket = world.ask_to_lease(1)
    world.refusal = None
    world.pass_ms(100)
    assert offsets(world.lease_answer(ticket)) == [0]


def test_calls_that_wait_are_refused_when_the_term_ends() -> None:
    world = Queueing()
    world.has(0)
    ticket = world.ask_to_lease()
    world.coordinator.deposed()
    world.collect()
    assert isinstance(error_of(world.answers[ticket]), NotCoordinator)


# -- people, levels, topics


def test_a_queue_needs_its_level() -> None:
    world = Queueing()
    world.allows_queues = False
    assert isinstance(error_of(world.lease()), LevelNotReached)
    assert isinstance(world.alter(limit="3"), LevelNotReached)


@pytest.mark.parametrize(
    "settings", [{"lock": "999"}, {"limit": "0"}, {"locks": "x"}, {"reset": "middle"}, {"no.such": "1"}, {"limit": "٣"}]
)
def test_a_bad_setting_is_refused(settings: dict[str, str]) -> None:
    world = Queueing()
    assert isinstance(world.alter(**settings), InvalidConfig)
    assert isinstance(error_of(world.describe()), ResourceNotFound)


def test_a_topic_that_is_not_known_is_refused() -> None:
    assert isinstance(error_of(Queueing().lease(topics=[b"?" * 16])), UnknownTopicId)


def test_a_deleted_topic_leaves_nothing_and_its_callers_hear_of_it() -> None:
    world = Queueing()
    world.has(2)
    world.lease(2)
    ticket = world.ask_to_lease()
    del world.counts[ORDERS]
    world.coordinator.drop_deleted_topics()
    world.collect()
    assert isinstance(error_of(world.lease_answer(ticket)), UnknownTopicId)
    assert not world.describe().partitions


def test_a_queue_of_two_topics() -> None:
    world = Queueing()
    world.has(2)
    world.has(3, key=PartitionKey(PAYMENTS, 0))
    ticket = world.ask_to_lease(10, topics=(ORDERS, PAYMENTS))
    first = world.lease_answer(ticket)
    second = world.lease(10, topics=(ORDERS, PAYMENTS)) if len(first.ranges) < 2 else first
    taken = {PartitionKey.of(part.partition_id).topic_id for part in [*first.ranges, *second.ranges]}
    assert taken == {ORDERS, PAYMENTS}


def test_a_queue_with_leases_is_not_deleted() -> None:
    world = Queueing()
    world.has(1)
    leased = world.lease(1)

    def delete() -> queue_pb2.DeleteQueueResponse:
        ticket = world.ticket()
        world.coordinator.delete(ticket, queue_pb2.DeleteQueueRequest(queue=Q))
        world.collect()
        world.commit()
        return world.answer(ticket, queue_pb2.DeleteQueueResponse)

    assert isinstance(error_of(delete()), NonEmptyQueue)
    assert world.settle(leased, 0, 0) is None
    assert error_of(delete()) is None
    assert isinstance(error_of(delete()), ResourceNotFound)
    assert offsets(world.lease(1)) == [0]  # it begins anew, although its leader has no news


def test_records_are_counted_by_their_state() -> None:
    world = Queueing()
    world.has(10)
    leased = world.lease(6)
    assert world.settle(leased, 0, 0) is None
    assert world.settle(leased, 1, 1, RELEASE) is None
    assert world.settle(leased, 2, 2, REJECT) is None
    assert world.settle_in_transaction([world.settlement(leased, 3, 4)]) is None
    counts = world.coordinator.record_counts()[Q]
    assert (counts.ready, counts.leased, counts.settling, counts.fresh, counts.dead) == (1, 1, 2, 4, 1)
    assert (counts.redelivered, counts.progress) == (0, {QueueKey(Q, P0): Progress(1, 10)})
    world.lease(1)
    assert world.coordinator.record_counts()[Q].redelivered == 1


def test_people_see_who_has_what() -> None:
    world = Queueing()
    world.has(5)
    leased = world.lease(2, worker="host-7")
    assert world.settle(leased, 0, 0) is None
    [partition] = world.describe().partitions
    [described] = partition.ranges
    assert (partition.settled_to, partition.next_offset, partition.last_stable_offset) == (1, 2, 5)
    assert (described.worker_id, described.state, described.delivery_count) == (
        "host-7",
        queue_pb2.RANGE_STATE_LEASED,
        1,
    )
    assert 0 < described.remaining_ms <= LOCK_MS


def test_the_backlog_of_a_queue_without_workers_is_known() -> None:
    world = Queueing()
    world.has(10)
    leased = world.lease(10)
    assert world.settle(leased, 0, 9) is None
    world.has(11)
    world.has(1_000)
    world.pass_ms(LOOK_MS)
    world.report()
    world.pass_ms(LOOK_MS)
    world.report()
    assert world.coordinator.record_counts()[Q].fresh == 990
    world.fail_over()
    world.pass_ms(1)
    world.report()
    assert world.coordinator.record_counts()[Q].fresh == 990


def test_principals_share_the_locks_of_a_partition() -> None:
    """Whoever leases first does not keep all others out."""
    world = Queueing()
    world.alter(locks="100")
    world.has(1_000)
    first = world.lease(100, principal="User:mallory")
    assert len(offsets(first)) == 100, "nobody else asks"
    waits = world.ask_to_lease(100, principal="User:alice")
    world.settle(first, 0, 59)
    assert len(offsets(world.lease_answer(waits))) == 50
    assert offsets(world.lease(100, principal="User:mallory", wait_ms=0)) == list(range(150, 160))


def test_a_principal_above_its_share_does_not_hold_up_those_behind_it() -> None:
    world = Queueing()
    world.alter(locks="100")
    world.has(1_000)
    first = world.lease(100, principal="User:mallory")
    greedy = world.ask_to_lease(100, principal="User:mallory")
    waits = world.ask_to_lease(100, principal="User:alice")
    world.settle(first, 0, 39)
    assert len(offsets(world.lease_answer(waits))) == 40
    assert greedy not in world.answers
