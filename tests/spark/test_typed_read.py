"""Topics with a schema as DataFrames: columns, conditions, metadata, views; a schema that evolves under a query."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

import pyspark_minilog
from minilog import Consumer, NewTopic, schema_from_ddl
from minilog.typed.schema.evolution import add_column, drop_column, rename_column, widen_column
from minilog.typed.schema.fields import Field, Primitive
from pyspark_minilog import DefaultSource
from pyspark_minilog.login import clients
from tests.cluster import Cluster
from tests.rules import proves
from tests.spark.kit import Kit, forget_from, run_available, start, wait_until
from tests.spark.typed_kit import DDL, flights, send_rows, texts, typed_topic

pytestmark = proves("SPT.2")

SMALL = schema_from_ddl("carrier string NOT NULL, delay int", ["carrier"])


def small(*delays: int) -> pa.Table:
    return pa.table({"carrier": [f"c{each}" for each in delays], "delay": pa.array(delays, pa.int64())})


class Rows:
    """A foreachBatch that keeps the rows, and the columns of each batch."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.columns: list[list[str]] = []

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.columns.append(frame.columns)
        self.rows += [tuple(row) for row in frame.collect()]


@pytest.fixture(scope="module")
def loaded(cluster: Cluster, spark: Any, admin: Any) -> str:
    """A topic with rows of all types, for tests that only read."""
    kit = Kit(spark, cluster.bootstrap_servers, admin, "loaded")
    topic = typed_topic(kit)
    send_rows(kit, topic, flights(0, 210), batches=7)
    return topic


class TestColumns:
    @proves("SPT.1")
    def test_types_are_those_of_the_topic(self, kit: Kit, loaded: str) -> None:
        frame = kit.read(subscribe=loaded)
        assert frame.schema == kit.spark.createDataFrame([], DDL).schema
        assert not frame.schema["carrier"].nullable

    @proves("SPT.1")
    def test_rows_come_as_they_were_written(self, kit: Kit, loaded: str) -> None:
        frame = kit.read(subscribe=loaded)
        given = flights(0, 210)
        found = frame.toArrow().sort_by("at")
        for name in given.schema.names:
            assert str(found.column(name).to_pylist()) == str(given.column(name).to_pylist()), name

    @proves("SPT.2")
    def test_columns_come_in_the_order_that_is_asked_for(self, kit: Kit, loaded: str) -> None:
        frame = kit.read(subscribe=loaded, columns="Delay, carrier")
        assert frame.columns == ["delay", "carrier"]
        assert texts(frame) == texts(kit.read(subscribe=loaded).select("delay", "carrier"))

    def test_metadata(self, kit: Kit, loaded: str) -> None:
        frame = kit.read(subscribe=loaded, columns="at,carrier", metadata="true", where="delay is null")
        assert frame.columns == ["at", "carrier", "_topic", "_partition", "_offset", "_timestamp", "_key"]
        rows = frame.collect()
        assert len(rows) == 30
        assert all(row.at == row._timestamp and row._key == row.carrier.encode() for row in rows)
        assert {row._topic for row in rows} == {loaded}
        assert len({(row._partition, row._offset) for row in rows}) == 30

    @proves("SPT.2")
    def test_as_keys_and_values(self, kit: Kit, loaded: str) -> None:
        frame = kit.read(subscribe=loaded, view="kafka", where="delay = 1", columns="carrier,delay,ok")
        assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
        (row,) = frame.collect()
        assert json.loads(row.value) == {"carrier": "UA", "delay": 1, "ok": True}
        assert (row.key, row.topic, row.timestampType) == (b"UA", loaded, 0)
        assert kit.read(subscribe=loaded, view="kafka", includeHeaders="true").count() == 210

    def test_the_helpers_say_the_same(self, kit: Kit, loaded: str) -> None:
        servers = kit.servers
        frame = pyspark_minilog.read(
            kit.spark, loaded, ["delay"], "delay > 100", bootstrap_servers=servers, metadata=True, minPartitions=4
        )
        assert sorted(row.delay for row in frame.collect()) == [each - 50 for each in range(151, 210) if each % 7]
        assert frame.columns[:2] == ["delay", "_topic"]
        stream = pyspark_minilog.read_stream(kit.spark, loaded, columns=["ok"], bootstrap_servers=servers)
        assert stream.isStreaming
        assert stream.columns == ["ok"]

    @proves("SPT.7")
    def test_a_schema_that_is_given_is_a_projection(self, kit: Kit, loaded: str) -> None:
        reader = kit.spark.read.format("minilog").option("bootstrap.servers", kit.servers).option("subscribe", loaded)
        frame = reader.schema("small long, carrier string, cost decimal(12,2)").load()
        wanted = kit.read(subscribe=loaded).selectExpr(
            "cast(small as long) small", "carrier", "cast(cost as decimal(12,2)) cost"
        )
        assert texts(frame) == texts(wanted)
        for given, message in (
            ("gone string", "has the column 'gone', but the columns here are carrier, delay"),
            (
                "delay string",
                "gives column 'delay' the type string, but the topic has int: give that type, or a wider",
            ),
            ("delay short", "column 'delay' the type smallint, but the topic has int"),
        ):
            with pytest.raises(Exception, match=message):
                reader.schema(given).load().collect()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"columns": "carrier,gone"}, "option 'columns' is 'carrier,gone': there is no column 'gone': there are"),
            ({"columns": "delay,Delay"}, "it names a column twice"),
            ({"columns": " "}, "give names with commas between them"),
            ({"where": "gone = 1"}, "option 'where' is 'gone = 1': there is no column 'gone'"),
            ({"where": "delay +"}, "cannot be read"),
            ({"view": "rows"}, "option 'view' is 'rows': give columns, kafka "),
            ({"metadata": "true", "view": "kafka"}, "view=kafka has these columns already"),
            ({"onSchemaChange": "stop"}, "give ignore or fail"),
        ],
    )
    def test_impossible_options_are_refused_at_load(
        self, kit: Kit, loaded: str, options: dict[str, str], message: str
    ) -> None:
        with pytest.raises(Exception, match=message):
            kit.read(subscribe=loaded, **options)

    def test_a_topic_without_a_schema_has_none_of_this(self, kit: Kit) -> None:
        with pytest.raises(Exception, match=r"option 'columns' is 'a': topic .* has no schema, so it has no columns"):
            kit.read(subscribe=kit.topic(), columns="a")


@proves("SPT.6")
def test_a_where_chooses_the_rows_that_spark_chooses(kit: Kit, loaded: str) -> None:
    """Of all conditions: test_conditions.py."""
    chosen = ["carrier", "delay", "ratio", "day", "at"]
    where = "not (carrier in ('UA', 'XX') and delay between -10 and 10) and (ratio > 20 or delay is null)"
    found = texts(kit.read(subscribe=loaded, where=where, columns=",".join(chosen)))
    assert found == texts(kit.read(subscribe=loaded).where(where).select(*chosen))
    assert 10 < len(found) < 200


class TestSeveralTopics:
    @proves("SPT.8")
    def test_topics_of_the_same_columns_are_one_frame_and_others_share_common_columns_alone(self, kit: Kit) -> None:
        one = typed_topic(kit, SMALL)
        alike, other = (
            typed_topic(kit, schema_from_ddl(f"delay {kind}, carrier string NOT NULL")) for kind in ("int", "long")
        )
        send_rows(kit, one, small(1, 2))
        for topic in (alike, other):
            send_rows(kit, topic, small(3))
        frame = kit.read(subscribe=f"{one},{alike}", metadata="true", where="delay > 1")
        assert {(row._topic, row.carrier, row.delay) for row in frame.collect()} == {(one, "c2", 2), (alike, "c3", 3)}
        with pytest.raises(Exception, match=f"topics '{one}' and '{other}' have different columns"):
            kit.read(subscribe=f"{one},{other}")
        assert {row.carrier for row in kit.read(subscribe=f"{one},{other}", columns="carrier").collect()} == {
            "c1",
            "c2",
            "c3",
        }

    @proves("SPT.8")
    def test_with_and_without_a_schema_are_refused(self, kit: Kit) -> None:
        one, other = typed_topic(kit, SMALL), kit.topic()
        with pytest.raises(Exception, match=f"topic '{one}' has a schema, but topic '{other}' has none"):
            kit.read(subscribe=f"{one},{other}")


class TestStreams:
    def test_a_stream_reads_what_a_batch_reads(self, kit: Kit, loaded: str, tmp_path: pathlib.Path) -> None:
        frame = kit.read_stream(
            subscribe=loaded,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=60,
            columns="delay",
            where="delay > 0",
            metadata="true",
        )
        found = Rows()
        run_available(frame.select("delay", "_partition", "_offset"), found, tmp_path)
        wanted = kit.read(subscribe=loaded, metadata="true").where("delay > 0").select("delay", "_partition", "_offset")
        assert sorted(found.rows) == sorted(tuple(row) for row in wanted.collect())
        assert len(found.columns) > 2
        (offset,) = [
            json.loads(line)
            for line in (tmp_path / "offsets" / "1").read_text().splitlines()
            if "__schema_versions" in line
        ]
        assert offset["__schema_versions"] == {loaded: 1}

    @proves("SPT.9")
    def test_a_query_goes_on_with_the_columns_that_it_began_with(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        topic = typed_topic(kit, SMALL)
        frame, found = kit.read_stream(subscribe=topic, startingOffsets="earliest"), Rows()
        query = start(frame, found, tmp_path)
        send_rows(kit, topic, small(1))
        wait_until(lambda: len(found.rows) == 1)
        kit.admin.evolve_schema(topic, lambda schema: rename_column(schema, "delay", "minutes"))
        kit.admin.evolve_schema(topic, lambda schema: add_column(schema, Field("gate", Primitive("string"))))
        send_rows(kit, topic, pa.table({"carrier": ["c2"], "minutes": [2], "gate": ["B4"]}))
        wait_until(lambda: len(found.rows) == 2 or not query.isActive)
        query.processAllAvailable()  # a batch that is stopped before Spark has noted its end comes again
        query.stop()
        assert found.rows == [("c1", 1), ("c2", 2)]
        frame = kit.read_stream(subscribe=topic, startingOffsets="earliest")
        assert frame.columns == ["carrier", "minutes", "gate"]
        send_rows(kit, topic, pa.table({"carrier": ["c3"], "minutes": [3], "gate": ["B5"]}))
        again = Rows()
        run_available(frame, again, tmp_path)
        assert again.rows == [("c3", 3, "B5")]

    @proves("SPT.9")
    def test_a_replay_and_a_restart_read_by_the_version_of_the_checkpoint(
        self, kit: Kit, tmp_path: pathlib.Path
    ) -> None:
        """A column of the same name and type is another one by now: the query goes on with that which it read."""
        topic = typed_topic(kit, schema_from_ddl("carrier string NOT NULL, delay int, note string"))
        options = {"subscribe": topic, "startingOffsets": "earliest", "columns": "carrier,note"}
        send_rows(kit, topic, pa.table({"carrier": ["a"], "note": ["old"]}))
        first, second = Rows(), Rows()
        run_available(kit.read_stream(**options), first, tmp_path)
        assert first.rows == [("a", "old")]
        forget_from(tmp_path, "commits", 0)
        kit.admin.evolve_schema(topic, lambda schema: rename_column(schema, "note", "remark"))
        kit.admin.evolve_schema(topic, lambda schema: add_column(schema, Field("note", Primitive("string"))))
        send_rows(kit, topic, pa.table({"carrier": ["b"], "note": ["new"], "remark": ["still the old one"]}))
        run_available(kit.read_stream(**options), second, tmp_path)
        assert second.rows == [("a", "old"), ("b", "still the old one")]
        assert kit.read(**options).where("carrier = 'b'").collect()[0].note == "new"

    @proves("SPT.9")
    def test_a_checkpoint_without_versions_goes_on(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        topic = typed_topic(kit, SMALL, partitions=1)
        send_rows(kit, topic, small(1))
        first, second = Rows(), Rows()
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        run_available(kit.read_stream(**options), first, tmp_path)
        written = tmp_path / "offsets" / "0"
        lines = written.read_text().splitlines()
        known = {key: value for key, value in json.loads(lines[-1]).items() if key != "__schema_versions"}
        written.write_text("\n".join([*lines[:-1], json.dumps(known)]))
        (tmp_path / "offsets" / ".0.crc").unlink()
        send_rows(kit, topic, small(2))
        run_available(kit.read_stream(**options), second, tmp_path)
        assert second.rows == [("c2", 2)]

    @proves("SPT.10")
    def test_a_query_fails_on_a_schema_change_where_that_is_asked_for(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        topic = typed_topic(kit, SMALL)
        options = {"subscribe": topic, "startingOffsets": "earliest", "onSchemaChange": "fail"}
        found = Rows()
        query = start(kit.read_stream(**options), found, tmp_path)
        send_rows(kit, topic, small(1))
        wait_until(lambda: len(found.rows) == 1)
        kit.admin.evolve_schema(topic, lambda schema: add_column(schema, Field("gate", Primitive("string"))))
        with pytest.raises(
            Exception, match=rf"topic '{topic}' has version 2 of its schema now, .* \(added gate string\)"
        ):
            query.awaitTermination(40)
        send_rows(kit, topic, pa.table({"carrier": ["c2"], "gate": ["B4"]}))
        again = Rows()
        run_available(kit.read_stream(**options), again, tmp_path)
        assert again.rows == [("c2", None, "B4")]

    @proves("SPT.11")
    def test_a_value_that_its_columns_cannot_hold_ends_a_query_and_a_restart_goes_on(
        self, kit: Kit, tmp_path: pathlib.Path
    ) -> None:
        topic = typed_topic(kit, SMALL, partitions=1)
        options = {"subscribe": topic, "startingOffsets": "earliest"}
        found = Rows()
        query = start(kit.read_stream(**options), found, tmp_path)
        send_rows(kit, topic, small(1))
        wait_until(lambda: len(found.rows) == 1)
        kit.admin.evolve_schema(topic, lambda schema: widen_column(schema, "delay", Primitive("long")))
        send_rows(kit, topic, small(2**40))
        with pytest.raises(Exception, match="column 'delay' is long now, but this reader knows it as int"):
            query.awaitTermination(40)
        again = Rows()
        run_available(kit.read_stream(**options), again, tmp_path)
        assert again.rows == [(f"c{2**40}", 2**40)]

    @proves("SPT.11")
    def test_null_values_where_there_were_none_end_it(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        topic = typed_topic(kit, schema_from_ddl("carrier string, delay int NOT NULL"), partitions=1)
        frame = kit.read_stream(subscribe=topic, startingOffsets="earliest")
        kit.admin.evolve_schema(topic, lambda schema: drop_column(schema, "delay"))
        send_rows(kit, topic, pa.table({"carrier": ["c"]}))
        with pytest.raises(
            Exception,
            match="column 'delay' may not be null, and row 0 has no value for it: the newest schema differs",
        ):
            run_available(frame, Rows(), tmp_path)

    @proves("SPT.8")
    def test_a_topic_that_begins_to_match_has_the_same_columns(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        first, name = typed_topic(kit, SMALL), kit.new_name()
        options = {"subscribePattern": f"{first}|{name}", "startingOffsets": "earliest"}
        found = Rows()
        query = start(kit.read_stream(**options), found, tmp_path)
        send_rows(kit, first, small(1))
        wait_until(lambda: len(found.rows) == 1)
        kit.admin.create_topics([NewTopic(name, num_partitions=1, schema=schema_from_ddl("delay int, carrier string"))])
        with pytest.raises(Exception, match=f"topics '{first}' and '{name}' have different columns"):
            query.awaitTermination(40)


@proves("SPT.12")
def test_a_consumer_that_is_kept_reads_topics_with_and_without_a_schema(kit: Kit) -> None:
    """Driven in this process, as in a worker that serves several queries."""
    typed, plain = typed_topic(kit, SMALL, partitions=1), kit.topic()
    send_rows(kit, typed, small(1, 2))
    kit.send(plain, ["a"])
    for _ in range(5):
        for topic, columns in ((typed, "delay"), (plain, ""), (typed, "carrier")):
            options = {"columns": columns} if columns else {}
            source = DefaultSource({"bootstrap.servers": kit.servers, "subscribe": topic, **options})
            schema = source.schema()
            given = kit.spark.createDataFrame([], schema).schema
            reader = source.reader(given)
            found = [batch.to_pydict() for task in reader.partitions() for batch in reader.read(task)]
            values = [value for each in found for value in each[columns or "value"]]
            assert values == {"delay": [1, 2], "carrier": ["c1", "c2"], "": [b"a"]}[columns]
    for client in list(clients._idle.values()):
        client.close()
    clients._idle.clear()


def received(kit: Kit, **options: str) -> tuple[int, int]:
    """How many rows, and bytes of batches, a read takes; it is driven as Spark drives it, in this process."""
    source = DefaultSource({"bootstrap.servers": kit.servers, **options})
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = source.reader(schema)
    rows = sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))
    consumers = [each for each in clients._idle.values() if isinstance(each, Consumer)]
    size = sum(sum(each._shell.core.received_bytes.values()) for each in consumers)
    for client in list(clients._idle.values()):
        client.close()
    clients._idle.clear()
    return rows, size


@proves("SPT.2")
def test_only_the_chosen_columns_travel(kit: Kit) -> None:
    names = [f"c{number}" for number in range(20)]
    topic = typed_topic(kit, schema_from_ddl(", ".join(f"{name} string" for name in names)), partitions=1)
    rows = pa.table({name: [f"{name}-{number * 7919 % 100_003:040d}" for number in range(20_000)] for name in names})
    send_rows(kit, topic, rows, batches=4)
    count, all_bytes = received(kit, subscribe=topic)
    two, two_bytes = received(kit, subscribe=topic, columns="c3,c17")
    assert count == two == 20_000
    assert two_bytes < all_bytes / 8
    print(f"bytes received: {all_bytes} of 20 columns, {two_bytes} of 2")
