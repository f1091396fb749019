"""The schema of the source, in Spark's types and in Arrow's. The columns of keys and values are nullable. typed_rows.py
has the columns of topics with a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_minilog.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_minilog.options.table import SourceOptions
    from pyspark_minilog.reading.typed_rows import TypedTopics

_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADERS = StructField("headers", ArrayType(_HEADER))


def source_schema(include_headers: bool) -> StructType:
    """The columns of keys and values."""
    return StructType([*_COLUMNS, _HEADERS] if include_headers else [*_COLUMNS])


def check_source_schema(schema: StructType, include_headers: bool) -> None:
    """Refuse a `.schema(...)` that is not the source's own schema, because the source converts nothing."""
    wanted = _in_words(source_schema(include_headers))
    if _in_words(schema) != wanted:
        raise InvalidOption(
            f".schema(...) has '{schema.simpleString()}', but the columns of a topic without a schema are fixed (here "
            f"{wanted}): leave .schema(...) out, and select or cast afterwards"
        )


def _in_words(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def arrow_source_schema(include_headers: bool) -> pa.Schema:
    """The schema of the batches for Spark: exactly these types in exactly this order."""
    import pyarrow as pa

    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [("headers", pa.list_(pa.field("element", header)))] if include_headers else []
    return pa.schema(fields + headers)


def frame_schema(schema: StructType, rows: TypedTopics | None, options: SourceOptions) -> pa.Schema:
    """The Arrow schema of the batches of a query, from the schema of its DataFrame."""
    if rows is None or options.rows.is_kafka_view:
        return arrow_source_schema(options.include_headers)
    from pyspark_minilog.spark_types import arrow_schema

    return arrow_schema(schema)
