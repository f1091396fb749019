"""One read of a plan: a consumer of its own, whose runs threads decode, and which ends with the read.

Partitions come at the same time, each in the order of its offsets. What is fetched ahead is bounded by fetch.max.bytes
for each broker.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from minilog.aio.consumer_shell import POLL_ARROW_BYTES, ConsumerShell
from minilog.client_config import ClientConfig
from minilog.consumer.decode_together import decode_together
from minilog.consumer.partition import FetchedRun
from minilog.consumer.requests import name_of
from minilog.consumer.row_selection import RowSelection
from minilog.errors import TimedOut
from minilog.net.lookups import answered_offsets
from minilog.net.network_client import NetworkClient
from minilog.net.runtime import SYSTEM_RUNTIME
from minilog.scanning.plan import make_plan
from minilog.scanning.planned import ScanPlan, ScanRequest, Travelled, length_of
from minilog.scanning.shape import ScanShape
from minilog.sync.loop import LoopThread, shared_loop
from minilog.types import TopicPartition

_WAIT_S = 1.0  # of one look for runs
MOST_THREADS = 8
"""That decode. They share Python's lock for all that is no Arrow: more would wait for it."""


@dataclass(slots=True)
class Reader:
    """A consumer for one read or one plan; `close` in every case."""

    config: ClientConfig
    loop: LoopThread = field(default_factory=shared_loop)
    shell: ConsumerShell = field(init=False)

    def __post_init__(self) -> None:
        self.shell = ConsumerShell(_for_scans(self.config), SYSTEM_RUNTIME)

    def close(self) -> None:
        """From any thread, also from that of the loop: a collector of garbage may be there."""
        self.loop.post(self.shell.close)

    def plan(self, wanted: ScanRequest) -> ScanPlan:
        """See make_plan."""
        return self.loop.run(make_plan(self.shell.cluster, wanted))

    def rows(
        self, plan: ScanPlan, shape: ScanShape, travelled: Travelled | None = None
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """The rows of a plan, those of each partition in the order of their offsets. Raises OffsetOutOfRange where the
        log does not hold the range any more, UnknownTopicId, TimedOut, CorruptMessage."""
        for run, rows in self.decoded(plan.assigned, shape.selection, travelled):
            yield run.partition, shape.rows(run, rows)

    def decoded(
        self, assigned: Iterable[TopicPartition], selection: RowSelection, travelled: Travelled | None = None
    ) -> Iterator[tuple[FetchedRun, pa.RecordBatch]]:
        """The decoded rows of these ranges, as a consumer has them: with their offsets in the last column. One read
        after another is possible. Raises as `rows`."""
        wanted = [partition for partition in assigned if length_of(partition)]
        if not wanted:
            return
        self.loop.run(self.shell.change(lambda: self._begin(wanted, selection)))
        patience_s = self.config.request_timeout_ms / 1000.0
        threads = min(MOST_THREADS, len(wanted), os.cpu_count() or 1)
        deadline_s = time.monotonic() + patience_s
        with ThreadPoolExecutor(threads, thread_name_prefix="minilog-scan") as executor:
            while not self.shell.core.finished():
                runs = self.loop.run(self._take(selection))
                if runs:
                    deadline_s = time.monotonic() + patience_s
                elif time.monotonic() > deadline_s:
                    raise self._stalled(wanted, patience_s)
                yield from self._decoded(runs, executor, travelled)

    def clean_to(self, partitions: Iterable[TopicPartition]) -> dict[int, int]:
        """The offset below which compaction keeps the newest row of each key alone, of each partition, as its leader
        says. Raises TimedOut, and the error of a partition."""
        return self.loop.run(_clean_to(self.shell.cluster, list(partitions)))

    def _begin(self, wanted: list[TopicPartition], selection: RowSelection) -> None:
        self.shell.core.select(selection)
        self.shell.core.assign(wanted)

    async def _take(self, selection: RowSelection) -> list[FetchedRun]:
        number = self.shell.polls.begin()
        taken = await self.shell.take(_WAIT_S, POLL_ARROW_BYTES, selection, number)
        self.shell.polls.returned = number  # an exception ends the read: nothing has to come again
        return taken

    def _decoded(
        self, runs: list[FetchedRun], executor: Executor, travelled: Travelled | None
    ) -> Iterator[tuple[FetchedRun, pa.RecordBatch]]:
        if travelled is not None:
            for run in runs:
                travelled.add(run)
        outcome = decode_together(runs, self.shell.config.max_poll_bytes, executor)
        if outcome.corrupt or outcome.rest:
            self.loop.run(self.shell.report(outcome))
        for run, every in outcome.good:
            for rows in every:
                yield run, rows

    def _stalled(self, wanted: list[TopicPartition], patience_s: float) -> TimedOut:
        at = {partition: self.shell.core.position(partition) for partition in wanted}
        behind = next((partition for partition in wanted if at[partition] != partition.end_offset), wanted[0])
        return TimedOut(
            f"{name_of(behind)} gave nothing for {patience_s:g} s at offset {at[behind]}, before the end "
            f"{behind.end_offset} of the scan: look at the brokers, or raise request.timeout.ms"
        )


async def _clean_to(cluster: NetworkClient, partitions: list[TopicPartition]) -> dict[int, int]:
    query = await answered_offsets(cluster, dict.fromkeys(partitions, "latest"))
    return {partition.partition: query.results[partition].clean_to for partition in partitions}


def _for_scans(config: ClientConfig) -> ClientConfig:
    """A scan has no group, and what it is to read is there or is an error."""
    return dataclasses.replace(config, group_id="", auto_offset_reset="error", fetch_min_bytes=1)
