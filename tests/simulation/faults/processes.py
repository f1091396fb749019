"""Machines and processes that die, stand still, are late, or come back otherwise than they went."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.plan import LATER
from tests.world.disk import Death, Killed, PowerLoss

if TYPE_CHECKING:
    from tests.simulation.faults.ground import Ground
    from tests.simulation.machines.host import SimulatedHost

LATE_S = (0.05, 0.5)
LATE_TIMES = 20
EARLY_S = 1.5  # of a process's life
MOST_CHANGES = 60
MOST_CALLBACKS = 300
CLOCK_JUMP_US = 3_600_000_000


class Processes:
    """What befalls processes and machines."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._random = ground.random

    def kill(self) -> None:
        host = self._ground.host()
        host.kill()
        self._ground.start_later(host, 4.0)

    def kill_all(self) -> None:
        for host in self._ground.cluster.hosts.values():
            host.kill()
            self._ground.start_later(host, 4.0)

    def power(self) -> None:
        host = self._ground.host()
        host.lose_power()
        self._ground.start_later(host, 6.0)

    def power_all(self) -> None:
        for host in self._ground.cluster.hosts.values():
            host.lose_power()
            self._ground.start_later(host, 6.0)

    def power_early(self) -> bool:
        """What a process found, and took for safe, is lost with what was not synced."""
        since_s = self._ground.cluster.now_s - EARLY_S
        host = self._ground.some_host(lambda host: host.process is not None and host.started_s > since_s)
        if host is None:
            return False
        host.lose_power()
        self._ground.start_later(host, 3.0)
        return True

    def restart(self) -> None:
        """A roll: it hands over, ends, and comes again."""
        host = self._ground.host()
        host.stop()
        self._ground.start_later(host, 10.0)

    def reconfigure(self) -> None:
        """The same, and it is configured otherwise from then on."""
        host, other = self._ground.host(), self._ground.cluster.plan.other_configs
        for name in self._random.sample(sorted(other), self._random.randint(1, 3)):
            host.configs[name] = self._random.choice(other[name])
        self._ground.cluster.note(f"{host.name} will be configured with {host.configs}")
        host.stop()
        self._ground.start_later(host, 3.0)

    def other_version(self) -> None:
        """One comes back as the other version, forth more often than back; where that cannot be, an operator sees to it
        (host.py)."""
        older = self._ground.cluster.plan.older
        of_older = self._ground.some_host(lambda host: host.levels == older)
        host = of_older if of_older is not None and self._random.random() < 0.7 else self._ground.host()
        host.levels = older if host.levels == LATER else LATER
        self._ground.cluster.note(f"{host.name} will support levels {host.levels}")
        if self._random.random() < 0.5:
            host.kill()
        else:
            host.stop()
        self._ground.start_later(host, 3.0)

    def wrong_voters(self) -> bool:
        """A process that is down is told others: the recorded ones count all the same."""
        host = self._ground.some_host(lambda host: host.process is None and self._ground.cluster_id(host) != "")
        if host is None:
            return False
        others = [number for number in self._ground.cluster.hosts if number != host.number]
        wrong = sorted({host.number, *self._random.sample(others, self._random.choice((0, 2)))})
        if wrong == list(host.voters):
            return False
        self._ground.cluster.note(f"{host.name} is started with voters {wrong}")
        host.start(wrong)
        return True

    def stand_still(self) -> None:
        host = self._ground.host()
        host.stand_still()
        self._ground.ails_for(host, "stands still", 0.05, 8.0, host.go_on)

    def late(self) -> None:
        """A loop that is late again and again."""
        host = self._ground.host()

        async def be_late() -> None:
            for _ in range(LATE_TIMES):
                if not self._ground.cluster.rages:
                    return
                host.stand_still()
                await asyncio.sleep(self._random.uniform(*LATE_S))
                host.go_on()
                await asyncio.sleep(self._random.uniform(0.0, 1.0))

        self._ground.cluster.loop.create_task(be_late())

    def wall_clock(self) -> None:
        host = self._ground.host()
        host.wall_offset_us += self._random.randrange(-CLOCK_JUMP_US, CLOCK_JUMP_US)
        if host.machine is not None:
            host.machine.wall_offset_us = host.wall_offset_us

    def death_in_disk(self) -> None:
        """In the middle of a change of its disk, some changes from now."""
        self._ground.host().disk.die_after(self._random.randrange(MOST_CHANGES), self._death())

    def death_in_effects(self) -> bool:
        """Between two steps of what it does at one moment."""
        host = self._living()
        if host is None:
            return False
        host.die_after(self._random.randrange(MOST_CALLBACKS), self._death())
        return True

    def death_of_coordinator(self) -> None:
        """The coordinator of the group with members, or of the queue, between two steps: most of what it does is to
        decide who reads."""
        self._ground.ask_who_coordinates(
            lambda host: host.die_after(self._random.randrange(MOST_CALLBACKS), self._death())
        )

    def never_returns(self) -> bool:
        ground = self._ground
        if ground.lost or ground.cut_for_good:
            return False
        host = ground.some_host(ground.can_be_spared)
        if host is None:
            return False
        host.wanted = False
        host.lose_power()
        ground.lost.add(host.name)
        return True

    def _living(self) -> SimulatedHost | None:
        return self._ground.some_host(lambda host: host.process is not None)

    def _death(self) -> type[Death]:
        return self._random.choice((Killed, PowerLoss))
