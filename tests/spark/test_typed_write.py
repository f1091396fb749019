"""DataFrames into topics with a schema: matched by name, refused where anything would be lost, exactly once."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import pyspark_minilog
from minilog import schema_from_ddl
from minilog.typed.schema.evolution import add_column
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schemas import TopicSchemas
from tests.rules import proves
from tests.spark.kit import Kit, finish, forget_from
from tests.spark.typed_kit import DDL, flights, send_rows, texts, typed_topic

SMALL = schema_from_ddl("carrier string NOT NULL, delay int, note string", ["carrier"])


def write(kit: Kit, frame: DataFrame, topic: str, **options: object) -> None:
    writer = frame.write.format("minilog").mode("append").option("bootstrap.servers", kit.servers)
    for name, value in options.items():
        writer = writer.option(name, str(value).lower() if isinstance(value, bool) else str(value))
    writer.option("topic", topic).save()


def refused(kit: Kit, frame: DataFrame, topic: str, **options: object) -> str:
    with pytest.raises(Exception) as refusal:
        write(kit, frame, topic, **options)
    return str(refusal.value)


def sql(kit: Kit, text: str) -> DataFrame:
    return kit.spark.sql(f"SELECT {text}")


class TestRows:
    @proves("SPY.1")
    def test_all_types_go_there_and_back(self, kit: Kit) -> None:
        source, sink = typed_topic(kit), typed_topic(kit)
        send_rows(kit, source, flights(0, 100), batches=3)
        write(kit, kit.read(subscribe=source), sink)
        assert texts(kit.read(subscribe=sink)) == texts(kit.read(subscribe=source))
        found = kit.read(subscribe=sink, metadata="true").collect()
        assert all((row._key, row._timestamp) == (row.carrier.encode(), row.at) for row in found)

    @proves("SPY.1")
    def test_columns_are_matched_by_name_and_missing_ones_are_null(self, kit: Kit) -> None:
        topic = typed_topic(kit, SMALL)
        write(kit, sql(kit, "1L AS delay, 'UA' AS carrier"), topic)
        write(kit, sql(kit, "'AA' AS carrier, CAST(NULL AS VOID) AS note, 2.0D AS delay"), topic)
        assert texts(kit.read(subscribe=topic)) == [
            "Row(carrier='AA', delay=2, note=None)",
            "Row(carrier='UA', delay=1, note=None)",
        ]

    @proves("SPY.1")
    def test_an_instant_is_the_same_in_every_zone(self, kit: Kit) -> None:
        topic = typed_topic(kit, schema_from_ddl("at timestamp, local timestamp_ntz"))
        kit.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        try:
            write(
                kit, sql(kit, "timestamp_micros(1714564800000001L) at, TIMESTAMP_NTZ'2024-05-01 12:00:00' local"), topic
            )
        finally:
            kit.spark.conf.set("spark.sql.session.timeZone", "UTC")
        assert kit.read(subscribe=topic).selectExpr("unix_micros(at) at", "string(local) local").collect() == [
            (1714564800000001, "2024-05-01 12:00:00")
        ]

    @proves("SPY.2")
    def test_a_lossy_write_is_refused_and_one_row_of_many_tasks_keeps_all_of_them_out(self, kit: Kit) -> None:
        topic = typed_topic(kit, SMALL)
        message = "column 'delay' is int, and the rows have string: cast it yourself"
        assert message in refused(kit, sql(kit, "'UA' carrier, '1' delay"), topic)
        assert "column 'carrier' may not be null" in refused(kit, sql(kit, "string(NULL) carrier, 1 delay"), topic)
        frame = kit.spark.range(0, 100, 1, 4).selectExpr("'UA' carrier", "if(id = 80, 1L << 40, id) delay")
        assert "column 'delay' is int, and 1099511627776 in row 5 does not fit" in refused(kit, frame, topic)
        assert kit.read(subscribe=topic).count() == 0


class TestSchemas:
    @proves("SPY.4")
    def test_merge_schema_adds_and_widens_first(self, kit: Kit) -> None:
        topic = typed_topic(kit, SMALL)
        write(kit, sql(kit, "'UA' carrier, 1 delay"), topic)
        frame = sql(kit, "'AA' carrier, 3000000000L delay, named_struct('gate', 'B4') place")
        assert "has no column 'place'" in refused(kit, frame, topic)
        message = "column 'delay' cannot become string from int"
        assert message in refused(kit, sql(kit, "'AA' carrier, 'late' delay"), topic, mergeSchema=True)
        write(kit, frame.repartition(2), topic, mergeSchema=True)
        schema = kit.admin.describe_topics([topic])[0].schema
        assert str(schema) == "carrier string NOT NULL, delay long, note string, place struct<gate: string>"
        assert schema is not None
        assert schema.version == 2
        write(kit, frame, topic, mergeSchema=True)
        assert kit.admin.describe_topics([topic])[0].schema == schema, "it takes these rows already"
        assert texts(kit.read(subscribe=topic)) == [
            "Row(carrier='AA', delay=3000000000, note=None, place=Row(gate='B4'))",
            "Row(carrier='AA', delay=3000000000, note=None, place=Row(gate='B4'))",
            "Row(carrier='UA', delay=1, note=None, place=None)",
        ]

    @proves("SPY.5")
    def test_create_topic_makes_it_of_the_columns(self, kit: Kit) -> None:
        source, sink = typed_topic(kit), kit.new_name()
        send_rows(kit, source, flights(0, 60))
        frame = kit.read(subscribe=source)
        options = {"createTopic": True, "keyColumns": "carrier, small", "timestampColumn": "at", "numPartitions": 3}
        write(kit, frame, sink, **options)
        write(kit, frame, sink, **options)
        made = kit.admin.describe_topics([sink])[0]
        assert made.schema is not None
        assert (made.schema.key_columns, made.schema.timestamp_column) == (("carrier", "small"), "at")
        assert (len(made.partitions), made.schema.version) == (3, 1)
        assert kit.read(subscribe=sink).schema == kit.spark.createDataFrame([], DDL).schema
        assert texts(kit.read(subscribe=sink)) == texts(frame.union(frame))

    def test_a_refused_write_leaves_the_schema_as_it_was(self, kit: Kit) -> None:
        topic = typed_topic(kit, SMALL)
        for columns, message in (
            ("5000000000L delay, 'typo' coment", "column 'carrier' of topic"),
            ("1 carrier, 5000000000L delay", "column 'carrier' stays string"),
            ("'AA' carrier, 5000000000L delay, true _deleted, 1 _key", "'_key'"),
            ("'AA' carrier, 5000000000L delay, make_dt_interval(1) note", "column 'note'"),
        ):
            assert message in refused(kit, sql(kit, columns), topic, mergeSchema=True)
        with pytest.raises(Exception, match="transactionVersion"):
            write(kit, sql(kit, "'AA' carrier, 1 gate"), topic, mergeSchema=True, transactionVersion=3)
        name = kit.new_name()
        later = {"mergeSchema": True, "transactionalId": name}
        write(kit, sql(kit, "'AA' carrier"), topic, **later, transactionVersion=7)
        assert "generation" in refused(kit, sql(kit, "'AA' carrier, 1 gate"), topic, **later, transactionVersion=6)
        assert kit.admin.describe_topics([topic])[0].schema == SMALL

    def test_a_write_that_fails_takes_its_version_with_it(self, kit: Kit) -> None:
        topic = typed_topic(kit, SMALL)
        carrier = "IF(id = 3, raise_error('no'), 'AA') carrier"
        frame = kit.spark.range(0, 4, 1, 2).selectExpr(carrier, "5000000000L delay", "'typo' coment")
        for _ in range(2):
            refused(kit, frame, topic, mergeSchema=True)
            assert kit.admin.describe_topics([topic])[0].schema == SMALL
        write(kit, sql(kit, "'UA' carrier, 1 delay"), topic)
        write(kit, sql(kit, "'AA' carrier, 1 gate"), topic, mergeSchema=True)
        assert str(kit.admin.describe_topics([topic])[0].schema) == f"{SMALL}, gate int"
        wanted = kit.spark.range(0, 2, 1, 2).selectExpr("'AA' carrier", "5000000000L delay", "'x' coment")
        write(kit, wanted, topic, mergeSchema=True)
        assert str(kit.admin.describe_topics([topic])[0].schema) == (
            "carrier string NOT NULL, delay long, note string, gate int, coment string"
        )
        assert texts(kit.read(subscribe=topic, columns="carrier,delay,gate,coment")) == [
            "Row(carrier='AA', delay=5000000000, gate=None, coment='x')",
            "Row(carrier='AA', delay=5000000000, gate=None, coment='x')",
            "Row(carrier='AA', delay=None, gate=1, coment=None)",
            "Row(carrier='UA', delay=1, gate=None, coment=None)",
        ]

    def test_another_change_meanwhile_has_neither_its_columns_nor_takes_them_away(self, kit: Kit) -> None:
        topic, servers = typed_topic(kit, SMALL), kit.servers

        def evolve(batches: Any) -> Any:  # while the write runs
            from minilog import Admin

            with Admin({"bootstrap.servers": servers}) as admin:
                admin.evolve_schema(topic, lambda base: add_column(base, Field("gate", Primitive("int"))))
                found = admin.describe_topics([topic])[0].schema
            for batch in batches:
                yield batch.assign(note=str(found))

        frame = kit.spark.range(0, 1, 1, 1).selectExpr("'AA' carrier", "5000000000L delay", "'' note", "'x' coment")
        write(kit, frame.mapInPandas(evolve, frame.schema), topic, mergeSchema=True)
        (row,) = kit.read(subscribe=topic).collect()
        assert (row.delay, row.gate, row.coment, row.note) == (5000000000, None, "x", f"{SMALL}, gate int")

    def test_a_block_takes_the_version_of_its_writes_with_it(self, kit: Kit) -> None:
        topic, name = typed_topic(kit, SMALL), kit.new_name()
        frame = sql(kit, "'AA' carrier, 5000000000L delay, 'x' coment")

        def run(number: int, *, fails: bool) -> None:
            servers = {"bootstrap_servers": kit.servers}
            with pyspark_minilog.transaction(kit.spark, name, number, **servers) as tx:
                write(kit, frame, topic, **tx.options, mergeSchema=True)
                assert kit.admin.describe_topics([topic])[0].schema == SMALL
                if fails:
                    raise ValueError

        with pytest.raises(ValueError):
            run(0, fails=True)
        schemas = kit.admin.describe_topics([topic])[0].schemas
        assert isinstance(schemas, TopicSchemas)
        assert (schemas.latest, set(schemas.withdrawn)) == (SMALL, {2})
        run(1, fails=False)
        assert texts(kit.read(subscribe=topic, columns="delay,coment")) == ["Row(delay=5000000000, coment='x')"]

    @proves("SPY.5")
    @pytest.mark.parametrize(
        ("columns", "options", "message"),
        [
            ("1 n, true _deleted", {"createTopic": True}, "no key columns"),
            ("1 n", {"createTopic": True, "replicationFactor": 9}, "replication factor 9"),
            ("1 n", {"createTopic": True, "keyColumns": "gone"}, "there is no column 'gone'"),
            ("1 n", {"createTopic": True, "timestampColumn": "n"}, "it has to be a timestamp"),
            ("1 n", {"keyColumns": "n"}, "it is for a topic that the write creates. Set createTopic=true, too"),
        ],
    )
    def test_a_refused_write_creates_no_topic(
        self, kit: Kit, columns: str, options: dict[str, Any], message: str
    ) -> None:
        topic = kit.new_name()
        assert message in refused(kit, sql(kit, columns), topic, **options)
        assert topic not in kit.admin.list_topics()

    def test_comments_are_kept_and_collations_refused(self, kit: Kit) -> None:
        topic = kit.new_name()
        frame = sql(kit, "1 id, 'a' c").withMetadata("c", {"comment": "the name"})
        write(kit, frame, topic, createTopic=True)
        write(kit, sql(kit, "2 id, 3 n").withMetadata("n", {"comment": "later"}), topic, mergeSchema=True)
        found = kit.read(subscribe=topic).schema
        assert [field.metadata.get("comment") for field in found] == [None, "the name", "later"]
        collated = sql(kit, "1 id, 'ABC' COLLATE UTF8_LCASE d")
        wanted = "column 'd': collation UTF8_LCASE is none that a topic keeps"
        assert wanted in refused(kit, collated, kit.new_name(), createTopic=True)
        assert wanted in refused(kit, collated, topic, mergeSchema=True)
        write(kit, collated.withColumnRenamed("d", "c"), topic, mergeSchema=True)
        assert kit.read(subscribe=topic).where("c = 'ABC'").count() == 1

    def test_new_columns_may_be_null_as_those_of_create_table_as_select(self, kit: Kit) -> None:
        topic = kit.new_name()
        columns = "1 id, 2 n, named_struct('a', 1, 'b', array(1), 'c', map('k', 1)) s"
        write(kit, sql(kit, columns), topic, createTopic=True, keyColumns="ID")
        made = "id int NOT NULL, n int, s struct<a: int, b: array<int>, c: map<string, int>>"
        assert str(kit.admin.describe_topics([topic])[0].schema) == made
        write(kit, sql(kit, "2 id, named_struct('x', 1) t"), topic, mergeSchema=True)
        assert str(kit.admin.describe_topics([topic])[0].schema) == f"{made}, t struct<x: int>"
        assert texts(kit.read(subscribe=topic)) == [
            "Row(id=1, n=2, s=Row(a=1, b=[1], c={'k': 1}), t=None)",
            "Row(id=2, n=None, s=None, t=Row(x=1))",
        ]

    def test_a_topic_that_is_there_is_not_made_again(self, kit: Kit) -> None:
        topic = kit.topic()
        write(kit, sql(kit, "'a' value"), topic, createTopic=True)
        assert kit.read(subscribe=topic).collect()[0].value == b"a"


class TestStreams:
    def run(self, kit: Kit, source: str, sink: str, checkpoint: pathlib.Path, **options: object) -> StreamingQuery:
        """One AvailableNow run from topic to topic, ten rows a batch; raises what the query raises."""
        frame = kit.read_stream(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=10)
        changed = frame.withColumn("small", f.col("delay").cast("long") + 1)
        writer: Any = changed.writeStream.format("minilog").option("bootstrap.servers", kit.servers)
        for name, value in options.items():
            writer = writer.option(name, str(value).lower())
        writer = writer.option("topic", sink).option("checkpointLocation", str(checkpoint))
        query: StreamingQuery = writer.trigger(availableNow=True).start()
        finish(query)
        return query

    @proves("SPY.3")
    def test_rows_are_written_exactly_once_over_restarts(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        source, sink = typed_topic(kit), typed_topic(kit)
        send_rows(kit, source, flights(0, 25), batches=5)
        self.run(kit, source, sink, tmp_path)
        forget_from(tmp_path, "commits", 2)  # as if the driver had died behind the commit of the last batch
        send_rows(kit, source, flights(25, 25), batches=5)
        query = self.run(kit, source, sink, tmp_path)
        wanted = kit.read(subscribe=source).selectExpr("at", "delay", "cast(delay + 1 as short) small")
        assert texts(kit.read(subscribe=sink).select("at", "delay", "small")) == texts(wanted)
        listing = kit.admin.describe_transaction(f"spark-{query.id}").listing
        assert (listing.last_committed_generation or 0) >= 5

    @proves("SPY.3")
    def test_a_row_that_does_not_fit_ends_it_and_leaves_nothing_of_its_batch(
        self, kit: Kit, tmp_path: pathlib.Path
    ) -> None:
        source = typed_topic(kit, partitions=1)
        sink = typed_topic(kit, schema_from_ddl(DDL.replace("small short", "small byte")), partitions=1)
        send_rows(kit, source, flights(170, 20))
        with pytest.raises(Exception, match=r"column 'small' is byte, and 128 in row \d does not fit, and 2 more"):
            self.run(kit, source, sink, tmp_path)
        assert kit.read(subscribe=sink).count() == 0

    def test_merge_schema_and_create_topic(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        source, sink = typed_topic(kit), kit.new_name()
        send_rows(kit, source, flights(0, 15), batches=3)
        self.run(kit, source, sink, tmp_path / "a", createTopic=True, keyColumns="carrier")
        narrow = typed_topic(kit, schema_from_ddl("carrier string NOT NULL"))
        self.run(kit, source, narrow, tmp_path / "b", mergeSchema=True)
        for topic in (sink, narrow):
            assert sorted(row.small for row in kit.read(subscribe=topic, where="delay is not null").collect()) == [
                each - 49 for each in range(15) if each % 7
            ]

    def test_a_micro_batch_that_fails_takes_its_version_with_it(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        source = typed_topic(kit, partitions=1)
        narrow = typed_topic(kit, schema_from_ddl("carrier string NOT NULL, small byte"), partitions=1)
        send_rows(kit, source, flights(170, 20))
        before = kit.admin.describe_topics([narrow])[0].schema
        frame = kit.read_stream(subscribe=source, startingOffsets="earliest")

        def run(column: str) -> None:
            writer: Any = frame.selectExpr("carrier", "small", column).writeStream.format("minilog")
            writer = writer.options(**{"bootstrap.servers": kit.servers, "topic": narrow, "mergeSchema": "true"})
            writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
            finish(writer.start())

        with pytest.raises(Exception, match="no such flight"):
            run("IF(delay > 125, raise_error('no such flight'), delay) delay")
        assert kit.admin.describe_topics([narrow])[0].schema == before
        run("delay")
        found = kit.admin.describe_topics([narrow])[0].schema
        assert found is not None
        assert (str(found), found.version) == ("carrier string NOT NULL, small short, delay int", 2)
        assert kit.read(subscribe=narrow, where="delay is not null").count() > 10


KEYED = schema_from_ddl("id int NOT NULL, name string NOT NULL, at timestamp", ["id"], "at")


class TestDeletions:
    def test_a_column_marks_rows_that_delete_their_key_and_the_source_gives_it(self, kit: Kit) -> None:
        topic = typed_topic(kit, KEYED, partitions=1)
        rows = kit.spark.createDataFrame(
            [(1, "a", False), (2, None, True), (3, "c", None)], "id int, name string, _DELETED boolean"
        )
        write(kit, rows.coalesce(1), topic)
        write(kit, sql(kit, "1 AS id, true AS _deleted"), topic)
        assert texts(kit.read(subscribe=topic)) == ["Row(id=1, name='a', at=None)", "Row(id=3, name='c', at=None)"]
        found = kit.read(subscribe=topic, deletes="true", columns="id,name")
        assert [(field.name, field.nullable) for field in found.schema][1:] == [("name", True), ("_deleted", True)]
        assert texts(found) == [
            "Row(id=1, name='a', _deleted=False)",
            "Row(id=1, name=None, _deleted=True)",
            "Row(id=2, name=None, _deleted=True)",
            "Row(id=3, name='c', _deleted=False)",
        ]
        where = kit.read(subscribe=topic, deletes="true", where="id = 3", metadata="true")
        assert sorted((row.id, row._deleted, row._offset) for row in where.collect()) == [
            (1, True, 4),  # behind the marker of the first write
            (2, True, 1),
            (3, False, 2),
        ]
        assert kit.read(subscribe=topic).count() == 2
        assert kit.read(subscribe=topic, deletes="true").count() == 4
        as_kafka = kit.read(subscribe=topic, deletes="true", view="kafka").collect()
        assert sorted(row.value is None for row in as_kafka) == [False, False, True, True]
        assert kit.read(subscribe=topic, view="kafka").count() == 2

    def test_a_stream_copies_deletions(self, kit: Kit, tmp_path: pathlib.Path) -> None:
        source, sink = typed_topic(kit, KEYED), typed_topic(kit, KEYED)
        write(kit, sql(kit, "1 AS id, 'a' AS name, timestamp'2024-05-01 12:00:00' AS at, false AS _deleted"), source)
        write(kit, sql(kit, "1 AS id, timestamp'2024-05-01 13:00:00' AS at, true AS _deleted"), source)
        stream = kit.spark.readStream.format("minilog").option("bootstrap.servers", kit.servers)
        frame = stream.options(subscribe=source, startingOffsets="earliest", deletes="true").load()
        writer = frame.writeStream.format("minilog").option("bootstrap.servers", kit.servers).option("topic", sink)
        finish(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start())
        given = kit.read(subscribe=sink, deletes="true", metadata="true").collect()
        assert [(row.id, row._deleted, row.name) for row in sorted(given, key=lambda row: row._offset)] == [
            (1, False, "a"),
            (1, True, None),
        ]
