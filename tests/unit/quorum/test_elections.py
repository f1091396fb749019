"""Elections by hand: who is elected, how fast, what disturbs nobody (V20), and when a leader gives up (V21)."""

from __future__ import annotations

from functools import partial

import pytest

from minilog.errors import NotController
from minilog.v1 import common_pb2, peer_pb2
from minilog_broker.quorum.member import Role
from minilog_broker.quorum.node import QuorumNode
from minilog_broker.quorum.quorum_effects import VoteState
from tests.rules import proves
from tests.unit.quorum.cluster import TIMESTAMP_US, QuorumCluster, topic_record
from tests.unit.quorum.judges import Judges
from tests.unit.quorum.machine import QuorumMachine

THREE = (1, 2, 3)


def quorum(voters: tuple[int, ...] = THREE, seed: int = 0) -> tuple[QuorumCluster, QuorumMachine, list[QuorumMachine]]:
    """(the world, the leader, the other voters), an observer 8 beside."""
    cluster = QuorumCluster(seed, voters)
    Judges(cluster)
    cluster.start(*voters, 8)
    cluster.run(1_000)
    (leader,) = cluster.leaders()
    return cluster, leader, [cluster.machine(each) for each in voters if each != leader.node_id]


def is_active(cluster: QuorumCluster, *, besides: QuorumMachine) -> bool:
    return any(m.node is not None and m.node.is_active for m in cluster.leaders() if m is not besides)


@pytest.mark.parametrize("voters", [(1,), THREE, (1, 2, 3, 4, 5)])
def test_a_leader_is_elected_and_everybody_follows_it(voters: tuple[int, ...]) -> None:
    cluster, leader, others = quorum(voters)
    end = leader.append(topic_record("a"))
    cluster.run(50)
    for machine in cluster.running():
        assert machine.image.end_offset == end
        assert machine.node is not None
        assert machine.node.leader_id == leader.node_id
    assert [machine.node.role for machine in others if machine.node] == [Role.FOLLOWER] * len(others)
    assert cluster.node(8).role is Role.OBSERVER


@proves("MD.13")
@pytest.mark.parametrize("seed", range(10))
def test_a_killed_leader_is_followed_at_once(seed: int) -> None:
    cluster, leader, _ = quorum(seed=seed)
    leader.append(topic_record("a"))
    cluster.run(100)
    cluster.stop(leader.node_id)
    took_ms = cluster.run_until(lambda: is_active(cluster, besides=leader))
    assert took_ms < 250
    assert "a" in cluster.leader().image.topic_ids


@proves("MD.13")
@pytest.mark.parametrize("seed", range(5))
def test_a_hung_leader_is_noticed_after_the_fetch_timeout(seed: int) -> None:
    cluster, leader, _ = quorum(seed=seed)
    leader.pause(6_000)
    took_ms = cluster.run_until(lambda: is_active(cluster, besides=leader))
    assert 850 < took_ms < 2_000
    next_one = cluster.leader()
    epoch = next_one.node.epoch if next_one is not leader and next_one.node else -1
    cluster.run(8_000)  # it wakes, and is told
    assert leader.node is not None
    assert leader.node.role is Role.FOLLOWER
    assert leader.node.epoch == epoch


@proves("MD.9")
def test_a_follower_that_lost_its_own_stream_changes_nothing() -> None:
    cluster, leader, (lone, _) = quorum()
    assert leader.node is not None
    epoch = leader.node.epoch
    cluster.cut_off(lone.node_id, [leader.node_id])
    for stream in list(cluster.streams.values()):
        if stream.opener == lone.node_id:
            cluster.break_stream(stream)
    cluster.run(8_000)
    assert leader.node.is_active
    assert leader.node.epoch == epoch
    assert lone.node is not None
    assert lone.node.epoch == epoch
    cluster.cut.clear()
    end = leader.append(topic_record("a"))
    cluster.run(2_000)
    assert lone.image.end_offset == end


@proves("MD.9")
def test_a_voter_that_comes_back_after_a_long_absence_changes_nothing() -> None:
    cluster, leader, (lone, _) = quorum()
    assert leader.node is not None
    epoch = leader.node.epoch
    cluster.cut_off(lone.node_id)
    cluster.run(8_000)
    cluster.cut.clear()
    cluster.run(3_000)
    assert leader.node.is_active
    assert leader.node.epoch == epoch
    assert lone.node is not None
    assert lone.node.role is Role.FOLLOWER


@proves("MD.12")
def test_a_leader_that_hears_no_majority_answers_nothing_after_its_time_out() -> None:
    cluster, leader, _ = quorum()
    cluster.cut_off(leader.node_id)
    cluster.run(900)
    assert leader.node is not None
    assert leader.node.is_active
    cluster.run(300)
    assert not leader.node.is_leader
    with pytest.raises(NotController):
        leader.node.append_records([topic_record("late")], TIMESTAMP_US)
    assert leader.node.leader_id == -1


@proves("MD.35")
def test_a_leader_that_stood_still_gives_everybody_a_full_period() -> None:
    cluster, leader, others = quorum()
    for machine in (leader, *others):
        machine.pause(30_000)
    cluster.run(30_500)
    assert leader.node is not None
    assert leader.node.is_active


def stalling(cluster: QuorumCluster, machine: QuorumMachine, *, until: float) -> None:
    """Its loop is late by 400 ms in every second."""
    while cluster.now_ms < until:
        machine.pause(400)
        cluster.run(1_000)


@proves("MD.37")
def test_a_leader_that_is_late_now_and_then_resigns_where_it_hears_no_majority() -> None:
    cluster, leader, others = quorum()
    cluster.stop(*(machine.node_id for machine in others))
    stalling(cluster, leader, until=cluster.now_ms + 10_000)
    assert leader.node is not None
    assert not leader.node.is_leader


def test_a_voter_that_is_late_now_and_then_stands_where_it_hears_no_leader() -> None:
    cluster, leader, others = quorum()
    leader.pause(60_000)
    cluster.stop(others[0].node_id)
    stalling(cluster, others[1], until=cluster.now_ms + 10_000)
    assert others[1].node is not None
    assert others[1].node.role is not Role.FOLLOWER


def test_messages_from_before_a_stand_still_are_no_sign_of_a_majority_now() -> None:
    """Else one that was deposed meanwhile stands above its follower, and deposes it (found by the simulator)."""
    cluster, leader, others = quorum()
    assert leader.node is not None
    heard = leader.node._transitions.leader
    assert heard is not None
    key = next(voter.key for voter in leader.node.voters if voter.broker_id == others[0].node_id)
    now_ms = cluster.now_ms
    heard.voters.excuse(1_000.0, now_ms)
    heard.voters.hear(key, now_ms + 1.0)
    assert not heard.voters.hears_majority(now_ms + 2.0)
    heard.voters.hear(key, now_ms + 1_001.0)
    assert heard.voters.hears_majority(now_ms + 1_002.0)


@proves("MD.12")
def test_a_majority_that_is_gone_stops_all_and_comes_back() -> None:
    cluster, _, others = quorum()
    cluster.stop(*(machine.node_id for machine in others))
    cluster.run(3_000)
    assert cluster.leaders() == []
    cluster.start(others[0].node_id)
    cluster.run(2_000)
    assert len(cluster.leaders()) == 1


@proves("MD.9", "MD.19")
def test_a_voter_stuck_in_a_later_epoch_comes_back_and_the_leader_stays() -> None:
    cluster, leader, (stuck, _) = quorum()
    assert leader.node is not None
    cluster.stop(stuck.node_id)
    stuck.write_vote(VoteState(leader.node.epoch + 7, stuck.node_id))  # it stood, and nobody heard of it
    cluster.start(stuck.node_id)
    cluster.run(2_000)
    assert leader.node.is_active
    assert stuck.node is not None
    assert stuck.node.leader_id == leader.node_id
    assert stuck.node.epoch == leader.node.epoch > 7


@proves("MD.5")
def test_a_voter_whose_log_is_behind_is_not_elected() -> None:
    cluster, leader, (behind, other) = quorum()
    cluster.stop(behind.node_id)
    leader.append(topic_record("a"))
    cluster.run(100)
    cluster.stop(leader.node_id)
    cluster.start(behind.node_id)
    cluster.run(3_000)
    assert cluster.leaders() == [other]
    assert "a" in behind.image.topic_ids


@proves("MD.5")
def test_uncommitted_entries_are_truncated_and_the_leader_serves_the_rest() -> None:
    cluster, leader, others = quorum()
    cluster.cut_off(leader.node_id)
    leader.append(topic_record("lost"))
    cluster.run(3_000)
    (new,) = cluster.leaders()
    new.append(topic_record("kept"))
    cluster.run(100)
    cluster.cut.clear()
    cluster.run(3_000)
    images = [machine.image for machine in (leader, *others)]
    assert all("kept" in image.topic_ids and "lost" not in image.topic_ids for image in images)
    assert leader.log.read(0, 1 << 20) == new.log.read(0, 1 << 20)


def test_an_observer_is_told_by_the_others_who_leads() -> None:
    cluster, leader, others = quorum()
    cluster.stop(8)
    cluster.start(8)
    observer = cluster.node(8)
    cluster.run_until(lambda: observer.leader_id == leader.node_id, within_ms=500)
    cluster.stop(leader.node_id)
    cluster.run_until(lambda: observer.leader_id in [machine.node_id for machine in others], within_ms=1_500)


def test_an_observer_that_does_not_know_the_leader_as_a_voter_is_told_its_address() -> None:
    """Found by real brokers: it was told who leads, could not ask that one, and waited in silence for ever."""
    cluster, leader, others = quorum()
    observer = cluster.machine(9)
    observer.voters = (others[0].node_id,)
    cluster.start(9)
    cluster.run(2_000)
    assert observer.node is not None
    assert observer.node.leader_id == leader.node_id
    assert observer.image == leader.image


def told(
    begin: peer_pb2.BeginQuorumEpochRequest, answers: list[peer_pb2.BeginQuorumEpochResponse], node: QuorumNode
) -> None:
    answers.append(node.begin_quorum_epoch(begin, 0.0))


@proves("MD.18")
def test_whom_a_voter_has_voted_for_it_follows_without_asking_and_nobody_else() -> None:
    cluster, leader, others = quorum()
    chosen = next(each for each in others if each.read_vote().voted_for == leader.node_id)
    third = next(each for each in others if each is not chosen)
    for said, code in ((third, common_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH), (leader, common_pb2.ERROR_CODE_NONE)):
        begin = peer_pb2.BeginQuorumEpochRequest(
            cluster_id=chosen.cluster_id or "", leader_id=said.node_id, voter_id=chosen.node_id
        )
        begin.epoch = chosen.read_vote().epoch
        cluster.stop(chosen.node_id)
        cluster.cut_off(chosen.node_id)
        cluster.start(chosen.node_id)
        node = cluster.node(chosen.node_id)
        answers: list[peer_pb2.BeginQuorumEpochResponse] = []
        chosen.event(partial(told, begin, answers))
        assert answers[0].error.code == code
        assert node.leader_id == (leader.node_id if said is leader else -1)


@proves("MD.9")
@pytest.mark.parametrize("seed", range(10))
def test_a_leader_that_lives_stays_though_all_its_streams_break(seed: int) -> None:
    cluster, leader, others = quorum(seed=seed)
    assert leader.node is not None
    epoch = leader.node.epoch
    for stream in list(cluster.streams.values()):
        cluster.break_stream(stream)
    cluster.run(2_000)
    assert leader.node.is_active
    assert [machine.node.epoch for machine in (leader, *others) if machine.node] == [epoch] * 3


def test_a_leader_whose_disk_does_not_answer_leads_no_more() -> None:
    cluster = QuorumCluster(voters=(1, 2, 3))
    cluster.start(1, 2, 3)
    cluster.run_until(lambda: bool(cluster.leaders()))
    leader, epoch = cluster.leader(), cluster.leader().node.epoch  # type: ignore[union-attr]
    leader.event(lambda node: node.disk_stalled(cluster.now_ms))
    assert cluster.leaders() == []
    cluster.run_until(lambda: bool(cluster.leaders()))
    assert cluster.node(cluster.leader().node_id).epoch > epoch


def test_a_voter_that_is_alone_leads_on_whatever_its_disk_does() -> None:
    cluster = QuorumCluster()
    cluster.start(1)
    cluster.run_until(lambda: cluster.node(1).is_active)
    cluster.machine(1).event(lambda node: node.disk_stalled(cluster.now_ms))
    assert cluster.node(1).is_active
