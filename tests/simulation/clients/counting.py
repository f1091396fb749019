"""A program that counts the records of topics without a schema, as `minilog.scan(...).count()` does.

V14    the headers of batches alone tell of the same records as the whole batches: each offset of a record that is
       committed, in order, none twice, and no record of an aborted transaction

It reads each range twice, and compares. What is below the last stable offset does not change. A range that a deletion
of records overtakes in between is an error for the program, and is not compared.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minilog.aio.consumer_shell import ConsumerShell
from minilog.config import parse_config
from minilog.consumer.decode import decode_all
from minilog.consumer.row_selection import RowSelection
from minilog.errors import MinilogError
from minilog.scanning.plan import make_plan
from minilog.scanning.planned import ScanRequest, length_of
from minilog.types import TopicPartition
from tests.judges.violation import Violation
from tests.simulation.clients import transacting

if TYPE_CHECKING:
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine

PAUSE_S = 0.2
TAKEN_BYTES = DECODED_BYTES = 1 << 20
WAIT_S = 1.0
WITHIN_S = 10.0  # a read whose brokers are away is given up

Offsets = dict[TopicPartition, list[int]]


class Counting:
    """The program."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._settings = workload.settings(auto_offset_reset="error")
        special = [transacting.TOPIC] if cluster.plan.writers else []
        self._topics = sorted({partition.topic for partition in workload.keys} | set(special))
        self.compared = 0
        """Records so far."""

    def begin(self) -> None:
        process, machine = self._cluster.client("counter")
        self._cluster.run_client(process, self._count_on(machine))

    async def _count_on(self, machine: ClientMachine) -> None:
        while True:
            for topic in self._topics:
                with contextlib.suppress(MinilogError, TimeoutError):
                    async with asyncio.timeout(WITHIN_S):
                        await self._compare(topic, machine)
            await asyncio.sleep(PAUSE_S)

    async def _compare(self, topic: str, machine: ClientMachine) -> None:
        """Raises Violation, or the error for which there is no answer."""
        shell = ConsumerShell(parse_config(self._settings), machine)
        try:
            plan = await make_plan(shell.cluster, ScanRequest(topic))
        finally:
            await shell.close()
        ranges = [partition for partition in plan.assigned if length_of(partition)]
        whole = await self._read(ranges, RowSelection(), machine)
        counted = await self._read(ranges, RowSelection(offsets_only=True), machine)
        for partition, offsets in whole.items():
            if counted[partition] != offsets:
                wrong = sorted(set(counted[partition]) ^ set(offsets))[:5]
                text = f"{topic}-{partition.partition} to {partition.end_offset} has {len(offsets)} records"
                raise Violation("V14", f"{text}, and the headers tell of {len(counted[partition])}: not alike {wrong}")
            self.compared += len(offsets)

    async def _read(self, ranges: Sequence[TopicPartition], selection: RowSelection, machine: ClientMachine) -> Offsets:
        found = Offsets({partition: [] for partition in ranges})
        by_number = {partition.partition: offsets for partition, offsets in found.items()}
        shell = ConsumerShell(parse_config(self._settings), machine)
        try:
            await shell.change(lambda: shell.core.select(selection))
            await shell.assign(ranges)
            while not shell.core.finished():
                number = shell.polls.begin()
                runs = await shell.take(WAIT_S, TAKEN_BYTES, selection, number)
                shell.polls.returned = number
                outcome = decode_all(runs, DECODED_BYTES)
                if outcome.corrupt or outcome.rest:
                    await shell.report(outcome)
                for run, batches in outcome.good:
                    for rows in batches:
                        by_number[run.partition.partition] += rows.column(rows.num_columns - 1).to_pylist()
        finally:
            await shell.close()
        return found
