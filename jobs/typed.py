"""Values of an untyped topic, JSON, CSV or Avro, into the columns of a typed topic; what does not fit, with its reason,
into a topic of its own.

    python jobs/typed.py --bootstrap-servers 127.0.0.1:9092 --topic events --to-topic flights --bad-topic flights-bad \
        --checkpoint /data/typed-flights

The columns are those that `--to-topic` has when the job starts. A value is good if all of it is there afterwards: a
number that does not fit its column, an unknown name in a JSON object, a time without a zone, or no value for a NOT NULL
column make it bad. The bad topic is untyped: key and value as they were, and headers `reason` and `from` (topic,
partition and offset). CSV has the columns in the topic's order, without a row of names. Avro is the bare value, without
a schema registry's prefix, written by the schema in the file `--avro-schema`; what is another value when it is cast
to the type of its column and back is bad. Spark needs a package for Avro:
spark-submit --packages org.apache.spark:spark-avro_2.13:4.2.0.

`--source kafka` reads from Kafka instead, at `--source-servers`, by Spark's own connector:
spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0. Both packages are the newest that are
published, and work with Spark 4.3.0.

Both topics are written once, whatever crashes: each micro-batch is one transaction for each of them, under a name made
of `--name` and the number of the batch. Another checkpoint therefore needs another `--name`. SIGTERM and SIGINT stop
it; `--trigger available-now` ends it when it has what was there at its start.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import sys

from avro_values import with_avro
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.streaming.readwriter import DataStreamWriter
from running import create_session, parse_arguments, run_query
from typed_target import (
    bad_records,
    describe_topic,
    does_not_fit,
    missing,
    of_row,
    read_records,
    schema_of,
    unknown_names,
    write_both,
)

from minilog import TopicSchema

JSON, CSV, AVRO = "json", "csv", "avro"
_BROKEN = "__broken"  # where Spark puts what it could not parse
_WITH_ZONE = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][.SSS]XXX"


@dataclasses.dataclass(frozen=True, slots=True)
class TypedOptions:
    """From where to where."""

    bootstrap_servers: str
    topic: str
    to_topic: str
    bad_topic: str
    checkpoint: str
    format: str = JSON
    avro_schema: str = ""  # a file
    source: str = "minilog"
    source_servers: str = ""  # the same
    name: str = ""  # of the transactions: made of the topics
    trigger: str = "1 second"


def parsed(records: DataFrame, schema: TopicSchema, form: str, avro_schema: str = "") -> DataFrame:
    """`records` with two columns more: `row`, a struct of the topic's columns, and `reason`, null where all is well."""
    if form == AVRO:
        return _parsed_avro(records, schema, avro_schema)
    text = f.col("value").cast("string")
    columns = ", ".join(str(dataclasses.replace(each, nullable=True)) for each in schema.fields)
    options = {"columnNameOfCorruptRecord": _BROKEN, "mode": "PERMISSIVE", "timestampFormat": _WITH_ZONE}
    with_broken = f"{columns}, `{_BROKEN}` string"
    read = f.from_json(text, with_broken, options) if form == JSON else f.from_csv(text, with_broken, options)
    found = records.withColumn("row", read)
    broken = found["row"][_BROKEN].isNotNull()
    reasons = [f.when(f.col("value").isNull(), "there is no value")]
    if form == JSON:
        reasons += [*_json_reasons(text, schema, broken), unknown_names(text, schema.names)]
    reasons += [f.when(broken | f.col("row").isNull(), f"this is not {form.upper()} of the columns {schema}")]
    reasons += missing(schema)
    return found.withColumn("reason", f.coalesce(*reasons)).withColumn("row", f.col("row").dropFields(_BROKEN))


def _json_reasons(text: Column, schema: TopicSchema, broken: Column) -> list[Column]:
    """What could not be parsed is null in the row, and is there in the text."""
    reasons = []
    for each in schema.fields:
        said = f.get_json_object(text, f"$['{each.name}']")
        told = does_not_fit(each.name, str(each.type), said)
        reasons.append(f.when(broken & said.isNotNull() & of_row(each.name).isNull(), told))
    return reasons


def _parsed_avro(records: DataFrame, schema: TopicSchema, avro_schema: str) -> DataFrame:
    read = with_avro(records, "read", f.col("value"), avro_schema)
    kind = read.schema["read"].dataType
    assert isinstance(kind, t.StructType)
    return fitted(read, kind, schema)


def fitted(read: DataFrame, kind: t.StructType, schema: TopicSchema) -> DataFrame:
    """Records with a struct `read`, null where it could not be read: see `parsed`. Raises ValueError."""
    if unknown := [name for name in kind.names if name not in schema.names]:
        raise ValueError(f"the topic has no column {', '.join(unknown)}, which the Avro schema has")
    columns, lost = [], []
    for each in schema.fields:
        column = f.lit(None)
        if each.name in kind.names:
            column = f.col("read").getField(each.name)
            lost += _lost(each.name, str(each.type), kind[each.name].dataType)
        columns.append(column.try_cast(str(each.type)).alias(each.name))
    nothing = [f.when(f.col("value").isNull(), "there is no value")]
    nothing += [f.when(f.col("read").isNull(), "this is not Avro of that schema")]
    found = read.withColumn("row", f.struct(*columns))
    return found.withColumn("reason", f.coalesce(*nothing, *lost, *missing(schema))).drop("read")


def _lost(name: str, wanted: str, given: t.DataType) -> list[Column]:
    """What is another value when it is cast back has lost something."""
    if t.DataType.fromDDL(wanted).simpleString() == given.simpleString():
        return []
    if "map<" in given.simpleString():  # maps are not compared
        raise ValueError(
            f"column {name!r} is {wanted}, and {given.simpleString()} in the Avro schema: make it the same"
        )
    original = f.col("read").getField(name)
    told = does_not_fit(name, wanted, original.cast("string"))
    return [f.when(~of_row(name).try_cast(given).eqNullSafe(original), told)]


def good_rows(found: DataFrame) -> DataFrame:
    """The columns of the typed topic."""
    return found.where(f.col("reason").isNull()).select("row.*")


def write_batch(
    records: DataFrame, number: int, *, options: TypedOptions, schema: TopicSchema, avro_schema: str
) -> None:
    """Both topics, each in one transaction: a batch that is written again after a crash writes nothing twice."""
    found = parsed(records, schema, options.format, avro_schema).persist()
    name = options.name or f"typed-{options.topic}-{options.to_topic}"
    write_both(good_rows(found), bad_records(found), number, name, options)
    found.unpersist()


def typed(spark: SparkSession, options: TypedOptions) -> DataStreamWriter:
    """The query, not started. Raises ValueError for a topic without a schema, or Avro that Spark does not read."""
    schema = schema_of(describe_topic(options.bootstrap_servers, options.to_topic))
    avro_schema = pathlib.Path(options.avro_schema).read_text() if options.format == AVRO else ""
    records = read_records(spark, options)
    parsed(records, schema, options.format, avro_schema)  # told now, not in the first batch
    write = functools.partial(write_batch, options=options, schema=schema, avro_schema=avro_schema)
    return (
        records.writeStream.foreachBatch(write)
        .queryName(f"typed-{options.topic}")
        .option("checkpointLocation", options.checkpoint)
    )


def main() -> None:
    """Run until SIGTERM or SIGINT, or until the query fails."""
    options = parse_arguments(TypedOptions, __doc__, sys.argv[1:])
    if options.format not in (JSON, CSV, AVRO):
        sys.exit(f"--format {options.format}: expected {JSON}, {CSV} or {AVRO}")
    if options.format == AVRO and not options.avro_schema:
        sys.exit("--format avro needs --avro-schema FILE")
    spark = create_session("minilog-typed")
    run_query(typed(spark, options), options.trigger)
    spark.stop()


if __name__ == "__main__":
    main()
