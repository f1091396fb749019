"""Faults at random moments, as the plan says how often; and the end of them, when the liveness phase begins.

In the liveness phase a core is whole: it has a majority of the voters and, of each partition, a replica that may be
elected and min members. What is outside of it stays down or cut off.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from minilog_broker.replication.partition_state import PartitionState
from tests.simulation.faults import Faults
from tests.simulation.known import newest_image, unreplaced_voters
from tests.simulation.outage import CALM_MS, Outage

if TYPE_CHECKING:
    from minilog_broker.controller.image import MetadataImage
    from tests.simulation.cluster import Cluster
    from tests.simulation.life import Life

SUPERVISE_MS = 500.0
OUTSIDE_CHANCE = 0.3  # of leaving a node outside of the core, where that may be


class Chaos:
    """See the module's text."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._random = random.Random(f"chaos {cluster.seed}")
        self._faults = Faults(cluster, self._random)
        self._outage = Outage(cluster, self._random)
        self._supervised = False
        cluster.scheduler.after(cluster.plan.quiet_ms, self._begin)
        if cluster.plan.outage:
            cluster.scheduler.after(max(0.0, cluster.plan.safety_ms - CALM_MS), self._calm)

    def _begin(self, _: object) -> None:
        for name, rate in self._cluster.plan.faults.active():
            self._next(name, rate)

    def _next(self, name: str, rate: float) -> None:
        delay_ms = self._random.expovariate(rate) * 1_000.0
        self._cluster.scheduler.after(delay_ms, self._happen, (name, rate))

    def _happen(self, argument: tuple[str, float]) -> None:
        name, rate = argument
        if self._faults.over:
            return
        if getattr(self._faults, name)():
            self._cluster.count(name)
        self._next(name, rate)

    # -- the end of faults

    def heal(self) -> None:
        """No fault any more within the core, which is `cluster.core` from now on."""
        cluster = self._cluster
        struck = self._outage.strike() if cluster.plan.outage else None
        cluster.core = struck or self._choose_core()
        cluster.note(f"heals; the core is {cluster.core}")
        self._make_whole(leave_outside=struck is None)

    def _calm(self, _: object) -> None:
        """No more faults but the last one."""
        self._make_whole(leave_outside=False)

    def _make_whole(self, *, leave_outside: bool) -> None:
        cluster = self._cluster
        self._faults.over = True
        cluster.network.heal()
        for node_id, node in cluster.nodes.items():
            node.files.calm()
            if node_id not in cluster.core:
                if leave_outside:
                    self._leave_outside(node_id)
                continue
            node.resume()
            if node.life is not None:
                node.life.effects_left = None
                self._faults.set_slowness(node.life, 1.0)
            node.wants_life = True
        if not self._supervised:
            self._supervised = True
            self._supervise()

    def _supervise(self, _: object = None) -> None:
        """Whatever process of the core is not there is started, now and later; one with a failed replica anew."""
        cluster = self._cluster
        for node_id in cluster.core:
            node = cluster.nodes[node_id]
            if node.life is not None and node.life.is_registered and _needs_restart(node.life):
                node.kill()
            if node.life is None:
                cluster.scheduler.after(self._random.uniform(10.0, 300.0), node.start)
        cluster.scheduler.after(SUPERVISE_MS, self._supervise)

    def _leave_outside(self, node_id: int) -> None:
        cluster = self._cluster
        node = cluster.nodes[node_id]
        if self._random.random() < 0.5:
            node.wants_life = False
            node.kill()
            return
        for other_id in (*cluster.nodes, *cluster.clients):
            cluster.network.condition(node_id, other_id).cut = True
            cluster.network.condition(other_id, node_id).cut = True
        node.resume()

    def _choose_core(self) -> tuple[int, ...]:
        cluster = self._cluster
        everybody = tuple(cluster.nodes)
        image = newest_image(cluster)
        if self._random.random() >= OUTSIDE_CHANCE or image is None or not image.voters:
            return everybody  # a cluster that is not founded yet needs all of its voters
        outside = self._random.sample(everybody, self._random.randint(1, max(1, (len(everybody) - 1) // 2)))
        core = tuple(node_id for node_id in everybody if node_id not in outside)
        emptied = unreplaced_voters(cluster, image)
        voters = [voter_id for voter_id in cluster.plan.voter_ids if voter_id in core and voter_id not in emptied]
        if 2 * len(voters) <= cluster.plan.voters:
            return everybody
        return core if all(self._survives(image, state, core) for state in image.partitions.values()) else everybody

    def _survives(self, image: MetadataImage, state: PartitionState, core: tuple[int, ...]) -> bool:
        """Whether `core` alone can serve the partition, whatever the controller has decided since."""
        here = [node_id for node_id in state.replicas if node_id in core]
        least = image.effective_config(state.key.topic_id).min_in_sync_replicas
        if len(here) < min(least, len(state.replicas)):
            return False
        # Members outside may be all that is left of the ISR by now: all of it has to be inside.
        candidates = {*state.in_sync_replicas, *state.eligible_leaders}
        return candidates <= set(core) and not state.damaged_replicas


def _needs_restart(life: Life) -> bool:
    """An I/O error took a replica offline; of damage alone it must come back by itself."""
    return any(not each.damaged for each in life.offline.values())
