"""Which columns a scan gives, and how they come out of what a consumer decodes. Pure.

    a topic with a schema       its columns
    a topic without one         key: binary, value: binary
    of both, where asked for    _topic: string, _partition: int32, _offset: int64, _timestamp: timestamp[us, UTC],
                                _key: binary, _headers: list<struct<key, value>>
    of deletions, where those   _deleted: bool
    of a schema are asked for

They come in the order in which the user names them; the columns of `metadata` come last, and then `_deleted`.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from minilog.consumer.partition import FetchedRun
from minilog.consumer.row_selection import RowSelection
from minilog.errors import InvalidArgument, InvalidSchema
from minilog.record_batch.schema import HEADERS, READ_SCHEMA, TIMESTAMP
from minilog.scanning.records import RecordCondition, record_condition
from minilog.typed.schema.row_form import DELETED_COLUMN

if TYPE_CHECKING:
    from minilog.typed.schema.topic_schema import TopicSchema

METADATA = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", TIMESTAMP),
        ("_key", pa.binary()),
    ]
)
"""What `metadata` asks for. `_headers` is there, too, for who names it."""
_NAMED = METADATA.append(pa.field("_headers", HEADERS))
_DELETED = pa.field(DELETED_COLUMN, pa.bool_(), nullable=False)
_RECORD = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_OF_RECORD = {"_timestamp": "timestamp", "_key": "key", "_headers": "headers"}
_OF_HEADERS = frozenset(("_topic", "_partition", "_offset"))
"""What the header of a batch tells of its records."""


@dataclass(frozen=True, slots=True)
class ScanShape:
    """Of one scan. `own`: the columns of the topic among `schema`'s, as a consumer gives them in their order.
    `condition`: the `where` of a topic without a schema, whose records this program compares."""

    schema: pa.Schema
    own: tuple[str, ...]
    selection: RowSelection
    condition: RecordCondition | None = None

    def rows(self, run: FetchedRun, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What a run was decoded to, in this shape."""
        if self.condition is not None:
            rows = rows.filter(self.condition.matches(partial(self._array, run, rows), rows.num_rows))
        if run.reader is not None and len(self.own) == len(self.schema):  # the first columns, in this order
            return rows.select(range(len(self.own)))
        arrays = [self._array(run, rows, name) for name in self.schema.names]
        if not arrays:  # a table without columns forgets how many rows it has
            return rows.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, run: FetchedRun, rows: pa.RecordBatch, name: str) -> pa.Array:
        if run.reader is not None and name in self.own:
            return rows.column(self.own.index(name))
        match name:
            case "_topic":
                return pa.repeat(pa.scalar(run.partition.topic, pa.string()), rows.num_rows)
            case "_partition":
                return pa.repeat(pa.scalar(run.partition.partition, pa.int32()), rows.num_rows)
            case "_offset":
                return rows.column(rows.num_columns - 1)
            case _ if run.reader is None:
                return rows.column(_OF_RECORD.get(name, name))
            case _:
                return rows.column(rows.schema.names.index(name))


def shape_of(
    topic: str,
    schema: TopicSchema | None,
    columns: Sequence[str] | None,
    where: str | None,
    *,
    metadata: bool,
    deletes: bool = False,
) -> ScanShape:
    """Raises InvalidArgument (InvalidSchema) for a column that is not there or is named twice, for a `where` that is no
    condition on the topic's rows, and for deletions of a topic without a schema."""
    own_schema = _own_schema(topic, schema, deletes=deletes)
    named = list(own_schema.names) if columns is None else [_spelled(topic, schema, name) for name in columns]
    names = [*named, *(name for name in METADATA.names if metadata and name not in named)]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise InvalidArgument(f"a column is named twice: {sorted(doubled)[0]}")
    own = tuple(name for name in names if name in own_schema.names)
    fields = [own_schema.field(name) if name in own else _NAMED.field(name) for name in names]
    fields += [_DELETED] if deletes else []
    if schema is None:
        condition = None if where is None else record_condition(where)
        needed = {*names, *(() if condition is None else condition.compared)}
        selection = RowSelection(offsets_only=needed <= _OF_HEADERS)
        return ScanShape(pa.schema(fields), own, selection, condition)
    if where is not None:
        _check_where(topic, schema, where)
    selection = _selection(topic, schema, own, where, set(names))
    return ScanShape(pa.schema(fields), own, replace(selection, deletions=deletes))


def _own_schema(topic: str, schema: TopicSchema | None, *, deletes: bool) -> pa.Schema:
    """The columns of the topic. In a deletion all but those of the key are null."""
    if schema is None:
        if deletes:
            raise InvalidArgument(
                f"topic {topic!r} has no schema: a deletion is a record with a key and without a value. Scan it "
                "without deletes"
            )
        return _RECORD
    if not deletes:
        return schema.arrow_schema
    RowSelection(deletions=True).wants_deletions(schema)
    keys = schema.key_columns
    return pa.schema([field if field.name in keys else field.with_nullable(True) for field in schema.arrow_schema])


def check_keyed(topic: str, schema: TopicSchema | None) -> None:
    """Raises InvalidArgument where rows of the topic never have a key."""
    if schema is not None and not schema.key_columns:
        raise InvalidArgument(
            f"the schema of topic {topic!r} has no key columns, and view=latest gives the newest row of each key: read "
            "the topic without it, or create a topic with key columns"
        )


def _selection(
    topic: str, schema: TopicSchema, own: tuple[str, ...], where: str | None, names: AbstractSet[str]
) -> RowSelection:
    """The selection of what is given. All columns, in their order, are selected as such: then stored batches go as they
    are."""
    extras = names - set(own)
    return RowSelection(
        None if own == schema.names and where is None else own,
        where,
        timestamps="_timestamp" in extras,
        keys="_key" in extras,
        headers="_headers" in extras,
        schemas={topic: schema},
    )


def _check_where(topic: str, schema: TopicSchema, where: str) -> None:
    """Raises InvalidArgument."""
    from minilog.typed.conditions.where import parse_where  # its parser takes 0.1 s to load

    try:
        parse_where(where, schema)
    except InvalidSchema as error:
        if not any(name in where.lower() for name in _NAMED.names):
            raise
        raise InvalidArgument(
            f"{error}. The where of topic {topic!r} compares the columns of its schema: for places in the log give "
            "start, end and partitions, and filter the rows that the scan gives by any other metadata"
        ) from error


def _spelled(topic: str, schema: TopicSchema | None, name: str) -> str:
    """As the topic spells it; Spark, whose rules columns follow, does not tell upper from lower case."""
    if schema is None:
        if name in READ_SCHEMA.names[:2] or name in _NAMED.names:
            return name
        raise InvalidArgument(
            f"topic {topic!r} has no schema, and no column {name!r}: it has key, value, {', '.join(_NAMED.names)}"
        )
    if name in _NAMED.names and name not in schema.names:
        return name
    return schema.column_as_spark(name).name
