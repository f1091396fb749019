"""A stream that is joined with view=latest: each micro-batch has the newest table, and a cleaning ends no query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import pyspark_minilog
from minilog import NewTopic, Producer, schema_from_ddl
from tests.rules import proves
from tests.spark.kit import WAIT_S, Kit, start, wait_until
from tests.spark.typed_kit import typed_topic

NAMES = schema_from_ddl("id int NOT NULL, name string", ["id"])
CLEANED = {"cleanup.policy": "compact", "segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}


class Joined:
    """A running query: facts joined with tables, and what each micro-batch saw."""

    def __init__(self, kit: Kit, table: DataFrame, checkpoint: object) -> None:
        self.kit, self.fact, self.seen, self.rows = kit, kit.topic(), list[set[tuple[str, str]]](), 0
        stream = kit.read_stream(subscribe=self.fact, startingOffsets="earliest")
        frame = stream.selectExpr("int(string(value)) AS id").join(table, "id")
        self.query: StreamingQuery = start(frame, self._take, checkpoint)

    def _take(self, rows: DataFrame, batch_id: int) -> None:
        found = rows.collect()
        self.rows += len(found)
        self.seen.append({(row.way, row.name) for row in found})

    def next(self, *ids: int) -> set[tuple[str, str]]:
        """What the micro-batch of these facts sees."""
        before = len(self.seen)
        self.kit.send(self.fact, [str(number) for number in ids])
        wait_until(lambda: len(self.seen) > before or self.query.exception() is not None)
        assert self.query.exception() is None, self.query.exception()
        return self.seen[-1]


@contextmanager
def joined(kit: Kit, table: DataFrame, checkpoint: object) -> Iterator[Joined]:
    running = Joined(kit, table, checkpoint)
    try:
        yield running
    finally:
        running.query.stop()


def update(kit: Kit, topic: str, name: str, ids: range = range(50)) -> None:
    with Producer({"bootstrap.servers": kit.servers}) as producer:
        producer.send_many(topic, [{"id": number, "name": name} for number in ids]).result(WAIT_S)


def every_way(kit: Kit, topic: str) -> DataFrame:
    """The table, as often as there are ways to name it, with the way as a column."""
    table = topic.replace("-", "_")
    options = f"OPTIONS (`bootstrap.servers` '{kit.servers}', subscribe '{topic}', view 'latest')"
    kit.spark.sql(f"CREATE TABLE {table} USING minilog {options}")
    kit.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {table}_view USING minilog {options}")
    loaded = kit.read(subscribe=topic, view="latest")
    loaded.createOrReplaceTempView(f"{table}_loaded")
    ways = {
        "load": loaded,
        "read": pyspark_minilog.read(kit.spark, topic, view="latest", bootstrap_servers=kit.servers),
        "table": kit.spark.table(table),
        "view": kit.spark.table(f"{table}_view"),
        "view of a frame": kit.spark.sql(f"SELECT * FROM {table}_loaded"),
    }
    whole, *others = (frame.withColumn("way", f.lit(way)) for way, frame in ways.items())
    for each in others:
        whole = whole.union(each)
    return whole


@proves("SPT.5")
def test_each_micro_batch_has_the_newest_table_whichever_way_it_was_made(kit: Kit, tmp_path: object) -> None:
    topic = kit.new_name()
    kit.admin.create_topics([NewTopic(topic, 1, configs=CLEANED, schema=NAMES)])
    update(kit, topic, "v1")
    with joined(kit, every_way(kit, topic), tmp_path) as query:
        seen = query.next(1, 2)
        assert len(seen) == 5
        assert {name for _, name in seen} == {"v1"}
        update(kit, topic, "v2")
        assert {name for _, name in query.next(1, 2)} == {"v2"}
        for number in range(25):
            update(kit, topic, f"x{number}")
        wait_until(lambda: (kit.admin.describe_topics([topic])[0].partitions[0].clean_to or 0) > 100)
        assert {name for _, name in query.next(1, 2)} == {"x24"}


@proves("SPT.5")
def test_partitions_that_come_later_belong_to_the_table(kit: Kit, tmp_path: object) -> None:
    topic = typed_topic(kit, NAMES)
    table = kit.read(subscribe=topic, view="latest").withColumn("way", f.lit("load"))
    with joined(kit, table, tmp_path) as query:
        assert query.next(1, 2) == set()  # both partitions are empty
        kit.admin.alter_topic(topic, num_partitions=8)
        update(kit, topic, "v1", range(500))
        query.next(*range(500))
        wait_until(lambda: query.rows >= 500)
    assert query.rows == 500


@proves("SPT.5")
def test_a_table_as_of_a_place_stays_as_it_is(kit: Kit, tmp_path: object) -> None:
    topic = typed_topic(kit, NAMES, partitions=1)
    update(kit, topic, "v1")
    table = kit.read(subscribe=topic, view="latest", endingTimestamp="4102444800000")
    table = table.withColumn("way", f.lit("load"))
    with joined(kit, table, tmp_path) as query:
        assert query.next(1) == {("load", "v1")}
        update(kit, topic, "v2")
        assert query.next(1) == {("load", "v1")}


def test_two_actions_on_one_table_have_the_same_rows(kit: Kit) -> None:
    topic = typed_topic(kit, NAMES)
    update(kit, topic, "v1")
    table = kit.read(subscribe=topic, view="latest")
    assert {row.name for row in table.collect()} == {"v1"}
    update(kit, topic, "v2", range(80))
    assert {row.name for row in table.collect()} == {"v1"}
    assert table.join(table.select("id"), "id").count() == 50
