"""The columns and the schema versions that a query reads of topics with a schema.

The driver asks for the schemas once, at `load()`. They travel with the plan, so no task describes a topic. A query
keeps the columns that it began with. It reads each topic by one version of its schema. If the versions differ in the
columns of the query (a column became wider, for example), it reads by the version that `load()` got.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from minilog.errors import InvalidArgument, InvalidSchema
from minilog.typed.schema.changes import changes_between
from minilog.typed.schema.column_names import names_in_words
from minilog.typed.schema.evolution import is_widened
from minilog.typed.schema.fields import arrow_field
from minilog.typed.schema.row_form import DELETED_COLUMN
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas
from pyspark_minilog.errors import InvalidOption, SchemaChanged, refused
from pyspark_minilog.options.table import RowOptions
from pyspark_minilog.reading.task_rows import TaskRows
from pyspark_minilog.spark_types import schema_from_spark, spark_schema

if TYPE_CHECKING:
    pass

METADATA = StructType(
    [
        StructField("_topic", StringType()),
        StructField("_partition", IntegerType()),
        StructField("_offset", LongType()),
        StructField("_timestamp", TimestampType()),
        StructField("_key", BinaryType()),
    ]
)
DELETED = StructField(DELETED_COLUMN, BooleanType())


@dataclass(frozen=True)
class TypedTopic:
    """The description of a topic: its id (hexadecimal), and all versions of its schema."""

    id: str
    schemas: TopicSchemas


@dataclass(frozen=True)
class TypedTopics:
    """The topics of a query, and the columns that it reads. `columns` are in the order of the DataFrame. None means all
    columns of a version, as JSON."""

    options: RowOptions
    topics: dict[str, TypedTopic]
    columns: tuple[str, ...] | None
    metadata: tuple[str, ...] = ()

    def schema(self) -> StructType:
        """The columns in Spark's types."""
        assert self.columns is not None
        schema = next(iter(self.topics.values())).schemas.latest
        latest = spark_schema(schema)
        chosen = [latest[name] for name in self.columns]
        if self.options.deletes:  # in a deletion all columns but those of the key are null
            keys = schema.key_columns
            chosen = [field if field.name in keys else _as_nullable(field) for field in chosen]
        return StructType(chosen + [DELETED if name == DELETED_COLUMN else METADATA[name] for name in self.metadata])

    def projected(self, given: StructType) -> TypedTopics:
        """The same topics with the columns of `.schema(...)` only. Raises InvalidOption for a column that the topics do
        not have, or for a type that is not the same or wider."""
        there = self.schema()
        latest = next(iter(self.topics.values())).schemas.latest
        for field in given.fields:
            if field.name not in there.names:
                raise InvalidOption(
                    f".schema(...) has the column '{field.name}', but the columns here are {', '.join(there.names)}: "
                    "leave this column out, or leave .schema(...) out"
                )
            there_type = there[field.name].dataType
            if there_type.simpleString() != field.dataType.simpleString() and not _widens(latest, field):
                raise InvalidOption(
                    f".schema(...) gives column '{field.name}' the type {field.dataType.simpleString()}, but the topic "
                    f"has {there_type.simpleString()}: give that type, or a wider type of its kind, and cast afterwards"
                )
        names, beside = given.names, _names_beside(self.options)
        return replace(
            self,
            columns=tuple(name for name in names if name not in beside),
            metadata=tuple(name for name in names if name in beside),
        )

    def renewed(self, now: Mapping[str, TypedTopic | None], *, is_stream: bool = True) -> TypedTopics:
        """The topics as they are now. A topic that the query had before keeps the schemas that `load()` got.

        Raises InvalidOption if a topic does not have the columns. Raises SchemaChanged if a schema has changed and the
        options say that the query fails then."""
        news = {name: topic for name, topic in now.items() if topic is None or self._is_new(name, topic)}
        for name, topic in now.items():
            if is_stream and self.options.fails_on_change and topic is not None and name not in news:
                _check_unchanged(name, self.topics[name].schemas.latest, topic.schemas.latest)
        if not news:
            return self
        first, first_topic = next(iter(self.topics.items()))
        topics = dict(self.topics)
        for name, topic in sorted(news.items()):
            if topic is None:
                raise _mixed(first, name)
            self._check_same(first, first_topic.schemas.latest, name, topic.schemas.latest)
            topics[name] = topic
        return replace(self, topics=topics)

    def _is_new(self, name: str, topic: TypedTopic) -> bool:
        return name not in self.topics or self.topics[name].id != topic.id

    def _check_same(self, first: str, schema: TopicSchema, name: str, other: TopicSchema) -> None:
        _check_deletes(self.options, name, other)
        if self.options.deletes and schema.key_columns != other.key_columns:
            raise refused(
                "deletes", "true", f"topics '{first}' and '{name}' have different key columns: read them one by one"
            )
        if self.options.is_kafka_view:
            if self.columns is not None:
                _checked_columns(self.options, other)
            _check_where(self.options, other)
            return
        chosen = schema.names if self.columns is None else self.columns
        wanted = {column: arrow_field(schema.column(column)) for column in chosen}
        is_whole = self.options.columns is None and len(wanted) == len(schema.names)
        there = {column.name: arrow_field(column) for column in other.fields if column.name in wanted or is_whole}
        if wanted != there:
            raise InvalidOption(
                f"topics '{first}' and '{name}' have different columns ({schema}; {other}): read them one by one, or "
                "name the columns that they share with option 'columns'"
            )
        _check_where(self.options, other)
        _check_keys(self.options, name, other)

    def version(self, name: str, number: int | None) -> TopicSchema | None:
        """The schema to read a topic by, after it was read by the version `number`. None for an unknown topic."""
        if name not in self.topics:
            return None
        schemas = self.topics[name].schemas
        latest = schemas.latest
        if number is None or not 1 <= number < latest.version:
            return latest
        before = schemas.version(number)
        return before if self._gives_the_same(before, latest) else latest

    def _gives_the_same(self, before: TopicSchema, latest: TopicSchema) -> bool:
        try:
            _check_where(self.options, before)
            if self.columns is None:
                return True
            return all(
                arrow_field(before.column(column)) == arrow_field(latest.column(column)) for column in self.columns
            )
        except (InvalidOption, InvalidSchema):
            return False

    def versions(self, names: Iterable[str], before: Mapping[str, int]) -> dict[str, int]:
        """The schema versions for the next batch. `before` has the versions of the batch before. A query that failed
        because a schema changed goes on with the newest version when it is started again."""
        kept = {} if self.options.fails_on_change else before
        schemas = {name: self.version(name, kept.get(name)) for name in sorted(names)}
        return {name: schema.version for name, schema in schemas.items() if schema is not None}

    def rows(self, names: Iterable[str], numbers: Mapping[str, int]) -> TaskRows:
        """The rows of the tasks that read these topics by these versions."""
        schemas = {name: self.version(name, numbers.get(name)) for name in names}
        return TaskRows(
            {name: schema for name, schema in schemas.items() if schema is not None},
            self.columns,
            self.options.where,
            metadata=any(name in METADATA.names for name in self.metadata) or self.options.is_kafka_view,
            as_kafka=self.options.is_kafka_view,
            deletes=self.options.deletes,
        )


def typed_topics(topics: Mapping[str, TypedTopic | None], options: RowOptions) -> TypedTopics | None:
    """The typed topics of a query, or None if the topics have no schema. Raises InvalidOption."""
    if not any(topics.values()):
        if topics and (given := options.for_schemas):
            name, value = given
            raise refused(
                name, value, f"topic '{next(iter(topics))}' has no schema, so it has no columns: leave it out"
            )
        return None
    if None in topics.values():
        typed = next(name for name, topic in topics.items() if topic is not None)
        raise _mixed(typed, next(name for name, topic in topics.items() if topic is None))
    typed_ones = {name: topic for name, topic in topics.items() if topic is not None}
    first = next(iter(typed_ones))
    schema = typed_ones[first].schemas.latest
    _check_where(options, schema)
    _check_deletes(options, first, schema)
    _check_keys(options, first, schema)
    if options.is_kafka_view:
        columns = None if options.columns is None else _checked_columns(options, schema)
    else:
        columns = schema.names if options.columns is None else _checked_columns(options, schema)
    metadata = tuple(METADATA.names) if options.metadata else ()
    metadata += (DELETED_COLUMN,) if options.deletes else ()
    alone = TypedTopics(options, {first: typed_ones[first]}, columns, metadata)
    return alone.renewed(typed_ones, is_stream=False)


def _names_beside(options: RowOptions) -> tuple[str, ...]:
    """The names of the columns beside those of the topics. A topic with a column `_deleted` of its own is read without
    `deletes`."""
    return (*METADATA.names, DELETED_COLUMN) if options.deletes else tuple(METADATA.names)


def _check_deletes(options: RowOptions, name: str, schema: TopicSchema) -> None:
    if options.deletes and not schema.marks_deletions:
        raise refused(
            "deletes",
            "true",
            f"topic '{name}' has a column '{DELETED_COLUMN}' of its own, so its rows cannot mark deletions",
        )


def _as_nullable(field: StructField) -> StructField:
    return StructField(field.name, field.dataType, True, field.metadata)


def check_untyped(topics: Mapping[str, TypedTopic | None]) -> None:
    """Checks that a query of keys and values reads no topic with a schema. Raises InvalidOption."""
    for name, topic in topics.items():
        if topic is not None:
            raise InvalidOption(
                f"topic '{name}' has a schema, but this query began with keys and values: start the query again, and "
                "read only topics that have a schema"
            )


def _widens(topic_schema: TopicSchema, given: StructField) -> bool:
    if given.name not in topic_schema.names:
        return False
    try:
        wanted = schema_from_spark(StructType([given])).fields[0].type
    except InvalidSchema:
        return False
    return is_widened(topic_schema.column(given.name).type, wanted)


def _checked_columns(options: RowOptions, schema: TopicSchema) -> tuple[str, ...]:
    """The columns of the option in the topic's spelling, because Spark ignores case. Raises InvalidOption."""
    spelling = {name.lower(): name for name in schema.names}
    wanted = options.columns or ()
    for name in wanted:
        if name.lower() not in spelling:
            raise refused(
                "columns", names_in_words(wanted), f"there is no column '{name}': there are {', '.join(schema.names)}"
            )
    columns = tuple(spelling[name.lower()] for name in wanted)
    if len(set(columns)) < len(columns):
        raise refused("columns", names_in_words(wanted), "it names a column twice: name it once")
    return columns


def _check_where(options: RowOptions, schema: TopicSchema) -> None:
    if options.where is not None:
        from minilog.typed.conditions.where import (
            parse_where,  # it loads sqlglot, so only queries with a condition import it
        )

        try:
            parse_where(options.where, schema)
        except InvalidArgument as error:
            raise refused("where", options.where, str(error)) from None


def _check_keys(options: RowOptions, name: str, schema: TopicSchema) -> None:
    if options.is_latest_view and not schema.key_columns:
        remedy = f"topic '{name}' has no key columns, so its rows have no keys: leave the option out"
        raise refused("view", "latest", remedy)


def _check_unchanged(name: str, before: TopicSchema, now: TopicSchema) -> None:
    if now.version > before.version:
        changes = "; ".join(changes_between(before, now))
        raise SchemaChanged(
            f"topic '{name}' has version {now.version} of its schema now, and had version {before.version} when the "
            f"query began ({changes}): start the query again to read by the new version, or set onSchemaChange to "
            "ignore"
        )


def _mixed(typed: str, untyped: str) -> InvalidOption:
    return InvalidOption(
        f"topic '{typed}' has a schema, but topic '{untyped}' has none, so they cannot be one DataFrame: read them one "
        "by one, or read the first with view=kafka and take the union of both"
    )
