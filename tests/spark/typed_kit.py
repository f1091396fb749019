"""Topics with a schema for the Spark tests, and rows for them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from minilog import NewTopic, Producer, TopicSchema, schema_from_ddl
from tests.spark.kit import WAIT_S, Kit

NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
DDL = (
    "carrier string NOT NULL, delay int, ratio double, at timestamp, local timestamp_ntz, day date, cost decimal(10,2),"
    " raw binary, ok boolean, small short, place struct<gate: string, floor: int>, legs array<int>,"
    " tags map<string, long>"
)
FLIGHTS = schema_from_ddl(DDL, ["carrier"], "at")


def typed_topic(kit: Kit, schema: TopicSchema = FLIGHTS, partitions: int = 2) -> str:
    """A new topic with this schema, named after the test."""
    name = kit.new_name()
    kit.admin.create_topics([NewTopic(name, num_partitions=partitions, schema=schema)])
    return name


def flights(first: int, count: int) -> pa.Table:
    """Rows of all types, with nulls and NaN among them."""
    numbers = range(first, first + count)
    rows = [
        {
            "carrier": ("UA", "AA", "DL")[number % 3],
            "delay": None if number % 7 == 0 else number - 50,
            "ratio": (None, float("nan"), number / 4, -0.0)[number % 4],
            "at": NOON + datetime.timedelta(seconds=number, microseconds=number),
            "local": NOON.replace(tzinfo=None) + datetime.timedelta(hours=number),
            "day": None if number % 5 == 0 else datetime.date(2024, 5, 1) + datetime.timedelta(days=number % 3),
            "cost": Decimal(number) / 4,
            "raw": bytes([number % 256]),
            "ok": (True, False, None)[number % 3],
            "small": number % 100,
            "place": None if number % 6 == 0 else {"gate": f"B{number}", "floor": None if number % 2 else number},
            "legs": [number, None] if number % 2 else [],
            "tags": [("n", number)],
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(rows, schema=FLIGHTS.arrow_schema)


def send_rows(kit: Kit, topic: str, rows: Any, batches: int = 1) -> None:
    """Write a table; it is committed when this returns."""
    step = -(-len(rows) // batches)
    with Producer({"bootstrap.servers": kit.servers}) as producer:
        for first in range(0, len(rows), step):
            producer.send_batch(topic, rows.slice(first, step)).result(timeout=WAIT_S)


def texts(frame: DataFrame) -> list[str]:
    """The rows as text, sorted: NaN is like NaN there."""
    return sorted(map(str, frame.collect()))
