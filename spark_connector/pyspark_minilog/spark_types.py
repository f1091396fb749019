"""Schemas of topics in Spark's types, and Spark's schemas in Arrow's and in those of topics. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from minilog.typed.schema.schema_json import schema_from_json, schema_to_json
from minilog.typed.schema.topic_schema import TopicSchema

if TYPE_CHECKING:
    import pyarrow as pa


def spark_schema(schema: TopicSchema) -> StructType:
    """The columns of a topic in Spark's types, with their nullability."""
    return StructType.fromJson(json.loads(schema_to_json(schema)))


def schema_from_spark(schema: StructType, keys: Iterable[str] = (), timestamp: str | None = None) -> TopicSchema:
    """The first version of a topic's schema that takes these rows. Raises InvalidSchema."""
    fields = {**json.loads(schema.json()), "key_columns": list(keys), "timestamp_column": timestamp}
    return schema_from_json(json.dumps(fields))


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema of the batches for Spark. Spark derives the same schema itself."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
