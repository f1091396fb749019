"""Histories of groups with members, step by step, on whole brokers: a coordinator dies between its two decisions."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from minilog_broker.coordinators.coordinator_effects import Moment
from minilog_broker.coordinators.groups import membership
from minilog_broker.coordinators.groups.members import Members
from minilog_broker.coordinators.groups.records import GroupChange
from tests.simulation.clients.history import History
from tests.simulation.clients.sharing import Sharing
from tests.simulation.clients.workload import Workload
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.judge import Judge, coordinator_state
from tests.simulation.judge.sharing import check_moved, settled
from tests.simulation.mutants.replication import Patches
from tests.simulation.plan import Plan
from tests.simulation.scene import direct

MEMBERS = 3
STOPPED = -1
REPLICATED_S = 0.5  # until the target is on all copies


@pytest.fixture(autouse=True)
def _hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")


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


async def death_between_the_decisions(cluster: SimulatedCluster) -> None:
    """Three members read all. One leaves. The coordinator dies with nothing written but the target of the others."""
    workload = Workload(cluster, History())
    judge = Judge(cluster)
    sharing = Sharing(cluster, workload, lambda: coordinator_state(judge))
    looking = asyncio.get_running_loop().create_task(judge.watch())
    for host in cluster.hosts.values():
        host.start()
    await workload.make_topics()
    cluster.rages = False  # nothing else befalls anybody
    sharing.begin()
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
def test_one_that_does_not_leaves_partitions_without_a_reader() -> None:
    with pytest.raises(AssertionError, match=r"M2: partitions .* have no reader"):
        direct(death_between_the_decisions, PLAN, and_a_successor_that_waits)
