"""In the end the settings of all live brokers are those of the metadata log. Rule "settings".

What is committed is replayed here, not by the product; what a broker runs with it is asked on the wire, by a client.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from minilog.aio import Admin
from minilog.effective import Source
from minilog.errors import MinilogError
from minilog_broker.quorum.records import CommittedBatch
from tests.judges.violation import Violation
from tests.simulation.machines.identities import ADMIN

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine

ALL = -1
PAUSE_S = 0.5
WITHIN_MS = 3_000


class Settings:
    """The settings of brokers in the committed log: the value by (broker or ALL, name)."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, str], str] = {}

    def committed(self, batch: CommittedBatch) -> None:
        for record in batch.records:
            if record.HasField("broker_setting"):
                setting = record.broker_setting
                place = setting.broker_id if setting.HasField("broker_id") else ALL, setting.name
                self.kept.pop(place, None)
                if setting.HasField("value"):
                    self.kept[place] = setting.value

    def of(self, number: int) -> dict[str, str]:
        """The settings of one broker by the log."""
        of_all = {name: value for (whose, name), value in self.kept.items() if whose == ALL}
        return of_all | {name: value for (whose, name), value in self.kept.items() if whose == number}

    async def check(self, cluster: SimulatedCluster, workload: Workload) -> None:
        """Nothing befalls the cluster any more. Raises Violation."""
        process, machine = cluster.client("settings")
        checking = cluster.loop.spawn(process, self._check(cluster, workload, machine))
        await asyncio.wait([checking])
        checking.result()

    async def _check(self, cluster: SimulatedCluster, workload: Workload, machine: ClientMachine) -> None:
        deadline_s = cluster.now_s + cluster.plan.liveness_s
        async with Admin(workload.settings_of(ADMIN, request_timeout_ms=WITHIN_MS), machine) as admin:
            for number, host in cluster.hosts.items():
                while host.process is not None and (wrong := await self._wrong(admin, number)) is not None:
                    if cluster.now_s > deadline_s:
                        raise Violation("settings", wrong)
                    await asyncio.sleep(PAUSE_S)

    async def _wrong(self, admin: Admin, number: int) -> str | None:
        try:
            settings = await admin.broker_config(number)
        except MinilogError as error:
            return f"b{number} does not say what it runs with: {error}"
        runs = {setting.name: setting.value for setting in settings if setting.origin.source is Source.METADATA}
        wanted = self.of(number)
        return None if runs == wanted else f"b{number} runs with {runs}, and the metadata log says {wanted}"
