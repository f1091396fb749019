"""The end of a run with members of a group: who reads what comes right, one leaves, and nothing was skipped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, coordinator_partition
from minilog.partition_key import PartitionKey
from tests.judges.groups import check_handed, check_moved
from tests.judges.violation import Violation
from tests.simulation.clients.sharing import GROUP, CoordinatorState

if TYPE_CHECKING:
    from tests.simulation.clients.sharing import Sharing
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.faults import Faults
    from tests.simulation.judge.judge import Judge

LEAST_READERS = 3  # of a group that one leaves: a share has several partitions, and two others take them
STILL_S = 1.0  # nothing changes hands any more
MOST_S = 30.0
LOOK_S = 0.1


def coordinator_state(judge: Judge) -> CoordinatorState:
    """Of the group, from the committed metadata, and from what was said to be committed."""
    topics = judge.truth.metadata.topics
    for topic_id in (topic_id for topic_id, topic in topics.items() if topic.name == GROUPS_TOPIC_NAME):
        key = PartitionKey(topic_id, coordinator_partition(GROUP))
        if (state := judge.truth.metadata.states.get(key)) is not None:
            partition = judge.truth.partitions.get(key)
            return CoordinatorState(state.leader_id, state.leader_epoch, 0 if partition is None else partition.end)
    return CoordinatorState(0, 0, 0)


async def check_sharing(cluster: SimulatedCluster, sharing: Sharing, faults: Faults) -> None:
    """Each partition has one reader, one that leaves moves little, and every record was handed to some member."""
    if not (faults.lost or faults.cut_for_good):
        await settled(cluster, sharing)
        await _check_leave(cluster, sharing)
        await _check_missing(cluster, sharing)
    sharing.end()


async def _check_leave(cluster: SimulatedCluster, sharing: Sharing) -> None:
    """In a group of three readers at least one leaves."""
    for _ in range(LEAST_READERS - len(set(sharing.holders().values()))):
        sharing.add("")
    before = await settled(cluster, sharing)
    readers = [sharer for sharer in sharing.living() if sharer.name in before.values()]
    leaver = readers[cluster.seed % len(readers)]
    cluster.note(f"{leaver.name} leaves, of {before}")
    sharing.leave(leaver)
    after = await settled(cluster, sharing)
    if cluster.plan.configs[1]["group.consumer.assignors"] == "uniform":
        check_moved(before, after, leaver.name)


async def _check_missing(cluster: SimulatedCluster, sharing: Sharing) -> None:
    deadline_s = cluster.now_s + cluster.plan.liveness_s
    while missing := sharing.missing():
        if cluster.now_s > deadline_s:
            check_handed(missing)
        await asyncio.sleep(LOOK_S)


async def settled(cluster: SimulatedCluster, sharing: Sharing) -> dict[int, str]:
    """The reader of each partition, once they stay the same and each has to have one (M2: sharing.py)."""
    deadline_s, since_s, holders = cluster.now_s + MOST_S, cluster.now_s, sharing.holders()
    while cluster.now_s < max(since_s + STILL_S, sharing.owned_from_s + LOOK_S) or sharing.leaving():
        if cluster.now_s > deadline_s:
            raise Violation("M2", f"the readers still change {MOST_S:.0f} s after all is well: {holders}")
        await asyncio.sleep(LOOK_S)
        if (now := sharing.holders()) != holders:
            holders, since_s = now, cluster.now_s
    return holders
