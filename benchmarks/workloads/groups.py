"""T20: members of a group come and go: how long until each partition that moves is read by its new owner, and whether
the others pause meanwhile.

A group of one member less than `members` reads all partitions, to which records come at a steady rate. Then one more
member joins, leaves, joins again, and is killed (SIGKILL). Members share processes, but the one that comes and goes has
a process of its own. Both sides have the session time-out and the heartbeat interval that both systems have by
default, 45 s and 5 s, and both commit by themselves (enable.auto.commit).

A hand-over lasts from the event to the first record that the new owner reads, with the interval between two records of
a partition in it. A pause of a partition that does not move shows in two ways: the longest time between two of its
records is longer than their interval, and a record comes late to its reader. Both are also measured while nothing
happens ("calm"). The partitions have their records one after another, so a member with six of them hears something six
times in an interval, and no pause of a member that is longer than that stays unseen.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from benchmarks.arena import Arena
from benchmarks.figures import Better, Run, Target
from benchmarks.handovers import is_settled, longest_pauses_ms, moves, owners, twice_read_records, unread_records
from benchmarks.member_hosts import ClientProcess, MemberHosts
from benchmarks.processes import ProgramFailed
from benchmarks.systems import System
from benchmarks.workloads import Turn, Workload, check_records, details_of

SESSION_S = 45.0
_MEMBERS_PER_PROCESS = 7
_SETTLED_S = 2.0  # for so long each partition has one reader
_CALM_S = 10.0
_SETTLE_WITHIN_S = 180.0
_LOOK_S = 0.25


class _Group:
    """A group under records."""

    def __init__(self, hosts: MemberHosts, partitions: int, interval_ms: float) -> None:
        self.hosts, self._partitions, self._interval_ms = hosts, partitions, interval_ms

    def settled(self, members: frozenset[int], since_ns: int) -> int:
        """Wait until these members have read all partitions for a while, and nobody else. When that was found."""
        deadline_s = time.monotonic() + _SETTLE_WITHIN_S
        while time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
            now_ns = time.monotonic_ns()
            start_ns = now_ns - int(_SETTLED_S * 1e9)
            rows = self.hosts.latest_rows(start_ns)
            if start_ns >= since_ns and is_settled(rows, start_ns, now_ns, members, self._partitions):
                return now_ns
        raise ProgramFailed(f"{len(members)} members have not shared the partitions in {_SETTLE_WITHIN_S:.0f} s")

    def after(self, name: str, event_ns: int, members: frozenset[int]) -> dict[str, float]:
        """Wait until the event has had its effect, and say what it was."""
        before = owners(self.hosts.rows(), 0, event_ns)  # its last record may be old where a machine is slow
        end_ns = self.settled(members, event_ns)
        rows = self.hosts.latest_rows(event_ns)
        after = owners(rows, end_ns - int(_SETTLED_S * 1e9), end_ns)
        return moves(rows, event_ns, end_ns, before, after, interval_ms=self._interval_ms).details(name)

    def calm(self, start_ns: int, end_ns: int) -> dict[str, float]:
        """The same figures of a time in which nothing happened."""
        rows = self.hosts.latest_rows(start_ns)
        rows = rows[rows["read_ns"] < end_ns]
        return {
            "calm_pause_ms": max(longest_pauses_ms(rows, start_ns, end_ns, self._interval_ms)),
            "calm_delay_ms": float((rows["read_ns"] - rows["sent_ns"]).max()) / 1e6,
        }


def _events(hosts: MemberHosts, members: int, partitions: int, interval_ms: float) -> dict[str, float]:
    """All that happens to a group that has come together."""
    group, others = _Group(hosts, partitions, interval_ms), frozenset(range(members - 1))
    start_ns = group.settled(others, 0)
    details: dict[str, float] = {}
    for number in (members - 1, members):
        guest = hosts.start(1)
        time.sleep(_CALM_S)  # it starts and waits meanwhile
        event_ns = guest.say()
        if number == members - 1:
            details |= group.calm(start_ns, event_ns)
            details |= group.after("join", event_ns, others | {number})
            details |= _leave(group, guest, others)
        else:
            group.settled(others | {number}, event_ns)
            details |= _die(group, guest, others)
    rows = hosts.latest_rows(start_ns)
    check_records(unread_records(rows), 0, "the gaps between records that were read")
    return details | {"twice_read": float(twice_read_records(rows))}


def _leave(group: _Group, guest: ClientProcess, others: frozenset[int]) -> dict[str, float]:
    group.hosts.forget(guest)
    event_ns = guest.say()
    details = group.after("leave", event_ns, others)
    guest.end()
    return details


def _die(group: _Group, guest: ClientProcess, others: frozenset[int]) -> dict[str, float]:
    group.hosts.forget(guest)
    return group.after("death", guest.kill(), others)


@contextlib.contextmanager
def _writing(system: System, topic: str, partitions: int, interval_ms: float, hosts: MemberHosts) -> Iterator[None]:
    log = hosts.directory / "writer.log"
    writer = ClientProcess(log, "group_writer", system.name, system.servers, topic, partitions, interval_ms)
    try:
        yield
    finally:
        writer.end()


def _contestant(
    find: Callable[[Arena], System], members: int, partitions: int, interval_ms: float
) -> Callable[[Arena], Turn]:
    def prepare(arena: Arena) -> Turn:
        system, topic = find(arena), arena.name("group")
        system.create(topic, partitions, is_synced=False)

        def turn(_: int) -> Run:
            name = arena.name("group-of-members")
            hosts = MemberHosts(system, topic, name, arena.directory / "members" / name)
            details = dict[str, float]()
            with _writing(system, topic, partitions, interval_ms, hosts):
                try:
                    for first in range(0, members - 1, _MEMBERS_PER_PROCESS):
                        hosts.start(min(_MEMBERS_PER_PROCESS, members - 1 - first))
                    time.sleep(_CALM_S)
                    hosts.join()
                    cost = arena.measure(
                        system, lambda: details.update(_events(hosts, members, partitions, interval_ms))
                    )
                finally:
                    hosts.end()
            brokers_s = cost.total_cpu_s - cost.cpu_s["clients"]
            details |= {"brokers_cpu": brokers_s / cost.wall_s * 100}
            details |= {"clients_cpu": cost.cpu_s["clients"] / cost.wall_s * 100}
            details |= {"death_over_session_s": details["death_worst_s"] - SESSION_S}
            return Run(details["join_worst_s"], cost, details=details)

        return turn

    return prepare


_DETAILS = (
    ("join-median", "the median partition of a join", "s", "join_median_s"),
    ("leave", "the same of a member that leaves, worst", "s", "leave_worst_s"),
    ("leave-median", "the median partition of a leave", "s", "leave_median_s"),
    ("death", "the same of a member that is killed, worst", "s", "death_worst_s"),
    ("death-median", "the median partition of a death", "s", "death_median_s"),
    ("death-late", "worst of a death, above the session time-out of 45 s", "s", "death_over_session_s"),
    ("calm-pause", "longest pause of a partition, nothing happens", "ms", "calm_pause_ms"),
    ("join-pause", "longest pause of a partition that does not move, join", "ms", "join_pause_ms"),
    ("leave-pause", "longest pause of a partition that does not move, leave", "ms", "leave_pause_ms"),
    ("death-pause", "longest pause of a partition that does not move, death", "ms", "death_pause_ms"),
    ("calm-delay", "longest delay of a record, nothing happens", "ms", "calm_delay_ms"),
    ("join-delay", "longest delay of a record that does not move, join", "ms", "join_delay_ms"),
    ("leave-delay", "longest delay of a record that does not move, leave", "ms", "leave_delay_ms"),
    ("death-delay", "longest delay of a record that does not move, death", "ms", "death_delay_ms"),
    ("twice", "records that were read twice, of all events", "records", "twice_read"),
    ("brokers", "CPU of the brokers", "% of a core", "brokers_cpu"),
    ("clients", "CPU of the members and the writer", "% of a core", "clients_cpu"),
)


def groups(members: int, partitions: int, interval_ms: float) -> Workload:
    """`interval_ms`: between two records of one partition. The figure is the worst hand-over of a join."""
    target, title = "T20-groups", f"one of {members} members joins, {partitions} partitions: worst hand-over"
    return Workload(
        Target(target, title, "s", Better.LOWER, None),
        "minilog",
        "kafka",
        {
            "minilog": _contestant(lambda arena: arena.minilog, members, partitions, interval_ms),
            "kafka": _contestant(lambda arena: arena.kafka, members, partitions, interval_ms),
        },
        warm_ups=0,
        runs=3,
        details=details_of(target, _DETAILS),
    )
