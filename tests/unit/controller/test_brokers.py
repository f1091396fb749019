"""Lives of brokers: registration, fencing, damage, controlled shutdown (docs/spec/quorum.md § The controller)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    StaleBrokerEpoch,
)
from minilog_broker.controller.controller_effects import PartitionWaits, ProbeBroker, UncleanElection
from minilog_broker.controller.leaderless import LASTS_MS
from minilog_broker.replication.partition_state import NO_LEADER
from tests.rules import proves
from tests.unit.controller.cluster import (
    DEFAULTS,
    DOUBTFUL,
    SESSION_TIMEOUT_MS,
    WHOLE,
    ControllerCluster,
    error_of,
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


@proves("MD.39")
def test_a_new_life_is_fenced_until_it_has_replayed_its_own_registration(cluster: ControllerCluster) -> None:
    epoch = cluster.register(4).broker_epoch
    assert cluster.heartbeat(4, metadata_offset=epoch).fenced
    assert not cluster.heartbeat(4, metadata_offset=epoch + 1).fenced


@proves("MD.38")
def test_a_registration_ends_the_former_life_and_elects_under_a_higher_leader_epoch(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2)
    before = cluster.state(key)
    cluster.register(2, clean=cluster.epoch(2))
    after = cluster.state(key)
    assert after.leader_id != 2
    assert after.leader_epoch == before.leader_epoch + 1


@proves("MD.38")
def test_a_sole_replica_is_led_again_by_its_broker_in_a_new_epoch_and_a_new_life(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2, replicas=1)
    before = cluster.state(key)
    cluster.register(2, clean=cluster.epoch(2))
    assert cluster.state(key).leader_id == NO_LEADER
    cluster.heartbeat(2)
    after = cluster.state(key)
    assert (after.leader_id, after.leader_broker_epoch) == (2, cluster.epoch(2))
    assert after.leader_epoch > before.leader_epoch


@proves("MD.41")
def test_an_unclean_registration_leaves_every_isr_with_another_member_and_a_doubtful_copy_all_eligibility(
    cluster: ControllerCluster,
) -> None:
    key = cluster.created()
    cluster.restart(3)
    assert set(cluster.state(key).in_sync_replicas) == {1, 2}
    cluster.fence(2)
    assert set(cluster.state(key).eligible_leaders) == {2}
    cluster.register(2, found={key: DOUBTFUL})
    assert cluster.state(key).eligible_leaders == ()


@pytest.mark.parametrize("mark", ["older", "unknown"])
def test_a_mark_that_is_not_the_recorded_lifes_is_of_an_older_disk(cluster: ControllerCluster, mark: str) -> None:
    key = cluster.created()
    older = cluster.epoch(2)
    cluster.restart(2, clean=True)
    cluster.propose(key, [1, 2, 3])
    for broker_id in (3, 2):
        cluster.fence(broker_id)
    cluster.register(2, clean={"older": older - 1, "unknown": 10_000}[mark])
    assert 2 not in cluster.state(key).eligible_leaders


def test_a_clean_start_keeps_its_eligibility(cluster: ControllerCluster) -> None:
    key = cluster.created()
    cluster.fence(3)
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.state(key).in_sync_replicas == (1,)
    assert cluster.state(key).eligible_leaders == (2,)
    cluster.start(2, clean=cluster.epoch(2))
    state = cluster.state(key)
    assert (state.leader_id, state.in_sync_replicas) == (2, (2,))
    assert state.eligible_leaders == (1,)


@pytest.mark.parametrize("by_another", [False, True])
def test_a_registration_sent_again_its_answer_lost_is_as_clean_as_the_first(
    cluster: ControllerCluster, by_another: bool
) -> None:
    """Also at another controller: found by the simulator, as the only copy of a partition that was damaged for good."""
    key = cluster.created()
    for broker_id in (3, 2, 1):
        cluster.fence(broker_id)
    mark = cluster.epoch(2)
    cluster.register(2, clean=mark)
    if by_another:
        cluster.fail_over()
    cluster.register(2, clean=mark)
    assert cluster.state(key).eligible_leaders == (2,)


def test_a_mark_is_over_when_the_life_that_came_with_it_was_let_in(cluster: ControllerCluster) -> None:
    key = cluster.created()
    mark = cluster.epoch(2)
    cluster.start(2, clean=mark)
    cluster.propose(key, [1, 2, 3])
    for broker_id in (3, 2):
        cluster.fence(broker_id)
    assert cluster.state(key).eligible_leaders == (2,)
    cluster.register(2, clean=mark)
    assert cluster.state(key).eligible_leaders == (), "it has written since: the disk is an older one"


@proves("MD.41")
def test_the_only_member_stays_after_an_unclean_start_and_leads_under_fsync(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2, replicas=1)
    cluster.restart(2, boot="another boot")
    assert (cluster.state(key).leader_id, cluster.state(key).in_sync_replicas) == (2, (2,))


@proves("MD.41")
def test_the_only_member_whose_copy_is_doubtful_waits_for_another_or_an_operator(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2, replicas=1)
    cluster.restart(2, found={key: DOUBTFUL})
    assert (cluster.state(key).in_sync_replicas, cluster.state(key).leader_id) == ((2,), NO_LEADER)


@proves("MD.41")
def test_what_the_broker_says_of_its_former_life_counts_and_not_the_settings_of_today() -> None:
    cluster = ControllerCluster(defaults=OS)
    cluster.start_all(3)
    key = led_by(cluster, 2, replicas=1)
    cluster.restart(2, found={key: WHOLE})
    assert cluster.state(key).leader_id == 2


@proves("MD.44")
def test_a_damaged_replica_is_taken_out_before_any_election(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2)
    cluster.register(2, clean=cluster.epoch(2), damaged=[key])
    state = cluster.state(key)
    assert 2 not in state.in_sync_replicas
    assert state.damaged_replicas == (2,)
    assert state.leader_id != 2


def test_a_damaged_replica_is_not_eligible_either(cluster: ControllerCluster) -> None:
    key = cluster.created()
    cluster.fence(3)
    cluster.fence(2)
    cluster.register(2, clean=cluster.epoch(2), damaged=[key])
    cluster.fence(1)
    cluster.heartbeat(2)
    assert cluster.state(key).leader_id == NO_LEADER
    assert cluster.state(key).in_sync_replicas == (1,)


def told_after(cluster: ControllerCluster, ms: float) -> list[PartitionWaits]:
    """The partitions that were told to have no leader, after so much time in which no broker says anything."""
    for _ in range(2):  # the first tick of a partition begins its time
        cluster.advance(ms)
    return [effect for effect in cluster.effects if isinstance(effect, PartitionWaits)]


@proves("MD.44")
def test_a_partition_whose_only_member_is_damaged_waits_loudly_for_another(cluster: ControllerCluster) -> None:
    key = cluster.created()
    for broker_id in (3, 2, 1):
        cluster.fence(broker_id)
    cluster.start(1, damaged=[key])
    state = cluster.state(key)
    assert (state.leader_id, state.in_sync_replicas, state.damaged_replicas) == (NO_LEADER, (1,), (1,))
    assert not [effect for effect in cluster.effects if isinstance(effect, PartitionWaits)]
    (waits,) = told_after(cluster, LASTS_MS)
    assert "brokers [1, 2] have all" in waits.reason
    assert told_after(cluster, 10 * LASTS_MS) == [waits], "once a state"
    cluster.start(2, clean=cluster.epoch(2))
    assert cluster.state(key).leader_id == 2
    assert cluster.state(key).in_sync_replicas == (2,)
    assert cluster.state(key).eligible_leaders == ()


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


def test_a_partition_that_has_a_leader_again_soon_is_not_told(cluster: ControllerCluster) -> None:
    """Once: an error with the advice to accept a loss came 219 times a run, within 0.1 s of a controller's change."""
    key = cluster.created()
    for broker_id in (3, 2, 1):
        cluster.fence(broker_id)
    assert cluster.state(key).leader_id == NO_LEADER
    assert told_after(cluster, LASTS_MS / 2) == []
    cluster.start(1, clean=cluster.epoch(1))
    assert cluster.state(key).leader_id == 1
    for _ in range(10):
        cluster.heartbeat(1)
        assert told_after(cluster, SESSION_TIMEOUT_MS / 4) == []


def test_a_new_controller_tells_what_it_finds_without_a_leader(cluster: ControllerCluster) -> None:
    cluster.created("plain")
    for broker_id in (3, 2, 1):
        cluster.fence(broker_id)
    cluster.fail_over()
    assert [each.topic_name for each in told_after(cluster, LASTS_MS)] == ["plain"]


def test_a_damaged_replica_is_whole_again_when_it_has_joined_the_isr(cluster: ControllerCluster) -> None:
    key = cluster.created()
    cluster.restart(3, damaged=[key])
    assert cluster.state(key).damaged_replicas == (3,)
    assert error_of(cluster.propose(key, [1, 2, 3])) is None
    assert cluster.state(key).damaged_replicas == ()
    assert set(cluster.state(key).in_sync_replicas) == {1, 2, 3}


@proves("MD.40")
def test_another_data_directory_under_the_same_id_is_refused_while_the_first_is_alive(
    cluster: ControllerCluster,
) -> None:
    before = list(cluster.records)
    refusal = cluster.register(2, disk=7)
    assert isinstance(error_of(refusal), DuplicateBrokerRegistration)
    assert refusal.broker_epoch == -1
    assert cluster.records == before


@proves("MD.40")
def test_a_fenced_broker_that_is_still_heard_holds_its_id(cluster: ControllerCluster) -> None:
    cluster.fence(2)
    cluster.heartbeat(2, metadata_offset=0)
    assert isinstance(error_of(cluster.register(2, disk=7)), DuplicateBrokerRegistration)
    cluster.now_ms += SESSION_TIMEOUT_MS
    assert error_of(cluster.register(2, disk=7)) is None


def test_one_that_is_dead_for_certain_leaves_its_id_to_another_data_directory_at_once(
    cluster: ControllerCluster,
) -> None:
    cluster.fence(2)  # its connections were refused
    assert error_of(cluster.register(2, disk=7)) is None


def test_a_broker_on_a_new_disk_has_lost_what_it_held(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2, replicas=1)
    cluster.fence(2)
    cluster.now_ms += SESSION_TIMEOUT_MS
    cluster.start(2, disk=7, clean=cluster.epoch(2))
    assert cluster.state(key).leader_id == NO_LEADER


@proves("MD.40")
def test_the_same_directory_replaces_the_old_life_at_once(cluster: ControllerCluster) -> None:
    former = cluster.epoch(2)
    assert error_of(cluster.register(2)) is None
    assert isinstance(error_of(cluster.heartbeat(2, epoch=former)), StaleBrokerEpoch)


@proves("MD.14")
def test_who_belongs_elsewhere_is_refused_in_one_sentence(cluster: ControllerCluster) -> None:
    assert isinstance(error_of(cluster.register(4, cluster_id="another")), InconsistentClusterId)
    assert isinstance(error_of(cluster.register(1, disk=9)), DuplicateBrokerRegistration)
    assert 4 not in cluster.image.brokers
    assert error_of(cluster.register(4, voters=(1, 2, 3))) is None, "the recorded voters count"


# -- fencing


def test_a_life_that_refuses_connections_and_is_heard_again_is_not_taken_for_dead_twice(
    cluster: ControllerCluster,
) -> None:
    cluster.fence(2)  # its connections were refused
    cluster.heartbeat(2)
    assert not cluster.image.brokers[2].fenced
    cluster.fence(2)
    assert not cluster.image.brokers[2].fenced
    cluster.start(2)
    cluster.fence(2)
    assert cluster.image.brokers[2].fenced, "of another life it is believed"


@proves("MD.36")
def test_silence_fences_after_the_session_timeout(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2)
    before = cluster.state(key).leader_epoch
    for _ in range(12):
        cluster.advance(300)
        cluster.heartbeat(1)
        cluster.heartbeat(3)
    assert cluster.image.brokers[2].fenced
    state = cluster.state(key)
    assert set(state.in_sync_replicas) == {1, 3}
    assert state.leader_id in (1, 3)
    assert state.leader_epoch == before + 1


def test_a_broker_that_is_heard_is_not_fenced(cluster: ControllerCluster) -> None:
    for _ in range(20):
        cluster.advance(300)
        for broker_id in (1, 2, 3):
            cluster.heartbeat(broker_id)
    assert not any(broker.fenced for broker in cluster.image.brokers.values())


@proves("MD.37")
def test_what_the_controller_stood_still_itself_is_nobody_elses_silence(cluster: ControllerCluster) -> None:
    cluster.now_ms += 60_000
    cluster.controller.tick(cluster.now_ms, cluster.wall_ms)
    cluster.commit()
    cluster.advance(SESSION_TIMEOUT_MS * 0.95)
    assert not any(broker.fenced for broker in cluster.image.brokers.values())
    cluster.advance(SESSION_TIMEOUT_MS / 5)
    assert all(broker.fenced for broker in cluster.image.brokers.values())


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


@proves("MD.37")
def test_a_new_controller_gives_everybody_a_full_period(cluster: ControllerCluster) -> None:
    cluster.now_ms += 10_000
    cluster.controller.deactivate(-1)
    cluster.controller.activate(2, cluster.image, cluster.image.end_offset, cluster.now_ms)
    cluster.advance(SESSION_TIMEOUT_MS - 1)
    assert not any(broker.fenced for broker in cluster.image.brokers.values())


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


@proves("MD.36")
def test_a_killed_process_is_fenced_at_once(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 2)
    cluster.controller.heartbeat_stream_broken(2, cluster.epoch(2), cluster.now_ms)
    cluster.commit()
    assert cluster.effects[-1] == ProbeBroker(2, cluster.epoch(2), "host2", 9092)
    assert cluster.state(key).leader_id == 2
    cluster.controller.broker_refused_connection(2, cluster.epoch(2), cluster.now_ms)
    cluster.commit()
    assert cluster.image.brokers[2].fenced
    assert cluster.state(key).leader_id != 2


@proves("MD.36")
def test_a_broker_heard_since_the_probe_is_not_fenced_by_it(cluster: ControllerCluster) -> None:
    cluster.controller.heartbeat_stream_broken(2, cluster.epoch(2), cluster.now_ms)
    cluster.heartbeat(2)
    cluster.controller.broker_refused_connection(2, cluster.epoch(2), cluster.now_ms)
    cluster.commit()
    assert not cluster.image.brokers[2].fenced


def test_the_broken_stream_of_a_former_life_says_nothing_of_this_one(cluster: ControllerCluster) -> None:
    former = cluster.epoch(2)
    cluster.start(2)
    cluster.controller.heartbeat_stream_broken(2, former, cluster.now_ms)
    cluster.commit()
    assert not any(isinstance(effect, ProbeBroker) for effect in cluster.effects)


def test_the_last_member_of_an_isr_stays_when_it_is_fenced_and_leads_again_when_it_is_back(
    cluster: ControllerCluster,
) -> None:
    key = cluster.created()
    for broker_id in (2, 3, 1):
        cluster.fence(broker_id)
    assert cluster.state(key).in_sync_replicas == (1,)
    assert cluster.state(key).leader_id == NO_LEADER
    cluster.heartbeat(1)
    assert cluster.state(key).leader_id == 1


@proves("MD.45")
def test_members_that_leave_below_min_stay_eligible_until_the_isr_is_back_at_min(cluster: ControllerCluster) -> None:
    key = led_by(cluster, 1)
    cluster.fence(3)
    assert cluster.state(key).eligible_leaders == ()
    cluster.fence(2)
    assert cluster.state(key).eligible_leaders == (2,)
    cluster.heartbeat(2)
    assert error_of(cluster.propose(key, [1, 2])) is None
    assert cluster.state(key).eligible_leaders == ()


@proves("MD.54")
def test_unclean_election_only_where_it_is_configured_and_counted(cluster: ControllerCluster) -> None:
    plain, unclean = cluster.created("plain"), cluster.created("any", unclean_leader_election_enable="true")
    for broker_id in (2, 3):
        cluster.restart(broker_id, found={plain: DOUBTFUL, unclean: DOUBTFUL})
    for broker_id in (2, 3):
        assert broker_id not in cluster.state(plain).eligible_leaders
    cluster.fence(1)
    assert cluster.state(plain).leader_id == NO_LEADER
    state = cluster.state(unclean)
    assert state.leader_id in (2, 3)
    assert state.in_sync_replicas == (state.leader_id,)
    assert cluster.controller.unclean_elections == 1
    assert [each.key for each in cluster.effects if isinstance(each, UncleanElection)] == [unclean]


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


def test_a_heartbeat_of_nobody_or_of_a_former_life_is_refused(cluster: ControllerCluster) -> None:
    assert isinstance(error_of(cluster.heartbeat(9, epoch=1)), BrokerIdNotRegistered)
    refusal = cluster.heartbeat(2, epoch=cluster.epoch(2) - 1)
    assert isinstance(error_of(refusal), StaleBrokerEpoch)
    assert refusal.fenced
