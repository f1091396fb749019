"""What the sink writes, by the topic: rows by its schema, or keys and values. On the driver, before any task.

The schema that rows are written by goes to the tasks with the plan: a task that knew the topic before it was evolved
writes by the version that was evolved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minilog import Admin, NewTopic
from minilog.errors import TopicAlreadyExists
from minilog.typed.evolution import merged
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
    """How a DataFrame of these columns is written. Makes or evolves the topic where the options say so. Raises
    InvalidOption, InvalidRecord, InvalidSchema, MinilogError."""
    topic, asked = options.topic, options.schema
    if topic is None:
        for option, given in (("createTopic", asked.creates), ("mergeSchema", asked.merges)):
            if given:
                raise refused(option, "true", "it needs the option 'topic'")
        return plan_sink(schema, None)
    with lend(Admin, options.client) as admin:
        known = _schema_of(admin, topic, schema, options)
        if known is None:
            if asked.merges:
                raise refused("mergeSchema", "true", f"topic '{topic}' has no schema. Leave it out")
            return plan_sink(schema, topic)
        schema = spelled(schema, known)
        if asked.merges:
            wanted = schema_from_spark(schema).fields
            if merged(known, wanted) is not known:
                known = admin.evolve_schema(topic, lambda latest: merged(latest, wanted))
    check_columns(schema, topic, known)
    return TypedPlan(topic, known, tuple(schema.names))


def spelled(schema: StructType, known: TopicSchema) -> StructType:
    """The columns of a DataFrame, those of the topic as the topic spells them. Raises InvalidOption."""
    from pyspark.sql.types import StructField, StructType

    spelling = in_spelling(schema.names, known.names)
    return StructType(
        [
            StructField(spelling.get(each.name, each.name), each.dataType, each.nullable, each.metadata)
            for each in schema.fields
        ]
    )


def check_columns(schema: StructType, topic: str, known: TopicSchema) -> None:
    """What can be told without any row. Raises InvalidOption, and InvalidRecord for types that are never cast."""
    if unknown := [name for name in schema.names if name not in known.names]:
        raise InvalidOption(
            f"topic '{topic}' has no column {', '.join(map(repr, unknown))} (its columns are "
            f"{', '.join(known.names)}): drop them from the DataFrame, or set mergeSchema to true to add them to the "
            "topic"
        )
    if missing := [each.name for each in known.fields if not each.nullable and each.name not in schema.names]:
        raise InvalidOption(
            f"column '{missing[0]}' of topic '{topic}' may not be null, but the DataFrame does not have it: the "
            f"DataFrame has {', '.join(schema.names)}"
        )
    rows_of(arrow_schema(schema).empty_table(), known)


def _schema_of(admin: Admin, topic: str, schema: StructType, options: SinkOptions) -> TopicSchema | None:
    """The newest of a topic, which is made if it is not there and is to be; None: keys and values are written."""
    found = admin.describe_topics([topic], missing_ok=True)
    if found or not options.schema.creates:
        return found[0].schema if found else None
    asked = options.schema
    spelling = {name.lower(): name for name in schema.names}
    keys = [spelling.get(each.lower(), each) for each in asked.key_columns]
    timestamp = asked.timestamp_column and spelling.get(asked.timestamp_column.lower(), asked.timestamp_column)
    made = schema_from_spark(schema, keys, timestamp)
    try:
        admin.create_topics([NewTopic(topic, asked.num_partitions, asked.replication_factor, schema=made)])
    except TopicAlreadyExists:  # another write was first
        return admin.describe_topics([topic])[0].schema
    return made
