"""Schemas as messages, and back. Pure.

A schema from a peer is checked before it is used: protobuf bounds the depth, and `check_schema` everything else.
"""

from __future__ import annotations

from collections.abc import Iterable

from minilog.errors import InvalidSchema
from minilog.typed.schema.fields import Array, Decimal, Field, FieldType, Map, Primitive, Struct
from minilog.typed.schema.topic_schema import TopicSchema, check_schema, first_version
from minilog.v1 import typed_pb2


def schema_to_wire(schema: TopicSchema) -> typed_pb2.TopicSchema:
    """The message of a schema with ids."""
    return typed_pb2.TopicSchema(
        version=schema.version,
        fields=[_field_to_wire(field) for field in schema.fields],
        key_field_ids=[schema.column(name).id for name in schema.key_columns],
        timestamp_field_id=0 if schema.timestamp_column is None else schema.column(schema.timestamp_column).id,
        last_field_id=schema.last_field_id,
    )


def schema_from_wire(message: typed_pb2.TopicSchema) -> TopicSchema:
    """A version of a topic's schema. Raises InvalidSchema."""
    fields = _fields_from_wire(message.fields)
    names = {field.id: field.name for field in fields}
    wanted = [*message.key_field_ids, *([message.timestamp_field_id] if message.timestamp_field_id else [])]
    if missing := [field_id for field_id in wanted if field_id not in names]:
        raise InvalidSchema(f"the key or the time stamp is field {missing[0]}, and no column has that id")
    schema = TopicSchema(
        fields,
        tuple(names[field_id] for field_id in message.key_field_ids),
        names.get(message.timestamp_field_id),
        message.version,
        message.last_field_id,
    )
    if schema.version < 1:
        raise InvalidSchema(f"versions count from 1, and this is version {schema.version}")
    check_schema(schema)
    return schema


def first_version_of(schema: TopicSchema) -> TopicSchema:
    """The schema of a new topic from a client's proposal, with new ids. Raises InvalidSchema."""
    return first_version(schema.fields, schema.key_columns, schema.timestamp_column)


def first_version_from_wire(message: typed_pb2.TopicSchema) -> TopicSchema:
    """The schema of a new topic from a client's message. The ids in the message only mark the key columns and the
    timestamp column, and all fields get new ids. Raises InvalidSchema."""
    fields = _fields_from_wire(message.fields)
    if message.version > 1:
        raise InvalidSchema(f"a new topic begins with version 1 of its schema, and this is version {message.version}")

    def named(field_id: int) -> str:
        names = [field.name for field in fields if field.id == field_id]
        if field_id < 1 or len(names) != 1:
            raise InvalidSchema(f"the key or the time stamp is field {field_id}, and {len(names)} columns have that id")
        return names[0]

    keys = [named(field_id) for field_id in message.key_field_ids]
    return first_version(fields, keys, named(message.timestamp_field_id) if message.timestamp_field_id else None)


def _field_to_wire(field: Field) -> typed_pb2.SchemaField:
    message = typed_pb2.SchemaField(id=field.id, name=field.name, nullable=field.nullable, comment=field.comment)
    match field.type:
        case Primitive(name):
            message.primitive = name
        case Decimal(precision, scale):
            message.decimal.CopyFrom(typed_pb2.DecimalType(precision=precision, scale=scale))
        case Struct(fields):
            message.struct.CopyFrom(typed_pb2.StructType(fields=[_field_to_wire(child) for child in fields]))
        case Array(element):
            message.array.CopyFrom(typed_pb2.ArrayType(element=_field_to_wire(element)))
        case Map(key, value):
            message.map.CopyFrom(typed_pb2.MapType(key=_field_to_wire(key), value=_field_to_wire(value)))
    return message


def _fields_from_wire(messages: Iterable[typed_pb2.SchemaField]) -> tuple[Field, ...]:
    return tuple(_field_from_wire(message) for message in messages)


def _field_from_wire(message: typed_pb2.SchemaField) -> Field:
    return Field(message.name, _type_from_wire(message), message.nullable, message.id, message.comment)


def _type_from_wire(message: typed_pb2.SchemaField) -> FieldType:
    match message.WhichOneof("type"):
        case "primitive":
            return Primitive(message.primitive)
        case "decimal":
            return Decimal(message.decimal.precision, message.decimal.scale)
        case "struct":
            return Struct(_fields_from_wire(message.struct.fields))
        case "array":
            return Array(_named(message.array.element, "element"))
        case "map":
            return Map(_named(message.map.key, "key"), _named(message.map.value, "value"))
        case _:
            raise InvalidSchema(f"field {message.name!r} has no type that this version knows")


def _named(message: typed_pb2.SchemaField, name: str) -> Field:
    if message.name != name:
        raise InvalidSchema(f"the {name} of a column is called {message.name!r}: its name is {name!r}")
    return _field_from_wire(message)
