"""What a scrub sets aside is damaged, or differs: a sound copy stays (DK.4).

The faults of a run touch a copy by flips of bits alone, forged batches too, so a copy without any flip is sound. Errors
of a disk are its own, and a copy that cannot be read is set aside, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.judges.violation import Violation
from tests.world.loop import PROCESS

if TYPE_CHECKING:
    from tests.simulation.cluster import SimulatedCluster

FOUND = "the scrub found a damaged or differing copy"
_DISK_ERROR = "[Errno"


class Scrubbing:
    """Hears of each copy that a broker's scrub sets aside."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        cluster.listeners.append(self._hear)

    def _hear(self, event: Mapping[str, Any]) -> None:
        process = PROCESS.get()
        if event.get("event") != FOUND or process is None or _DISK_ERROR in event["error"]:
            return
        self._cluster.count("a scrub set a copy aside")
        flips = self._cluster.host(process.name).disk.flips
        if not any(path.startswith(f"{event['log']}/") for path, _, _ in flips):
            self._cluster.fail(Violation("DK.4", f"{process.name} sets {event['log']} aside, and the copy is sound"))
