"""The columns and rows that a consumer wants of topics with a schema, and the reader of each such topic. Pure.

The consumer reads a topic by the schema that the topic has when the first position goes. It binds the columns and
`where` to the columns of that version, by their ids. So columns that are renamed, added or dropped later do not change
what a program gets. A value may be too wide for its column. Then the consumer makes all columns as wide as the newest
version, in all partitions of the topic. Their names and order stay. A program that names the version of the schema gets
rows of that version, or an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.errors import InvalidArgument
from minilog.net.metadata_cache import CachedTopic

if TYPE_CHECKING:  # loaded with the first topic that has columns
    from minilog.typed.conditions.predicate import Predicate
    from minilog.typed.rows.reader import TypedReader
    from minilog.typed.schema.topic_schema import TopicSchema
    from minilog.typed.schema.topic_schemas import TopicSchemas


@dataclass(frozen=True, slots=True)
class RowSelection:
    """`columns` are names (None: all), and `where` is SQL (None: all rows). `timestamps`, `keys` and `headers` ask for
    more than the columns. `schemas` has the version of the schema to read a topic by, by the topic's name.
    `offsets_only`: of topics without a schema, only the offsets of records, which the headers of batches give.
    `deletions`: also the rows that delete their key, in a column `_deleted`. `as_records`: rows become keys and values,
    and have no such column."""

    columns: tuple[str, ...] | None = None
    where: str | None = None
    timestamps: bool = False
    keys: bool = False
    headers: bool = False
    schemas: Mapping[str, TopicSchema] | None = None
    offsets_only: bool = False
    deletions: bool = False
    as_records: bool = False

    @property
    def is_narrow(self) -> bool:
        """Whether the selection leaves out columns or rows."""
        return self.columns is not None or self.where is not None

    @property
    def needs_schema(self) -> bool:
        """Whether only topics with a schema can be read so."""
        return self.is_narrow or (self.deletions and not self.as_records)

    def wants_deletions(self, schema: TopicSchema) -> bool:
        """Whether deletions are read by this schema. Raises InvalidArgument if they cannot be, because the topic has a
        column `_deleted` of its own."""
        if self.deletions and not schema.marks_deletions and not self.as_records:
            raise InvalidArgument(
                "the topic has a column '_deleted' of its own, so its rows cannot mark deletions: read it "
                "without deletions"
            )
        return self.deletions


AS_RECORDS = RowSelection(timestamps=True, keys=True, headers=True, deletions=True, as_records=True)
"""A whole row, for a program that reads keys and values."""


def row_selection(
    columns: Sequence[str] | None,
    where: str | None,
    *,
    metadata: bool,
    headers: bool,
    schemas: Mapping[str, TopicSchema] | None = None,
    deletes: bool = False,
) -> RowSelection:
    """The selection of a call of `poll_arrow`. Raises InvalidArgument for one name in place of a list."""
    if isinstance(columns, str):
        raise InvalidArgument(f"columns takes a list of names: give [{columns!r}]")
    chosen = None if columns is None else tuple(columns)
    return RowSelection(
        chosen,
        where,
        timestamps=metadata,
        keys=metadata,
        headers=headers and metadata,
        schemas=schemas or None,
        deletions=deletes,
    )


class RowReaders:
    """The readers of one consumer, by topic id."""

    def __init__(self) -> None:
        self.selection = RowSelection()
        self._readers: dict[bytes, TypedReader] = {}

    @property
    def headers_only(self) -> bool:
        """Of topics without a schema: whether replicas need not send more of a batch than its header."""
        return self.selection.offsets_only

    def select(self, selection: RowSelection) -> bool:
        """Use this selection from now on. Returns whether it differs from the one before."""
        if selection == self.selection:
            return False
        self.selection = selection
        self._readers.clear()
        return True

    def widen(self, topic: CachedTopic, narrow: TypedReader) -> bool:
        """Widen the columns to types that the rows of all versions fit. `narrow` is the reader whose types were too
        narrow. False if the types were so wide before, or if the user has named the version of the schema."""
        reader, schemas = self._readers.get(topic.topic_id), topic.schemas
        if reader is None or schemas is None or reader.selection is not narrow.selection:
            return True  # another partition was first, or the user has selected other columns by now
        if topic.name in (self.selection.schemas or {}):
            return False
        from minilog.typed.schema.evolution import widened  # as in reader

        before = reader.selection.schema
        schema = widened(before, schemas)
        if schema == before:
            return False
        asked_version = schemas.latest
        if not {field.id for field in schema.fields} <= asked_version.by_id.keys():  # it has dropped one of them
            asked_version = reader.selection.asked_version or before
        self._readers[topic.topic_id] = self._bound(schemas, schema, asked_version)
        return True

    def reader(self, topic: CachedTopic) -> TypedReader | None:
        """The reader of a topic. None if the topic has no schema.

        Raises InvalidArgument (InvalidSchema) for columns that the topic does not have, also in the condition."""
        selection, schemas = self.selection, topic.schemas
        reader = self._readers.get(topic.topic_id)
        if schemas is None:
            if selection.is_narrow:
                raise InvalidArgument(
                    f"topic {topic.name!r} has no schema: it has no columns to choose, nor to compare"
                )
            if selection.needs_schema:
                raise InvalidArgument(
                    f"topic {topic.name!r} has no schema: a deletion is a record with a key and without a value. Read "
                    "it without deletes"
                )
            return None
        from minilog.typed.rows.reader import (
            TypedReader,  # it loads minilog.typed, which only a topic with a schema needs
        )

        if reader is not None:
            if reader.schemas is not schemas:  # the metadata has more versions: the same selection reads them
                reader = TypedReader(schemas, reader.selection, is_narrow=selection.is_narrow)
                self._readers[topic.topic_id] = reader
            return reader
        schema = (selection.schemas or {}).get(topic.name, schemas.latest)
        reader = self._readers[topic.topic_id] = self._bound(schemas, schema)
        return reader

    def _bound(
        self, schemas: TopicSchemas, schema: TopicSchema, asked_version: TopicSchema | None = None
    ) -> TypedReader:
        from minilog.typed.rows.reader import TypedReader, TypedSelection  # as in reader

        wish = self.selection
        selection = TypedSelection(
            schema,
            schema.names if wish.columns is None else wish.columns,
            None if wish.where is None else _parsed(wish.where, schema),
            timestamps=wish.timestamps,
            keys=wish.keys,
            headers=wish.headers,
            asked_version=asked_version,
            deletions=wish.wants_deletions(schema),
        )
        selection.check()
        return TypedReader(schemas, selection, is_narrow=wish.is_narrow)


def _parsed(where: str, schema: TopicSchema) -> Predicate:
    from minilog.typed.conditions.where import parse_where  # its parser takes 0.1 s to load, and brokers do not need it

    return parse_where(where, schema)
