"""Controlled shutdown, and replicas whose disk failed: leadership moves to who can lead.

The rules: docs/spec/quorum.md § The controller.
"""

from __future__ import annotations

import pytest

from minilog_broker.replication.state import NO_LEADER
from tests.unit.controller.world import World, error_of, led_by


@pytest.fixture
def world() -> World:
    world = World()
    world.start_all(3)
    return world


def test_a_controlled_shutdown_moves_leadership_and_then_says_that_it_may_stop(world: World) -> None:
    key = led_by(world, 2)
    response = world.heartbeat(2, wants_stop=True)
    assert response.should_stop
    state = world.state(key)
    assert state.leader_id in (1, 3)
    assert 2 not in state.in_sync_replicas
    assert world.image.brokers[2].stopping
    assert not world.image.brokers[2].fenced


def test_what_nobody_else_can_lead_a_stopping_broker_leads_to_its_end(world: World) -> None:
    key = led_by(world, 2, replicas=1)
    assert world.heartbeat(2, wants_stop=True).should_stop
    assert world.state(key).leader_id == 2


def test_the_last_of_several_stopping_brokers_keeps_leading(world: World) -> None:
    key = world.created()
    for broker_id in (1, 2, 3):
        world.heartbeat(broker_id, wants_stop=True)
    state = world.state(key)
    assert state.leader_id in (1, 2, 3)
    assert state.in_sync_replicas == (state.leader_id,)


def test_a_joiner_takes_over_from_a_leader_that_is_stopping(world: World) -> None:
    key = led_by(world, 2)
    world.fence(1)
    world.fence(3)
    world.heartbeat(2, wants_stop=True)
    assert world.state(key).leader_id == 2
    world.heartbeat(3)
    if world.state(key).leader_id == 2:
        assert error_of(world.propose(key, [2, 3])) is None
    assert world.state(key).leader_id == 3


def test_a_broker_waits_to_stop_while_writes_would_stop_with_it_and_a_joiner_is_on_its_way(world: World) -> None:
    """Brokers are restarted in turn, and nobody waits until the one before is in its ISRs again."""
    key = led_by(world, 2)
    world.restart(1, clean=True)
    assert set(world.state(key).in_sync_replicas) == {2, 3}
    assert not world.heartbeat(2, wants_stop=True).should_stop
    assert world.state(key).leader_id == 3
    assert set(world.state(key).in_sync_replicas) == {2, 3}

    assert error_of(world.propose(key, [1, 2, 3])) is None
    assert world.heartbeat(2, wants_stop=True).should_stop
    assert set(world.state(key).in_sync_replicas) == {1, 3}


def test_it_waits_for_nobody_who_cannot_join(world: World) -> None:
    key = led_by(world, 2)
    world.fence(1)
    assert world.heartbeat(2, wants_stop=True).should_stop
    assert world.state(key).in_sync_replicas == (3,)


def test_all_brokers_that_stop_at_once_wait_for_nobody(world: World) -> None:
    world.created()
    assert [world.heartbeat(each, wants_stop=True).should_stop for each in (1, 2, 3)] == [True, True, True]


def test_a_joiner_that_dies_is_not_waited_for_any_longer(world: World) -> None:
    led_by(world, 2)
    world.restart(1, clean=True)
    assert not world.heartbeat(2, wants_stop=True).should_stop
    world.fence(1)
    assert world.heartbeat(2, wants_stop=True).should_stop


def test_a_stopping_broker_is_not_unfenced_and_gets_no_new_replicas(world: World) -> None:
    world.heartbeat(3, wants_stop=True)
    world.fence(3)
    assert world.heartbeat(3).fenced
    key = world.created(replication_factor=2)
    assert 3 not in world.state(key).replicas


def test_a_replica_whose_disk_failed_leaves_the_isr_and_its_partition_is_led_by_another(world: World) -> None:
    key, other = led_by(world, 2), led_by(world, 2)
    world.heartbeat(2, offline=[key])
    assert 2 not in world.state(key).in_sync_replicas
    assert world.state(key).leader_id != 2
    assert world.state(other).leader_id == 2
    records = len(world.records)
    world.heartbeat(2, offline=[key])
    assert len(world.records) == records


def test_a_replica_found_damaged_cannot_be_elected_until_it_is_in_the_isr_again(world: World) -> None:
    key = led_by(world, 2)
    world.heartbeat(2, damaged=[key])
    state = world.state(key)
    assert 2 not in state.in_sync_replicas
    assert state.leader_id != 2
    assert state.damaged_replicas == (2,)
    world.heartbeat(2)  # it was cut where the damage begins, and is fetched again
    assert world.state(key) == state


def test_the_only_member_found_damaged_leads_no_more_however_it_comes_back(world: World) -> None:
    """It may lack acknowledged records: people decide (docs/spec/replication.md § Eligible leaders and damage)."""
    key = led_by(world, 2, replicas=1)
    world.heartbeat(2, damaged=[key])
    world.heartbeat(2)
    assert world.state(key).leader_id == NO_LEADER
    world.restart(2)
    assert world.state(key).leader_id == NO_LEADER


def test_the_only_member_whose_disk_failed_leads_again_in_its_next_life(world: World) -> None:
    key = led_by(world, 2, replicas=1)
    world.heartbeat(2, offline=[key])
    assert world.state(key).leader_id == NO_LEADER
    assert world.state(key).in_sync_replicas == (2,)
    world.restart(2)
    assert world.state(key).leader_id == 2
