"""Lives of brokers: registration, fencing, damage, controlled shutdown (docs/spec/quorum.md § The controller)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog_broker.controller.controller_effects import PartitionWaits, UncleanElection
from minilog_broker.controller.leaderless import LASTS_MS
from minilog_broker.replication.partition_state import NO_LEADER
from tests.rules import proves
from tests.unit.controller.cluster import (
    DEFAULTS,
    DOUBTFUL,
    SESSION_TIMEOUT_MS,
    WHOLE,
    ControllerCluster,
    led_by,
)

OS = replace(DEFAULTS, flush_on_append=False)


@pytest.fixture
def cluster() -> ControllerCluster:
    cluster = ControllerCluster()
    cluster.start_all(3)
    return cluster


# -- registration


def test_the_broker_epoch_is_the_offset_of_the_registration(cluster: ControllerCluster) -> None:
    end = len(cluster.records)
    response = cluster.register(4)
    assert response.broker_epoch == end == cluster.epoch(4)
    assert response.committed_end_offset == end + 1
    assert response.cluster_id == "the-cluster"


@proves("MD.41")
def test_the_report_of_a_former_life_counts_and_not_the_settings_of_today() -> None:
    cluster = ControllerCluster(defaults=OS)
    cluster.start_all(3)
    key = led_by(cluster, 2, replicas=1)
    cluster.restart(2, found={key: WHOLE})
    assert cluster.state(key).leader_id == 2


def told_after(cluster: ControllerCluster, ms: float) -> list[PartitionWaits]:
    """The partitions that were told to have no leader, after so much time in which no broker says anything."""
    for _ in range(2):  # the first tick of a partition begins its time
        cluster.advance(ms)
    return [effect for effect in cluster.effects if isinstance(effect, PartitionWaits)]


def test_a_deposed_controller_tells_nothing_of_decisions_that_were_never_committed(cluster: ControllerCluster) -> None:
    """Once: one that was cut off fenced all others; its log had an error for each partition, which advised to accept
    losses."""
    plain, unclean = cluster.created("plain"), cluster.created("any", unclean_leader_election_enable="true")
    for broker_id in (2, 3):
        cluster.restart(broker_id, found={plain: DOUBTFUL, unclean: DOUBTFUL})
    cluster.controller.heartbeat_stream_broken(1, cluster.epoch(1), cluster.now_ms)
    cluster.controller.broker_refused_connection(1, cluster.epoch(1), cluster.now_ms)
    assert cluster.controller.image is not None
    assert cluster.controller.image.partitions[plain].leader_id == NO_LEADER, "it has decided"
    cluster.fail_over()
    assert told_after(cluster, 0.0) == []
    assert not [each for each in cluster.effects if isinstance(each, UncleanElection)]
    cluster.fence(1)
    told = [each.topic_name for each in told_after(cluster, LASTS_MS)]
    assert told == ["plain", "any"], "what is committed is told: in the end no broker was heard"
    assert [each.topic_name for each in cluster.effects if isinstance(each, UncleanElection)] == ["any"]


# -- fencing


@proves("MD.37")
def test_a_controller_that_is_late_now_and_then_fences_who_is_silent(cluster: ControllerCluster) -> None:
    began_ms, stall_ms = cluster.now_ms, SESSION_TIMEOUT_MS * 0.3
    while not cluster.image.brokers[3].fenced and cluster.now_ms < began_ms + 10 * SESSION_TIMEOUT_MS:
        cluster.advance(SESSION_TIMEOUT_MS / 5)
        cluster.now_ms = cluster.controller.next_tick_ms + stall_ms
        cluster.heartbeat(1)
        cluster.heartbeat(2)
        cluster.controller.tick(cluster.now_ms, cluster.wall_ms)
        cluster.commit()
    assert [broker.broker_id for broker in cluster.image.brokers.values() if broker.fenced] == [3]
    assert cluster.now_ms - began_ms < 4 * SESSION_TIMEOUT_MS, "of each period it slept three fifths"


def test_the_controller_before_was_silent_already_by_a_third_of_its_time_out_at_most(
    cluster: ControllerCluster,
) -> None:
    cluster.controller.deactivate(-1)
    image, now_ms = cluster.image, cluster.now_ms
    cluster.controller.activate(2, image, image.end_offset, now_ms, lost_controller=(2, 10 * SESSION_TIMEOUT_MS))
    cluster.advance(SESSION_TIMEOUT_MS * 2 / 3 - 1)
    assert not any(broker.fenced for broker in cluster.image.brokers.values())
    cluster.advance(SESSION_TIMEOUT_MS * 0.1)
    cluster.commit()
    assert [broker.broker_id for broker in cluster.image.brokers.values() if broker.fenced] == [2]


@proves("ISR.13")
def test_a_heartbeat_is_answered_with_how_long_a_session_is_and_what_was_decided_by_then(
    cluster: ControllerCluster,
) -> None:
    """Broker 1 lives beside the controller: a successor fences it when two thirds are over (liveness.silent_before)."""
    cluster.created("t")
    answers = {broker_id: cluster.heartbeat(broker_id) for broker_id in (1, 2)}
    timeouts = {broker_id: answer.session_timeout_ms for broker_id, answer in answers.items()}
    assert timeouts == {1: SESSION_TIMEOUT_MS * 2 / 3, 2: SESSION_TIMEOUT_MS}
    assert answers[2].committed_end_offset == cluster.image.end_offset
