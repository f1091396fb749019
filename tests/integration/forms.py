"""How writers and readers of the kill runs keep a value in a topic: in a record, or in a column of a typed topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from minilog import Admin, NewTopic
from minilog.typed.schema.evolution import add_column, widen_column
from minilog.typed.schema.fields import Field
from minilog.typed.schema.topic_schema import TopicSchema, schema_from_arrow

KEYS = 97


@dataclass(frozen=True)
class Form:
    """`schema`: of the topic, if it has one. `columns`: of a polled batch: partition, offset and value."""

    schema: TopicSchema | None
    columns: tuple[str, str, str]
    polling: dict[str, Any]
    """Arguments of Consumer.poll_arrow."""

    def new_topic(self, name: str, partitions: int, replication_factor: int) -> NewTopic:
        return NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, schema=self.schema)

    def sending(self, number: int, value: bytes) -> dict[str, Any]:
        """Arguments of Producer.send; the number says the key."""
        if self.schema is None:
            return {"value": value, "key": b"%d" % (number % KEYS)}
        return {"value": {"place": number % KEYS, "content": value}}

    def evolve(self, admin: Admin, topic: str) -> None:
        """The next version of a topic with a schema: a column more, and, the first time, a wider one. A value stays
        what it is."""
        if self.schema is not None:
            admin.evolve_schema(topic, _next)


def _next(schema: TopicSchema) -> TopicSchema:
    long = schema_from_arrow(pa.schema([("any", pa.int64())])).fields[0].type
    wider = schema if schema.version > 1 else widen_column(schema, "note", long)
    return add_column(wider, Field(f"more_{schema.version}", long))


RECORDS = Form(None, ("partition", "offset", "value"), {})
ROWS = Form(
    schema_from_arrow(
        pa.schema([("place", pa.int32()), ("content", pa.binary()), ("note", pa.int32())]), key_columns=["place"]
    ),
    ("_partition", "_offset", "content"),
    {"columns": ["content"], "metadata": True},
)
