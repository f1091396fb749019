"""What befalls it: drawn from the plan's weights, one after the other, each mended after a while of its own.

ground.py      what all kinds of faults share: who is chosen, what is mended when, what may be lost
processes.py   machines and processes that die, stand still, come back otherwise
disks.py       disks that are slow, full, hang, or err
damage.py      what lies on a disk is not what was written there
forgery.py     records of one copy are others, under right checksums
links.py       the network
peers.py       requests in the name of others, and epochs from nowhere
programs.py    clients, and what they change
outage.py      the end of some runs: all lose power

A fault is a public method of one of the kinds, by its name in plan.FAULTS; it says whether it could be placed now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.clients.operations import Operations
from tests.simulation.faults.damage import Damage
from tests.simulation.faults.disks import Disks
from tests.simulation.faults.forgery import ForgedBatch, Forgery
from tests.simulation.faults.ground import Ground
from tests.simulation.faults.links import Links
from tests.simulation.faults.outage import strike
from tests.simulation.faults.peers import Peers
from tests.simulation.faults.processes import Processes
from tests.simulation.faults.programs import Programs
from tests.simulation.plan import FAULTS

if TYPE_CHECKING:
    from tests.simulation.clients.transacting import Transacting
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.host import SimulatedHost


class Faults:
    """See the module's text. `lost`: hosts that never return; they are at most what the cluster can spare."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload, transacting: Transacting) -> None:
        self._cluster = cluster
        self._ground = ground = Ground(cluster, workload, transacting)
        links = Links(ground)
        kinds = (
            Processes(ground),
            Disks(ground),
            Damage(ground),
            Forgery(ground),
            links,
            Peers(ground),
            Programs(ground),
        )
        self._by_name = {name: _method(name, (*kinds, Operations(cluster, workload))) for name in FAULTS}

    @property
    def lost(self) -> set[str]:
        return self._ground.lost

    @property
    def cut_for_good(self) -> tuple[str, str] | None:
        return self._ground.cut_for_good

    @property
    def rotten(self) -> SimulatedHost | None:
        """Whose disk has rotted; None: nobody's."""
        return self._ground.rotten

    @property
    def forged(self) -> list[ForgedBatch]:
        """The forged batches that a copy still has."""
        return [batch for batch in self._ground.forged if batch.is_there]

    def leave_enough(self, replicas: list[str]) -> bool:
        """See Ground.leave_enough."""
        return self._ground.leave_enough(replicas)

    async def rage(self, for_s: float) -> None:
        """Faults until so much time has passed."""
        cluster, plan, chance = self._cluster, self._cluster.plan, self._cluster.random
        names, weights = list(plan.faults), list(plan.faults.values())
        until_s = cluster.now_s + for_s
        while names and cluster.now_s < until_s:
            await asyncio.sleep(chance.uniform(0.1, 2.0) * plan.fault_pause_s)
            (name,) = chance.choices(names, weights)
            cluster.note(f"fault: {name}")
            if self._by_name[name]() is False:
                cluster.note(f"fault: no {name}: there is no place for one")
            else:
                cluster.count(name)
        if plan.outage:
            strike(self._ground)

    def heal(self) -> None:
        """All that may be mended is."""
        self._ground.heal()


def _method(name: str, kinds: tuple[object, ...]) -> Callable[[], bool | None]:
    (found,) = (kind for kind in kinds if hasattr(kind, name))
    method: Callable[[], bool | None] = getattr(found, name)
    return method
