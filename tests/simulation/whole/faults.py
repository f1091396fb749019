"""What befalls it: drawn from the plan's weights, one after the other, each mended after a while of its own."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.disk import Killed, PowerLoss
from tests.simulation.whole.operations import Operations

if TYPE_CHECKING:
    from tests.simulation.whole.host import Host
    from tests.simulation.whole.transacting import Transacting
    from tests.simulation.whole.workload import Workload
    from tests.simulation.whole.world import World

LATE_S = (0.05, 0.5)
LATE_TIMES = 20


class Faults:
    """See the module's text. `lost`: hosts that never return; they are at most what the cluster can spare."""

    def __init__(self, world: World, workload: Workload, transacting: Transacting) -> None:
        self._operations = Operations(world, workload)
        self._transacting = transacting
        self._world = world
        self._workload = workload
        self._random = world.random
        self.lost: set[str] = set()
        self.cut_for_good: tuple[str, str] | None = None
        self._erred: set[str] = set()
        self.rotten: Host | None = None
        self._over = False  # all is mended: what was to be mended later is not touched again

    async def rage(self, for_s: float) -> None:
        """Faults until so much time has passed."""
        world, plan = self._world, self._world.plan
        names, weights = list(plan.faults), list(plan.faults.values())
        until_s = world.now_s + for_s
        while names and world.now_s < until_s:
            await asyncio.sleep(self._random.uniform(0.1, 2.0) * plan.fault_pause_s)
            (name,) = self._random.choices(names, weights)
            world.note(f"fault: {name}")
            world.count(name)
            (getattr(self, f"_{name}", None) or getattr(self._operations, name))()

    def heal(self) -> None:
        """All that may be mended is."""
        world, self._over = self._world, True
        world.network.heal_all()
        for host in world.hosts.values():
            if host.name in self.lost:
                continue
            host.disk.calm()
            host.slow_disk(1.0)
            host.go_on()
            host.recovers()
            if host.name in self._erred:  # a replica whose disk failed is offline until its broker is started again
                host.kill()
            host.start()
        if self.cut_for_good is not None:
            self._cut_both(*self.cut_for_good)
        world.note("healed")

    def leave_enough(self, replicas: list[str]) -> bool:
        """Whether, with what is never mended, as many replicas as a write needs are heard by each other and the
        controller, whichever broker that is."""
        ends = self.cut_for_good or ("",)  # one of the two may not hear the controller: it is fenced then
        spared = [[name for name in replicas if name not in self.lost | {end}] for end in ends]
        return all(len(names) >= self._world.plan.min_in_sync for names in spared)

    # -- helpers

    def _host(self) -> Host:
        return self._random.choice([host for host in self._world.hosts.values() if host.name not in self.lost])

    def _two(self) -> tuple[str, str]:
        names = [host.name for host in self._world.hosts.values()]
        return tuple(self._random.sample(names, 2))  # type: ignore[return-value]

    def _later(self, least_s: float, most_s: float, mend: Callable[[], None]) -> None:
        self._world.loop.after(self._random.uniform(least_s, most_s), lambda: None if self._over else mend())

    def _start_later(self, host: Host, most_s: float) -> None:
        def start() -> None:
            if host.name not in self.lost:
                host.start()

        self._later(0.0, most_s, start)

    def _cut_both(self, one: str, other: str) -> None:
        self._cut_link(one, other)
        self._cut_link(other, one)

    def _cut_link(self, one: str, other: str) -> None:
        self._world.network.cut(one, other)
        for name in (one, other):
            self._world.host(name).ails("cut")

    # -- faults

    def _kill(self) -> None:
        host = self._host()
        host.kill()
        self._start_later(host, 3.0)

    def _kill_all(self) -> None:
        for host in self._world.hosts.values():
            host.kill()
            self._start_later(host, 3.0)

    def _power(self) -> None:
        host = self._host()
        host.lose_power()
        self._start_later(host, 5.0)

    def _power_all(self) -> None:
        for host in self._world.hosts.values():
            host.lose_power()
            self._start_later(host, 5.0)

    def _restart(self) -> None:
        host = self._host()
        host.stop()
        self._start_later(host, 10.0)

    def _stand_still(self) -> None:
        host = self._host()
        host.stand_still()
        host.ails("stands still")

        def mend() -> None:
            host.go_on()
            host.mends("stands still")

        self._later(0.05, 6.0, mend)

    def _late(self) -> None:
        """A loop that is late again and again."""
        host = self._host()

        async def be_late() -> None:
            for _ in range(LATE_TIMES):
                if self._over:
                    return
                host.stand_still()
                await asyncio.sleep(self._random.uniform(*LATE_S))
                host.go_on()
                await asyncio.sleep(self._random.uniform(0.0, 1.0))

        self._world.loop.create_task(be_late())

    def _cut(self) -> None:
        one, other = self._two()
        self._cut_both(one, other)
        self._later(0.1, 8.0, lambda: self._heal(one, other))

    def _heal(self, one: str, other: str) -> None:
        if self.cut_for_good is not None and {one, other} == set(self.cut_for_good):
            return
        for pair in ((one, other), (other, one)):
            if self._world.network.is_cut(*pair):
                self._world.network.heal(*pair)
        for name in (one, other):
            self._world.host(name).mends_all("cut", still=self._world.network.is_cut_off(name))

    def _cut_one_way(self) -> None:
        one, other = self._two()
        self._cut_link(one, other)
        self._later(0.1, 8.0, lambda: self._heal(one, other))

    def _isolate(self) -> None:
        """One broker from all others, not from clients."""
        host = self._host()
        others = [other.name for other in self._world.hosts.values() if other is not host]
        for other in others:
            self._cut_both(host.name, other)

        def mend() -> None:
            for other in others:
                self._heal(host.name, other)

        self._later(0.5, 8.0, mend)

    def _slow_link(self) -> None:
        one, other = self._two()
        extra_s = self._random.uniform(0.01, 0.3)
        for pair in ((one, other), (other, one)):
            self._world.network.extra_s[pair] = extra_s
            self._world.host(pair[0]).ails("slow link")

        def mend() -> None:
            for pair in ((one, other), (other, one)):
                self._world.network.extra_s.pop(pair, None)
                self._world.host(pair[0]).mends("slow link")

        self._later(0.5, 8.0, mend)

    def _reset(self) -> None:
        self._world.network.reset(*self._two())

    def _slow_disk(self) -> None:
        host = self._host()
        host.slow_disk(self._random.choice((10.0, 100.0, 1_000.0)))
        host.ails("slow disk")

        def mend() -> None:
            host.slow_disk(1.0)
            host.mends("slow disk")

        self._later(0.5, 5.0, mend)

    def _disk_error(self) -> None:
        operation = self._random.choice(("write", "fdatasync", "truncate", "rename", "open"))
        host = self._host()
        self._erred.add(host.name)
        host.ails("disk error")
        host.disk.fail(operation, errno.EIO, self._random.choice(("", "t0-0", "__cluster_metadata")))

    def _full_disk(self) -> None:
        host = self._host()
        host.disk.fill("/data")
        host.ails("full disk")

        def mend() -> None:
            host.disk.calm()
            host.mends("full disk")

        self._later(0.5, 5.0, mend)

    def _death_in_disk(self) -> None:
        self._host().disk.die_after(self._random.randrange(40), self._random.choice((Killed, PowerLoss)))

    def _kill_client(self) -> None:
        workload, world, transacting = self._workload, self._world, self._transacting
        kind = self._random.choice((workload.producers, workload.consumers, transacting.writers))
        if not kind:
            return
        name = kind.pop(self._random.randrange(len(kind)))
        world.kill_client(name)
        if kind is workload.producers:
            workload.add_producer()
        elif kind is transacting.writers:
            transacting.add_writer(name.partition("-")[0])
        else:
            workload.add_consumer()

    def _never_returns(self) -> None:
        if self.lost or self.cut_for_good:
            return
        host = self._host()
        host.wanted = False
        host.lose_power()
        self.lost.add(host.name)

    def _cut_to_the_end(self) -> None:
        if self.lost or self.cut_for_good:
            return
        self.cut_for_good = self._two()
        self._cut_both(*self.cut_for_good)

    def _alter(self) -> None:
        """Another min.insync.replicas, or flush.policy, while it runs."""
        settings = {"min.insync.replicas": self._random.choice(("1", "2"))}
        if self._random.random() < 0.5:
            settings = {"flush.policy": self._random.choice(self._world.plan.policies)}
        self._workload.alter(settings)

    def _trim(self) -> None:
        """Records are deleted, up to somewhere below what was acknowledged."""
        key = self._random.choice(list(self._workload.keys.values()))
        self._workload.trim(key, self._random.randint(0, self._workload.acknowledged_end.get(key, 0)))

    def _rot(self) -> None:
        """A bit of a copy is not what was written: of one host in a run, so that there is a good copy."""
        host = self.rotten = self.rotten or self._host()
        logs = [name for name in host.disk.names if name.startswith("/data/t0-") and name.endswith(".log")]
        if logs and (size := host.disk.size(name := self._random.choice(sorted(logs)))):
            self._erred.add(host.name)
            host.ails("rot")
            host.disk.flip_bit(name, self._random.randrange(size), self._random.randrange(8))

    def _wall_clock(self) -> None:
        host = self._host()
        host.wall_offset_us += self._random.randrange(-3_600_000_000, 3_600_000_000)
        if host.machine is not None:
            host.machine.wall_offset_us = host.wall_offset_us
