"""Who was put out of the ISR: what counts of what it told, when it comes in again, and how long anybody waits for it.

Each wrong rule at the end is found by one of the tests: they are the histories that a search seldom meets.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

from minilog.errors import CorruptMessage, NotEnoughReplicas
from minilog.partition_key import PartitionKey
from minilog_broker.replication.leader.isr_state import IsrState
from minilog_broker.replication.leader.partition import LeaderPartition
from minilog_broker.replication.replica import Replica
from minilog_broker.replication.rules.in_sync import FollowerView, Progress
from minilog_broker.replication.settings import ReplicationSettings
from tests.rules import proves
from tests.unit.replication.cluster import KEY, TOPIC_ID, BrokerOfCores, Link, ReplicaCluster
from tests.unit.replication.mutants import who_lags_joins

pytestmark = proves("ISR.5")

LAG_MS = 10_000.0  # replica.lag.time.max.ms: the default


def isr(cluster: ReplicaCluster) -> list[int]:
    return sorted(cluster.controller.partitions[KEY].in_sync_replicas)


def written(cluster: ReplicaCluster, records: int = 3) -> ReplicaCluster:
    for _ in range(records):
        cluster.produce(1)
    cluster.settle()
    return cluster


def with_open_sessions() -> ReplicaCluster:
    """Another partition keeps the session of a follower open, whatever befalls its copy of this one."""
    cluster = ReplicaCluster()
    cluster.controller.create(PartitionKey(TOPIC_ID, 1), (1, 2, 3), 1)
    cluster.settle()
    return written(cluster)


def link_to_leader(cluster: ReplicaCluster, follower_id: int) -> Link:
    return next(link for link in cluster.links() if (link.follower_id, link.leader_id) == (follower_id, 1))


def cut_off(cluster: ReplicaCluster, follower_id: int) -> None:
    """From the leader, not from the controller."""
    cluster.cut.add((follower_id, 1))
    cluster.break_link(link_to_leader(cluster, follower_id))
    cluster.settle()


def rot(broker: BrokerOfCores) -> None:
    """A bit of the first batch flips, which is found."""
    broker.flip_bit(-1 - content_behind_first(broker))
    broker.manager.log_damaged(KEY, CorruptMessage("a bit has flipped"), broker.cluster.now_ms)
    broker.run()
    assert KEY in broker.offline


def content_behind_first(broker: BrokerOfCores) -> int:
    return sum(header.length for header in broker.headers()[1:])


def ends_in_sync(cluster: ReplicaCluster) -> set[int]:
    """Where the logs of the members of the ISR end."""
    return {cluster[member].ends()[2] for member in isr(cluster)}


# -- a copy that is cut within a life (V5, V7, V14)


def a_copy_that_was_cut_does_not_join_by_what_it_told_before() -> None:
    """Cut off from its leader; the controller hears it: put out, cut, and still known to the leader as complete."""
    cluster = written(ReplicaCluster())
    cut_off(cluster, 3)
    rot(cluster[3])
    cluster.controller.damage(3, KEY)
    cluster.settle()
    assert cluster[3].ends()[2] == 0, "it was cut"
    cluster.advance(2 * LAG_MS)
    assert isr(cluster) == [1, 2]
    written(cluster)
    assert ends_in_sync(cluster) == {6}
    cluster.cut.clear()
    cluster.advance(2_000)
    assert isr(cluster) == [1, 2, 3], "it joins by what it tells now"
    assert ends_in_sync(cluster) == {6}


def what_was_under_way_when_it_was_cut_does_not_take_it_in() -> None:
    """Its position and progress reach the leader when that has learned already that it is put out."""
    cluster = with_open_sessions()
    cluster.break_link(link_to_leader(cluster, 3))
    cluster.late.add((3, 1))
    cluster.advance(50)  # a new session: what it says is on its way
    link = link_to_leader(cluster, 3)
    assert link.up
    rot(cluster[3])
    cluster.controller.damage(3, KEY)
    cluster.settle()
    assert cluster[3].ends()[2] == 0
    assert isr(cluster) == [1, 2]
    assert link is link_to_leader(cluster, 3)
    while link.up and 3 not in isr(cluster):
        cluster.deliver_up(link)
        cluster.settle()
        assert ends_in_sync(cluster) == {3}
    cluster.late.clear()
    cluster.advance(2_000)
    assert isr(cluster) == [1, 2, 3]
    assert ends_in_sync(cluster) == {3}


def a_member_is_not_counted_by_what_was_told_before_its_copy_was_cut() -> None:
    """A session of before the cut that reaches the leader behind the one by which the follower joined."""
    cluster = written(ReplicaCluster())
    leader = cluster[1].leader()
    assert leader is not None
    cluster.break_link(link_to_leader(cluster, 3))
    cluster.late.add((3, 1))
    cluster.advance(50)
    former = [message for message in link_to_leader(cluster, 3).up if message.progress]
    assert former
    rot(cluster[3])
    cluster.controller.damage(3, KEY)
    cluster.break_link(link_to_leader(cluster, 3))
    cluster.late.clear()
    cluster.advance(2_000)
    assert isr(cluster) == [1, 2, 3]
    broker_epoch, session_id = cluster[3].broker_epoch, cluster.session_id()
    assert broker_epoch is not None
    cluster[1].manager.open_follower_session(session_id, 3, broker_epoch, cluster.now_ms)
    for message in former:
        message.progress[0].durable_end_offset = 2  # it was true then; what it has now is another matter
        cluster[1].manager.replicate_request(session_id, message, cluster.now_ms)
    assert leader.in_sync.views[3].durable_end != 2


def a_copy_that_is_damaged_already_is_cut_when_all_from_before_is_known_to_be_older() -> None:
    """It was damaged once and has all again: a proposal to take it in is under way when damage is found anew."""
    cluster = written(ReplicaCluster())
    cluster.controller.set_state(KEY, in_sync_replicas=(1, 2), damaged_replicas=(3,))
    cluster.settle(controller=False)
    assert cluster[1].proposals
    cluster.lose_proposal(cluster[1])
    rot(cluster[3])
    cluster.late.add((3, 1))
    cluster.settle(controller=False)
    assert cluster[3].ends()[2] == 3, "what it told would be taken for what it has"
    cluster.controller.damage(3, KEY)
    cluster.settle(controller=False)
    assert cluster[3].ends()[2] < 3
    cluster.decide_late_proposal(0)
    assert isr(cluster) == [1, 2]
    cluster.late.clear()
    cluster.advance(2_000)
    assert isr(cluster) == [1, 2, 3]


def told(durable_end: int) -> Progress:
    return Progress(durable_end, log_start=0, partition_epoch=0, takes_no_records=False, unsynced=False)


def a_shorter_end_told_in_the_same_life_is_no_longer_known_as_caught_up() -> None:
    view = FollowerView(2, accepted=True, wants_in=True)
    leader = ReplicaCluster()[1].leader()
    assert leader is not None
    marks = leader.in_sync.marks
    view.progressed(told(10), log_end=10, marks=marks, now_ms=100.0)
    view.progressed(told(4), log_end=10, marks=marks, now_ms=101.0)
    assert view.caught_up_ms(log_end=10, marks=marks, now_ms=102.0) < 0


# -- a follower that the leader does not hear


def one_dead_and_one_cut_off_from_the_leader_only(brokers: int) -> ReplicaCluster:
    """The ISR is {1, 2}; the leader, 1, does not hear 2, which hears the controller."""
    cluster = written(ReplicaCluster(brokers))
    if brokers == 3:
        cluster[3].crash()
        cluster.controller.fence(3)
        cluster.settle()
    cut_off(cluster, 2)
    return cluster


def who_is_not_heard_stays_out(brokers: int = 3) -> None:
    cluster = one_dead_and_one_cut_off_from_the_leader_only(brokers)
    before = cluster.controller.partitions[KEY].partition_epoch
    tickets = []
    for _ in range(300):
        tickets.append(cluster.produce(1, timeout_ms=1e9))
        cluster.advance(200)
    answers = Counter(type(cluster[1].answers[ticket].error) for ticket in tickets)
    assert isr(cluster) == [1]
    assert cluster.controller.partitions[KEY].partition_epoch == before + 1, "out, once and for good"
    assert answers[NotEnoughReplicas] > 240, f"refused before anything is written: {answers}"
    cluster.cut.clear()
    cluster.advance(3_000)
    assert isr(cluster) == [1, 2]


# -- a loop of the leader's own that is late now and then


def a_late_loop_puts_a_hung_follower_out(every_ms: float = 8_000.0) -> None:
    cluster = written(ReplicaCluster())
    cut_off(cluster, 2)
    began_ms = stalled_ms = cluster.now_ms
    while cluster.now_ms < began_ms + 2 * LAG_MS and 2 in isr(cluster):
        cluster.produce(1, timeout_ms=1e9)
        cluster.advance(500)
        if cluster.now_ms - stalled_ms >= every_ms:
            stalled_ms = cluster.now_ms = max(cluster.now_ms, cluster[1].manager.next_tick_ms()) + 130.0
            cluster.tick()
            cluster.settle()
    assert isr(cluster) == [1, 3]
    assert cluster.now_ms - began_ms < LAG_MS + 2_000
    assert cluster[1].ends()[0] == cluster[1].ends()[2]


# -- who reports that its disk fails, or is full


def ticket_behind_a_failure(cluster: ReplicaCluster, error: OSError) -> int:
    """A record that 3 cannot write; the controller is told, and takes it out of the ISR."""
    broker = cluster[3]
    with patch.object(type(broker.logs[KEY]), "append", failing(broker, error)):
        ticket = cluster.produce(1)
        cluster.settle()
    assert ticket not in cluster[1].answers, "a member of the ISR lacks it"
    cluster.controller.set_state(KEY, in_sync_replicas=(1, 2))
    return ticket


def failing(broker: BrokerOfCores, error: OSError) -> Callable[..., None]:
    append, log = type(broker.logs[KEY]).append, broker.logs[KEY]

    def fail(self: Any, batches: Any) -> None:
        if self is log:
            raise error
        append(self, batches)

    return fail


def nobody_waits_for_a_replica_whose_disk_failed() -> None:
    cluster = written(ReplicaCluster())
    ticket = ticket_behind_a_failure(cluster, OSError(errno.EIO, "I/O error"))
    cluster.settle()
    assert cluster[1].answers[ticket].error is None


def who_found_no_space_and_has_nothing_to_append_comes_back_when_there_is_space() -> None:
    """Found by the simulator: below min nothing is written, and so no append could show that there is space again."""
    cluster = written(ReplicaCluster())
    cluster.controller.set_state(KEY, in_sync_replicas=(1, 2))
    cluster[3].manager.log_failed(KEY, OSError(errno.ENOSPC, "no space left"), cluster.now_ms)  # of its log start
    cluster.settle()
    cluster.advance(3_000)
    assert isr(cluster) == [1, 2]
    cluster[3].manager.disk_looked_at(answers=True, has_space=False)
    cluster.advance(3_000)
    assert isr(cluster) == [1, 2]
    cluster[3].manager.disk_looked_at(answers=True, has_space=True)
    cluster.settle()
    assert isr(cluster) == [1, 2, 3]


def nobody_waits_for_a_replica_whose_disk_is_full() -> None:
    """It goes on to follow; the leader is told at once that it need not be waited for, and each time it tries again."""
    cluster = written(ReplicaCluster())
    full = OSError(errno.ENOSPC, "no space left")
    ticket = ticket_behind_a_failure(cluster, full)
    cluster.settle(controller=False)
    assert cluster[1].answers[ticket].error is None
    broker = cluster[3]
    with patch.object(type(broker.logs[KEY]), "append", failing(broker, full)):
        for _ in range(30):
            ticket = cluster.produce(1)
            cluster.advance(100)
            assert cluster[1].answers[ticket].error is None
            assert not cluster[1].proposals
    assert isr(cluster) == [1, 2]
    cluster.advance(3_000)
    assert isr(cluster) == [1, 2, 3], "there is space again"


SCENARIOS: list[Callable[[], None]] = [
    a_copy_that_was_cut_does_not_join_by_what_it_told_before,
    what_was_under_way_when_it_was_cut_does_not_take_it_in,
    a_member_is_not_counted_by_what_was_told_before_its_copy_was_cut,
    a_copy_that_is_damaged_already_is_cut_when_all_from_before_is_known_to_be_older,
    a_shorter_end_told_in_the_same_life_is_no_longer_known_as_caught_up,
    who_is_not_heard_stays_out,
    a_late_loop_puts_a_hung_follower_out,
    nobody_waits_for_a_replica_whose_disk_failed,
    who_found_no_space_and_has_nothing_to_append_comes_back_when_there_is_space,
    nobody_waits_for_a_replica_whose_disk_is_full,
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_put_out(scenario: Callable[[], None]) -> None:
    scenario()


@proves("ISR.4")
def test_a_silent_one_of_two_replicas_stays_out() -> None:
    who_is_not_heard_stays_out(brokers=2)


@proves("ISR.10")
@pytest.mark.parametrize("every_ms", [12_000.0, 5_000.0, 1_000.0])
def test_a_late_loop_puts_a_hung_follower_out_however_often_it_is_late(every_ms: float) -> None:
    a_late_loop_puts_a_hung_follower_out(every_ms)


# -- the wrong rules


def _what_was_told_before_counts() -> list[tuple[Any, str, Any]]:
    return [(FollowerView, "is_out", lambda self, partition_epoch: None)]


def _it_counts_as_told_when_it_arrives() -> list[tuple[Any, str, Any]]:
    progress = LeaderPartition.progress

    def mutant(self: LeaderPartition, session: Any, told: Any, now_ms: float) -> None:
        told.partition_epoch = self.state.partition_epoch
        progress(self, session, told, now_ms)

    return [(LeaderPartition, "progress", mutant)]


def _cut_at_once() -> list[tuple[Any, str, Any]]:
    go_offline = Replica.go_offline

    def mutant(self: Replica, error: Exception, now_ms: float) -> None:
        go_offline(self, error, now_ms)
        self._offline_since = -1
        self._recover_log()

    return [(Replica, "go_offline", mutant)]


def _forgotten_once() -> list[tuple[Any, str, Any]]:
    return [(FollowerView, "is_out", lambda self, partition_epoch: self.restart(self.broker_epoch))]


def _what_was_told_before_counts_without_a_session() -> list[tuple[Any, str, Any]]:
    wants_in = property(lambda self: True, lambda self, value: None)
    return [(FollowerView, "wants_in", wants_in), *_what_was_told_before_counts(), *who_lags_joins()]


def _excused_for_a_full_period() -> list[tuple[Any, str, Any]]:
    def mutant(self: IsrState, delay_ms: float, log_end: int, now_ms: float) -> None:
        self._update_views(self.committed, now_ms)

    return [(IsrState, "excuse", mutant)]


def _full_disks_are_waited_for() -> list[tuple[Any, str, Any]]:
    return [(Replica, "failed", _pausing)]


def _pausing(self: Replica, error: OSError, now_ms: float) -> None:
    assert self.log is not None
    assert self.follower is not None
    self._sessions.give_back(self.log.append_failed())
    self.follower.pause(now_ms, self._context.settings.no_space_pause_ms)


MUTANTS: dict[str, tuple[Callable[[], list[tuple[Any, str, Any]]], Callable[[], None]]] = {
    "progress survives being put out": (
        _what_was_told_before_counts_without_a_session,
        a_copy_that_was_cut_does_not_join_by_what_it_told_before,
    ),
    "progress survives being put out, for members": (
        _what_was_told_before_counts,
        a_member_is_not_counted_by_what_was_told_before_its_copy_was_cut,
    ),
    "progress counts as told when it arrives": (
        _it_counts_as_told_when_it_arrives,
        what_was_under_way_when_it_was_cut_does_not_take_it_in,
    ),
    "progress of before is forgotten once, and what was under way counts": (
        _forgotten_once,
        what_was_under_way_when_it_was_cut_does_not_take_it_in,
    ),
    "a damaged copy is cut before that is committed": (
        _cut_at_once,
        a_copy_that_is_damaged_already_is_cut_when_all_from_before_is_known_to_be_older,
    ),
    "a joiner without an open session": (_what_was_told_before_counts_without_a_session, who_is_not_heard_stays_out),
    "a late tick excuses for a full period": (_excused_for_a_full_period, a_late_loop_puts_a_hung_follower_out),
    "a full disk is waited for": (_full_disks_are_waited_for, nobody_waits_for_a_replica_whose_disk_is_full),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_rule_is_found(name: str) -> None:
    rules, scenario = MUTANTS[name]
    with ExitStack() as stack:
        for target, attribute, value in rules():
            stack.enter_context(patch.object(target, attribute, value, create=True))
        with pytest.raises((AssertionError, KeyError)):
            scenario()


def test_the_default_lag_time_is_what_is_meant_here() -> None:
    assert ReplicationSettings().replica_lag_time_max_ms == LAG_MS
