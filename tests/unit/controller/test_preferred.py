"""The preferred replica leads again where it can: by command, and by itself at every check."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minilog.errors import PreferredLeaderNotAvailable, UnknownTopicOrPartition
from minilog_broker.replication.state import PartitionKey
from tests.unit.controller.world import IMBALANCE_CHECK_MS, World, error_of, led_by


@pytest.fixture
def world() -> World:
    world = World()
    world.start_all(3)
    return world


def moved_away(world: World, *, rejoined: bool = True) -> PartitionKey:
    """Broker 2 is the preferred leader, another leads; 2 is alive and, where `rejoined`, in the ISR."""
    (key,) = all_moved_away(world, 1, rejoined=rejoined)
    return key


def all_moved_away(world: World, count: int, *, rejoined: bool = True) -> list[PartitionKey]:
    keys = [led_by(world, 2) for _ in range(count)]
    world.restart(2, clean=True)
    for key in keys:
        assert world.state(key).leader_id != 2
        if rejoined:
            assert error_of(world.propose(key, [1, 2, 3])) is None
    return keys


def test_by_command_the_first_replica_leads_again_in_a_new_leader_epoch(world: World) -> None:
    key = moved_away(world)
    before = world.state(key)
    (result,) = world.elect(before.topic_name)
    assert (error_of(result), result.leader_id) == (None, 2)
    after = world.state(key)
    assert (after.leader_id, after.leader_broker_epoch) == (2, world.epoch(2))
    assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch + 1, before.partition_epoch + 1)
    assert after.in_sync_replicas == (2, *(broker for broker in after.replicas if broker != 2))


def test_where_it_leads_already_nothing_changes(world: World) -> None:
    key = led_by(world, 2)
    before = world.state(key)
    (result,) = world.elect(before.topic_name, partitions=(0,))
    assert (error_of(result), result.leader_id) == (None, 2)
    assert world.state(key) == before


def test_outside_the_isr_or_not_running_it_is_not_available(world: World) -> None:
    key = moved_away(world, rejoined=False)
    before = world.state(key)
    (result,) = world.elect(before.topic_name)
    assert isinstance(error_of(result), PreferredLeaderNotAvailable)
    assert world.state(key) == before
    world.propose(key, [1, 2, 3])
    world.fence(2)
    (result,) = world.elect(before.topic_name)
    assert isinstance(error_of(result), PreferredLeaderNotAvailable)


def test_each_partition_is_decided_for_itself(world: World) -> None:
    moved = moved_away(world)
    name = world.state(moved).topic_name
    there, out_of_range, elsewhere = [*world.elect(name, partitions=(0, 7)), *world.elect("nowhere")]
    assert error_of(there) is None
    assert isinstance(error_of(out_of_range), UnknownTopicOrPartition)
    assert isinstance(error_of(elsewhere), UnknownTopicOrPartition)
    assert world.state(moved).leader_id == 2


def test_without_topics_all_partitions_are_asked_for(world: World) -> None:
    keys = all_moved_away(world, 2)
    results = world.elect()
    assert {result.name for result in results} == {topic.name for topic in world.image.topics.values()}
    assert [world.state(key).leader_id for key in keys] == [2, 2]


def test_by_itself_it_leads_again_at_the_next_check(world: World) -> None:
    key = moved_away(world)
    beat(world, IMBALANCE_CHECK_MS * 0.9)
    assert world.state(key).leader_id != 2
    beat(world, IMBALANCE_CHECK_MS * 0.2)
    assert world.state(key).leader_id == 2


def test_one_that_cannot_lead_is_left_alone_until_it_can(world: World) -> None:
    key = moved_away(world, rejoined=False)
    before = world.state(key)
    beat(world, IMBALANCE_CHECK_MS * 1.1)
    assert world.state(key) == before
    world.propose(key, [1, 2, 3])
    beat(world, IMBALANCE_CHECK_MS)
    assert world.state(key).leader_id == 2


def test_a_check_moves_a_bounded_number_of_leaders_in_one_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minilog_broker.controller.preferred.MAX_ELECTIONS", 2)
    keys = all_moved_away(world, 3)
    batches = len(world.batches)
    beat(world, IMBALANCE_CHECK_MS * 1.1, until=lambda: len(world.batches) > batches)
    assert sum(world.state(key).leader_id == 2 for key in keys) == 2
    assert len(world.batches) == batches + 1
    beat(world, 2_000)
    assert all(world.state(key).leader_id == 2 for key in keys)


def beat(world: World, by_ms: float, until: Callable[[], bool] = lambda: False) -> None:
    """Time passes, and every broker is heard."""
    end_ms = world.now_ms + by_ms
    while world.now_ms < end_ms and not until():
        world.advance(min(500.0, end_ms - world.now_ms))
        for broker_id in world.image.brokers:
            world.heartbeat(broker_id)
