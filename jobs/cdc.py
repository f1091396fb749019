"""Change events of Debezium (CDC) into a typed, compacted topic: `view=latest` of that topic is the table.

    minilog topic create accounts -p 3 --key-columns id -c cleanup.policy=compact \
        --ddl "id long NOT NULL, owner string, balance decimal(12,2), changed timestamp_ntz"
    minilog topic create accounts-bad
    python jobs/cdc.py --bootstrap-servers 127.0.0.1:9092 --topic bank.public.accounts --to-topic accounts \
        --bad-topic accounts-bad --checkpoint /data/cdc-accounts

`--topic` has the records as the connector writes them: key and value in JSON, with `schemas.enable` or without. A row
that is created, updated or read by a snapshot becomes a row. A deletion becomes a deletion, and so does a tombstone.
Everything else goes to the bad topic, as it was, with its reason and its place in the headers `reason` and `from`: a
value that does not fit its column, a column that the topic does not have, a truncate, a message. debezium.py has the
rules of events, and debezium_values.py those of values. docs/guides/cdc.md is the guide.

Order: the connector writes all changes of a key to one partition. One task reads a partition whole, in the order of its
offsets, and writes what it reads in that order. There is no shuffle between: each key has one writer in a micro-batch,
and one micro-batch ends before the next one begins. So the newest change of a key is also the newest in the typed
topic, and every change is there, for readers of the stream. Records without a key have this order only where the topic
has one partition.

Exactly once: each micro-batch is one transaction for each of the two topics, under a name made of `--name` and the
number of the batch. A micro-batch that runs again after a crash reads the same offsets, and a topic that has it already
takes nothing twice. Another checkpoint needs another `--name`. SIGTERM and SIGINT stop it; `--trigger available-now`
ends it when it has what was there at its start.

Settings of the connector that this job has to know: `--decimal-handling-mode`, `--binary-handling-mode`,
`--unavailable-value`, and `--milliseconds a,b`, the columns whose times are milliseconds (TIMESTAMP(3) in Postgres).
Events with a schema say the last one themselves. `--unknown-columns drop` leaves out columns that the topic does not
have.

Avro (`--format avro --avro-schema FILE --avro-key-schema FILE`) needs Spark's package:
spark-submit --packages org.apache.spark:spark-avro_2.13:4.2.0. Values of a schema registry begin with the id of their
schema: `--avro-schema-id 7 --avro-key-schema-id 6`. A value of another schema is bad. `--source kafka` reads from Kafka
at `--source-servers`, as typed.py does.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import sys

from avro_values import with_avro
from debezium import Events, changes, parsed, read_avro, read_json
from debezium_values import BINARY_MODES, DECIMAL_MODES, Encoding
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter
from running import create_session, parse_arguments, run_query
from typed_target import bad_records, describe_topic, read_records, schema_of, write_both

from minilog import TopicSchema
from minilog.types import TopicDescription

JSON, AVRO = "json", "avro"
BAD, DROP = "bad", "drop"
_HEADER_BYTES = 5  # of a schema registry: a zero, and the id of the schema in four bytes


@dataclasses.dataclass(frozen=True, slots=True)
class CdcOptions:
    """From where to where, and how the connector writes."""

    bootstrap_servers: str
    topic: str
    to_topic: str
    bad_topic: str
    checkpoint: str
    format: str = JSON
    avro_schema: str = ""  # a file: of the values
    avro_key_schema: str = ""  # a file
    avro_schema_id: str = ""  # values without a registry's header
    avro_key_schema_id: str = ""
    decimal_handling_mode: str = "precise"
    binary_handling_mode: str = "bytes"
    milliseconds: str = ""  # columns
    unavailable_value: str = "__debezium_unavailable_value"
    unknown_columns: str = BAD
    source: str = "minilog"
    source_servers: str = ""  # the same
    name: str = ""  # of the transactions: made of the topics
    trigger: str = "1 second"

    @property
    def encoding(self) -> Encoding:
        """How the connector writes values."""
        milliseconds = frozenset(name.strip() for name in self.milliseconds.split(",") if name.strip())
        return Encoding(self.decimal_handling_mode, self.binary_handling_mode, milliseconds, self.unavailable_value)


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The typed topic, and the schemas of Avro, as they were when the job began."""

    schema: TopicSchema
    avro_schema: str = ""
    avro_key_schema: str = ""


def check_target(description: TopicDescription, milliseconds: frozenset[str]) -> TopicSchema:
    """The schema of the typed topic. Raises ValueError where the topic cannot hold a table."""
    schema, topic = schema_of(description), description.name
    if not schema.key_columns:
        raise ValueError(f"topic {topic} has no key columns: create it with --key-columns, the table's primary key")
    if "compact" not in description.configs.get("cleanup.policy", ""):
        raise ValueError(
            f"topic {topic} is not compacted, so its retention would delete rows that the table has: "
            f"minilog topic alter {topic} -c cleanup.policy=compact"
        )
    if unknown := sorted(milliseconds - set(schema.names)):
        raise ValueError(f"--milliseconds names {', '.join(unknown)}, and topic {topic} has {', '.join(schema.names)}")
    return schema


def read_events(records: DataFrame, target: Target, options: CdcOptions) -> Events:
    """Raises ValueError for a schema that does not fit, and for Avro that Spark does not read."""
    is_open = options.unknown_columns == DROP
    if options.format == JSON:
        return read_json(records, target.schema, is_open=is_open)
    reasons, values = [], {}
    for column, schema_id in (("value", options.avro_schema_id), ("key", options.avro_key_schema_id)):
        values[column] = f.col(column)
        if schema_id:
            values[column] = f.substring(f.col(column), _HEADER_BYTES + 1, 2**31 - 1)
            reasons.append(_other_schema(column, int(schema_id)))
    read = with_avro(records, "event", values["value"], target.avro_schema)
    read = with_avro(read, "id", values["key"], target.avro_key_schema)
    return read_avro(read, target.schema, target.avro_schema, reasons, is_open=is_open)


def _other_schema(column: str, schema_id: int) -> Column:
    header = f.substring(f.col(column), 1, _HEADER_BYTES)
    wanted = f.lit(bytes([0]) + schema_id.to_bytes(4, "big"))
    told = f.concat(f.lit(f"the {column} is not of schema {schema_id}: it begins with "), f.hex(header))
    return f.when(header != wanted, told)


def write_batch(found: DataFrame, number: int, *, options: CdcOptions) -> None:
    """Both topics, each in one transaction."""
    found = found.persist()
    name = options.name or f"cdc-{options.topic}-{options.to_topic}"
    write_both(changes(found), bad_records(found), number, name, options)
    found.unpersist()


def cdc(spark: SparkSession, options: CdcOptions) -> DataStreamWriter:
    """The query, not started. The zone of the session is UTC. Raises ValueError for a topic that cannot hold a table,
    and for Avro that Spark does not read."""
    description = describe_topic(options.bootstrap_servers, options.to_topic)
    schema = check_target(description, options.encoding.milliseconds)
    files = (options.avro_schema, options.avro_key_schema) if options.format == AVRO else ()
    target = Target(schema, *(pathlib.Path(file).read_text() for file in files))
    events = read_events(read_records(spark, options), target, options)
    # Not in write_batch: the expressions of a wide table take long to build, and they are the same in each micro-batch.
    return (
        parsed(events, schema, options.encoding)
        .writeStream.foreachBatch(functools.partial(write_batch, options=options))
        .queryName(f"cdc-{options.topic}")
        .option("checkpointLocation", options.checkpoint)
    )


def check_options(options: CdcOptions) -> None:
    """Ends the program where an option has a value that it cannot have."""
    allowed = {
        "format": (JSON, AVRO),
        "decimal_handling_mode": DECIMAL_MODES,
        "binary_handling_mode": BINARY_MODES,
        "unknown_columns": (BAD, DROP),
    }
    for name, values in allowed.items():
        if (given := getattr(options, name)) not in values:
            sys.exit(f"--{name.replace('_', '-')} {given}: expected {', '.join(values[:-1])} or {values[-1]}")
    if options.format == AVRO and not (options.avro_schema and options.avro_key_schema):
        sys.exit("--format avro needs --avro-schema FILE and --avro-key-schema FILE")
    for schema_id in (options.avro_schema_id, options.avro_key_schema_id):
        if schema_id and not schema_id.isdecimal():
            sys.exit(f"{schema_id} is not the id of a schema: give a number")


def main() -> None:
    """Run until SIGTERM or SIGINT, or until the query fails."""
    options = parse_arguments(CdcOptions, __doc__, sys.argv[1:])
    check_options(options)
    spark = create_session("minilog-cdc")
    run_query(cdc(spark, options), options.trigger)
    spark.stop()


if __name__ == "__main__":
    main()
