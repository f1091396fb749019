"""jobs/typed.py: which values are good, which are bad and why; and each of them once, in its topic."""

from __future__ import annotations

import importlib
import pathlib
from datetime import datetime
from types import ModuleType

import pytest
from pyspark.sql import DataFrame, SparkSession

from minilog import NewTopic, schema_from_ddl
from tests.spark.kit import Kit, finish

JOBS = pathlib.Path(__file__).parents[2] / "jobs"
FLIGHTS = schema_from_ddl("carrier string NOT NULL, delay int, at timestamp, stops array<string>")
NOON = datetime(2024, 5, 1, 12)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(JOBS))
    return importlib.import_module("typed")


def records(spark: SparkSession, *values: str | None) -> DataFrame:
    rows = [(b"k", None if each is None else each.encode(), "t", 0, number) for number, each in enumerate(values)]
    return spark.createDataFrame(rows, "key binary, value binary, topic string, partition int, offset bigint")


def reasons(found: DataFrame) -> list[str | None]:
    return [each.reason for each in found.orderBy("offset").collect()]


def test_good_json_becomes_rows(job: ModuleType, spark: SparkSession) -> None:
    values = (
        '{"carrier":"UA","delay":3,"at":"2024-05-01T14:00:00+02:00","stops":["a",null]}',
        '{"at":"2024-05-01T12:00:00.123456Z","carrier":"AA"}',
        '{"carrier":"DL","delay":null,"at":"2024-05-01T12:00:00.500Z"}',
    )
    found = job.parsed(records(spark, *values), FLIGHTS, "json")
    assert reasons(found) == [None] * 3
    assert [tuple(each) for each in job.good_rows(found).collect()] == [
        ("UA", 3, NOON, ["a", None]),
        ("AA", None, NOON.replace(microsecond=123456), None),
        ("DL", None, NOON.replace(microsecond=500000), None),
    ]
    assert job.bad_records(found).count() == 0


def test_bad_json_is_told_from_good_with_its_reason(job: ModuleType, spark: SparkSession) -> None:
    values = (
        '{"carrier":"UA","delay":"late"}',
        '{"carrier":"UA","delay":3.5}',
        '{"carrier":"UA","delay":3000000000}',
        '{"carrier":"UA","at":"2024-05-01T12:00:00"}',
        '{"carrier":"UA","gate":"B4"}',
        '{"delay":1}',
        "{",
        "",
        "[]",
        None,
        '{"carrier":"UA"}',
    )
    found = job.parsed(records(spark, *values), FLIGHTS, "json")
    told = reasons(found)
    assert told[:6] == [
        "column 'delay' is int, and late does not fit",
        "column 'delay' is int, and 3.5 does not fit",
        "column 'delay' is int, and 3000000000 does not fit",
        "column 'at' is timestamp, and 2024-05-01T12:00:00 does not fit",
        "the topic has no column gate",
        "column 'carrier' may not be null",
    ]
    assert told[6] == f"this is not JSON of the columns {FLIGHTS}"
    assert None not in told[:10]
    assert (told[9], told[10]) == ("there is no value", None)
    assert [each.carrier for each in job.good_rows(found).collect()] == ["UA"]
    bad = job.bad_records(found).collect()
    assert len(bad) == 10
    assert (bytes(bad[0].key), bytes(bad[0].value)) == (b"k", values[0].encode() if values[0] else b"")
    assert [(each.key, bytes(each.value)) for each in bad[4].headers] == [
        ("reason", b"the topic has no column gate"),
        ("from", b"t-0@4"),
    ]


def test_csv(job: ModuleType, spark: SparkSession) -> None:
    schema = schema_from_ddl("carrier string NOT NULL, delay int, at timestamp")
    values = ("UA,3,2024-05-01T12:00:00Z", "AA,,", "UA,late,", "UA,3", ",1,", "B6,1,2024-05-01T12:00:00Z,more")
    found = job.parsed(records(spark, *values), schema, "csv")
    told = reasons(found)
    assert [each is None for each in told] == [True, True, False, False, False, False]
    assert told[2] == f"this is not CSV of the columns {schema}"
    assert told[4] == "column 'carrier' may not be null"
    assert [tuple(each) for each in job.good_rows(found).collect()] == [("UA", 3, NOON), ("AA", None, None)]


def test_avro_without_its_package_says_what_to_do(job: ModuleType, spark: SparkSession) -> None:
    schema = '{"type":"record","name":"r","fields":[{"name":"carrier","type":"string"}]}'
    with pytest.raises(ValueError, match=r"--packages org\.apache\.spark:spark-avro"):
        job.parsed(records(spark, "x"), FLIGHTS, "avro", schema)


def test_wider_values_of_avro_are_bad_where_they_do_not_fit(job: ModuleType, spark: SparkSession) -> None:
    """As from_avro gives it, whose package is not here."""
    schema = schema_from_ddl("carrier string NOT NULL, delay int, ratio float, stops array<int>, gate string")
    kind = "struct<carrier: string, delay: bigint, ratio: double, stops: array<bigint>>"
    rows: list[tuple[object, ...] | None] = [
        ("UA", 2**31 - 1, 0.5, [1, None]),
        ("UA", 2**31, None, None),
        ("UA", None, 0.1, None),
        ("UA", None, float("nan"), [2**31]),
        (None, 1, None, None),
        None,
        ("AA", None, None, []),
    ]
    given: list[tuple[object, ...]] = [(b"k", b"v", "t", 0, number, each) for number, each in enumerate(rows)]
    given.append((b"k", None, "t", 0, len(rows), None))
    columns = f"key binary, value binary, topic string, partition int, offset bigint, read {kind}"
    read = spark.createDataFrame(given, columns)
    found = job.fitted(read, read.schema["read"].dataType, schema)
    assert reasons(found) == [
        None,
        "column 'delay' is int, and 2147483648 does not fit",
        "column 'ratio' is float, and 0.1 does not fit",
        "column 'stops' is array<int>, and [2147483648] does not fit",
        "column 'carrier' may not be null",
        "this is not Avro of that schema",
        None,
        "there is no value",
    ]
    assert [tuple(each) for each in job.good_rows(found).collect()] == [
        ("UA", 2**31 - 1, 0.5, [1, None], None),
        ("AA", None, None, [], None),
    ]
    with pytest.raises(ValueError, match="the topic has no column ratio, stops"):
        job.fitted(read, read.schema["read"].dataType, schema_from_ddl("carrier string, delay long"))


def test_each_value_is_once_in_its_topic(job: ModuleType, kit: Kit, tmp_path: pathlib.Path) -> None:
    events, bad_topic, name = kit.topic(2), kit.topic(), kit.new_name()
    kit.admin.create_topics([NewTopic(name, num_partitions=2, schema=FLIGHTS)])
    options = job.TypedOptions(kit.servers, events, name, bad_topic, str(tmp_path / "checkpoint"))
    for first in (0, 20):
        for partition in range(2):
            delays = ('"late"' if number % 5 == 0 else number for number in range(first + partition, first + 20, 2))
            kit.send(events, [f'{{"carrier":"UA","delay":{each}}}' for each in delays], partition=partition)
        finish(job.typed(kit.spark, options).trigger(availableNow=True).start())
    finish(job.typed(kit.spark, options).trigger(availableNow=True).start())
    rows = kit.read(subscribe=name).collect()
    assert sorted(each.delay for each in rows) == [number for number in range(40) if number % 5]
    bad = kit.read(subscribe=bad_topic, includeHeaders="true").collect()
    assert {bytes(each.value) for each in bad} == {b'{"carrier":"UA","delay":"late"}'}
    told = [{header.key: bytes(header.value).decode() for header in each.headers} for each in bad]
    assert {each["reason"] for each in told} == {"column 'delay' is int, and late does not fit"}
    assert len({each["from"] for each in told}) == len(bad) == 8


def test_a_topic_without_a_schema_is_refused(job: ModuleType, kit: Kit) -> None:
    topic = kit.topic()
    with pytest.raises(ValueError, match="has no schema: create it with one"):
        job.typed(kit.spark, job.TypedOptions(kit.servers, topic, topic, topic, "/nowhere"))
