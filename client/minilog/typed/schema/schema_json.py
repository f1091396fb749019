"""A schema as JSON: the form of Spark's `df.schema.json()`, and also ids, key columns and the timestamp column. Pure.

    {"type": "struct", "fields": [{"name": "carrier", "type": "string", "nullable": true, "id": 1}, ...],
     "key_columns": ["carrier"], "timestamp_column": "scheduled", "version": 1, "last_field_id": 12}

A file from Spark works as it is. The brokers give ids, version and last_field_id, and only their JSON has them. `type`
may also be text (`array<string>`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from minilog.errors import InvalidSchema
from minilog.typed.schema.ddl import collation_refused, parse_type
from minilog.typed.schema.fields import Array, Field, FieldType, Map, Struct
from minilog.typed.schema.topic_schema import MAX_DEPTH, TopicSchema, first_version

MAX_JSON_CHARACTERS = 1 << 20
_SHOWN_CHARACTERS = 200  # of a name from outside
_SPARK_NAMES = {"int": "integer"}  # JSON's names where they are not SQL's
_COLLATIONS = "__COLLATIONS"  # Spark's name for those of a field's text: by path, with the provider before a dot
_PLAIN_COLLATION = "UTF8_BINARY"


def schema_from_json(text: str) -> TopicSchema:
    """The schema of a new topic from JSON of a person or of Spark. Raises InvalidSchema."""
    if len(text) > MAX_JSON_CHARACTERS:
        raise InvalidSchema(f"the schema takes {len(text)} characters, the most is {MAX_JSON_CHARACTERS}")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"the schema is no JSON ({error}): give the output of df.schema.json()") from None
    if isinstance(content, list):
        content = {"fields": content}
    if not isinstance(content, dict) or not isinstance(content.get("fields"), list):
        raise InvalidSchema('the schema has no list "fields": give the output of df.schema.json()')
    keys, timestamp = content.get("key_columns", []), content.get("timestamp_column")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise InvalidSchema("key_columns is not a list of names")
    if timestamp is not None and not isinstance(timestamp, str):
        raise InvalidSchema("timestamp_column is not a name")
    return first_version(_fields(content["fields"], 1, ""), keys, timestamp)


def schema_to_json(schema: TopicSchema) -> str:
    """The whole schema as JSON with its ids, over several lines."""
    content: dict[str, Any] = {
        "type": "struct",
        "fields": [_field_said(field) for field in schema.fields],
        "key_columns": list(schema.key_columns),
        "timestamp_column": schema.timestamp_column,
        "version": schema.version,
        "last_field_id": schema.last_field_id,
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _fields(items: Sequence[Any], depth: int, path: str) -> tuple[Field, ...]:
    return tuple(_field(item, depth, path) for item in items)


def _field(content: Any, depth: int, path: str) -> Field:
    if not isinstance(content, dict) or not isinstance(content.get("name"), str) or "type" not in content:
        raise InvalidSchema(f'a field has a "name" and a "type", and {json.dumps(content)[:80]} has not')
    nullable = content.get("nullable", True)
    if not isinstance(nullable, bool):
        raise InvalidSchema(f"nullable of field {content['name']!r} is neither true nor false")
    here = f"{path}.{content['name']}" if path else content["name"]
    comment = _comment(content.get("metadata"), here)
    return Field(content["name"], _type(content["type"], here, depth), nullable, comment=comment)


def _comment(metadata: Any, path: str) -> str:
    """The comment in the metadata of Spark's field. Raises InvalidSchema for a collation, which would be lost."""
    if not isinstance(metadata, dict):
        return ""
    collations = metadata.get(_COLLATIONS)
    for collation in collations.values() if isinstance(collations, dict) else ():
        if (name := str(collation).rpartition(".")[2]) != _PLAIN_COLLATION:
            raise InvalidSchema(f"column {path!r}: {collation_refused(name)}")
    comment = metadata.get("comment", "")
    return comment if isinstance(comment, str) else ""


def _type(content: Any, name: str, depth: int) -> FieldType:
    if depth > MAX_DEPTH:
        raise InvalidSchema(f"columns are nested deeper than {MAX_DEPTH} levels: flatten them")
    match content:
        case str(words):
            return _scalar(words, name)
        case {"type": "struct", "fields": list(fields)}:
            return Struct(_fields(fields, depth + 1, name))
        case {"type": "array", "elementType": element, **rest}:
            return Array(
                Field(
                    "element", _type(element, f"{name}.element", depth + 1), rest.get("containsNull", True) is not False
                )
            )
        case {"type": "map", "keyType": key, "valueType": value, **rest}:
            return Map(
                Field("key", _type(key, f"{name}.key", depth + 1), nullable=False),
                Field(
                    "value", _type(value, f"{name}.value", depth + 1), rest.get("valueContainsNull", True) is not False
                ),
            )
        case _:
            raise InvalidSchema(
                f"column {name!r} is of type {_name_of(content)}, which no topic can have: cast it to one of Spark's "
                "own types, or drop it"
            )


def _name_of(content: Any) -> str:
    """The name of a type that is no type of a topic."""
    kind = content.get("type") if isinstance(content, dict) else None
    if kind == "udt":
        return repr(str(content.get("pyClass") or content.get("class") or kind)[:_SHOWN_CHARACTERS])
    return repr(kind[:_SHOWN_CHARACTERS]) if isinstance(kind, str) else "without a name"


def _scalar(words: str, name: str) -> FieldType:
    try:
        return parse_type(words)
    except InvalidSchema as error:
        raise InvalidSchema(
            f"column {name!r} is of type {words!r}, which no topic can have: cast it, to string for example, or drop "
            f"it ({error})"
        ) from None


def _field_said(field: Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _type_said(field.type),
        "nullable": field.nullable,
        "metadata": {"comment": field.comment} if field.comment else {},
        "id": field.id,
    }


def _type_said(kind: FieldType) -> str | Mapping[str, Any]:
    match kind:
        case Struct(fields):
            return {"type": "struct", "fields": [_field_said(field) for field in fields]}
        case Array(element):
            return {
                "type": "array",
                "elementType": _type_said(element.type),
                "containsNull": element.nullable,
                "elementId": element.id,
            }
        case Map(key, value):
            return {
                "type": "map",
                "keyType": _type_said(key.type),
                "valueType": _type_said(value.type),
                "valueContainsNull": value.nullable,
                "keyId": key.id,
                "valueId": value.id,
            }
        case _:
            return _SPARK_NAMES.get(str(kind), str(kind))
