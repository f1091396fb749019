"""What must be, from the outside alone: clients' histories, and what lies on the disks when all has stopped.

V14 V16 V8   history.py                 while it runs
V19          after the faults: every partition acknowledges again, and readers come to the end
V19          while they rage: a good minimum that is well acknowledges within 10 s, and all within 2 s in calm
V3           after all have stopped: the copies of a partition agree on all that was read
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from minilog.errors import CorruptMessage
from minilog.partition_key import PartitionKey
from minilog.record_batch.header import decode_header, iterate_headers
from minilog.types import TopicPartition
from minilog_broker.server.clients.coordinator_calls import SCRUB_TIMEOUT_S
from minilog_broker.storage.log import Log
from minilog_broker.storage.settings import LogSettings
from tests.judges.violation import Violation
from tests.simulation.clients.history import History, Outcome
from tests.simulation.judge.good_minimum import good_since_s, heard_since_s
from tests.simulation.machines.host import DATA_PATH

if TYPE_CHECKING:
    from tests.simulation.clients.queries import Queries
    from tests.simulation.clients.transacting import Transacting
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.faults import Faults
    from tests.simulation.judge.exceptions import Exceptions
    from tests.simulation.judge.hearing import Lead
    from tests.simulation.judge.judge import Judge
    from tests.simulation.machines.host import SimulatedHost

LOOK_S = 0.25
STALL_S = 10.0
CALM_STALL_S = 2.0  # while nothing is broken or healed
SETTLE_S = 3.0  # of writing after the faults


async def watch(cluster: SimulatedCluster, workload: Workload, exceptions: Exceptions, judge: Judge) -> None:
    """Until cancelled. V19 while faults rage: where so many replicas as a write needs, and a majority of the voters,
    have been well for long, and one of them has all that was acknowledged on its disk, writes go on. And much sooner
    where nothing is broken or healed."""
    calm = judge.truth.calm
    moves = cluster.plan.moves
    while True:
        await asyncio.sleep(LOOK_S)
        for at, key in workload.keys.items():
            if exceptions.lost_all(key):
                continue
            asked_s = workload.asked_s.get(key, cluster.now_s)
            state = judge.truth.metadata.states.get(key)
            leader = None if state is None else cluster.hosts.get(state.leader_id)
            kept_out_s = judge.lag.kept_out_s.get(key, 0.0)
            well_since_s = max(cluster.clients_well_since_s, asked_s, refused_s(cluster, leader), kept_out_s)
            if min(calm.lasts_s, cluster.now_s - well_since_s) > CALM_STALL_S:
                text = f"{at} acknowledges nothing since {well_since_s:.1f} s, and nothing was broken or healed since "
                raise Violation("V19", f"{text}{calm.since_s:.1f} s")
            replicas, count = workload.replicas[key], cluster.plan.min_in_sync
            if moves:
                replicas, count = _replicas_of(cluster, judge, key)
            hosts = [cluster.host(name) for name in replicas]
            since_s = max(good_since_s(cluster, judge.lead, hosts, count), well_since_s)
            if cluster.now_s - since_s > STALL_S and _is_held(cluster, workload, at, hosts, judge.lead):
                raise Violation("V19", f"{at} acknowledges nothing since {since_s:.1f} s, and all it needs is well")


def refused_s(cluster: SimulatedCluster, leader: SimulatedHost | None) -> float:
    """When a client that lives was refused a connection by the leader last: while the other brokers are connected to
    it, it stays the leader."""
    if leader is None:
        return 0.0
    refusals = cluster.network.refused_s.items()
    return max((at_s for (name, by), at_s in refusals if by == leader.name and name in cluster.clients), default=0.0)


def _replicas_of(cluster: SimulatedCluster, judge: Judge, key: PartitionKey) -> tuple[list[str], int]:
    """Of a partition that an operator moves, and how many of them are needed: all brokers, while it is on its way."""
    state = judge.truth.metadata.states.get(key)
    if state is None or state.adding_replicas or state.removing_replicas:
        return [host.name for host in cluster.hosts.values()], len(cluster.hosts)
    return [cluster.hosts[number].name for number in state.replicas], cluster.plan.min_in_sync


def _is_held(
    cluster: SimulatedCluster, workload: Workload, at: TopicPartition, hosts: list[SimulatedHost], lead: Lead | None
) -> bool:
    """Whether a host that could lead for so long, and lost no power before, has all that was acknowledged."""
    until_s = cluster.now_s - STALL_S
    wanted = workload.acknowledged_end.get(workload.keys[at], 0)
    return any(
        _end_on(host, at) >= wanted
        for host in hosts
        if heard_since_s(cluster, lead, host) <= until_s and host.lost_power_in != host.lives - 1
    )


def _end_on(host: SimulatedHost, at: TopicPartition) -> int:
    """Where the copy ends, as its files are read now, and nothing is written."""
    path, end = f"{DATA_PATH}/{at.topic}-{at.partition}", 0
    for name in host.disk.list(path) if host.disk.exists(path) else []:
        if name.endswith(".log"):
            with contextlib.suppress(CorruptMessage):
                for _, header in iterate_headers(host.disk.content(f"{path}/{name}")):
                    end = max(end, header.next_offset)
    return end


async def check_over(
    cluster: SimulatedCluster,
    history: History,
    workload: Workload,
    faults: Faults,
    exceptions: Exceptions,
    kept_out_s: Mapping[PartitionKey, float],
) -> None:
    """The faults are over: all comes right within the plan's time, under load; then the last reader reads all. Who
    starts reads its disk once before it listens. Where the load outruns the copies (lag.py), less of it goes on."""
    deadline_s = cluster.now_s + cluster.plan.liveness_s + recovery_s(cluster)
    writable = [
        key
        for key, replicas in workload.replicas.items()
        if faults.leave_enough(replicas) and not exceptions.lost_all(key)
    ]
    await _all_acknowledge(cluster, workload, writable, deadline_s, kept_out_s)
    await asyncio.sleep(SETTLE_S)
    workload.writing = False
    while history.counts()[Outcome.PENDING] and _pending(cluster, history):
        if cluster.now_s > deadline_s:
            raise Violation("V19", f"{_pending(cluster, history)} writes are never answered")
        await asyncio.sleep(LOOK_S)
    ends = {
        key: 0 for key in writable if not history.is_exempt(key)
    }  # of others what is acknowledged may wait for who is gone
    for write in history.writes.values():
        if write.outcome is Outcome.OK and write.acks == -1 and write.key in ends:
            ends[write.key] = max(ends[write.key], write.offset + 1)
    last = workload.add_consumer()
    while any(workload.positions(last)[key] < end for key, end in ends.items()):
        if cluster.now_s > deadline_s + cluster.plan.liveness_s:
            raise Violation("V14", f"the last reader stops at {workload.positions(last)}, {ends} are acknowledged")
        await asyncio.sleep(LOOK_S)
    history.check_end(last, {key: (workload.may_be_gone(key), end) for key, end in ends.items()})


async def check_transactions(cluster: SimulatedCluster, transacting: Transacting, faults: Faults) -> None:
    """A reader of what is committed, from the beginning, finds each transaction as a whole or not at all."""
    if faults.lost or faults.cut_for_good:
        return  # markers may wait for who is gone
    deadline_s = cluster.now_s + cluster.plan.liveness_s
    transacting.add_reader()
    while (missing := transacting.missing()) is not None:
        if cluster.now_s > deadline_s:
            raise Violation("V15", missing)
        await asyncio.sleep(LOOK_S)


async def check_queries(cluster: SimulatedCluster, queries: Queries, faults: Faults) -> None:
    """Each query gets committed what it had begun, and a reader from the beginning finds each micro-batch once."""
    if faults.lost or faults.cut_for_good:
        return  # markers may wait for who is gone
    deadline_s = cluster.now_s + cluster.plan.liveness_s
    while queries.busy:
        if cluster.now_s > deadline_s:
            raise Violation("V19", f"queries {queries.busy} do not get their last micro-batch committed")
        await asyncio.sleep(LOOK_S)
    queries.add_reader()
    while (missing := queries.missing()) is not None:
        if cluster.now_s > deadline_s:
            raise Violation("V15", missing)
        await asyncio.sleep(LOOK_S)


def _pending(cluster: SimulatedCluster, history: History) -> int:
    """Writes that a living client waits for."""
    living = cluster.clients
    return sum(write.outcome is Outcome.PENDING and write.client in living for write in history.writes.values())


def recovery_s(cluster: SimulatedCluster) -> float:
    """What reading the logs of the fullest disk takes, of those that nobody listens beside yet."""
    disks = [host.disk for host in cluster.hosts.values() if "down" in host.ailments]
    sizes = [sum(disk.size(name) for name in disk.names if name.endswith(".log")) for disk in disks]
    return max(sizes, default=0) / cluster.plan.read_bytes_per_s


async def _all_acknowledge(
    cluster: SimulatedCluster,
    workload: Workload,
    writable: list[PartitionKey],
    deadline_s: float,
    kept_out_s: Mapping[PartitionKey, float],
) -> None:
    since_s = cluster.now_s
    while True:
        silent = [k for k in writable if workload.acknowledged_s.get(k, -1.0) <= since_s]
        if not silent:
            return
        workload.outruns |= any(kept_out_s.get(key, 0.0) > since_s for key in silent)
        if cluster.now_s > deadline_s:
            raise Violation("V19", f"nothing is acknowledged in partitions {[k.partition for k in silent]}")
        await asyncio.sleep(LOOK_S)


async def check_forged(cluster: SimulatedCluster, faults: Faults) -> None:
    """A scrub finds each forged batch while all copies are in sync, and its broker fetches the records again. The last
    reader, which comes later, is given none of them. A call to a broker that vanished may still be under way."""
    deadline_s = cluster.now_s + SCRUB_TIMEOUT_S + cluster.plan.liveness_s + recovery_s(cluster)
    while forged := faults.forged:
        if cluster.now_s > deadline_s:
            raise Violation("V3", f"{forged[0].host.name}: the copy in {forged[0].directory} still has forged records")
        await asyncio.sleep(LOOK_S)


def copies_agree(
    cluster: SimulatedCluster,
    workload: Workload,
    faults: Faults,
    clean_to: Callable[[PartitionKey], int] = lambda key: 0,
) -> None:
    """Batches at the same offset are the same bytes, up to the shorter high watermark of two copies. Of a host whose
    disk rotted a copy may be what nobody has read yet. Below `clean_to` a copy may be compacted: compaction.py."""
    hosts = [host for host in cluster.hosts.values() if host is not faults.rotten]
    for at, key in workload.keys.items():
        copies = [found for host in hosts if (found := _copy(host, at, key)) is not None]
        for batches, high_watermark in copies:
            for others, other_high_watermark in copies:
                upto = min(high_watermark, other_high_watermark)
                start = clean_to(key)
                mine = {offset: batch for offset, batch in batches.items() if start <= offset < upto}
                theirs = {offset: batch for offset, batch in others.items() if start <= offset < upto}
                shared = mine.keys() & theirs.keys()
                if any(mine[offset] != theirs[offset] for offset in shared):
                    raise Violation("V3", f"two copies of {at} differ below {upto}")


def _copy(host: SimulatedHost, at: TopicPartition, key: PartitionKey) -> tuple[dict[int, bytes], int] | None:
    """The batches of a copy by offset, and the high watermark that it has recorded."""
    disk, path = host.disk, f"{DATA_PATH}/{at.topic}-{at.partition}"
    if not disk.exists(path):
        return None
    log = Log.open(disk, path, key, at.topic, LogSettings(), unclean=False, create=False)
    batches = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        content = log.read(offset, 1)
        batches[offset] = content
        offset = decode_header(content).next_offset
    return batches, log.high_watermark
