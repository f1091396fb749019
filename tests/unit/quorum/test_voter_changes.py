"""Voters are added, removed and moved: who counts from when on, who may vote, and who finds whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from minilog_broker.controller.cluster_records import voters_record
from minilog_broker.quorum.member import Role
from minilog_broker.quorum.voting import vote_request
from tests.rules import mutated, proves
from tests.rules.table import QUORUM
from tests.unit.quorum.cluster import QuorumCluster, topic_record
from tests.unit.quorum.judges import Judges
from tests.unit.quorum.machine import QuorumMachine, Ticket
from tests.unit.quorum.test_histories import PINNED
from tests.unit.quorum.test_voter_ahead import test_its_copy_counts_for_nothing_as_long_as_it_only_listens
from tests.unit.quorum.test_voters import test_a_replacement_needs_the_majority_before_it_too

pytestmark = proves("MD.15")


def started(voters: Iterable[int], others: Iterable[int] = (), seed: int = 0) -> QuorumCluster:
    cluster = QuorumCluster(seed, voters)
    Judges(cluster)
    cluster.start(*cluster.voters, *others)
    cluster.run(1_500)
    return cluster


def change(cluster: QuorumCluster, voters: Iterable[int], *, run_ms: float = 1_000) -> int:
    """The leader records these voters; the end of the entry."""
    machines = (cluster.machine(each) for each in sorted(voters))
    end = cluster.leader().append(voters_record(machine.voter() for machine in machines))
    cluster.run(run_ms)
    return end


def ask_for_vote(cluster: QuorumCluster, candidate: int, voter: int, epoch: int) -> None:
    """A candidate whose log names the voter asks for its vote."""
    machine, to = cluster.machine(candidate), cluster.machine(voter)
    assert machine.node is not None
    request = vote_request(machine.node._member, to.voter().key, epoch, pre_vote=False)
    to.event(lambda node: node.vote_request(Ticket(lambda answer: None, real=True), request, cluster.now_ms))
    cluster.run(50)


def recorded(machine: QuorumMachine) -> list[int]:
    assert machine.node is not None
    return [voter.broker_id for voter in machine.node.voters]


def role(machine: QuorumMachine) -> Role:
    assert machine.node is not None
    return machine.node.role


def test_a_voter_becomes_three_and_five_and_three_again() -> None:
    cluster = started((1,), (2, 3, 4, 5))
    for voters in ((1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5), (1, 2, 3, 4), (1, 2, 3)):
        end = change(cluster, voters)
        assert cluster.leader().image.end_offset >= end, f"{voters} is not committed"
        assert {recorded(machine) == list(voters) for machine in cluster.running()} == {True}
    assert [role(cluster.machine(each)) for each in (4, 5)] == [Role.OBSERVER] * 2
    cluster.stop(cluster.leader().node_id)
    cluster.run(3_000)
    (leader,) = cluster.leaders()
    end = leader.append(topic_record("a"))
    cluster.run(500)
    assert leader.image.end_offset == end, "two of three decide"


def test_an_added_voter_counts_for_what_is_committed() -> None:
    cluster = started((1, 2, 3), (4,))
    change(cluster, (1, 2, 3, 4))
    leader = cluster.leader()
    others = [each for each in (1, 2, 3) if each != leader.node_id]
    assert leader.node_id != 4
    cluster.stop(others[0])
    end = leader.append(topic_record("a"))
    cluster.run(300)
    assert leader.image.end_offset == end, "three of four have it"
    cluster.stop(4)
    leader.append(topic_record("b"))
    cluster.run(300)
    assert leader.image.end_offset == end, "two of four are no majority"


def test_a_leader_that_removes_itself_leads_until_that_is_committed_and_then_observes() -> None:
    cluster = started((1, 2, 3))
    former = cluster.leader()
    others = [each for each in (1, 2, 3) if each != former.node_id]
    cluster.stop(others[0])
    end = change(cluster, others, run_ms=300)
    assert former.image.end_offset < end, "one of the two that are left has it: its own copy does not count"
    assert role(former) is Role.LEADER
    cluster.start(others[0])
    cluster.run(3_000)
    assert role(former) is Role.OBSERVER
    (leader,) = cluster.leaders()
    assert leader.node_id in others
    assert former.image == leader.image
    assert former.image.end_offset >= end


def test_a_leader_that_removes_itself_and_writes_on_leaves_no_voter_behind() -> None:
    """What only the former leader has would keep its vote from the one voter that is left: that vote is not needed."""
    cluster = started((1, 2))
    former = cluster.leader()
    (other,) = (cluster.machine(each) for each in (1, 2) if each != former.node_id)
    end = change(cluster, [other.node_id], run_ms=0)
    cluster.run_until(lambda: other.log.durable_end_offset >= end)
    cluster.cut_off(other.node_id)
    former.append(topic_record("only the former leader has it"))
    cluster.run(2_500)
    cluster.cut.clear()
    cluster.run(5_000)
    assert role(other) is Role.LEADER
    assert former.image == other.image
    assert "only the former leader has it" not in other.image.topic_ids


def test_a_voter_whose_removal_nobody_else_has_stands_all_the_same() -> None:
    """Its log is longer than that of the other one, which needs its vote: one of the two has to lead (Raft 4.2.2)."""
    cluster = started((1, 2))
    former = cluster.leader()
    (other,) = (cluster.machine(each) for each in (1, 2) if each != former.node_id)
    cluster.cut_off(other.node_id)
    change(cluster, [other.node_id], run_ms=50)
    assert former.log.durable_end_offset > other.log.log_end_offset
    cluster.stop(former.node_id, power_loss=True)
    cluster.cut.clear()
    cluster.start(former.node_id)
    cluster.run(5_000)
    (leader,) = cluster.leaders()
    assert leader is other
    assert recorded(leader) == [other.node_id]
    assert role(former) is Role.OBSERVER


def test_a_new_voter_that_does_not_know_it_yet_votes_where_it_is_counted() -> None:
    cluster = started((1, 2, 3), (4,))
    leader = cluster.leader()
    knows, other = (each for each in (1, 2, 3) if each != leader.node_id)
    cluster.cut_off(4)
    cluster.cut_off(other)
    end = change(cluster, (1, 2, 3, 4), run_ms=100)
    assert cluster.machine(knows).log.durable_end_offset == end
    assert cluster.machine(4).log.log_end_offset < end
    cluster.stop(leader.node_id)
    cluster.cut.clear()
    cluster.run(5_000)
    (new,) = cluster.leaders()
    assert new.node_id == knows, "with the votes of the other voter and of the new one, which are both behind"
    assert recorded(cluster.machine(4)) == [1, 2, 3, 4]
    assert role(cluster.machine(4)) is Role.FOLLOWER


def test_a_voter_that_was_removed_and_comes_again_has_a_full_period_again() -> None:
    """Of the time before its removal nothing counts: neither its silence since, nor that it was heard."""
    cluster = started((1,), (2,))
    leader, key = cluster.leader(), cluster.machine(2).voter().key
    for voters in ((1, 2), (1,)):
        change(cluster, voters)
    cluster.run(5_000)
    assert leader.node is not None
    assert leader.node.hears_majority_of(frozenset((leader.voter().key, key)), cluster.now_ms)
    epoch = leader.node.epoch
    end = change(cluster, (1, 2), run_ms=3_000)
    assert cluster.leaders() == [leader]
    assert leader.node.epoch == epoch
    assert leader.image.end_offset >= end


def test_a_vote_of_an_observer_is_a_promise() -> None:
    """It goes on fetching from the leader it hears, and what it has of that counts for nothing (V11, V12)."""
    cluster = started((1, 2, 3), (4,))
    observer, leader, epoch = cluster.machine(4), cluster.leader(), cluster.node(4).epoch
    first, second = (each for each in (1, 2, 3) if each != leader.node_id)
    cluster.cut_off(4)
    cluster.run(2_500)
    ask_for_vote(cluster, first, 4, epoch + 1)
    assert observer.read_vote().voted_for == first
    assert role(observer) is Role.OBSERVER
    ask_for_vote(cluster, second, 4, epoch + 1)
    ask_for_vote(cluster, second, 4, epoch)
    assert observer.read_vote().voted_for == first, "one vote in an epoch, and none in an earlier one"
    cluster.cut.clear()
    cluster.run(1_000)
    assert observer.image == leader.image
    change(cluster, (1, 2, 3, 4))
    assert cluster.node(4).epoch > epoch, "it votes now, and goes back to no epoch before its vote"
    assert cluster.node(4).role is Role.FOLLOWER


def test_a_voter_that_was_away_while_all_others_changed_finds_the_leader() -> None:
    cluster = started((1, 2, 3), (4, 5))
    away = next(each for each in (1, 2, 3) if each != cluster.leader().node_id)
    cluster.stop(away)
    stay = sorted({1, 2, 3} - {away})
    for voters in (
        {1, 2, 3, 4},
        {1, 2, 3, 4, 5},
        {1, 2, 3, 4, 5} - {stay[0]},
        {away, 4, 5},
    ):
        end = change(cluster, voters, run_ms=3_000)
        assert cluster.leader().image.end_offset >= end
    assert cluster.leader().node_id in (4, 5)
    cluster.start(away)  # it was started with 1, 2 and 3, and its log knows no others
    cluster.run(3_000)
    assert role(cluster.machine(away)) is Role.FOLLOWER
    assert recorded(cluster.machine(away)) == sorted({away, 4, 5})
    assert cluster.machine(away).image == cluster.leader().image


def test_a_voter_that_missed_its_removal_observes_and_disturbs_nobody() -> None:
    cluster = started((1, 2, 3, 4, 5))
    leader = cluster.leader()
    away = next(each for each in (1, 2, 3, 4, 5) if each != leader.node_id)
    cluster.stop(away)
    change(cluster, {1, 2, 3, 4, 5} - {away})
    epoch = cluster.node(leader.node_id).epoch
    cluster.start(away)
    cluster.run(5_000)
    assert role(cluster.machine(away)) is Role.OBSERVER
    assert cluster.leaders() == [leader]
    assert cluster.node(leader.node_id).epoch == epoch


@pytest.mark.parametrize("seed", range(4))
def test_an_addition_that_is_cut_counts_no_more(seed: int) -> None:
    cluster = started((1, 2, 3), (4,), seed)
    leader = cluster.leader()
    others = [each for each in (1, 2, 3) if each != leader.node_id]
    cluster.cut_off(leader.node_id, others)
    cluster.cut_off(4, others)
    change(cluster, (1, 2, 3, 4), run_ms=3_000)
    assert recorded(cluster.machine(4)) == [1, 2, 3, 4]
    cluster.cut.clear()
    cluster.run(3_000)
    assert cluster.leader().node_id in others, "the former leader and the new voter are two of four"
    assert {recorded(machine) == [1, 2, 3] for machine in cluster.running()} == {True}
    assert role(cluster.machine(4)) is Role.OBSERVER


def test_a_voter_that_moved_is_found_where_the_log_records_it() -> None:
    cluster = started((1, 2, 3), (4,))
    moved = cluster.machine(next(each for each in (1, 2, 3) if each != cluster.leader().node_id))
    cluster.stop(moved.node_id)
    moved.host = "elsewhere"
    cluster.start(moved.node_id)
    cluster.run(1_000)
    assert role(moved) is Role.FOLLOWER, "it finds the others"
    change(cluster, (1, 2, 3))
    stopped = cluster.leader()
    cluster.stop(stopped.node_id)
    cluster.run(3_000)
    cluster.start(stopped.node_id)
    cluster.run(2_000)
    for machine in cluster.running():
        assert machine.node is not None
        if machine is not moved:
            assert machine.node.addresses(moved.node_id)[0] == ("elsewhere", 9092)
        assert machine.image == cluster.leader().image


def promised_to_another(seed: int) -> bool:
    """An observer votes for another leader, and hears the former one once more, which counts it by its own log.

    Always false: nothing is lost.
    """
    cluster = started((1, 2), (3,), seed)
    former = cluster.leader()
    (other,) = (cluster.machine(each) for each in (1, 2) if each != former.node_id)
    cluster.cut_off(3)
    change(cluster, (1, 2, 3), run_ms=1_500)
    for stream in list(cluster.streams.values()):
        cluster.break_stream(stream)
    cluster.cut = {(former.node_id, each) for each in (other.node_id, 3)}
    cluster.cut |= {(each, former.node_id) for each in (other.node_id, 3)}
    cluster.run_until(lambda: role(other) is Role.LEADER)
    cluster.cut_off(other.node_id)
    cluster.cut -= {(former.node_id, 3), (3, former.node_id)}
    for number in range(100):
        if cluster.node(former.node_id).is_active:
            former.append(topic_record(f"topic-{number}"))
        cluster.run(20)
    cluster.cut.clear()
    cluster.cut_off(former.node_id)
    cluster.run(4_000)
    cluster.cut.clear()
    cluster.run(4_000)
    assert len(cluster.leaders()) == 1
    assert {machine.image == cluster.leader().image for machine in cluster.running()} == {True}
    return False


@pytest.mark.parametrize("seed", range(6))
def test_a_vote_of_an_observer_holds_against_the_former_leader(seed: int) -> None:
    promised_to_another(seed)


SCENES: dict[str, Callable[[], object]] = {
    "31 a removed voter takes no part at once": test_a_voter_whose_removal_nobody_else_has_stands_all_the_same,
    "31 an observer votes for nobody": test_a_new_voter_that_does_not_know_it_yet_votes_where_it_is_counted,
    "31 the vote of an observer is forgotten": lambda: any(map(promised_to_another, range(6))),
    "31 replaced by its own majority": test_a_replacement_needs_the_majority_before_it_too,
    "V12 the copy of who only listens counts": lambda: test_its_copy_counts_for_nothing_as_long_as_it_only_listens(0),
    "31 only voters of the own log are asked": test_a_voter_that_was_away_while_all_others_changed_finds_the_leader,
}


def test_each_wrong_rule_is_looked_for() -> None:
    assert {*SCENES, *PINNED} == {*QUORUM}


@pytest.mark.parametrize("name", SCENES)
def test_a_wrong_rule_is_noticed(name: str) -> None:
    with mutated(QUORUM[name]), pytest.raises((AssertionError, ValueError)):
        SCENES[name]()
