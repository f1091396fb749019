"""Programs whose writes bring new columns, as Spark's mergeSchema does: a version of the schema is pending until the
write is committed, and goes with it.

    begins     a transaction, and a version that is pending
    writes     rows by that version
    commits    it confirms the version first, so it is the latest one
    aborts     it withdraws the version
    dies       at any time. Its next life ends the transaction. The next version withdraws the one that it left pending

V15            a reader of what is committed sees each write as a whole or not at all. It sees none whose program did
               not confirm the version, and none that was aborted
typed          a new version has no column but its own, and those that were confirmed
judge/schemas  which version may be the latest, and what a withdrawn one leaves
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from minilog import schema_from_ddl
from minilog.aio import Admin, Consumer, Producer
from minilog.errors import InvalidUpdateVersion, MinilogError, OffsetOutOfRange
from minilog.typed.schema.evolution import add_column, rejoined
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.types import SchemaStep, TopicAlteration, TopicPartition
from tests.judges.violation import Violation

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.faults import Faults
    from tests.simulation.machines.machine import ClientMachine

TOPIC = "v0"
SCHEMA = schema_from_ddl("label string not null, row int not null", [], None)
MOST_ROWS = 4
ABORTED_SHARE, DIES_SHARE, REPEATED_SHARE = 0.3, 0.25, 0.2
TIMEOUT_MS = 4_000
LOOK_S, PAUSE_S = 0.25, 0.1


class _Abort(Exception):
    """The program's own."""


@dataclass(slots=True)
class _Proposed:
    """One write. `confirms`: its version was asked to be the latest. `ended`: whether it is committed, where that is
    known. `seen`: its rows that were read."""

    rows: int
    confirms: bool = False
    ended: bool | None = None
    seen: set[int] = field(default_factory=set)


class Proposing:
    """The programs of one run, and their reader."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload
        self._writes: dict[str, _Proposed] = {}
        self._number = 0
        self._columns: dict[str, _Proposed] = {}

    def begin(self) -> None:
        for number in range(self._cluster.plan.proposing):
            self._start(f"proposes-{number}")
        self._add_reader()

    # -- writing

    def _start(self, transactional_id: str) -> None:
        """A new life of a program."""
        self._number += 1
        process, machine = self._cluster.client(f"{transactional_id}-{self._number}")
        self._cluster.run_client(process, self._write_on(transactional_id, process.name, machine))

    async def _write_on(self, transactional_id: str, name: str, machine: ClientMachine) -> None:
        chance = machine.chance()
        settings = self._workload.settings(
            transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS, delivery_timeout_ms=TIMEOUT_MS
        )
        if chance.random() < DIES_SHARE * 2:
            self._cluster.loop.after(chance.expovariate(1.0 / 1.5), lambda: self._kill(transactional_id, name))
        while self._workload.writing:
            with contextlib.suppress(MinilogError):
                async with (
                    Producer(settings, machine) as producer,
                    Admin(self._workload.settings(request_timeout_ms=3_000), machine) as admin,
                ):
                    while self._workload.writing:
                        await self._write(name, producer, admin, machine)
                        await asyncio.sleep(chance.expovariate(1.0 / PAUSE_S))
            await asyncio.sleep(PAUSE_S)

    def _kill(self, transactional_id: str, name: str) -> None:
        if not self._cluster.rages or name not in self._cluster.clients:
            return
        self._cluster.count("a program with a pending version is killed")
        self._cluster.kill_client(name)
        self._cluster.loop.after(PAUSE_S, lambda: self._start(transactional_id))

    async def _write(self, name: str, producer: Producer, admin: Admin, machine: ClientMachine) -> None:
        """One write, as the driver and a task of Spark's sink do it."""
        chance = machine.chance()
        self._number += 1
        label, column = f"{name}/{self._number}", f"c{self._number}"
        write = self._writes[label] = self._columns[column] = _Proposed(chance.randint(1, MOST_ROWS))
        version: TopicSchema | None = None
        try:
            async with producer.transaction():
                version = await admin.evolve_schema(TOPIC, lambda base: _with(base, column), is_pending=True)
                self._check_columns(version, column)
                rows = {"label": [label] * write.rows, "row": list(range(write.rows)), column: [1] * write.rows}
                table = pa.table(
                    {each: rows.get(each, [None] * write.rows) for each in version.names}, version.arrow_schema
                )
                partition = chance.randrange(self._cluster.plan.partitions)
                written = await producer.send_batch(TOPIC, table, partition, schema=version)
                await producer.flush()
                await written
                await asyncio.sleep(chance.choice((0.0, 0.0, 0.1, 0.5)))
                if chance.random() < ABORTED_SHARE:
                    raise _Abort
                write.confirms = True
                for _ in range(1 + (chance.random() < REPEATED_SHARE)):
                    await self._confirm(admin, version)
        except (_Abort, MinilogError) as error:
            if isinstance(error, _Abort):
                write.ended = False
                self._cluster.count("a write with a pending version is aborted")
                self._check_unseen(label)
            if version is not None:
                withdrawn = TopicAlteration(TOPIC, schema=version, schema_step=SchemaStep.WITHDRAWN)
                with contextlib.suppress(MinilogError):
                    await admin.alter_topics([withdrawn])
            if not isinstance(error, _Abort):
                raise
        else:
            write.ended = True
            self._cluster.count("a write with a pending version is committed")

    async def _confirm(self, admin: Admin, version: TopicSchema) -> None:
        try:
            await admin.alter_topics([TopicAlteration(TOPIC, schema=version)])
        except InvalidUpdateVersion:  # another version was made since
            schemas = (await admin.describe_topics([TOPIC]))[0].schemas
            if not isinstance(schemas, TopicSchemas) or version.version not in schemas.withdrawn:
                raise
            self._cluster.count("the columns of a version that was withdrawn come back")
            await admin.evolve_schema(TOPIC, rejoined(schemas, version.version))

    def _check_columns(self, version: TopicSchema, own: str) -> None:
        others = [name for name in version.names if name in self._columns and name != own]
        if wrong := [name for name in others if not self._columns[name].confirms]:
            raise Violation("typed", f"version {version.version} has {wrong[0]}, and its program has not confirmed it")

    # -- reading

    def _add_reader(self) -> None:
        process, machine = self._cluster.client("reads-proposed")
        self._cluster.run_client(process, self._read_on(machine))

    async def _read_on(self, machine: ClientMachine) -> None:
        settings = self._workload.settings(
            isolation_level="read_committed", auto_offset_reset="earliest", metadata_max_age_ms=300
        )
        partitions = range(self._cluster.plan.partitions)
        async with Consumer(settings, machine) as consumer:
            await consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in partitions])
            while True:
                try:
                    batches = await consumer.poll_arrow(0.5, columns=["label", "row"])
                except OffsetOutOfRange as error:
                    raise Violation("V14", str(error)) from error
                for batch in batches:
                    for row in batch.to_pylist():
                        self._saw(row["label"], row["row"])

    def _saw(self, label: str, row: int) -> None:
        write = self._writes[label]
        if row in write.seen:
            raise Violation("V15", f"row {row} of {label} is read twice")
        write.seen.add(row)
        if not write.confirms:
            raise Violation("V15", f"{label} is read, and its program has not confirmed the version of its rows")
        self._check_unseen(label)

    def _check_unseen(self, label: str) -> None:
        write = self._writes[label]
        if write.ended is False and write.seen:
            raise Violation("V15", f"{label} was aborted, and {len(write.seen)} of its rows are read")

    def missing(self) -> str | None:
        """A write that is committed, or was seen in part, and not seen as a whole."""
        for label, write in self._writes.items():
            if (write.ended or write.seen) and len(write.seen) < write.rows:
                return f"of {label} {len(write.seen)} of {write.rows} rows are read, committed: {write.ended}"
        return None


def _with(schema: TopicSchema, column: str) -> TopicSchema:
    """The schema with the column. A run that comes again finds it there."""
    return schema if column in schema.names else add_column(schema, Field(column, Primitive("int")))


async def check_proposing(cluster: SimulatedCluster, proposing: Proposing, faults: Faults) -> None:
    """The reader comes to the end of what is committed."""
    if faults.lost or faults.cut_for_good:
        return  # markers may wait for who is gone
    deadline_s = cluster.now_s + cluster.plan.liveness_s
    while (missing := proposing.missing()) is not None:
        if cluster.now_s > deadline_s:
            raise Violation("V15", missing)
        await asyncio.sleep(LOOK_S)
