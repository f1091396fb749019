"""The end of a safety phase in which all machines lose power, and one never returns or returns with a rotten disk.

Before it the cluster has some calm, so that every member of every ISR is known to have all that is committed, and stays
so: whoever of them comes back sound is owed an election (`Cluster.owed`, V19), and what was acknowledged is still there
(V5 to V9, V14). One disk rots at most: anywhere in the last segment, above what its log has recorded, too.
"""

from __future__ import annotations

import random
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from minilog.record_batch.header import HEADER_BYTES
from minilog_broker.replication.partition_state import PartitionKey
from minilog_broker.storage.log import Log
from tests.simulation.known import newest_image

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.node import Node

CALM_MS = 4_000.0  # all join every ISR again, under load


class Outage:
    """See the module's text."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._random = rng

    def strike(self) -> tuple[int, ...] | None:
        """All lose power; who is to come back. None where the cluster was not whole: nothing happens."""
        cluster, plan = self._cluster, self._cluster.plan
        image = newest_image(cluster)
        if image is None or not all(node.is_serving for node in cluster.nodes.values()):
            return None
        states = list(image.partitions.values())
        if not states or any(set(state.in_sync_replicas) != set(state.replicas) for state in states):
            return None
        victim = cluster.nodes[self._random.choice(list(cluster.nodes))]
        absent = plan.outage == "absent" and all(
            len(set(state.replicas) - {victim.node_id}) >= min(plan.min_in_sync, state.replication_factor)
            for state in states
        )
        others = {state.key for state in states if len(state.replicas) > 1}  # one good copy remains of these
        spots = [] if absent else self._spots(victim, others)
        cluster.count("power lost by all, one stays away" if absent else "power lost by all, one disk rots")
        cluster.note(f"all lose power; node {victim.node_id} {'stays away' if absent else f'rots: {spots}'}")
        cluster.owed = {state.key: frozenset(state.replicas) - {victim.node_id} for state in states}
        for node in cluster.nodes.values():
            node.lose_power()
        for key, path, position in spots:
            if position < len(victim.files.content(path)):
                victim.files.flip_bit(path, position, self._random.randint(0, 7))
                victim.harmed[key] = cluster.now_ms
        if not absent:
            return tuple(cluster.nodes)
        victim.wants_life = False
        return tuple(node_id for node_id in cluster.nodes if node_id != victim.node_id)

    def _spots(self, node: Node, keys: AbstractSet[PartitionKey]) -> list[tuple[PartitionKey, str, int]]:
        assert node.life is not None
        spots = [_spot(key, log, self._random) for key, log in node.life.logs.items() if key in keys]
        return [spot for spot in spots if spot is not None]


def _spot(key: PartitionKey, log: Log, rng: random.Random) -> tuple[PartitionKey, str, int] | None:
    """A place in a batch of the last segment that was synced: most likely the newest one."""
    segment = log._segments[-1]
    synced = [
        (position, header.length)
        for position, header in segment.headers(segment.base_offset)
        if header.next_offset <= log.durable_end_offset
    ]
    if not synced:
        return None
    position, length = synced[-1] if rng.random() < 0.6 else rng.choice(synced)
    return key, segment.path, position + rng.randrange(HEADER_BYTES, length)
