"""One machine of the cluster: its disk, its wall clock, and the life that runs on it or none.

    down ── start() ──► life (recovering ─► registering ─► registered)
    life ── kill() | lose_power() | stop() (hand-over, clean) | a sentence that ends the process ──► down

A life is one process of a broker: see life.py. `Node.lives` counts them; an event names (node id, life).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minilog_broker.replication.state import PartitionKey
from tests.simulation.disk import SimulatedDisk
from tests.simulation.process import EPOCH_US

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.life import Life

DATA_PATH = "/data"


class Node:
    """See the module's text.

    `files`: the disk, read it where the node is down. `life`: None when down. `harmed`: replicas that a fault damaged
    beyond what a crash may do (a flipped bit, a failed fsync, a wiped disk), with the virtual time of it: what was on
    that copy alone is not promised. `power_on`: the machine; where it is off connections are not even refused.
    """

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.files = SimulatedDisk(node_id)
        self.life: Life | None = None
        self.lives = 0
        self.power_on = True
        self.boot = 0  # the kernel's: another one after each loss of power
        self.wall_offset_us = 0
        self.harmed: dict[PartitionKey, float] = {}
        self.ended_because: str | None = None  # why the last life ended

    @property
    def now_us(self) -> int:
        """The wall clock of this machine."""
        return EPOCH_US + int(self.cluster.now_ms * 1000.0) + self.wall_offset_us

    # -- life

    def start(self) -> None:
        """Begin a life on what the disk has, where there is none."""

    def kill(self) -> None:
        """SIGKILL: the process is gone, the page cache stays."""

    def lose_power(self) -> None:
        """The machine goes off: what was not synced may be lost, torn or there."""

    def stop(self) -> None:
        """SIGTERM: hand over, close the logs, leave the mark of a clean stop; takes a while."""

    def pause(self) -> None:
        """SIGSTOP."""

    def resume(self) -> None:
        """SIGCONT."""
