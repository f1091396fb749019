"""All machines lose power and some come back: who leads then, whoever stays away, and who must not (V5 to V7, V19).

The quorum is up again before this begins; its image is that of before the power cut, so all brokers look alive.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from minilog.partition_key import PartitionKey
from minilog_broker.controller.torn_tails import PATIENCE_MS
from minilog_broker.replication.partition_state import NO_LEADER
from tests.rules import proves
from tests.unit.controller.cluster import (
    CLOSED,
    DOUBTFUL,
    MISSING,
    SESSION_TIMEOUT_MS,
    WHOLE,
    ControllerCluster,
    Found,
    error_of,
    torn,
)

pytestmark = proves("MD.42")

ALL = (1, 2, 3)
EPOCH = 4
_AT_ONCE_MS, _LATE_MS = 10.0, 4 * SESSION_TIMEOUT_MS  # before, and long after, the silent ones are fenced
_PAUSES = pytest.mark.parametrize("pause_ms", [_AT_ONCE_MS, _LATE_MS])


def cut(min_in_sync: int = 2, replicas: int = 3) -> tuple[ControllerCluster, PartitionKey]:
    """All are in sync; then a new controller, which has heard nobody yet."""
    cluster = ControllerCluster()
    cluster.start_all(3)
    key = cluster.created(replication_factor=replicas, min_insync_replicas=str(min(min_in_sync, replicas)))
    cluster.fail_over()
    return cluster, key


def come_back(
    cluster: ControllerCluster, key: PartitionKey, order: tuple[int, ...], found: Mapping[int, Found], pause_ms: float
) -> None:
    """One after another, while those that are back go on beating."""
    back: list[int] = []
    for broker_id in order:
        wait(cluster, key, back, found, pause_ms)
        cluster.start(broker_id, found={key: found.get(broker_id, WHOLE)})
        back.append(broker_id)
    wait(cluster, key, back, found, 2 * SESSION_TIMEOUT_MS)


def wait(
    cluster: ControllerCluster, key: PartitionKey, back: list[int], found: Mapping[int, Found], for_ms: float
) -> None:
    step_ms = SESSION_TIMEOUT_MS / 10
    while for_ms > 0:
        cluster.advance(min(step_ms, for_ms))
        for_ms -= step_ms
        for broker_id in back:
            said = {key: found[broker_id]} if found.get(broker_id) is not None else {}
            leads_in_isr = (
                cluster.state(key).leader_id != NO_LEADER and broker_id in cluster.state(key).in_sync_replicas
            )
            closed = [key] if said.get(key) == CLOSED else []
            cluster.heartbeat(broker_id, found={} if leads_in_isr else said, offline=closed)


@_PAUSES
@pytest.mark.parametrize("min_in_sync", [1, 2, 3])
@pytest.mark.parametrize("order", [each for count in (1, 2, 3) for each in itertools.permutations(ALL, count)])
def test_whole_copies_lead_whoever_stays_away(order: tuple[int, ...], min_in_sync: int, pause_ms: float) -> None:
    cluster, key = cut(min_in_sync)
    come_back(cluster, key, order, {}, pause_ms)
    assert cluster.state(key).leader_id in order, cluster.state(key)


@_PAUSES
@pytest.mark.parametrize("order", list(itertools.permutations(ALL)))
@pytest.mark.parametrize("rotten", ALL)
def test_a_broker_that_comes_back_damaged_changes_nothing(order: tuple[int, ...], rotten: int, pause_ms: float) -> None:
    cluster, key = cut()
    for number, broker_id in enumerate(order):
        wait(cluster, key, list(order[:number]), {}, pause_ms)
        cluster.start(broker_id, damaged=[key] if broker_id == rotten else [])
    assert cluster.state(key).leader_id in set(ALL) - {rotten}


@pytest.mark.parametrize("order", [each for count in (2, 3) for each in itertools.permutations(ALL, count)])
@pytest.mark.parametrize("rotten", [None, *ALL])
def test_of_torn_copies_the_longest_leads(order: tuple[int, ...], rotten: int | None) -> None:
    """A rotten one ends below what was committed (9), the others at or above it."""
    cluster, key = cut()
    found = {broker_id: torn(EPOCH, 7 if broker_id == rotten else 8 + broker_id) for broker_id in ALL}
    come_back(cluster, key, order, found, _AT_ONCE_MS)
    assert cluster.state(key).leader_id in set(order) - {rotten}, cluster.state(key)


@pytest.mark.parametrize("order", [each for count in (2, 3) for each in itertools.permutations(ALL, count)])
def test_a_later_epoch_counts_more_than_a_longer_log(order: tuple[int, ...]) -> None:
    cluster, key = cut()
    found = {1: torn(EPOCH, 20), 2: torn(EPOCH + 1, 10), 3: torn(EPOCH, 12)}
    come_back(cluster, key, order, found, _AT_ONCE_MS)
    if 2 in order[:2]:  # of the first two that are back one is elected
        assert cluster.state(key).leader_id == 2


@pytest.mark.parametrize("order", [each for count in (2, 3) for each in itertools.permutations(ALL, count)])
def test_a_whole_copy_leads_before_a_torn_one_that_is_longer(order: tuple[int, ...]) -> None:
    cluster, key = cut()
    come_back(cluster, key, order, {broker_id: torn(EPOCH, 100) for broker_id in order[1:]}, _AT_ONCE_MS)
    assert cluster.state(key).leader_id == order[0]


def test_a_torn_copy_waits_for_another_to_compare_with_and_not_for_ever() -> None:
    cluster, key = cut(replicas=2)
    (one, _) = cluster.state(key).replicas
    cluster.start(one, found={key: torn(EPOCH, 9)})
    wait(cluster, key, [one], {one: torn(EPOCH, 9)}, PATIENCE_MS - SESSION_TIMEOUT_MS)
    assert cluster.state(key).leader_id == NO_LEADER
    wait(cluster, key, [one], {one: torn(EPOCH, 9)}, 2 * SESSION_TIMEOUT_MS)
    assert cluster.state(key).leader_id == one


def test_a_torn_copy_that_alone_counts_leads_at_once() -> None:
    cluster, key = cut(replicas=1)
    (one,) = cluster.state(key).replicas
    cluster.start(one, found={key: torn(EPOCH, 9)})
    assert cluster.state(key).leader_id == one


def test_a_new_controller_elects_no_torn_copy_before_it_was_told_of_it() -> None:
    cluster, key = cut(replicas=2)
    one, two = cluster.state(key).replicas
    found = {one: torn(EPOCH, 7), two: torn(EPOCH, 9)}
    cluster.start(one, found={key: found[one]})
    cluster.fail_over()
    cluster.heartbeat(one, found={key: found[one]})
    assert cluster.state(key).leader_id == NO_LEADER
    come_back(cluster, key, (two,), found, _AT_ONCE_MS)
    assert cluster.state(key).leader_id == two


def test_a_copy_that_is_torn_no_more_leads_at_once() -> None:
    """It joined an ISR whose leader went before the controller was told that its tail matters no more."""
    cluster, key = cut()
    leader, other, _ = cluster.state(key).replicas
    for broker_id in ALL:
        cluster.heartbeat(broker_id)
    cluster.restart(other, found={key: torn(EPOCH, 9)})
    assert error_of(cluster.propose(key, {leader, other})) is None
    cluster.fence(leader)
    assert cluster.state(key).leader_id == NO_LEADER
    cluster.heartbeat(other)
    assert cluster.state(key).leader_id == other


def test_a_replica_outside_the_isr_never_becomes_eligible_by_a_restart() -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    key = cluster.created()
    behind = next(each for each in cluster.state(key).replicas if each != cluster.state(key).leader_id)
    rest = set(ALL) - {behind}
    assert error_of(cluster.propose(key, rest)) is None
    for _ in range(3):
        cluster.restart(behind)
        assert behind not in cluster.state(key).eligible_leaders
    cluster.fail_over()
    for _ in range(2):
        cluster.start(behind)
        cluster.advance(2 * SESSION_TIMEOUT_MS)
    state = cluster.state(key)
    assert state.leader_id == NO_LEADER
    assert behind not in {*state.in_sync_replicas, *state.eligible_leaders}


def test_a_replica_that_left_at_min_is_not_eligible_when_the_leader_goes() -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    key = cluster.created()
    first = cluster.state(key).leader_id
    gone, last = (each for each in cluster.state(key).replicas if each != first)
    cluster.restart(gone)
    cluster.fence(first)
    cluster.fence(last)
    assert set(cluster.state(key).in_sync_replicas) | set(cluster.state(key).eligible_leaders) == {first, last}
    cluster.start(gone)
    assert cluster.state(key).leader_id == NO_LEADER


def test_eligible_leaders_are_none_again_when_somebody_leads_at_min() -> None:
    cluster, key = cut()
    come_back(cluster, key, ALL, {}, _AT_ONCE_MS)
    leader = cluster.state(key).leader_id
    other = next(each for each in ALL if each != leader)
    if len(cluster.state(key).in_sync_replicas) < 2:
        assert error_of(cluster.propose(key, {leader, other})) is None
    assert cluster.state(key).eligible_leaders == ()


@proves("MD.45")
def test_brokers_that_fall_silent_together_are_fenced_together() -> None:
    cluster, key = cut(min_in_sync=1)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    state = cluster.state(key)
    assert state.leader_id == NO_LEADER
    assert {*state.in_sync_replicas, *state.eligible_leaders} == set(ALL)


def test_a_doubtful_copy_is_never_elected_while_others_may_come() -> None:
    cluster, key = cut()
    for broker_id in ALL[:2]:
        cluster.start(broker_id, found={key: DOUBTFUL})
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    assert cluster.state(key).leader_id == NO_LEADER
    cluster.start(3)
    assert cluster.state(key).leader_id == 3


@proves("MD.43")
@pytest.mark.parametrize("clean", [False, True])
def test_a_log_that_is_gone_is_no_copy_while_others_may_have_one(clean: bool) -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    key = cluster.created()
    for broker_id in ALL:
        cluster.fence(broker_id)
    last, eligible = cluster.state(key).in_sync_replicas[0], cluster.state(key).eligible_leaders[0]
    cluster.start(last, clean=cluster.epoch(last) if clean else None, found={key: MISSING})
    assert cluster.state(key).leader_id == NO_LEADER
    cluster.start(eligible)
    assert cluster.state(key).leader_id == eligible


@proves("MD.43")
def test_a_log_that_cannot_be_read_is_offline_and_counts_again_when_a_later_life_finds_it_whole() -> None:
    cluster = ControllerCluster()
    cluster.start_all(3)
    key = cluster.created()
    for broker_id in ALL:
        cluster.fence(broker_id)
    eligible = cluster.state(key).eligible_leaders[0]
    cluster.start(eligible, found={key: CLOSED})
    assert cluster.state(key).leader_id == NO_LEADER
    cluster.fail_over()
    cluster.heartbeat(eligible, found={key: CLOSED}, offline=[key])
    assert cluster.state(key).leader_id == NO_LEADER
    cluster.restart(eligible)
    assert cluster.state(key).leader_id == eligible


@proves("MD.45")
def test_a_leader_that_the_new_controller_has_not_heard_yet_leads_again_when_it_is() -> None:
    cluster, key = cut()
    leader = cluster.state(key).leader_id
    other = next(each for each in ALL if each != leader)
    cluster.register(other)
    assert cluster.state(key).leader_id == NO_LEADER
    cluster.heartbeat(leader)
    assert cluster.state(key).leader_id == leader
