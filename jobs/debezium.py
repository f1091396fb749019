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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from debezium_values import (
    MILLISECONDS,
    Encoding,
    Hints,
    converted,
    decimal_scale,
    is_time,
    unavailable,
    unfit,
    wire_type,
)
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t
from typed_target import does_not_fit, missing, of_row, unknown_names

from minilog import TopicSchema
from minilog.typed.fields import Field, quoted

_BROKEN = "__broken"  # where Spark puts what it could not parse
_OPTIONS = {"columnNameOfCorruptRecord": _BROKEN, "mode": "PERMISSIVE"}
_ROWS, _DELETED, _TRUNCATED, _MESSAGE = ("c", "r", "u"), "d", "t", "m"
_TYPES = "schema struct<fields: array<struct<field: string, fields: array<struct<field: string, name: string, "
_TYPES += "parameters: struct<scale: string>>>>>>"
_NO_EVENT = "this is no change event of Debezium, because it has no op (jobs/typed.py takes rows without an envelope)"


@dataclass(frozen=True)
class Events:
    """Records with what was read of them: `op`, the structs `before` (key columns alone) and `after`, and `id`, the
    record's key. `reasons`: why a record could not be read. `shown`: a column of `after` as text. `semantic` and
    `scale`: what the events themselves say about a column, else null."""

    frame: DataFrame
    reasons: Sequence[Column]
    shown: Callable[[str], Column]
    semantic: Callable[[str], Column]
    scale: Callable[[str], Column]

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
    said = {_at("semantic", field): _semantic(events, field, encoding) for field in schema.fields}
    said |= {_at("scale", field): _scale(events, field) for field in schema.fields}
    values = {_at("after", field): _value(events, "after", field, encoding) for field in schema.fields}
    values |= {
        _at(image, field): _value(events, image, field, encoding) for image in ("id", "before") for field in keys
    }
    frame = events.frame.withColumns(said).withColumns(values)
    deleted = f.col("value").isNull() | f.col("op").eqNullSafe(_DELETED)
    frame = frame.withColumn("deleted", deleted)
    columns = []
    for field in schema.fields:
        of_deletion = f.lit(None)
        if field in keys:
            of_deletion = f.coalesce(f.col(_at("id", field)), f.col(_at("before", field)))
        columns.append(f.when(f.col("deleted"), of_deletion).otherwise(f.col(_at("after", field))).alias(field.name))
    frame = frame.withColumn("row", f.struct(*columns))
    of_columns = [*_reasons_of_columns(events, schema, encoding), *missing(schema)]
    reasons = [*_reasons_of_event(events), *_reasons_of_key(keys)]
    reasons.append(f.when(~f.col("deleted"), f.coalesce(*of_columns)))
    frame = frame.withColumn("reason", f.coalesce(*reasons))
    return frame.select("key", "value", "topic", "partition", "offset", "row", "deleted", "reason")


def changes(found: DataFrame) -> DataFrame:
    """The columns of the typed topic, and `_deleted`."""
    return found.where(f.col("reason").isNull()).select("row.*", f.col("deleted").alias("_deleted"))


def _at(image: str, field: Field) -> str:
    """The column of the DataFrame with the converted value of a field."""
    return f"{image}_{field.id}"


def _hints(field: Field, encoding: Encoding) -> Hints:
    return Hints(encoding, f.col(_at("semantic", field)), f.col(_at("scale", field)))


def _value(events: Events, image: str, field: Field, encoding: Encoding) -> Column:
    given = events.given(image, field.name)
    if given is None:
        return f.lit(None).cast(str(field.type))
    return converted(f.col(image).getField(field.name), given, field.type, _hints(field, encoding))


def _semantic(events: Events, field: Field, encoding: Encoding) -> Column:
    default = f.lit(MILLISECONDS if field.name in encoding.milliseconds else None).cast("string")
    return f.coalesce(events.semantic(field.name), default) if is_time(field.type) else default


def _scale(events: Events, field: Field) -> Column:
    scale = decimal_scale(field.type)
    return f.lit(0) if scale is None else f.coalesce(events.scale(field.name), f.lit(scale))


def _reasons_of_event(events: Events) -> list[Column]:
    op, is_value = f.col("op"), f.col("value").isNotNull()
    no_after = f.concat(f.lit("the event has op "), op, f.lit(", and no row in `after`"))
    unknown = f.concat(f.lit("the event has the unknown op "), f.substring(op, 1, 20))
    return [
        f.when(f.col("value").isNull() & f.col("key").isNull(), "there is neither a key nor a value"),
        *events.reasons,
        f.when(is_value & op.isNull(), _NO_EVENT),
        f.when(op == _TRUNCATED, "the table was truncated, and a topic deletes single keys alone"),
        f.when(op == _MESSAGE, "this is a message of the database, and not a change of a row"),
        f.when(is_value & ~op.isin(*_ROWS, _DELETED), unknown),
        f.when(op.isin(*_ROWS) & f.col("after").isNull(), no_after),
    ]


def _reasons_of_key(keys: Sequence[Field]) -> list[Column]:
    """A record's key has the key columns, each with a value. A row has the same."""
    reasons = []
    for field in keys:
        in_key = f.col(_at("id", field))
        unread = f"the record's key has no value of key column {field.name!r} ({field.type})"
        other = f.concat(
            f.lit(f"the row has {field.name!r} "), of_row(field.name).cast("string"),
            f.lit(", and the record's key has "), in_key.cast("string"),
            f.lit(": their order is not certain"),
        )  # fmt: skip
        without = f"a deletion has no value of key column {field.name!r}, neither in the record's key nor in `before`"
        reasons += [
            f.when(f.col("key").isNotNull() & in_key.isNull(), unread),
            f.when(f.col("deleted") & of_row(field.name).isNull(), without),
            f.when(f.col("key").isNotNull() & of_row(field.name).isNotNull() & (of_row(field.name) != in_key), other),
        ]
    return reasons


def _reasons_of_columns(events: Events, schema: TopicSchema, encoding: Encoding) -> list[Column]:
    reasons = []
    for field in schema.fields:
        given = events.given("after", field.name)
        if given is not None:
            hints, raw = _hints(field, encoding), f.col("after").getField(field.name)
            told = does_not_fit(field.name, str(field.type), events.shown(field.name))
            # What Spark itself could not parse is null in the struct, and is there in the text.
            unparsed = f.col("broken") & events.shown(field.name).isNotNull() & raw.isNull()
            cast = f.col(_at("after", field))
            reasons.append(f.when(unparsed | unfit(raw, cast, given, field.type, hints), told))
            absent = (
                f"column {field.name!r} has the text for a value that the database did not send: set REPLICA "
                "IDENTITY FULL on the table"
            )
            reasons.append(f.when(unavailable(of_row(field.name), field.type, encoding), absent))
        if field.name in schema.key_columns:
            reasons.append(f.when(of_row(field.name).isNull(), f"the row has no value of key column {field.name!r}"))
    return [*reasons, f.when(f.col("broken"), f"this is not a change event of the columns {schema}")]


# -- JSON


def read_json(records: DataFrame, schema: TopicSchema, *, is_open: bool) -> Events:
    """Events in JSON, of Kafka Connect's JsonConverter with `schemas.enable` or without. `is_open`: columns that the
    topic does not have are left out, and no reason."""
    rows = _wire_struct([replace(field, nullable=True) for field in schema.fields])
    keys = _wire_struct([schema.column(name) for name in schema.key_columns])
    event = f"op string, before {keys}, after {rows}"
    text = f.col("value").cast("string")
    frame = records.withColumn(
        "event", f.from_json(text, f"payload struct<{event}>, {event}, {_TYPES}, `{_BROKEN}` string", _OPTIONS)
    )
    for name in ("op", "before", "after"):
        frame = frame.withColumn(name, f.coalesce(f.col("event.payload").getField(name), f.col("event").getField(name)))
    frame = frame.withColumn("broken", f.col("event").getField(_BROKEN).isNotNull())
    key_text = _bare_key(f.col("key").cast("string"))
    frame = frame.withColumn("key_text", key_text).withColumn("id", f.from_json("key_text", keys, _OPTIONS))
    after = f.col("after_text")
    frame = frame.withColumn(
        "after_text", f.coalesce(f.get_json_object(text, "$.payload.after"), f.get_json_object(text, "$.after"))
    )
    extra = f.array_except(f.json_object_keys("key_text"), f.array(*map(f.lit, schema.key_columns)))
    told = f.concat(f.lit("the record's key has the column "), f.array_join(extra, ", "))
    reasons = [
        f.when(f.col("value").isNotNull() & f.json_object_keys(text).isNull(), "this is not a JSON object"),
        f.when(f.size(extra) > 0, f.concat(told, f.lit(f", and the topic's key is {', '.join(schema.key_columns)}"))),
    ]
    if not is_open:
        reasons.append(f.when(f.col("op") != _DELETED, unknown_names(after, schema.names)))
    return Events(
        frame,
        reasons,
        lambda name: f.get_json_object(after, f"$['{name}']"),
        lambda name: _of_types(name)["name"],
        lambda name: _of_types(name)["parameters"]["scale"].try_cast("int"),
    )


def _wire_struct(fields: Sequence[Field]) -> str:
    return f"struct<{', '.join(f'{quoted(field.name)}: {wire_type(field)}' for field in fields)}>"


def _bare_key(text: Column) -> Column:
    """The payload of a key that has its schema beside it."""
    payload = f.get_json_object(text, "$.payload")
    wrapped = payload.startswith("{") & f.get_json_object(text, "$.schema").isNotNull()
    return f.when(wrapped, payload).otherwise(text)


def _of_types(name: str) -> Column:
    """What the schema beside the payload says of a column; null where there is none."""
    images = f.filter(f.col("event.schema.fields"), lambda image: image["field"] == "after")
    columns = f.get(images, f.lit(0))["fields"]
    return f.get(f.filter(columns, lambda column: column["field"] == name), f.lit(0))


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
    frame = records.withColumn("broken", f.lit(False))
    for name in ("op", "before", "after"):
        frame = frame.withColumn(name, f.col("event").getField(name))
    unread = f.when(f.col("value").isNotNull() & f.col("event").isNull(), "this is not Avro of that schema")
    names = _semantics(json.loads(avro_schema))
    return Events(
        frame,
        [*reasons, unread],
        lambda name: f.col("after").getField(name).cast("string"),
        lambda name: f.lit(names.get(name)).cast("string"),
        lambda name: f.lit(None).cast("int"),
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
