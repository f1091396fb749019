"""Change events of Debezium, in JSON or Avro, as rows and deletions of a typed topic. Pure: expressions of Spark.

An event is {"before", "after", "source", "op", "ts_ms"}, bare or as the `payload` beside its `schema`. Of each record
comes one of three things:

| record | becomes |
|---|---|
| op c (created), r (read by a snapshot), u (updated) | the row in `after` |
| op d (deleted); a key without a value (a tombstone) | a deletion of the record's key, or of the key in `before` |
| op t (truncate), op m (message), any other, and all that does not fit | a bad record, with the reason |

A tombstone follows each d, and repeats the deletion. It counts by itself, because a compacted topic keeps it alone.
A row whose key is not the record's key is bad: Debezium puts all changes of a key into one partition by the record's
key, and so only there their order is certain. Records without a key are taken as they come.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from debezium_values import (
    MILLISECONDS,
    Encoding,
    Hints,
    converted,
    decimal_scale,
    is_time,
    literal,
    unavailable,
    unfit,
    wire_type,
)
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t
from typed_target import does_not_fit, missing, unknown_names

from minilog import TopicSchema
from minilog.typed.schema.fields import Field, quoted

_BROKEN = "__broken"  # where Spark puts what it could not parse
_OPTIONS = {"columnNameOfCorruptRecord": _BROKEN, "mode": "PERMISSIVE"}
_ROWS, _DELETED, _TRUNCATED, _MESSAGE = ("c", "r", "u"), "d", "t", "m"
_TYPES = "schema struct<fields: array<struct<field: string, fields: array<struct<field: string, name: string, "
_TYPES += "parameters: struct<scale: string>>>>>>"
_ABSENT = "has the text for a value that the database did not send: set REPLICA IDENTITY FULL on the table"
# The payload of a key that has its schema beside it.
_BARE_KEY = """
IF(
    startswith(get_json_object(CAST(key AS string), '$.payload'), '{')
    AND get_json_object(CAST(key AS string), '$.schema') IS NOT NULL,
    get_json_object(CAST(key AS string), '$.payload'), CAST(key AS string)
)"""
_NO_EVENT = "this is no change event of Debezium, because it has no op (jobs/typed.py takes rows without an envelope)"


@dataclass(frozen=True)
class Events:
    """Records with what was read of them: `op`, the structs `before` (key columns alone) and `after`, and `id`, the
    record's key. `reasons`: why a record could not be read. The other three give SQL for a column. `shown`: the column
    of `after` as text. `semantic` and `scale`: what the events themselves say about it, else null."""

    frame: DataFrame
    reasons: Sequence[Column]
    shown: Callable[[str], str]
    semantic: Callable[[str], str]
    scale: Callable[[str], str]

    def given(self, image: str, name: str) -> t.DataType | None:
        """The type that Spark has read a column as, None where the events do not have the column."""
        struct = self.frame.schema[image].dataType
        assert isinstance(struct, t.StructType)
        return struct[name].dataType if name in struct.names else None


def parsed(events: Events, schema: TopicSchema, encoding: Encoding) -> DataFrame:
    """The records with three columns more: `row`, a struct of the topic's columns, `deleted`, whether the row deletes
    its key, and `reason`, null where all is well."""
    keys = [schema.column(name) for name in schema.key_columns]
    # Spark computes a column of a DataFrame once. The same as part of other expressions it would compute in each.
    hints = {}
    for field in schema.fields:
        hints[_at("semantic", field)] = _semantic(events, field, encoding)
        hints[_at("scale", field)] = _scale(events, field)
    values = {_at("after", field): _value(events, "after", field, encoding) for field in schema.fields}
    for image in ("id", "before"):
        values |= {_at(image, field): _value(events, image, field, encoding) for field in keys}
    frame = _with_columns(_with_columns(events.frame, hints), values)
    row = ", ".join(f"{_row_value(field, is_key=field in keys)} AS {quoted(field.name)}" for field in schema.fields)
    deleted = f"value IS NULL OR op <=> {literal(_DELETED)}"
    frame = _with_columns(_with_columns(frame, {"deleted": deleted}), {"row": f"struct({row})"})
    of_columns = [*_reasons_of_columns(events, schema, encoding), *missing(schema)]
    reasons = [*_reasons_of_event(events), *_reasons_of_key(keys)]
    reasons.append(f.when(f.expr("NOT deleted"), f.coalesce(*of_columns)))
    frame = frame.withColumn("reason", f.coalesce(*reasons))
    return frame.select("key", "value", "topic", "partition", "offset", "row", "deleted", "reason")


def _with_columns(frame: DataFrame, expressions: Mapping[str, str]) -> DataFrame:
    return frame.selectExpr("*", *(f"{expression} AS {name}" for name, expression in expressions.items()))


def _row_value(field: Field, *, is_key: bool) -> str:
    """Of a deletion the key columns alone."""
    of_deletion = f"coalesce({_at('id', field)}, {_at('before', field)})" if is_key else "NULL"
    return f"IF(deleted, {of_deletion}, {_at('after', field)})"


def changes(found: DataFrame) -> DataFrame:
    """The columns of the typed topic, and `_deleted`."""
    return found.where(f.col("reason").isNull()).select("row.*", f.col("deleted").alias("_deleted"))


def _at(image: str, field: Field) -> str:
    """The column of the DataFrame with the converted value of a field."""
    return f"{image}_{field.id}"


def _hints(field: Field, encoding: Encoding) -> Hints:
    return Hints(encoding, _at("semantic", field), _at("scale", field))


def _value(events: Events, image: str, field: Field, encoding: Encoding) -> str:
    given = events.given(image, field.name)
    if given is None:
        return f"CAST(NULL AS {field.type})"
    return converted(_in(image, field.name), given, field.type, _hints(field, encoding))


def _in(struct: str, name: str) -> str:
    """A field of a struct."""
    return f"{struct}.`{name.replace('`', '``')}`"


def _semantic(events: Events, field: Field, encoding: Encoding) -> str:
    default = literal(MILLISECONDS) if field.name in encoding.milliseconds else "CAST(NULL AS string)"
    return f"coalesce({events.semantic(field.name)}, {default})" if is_time(field.type) else default


def _scale(events: Events, field: Field) -> str:
    scale = decimal_scale(field.type)
    return "0" if scale is None else f"coalesce({events.scale(field.name)}, {scale})"


def _reason(condition: str, sentence: str) -> Column:
    """`sentence` where `condition` holds, else null. Both are SQL."""
    return f.expr(f"CASE WHEN {condition} THEN {sentence} END")


def _reasons_of_event(events: Events) -> list[Column]:
    rows = ", ".join(map(literal, _ROWS))
    truncated = literal("the table was truncated, and a topic deletes single keys alone")
    message = literal("this is a message of the database, and not a change of a row")
    unknown = "concat('the event has the unknown op ', substring(op, 1, 20))"
    return [
        _reason("value IS NULL AND key IS NULL", literal("there is neither a key nor a value")),
        *events.reasons,
        _reason("value IS NOT NULL AND op IS NULL", literal(_NO_EVENT)),
        _reason(f"op = {literal(_TRUNCATED)}", truncated),
        _reason(f"op = {literal(_MESSAGE)}", message),
        _reason(f"op NOT IN ({rows}, {literal(_DELETED)})", unknown),
        _reason(f"op IN ({rows}) AND after IS NULL", "concat('the event has op ', op, ', and no row in `after`')"),
    ]


def _reasons_of_key(keys: Sequence[Field]) -> list[Column]:
    """A record's key has the key columns, each with a value. A row has the same."""
    reasons = []
    for field in keys:
        name, in_key, in_row = field.name, _at("id", field), _in("row", field.name)
        unread = f"the record's key has no value of key column {name!r} ({field.type})"
        parts = (f"the row has {name!r} ", ", and the record's key has ", ": their order is not certain")
        first, second, third = map(literal, parts)
        other = f"concat({first}, CAST({in_row} AS string), {second}, CAST({in_key} AS string), {third})"
        without = f"a deletion has no value of key column {name!r}, neither in the record's key nor in `before`"
        reasons += [
            _reason(f"key IS NOT NULL AND {in_key} IS NULL", literal(unread)),
            _reason(f"deleted AND {in_row} IS NULL", literal(without)),
            _reason(f"key IS NOT NULL AND {in_row} != {in_key}", other),
        ]
    return reasons


def _reasons_of_columns(events: Events, schema: TopicSchema, encoding: Encoding) -> list[Column]:
    reasons = []
    for field in schema.fields:
        given = events.given("after", field.name)
        if given is not None:
            raw, shown = _in("after", field.name), events.shown(field.name)
            # What Spark itself could not parse is null in the struct, and is there in the text.
            unparsed = f"(broken AND {shown} IS NOT NULL AND {raw} IS NULL)"
            is_unfit = unfit(raw, _at("after", field), given, field.type, _hints(field, encoding))
            told = does_not_fit(field.name, str(field.type), f.expr(shown))
            reasons.append(f.when(f.expr(f"{unparsed} OR {is_unfit}"), told))
            is_absent = unavailable(_in("row", field.name), field.type, encoding)
            if is_absent:
                reasons.append(_reason(is_absent, literal(f"column {field.name!r} {_ABSENT}")))
        if field.name in schema.key_columns:
            without = literal(f"the row has no value of key column {field.name!r}")
            reasons.append(_reason(f"{_in('row', field.name)} IS NULL", without))
    return [*reasons, _reason("broken", literal(f"this is not a change event of the columns {schema}"))]


# -- JSON


def read_json(records: DataFrame, schema: TopicSchema, *, is_open: bool) -> Events:
    """Events in JSON, of Kafka Connect's JsonConverter with `schemas.enable` or without. `is_open`: columns that the
    topic does not have are left out, and no reason."""
    rows = _wire_struct([replace(field, nullable=True) for field in schema.fields])
    keys = _wire_struct([schema.column(name) for name in schema.key_columns])
    event = f"op string, before {keys}, after {rows}"
    text = f.col("value").cast("string")
    event = f"payload struct<{event}>, {event}, {_TYPES}, `{_BROKEN}` string"
    frame = records.withColumn("text", text).withColumn("event", f.from_json("text", event, _OPTIONS))
    images = {name: f"coalesce(event.payload.{name}, event.{name})" for name in ("op", "before", "after")}
    images["after_text"] = "coalesce(get_json_object(text, '$.payload.after'), get_json_object(text, '$.after'))"
    images["broken"] = f"event.`{_BROKEN}` IS NOT NULL"
    images["key_text"] = _BARE_KEY
    frame = _with_columns(frame, images).withColumn("id", f.from_json("key_text", keys, _OPTIONS))
    known = ", ".join(map(literal, schema.key_columns))
    extra = f"array_except(json_object_keys(key_text), array({known}))"
    topic_key = literal(f", and the topic's key is {', '.join(schema.key_columns)}")
    told = f"concat('the record\\'s key has the column ', array_join({extra}, ', '), {topic_key})"
    reasons = [
        _reason("value IS NOT NULL AND json_object_keys(text) IS NULL", literal("this is not a JSON object")),
        _reason(f"size({extra}) > 0", told),
    ]
    if not is_open:
        reasons.append(f.when(f.col("op") != _DELETED, unknown_names(f.col("after_text"), schema.names)))
    return Events(
        frame,
        reasons,
        lambda name: f"get_json_object(after_text, {literal(_path(name))})",
        lambda name: f"{_of_types(name)}.name",
        lambda name: f"TRY_CAST({_of_types(name)}.parameters.scale AS int)",
    )


def _path(name: str) -> str:
    return f"$['{name}']"


def _wire_struct(fields: Sequence[Field]) -> str:
    return f"struct<{', '.join(f'{quoted(field.name)}: {wire_type(field)}' for field in fields)}>"


def _of_types(name: str) -> str:
    """What the schema beside the payload says of a column; null where there is none."""
    columns = "get(filter(event.schema.fields, image -> image.field = 'after'), 0).fields"
    return f"get(filter({columns}, column -> column.field = {literal(name)}), 0)"


# -- Avro


def read_avro(
    records: DataFrame, schema: TopicSchema, avro_schema: str, reasons: Sequence[Column] = (), *, is_open: bool
) -> Events:
    """Events that Spark has read from Avro: `records` with a struct `event` and a struct `id`, each null where it could
    not be read. Raises ValueError."""
    event, key = records.schema["event"].dataType, records.schema["id"].dataType
    assert isinstance(event, t.StructType)
    assert isinstance(key, t.StructType)
    after = event["after"].dataType if "after" in event.names else None
    if "op" not in event.names or not isinstance(after, t.StructType):
        raise ValueError("the Avro schema has no `op`, or no record `after`: give the schema of Debezium's envelope")
    if set(key.names) != set(schema.key_columns):
        raise ValueError(
            f"the Avro schema of the key has {', '.join(key.names)}, and the topic's key is "
            f"{', '.join(schema.key_columns)}: create a topic with the same key columns"
        )
    if not is_open and (unknown := [name for name in after.names if name not in schema.names]):
        raise ValueError(f"the topic has no column {', '.join(unknown)}, which the Avro schema has")
    images = {"op": "event.op", "before": "event.before", "after": "event.after", "broken": "false"}
    frame = _with_columns(records, images)
    unread = _reason("value IS NOT NULL AND event IS NULL", literal("this is not Avro of that schema"))
    names = _semantics(json.loads(avro_schema))
    return Events(
        frame,
        [*reasons, unread],
        lambda name: f"CAST({_in('after', name)} AS string)",
        lambda name: literal(names[name]) if name in names else "CAST(NULL AS string)",
        lambda _: "CAST(NULL AS int)",
    )


def _semantics(avro_schema: Any) -> dict[str, str]:
    """The names that Debezium gives to the meaning of the columns of a row, from the schema of its envelope."""
    images = [each for each in avro_schema["fields"] if each["name"] in ("before", "after")]
    kinds = [kind for image in images for kind in _branches(image["type"])]
    return {
        column["name"]: kind["connect.name"]
        for row in kinds
        if isinstance(row, dict) and "fields" in row
        for column in row["fields"]
        for kind in _branches(column["type"])
        if isinstance(kind, dict) and "connect.name" in kind
    }


def _branches(kind: Any) -> list[Any]:
    return kind if isinstance(kind, list) else [kind]
