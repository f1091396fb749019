"""jobs/cdc.py: the topics and options that it refuses, and events in Avro as from_avro gives them, whose package is not
here."""

from __future__ import annotations

import importlib
import json
import pathlib
from datetime import date
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import minilog
from minilog import NewTopic, Producer, TopicSchema, schema_from_ddl
from tests.spark.kit import WAIT_S, Kit, finish
from tests.spark.test_cdc_events import NOON, NOON_MS
from tests.spark.test_typed_job import reasons
from tools.cdc_story import story

JOBS = pathlib.Path(__file__).parents[2] / "jobs"
ACCOUNTS = schema_from_ddl(
    "id long NOT NULL, small short, balance decimal(12,2), price decimal(12,2), opened date, day date, "
    "seen timestamp_ntz, changed timestamp_ntz, at timestamp, photo binary",
    ["id"],
)
# The columns of Debezium's envelope, as an Avro schema of its converter has them, and as Spark reads them.
_NAMED = {
    "opened": ("int", "io.debezium.time.Date"),
    "seen": ("long", "io.debezium.time.Timestamp"),
    "changed": ("long", "io.debezium.time.MicroTimestamp"),
    "at": ("string", "io.debezium.time.ZonedTimestamp"),
}
ROW = (
    "struct<id: bigint, small: int, balance: decimal(10,2), price: struct<scale: int, value: binary>, opened: int, "
    "day: date, seen: bigint, changed: bigint, at: string, photo: binary>"
)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(JOBS))
    return importlib.import_module("cdc")


def avro_schema() -> str:
    columns: list[dict[str, Any]] = [{"name": name, "type": "bytes"} for name in ("id", "balance", "price", "photo")]
    columns += [
        {"name": name, "type": ["null", {"type": kind, "connect.name": meaning}]}
        for name, (kind, meaning) in _NAMED.items()
    ]
    row = {"type": "record", "name": "Value", "fields": columns}
    fields = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]
    return json.dumps({"type": "record", "name": "Envelope", "fields": [*fields, {"name": "op", "type": "string"}]})


@pytest.mark.long
def test_a_micro_batch_that_failed_between_its_two_writes_is_there_once(
    job: ModuleType, kit: Kit, tmp_path: pathlib.Path
) -> None:
    """The changes of a real Postgres, whose bad topic is not there at first."""
    changes = story.load_changes(pathlib.Path(story.__file__).parent)
    source, target, bad = kit.topic(2), kit.new_name(), kit.new_name()
    schema = schema_from_ddl(story.DDL, ["id"])
    kit.admin.create_topics([NewTopic(target, num_partitions=3, configs={"cleanup.policy": "compact"}, schema=schema)])
    with Producer({"bootstrap.servers": kit.servers}) as producer:
        for future in [producer.send(source, value, key=key) for key, value in story.with_bad_ones(changes.records)]:
            future.result(WAIT_S)
    options = job.CdcOptions(kit.servers, source, target, bad, str(tmp_path / "checkpoint"), milliseconds="seen")
    with pytest.raises(PySparkException, match=bad):
        finish(job.cdc(kit.spark, options).trigger(availableNow=True).start())
    assert kit.read(subscribe=target, deletes=True).count() == len(changes.records)
    kit.topic(name=bad)
    finish(job.cdc(kit.spark, options).trigger(availableNow=True).start())
    assert kit.read(subscribe=target, deletes=True).count() == len(changes.records)
    assert kit.read(subscribe=bad).count() == len(story.BAD_RECORDS)
    latest = minilog.scan(target, view="latest", config={"bootstrap.servers": kit.servers}).to_arrow()
    assert latest.sort_by("id").to_pylist() == changes.table
    assert kit.read(subscribe=target, view="latest").count() == len(changes.table)


def test_events_in_avro(job: ModuleType, spark: SparkSession) -> None:
    good = (1, 2, Decimal("12.34"), (1, b"\x7b"), 19844, date(2024, 5, 1), NOON_MS, NOON_MS * 1000)
    after = (*good, "2024-05-01T12:00:00Z", b"\x00")
    rows: list[tuple[Any, ...]] = [
        (b"k", b"v", "t", 0, 0, ("c", None, after), (1,)),
        (b"k", b"v", "t", 0, 1, ("u", None, (*after[:1], 40_000, *after[2:])), (1,)),
        (b"k", b"v", "t", 0, 2, ("u", None, (*after[:3], (3, b"\x7b"), *after[4:])), (1,)),
        (b"k", b"v", "t", 0, 3, None, (1,)),
        (b"k", b"v", "t", 0, 4, ("d", after, None), (1,)),
        (b"k", None, "t", 0, 5, None, (1,)),
        (b"k", None, "t", 0, 6, None, None),
    ]
    columns = "key binary, value binary, topic string, partition int, offset bigint, "
    columns += f"event struct<op: string, before: {ROW}, after: {ROW}>, id struct<id: bigint>"
    read = spark.createDataFrame(rows, columns)
    events = job.read_avro(read, ACCOUNTS, avro_schema(), is_open=False)
    found = job.parsed(events, ACCOUNTS, job.Encoding())
    assert reasons(found) == [
        None,
        "column 'small' is short, and 40000 does not fit",
        "column 'price' is decimal(12,2), and {3, {} does not fit",
        "this is not Avro of that schema",
        None,
        None,
        "the record's key has no value of key column 'id' (long)",
    ]
    first, *deletions = job.changes(found).collect()
    assert first.balance == Decimal("12.34")
    assert first.price == Decimal("12.30")
    assert (first.opened, first.day) == (date(2024, 5, 1), date(2024, 5, 1))
    assert (first.seen, first.changed, first.at, first.photo) == (NOON, NOON, NOON, bytearray(b"\x00"))
    assert [(each.id, each.small, each["_deleted"]) for each in deletions] == [(1, None, True)] * 2


def test_schemas_of_avro_that_do_not_fit_the_topic_are_refused(job: ModuleType, spark: SparkSession) -> None:
    def refused(event: str, key: str, schema: TopicSchema = ACCOUNTS) -> str:
        read = spark.createDataFrame([], f"key binary, value binary, event {event}, id {key}")
        with pytest.raises(ValueError, match=r"\w") as error:
            job.read_avro(read, schema, avro_schema(), is_open=False)
        return str(error.value)

    envelope, key = f"struct<op: string, before: {ROW}, after: {ROW}>", "struct<id: bigint>"
    assert "give the schema of Debezium's envelope" in refused(ROW, key)
    assert "the topic's key is id: create a topic with the same key columns" in refused(envelope, "struct<no: int>")
    unknown = refused(envelope, key, schema_from_ddl("id long, small short", ["id"]))
    assert unknown.startswith("the topic has no column balance, price, opened")


def test_a_value_of_another_schema_of_the_registry_is_bad(job: ModuleType, spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(b"\x00\x00\x00\x00\x07abc",), (b"\x00\x00\x00\x01\x00abc",), (None,)], "value binary"
    )
    told = frame.select(job._other_schema("value", 7).alias("reason"), f.col("value")).collect()
    assert [each.reason for each in told] == [
        None,
        "the value is not of schema 7: it begins with 0000000100",
        None,
    ]


def test_avro_without_its_package_says_what_to_do(job: ModuleType, spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "key binary, value binary, topic string, partition int, offset bigint")
    options = job.CdcOptions("h:1", "a", "b", "c", "/nowhere", format="avro", avro_schema="f", avro_key_schema="f")
    with pytest.raises(ValueError, match=r"--packages org\.apache\.spark:spark-avro"):
        job.read_events(frame, job.Target(ACCOUNTS, avro_schema(), avro_schema()), options)


@pytest.mark.parametrize(
    ("schema", "configs", "milliseconds", "sentence"),
    [
        (None, {"cleanup.policy": "compact"}, "", "has no schema: create it with one"),
        (schema_from_ddl("id int"), {}, "", "has no key columns: create it with --key-columns"),
        (schema_from_ddl("id int", ["id"]), {}, "", "is not compacted, so its retention would delete rows"),
        (schema_from_ddl("id int", ["id"]), {"cleanup.policy": "compact"}, "seen", "--milliseconds names seen, and"),
    ],
)
def test_a_topic_that_cannot_hold_a_table_is_refused(
    job: ModuleType,
    kit: Kit,
    schema: TopicSchema | None,
    configs: dict[str, str],
    milliseconds: str,
    sentence: str,
) -> None:
    name = kit.new_name()
    kit.admin.create_topics([NewTopic(name, configs=configs, schema=schema)])
    options = job.CdcOptions(kit.servers, "events", name, "bad", "/nowhere", milliseconds=milliseconds)
    with pytest.raises(ValueError, match=sentence):
        job.cdc(kit.spark, options)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"format": "csv"}, "--format csv: expected json or avro"),
        ({"decimal_handling_mode": "no"}, "--decimal-handling-mode no: expected precise, string or double"),
        ({"unknown_columns": "keep"}, "--unknown-columns keep: expected bad or drop"),
        ({"format": "avro"}, "--format avro needs --avro-schema FILE and --avro-key-schema FILE"),
        ({"avro_schema_id": "seven"}, "seven is not the id of a schema: give a number"),
    ],
)
def test_an_option_with_a_value_that_it_cannot_have_ends_the_job(
    job: ModuleType, given: dict[str, str], sentence: str
) -> None:
    with pytest.raises(SystemExit, match=sentence):
        job.check_options(job.CdcOptions("h:1", "a", "b", "c", "/nowhere", **given))
