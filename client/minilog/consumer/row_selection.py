"""What a consumer wants of topics that have a schema, and how that is read of each of them. Pure.

A topic is read by the schema that it has when its first position is sent. Columns and `where` are bound to the columns
of that version then, by their ids: what is renamed, added or dropped later does not change what a program gets. A value
that is too wide for a column makes the types of all columns as wide as they are by now, in all partitions of the topic.
Their names and order stay. A reader that names the version to read by gets that one, or an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilog.errors import InvalidArgument
from minilog.net.metadata_cache import CachedTopic

if TYPE_CHECKING:  # loaded with the first topic that has columns
    from minilog.typed.predicate import Predicate
    from minilog.typed.reader import TypedReader
    from minilog.typed.topic_schema import TopicSchema
    from minilog.typed.topic_schemas import TopicSchemas


@dataclass(frozen=True, slots=True)
class RowSelection:
    """`columns` by name, None: all; `where` is SQL, None: all rows; the others ask for more than columns.
    `schemas`: the version to read a topic by, by its name."""

    columns: tuple[str, ...] | None = None
    where: str | None = None
    timestamps: bool = False
    keys: bool = False
    headers: bool = False
    schemas: Mapping[str, TopicSchema] | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves anything out."""
        return self.columns is not None or self.where is not None


AS_RECORDS = RowSelection(timestamps=True, keys=True, headers=True)
"""All of a row: for who knows keys and values."""


def row_selection(
    columns: Sequence[str] | None,
    where: str | None,
    *,
    metadata: bool,
    headers: bool,
    schemas: Mapping[str, TopicSchema] | None = None,
) -> RowSelection:
    """What `poll_arrow` is asked for. Raises InvalidArgument for a name alone in place of several."""
    if isinstance(columns, str):
        raise InvalidArgument(f"columns takes a list of names: give [{columns!r}]")
    chosen = None if columns is None else tuple(columns)
    return RowSelection(
        chosen, where, timestamps=metadata, keys=metadata, headers=headers and metadata, schemas=schemas or None
    )


class RowReaders:
    """Of one consumer: by topic id."""

    def __init__(self) -> None:
        self.selection = RowSelection()
        self._readers: dict[bytes, TypedReader] = {}

    def select(self, selection: RowSelection) -> bool:
        """From now on; whether it is another one than before."""
        if selection == self.selection:
            return False
        self.selection = selection
        self._readers.clear()
        return True

    def widen(self, topic: CachedTopic, narrow: TypedReader) -> bool:
        """From now on the columns have types in which the rows of all versions fit, where `narrow` is how they are
        read. False where they had before, or the user has named the version to read by."""
        reader, schemas = self._readers.get(topic.topic_id), topic.schemas
        if reader is None or schemas is None or reader.selection is not narrow.selection:
            return True  # another partition was first, or the user wants something else by now
        if topic.name in (self.selection.schemas or {}):
            return False
        from minilog.typed.evolution import widened  # as in reader

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
        """How a topic is read; None where it has no schema.

        Raises InvalidArgument (InvalidSchema) for columns or a condition that it does not have."""
        selection, schemas = self.selection, topic.schemas
        reader = self._readers.get(topic.topic_id)
        if schemas is None:
            if selection.is_narrow:
                raise InvalidArgument(
                    f"topic {topic.name!r} has no schema: it has no columns to choose, nor to compare"
                )
            return None
        from minilog.typed.reader import TypedReader  # It loads minilog.typed: where a topic has columns.

        if reader is not None:
            if reader.schemas is not schemas:  # metadata tells of more versions: they are read by the same selection
                reader = TypedReader(schemas, reader.selection, is_narrow=selection.is_narrow)
                self._readers[topic.topic_id] = reader
            return reader
        schema = (selection.schemas or {}).get(topic.name, schemas.latest)
        reader = self._readers[topic.topic_id] = self._bound(schemas, schema)
        return reader

    def _bound(
        self, schemas: TopicSchemas, schema: TopicSchema, asked_version: TopicSchema | None = None
    ) -> TypedReader:
        from minilog.typed.reader import TypedReader, TypedSelection  # as in reader

        wish = self.selection
        selection = TypedSelection(
            schema,
            schema.names if wish.columns is None else wish.columns,
            None if wish.where is None else _parsed(wish.where, schema),
            timestamps=wish.timestamps,
            keys=wish.keys,
            headers=wish.headers,
            asked_version=asked_version,
        )
        selection.check()
        return TypedReader(schemas, selection, is_narrow=wish.is_narrow)


def _parsed(where: str, schema: TopicSchema) -> Predicate:
    from minilog.typed.where import parse_where  # its parser takes 0.1 s to load, which brokers do not need

    return parse_where(where, schema)
