"""The topic of a plan that is typed: rows are written by the version that a producer knows, the schema evolves
meanwhile, and each row that is read has the columns that it was written with, by field id.

The rows of a compacted topic have keys of a small set. Some delete their key: such a row has nothing but its key
columns, so its value is in a header.

What filtered readers have to see is in filtered_reading.py.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from minilog.aio import Consumer, Producer
from minilog.net.runtime import now_ms
from minilog.producer.typed_rows import checked_row
from minilog.typed.rows.reader import TypedSelection
from minilog.typed.schema.evolution import (
    add_column,
    drop_column,
    loosen_column,
    move_column,
    rename_column,
    widen_column,
)
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.types import Record, TopicPartition
from tests.judges.keyed_records import IDENTITY, value_in
from tests.judges.violation import Violation
from tests.simulation.clients.keyed import identity_of
from tests.simulation.clients.rows import (
    NUMBER,
    PART,
    SHARD,
    WORD,
    Columns,
    column_value,
    deletes,
    first_schema,
    key_values,
    keyed_schema,
    number_of,
    value_of,
)

if TYPE_CHECKING:
    from minilog.consumer.decode import DecodedRuns
    from minilog.consumer.row_selection import RowSelection
    from tests.simulation.cluster import SimulatedCluster

BATCH_SHARE, MOST_ROWS = 0.25, 6
AS_RECORDS_SHARE, PROJECTED_SHARE = 0.3, 0.5
NEVER_MADE = 50  # so many versions ahead
_WIDER = {"int": "long", "float": "double"}
_KINDS = ("add", "add", "add", "again", "rename", "rename", "widen", "widen", "drop", "drop", "move", "loosen")


@dataclass(frozen=True, slots=True)
class _Written:
    """What a row was given, by the names of the schema that its writer knew; and the versions that it may have been
    written by: mostly one, more where its producer heard of another while it took the row."""

    names: dict[str, Any]
    versions: tuple[TopicSchema, ...]

    def columns(self) -> list[Columns]:
        return [
            {each.id: self.names[each.name] for each in version.fields if each.name in self.names}
            for version in self.versions
        ]


class TypedTopic:
    """See the module's text. Of one run."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._written: dict[bytes, _Written] = {}
        self._values: dict[int, bytes] = {}  # by number
        self._dropped: list[str] = []
        chance = random.Random(f"typed {cluster.seed}")
        has_key, has_timestamp = chance.random() < 0.7, chance.random() < 0.5
        self.is_keyed = cluster.plan.compacted
        self.schema = first_schema(has_key=has_key, has_timestamp=has_timestamp)
        if self.is_keyed:
            self.schema = keyed_schema(has_shard=has_key, has_timestamp=has_timestamp)
        self._names = 0

    # -- writing

    def count(self, chance: random.Random) -> int:
        """So many rows go out together. Deletions go out one by one: a header belongs to one row."""
        return chance.randint(2, MOST_ROWS) if chance.random() < BATCH_SHARE else 1

    async def send(self, producer: Producer, at: TopicPartition, values: Sequence[bytes]) -> asyncio.Future[Any]:
        """One row, or one batch of several; by the newest version that the producer knows. Raises as it does."""
        known = await producer._topic(at.topic, producer._deadline(), at.partition)
        assert known.schemas is not None
        schema = known.schemas.latest
        is_deletion = self.is_keyed and len(values) == 1 and deletes(values[0])
        rows = [self._row(schema, value, deletes=is_deletion) for value in values]
        self._keep(values, rows, (schema,))
        future: asyncio.Future[Any]
        if is_deletion:
            headers = [(IDENTITY, values[0])]
            future = await producer.delete(at.topic, rows[0], partition=at.partition, headers=headers)
        elif len(rows) == 1:
            future = await producer.send(at.topic, rows[0], partition=at.partition)
        else:
            columns = {name: [row[name] for row in rows] for name in schema.names}
            future = await producer.send_batch(at.topic, pa.table(columns, schema.arrow_schema), at.partition)
        heard = producer._shell.cluster.cache.topics[at.topic].schemas
        if heard is not None and heard.latest.version > schema.version:
            self._keep(values, rows, heard.versions[schema.version - 1 :])
        return future

    def _row(self, schema: TopicSchema, value: bytes, *, deletes: bool = False) -> dict[str, Any]:
        key = key_values(value) if self.is_keyed else {}
        if deletes:
            return {name: key[schema.column(name).id] for name in schema.key_columns}
        return {
            each.name: key[each.id] if each.id in key else column_value(each, value, self._cluster.now_s)
            for each in schema.fields
        }

    def _keep(self, values: Sequence[bytes], rows: Sequence[dict[str, Any]], versions: tuple[TopicSchema, ...]) -> None:
        for value, row in zip(values, rows, strict=True):
            self._written[value] = _Written(row, versions)
            self._values[number_of(value)] = value

    async def lie(self, producer: Producer, at: TopicPartition, value: bytes) -> asyncio.Future[Any]:
        """A row by a version that nobody has made."""
        known = await producer._topic(at.topic, producer._deadline(), at.partition)
        assert known.schemas is not None
        schema = replace(known.schemas.latest, version=known.schemas.latest.version + NEVER_MADE)
        wrong = replace(known, told_schemas=TopicSchemas((schema,)))
        self._keep([value], [self._row(schema, value)], (schema,))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        _, row = checked_row(wrong, self._row(schema, value), None, None)
        shell = producer._shell
        stamp_us = shell.cluster.runtime.wall_us()
        shell.accumulator.append(
            wrong, at.partition, row.key, row.values, None, stamp_us, future, now_ms(), schema, row.size_bytes
        )
        shell.wake()
        return future

    # -- evolving

    def change(self, chance: random.Random) -> Any:
        """A function of what the schema is then to what it shall be. It is the same for the same schema."""
        kind, seed = chance.choice(_KINDS), chance.getrandbits(32)
        self._names += 1
        name = f"name_{self._names}"

        def changed(schema: TopicSchema) -> TopicSchema:
            return self._changed(schema, kind, name, random.Random(seed))

        return changed

    def _changed(self, schema: TopicSchema, kind: str, name: str, chance: random.Random) -> TopicSchema:
        narrow = [each.name for each in schema.fields if str(each.type) in _WIDER]
        own = [each.name for each in schema.fields if each.id > len(self.schema.fields)]
        if kind == "rename":
            return rename_column(schema, chance.choice(schema.names), name)
        if kind == "move":
            return move_column(schema, chance.choice(schema.names[1:]), after=chance.choice(("first", schema.names[0])))
        if kind == "loosen":
            return loosen_column(schema, next(each.name for each in schema.fields if each.id == NUMBER))
        if kind == "widen" and narrow:
            column = schema.column(chance.choice(narrow))
            return widen_column(schema, column.name, Primitive(_WIDER[str(column.type)]))
        if kind == "drop" and own:
            dropped = chance.choice(own)
            self._dropped.append(dropped)
            return drop_column(schema, dropped)
        again = [each for each in self._dropped if each not in schema.names]
        if kind == "again" and again:
            name = chance.choice(again)
        new = Field(name, Primitive(chance.choice(("string", "int", "float"))))
        return add_column(schema, new, after=chance.choice(("first", "last", schema.names[0])))

    # -- reading

    def possible(self, value: bytes) -> list[Columns]:
        """What the row of a value may hold: mostly one."""
        found = self._written.get(value)
        return [] if found is None else found.columns()

    def is_row(self, client: str, selection: TypedSelection, row: dict[str, Any]) -> bytes:
        """The value of a row that was read; its columns are those that were written. Raises Violation."""
        by_id = {each.id: row[each.name] for each in selection.fields}
        if row.get("_deleted"):
            value = value_in((each["key"], each["value"]) for each in row["_headers"] or ())
        else:
            value = value_of(by_id[WORD]) if WORD in by_id else self._values.get(by_id[NUMBER], b"?:-1")
        possible = self.possible(value)
        wanted = [{each: columns.get(each) for each in by_id} for columns in possible]
        if possible and by_id not in wanted:
            raise Violation("V14", f"{client} reads {by_id} of {value!r}, which was written as {wanted}")
        if "_key" in row:
            ids = [selection.schema.column(name).id for name in selection.schema.key_columns]
            keys = [key_bytes([columns.get(each) for each in ids]) for columns in possible]
            if possible and row["_key"] not in keys:
                raise Violation("V14", f"{client} reads the key {row['_key']!r} of {value!r}, it is {keys}")
        return value

    def deletion(self, client: str, record: Record) -> bytes:
        """The value of a deletion that was read as a record. Raises Violation."""
        value, wanted = identity_of(record), key_values(identity_of(record))
        key = key_bytes([wanted[each] for each in (PART, SHARD)[: len(self.schema.key_columns)]])
        if value not in self._written or not deletes(value) or record.key != key:
            raise Violation("V14", f"{client} reads a deletion of {record.key!r}, {value!r} deletes {key!r}")
        return value

    def reader(self, name: str, consumer: TellingConsumer, chance: random.Random) -> WholeReader:
        return WholeReader(self, name, consumer, chance)


class TellingConsumer(Consumer):
    """The client that ships; it says by which version it read what it gives, and all that it went over."""

    selections: Sequence[TypedSelection] = ()
    readings: Sequence[TypedSelection] = ()
    _selected: RowSelection | None = None
    _began: dict[bytes, list[tuple[int, str]]]  # by topic id: the columns that it began with

    async def _take(
        self,
        timeout: float,  # noqa: ASYNC109
        max_bytes: int,
        selection: RowSelection,
        record_bytes: int = 0,
    ) -> tuple[int, DecodedRuns]:
        number, taken = await super()._take(timeout, max_bytes, selection, record_bytes)
        readers = [run.reader for run, found in taken for _ in found]
        self.selections = [each.selection for each in readers if each is not None]
        self.readings = [run.reader.selection for run, _ in taken if run.reader is not None]
        self._check_columns(selection, taken)
        return number, taken

    def _check_columns(self, selection: RowSelection, taken: DecodedRuns) -> None:
        """V14: a program that goes on asking for the same gets the same columns, whatever is evolved meanwhile."""
        if selection != self._selected:
            self._selected, self._began = selection, {}
        for run, _ in taken:
            if run.reader is not None:
                columns = [(each.id, each.name) for each in run.reader.selection.fields]
                if self._began.setdefault(run.key.topic_id, columns) != columns:
                    began = self._began[run.key.topic_id]
                    raise Violation("V14", f"a reader began with the columns {began}, and is handed {columns}")


def key_bytes(values: Sequence[Any]) -> bytes | None:
    """The key of a row, by its key columns, as client/minilog/typed/rows/keys.py says: of texts and of integers."""
    parts = [None if each is None else each.encode() if isinstance(each, str) else each.to_bytes(8) for each in values]
    if len(parts) < 2:
        return parts[0] if parts else None
    return b"".join(struct.pack(">i", -1 if part is None else len(part)) + (part or b"") for part in parts)


async def latest_schema(consumer: Consumer, topic: str) -> TopicSchema:
    """The newest that a reader knows. Raises MinilogError."""
    found = await consumer._shell.cluster.topic(topic, consumer._shell.cluster.deadline())
    assert found.schemas is not None
    return found.schemas.latest


def projected(schema: TopicSchema, chance: random.Random) -> list[str]:
    """Some columns in any order; one of them tells which row it is."""
    others = [each.name for each in schema.fields if each.id not in (WORD, NUMBER)]
    told = schema.by_id[chance.choice((WORD, NUMBER))].name
    names = [told, *chance.sample(others, chance.randint(0, len(others)))]
    chance.shuffle(names)
    return names


def as_records(topic: TypedTopic, name: str, batches: Iterable[tuple[pa.RecordBatch, TypedSelection]]) -> list[Record]:
    """Rows that were read, looked at: each as a record with the value that the history judges by."""
    found = []
    for batch, selection in batches:
        for row in batch.to_pylist():
            value = topic.is_row(name, selection, row)
            found.append(Record(row["_topic"], row["_partition"], row["_offset"], 0, row["_key"], value, []))
    return found


class WholeReader:
    """Reads all rows: as records, with all columns, or with some."""

    def __init__(self, topic: TypedTopic, name: str, consumer: TellingConsumer, chance: random.Random) -> None:
        self._topic = topic
        self._name = name
        self._consumer = consumer
        self._chance = chance
        drawn = chance.random()
        self._kind = "records" if drawn < AS_RECORDS_SHARE else "some" if drawn < PROJECTED_SHARE else "all"
        self._columns: list[str] | None = None

    async def poll(self, timeout_s: float) -> list[Record]:
        """As a consumer's, and each row is looked at. Raises Violation."""
        if self._kind == "records":
            return [self._record(each) for each in await self._consumer.poll(timeout_s)]
        if self._kind == "some" and self._columns is None:
            at = self._consumer.assignment()[0]
            self._columns = projected(await latest_schema(self._consumer, at.topic), self._chance)
        batches = await self._consumer.poll_arrow(
            timeout_s,
            columns=self._columns,
            metadata=True,
            include_headers=self._topic.is_keyed,
            deletes=self._topic.is_keyed,
        )
        return as_records(self._topic, self._name, zip(batches, self._consumer.selections, strict=True))

    def choose_again(self) -> None:
        """A column that was asked for is not there any more, or has another name."""
        self._columns = None

    def _record(self, record: Record) -> Record:
        """A row as JSON, by one of the versions that this poll was read by: its word and its number are one row's."""
        if record.value is None:
            return record._replace(value=self._topic.deletion(self._name, record))
        row = json.loads(record.value)
        for schema in [each.schema for each in self._consumer.selections]:
            if list(row) == list(schema.names):
                value = value_of(row[schema.by_id[WORD].name])
                if row[schema.by_id[NUMBER].name] == number_of(value):
                    return record._replace(value=value)
        versions = [each.schema.names for each in self._consumer.selections]
        raise Violation("V14", f"{self._name} reads {row}, by one of the versions that have {versions}")
