"""T20: what an idle group of many members costs, the brokers and the members: nobody writes to its topic.

The topic has three partitions. So all members but three hold nothing, and what is measured is membership itself:
heartbeats and their answers. Each turn measures the cluster without the group first. The figure is what the group's
coordinator, a broker, needs more with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.accounting import resident_bytes
from benchmarks.arena import Arena
from benchmarks.figures import Better, Run, Target
from benchmarks.member_hosts import MemberHosts
from benchmarks.processes import wait_until
from benchmarks.systems import System
from benchmarks.workloads import Turn, Workload, details_of

_PARTITIONS = 3
_PROCESSES = 4
_WATCHED_S = 20.0
_CALM_S = 15.0  # behind the last one that joined: each member has heard of the interval of a large group
_JOINED_WITHIN_S = 300.0


def _with_group(arena: Arena, system: System, hosts: MemberHosts, group: str, members: int) -> Run:
    def watch() -> None:
        time.sleep(_WATCHED_S)

    before, before_bytes = arena.measure(system, watch), _resident_bytes(system)
    started_s = time.monotonic()
    for _ in range(_PROCESSES):
        hosts.start(members // _PROCESSES)
    hosts.join()
    wait_until(lambda: system.member_count(group) == members, f"{members} members of {group}", _JOINED_WITHIN_S)
    joined_s = time.monotonic() - started_s
    time.sleep(_CALM_S)
    cost, coordinator = arena.measure(system, watch), f"broker {system.coordinator(group)}"
    share = {name: (spent_s - before.cpu_s[name]) / _WATCHED_S * 100 for name, spent_s in cost.cpu_s.items()}
    clients = share.pop("clients")
    details = {
        "brokers_cpu": sum(share.values()),
        "clients_cpu": clients,
        "coordinator_all_cpu": cost.cpu_s[coordinator] / _WATCHED_S * 100,
        "brokers_megabytes": (_resident_bytes(system) - before_bytes) / 1e6,
        "joined_s": joined_s,
    }
    return Run(share[coordinator], cost, details=details)


def _resident_bytes(system: System) -> int:
    return sum(resident_bytes(pid) for pid in system.pids.values())


def _contestant(find: Callable[[Arena], System], members: int) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        system, topic = find(arena), arena.name("idle-group")
        system.create(topic, _PARTITIONS, is_synced=True)

        def turn(_: int) -> Run:
            group = arena.name("idle-group-of-members")
            hosts = MemberHosts(system, topic, group, arena.directory / "members" / group)
            try:
                return _with_group(arena, system, hosts, group, members)
            finally:
                hosts.end()

        return turn

    return prepare


_DETAILS = (
    ("brokers", "the same of all brokers", "% of a core", "brokers_cpu"),
    ("coordinator", "CPU of its coordinator with all else that a broker does", "% of a core", "coordinator_all_cpu"),
    ("members", "CPU of the members", "% of a core", "clients_cpu"),
    ("memory", "memory of the brokers, more than without the group", "MB", "brokers_megabytes"),
    ("joining", "start of all members until the last one has joined", "s", "joined_s"),
)


def idle_group(members: int) -> Workload:
    """The figure is the CPU of the coordinator with the group less that without."""
    target, title = "T20-idle", f"CPU of the coordinator of an idle group of {members:,} members"
    return Workload(
        Target(target, title, "% of a core", Better.LOWER, None),
        "minilog",
        "kafka",
        {
            "minilog": _contestant(lambda arena: arena.minilog, members),
            "kafka": _contestant(lambda arena: arena.kafka, members),
        },
        warm_ups=0,
        runs=3,
        details=details_of(target, _DETAILS),
    )
