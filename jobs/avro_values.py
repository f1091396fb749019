"""Avro values as a column of a struct, by Spark's own package for Avro, which `typed.py` and `cdc.py` need for Avro.

The package is spark-submit --packages org.apache.spark:spark-avro_2.13:4.2.0.
"""

from __future__ import annotations

import json

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as t
from pyspark.sql.avro import functions as avro

AVRO_PACKAGE_VERSION = "4.2.0"  # the newest that is published; with PySpark 4.3.0 it works


def with_avro(records: DataFrame, name: str, value: Column, avro_schema: str) -> DataFrame:
    """`records` with a struct `name` more, null where `value` cannot be read. Raises ValueError without the package."""
    try:
        # A record of one record has the same bytes. What is not Avro is a row of nulls to Spark: the inner one is null.
        outer = {"type": "record", "name": "outer_", "fields": [{"name": "read", "type": json.loads(avro_schema)}]}
        values = avro.from_avro(value, json.dumps(outer), {"mode": "PERMISSIVE"})
        read = records.withColumn(name, values["read"])
        kind = read.schema[name].dataType
    except PySparkException as error:
        raise ValueError(
            "Spark does not read Avro here: run this with spark-submit --packages "
            f"org.apache.spark:spark-avro_2.13:{AVRO_PACKAGE_VERSION}, or have JSON written ({error})"
        ) from None
    if not isinstance(kind, t.StructType):
        raise ValueError(f"the Avro schema is of a {kind.simpleString()}: give the schema of a record")
    return read
