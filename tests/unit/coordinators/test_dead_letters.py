"""Dead records that wait for the dead-letter topic (docs/spec/queues.md § Dead letters)."""

from __future__ import annotations

from minilog.errors import InvalidConfig, MinilogError
from minilog.limits import MAX_REASON_CHARACTERS
from minilog.v1 import queue_pb2
from minilog_broker.coordinators.queues.ranges import RangeState
from tests.unit.coordinators.cluster import ORDERS, PAYMENTS, error_of
from tests.unit.coordinators.queueing import LOCK_MS, RELEASE, Q, Queueing, delivery_counts, offsets

TOPIC, COPIES = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
LIMIT = "group.share.delivery.count.limit"


def dead_world(count: int = 1, *, copies: str = "false") -> Queueing:
    """A queue with a dead-letter topic and one delivery, whose first records have died with their lock."""
    world = Queueing()
    world.has(count)
    assert world.alter(**{TOPIC: "dead", LIMIT: "1", COPIES: copies}) is None
    world.lease(count)
    world.pass_ms(LOCK_MS)
    return world


def reject(world: Queueing, leased: queue_pb2.LeaseResponse, reason: str) -> None:
    settlement = world.settlement(leased, 0, 0, queue_pb2.VERDICT_REJECT)
    settlement.reason = reason
    assert not world.settle_all([settlement]).refused


def carry(world: Queueing, max_records: int = 10) -> queue_pb2.LeaseResponse:
    return world.lease(max_records, takes_dead_letters=True)


def states(world: Queueing) -> list[tuple[int, int, RangeState, str | None]]:
    return [(part.first, part.last, part.state, part.death_reason) for part in world.state().ranges]


def test_a_record_that_dies_waits_for_the_dead_letter_topic() -> None:
    world = dead_world(count=2)
    assert states(world) == [(0, 1, RangeState.DEAD, "not accepted in 1 deliveries")]
    [partition] = world.describe().partitions
    assert (partition.dead_count, partition.settled_to) == (2, 0)
    assert partition.ranges[0].death_reason == "not accepted in 1 deliveries"


def test_a_rejection_has_its_reason_of_bounded_length() -> None:
    world = Queueing()
    world.has(1)
    world.alter(**{TOPIC: "dead"})
    reject(world, world.lease(1), "x" * 1_000)
    assert states(world) == [(0, 0, RangeState.DEAD, "x" * MAX_REASON_CHARACTERS)]


def test_a_worker_that_carries_no_dead_letters_gets_none() -> None:
    world = dead_world()
    ticket = world.ask_to_lease()
    assert ticket not in world.answers


def test_a_carrier_learns_the_topic_and_the_reason_and_the_delivery_is_not_counted() -> None:
    world = dead_world(copies="true")
    leased = carry(world)
    assert (offsets(leased), delivery_counts(leased)) == ([0], [1])
    assert (leased.dead_letter_topic, leased.copies_dead_records) == ("dead", True)
    assert leased.ranges[0].death_reason == "not accepted in 1 deliveries"


def test_a_lease_without_dead_records_names_no_topic() -> None:
    world = Queueing()
    world.has(1)
    world.alter(**{TOPIC: "dead"})
    leased = carry(world)
    assert (offsets(leased), leased.dead_letter_topic) == ([0], "")
    assert not leased.ranges[0].HasField("death_reason")


def test_what_a_committed_transaction_carries_is_settled_and_dies_once() -> None:
    world = dead_world()
    leased = carry(world)
    assert world.settle_in_transaction([world.settlement(leased, 0, 0)]) is None
    assert world.mark(committed=True) is None
    assert world.state().settled_to == 1
    assert world.describe().partitions[0].dead_count == 1


def test_what_an_aborted_transaction_carries_is_carried_again() -> None:
    world = dead_world()
    leased = carry(world)
    assert world.settle_in_transaction([world.settlement(leased, 0, 0)]) is None
    assert world.mark(committed=False) is None
    assert world.settle(leased, 0, 0, RELEASE, delay_ms=500) is None
    assert states(world) == [(0, 0, RangeState.DEAD, "not accepted in 1 deliveries")]
    ticket = world.ask_to_lease(takes_dead_letters=True)
    assert ticket not in world.answers
    world.pass_ms(500)
    assert offsets(world.lease_answer(ticket)) == [0]


def test_the_lock_of_a_carrier_ends_and_a_new_coordinator_still_knows_the_dead() -> None:
    world = dead_world()
    carry(world)
    world.pass_ms(LOCK_MS)
    world.fail_over()
    world.report()
    leased = carry(world)
    assert (offsets(leased), leased.ranges[0].death_reason) == ([0], "not accepted in 1 deliveries")


def test_dead_records_count_as_locks() -> None:
    world = Queueing()
    world.has(3)
    world.alter(**{TOPIC: "dead", LIMIT: "1", "group.share.partition.max.record.locks": "2"})
    world.lease(2)
    world.pass_ms(LOCK_MS)
    ticket = world.ask_to_lease()
    assert ticket not in world.answers
    leased = carry(world)
    assert offsets(leased) == [0, 1]
    assert world.settle(leased, 0, 1) is None
    assert offsets(world.lease_answer(ticket)) == [2]


def test_without_the_topic_the_waiting_dead_are_settled() -> None:
    world = dead_world(count=2)
    carry(world, max_records=1)
    assert world.alter(unset=[TOPIC]) is None
    assert states(world) == [(0, 0, RangeState.LEASED, "not accepted in 1 deliveries")]
    world.pass_ms(LOCK_MS)
    assert world.state().settled_to == 2


def test_a_queue_with_waiting_dead_letters_may_be_deleted() -> None:
    world = dead_world()
    ticket = world.ticket()
    world.coordinator.delete(ticket, queue_pb2.DeleteQueueRequest(queue=Q))
    world.collect()
    world.commit()
    assert error_of(world.answer(ticket, queue_pb2.DeleteQueueResponse)) is None


def test_the_settings_are_checked() -> None:
    world = Queueing()
    bad: list[dict[str, str]] = [{TOPIC: "a/b"}, {TOPIC: ""}, {TOPIC: "__groups"}, {COPIES: "yes"}]
    errors: list[MinilogError | None] = [world.alter(**settings) for settings in bad]
    assert all(isinstance(error, InvalidConfig) for error in errors)


def test_a_call_that_takes_dead_letters_is_not_behind_one_that_takes_none() -> None:
    """As that of Spark's driver: it waits for other records."""
    world = Queueing()
    world.has(1)
    world.alter(**{TOPIC: "dead", LIMIT: "1"})
    world.lease(1)
    plain, carrier = (
        world.ask_to_lease(wait_ms=2 * LOCK_MS),
        world.ask_to_lease(wait_ms=2 * LOCK_MS, takes_dead_letters=True),
    )
    world.pass_ms(LOCK_MS)
    assert offsets(world.lease_answer(carrier)) == [0]
    assert world.waits(plain)


def test_a_topic_of_the_queue_is_not_its_dead_letter_topic() -> None:
    world = Queueing()
    world.ask_to_lease(topics=[ORDERS])
    refused = world.alter(**{TOPIC: "orders"})
    assert isinstance(refused, InvalidConfig)
    assert "'orders', which is a topic of this queue" in str(refused)
    assert dict(world.describe().settings) == {}
    assert world.alter(**{TOPIC: "payments"}) is None


def test_a_worker_does_not_bring_the_dead_letter_topic_into_the_queue() -> None:
    world = Queueing()
    assert world.alter(**{TOPIC: "payments"}) is None
    assert isinstance(error_of(world.lease(topics=[ORDERS, PAYMENTS])), InvalidConfig)
    world.has(1)
    assert offsets(world.lease(topics=[ORDERS])) == [0]


def test_letters_do_not_come_back_by_other_queues() -> None:
    world = Queueing()
    third = b"\x63" * 16
    world.counts[third], world.ids["third"] = 1, third
    for queue, topic, letters in (("q1", ORDERS, "payments"), ("q2", PAYMENTS, "third")):
        world.ask_to_lease(queue=queue, topics=[topic])
        assert world.alter(queue, **{TOPIC: letters}) is None
    world.ask_to_lease(queue="q3", topics=[third])
    refused = world.alter("q3", **{TOPIC: "orders"})
    assert isinstance(refused, InvalidConfig)
    assert "other queues would carry its letters back" in str(refused)
    assert world.alter("q3", **{TOPIC: "not-there-yet"}) is None
    assert world.alter("q3", unset=[TOPIC]) is None
