"""The end of a run in which all machines lose power, and one never returns or returns with a rotten disk.

One disk rots at most: anywhere in the last segment, most likely in the newest batch. All else that was acknowledged is
on a sound one, and whoever comes back sound has to be waited for no longer than the design says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.machines.host import DATA_PATH

if TYPE_CHECKING:
    from tests.simulation.faults.ground import Ground
    from tests.simulation.machines.host import SimulatedHost

NEWEST_BYTES = 400  # about a batch


def strike(ground: Ground) -> None:
    """All lose power now."""
    cluster = ground.cluster
    victim = ground.weak_host()
    assert victim is not None, "an outage needs three voters"
    for host in cluster.hosts.values():
        host.lose_power()
    if cluster.plan.outage == "absent":
        victim.wanted = False
        ground.lost.add(victim.name)
    else:
        _rot(ground, victim)
    cluster.count(f"power lost by all, one {'stays away' if ground.lost else 'rots'}")


def _rot(ground: Ground, host: SimulatedHost) -> None:
    ground.rotten = host
    for directory in sorted({name.rpartition("/")[0] for name in host.disk.names if f"{DATA_PATH}/t0-" in name}):
        segments = [name for name in host.disk.list(directory) if name.endswith(".log")]
        size = host.disk.size(path := f"{directory}/{segments[-1]}") if segments else 0
        if size:
            least = max(0, size - NEWEST_BYTES) if ground.random.random() < 0.6 else 0
            host.disk.flip_bit(path, ground.random.randrange(least, size), ground.random.randrange(8))
