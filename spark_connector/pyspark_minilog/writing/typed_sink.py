"""Decides what the sink writes to a topic: rows by the topic's schema, or keys and values. It runs on the driver,
before any task.

First all checks that need no row, then the other calls of the driver (a login, an Enlist), and last the change of the
topic: a write that is refused leaves the schema as it was (docs/spec/connector.md § 6).

The plan takes the schema to the tasks. So a task that knows an older version of the topic writes by the evolved
version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minilog import Admin, NewTopic
from minilog.errors import InvalidUpdateVersion, MinilogError, TopicAlreadyExists
from minilog.typed.rows.rows import rows_of
from minilog.typed.schema.evolution import merged, rejoined
from minilog.typed.schema.row_form import DELETED_COLUMN
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.types import SchemaStep, TopicAlteration
from pyspark_minilog.errors import InvalidOption, refused
from pyspark_minilog.login.clients import lend
from pyspark_minilog.options.table import SinkOptions
from pyspark_minilog.spark_types import arrow_schema, schema_from_spark
from pyspark_minilog.writing.sink import SinkPlan, in_spelling, plan_sink
from pyspark_minilog.writing.typed_plan import TypedPlan

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannedWrite:
    """A write that has passed all checks that need no row, and has changed nothing. `schema_after` is the topic's
    schema once `carry_out` has created or evolved the topic. None: the write needs no change of the topic."""

    options: SinkOptions
    columns: StructType
    plan: SinkPlan | TypedPlan
    schema_after: TopicSchema | None = None

    def carry_out(self, *, is_pending: bool = False) -> SinkPlan | TypedPlan:
        """Create or evolve the topic if the write needs that. It is the last step of a driver before the tasks, so a
        write that is refused leaves the topic as it was. With `is_pending` the new version of the schema waits for
        `confirm_schemas`, or goes with `withdraw_schema`. Raises InvalidOption, InvalidRecord, InvalidSchema,
        MinilogError."""
        if self.schema_after is None:
            return self.plan
        topic = self.plan.topic
        assert topic is not None
        wanted = self.options.schema
        with lend(Admin, self.options.client) as admin:
            if self.schema_after.version > 1:
                schema = admin.evolve_schema(
                    topic, lambda latest: _merged(self.columns, topic, latest), is_pending=is_pending
                )
                return replace(_checked_plan(self.columns, topic, schema), is_pending=is_pending)
            new = NewTopic(topic, wanted.num_partitions, wanted.replication_factor, schema=self.schema_after)
            try:
                admin.create_topics([new])
            except TopicAlreadyExists:  # another write was first
                return plan_write(self.columns, self.options).carry_out(is_pending=is_pending)
        return self.plan


def plan_write(schema: StructType, options: SinkOptions) -> PlannedWrite:
    """The plan to write a DataFrame of these columns, with all checks that need no row. Raises InvalidOption,
    InvalidRecord, InvalidSchema, MinilogError."""
    topic, schema_options = options.topic, options.schema
    if topic is None:
        for option, given in (("createTopic", schema_options.creates), ("mergeSchema", schema_options.merges)):
            if given:
                raise refused(option, "true", "it needs the option 'topic'")
        return PlannedWrite(options, schema, plan_sink(schema, None))
    with lend(Admin, options.client) as admin:
        descriptions = admin.describe_topics([topic], missing_ok=True)
    if not descriptions and schema_options.creates:
        made = _new_schema(schema, options)
        return PlannedWrite(options, schema, _checked_plan(schema, topic, made), made)
    topic_schema = descriptions[0].schema if descriptions else None
    if topic_schema is None:
        if schema_options.merges:
            raise refused("mergeSchema", "true", f"topic '{topic}' has no schema. Leave it out")
        _refuse_deletions(schema, topic)
        return PlannedWrite(options, schema, plan_sink(schema, topic))
    after = _merged(schema, topic, topic_schema) if schema_options.merges else topic_schema
    change = None if after is topic_schema else after
    return PlannedWrite(options, schema, _checked_plan(schema, topic, after), change)


def confirm_schemas(topic: str, options: SinkOptions, written: Iterable[int]) -> None:
    """Make the versions by which rows were written the topic's latest, unless they were so before. If somebody has
    evolved the schema meanwhile, the latest version gets their columns. Raises InvalidSchema if it cannot: the columns
    of these rows would be no columns of the topic."""
    with lend(Admin, options.client) as admin:
        for number in sorted(written):
            schemas = _schemas(admin, topic)
            if number == len(schemas.versions):
                try:
                    admin.alter_topics([TopicAlteration(topic, schema=schemas.version(number))])
                except InvalidUpdateVersion:  # another change has come since the look
                    schemas = _schemas(admin, topic)
            if number in schemas.withdrawn and number < len(schemas.versions):
                admin.evolve_schema(topic, rejoined(schemas, number))


def withdraw_schema(topic: str, options: SinkOptions, number: int) -> None:
    """Withdraw the version that a write has wanted, unless a commit has confirmed it. If no broker answers, the version
    stays pending: nobody writes or reads by it, and the next change of the schema withdraws it."""
    try:
        with lend(Admin, options.client) as admin:
            schema = _schemas(admin, topic).version(number)
            admin.alter_topics([TopicAlteration(topic, schema=schema, schema_step=SchemaStep.WITHDRAWN)])
    except (MinilogError, InvalidOption) as error:
        sentence = "version %d of the schema of topic '%s' is not withdrawn, but nobody writes or reads by it: %s"
        logger.warning(sentence, number, topic, error)


def _schemas(admin: Admin, topic: str) -> TopicSchemas:
    schemas = admin.describe_topics([topic])[0].schemas
    if not isinstance(schemas, TopicSchemas):
        raise InvalidOption(f"topic '{topic}' has no schema any more: it was created again")
    return schemas


def _checked_plan(schema: StructType, topic: str, topic_schema: TopicSchema) -> TypedPlan:
    schema = spelled(schema, topic_schema)
    check_columns(schema, topic, topic_schema)
    return TypedPlan(topic, topic_schema, tuple(schema.names))


def _merged(schema: StructType, topic: str, latest: TopicSchema) -> TopicSchema:
    """The next version of a topic's schema, which takes all rows of the DataFrame. The same object if `latest` takes
    them."""
    given = spelled(schema, latest)
    wanted = schema_from_spark(as_nullable(_without_collations(without_mark(given, latest), latest))).fields
    after = merged(latest, wanted)
    check_columns(given, topic, after)
    return after


def _without_collations(schema: StructType, latest: TopicSchema) -> StructType:
    """The columns that the topic has already keep their own type there, whatever the collation in the DataFrame is."""
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [
        StructField(field.name, StringType(), field.nullable, field.metadata)
        if isinstance(field.dataType, StringType) and field.name in latest.names
        else field
        for field in schema.fields
    ]
    return StructType(fields)


def as_nullable(schema: StructType, keys: Iterable[str] = ()) -> StructType:
    """The columns as Spark's own CREATE TABLE AS SELECT makes them: each column and each part of it may be null. Spark
    calls a literal NOT NULL, and the next write of the column may have nulls. `keys`: the columns that stay as they
    are."""
    from pyspark.sql.types import StructField, StructType

    fields = [
        field if field.name in keys else StructField(field.name, _nullable_type(field.dataType), True, field.metadata)
        for field in schema.fields
    ]
    return StructType(fields)


def _nullable_type(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case StructType():
            return as_nullable(kind)
        case ArrayType():
            return ArrayType(_nullable_type(kind.elementType), True)
        case MapType():
            return MapType(_nullable_type(kind.keyType), _nullable_type(kind.valueType), True)
        case _:
            return kind


def spelled(schema: StructType, topic_schema: TopicSchema) -> StructType:
    """The columns of a DataFrame, with the topic's spelling for the topic's columns. Raises InvalidOption."""
    from pyspark.sql.types import StructField, StructType

    marks = (DELETED_COLUMN,) if topic_schema.marks_deletions else ()
    spelling = in_spelling(schema.names, (*topic_schema.names, *marks))
    return StructType(
        [
            StructField(spelling.get(column.name, column.name), column.dataType, column.nullable, column.metadata)
            for column in schema.fields
        ]
    )


def without_mark(schema: StructType, topic_schema: TopicSchema | None) -> StructType:
    """The columns without the one that says which rows delete their key."""
    from pyspark.sql.types import StructType

    if topic_schema is not None and not topic_schema.marks_deletions:
        return schema
    return StructType([column for column in schema.fields if column.name.lower() != DELETED_COLUMN])


def _refuse_deletions(schema: StructType, topic: str) -> None:
    if any(name.lower() == DELETED_COLUMN for name in schema.names):
        raise InvalidOption(
            f"topic '{topic}' has no schema, so its records have no column '{DELETED_COLUMN}': give a deletion a null "
            "in column 'value', and drop this column"
        )


def _check_mark(schema: StructType, topic: str, topic_schema: TopicSchema) -> None:
    kind = schema[DELETED_COLUMN].dataType.simpleString()
    if kind not in ("boolean", "void"):
        raise InvalidOption(f"column '{DELETED_COLUMN}' is of type '{kind}': cast it to boolean")
    if not topic_schema.key_columns:
        raise InvalidOption(
            f"topic '{topic}' has no key columns, so none of its rows can be deleted: drop column '{DELETED_COLUMN}'"
        )


def check_columns(schema: StructType, topic: str, topic_schema: TopicSchema) -> None:
    """The checks that need no row. Raises InvalidOption, and InvalidRecord for types that the client never casts."""
    deletes = topic_schema.marks_deletions and DELETED_COLUMN in schema.names
    if deletes:
        _check_mark(schema, topic, topic_schema)
        schema = without_mark(schema, topic_schema)
    if unknown := [name for name in schema.names if name not in topic_schema.names]:
        raise InvalidOption(
            f"topic '{topic}' has no column {', '.join(map(repr, unknown))} (its columns are "
            f"{', '.join(topic_schema.names)}): drop them from the DataFrame, or set mergeSchema to true to add them "
            "to the topic"
        )
    needed = [topic_schema.column(name) for name in topic_schema.key_columns] if deletes else topic_schema.fields
    if missing := [
        column.name for column in needed if (deletes or not column.nullable) and column.name not in schema.names
    ]:
        raise InvalidOption(
            f"column '{missing[0]}' of topic '{topic}' may not be null, but the DataFrame does not have it: the "
            f"DataFrame has {', '.join(schema.names)}"
        )
    rows_of(arrow_schema(schema).empty_table(), topic_schema)


def _new_schema(schema: StructType, options: SinkOptions) -> TopicSchema:
    """The schema of the topic that a write creates."""
    wanted = options.schema
    spelling = {name.lower(): name for name in schema.names}
    keys = [spelling.get(name.lower(), name) for name in wanted.key_columns]
    timestamp = wanted.timestamp_column and spelling.get(wanted.timestamp_column.lower(), wanted.timestamp_column)
    return schema_from_spark(as_nullable(without_mark(schema, None), keys), keys, timestamp)
