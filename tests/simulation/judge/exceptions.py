"""What may be lost of what was acknowledged: the exceptions of docs/spec/invariants.md, as far as a run has them.

    an unclean election         of the partition that a controller says it has held one for, where the topic allows it
                                and not all of its brokers have been well: nothing is judged of what stood in it before
    power under                 as many machines as an ISR has members have lost it since the topic was, or may have
    flush.policy=os             been, under os: every copy may be doubtful, and then none leads before an operator says
                                so. Nobody waits for such a partition; but what it serves is judged as ever, for what a
                                doubtful copy has lost is not to come to light by itself

Of all else nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from tests.judges.violation import Violation
from tests.simulation.clients.history import History

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster

UNCLEAN = "unclean election: acknowledged records may be lost"
CALM_S = 10.0  # who was well for so long could have led


class Exceptions:
    """What this run has allowed to be lost."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload, history: History) -> None:
        self._cluster = cluster
        self._workload = workload
        self._history = history
        cluster.listeners.append(self._hear)

    def _hear(self, event: Mapping[str, Any]) -> None:
        if event.get("event") != UNCLEAN:
            return
        key = self._workload.keys.get(TopicPartition(event["topic"], event["partition"]))
        if key is None:
            return
        since_s = self._cluster.now_s - CALM_S
        hosts = [self._cluster.host(name) for name in self._workload.replicas[key]]
        if not self._cluster.plan.unclean:
            self._cluster.fail(Violation("V7", "an unclean election of a topic that allows none"))
        elif all(host.is_well and host.well_since_s < since_s for host in hosts):
            self._cluster.fail(Violation("V7", "an unclean election, and all replicas have been well"))
        self._cluster.count("an unclean election")
        self._history.exempt(key)

    def lost_all(self, key: PartitionKey) -> bool:
        """Whether every copy may be doubtful."""
        since_s = self._workload.unsynced_since_s
        hosts = [self._cluster.host(name) for name in self._workload.replicas[key]]
        times = sum(lost_s >= since_s for host in hosts for lost_s in host.lost_power_s)
        return times >= self._cluster.plan.least_min
