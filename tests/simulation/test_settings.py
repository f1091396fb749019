"""Two histories step by step: brokers that are configured differently, and a leader cut off under unclean election.

Each is run with the true rule and with the wrong one: the judge has to say what is wrong with that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from minilog_broker.replication.partition_state import PartitionKey, PartitionState
from tests.simulation.cluster import Cluster
from tests.simulation.history import History
from tests.simulation.invariants.judge import Judge
from tests.simulation.invariants.violation import Violation
from tests.simulation.mutants import settings
from tests.simulation.mutants.replication import Patches
from tests.simulation.plan import Plan
from tests.simulation.workload import Workload

CONTROLLER = 1


@dataclass
class Scene:
    """A calm cluster of four with one partition on two that are not the controller."""

    cluster: Cluster
    judge: Judge
    key: PartitionKey

    @property
    def state(self) -> PartitionState:
        return self.judge.metadata.image.partitions[self.key]

    def run(self, ms: float) -> None:
        self.cluster.run_for(ms)

    def cut(self, one: int, other: int) -> None:
        for pair in ((one, other), (other, one)):
            self.cluster.network.condition(*pair).cut = True


def scene(seed: int, **plan: object) -> Scene | None:
    """None where the seed places the replicas otherwise."""
    calm = Plan.calm(
        nodes=4,
        voters=1,
        topic_count=1,
        partitions=1,
        replication_factor=2,
        safety_ms=60_000.0,
        producer_counts=(1,),
        consumer_counts=(1,),
        consumer_racks=("",),
        write_pauses_ms=(50.0,),
        replica_lag_time_max_ms=500.0,
        broker_session_timeout_ms=900.0,
        heartbeat_interval_ms=150.0,
        **plan,
    )
    cluster, history = Cluster(seed, calm), History()
    judge = Judge(cluster, history)
    cluster.observers.append(judge)
    Workload(cluster, history, judge)
    cluster.run_for(2_500.0)
    image = judge.metadata.image
    topic = image.topic("t0")
    if topic is None or CONTROLLER in image.partitions[PartitionKey(topic.topic_id, 0)].replicas:
        return None
    return Scene(cluster, judge, PartitionKey(topic.topic_id, 0))


def placed(**plan: object) -> Scene:
    return next(found for seed in range(100) if (found := scene(seed, **plan)) is not None)


@contextlib.contextmanager
def wrong(patches: Patches) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for each in patches:
            stack.enter_context(patch.object(*each))
        yield


# -- a rolling change of min.insync.replicas, half done


def half_rolled() -> Scene:
    """The controller is configured with 2 and makes the topic; the leader, started later, with 1. They are parted."""
    found = placed(min_in_sync=2, configured_min_of=dict.fromkeys((2, 3, 4), 1))
    leader, follower = found.state.leader_id, next(b for b in found.state.replicas if b != found.state.leader_id)
    found.cut(leader, follower)
    found.run(4_000.0)
    return found


def test_a_leader_configured_otherwise_does_not_commit_alone() -> None:
    """The other one has all that is committed, whatever comes: the judge looks at each step."""
    found = half_rolled()
    leader, follower = found.state.leader_id, next(b for b in found.state.replicas if b != found.state.leader_id)
    found.cluster.nodes[leader].wants_life = False
    found.cluster.nodes[leader].lose_power()
    found.run(5_000.0)
    assert found.state.leader_id == follower


def test_a_brokers_own_default_loses_what_was_acknowledged() -> None:
    with wrong(settings.own_default_counts()), pytest.raises(Violation, match="an eligible leader, lacks offset"):
        half_rolled()


# -- a leader that the controller does not hear, under unclean election


def cut_off() -> Scene:
    """The leader is in sync alone; then it is cut off from all nodes, and not from its clients; another is elected."""
    found = placed(min_in_sync=1, unclean_election=True)
    leader, follower = found.state.leader_id, next(b for b in found.state.replicas if b != found.state.leader_id)
    found.cut(leader, follower)
    found.run(3_000.0)
    assert found.state.in_sync_replicas == (leader,)
    for other in {1, 2, 3, 4} - {leader}:
        found.cut(leader, other)
    found.run(6_000.0)
    assert found.state.leader_id == follower
    assert found.judge.states["unclean elections"] == 1
    return found


def test_a_leader_stops_before_another_is_elected_uncleanly() -> None:
    cut_off()


def test_one_that_goes_on_is_found() -> None:
    with wrong(settings.cut_off_leader_goes_on()), pytest.raises(Violation, match="another was elected uncleanly"):
        cut_off()
