"""Decides what the sink writes to a topic: rows by the topic's schema, or keys and values. It runs on the driver,
before any task.

The plan takes the schema to the tasks. So a task that knows an older version of the topic writes by the evolved
version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minilog import Admin, NewTopic
from minilog.errors import TopicAlreadyExists
from minilog.typed.evolution import merged
from minilog.typed.row_form import DELETED_COLUMN
from minilog.typed.rows import rows_of
from minilog.typed.topic_schema import TopicSchema
from pyspark_minilog.clients import lend
from pyspark_minilog.errors import InvalidOption, refused
from pyspark_minilog.options import SinkOptions
from pyspark_minilog.sink import SinkPlan, in_spelling, plan_sink
from pyspark_minilog.typed_plan import TypedPlan
from pyspark_minilog.typed_rows import arrow_schema, schema_from_spark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def plan_write(schema: StructType, options: SinkOptions) -> SinkPlan | TypedPlan:
    """The plan to write a DataFrame of these columns. It creates or evolves the topic if the options ask for it. Raises
    InvalidOption, InvalidRecord, InvalidSchema, MinilogError."""
    topic, schema_options = options.topic, options.schema
    if topic is None:
        for option, given in (("createTopic", schema_options.creates), ("mergeSchema", schema_options.merges)):
            if given:
                raise refused(option, "true", "it needs the option 'topic'")
        return plan_sink(schema, None)
    with lend(Admin, options.client) as admin:
        topic_schema = _schema_of(admin, topic, schema, options)
        if topic_schema is None:
            if schema_options.merges:
                raise refused("mergeSchema", "true", f"topic '{topic}' has no schema. Leave it out")
            _refuse_deletions(schema, topic)
            return plan_sink(schema, topic)
        schema = spelled(schema, topic_schema)
        if schema_options.merges:
            wanted = schema_from_spark(without_mark(schema, topic_schema)).fields
            if merged(topic_schema, wanted) is not topic_schema:
                topic_schema = admin.evolve_schema(topic, lambda latest: merged(latest, wanted))
    check_columns(schema, topic, topic_schema)
    return TypedPlan(topic, topic_schema, tuple(schema.names))


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


def _schema_of(admin: Admin, topic: str, schema: StructType, options: SinkOptions) -> TopicSchema | None:
    """The newest schema of a topic, or None for keys and values. It creates a missing topic if the options ask for
    it."""
    descriptions = admin.describe_topics([topic], missing_ok=True)
    if descriptions or not options.schema.creates:
        return descriptions[0].schema if descriptions else None
    wanted = options.schema
    spelling = {name.lower(): name for name in schema.names}
    keys = [spelling.get(name.lower(), name) for name in wanted.key_columns]
    timestamp = wanted.timestamp_column and spelling.get(wanted.timestamp_column.lower(), wanted.timestamp_column)
    made = schema_from_spark(without_mark(schema, None), keys, timestamp)
    try:
        admin.create_topics([NewTopic(topic, wanted.num_partitions, wanted.replication_factor, schema=made)])
    except TopicAlreadyExists:  # another write was first
        return admin.describe_topics([topic])[0].schema
    return made
