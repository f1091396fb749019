"""What all kinds of faults share: who is chosen, what is mended when, and what may be lost.

Of what was acknowledged a sound copy is left, and comes back. So one machine in a run is *weak*: what befalls the
contents of a disk befalls its disk. And where a machine never returns, or a cut never heals, no disk is damaged
(plan.py). All this is placed by what lies on the disks, and by what was told to clients.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minilog.aio import Admin
from minilog.errors import MinilogError
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, QUEUES_TOPIC_NAME, coordinator_partition
from minilog.types import TopicPartition
from tests.simulation.clients.queue_settings import QUEUE
from tests.simulation.clients.sharing import GROUP
from tests.simulation.machines.host import DATA_PATH
from tests.simulation.machines.network import CUT

if TYPE_CHECKING:
    from tests.simulation.clients.transacting import Transacting
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.faults.forgery import ForgedBatch
    from tests.simulation.machines.host import SimulatedHost

REPLACE_AGAIN_S = 0.5
LONG_TAIL = 2.0  # most faults are short; some are long enough for every time-out


class Ground:
    """See the module's text. `lost`: hosts that never return. `erred`: hosts that are started again in the end, for a
    replica whose disk failed is offline until then. `forged`: batches that were forged in this run. `spoilt`: an
    operator has to take away the weak host's disk."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload, transacting: Transacting) -> None:
        self.cluster = cluster
        self.workload = workload
        self.transacting = transacting
        self.random = cluster.random
        self.network = cluster.network
        self.lost: set[str] = set()
        self.cut_for_good: tuple[str, str] | None = None
        self.erred: set[str] = set()
        self.spoilt = False
        self.forged: list[ForgedBatch] = []
        self.rotten: SimulatedHost | None = None
        self._weak: SimulatedHost | None = None
        self._replacing = False

    # -- who

    def some_host(self, accept: Callable[[SimulatedHost], bool] = lambda host: True) -> SimulatedHost | None:
        """One of those that may return."""
        sick = self.cluster.plan.sick
        hosts = [host for host in self.cluster.hosts.values() if sick in (0, host.number)]
        found = [host for host in hosts if host.name not in self.lost and accept(host)]
        return self.random.choice(found) if found else None

    def host(self) -> SimulatedHost:
        found = self.some_host()
        assert found is not None
        return found

    def two(self) -> tuple[str, str]:
        """Two brokers' names."""
        names = [host.name for host in self.cluster.hosts.values()]
        if not self.cluster.plan.sick:
            one, other = self.random.sample(names, 2)
            return one, other
        pair = [self.host().name, self.random.choice([name for name in names if name != self.host().name])]
        self.random.shuffle(pair)
        return pair[0], pair[1]

    def pair(self) -> tuple[str, str]:
        """A broker, and another or a client."""
        one = self.host().name
        others = [host.name for host in self.cluster.hosts.values() if host.name != one]
        clients = list(self.cluster.clients)
        return one, self.random.choice(clients if clients and self.random.random() < 0.4 else others)

    def weak_host(self) -> SimulatedHost | None:
        """The machine whose disk may be damaged: the same all the run; never the only voter."""
        if self._weak is None:
            self._weak = self.some_host(lambda host: self.can_be_spared(host))
        return self._weak

    def can_be_spared(self, host: SimulatedHost) -> bool:
        """Whether decisions are made without it."""
        voters = self.cluster.plan.voter_ids
        return host.number not in voters or len(voters) > 1

    def ask_who_leads(self, at: TopicPartition, strike: Callable[[SimulatedHost], None]) -> None:
        """An operator asks, and what leads is struck, while faults rage."""

        async def ask(admin: Admin) -> None:
            (topic,) = await admin.describe_topics([at.topic])
            leader = topic.partitions[at.partition].leader
            if leader is not None and self.cluster.rages:
                strike(self.cluster.hosts[leader])

        self.workload.command(ask)

    def ask_who_coordinates(self, strike: Callable[[SimulatedHost], None]) -> None:
        """The same of the coordinator of the queue, or of the group with members."""
        at = TopicPartition(GROUPS_TOPIC_NAME, coordinator_partition(GROUP))
        if self.cluster.plan.queuing:
            at = TopicPartition(QUEUES_TOPIC_NAME, coordinator_partition(QUEUE))
        self.ask_who_leads(at, strike)

    # -- when

    def later(self, least_s: float, most_s: float, mend: Callable[[], None]) -> None:
        """Undo it after a while, unless all is healed before."""
        lasting = self.cluster.plan.lasting
        delay_s = (least_s + (most_s - least_s) * self.random.random() ** LONG_TAIL) * lasting
        self.cluster.loop.after(delay_s, lambda: mend() if self.cluster.rages else None)

    def start_later(self, host: SimulatedHost, most_s: float) -> None:
        def start() -> None:
            if host.name not in self.lost:
                host.start()

        self.later(0.0, most_s, start)

    def ails_for(self, host: SimulatedHost, what: str, least_s: float, most_s: float, mend: Callable[[], None]) -> None:
        """It ails until it is mended."""
        host.ails(what)

        def well() -> None:
            mend()
            host.mends(what)

        self.later(least_s, most_s, well)

    # -- links between brokers, which count for what they are well for

    def cut(self, one: str, other: str) -> None:
        """One way."""
        self.network.cut(one, other)
        for name in (one, other):
            self.cluster.ails(name, CUT)

    def cut_both(self, one: str, other: str) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def join(self, one: str, other: str) -> None:
        """Both ways; but not what is cut for good."""
        if self.cut_for_good is not None and {one, other} == set(self.cut_for_good):
            return
        for pair in ((one, other), (other, one)):
            if self.network.is_cut(*pair):
                self.network.heal(*pair)
        for name in (one, other):
            self.cluster.mends_all(name, CUT, still=self.network.is_cut_off(name))

    # -- what may be lost

    def leave_enough(self, replicas: list[str]) -> bool:
        """Whether, with what is never mended, as many replicas as a write needs are heard by each other and the
        controller, whichever broker that is."""
        ends = self.cut_for_good or ("",)  # one of the two may not hear the controller: it is fenced then
        spared = [[name for name in replicas if name not in self.lost | {end}] for end in ends]
        return all(len(names) >= self.cluster.plan.min_in_sync for names in spared)

    # -- what lies on disks

    def stored(self, host: SimulatedHost, name: str) -> dict[str, Any] | None:
        """What a small file in the data directory says; None where there is none, or it is damaged."""
        path = f"{DATA_PATH}/{name}"
        if not host.disk.exists(path):
            return None
        try:
            found: dict[str, Any] = json.loads(host.disk.content(path).partition(b"\ncrc32c=")[0])
        except ValueError:
            return None
        return found

    def directory_id(self, host: SimulatedHost) -> str | None:
        return (self.stored(host, "broker.json") or {}).get("directory_id")

    def cluster_id(self, host: SimulatedHost) -> str:
        """Empty where it belongs to none yet."""
        return str((self.stored(host, "broker.json") or {}).get("cluster_id", ""))

    # -- an operator's remedies

    def empty(self, host: SimulatedHost) -> None:
        """It has another disk, and where it was a voter an operator has the cluster know that."""
        host.empty_disk()
        host.ails("emptied")
        if host.number in self.cluster.voter_ids and not self._replacing:
            self._replacing = True
            self.workload.command(lambda admin: self._replace(admin, host))

    async def _replace(self, admin: Admin, host: SimulatedHost) -> None:
        """Until it is done: it has to run on its new disk before."""
        while True:
            lost = self.directory_id(host)
            try:
                await admin.replace_voter(host.number)
                if lost is not None and lost == self.directory_id(host):  # else it was emptied again meanwhile
                    break
            except MinilogError as error:
                if "nothing is lost" in str(error) or "is no voter" in str(error):
                    break
                self.cluster.note(f"replace-voter {host.number}: {error}")
            await asyncio.sleep(REPLACE_AGAIN_S)
        self._replacing = False
        self.cluster.note(f"voter {host.number} is replaced")

    # -- the end

    def heal(self) -> None:
        """All that may be mended is."""
        cluster = self.cluster
        cluster.rages = False  # what was to be mended later is not touched again
        self.network.heal_all()
        for process in cluster.clients.values():
            cluster.loop.go_on(process)
        for host in cluster.hosts.values():
            if host.name in self.lost:
                continue
            host.get_well()
            if host is self._weak and self.spoilt:
                self.empty(host)
            elif host.name in self.erred or host.cut_in_half:
                host.kill()
            host.recovers()
            host.start()
        cluster.clients_recover()
        if self.cut_for_good is not None:
            self.cut_both(*self.cut_for_good)
        cluster.note("healed")
