"""Controlled shutdown, and replicas whose disk failed: leadership moves to who can lead.

The rules: docs/spec/quorum.md § The controller.
"""

from __future__ import annotations

import pytest

from minilog_broker.controller.controller_effects import ProbeBroker
from minilog_broker.replication.partition_state import NO_LEADER
from tests.rules import proves
from tests.unit.controller.cluster import ControllerCluster, error_of, led_by

pytestmark = proves("MD.55")


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    return cluster


def test_a_controlled_shutdown_moves_leadership_and_then_says_that_it_may_stop(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2)
    response = cluster.heartbeat(2, wants_stop=True)
    assert response.should_stop
    state = cluster.state(key)
    assert state.leader_id in (1, 3)
    assert 2 not in state.in_sync_replicas
    assert cluster.image.brokers[2].stopping
    assert not cluster.image.brokers[2].fenced


@pytest.mark.parametrize("wants_stop", [True, False])
def test_the_end_of_a_broker_that_was_to_stop_is_no_death(cluster: ControllerCluster, wants_stop: bool) -> None:
    """The active controller, too, probes itself when it stops, and logged that it died."""
    cluster.heartbeat(2, wants_stop=wants_stop)
    cluster.controller.heartbeat_stream_broken(2, cluster.epoch(2), cluster.now_ms)
    cluster.commit()
    assert cluster.effects[-1] == ProbeBroker(2, cluster.epoch(2), "host2", 9092, is_stopping=wants_stop)


def test_what_nobody_else_can_lead_a_stopping_broker_leads_to_its_end(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2, replicas=1)
    assert cluster.heartbeat(2, wants_stop=True).should_stop
    assert cluster.state(key).leader_id == 2


def test_the_last_of_several_stopping_brokers_keeps_leading(cluster: ControllerCluster) -> None:
    key = cluster.created()
    for broker_id in (1, 2, 3):
        cluster.heartbeat(broker_id, wants_stop=True)
    state = cluster.state(key)
    assert state.leader_id in (1, 2, 3)
    assert state.in_sync_replicas == (state.leader_id,)


def test_a_joiner_takes_over_from_a_leader_that_is_stopping(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2)
    cluster.fence(1)
    cluster.fence(3)
    cluster.heartbeat(2, wants_stop=True)
    assert cluster.state(key).leader_id == 2
    cluster.heartbeat(3)
    if cluster.state(key).leader_id == 2:
        assert error_of(cluster.propose(key, [2, 3])) is None
    assert cluster.state(key).leader_id == 3


def test_a_broker_waits_to_stop_while_writes_would_stop_with_it_and_a_joiner_is_on_its_way(
    cluster: ControllerCluster,
) -> None:
    """Brokers are restarted in turn, and nobody waits until the one before is in its ISRs again."""
    key = led_by(cluster, 2)
    cluster.restart(1, clean=True)
    assert set(cluster.state(key).in_sync_replicas) == {2, 3}
    assert not cluster.heartbeat(2, wants_stop=True).should_stop
    assert cluster.state(key).leader_id == 3
    assert set(cluster.state(key).in_sync_replicas) == {2, 3}

    assert error_of(cluster.propose(key, [1, 2, 3])) is None
    assert cluster.heartbeat(2, wants_stop=True).should_stop
    assert set(cluster.state(key).in_sync_replicas) == {1, 3}


def test_it_waits_for_nobody_who_cannot_join(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2)
    cluster.fence(1)
    assert cluster.heartbeat(2, wants_stop=True).should_stop
    assert cluster.state(key).in_sync_replicas == (3,)


def test_all_brokers_that_stop_at_once_wait_for_nobody(cluster: ControllerCluster) -> None:
    cluster.created()
    assert [cluster.heartbeat(each, wants_stop=True).should_stop for each in (1, 2, 3)] == [True, True, True]


def test_a_joiner_that_dies_is_not_waited_for_any_longer(cluster: ControllerCluster) -> None:
    led_by(cluster, 2)
    cluster.restart(1, clean=True)
    assert not cluster.heartbeat(2, wants_stop=True).should_stop
    cluster.fence(1)
    assert cluster.heartbeat(2, wants_stop=True).should_stop


def test_a_stopping_broker_is_not_unfenced_and_gets_no_new_replicas(cluster: ControllerCluster) -> None:
    cluster.heartbeat(3, wants_stop=True)
    cluster.fence(3)
    assert cluster.heartbeat(3).fenced
    key = cluster.created(replication_factor=2)
    assert 3 not in cluster.state(key).replicas


@proves("MD.58")
def test_a_replica_whose_disk_failed_leaves_the_isr_and_its_partition_is_led_by_another(
    cluster: ControllerCluster,
) -> None:
    key, other = led_by(cluster, 2), led_by(cluster, 2)
    cluster.heartbeat(2, offline=[key])
    assert 2 not in cluster.state(key).in_sync_replicas
    assert cluster.state(key).leader_id != 2
    assert cluster.state(other).leader_id == 2
    records = len(cluster.records)
    cluster.heartbeat(2, offline=[key])
    assert len(cluster.records) == records


@proves("MD.58")
def test_a_copy_behind_an_io_error_is_eligible_and_leads_when_a_later_life_finds_it_whole(
    cluster: ControllerCluster,
) -> None:
    """The other replica's disk was emptied meanwhile: it was alone in the ISR, and can lead no more."""
    key = led_by(cluster, 2, replicas=2)
    (other,) = set(cluster.state(key).replicas) - {2}
    cluster.heartbeat(2, offline=[key])
    assert cluster.state(key).eligible_leaders == (2,)
    cluster.restart(other, damaged=[key])
    assert cluster.state(key).leader_id == NO_LEADER  # the error lies in this life still
    cluster.restart(2, clean=False)
    assert cluster.state(key).leader_id == 2


def test_a_copy_behind_an_io_error_is_not_eligible_any_more_when_a_later_life_finds_it_damaged(
    cluster: ControllerCluster,
) -> None:
    key = led_by(cluster, 2, replicas=2)
    cluster.heartbeat(2, offline=[key])
    cluster.restart(2, damaged=[key])
    state = cluster.state(key)
    assert (state.eligible_leaders, state.damaged_replicas) == ((), (2,))


@proves("SE.21")
def test_a_replica_found_damaged_cannot_be_elected_until_it_is_in_the_isr_again(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2)
    cluster.heartbeat(2, damaged=[key])
    state = cluster.state(key)
    assert 2 not in state.in_sync_replicas
    assert state.leader_id != 2
    assert state.damaged_replicas == (2,)
    cluster.heartbeat(2)  # it was cut where the damage begins, and is fetched again
    assert cluster.state(key) == state


def test_the_only_member_found_damaged_leads_no_more_however_it_comes_back(cluster: ControllerCluster) -> None:
    """It may lack acknowledged records: people decide (docs/spec/replication.md § Eligible leaders and damage)."""
    key = led_by(cluster, 2, replicas=1)
    cluster.heartbeat(2, damaged=[key])
    cluster.heartbeat(2)
    assert cluster.state(key).leader_id == NO_LEADER
    cluster.restart(2)
    assert cluster.state(key).leader_id == NO_LEADER


def test_the_only_member_whose_disk_failed_leads_again_in_its_next_life(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2, replicas=1)
    cluster.heartbeat(2, offline=[key])
    assert cluster.state(key).leader_id == NO_LEADER
    assert cluster.state(key).in_sync_replicas == (2,)
    cluster.restart(2)
    assert cluster.state(key).leader_id == 2
