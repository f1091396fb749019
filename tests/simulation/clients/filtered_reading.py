"""Readers that want some rows of a typed topic: what each has to see is known from what others read.

V14    a filtered reader is handed the rows for which its condition is true, in offset order, none twice, none missing;
       its position goes over the others
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minilog.errors import CorruptMessage, InvalidArgument, InvalidSchema, NarrowSchemaVersion, OffsetOutOfRange
from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from tests.judges.violation import Violation
from tests.simulation.clients.rows import Condition, as_sql, drawn_condition, ids_of, truth
from tests.simulation.clients.typed_topic import TellingConsumer, TypedTopic, as_records, latest_schema, projected

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema
    from tests.simulation.clients.history import History
    from tests.simulation.clients.workload import Workload
    from tests.simulation.cluster import SimulatedCluster
    from tests.simulation.machines.machine import ClientMachine

SEEKS_BACK_SHARE, OTHER_CONDITION_SHARE = 0.02, 0.03  # of polls


@dataclass(slots=True)
class Stretch:
    """Offsets of a partition that one reader went over under one condition: [start, end), and what it was handed."""

    client: str
    key: PartitionKey
    condition: Condition
    start: int
    end: int
    handed: set[int] = field(default_factory=set)


def _is_meant(condition: Condition, text: str, schema: TopicSchema) -> bool:
    """Whether the text says by this version what the condition says by ids."""
    return ids_of(condition) <= schema.by_id.keys() and as_sql(condition, schema) == text


class FilteredReading:
    """All filtered readers of one run."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload, history: History, topic: TypedTopic) -> None:
        self._cluster = cluster
        self._workload = workload
        self._history = history
        self._topic = topic
        self._count = 0
        self._stretches: list[Stretch] = []
        self._current: dict[tuple[str, PartitionKey], Stretch] = {}

    def add_reader(self, *, changes: bool = True) -> str:
        """One that begins at the beginning, and `changes` what it wants now and then."""
        self._count += 1
        name = f"f{self._count}"
        process, machine = self._cluster.client(name)
        self._cluster.run_client(process, self._read_on(name, machine, changes=changes))
        return name

    def positions(self, name: str) -> Mapping[PartitionKey, int]:
        """How far it has come."""
        return {key: stretch.end for (client, key), stretch in self._current.items() if client == name}

    async def _read_on(self, name: str, machine: ClientMachine, *, changes: bool) -> None:
        """Where what it wants is gone it begins anew, and is told so only where something was lost."""
        chance = machine.chance()
        while True:
            try:
                await self._read(name, machine, chance, changes=changes)
            except OffsetOutOfRange as error:
                if not any(self._history.is_exempt(key) for key in self._workload.keys.values()):
                    raise Violation("V14", str(error)) from error
            except (CorruptMessage, NarrowSchemaVersion) as error:
                raise Violation("V14", f"{name} cannot read on: {error}") from error

    async def _read(self, name: str, machine: ClientMachine, chance: random.Random, *, changes: bool) -> None:
        keys = self._workload.keys
        settings = self._workload.settings(
            auto_offset_reset="earliest",
            fetch_max_bytes=chance.choice((2_000, 20_000)),
            metadata_max_age_ms=chance.choice((500, 5_000)),
        )
        async with TellingConsumer(settings, machine) as consumer:
            await consumer.assign([TopicPartition(at.topic, at.partition, 0) for at in keys])
            topic = next(iter(keys)).topic
            chosen: tuple[Condition, str, list[str] | None] | None = None
            while True:
                if chosen is None or (changes and chance.random() < OTHER_CONDITION_SHARE):
                    schema = await latest_schema(consumer, topic)
                    condition = drawn_condition(schema, chance, self._workload.written)
                    columns = projected(schema, chance) if chance.random() < 0.5 else None
                    chosen = condition, as_sql(condition, schema), columns
                    self._begin_all(name, consumer, condition)
                if changes and chance.random() < SEEKS_BACK_SHARE:
                    await self._seek_back(name, consumer, chance)
                try:
                    batches = await consumer.poll_arrow(1.0, columns=chosen[2], where=chosen[1], metadata=True)
                except (InvalidArgument, InvalidSchema) as error:
                    self._cluster.note(f"{name}: {error}")
                    chosen = None  # columns have other names by now
                    continue
                if not all(_is_meant(chosen[0], chosen[1], each.schema) for each in consumer.readings):
                    chosen = None  # a name of the where is another column's by now: nobody asked for that
                    continue
                for each in as_records(self._topic, name, zip(batches, consumer.selections, strict=True)):
                    key = keys[TopicPartition(each.topic, each.partition)]
                    self._handed(self._current[name, key], each.offset, each.value or b"")
                for at, key in keys.items():
                    self._went_on(self._current[name, key], consumer.position(at))

    def _begin_all(self, name: str, consumer: TellingConsumer, condition: Condition) -> None:
        for at, key in self._workload.keys.items():
            self._begin(name, key, condition, consumer.position(at) or 0)

    def _begin(self, name: str, key: PartitionKey, condition: Condition, offset: int) -> None:
        stretch = Stretch(name, key, condition, offset, offset)
        self._stretches.append(stretch)
        self._current[name, key] = stretch

    async def _seek_back(self, name: str, consumer: TellingConsumer, chance: random.Random) -> None:
        at = chance.choice(list(self._workload.keys))
        stretch = self._current[name, self._workload.keys[at]]
        offset = chance.randint(0, stretch.end)
        self._begin(name, stretch.key, stretch.condition, offset)
        await consumer.seek(at, offset)

    def _handed(self, stretch: Stretch, offset: int, value: bytes) -> None:
        if self._history.is_exempt(stretch.key):
            return
        client, key = stretch.client, stretch.key
        if offset < stretch.end:
            raise Violation("V14", f"{client} is handed {offset}, and is at {stretch.end} already")
        if all(truth(stretch.condition, columns) is not True for columns in self._topic.possible(value)):
            raise Violation("V14", f"{client} is handed {value!r}, and wants {stretch.condition}")
        stretch.handed.add(offset)
        stretch.end = offset + 1
        self._history.read_by_chance(client, key, offset, value)

    def _went_on(self, stretch: Stretch, position: int | None) -> None:
        if position is not None:
            stretch.end = max(stretch.end, position)

    def check(self) -> None:
        """Whether each was handed all that it wanted of what it went over, as far as is known by now."""
        for stretch in self._stretches:
            key, gone = stretch.key, self._workload.may_be_gone(stretch.key)
            if self._history.is_exempt(key):
                continue
            for offset, value in self._history.values_of(key).items():
                if not max(stretch.start, gone) <= offset < stretch.end or offset in stretch.handed:
                    continue
                possible = self._topic.possible(value)
                if possible and all(truth(stretch.condition, columns) for columns in possible):
                    text = f"{stretch.client} went from {stretch.start} to {stretch.end}, wants {stretch.condition}, "
                    raise Violation("V14", f"{text}and was not handed {value!r} at {offset}: {possible}")
