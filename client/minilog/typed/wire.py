"""Schemas as messages, and back. Pure.

What comes from a peer is bounded before it is believed: protobuf bounds the depth, `check_schema` all else.
"""

from __future__ import annotations

from collections.abc import Iterable

from minilog.errors import InvalidSchema
from minilog.typed.fields import Array, Decimal, Field, FieldType, Map, Primitive, Struct
from minilog.typed.topic_schema import TopicSchema, check_schema, first_version
from minilog.v1 import typed_pb2


def schema_to_wire(schema: TopicSchema) -> typed_pb2.TopicSchema:
    """A schema that has ids."""
    return typed_pb2.TopicSchema(
        version=schema.version,
        fields=[_field_to_wire(field) for field in schema.fields],
        key_field_ids=[schema.column(name).id for name in schema.key_columns],
        timestamp_field_id=0 if schema.timestamp_column is None else schema.column(schema.timestamp_column).id,
        last_field_id=schema.last_field_id,
    )


def schema_from_wire(told: typed_pb2.TopicSchema) -> TopicSchema:
    """A version of a topic's schema. Raises InvalidSchema."""
    fields = _fields_from_wire(told.fields)
    names = {each.id: each.name for each in fields}
    wanted = [*told.key_field_ids, *([told.timestamp_field_id] if told.timestamp_field_id else [])]
    if missing := [each for each in wanted if each not in names]:
        raise InvalidSchema(f"the key or the time stamp is field {missing[0]}, and no column has that id")
    schema = TopicSchema(
        fields,
        tuple(names[each] for each in told.key_field_ids),
        names.get(told.timestamp_field_id),
        told.version,
        told.last_field_id,
    )
    if schema.version < 1:
        raise InvalidSchema(f"versions count from 1, and this is version {schema.version}")
    check_schema(schema)
    return schema


def first_version_of(schema: TopicSchema) -> TopicSchema:
    """What somebody proposes for a new topic, with ids given anew. Raises InvalidSchema."""
    return first_version(schema.fields, schema.key_columns, schema.timestamp_column)


def first_version_from_wire(told: typed_pb2.TopicSchema) -> TopicSchema:
    """What somebody proposes for a new topic: the ids there only say which columns key and time stamp are made of. All
    are given anew. Raises InvalidSchema."""
    fields = _fields_from_wire(told.fields)
    if told.version > 1:
        raise InvalidSchema(f"a new topic begins with version 1 of its schema, and this is version {told.version}")

    def named(field_id: int) -> str:
        names = [each.name for each in fields if each.id == field_id]
        if field_id < 1 or len(names) != 1:
            raise InvalidSchema(f"the key or the time stamp is field {field_id}, and {len(names)} columns have that id")
        return names[0]

    keys = [named(each) for each in told.key_field_ids]
    return first_version(fields, keys, named(told.timestamp_field_id) if told.timestamp_field_id else None)


def _field_to_wire(field: Field) -> typed_pb2.SchemaField:
    told = typed_pb2.SchemaField(id=field.id, name=field.name, nullable=field.nullable)
    match field.type:
        case Primitive(name):
            told.primitive = name
        case Decimal(precision, scale):
            told.decimal.CopyFrom(typed_pb2.DecimalType(precision=precision, scale=scale))
        case Struct(fields):
            told.struct.CopyFrom(typed_pb2.StructType(fields=[_field_to_wire(each) for each in fields]))
        case Array(element):
            told.array.CopyFrom(typed_pb2.ArrayType(element=_field_to_wire(element)))
        case Map(key, value):
            told.map.CopyFrom(typed_pb2.MapType(key=_field_to_wire(key), value=_field_to_wire(value)))
    return told


def _fields_from_wire(told: Iterable[typed_pb2.SchemaField]) -> tuple[Field, ...]:
    return tuple(_field_from_wire(each) for each in told)


def _field_from_wire(told: typed_pb2.SchemaField) -> Field:
    return Field(told.name, _type_from_wire(told), told.nullable, told.id)


def _type_from_wire(told: typed_pb2.SchemaField) -> FieldType:
    match told.WhichOneof("type"):
        case "primitive":
            return Primitive(told.primitive)
        case "decimal":
            return Decimal(told.decimal.precision, told.decimal.scale)
        case "struct":
            return Struct(_fields_from_wire(told.struct.fields))
        case "array":
            return Array(_named(told.array.element, "element"))
        case "map":
            return Map(_named(told.map.key, "key"), _named(told.map.value, "value"))
        case _:
            raise InvalidSchema(f"field {told.name!r} has no type that this version knows")


def _named(told: typed_pb2.SchemaField, name: str) -> Field:
    if told.name != name:
        raise InvalidSchema(f"the {name} of a column is called {told.name!r}: its name is {name!r}")
    return _field_from_wire(told)
