"""V14 at the end of a run with a typed topic: readers of some rows come to the end, and got all that they wanted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.judges.violation import Violation
from tests.simulation.clients.history import History, Outcome
from tests.simulation.judge.liveness import LOOK_S

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.faults import Faults
    from tests.simulation.judge.exceptions import Exceptions

LAST_READERS = 3


async def check_filtered(
    cluster: SimulatedCluster, history: History, workload: Workload, faults: Faults, exceptions: Exceptions
) -> None:
    """After the last reader has read all: of what was lost, or waits for who is gone, nobody knows where it ends.
    A reader gets its time beside that of the reads: at worst each batch is a cold read of its own."""
    readers = workload.filtered_readers()
    last = [readers.add_reader(changes=False) for _ in range(LAST_READERS)]
    ends = {key: max(history.values_of(key), default=-1) + 1 for key in workload.keys.values()}
    reads_s = sum(ends.values()) * cluster.plan.read_ms[1] / 1000.0
    deadline_s = cluster.now_s + cluster.plan.liveness_s + reads_s
    wanted = {
        key: end
        for key, end in ends.items()
        if not history.is_exempt(key)
        and _is_written(history, key)
        and faults.leave_enough(workload.replicas[key])
        and not exceptions.lost_all(key)
    }
    while True:
        behind = [(name, key) for name in last for key in wanted if readers.positions(name).get(key, 0) < wanted[key]]
        if not behind:
            break
        if cluster.now_s > deadline_s:
            name, key = behind[0]
            text = f"{name} stops at {readers.positions(name).get(key, 0)} of partition {key.partition}, and "
            raise Violation("V14", f"{text}{wanted[key]} is what others have read")
        await asyncio.sleep(LOOK_S)
    readers.check()


def _is_written(history: History, key: object) -> bool:
    return any(write.key == key and write.outcome is Outcome.OK for write in history.writes.values())
