"""What a queue writes for a call: in proportion to the call, however many ranges its partitions have."""

from __future__ import annotations

import pytest

from minilog.v1 import queue_pb2
from minilog_broker.coordinators.coordinator_effects import BytesWritten
from tests.unit.coordinators.queueing import ACCEPT, REJECT, Queueing, offsets

FACTOR, SLACK_BYTES = 100, 4 << 10
"""What is written for a call is below so many times its bytes, and this."""


def with_ranges(count: int) -> tuple[Queueing, queue_pb2.LeaseResponse]:
    """A queue whose only lease holds every second offset: `count` ranges."""
    world = Queueing()
    world.alter(locks=str(4 * count))
    world.has(8 * count)
    leased = world.lease(2 * count)
    assert len(offsets(leased)) == 2 * count
    for begin in range(0, 2 * count, 2_000):
        world.settle_all([world.settlement(leased, at, at, ACCEPT) for at in range(begin, begin + 2_000, 2)])
    assert len(world.state().ranges) == count
    return world, leased


def charged(world: Queueing) -> dict[object, int]:
    """What was written for each call, by its ticket."""
    return {effect.ticket: effect.count for effect in world.take(BytesWritten) if isinstance(effect, BytesWritten)}


def written(world: Queueing, since: int) -> int:
    """The bytes of the batches of the log behind the first ones."""
    world.commit()
    return sum(map(len, world.batches[since:]))


@pytest.mark.parametrize("count", [1_000, 8_000])
def test_a_settlement_and_a_lease_write_in_proportion_to_themselves(count: int) -> None:
    world, leased = with_ranges(count)
    since = len(world.batches)
    one = world.settlement(leased, count + 1, count + 1, ACCEPT)
    assert not world.settle_all([one]).refused
    assert written(world, since) < SLACK_BYTES
    since = len(world.batches)
    world.renews = False
    assert len(offsets(world.lease(100))) == 100
    assert written(world, since) < SLACK_BYTES


def test_a_reason_is_written_once() -> None:
    world, leased = with_ranges(1_000)
    world.alter(**{"errors.deadletterqueue.topic.name": "letters"})
    for at in (1, 3, 5):
        rejected = world.settlement(leased, at, at, REJECT)
        rejected.reason = "x" * 500
        since = len(world.batches)
        world.settle_all([rejected])
        assert written(world, since) < SLACK_BYTES
    assert b"x" * 500 not in b"".join(world.batches[since:])


def test_each_call_is_charged_for_its_own_records() -> None:
    world = Queueing()
    world.renews = False
    world.alter(locks="10")
    world.has(30)
    leased = world.lease(10)
    charged(world)
    waits = world.ask_to_lease(10, principal="User:bob")
    assert charged(world) == {}
    world.settle_all([world.settlement(leased, 0, 9)])
    assert offsets(world.lease_answer(waits)) == list(range(10, 20))
    costs = charged(world)
    assert costs.keys() == {waits, waits + 1}  # the settlement pays for itself alone
    assert all(40 < count < 400 for count in costs.values())
    since = len(world.batches)
    world.renew(leased.lease_id)
    assert sum(charged(world).values()) < written(world, since)


def test_a_refused_settlement_is_charged_for_its_record() -> None:
    world = Queueing()
    world.has(30)
    leased = world.lease(10)
    charged(world)
    assert world.settle(leased, 5, 15) is not None
    assert [20 < count < 100 for count in charged(world).values()] == [True]
