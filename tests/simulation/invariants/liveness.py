"""V19: once the faults have ended, all comes to rest as it should, within a stated virtual time. Judged at the end.

There is one active controller, known to every live node of the core; each partition is led by a live replica; its ISR
is all of its live replicas; HW, durable end and end are one offset on all of them, and no log starts below its
leader's; no client waits for anything.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from minilog_broker.coordinators.transactions.records import TransactionProducer
from minilog_broker.replication.partition_state import NO_LEADER, PartitionKey
from tests.simulation.invariants.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.invariants.judge import Judge
    from tests.simulation.life import Life
    from tests.simulation.trimming import Trimmer


def unsettled(cluster: Cluster, judge: Judge) -> Violation | None:
    """What is not yet as V19 wants it, None where all is. The clients' part is the workload's to say."""
    live = {node_id: life for node_id in cluster.core if (life := cluster.nodes[node_id].life) is not None}
    return _controller(live) or next(
        (wrong for key in sorted(judge.partitions) if (wrong := _partition(key, live, judge)) is not None), None
    )


def is_whole(cluster: Cluster, judge: Judge) -> bool:
    """Whether each partition is led and has all its live replicas in the ISR: to be reached under load."""
    live = {node_id: life for node_id in cluster.core if (life := cluster.nodes[node_id].life) is not None}
    if _controller(live) is not None:
        return False
    for key, truth in judge.partitions.items():
        state = truth.state
        assert state is not None
        replicas = _served(key, live) & set(state.replicas)
        if state.leader_id in replicas and set(state.in_sync_replicas) != replicas:
            return False
    return True


def _served(key: PartitionKey, live: dict[int, Life]) -> set[int]:
    """Where the replica must be in service: all but those that an I/O error took offline, until a restart."""
    return {n for n, life in live.items() if key not in life.offline or life.offline[key].damaged}


def _controller(live: dict[int, Life]) -> Violation | None:
    active = [node_id for node_id, life in live.items() if life.controller.is_active]
    if len(active) != 1:
        return Violation("V19", f"active controllers are {active}", nodes=tuple(live))
    for node_id, life in live.items():
        if life.quorum.leader_id != active[0]:
            text = f"node {node_id} takes {life.quorum.leader_id} for the quorum's leader, it is {active[0]}"
            return Violation("V19", text, nodes=(node_id, active[0]))
        if life.broker_epoch is None:
            return Violation("V19", f"node {node_id} is not registered", nodes=(node_id, active[0]))
    return None


def _partition(key: PartitionKey, live: dict[int, Life], judge: Judge) -> Violation | None:
    state = judge.partitions[key].state
    assert state is not None
    replicas = _served(key, live) & set(state.replicas)
    if not replicas:
        return None
    name = f"partition {key.partition} of {state.topic_name}"
    candidates = {*state.in_sync_replicas, *state.eligible_leaders} - set(state.damaged_replicas)
    if state.leader_id not in replicas:
        owed = judge.cluster.owed.get(key, frozenset[int]()) & replicas
        if not candidates & replicas and not judge.partitions[key].unclean_allowed and not owed:
            return None  # nobody who is there could lead
        return Violation("V19", f"{name} has no live leader: {state}", nodes=tuple(replicas), key=key)
    if set(state.in_sync_replicas) != replicas:
        text = f"the ISR of {name} is {state.in_sync_replicas}, its live replicas are {sorted(replicas)}"
        return Violation("V19", text, nodes=tuple(replicas), key=key)
    return _ends(key, name, {n: life for n, life in live.items() if n in replicas}, judge)


def _ends(key: PartitionKey, name: str, replicas: dict[int, Life], judge: Judge) -> Violation | None:
    state = judge.partitions[key].state
    assert state is not None
    ends, starts = {}, {}
    for node_id, life in replicas.items():
        log = life.logs.get(key)
        if log is None:
            return Violation("V19", f"{name} has no log on node {node_id}", nodes=(node_id,), key=key)
        starts[node_id] = log.log_start_offset
        ends[node_id] = (log.high_watermark, log.durable_end_offset, log.log_end_offset)
    # V18: with fewer than min.insync.replicas a high watermark stands still; then only the logs have to agree.
    least = judge.metadata.image.effective_config(key.topic_id).min_in_sync_replicas
    stands = len(replicas) < min(least, state.replication_factor)
    if len({end for each in ends.values() for end in each[stands:]}) != 1:
        return Violation("V19", f"{name}: HW, durable end and end differ: {ends}", nodes=tuple(replicas), key=key)
    if min(starts.values()) < starts[state.leader_id]:
        text = f"{name}: log starts {starts} do not follow the leader's, node {state.leader_id}"
        return Violation("V19", text, nodes=tuple(replicas), key=key)
    return None


def open_transactions(cluster: Cluster, judge: Judge) -> Violation | None:
    """V19: no transaction is open that nobody owns, and readers are not held up: LSO = HW on every replica. (But in
    partitions that may have lost what was acknowledged, markers and what they end among it; and in those that wait for
    their operator, for their last copy rotted: `unsettled` has looked at these.)"""
    unled = {key for key, state in judge.metadata.image.partitions.items() if state.leader_id == NO_LEADER}
    exempt = {key for key, truth in judge.partitions.items() if truth.exempt is not None} | unled
    for node_id in cluster.core:
        life = cluster.nodes[node_id].life
        if life is None:
            continue
        for key, part in life.coordinating.parts.items():
            producers = [
                name
                for name, value in part.core.committed_state().items()
                if isinstance(value, TransactionProducer) and not _is_in(value, exempt)
            ]
            if part.leads and producers:
                text = f"the coordinator in partition {key.partition} still has {producers}"
                return Violation("V19", text, nodes=(node_id,), key=key)
        for key in judge.partitions:
            replica = life.manager._replicas.get(key)
            if replica is None or replica.log is None or key in exempt:
                continue
            high_watermark, stable = replica.log.high_watermark, replica.log.last_stable_offset
            if stable != high_watermark:
                text = f"node {node_id}: LSO {stable} stays below HW {high_watermark} of partition {key.partition}"
                return Violation("V19", text, nodes=(node_id,), key=key)
    return None


def _is_in(producer: TransactionProducer, keys: AbstractSet[PartitionKey]) -> bool:
    return any(registered.partition in keys for registered in producer.partitions)


def undeleted(cluster: Cluster, judge: Judge, trimmer: Trimmer) -> Violation | None:
    """V19: whoever asks for records to be deleted is told that they are, and no such call hangs."""
    for node_id in cluster.core:
        life = cluster.nodes[node_id].life
        if life is not None and life.serving.trims.waiting:
            text = f"node {node_id} has not answered {life.serving.trims.waiting} calls that delete records"
            return Violation("V19", text, nodes=(node_id,))
    image = judge.metadata.image
    for partition in trimmer.missing:
        topic = image.topic(partition.topic)
        state = None if topic is None else image.partitions.get(PartitionKey(topic.topic_id, partition.partition))
        # An eligible leader that never comes back holds the answer; and it may be that nobody is there who could lead.
        if state is None or state.eligible_leaders or state.leader_id == NO_LEADER:
            continue
        node = cluster.nodes[state.leader_id]
        if node.life is not None and node.node_id in cluster.core:
            return Violation("V19", f"{partition} is not trimmed: {trimmer.last_error}", key=state.key)
    return None
