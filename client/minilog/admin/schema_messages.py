"""The schemas among what Admin asks. Pure. It loads Arrow, and is imported where a schema is given (messages.py)."""

from __future__ import annotations

import pyarrow as pa

from minilog.errors import InvalidArgument
from minilog.typed.schema.topic_schema import TopicSchema, check_schema, schema_from_arrow
from minilog.typed.schema.wire import first_version_of, schema_to_wire
from minilog.v1 import typed_pb2


def new_schema(name: str, schema: TopicSchema | pa.Schema) -> typed_pb2.TopicSchema:
    """Of a new topic, with ids of our own, for they say which columns the key is made of; the controller gives others.
    Raises InvalidArgument where it is no schema, InvalidSchema."""
    match schema:
        case TopicSchema():
            return schema_to_wire(first_version_of(schema))
        case pa.Schema():
            return schema_to_wire(schema_from_arrow(schema))
        case _:
            raise InvalidArgument(f"the schema of topic {name!r} is {schema!r}: give a TopicSchema or an Arrow schema")


def next_schema(schema: TopicSchema) -> typed_pb2.TopicSchema:
    """Of a topic that is altered. Raises InvalidSchema for what can be no version of a schema."""
    check_schema(schema)
    return schema_to_wire(schema)
