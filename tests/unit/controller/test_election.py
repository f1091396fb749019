"""The pure rules of election.py, over all small states: V4, V17, who stays eligible, and who is chosen."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from minilog.partition_key import PartitionKey
from minilog_broker.controller.election import (
    Departure,
    ElectionRules,
    depart,
    reconsider,
    with_in_sync_replicas,
)
from minilog_broker.replication.partition_state import NO_LEADER, PartitionState
from tests.rules import proves

pytestmark = proves("MD.1")

KEY = PartitionKey(bytes(16), 0)
REPLICAS = (3, 1, 2)  # not in the order of their ids: the order of the replicas is what counts
LIFE = {1: 10, 2: 20, 3: 30}


def subsets(items: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for size in range(len(items) + 1):
        yield from itertools.combinations(items, size)


def state(
    isr: tuple[int, ...], *, leader: int = NO_LEADER, eligible: tuple[int, ...] = (), damaged: tuple[int, ...] = ()
) -> PartitionState:
    return PartitionState(
        key=KEY,
        topic_name="t",
        replicas=REPLICAS,
        in_sync_replicas=isr,
        eligible_leaders=eligible,
        damaged_replicas=damaged,
        leader_id=leader,
        leader_epoch=5,
        partition_epoch=8,
        leader_broker_epoch=LIFE.get(leader, -1),
    )


def rules(live: tuple[int, ...], *, least: int = 2, unclean: bool = False, stopping: int = 0) -> ElectionRules:
    return ElectionRules(
        min_in_sync_replicas=least,
        unclean_election=unclean,
        electable=lambda broker: broker in live and broker != stopping,
        is_current_incarnation=lambda broker, epoch: broker in live and LIFE[broker] == epoch,
        broker_epoch=LIFE.__getitem__,
    )


def all_states() -> Iterator[PartitionState]:
    """Those that can be committed: leader in the ISR, eligible ones only below min (2) or where nobody leads, no damage
    in a larger ISR."""
    for isr in subsets(REPLICAS):
        if not isr:
            continue
        others = tuple(broker for broker in REPLICAS if broker not in isr)
        for eligible in subsets(others):
            hurt = tuple(broker for broker in others if broker not in eligible) + (isr if len(isr) == 1 else ())
            for damaged in subsets(hurt):
                led_by = [broker for broker in isr if broker not in damaged and (len(isr) < 2 or not eligible)]
                for leader in (NO_LEADER, *led_by):
                    yield state(isr, leader=leader, eligible=eligible, damaged=damaged)


def all_rules() -> Iterator[ElectionRules]:
    for live in subsets(REPLICAS):
        for unclean in (False, True):
            yield rules(live, unclean=unclean)


def judge(before: PartitionState, after: PartitionState, given: ElectionRules) -> None:
    isr, eligible = set(after.in_sync_replicas), set(after.eligible_leaders)
    assert isr
    assert isr <= set(REPLICAS)
    assert not isr & eligible
    assert not eligible & set(after.damaged_replicas)
    assert not eligible or len(isr) < given.effective_min(after) or after.leader_id == NO_LEADER
    if after.leader_id != NO_LEADER:
        assert after.leader_id in isr
        assert after.leader_id not in after.damaged_replicas
        assert given.is_current_incarnation(after.leader_id, after.leader_broker_epoch)
    assert after.partition_epoch == before.partition_epoch + (after != before)
    moved = (after.leader_id, after.leader_broker_epoch) != (before.leader_id, before.leader_broker_epoch)
    assert after.leader_epoch == before.leader_epoch + moved


def test_every_departure_from_every_state_keeps_the_rules() -> None:
    count = 0
    for before, given in itertools.product(all_states(), all_rules()):
        for broker, departure in itertools.product(REPLICAS, Departure):
            outcome = depart(before, broker, departure, given)
            judge(before, outcome.state, given)
            after = outcome.state
            if len(before.in_sync_replicas) > 1 and not given.electable(broker):
                assert broker not in after.in_sync_replicas
            if departure is not Departure.OUT:
                assert broker not in after.eligible_leaders
            count += 1
    assert count > 5_000


@proves("MD.2")
def test_only_an_eligible_replica_leads_without_an_unclean_election() -> None:
    for before, given in itertools.product(all_states(), all_rules()):
        outcome = reconsider(before, given)
        judge(before, outcome.state, given)
        sound = [broker for broker in REPLICAS if given.electable(broker) and broker not in before.damaged_replicas]
        in_sync = [broker for broker in sound if broker in before.in_sync_replicas]
        eligible = [broker for broker in sound if broker in before.eligible_leaders]
        if before.leader_id in in_sync:
            assert outcome.state == before
        elif in_sync or eligible:
            assert outcome.state.leader_id == (in_sync or eligible)[0]
            assert not outcome.unclean
        else:
            assert outcome.unclean is (given.unclean_election and any(map(given.electable, REPLICAS)))
            assert (outcome.state.leader_id == NO_LEADER) is not outcome.unclean
            if not outcome.unclean:
                assert outcome.state.eligible_leaders == before.eligible_leaders, "one may be the first to come back"


def test_every_proposal_keeps_the_rules() -> None:
    given = rules(REPLICAS)
    for before in all_states():
        for members in subsets(REPLICAS):
            if before.leader_id not in members:
                continue
            after = with_in_sync_replicas(before, frozenset(members), given).state
            judge(before, after, given)
            assert set(after.in_sync_replicas) == set(members)
            assert not set(after.damaged_replicas) & set(members)
            assert after.leader_id == before.leader_id


def test_the_isr_is_elected_from_in_the_order_of_the_replicas() -> None:
    assert depart(state((1, 2, 3), leader=3), 3, Departure.OUT, rules((1, 2))).state.leader_id == 1
    assert depart(state((1, 2), leader=1), 1, Departure.OUT, rules((2, 3))).state.leader_id == 2


def test_an_eligible_leader_begins_with_itself_alone_and_the_former_isr_becomes_eligible() -> None:
    after = reconsider(state((1,), eligible=(2,)), rules((2,))).state
    assert (after.leader_id, after.in_sync_replicas, after.eligible_leaders) == (2, (2,), (1,))


@proves("MD.45")
def test_all_that_leave_below_min_stay_eligible_whoever_left_before_does_not() -> None:
    first = depart(state((3, 1, 2), leader=3), 2, Departure.OUT, rules((3, 1))).state
    assert first.eligible_leaders == ()
    second = depart(first, 1, Departure.OUT, rules((3,))).state
    assert (second.in_sync_replicas, second.eligible_leaders) == ((3,), (1,))


def test_with_a_min_of_one_nobody_is_eligible() -> None:
    after = depart(state((3, 1), leader=3), 1, Departure.OUT, rules((3,), least=1)).state
    assert after.eligible_leaders == ()


def test_an_unclean_election_prefers_a_copy_that_is_not_known_to_be_damaged_and_mends_the_other() -> None:
    outcome = reconsider(state((3,), damaged=(3, 1)), rules((1, 2), unclean=True))
    assert outcome.unclean
    assert outcome.state.leader_id == 2
    outcome = reconsider(state((3,), damaged=(3, 1)), rules((1,), unclean=True))
    assert (outcome.state.leader_id, outcome.state.damaged_replicas) == (1, (3,))


def test_a_stopping_leader_stays_until_another_can_lead() -> None:
    assert reconsider(state((3,), leader=3), rules((3,), stopping=3)).state.leader_id == 3
    assert reconsider(state((3, 1), leader=3), rules((3, 1), stopping=3)).state.leader_id == 1


@proves("MD.7")
def test_another_life_of_the_leader_is_another_leader_epoch() -> None:
    old_life = PartitionState(KEY, "t", REPLICAS, (3,), (), (), 3, 5, 8, leader_broker_epoch=29)
    after = reconsider(old_life, rules((3,))).state
    assert (after.leader_id, after.leader_broker_epoch, after.leader_epoch) == (3, 30, 6)
