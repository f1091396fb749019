"""Which columns a scan gives, and how they come out of what a consumer decodes. Pure.

    a topic with a schema       its columns
    a topic without one         key: binary, value: binary
    of both, where asked for    _topic: string, _partition: int32, _offset: int64, _timestamp: timestamp[us, UTC],
                                _key: binary, _headers: list<struct<key, value>>

They come in the order in which they are asked for; the columns of `metadata` come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from minilog.consumer.partition import FetchedRun
from minilog.consumer.row_selection import RowSelection
from minilog.errors import InvalidArgument
from minilog.record_batch.schema import HEADERS, READ_SCHEMA, TIMESTAMP

if TYPE_CHECKING:
    from minilog.typed.topic_schema import TopicSchema

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
_RECORD = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_OF_RECORD = {"_timestamp": "timestamp", "_key": "key", "_headers": "headers"}


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one scan. `own`: the columns of the topic among `schema`'s, as a consumer gives them in their order."""

    schema: pa.Schema
    own: tuple[str, ...]
    selection: RowSelection

    def rows(self, run: FetchedRun, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What a run was decoded to, in this shape."""
        arrays = [self._array(run, rows, name) for name in self.schema.names]
        if not arrays:  # a table without columns forgets how many rows it has
            return rows.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, run: FetchedRun, rows: pa.RecordBatch, name: str) -> pa.Array:
        if name in self.own:
            return rows.column(self.own.index(name) if run.reader is not None else name)
        match name:
            case "_topic":
                return pa.repeat(pa.scalar(run.partition.topic, pa.string()), rows.num_rows)
            case "_partition":
                return pa.repeat(pa.scalar(run.partition.partition, pa.int32()), rows.num_rows)
            case "_offset":
                return rows.column(rows.num_columns - 1)
            case _:
                return rows.column(_OF_RECORD[name] if run.reader is None else rows.schema.names.index(name))


def shape_of(
    topic: str,
    schema: TopicSchema | None,
    columns: Sequence[str] | None,
    where: str | None,
    *,
    metadata: bool,
) -> Shape:
    """Raises InvalidArgument (InvalidSchema) for a column that is not there or is named twice, and for a `where` of a
    topic without a schema."""
    own_schema = _RECORD if schema is None else schema.arrow_schema
    if schema is None and where is not None:
        raise InvalidArgument(f"topic {topic!r} has no schema: it has no columns to compare; leave the where out")
    asked = list(own_schema.names) if columns is None else [_spelled(topic, schema, each) for each in columns]
    names = [*asked, *(each for each in METADATA.names if metadata and each not in asked)]
    if doubled := {each for each in names if names.count(each) > 1}:
        raise InvalidArgument(f"a column is named twice: {sorted(doubled)[0]}")
    own = tuple(each for each in names if each in own_schema.names)
    fields = [own_schema.field(each) if each in own else _NAMED.field(each) for each in names]
    return Shape(pa.schema(fields), own, _selection(topic, schema, own, where, [n for n in names if n not in own]))


def _selection(
    topic: str, schema: TopicSchema | None, own: tuple[str, ...], where: str | None, more: Sequence[str]
) -> RowSelection:
    """Asked for is what is given. All columns, in their order, are asked for as such: then stored batches go as they
    are."""
    if schema is None:
        return RowSelection()
    return RowSelection(
        None if own == schema.names and where is None else own,
        where,
        timestamps="_timestamp" in more,
        keys="_key" in more,
        headers="_headers" in more,
        schemas={topic: schema},
    )


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
