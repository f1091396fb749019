"""Histories of groups with members, step by step, on whole brokers: a coordinator dies between its two decisions, and a
member that stood still commits late."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from minilog.types import TopicPartition
from minilog_broker.coordinators.coordinator_effects import Moment
from minilog_broker.coordinators.groups import membership
from minilog_broker.coordinators.groups.members import Members
from minilog_broker.coordinators.groups.records import GroupChange
from tests.judges.groups import check_moved
from tests.rules import Patches
from tests.simulation.clients.history import History
from tests.simulation.clients.sharing import TOPIC, Sharing
from tests.simulation.clients.sharing_program import Program
from tests.simulation.clients.workload import Workload
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.judge import Judge, coordinator_state
from tests.simulation.judge.sharing import settled
from tests.simulation.plan import Plan
from tests.simulation.scene import direct

MEMBERS = 3
STOPPED = -1
REPLICATED_S = 0.5  # until the target is on all copies
READS_S = 1.5  # some records of each partition
STALL_S = 2.5  # a session by the member's clock is 2.4 s, and by the coordinator's 3 s


def only_the_target() -> Patches:
    """The coordinator that first counts one member less decides upon their target, and comes to nothing more."""
    reconcile, counts = membership.reconcile, [0]

    def stopped(view: membership.GroupView) -> list[GroupChange]:
        counts.append(len(view.members))
        is_first_after_leave = max(counts) == MEMBERS and counts[-1] < MEMBERS and STOPPED not in counts
        if not is_first_after_leave:
            return reconcile(view)
        counts.append(STOPPED)
        return []

    return [(membership, "reconcile", stopped)]


def and_a_successor_that_waits() -> Patches:
    """The same, and the coordinator after it does not settle what it finds."""
    unsettle = Members._unsettle

    def mutant(self: Members, group: str, now: Moment, *, wants_target: bool) -> None:
        if self._now.of_stream:  # none has come yet when a term begins
            unsettle(self, group, now, wants_target=wants_target)

    return [*only_the_target(), (Members, "_unsettle", mutant)]


async def begun(cluster: SimulatedCluster, judge: Judge) -> Sharing:
    """The brokers of the cluster, its topics, and the members. Nothing befalls them."""
    workload = Workload(cluster, History())
    sharing = Sharing(cluster, workload, lambda: coordinator_state(judge))
    for host in cluster.hosts.values():
        host.start()
    await workload.make_topics()
    cluster.rages = False
    sharing.begin()
    return sharing


async def death_between_the_decisions(cluster: SimulatedCluster) -> None:
    """Three members read all. One leaves. The coordinator dies with nothing written but the target of the others."""
    judge = Judge(cluster)
    sharing = await begun(cluster, judge)
    looking = asyncio.get_running_loop().create_task(judge.watch())
    before = await settled(cluster, sharing)
    assert len(set(before.values())) == MEMBERS
    leaver = next(sharer for sharer in sharing.living() if not sharer.instance_id)
    sharing.leave(leaver)
    await asyncio.sleep(REPLICATED_S)
    assert sharing.holders() == {at: name for at, name in before.items() if name != leaver.name}
    coordinator = cluster.hosts[coordinator_state(judge).leader]
    coordinator.kill()
    coordinator.start()
    sharing.calm_s = cluster.now_s
    check_moved(before, await settled(cluster, sharing), leaver.name)
    sharing.end()
    looking.cancel()


class AtOnce(random.Random):
    """The chance of a program whose late commit waits for nothing."""

    def random(self) -> float:
        return 0.0


async def late_commit_after_standing_still(cluster: SimulatedCluster) -> None:
    """A member stands still until its session is over by its own clock, and not by the coordinator's. Before it learns
    that, its program comes to a late commit of what it had read long before."""
    sharing = await begun(cluster, Judge(cluster))
    await settled(cluster, sharing)
    (sharer,), at = sharing.living(), TopicPartition(TOPIC, 0)
    consumer = sharer.consumer
    assert consumer is not None
    former = consumer.position(at) or 0
    await asyncio.sleep(READS_S)
    await cluster.loop.spawn(sharer.process, sharing.commit(sharer, {at: consumer.position(at) or 0}))
    assert sharing.floor(0) > former > 0
    sharing.calm_s = cluster.now_s
    sharing.stall(sharer, STALL_S)
    late = cluster.loop.spawn(sharer.process, Program(sharing, sharer, AtOnce()).commit_beside({at: former}))
    await asyncio.sleep(STALL_S)
    assert not late.done()
    assert not sharer.holds(cluster.now_s)
    await late
    await settled(cluster, sharing)
    assert sharer.floors[0] > former
    sharing.end()


DRAWN = Plan.draw(1, "sharing")
SOON = {"broker.session.timeout.ms": "900", "broker.heartbeat.interval.ms": "150"}  # before members are silent too long
PLAN = replace(
    DRAWN,
    sharing=MEMBERS,
    faults={},
    configs={number: {**configs, **SOON} for number, configs in DRAWN.configs.items()},
)


@pytest.mark.timeout(120)
def test_a_coordinator_goes_on_from_the_target_that_the_one_before_left() -> None:
    direct(death_between_the_decisions, PLAN, only_the_target)


@pytest.mark.timeout(120)
def test_a_coordinator_that_does_not_push_leaves_partitions_without_a_reader() -> None:
    with pytest.raises(AssertionError, match=r"M2: partitions .* have no reader"):
        direct(death_between_the_decisions, PLAN, and_a_successor_that_waits)


@pytest.mark.timeout(120)
def test_a_late_commit_leaves_alone_what_the_program_still_has_after_its_session() -> None:
    direct(late_commit_after_standing_still, replace(PLAN, sharing=1))
