"""What `typed.py` and `cdc.py` share: the typed topic that a job writes, and the topic for what does not fit.

`found`, in the functions below, are the records of a micro-batch with a column `reason`, null where all is well, and a
struct `row` with the columns of the typed topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from minilog import Admin, TopicSchema
from minilog.types import TopicDescription

SHOWN_CHARACTERS = 80  # of a value that does not fit


class FromTo(Protocol):
    """The options that both jobs have."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def to_topic(self) -> str: ...
    @property
    def bad_topic(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def source_servers(self) -> str: ...


def describe_topic(bootstrap_servers: str, topic: str) -> TopicDescription:
    """One topic, as it is now."""
    with Admin({"bootstrap.servers": bootstrap_servers}) as admin:
        (description,) = admin.describe_topics([topic])
    return description


def schema_of(description: TopicDescription) -> TopicSchema:
    """Raises ValueError for a topic without one."""
    if description.schema is None:
        topic = description.name
        raise ValueError(f"topic {topic} has no schema: create it with one, minilog topic create {topic} --ddl ...")
    return description.schema


def read_records(spark: SparkSession, options: FromTo) -> DataFrame:
    """The records of the untyped topic, from its first one on, of minilog or of Kafka."""
    servers = "kafka.bootstrap.servers" if options.source == "kafka" else "bootstrap.servers"
    records = (
        spark.readStream.format(options.source)
        .option(servers, options.source_servers or options.bootstrap_servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    return records.select("key", "value", "topic", "partition", "offset")


def of_row(name: str) -> Column:
    """A column of the typed topic."""
    return f.col("row").getField(name)


def does_not_fit(name: str, kind: str, shown: Column) -> Column:
    """The sentence about a value that its column cannot hold."""
    beginning = f.substring(shown, 1, SHOWN_CHARACTERS)
    return f.concat(f.lit(f"column {name!r} is {kind}, and "), beginning, f.lit(" does not fit"))


def unknown_names(text: Column, names: Iterable[str]) -> Column:
    """A reason where the JSON object `text` has names other than `names`, else null."""
    unknown = f.array_except(f.json_object_keys(text), f.array(*map(f.lit, names)))
    return f.when(f.size(unknown) > 0, f.concat(f.lit("the topic has no column "), f.array_join(unknown, ", ")))


def missing(schema: TopicSchema) -> list[Column]:
    """A reason for each NOT NULL column without a value."""
    return [
        f.when(of_row(each.name).isNull(), f"column {each.name!r} may not be null")
        for each in schema.fields
        if not each.nullable
    ]


def bad_records(found: DataFrame) -> DataFrame:
    """As they were, with `reason` and `from` in the headers."""
    place = f.concat(f.col("topic"), f.lit("-"), f.col("partition"), f.lit("@"), f.col("offset"))
    headers = f.array(
        *(
            f.struct(f.lit(name).alias("key"), column.cast("binary").alias("value"))
            for name, column in (("reason", f.col("reason")), ("from", place))
        )
    )
    return found.where(f.col("reason").isNotNull()).select("key", "value", headers.alias("headers"))


def write_both(good: DataFrame, bad: DataFrame, number: int, name: str, options: FromTo) -> None:
    """Both topics, each in one transaction: a batch that is written again after a crash writes nothing twice."""
    for rows, topic in ((good, options.to_topic), (bad, options.bad_topic)):
        (
            rows.write.format("minilog")
            .mode("append")
            .option("bootstrap.servers", options.bootstrap_servers)
            .option("topic", topic)
            .option("transactionalId", f"{name}-{topic}")
            .option("transactionVersion", number)
            .save()
        )
