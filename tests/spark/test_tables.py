"""Tables of the catalog and views over topics: what SQL users write."""

from __future__ import annotations

import pathlib

import pyarrow as pa
import pytest

from minilog import schema_from_ddl
from minilog.typed.schema.evolution import add_column, rename_column
from minilog.typed.schema.fields import Field, Primitive
from pyspark_minilog.reading.typed_rows import METADATA
from tests.rules import proves
from tests.spark.kit import Collected, Kit, finish, run_available, values
from tests.spark.typed_kit import flights, send_rows, texts, typed_topic


def options(kit: Kit, **given: str) -> str:
    all_of_them = {"bootstrap.servers": kit.servers, **given}
    return "OPTIONS (" + ", ".join(f"`{name}` '{value}'" for name, value in all_of_them.items()) + ")"


def name_of(topic: str) -> str:
    return topic.replace("-", "_")


def count(kit: Kit, relation: str) -> int:
    return int(kit.spark.sql(f"SELECT count(*) AS n FROM {relation}").collect()[0].n)


def create(kit: Kit, topic: str, **given: str) -> str:
    """A table of the catalog over a topic."""
    table = name_of(topic)
    kit.spark.sql(f"CREATE TABLE {table} USING minilog {options(kit, subscribe=topic, **given)}")
    return table


@proves("SPF.5")
def test_a_table_shows_what_is_there_now(kit: Kit) -> None:
    topic = kit.topic()
    table = create(kit, topic, includeHeaders="true")
    assert kit.spark.table(table).columns == kit.read(subscribe=topic, includeHeaders="true").columns
    assert count(kit, table) == 0
    kit.send(topic, ["a", "b"])
    assert count(kit, table) == 2
    kit.send(topic, ["c"])
    assert values(kit.spark.table(table)) == values(kit.spark.read.table(table)) == ["a", "b", "c"]
    found = kit.spark.sql(f"SELECT string(value) AS text FROM {table} WHERE offset > 0 ORDER BY offset").collect()
    assert [row.text for row in found] == ["b", "c"]
    kit.spark.sql(f"DROP TABLE {table}")
    assert kit.admin.describe_topics([topic])


@proves("SPF.5")
def test_a_table_of_a_topic_with_a_schema_has_its_columns(kit: Kit) -> None:
    topic = typed_topic(kit)
    send_rows(kit, topic, flights(0, 60), batches=3)
    table = create(kit, topic)
    assert texts(kit.spark.table(table)) == texts(kit.read(subscribe=topic))
    assert [(each.name, each.dataType, each.nullable) for each in kit.spark.table(table).schema] == [
        (each.name, each.dataType, each.nullable) for each in kit.read(subscribe=topic).schema
    ]
    kit.spark.sql(f"DROP TABLE {table}")
    table = create(kit, topic, columns="delay,carrier", where="delay < 0", metadata="true")
    assert kit.spark.table(table).columns == ["delay", "carrier", *METADATA.names]
    assert texts(kit.spark.table(table).select("delay")) == texts(
        kit.read(subscribe=topic).where("delay < 0").select("delay")
    )
    kit.spark.sql(f"DROP TABLE {table}")


@proves("SPF.6")
def test_a_read_of_a_table_has_options_of_its_own(kit: Kit) -> None:
    topic = kit.topic()
    table = create(kit, topic, startingOffsets="-2000")
    kit.send(topic, ["a", "b", "c"])
    from_b = f'{{"{topic}":{{"0":1}}}}'
    assert values(kit.spark.read.option("startingOffsets", from_b).table(table)) == ["b", "c"]
    assert count(kit, f"{table} WITH (startingOffsets = '-1000', endingOffsets = '{from_b}')") == 1
    assert count(kit, table) == 3
    kit.spark.sql(f"DROP TABLE {table}")


@proves("SPF.5")
def test_a_stream_of_a_table(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    table = create(kit, topic, startingOffsets="earliest")
    found = Collected()
    for sent in (["a", "b"], ["c", "d", "e"]):
        kit.send(topic, sent)
        stream = kit.spark.readStream.option("maxOffsetsPerTrigger", "2").table(table)
        run_available(stream, found, tmp_path)
    assert found.values == ["a", "b", "c", "d", "e"]
    assert len(found.batches) == 3
    kit.spark.sql(f"DROP TABLE {table}")


@proves("SPF.5")
def test_a_table_goes_on_with_the_columns_of_its_creation(kit: Kit) -> None:
    topic = typed_topic(kit, schema_from_ddl("carrier string NOT NULL, delay int"))
    table = create(kit, topic)
    with_where = f"{table} WITH (`where` = 'delay > 1')"
    rows = pa.table({"carrier": ["UA", "AA"], "delay": pa.array([1, 2], pa.int32())})
    send_rows(kit, topic, rows)
    kit.admin.evolve_schema(topic, lambda known: add_column(known, Field("gate", Primitive("string"))))
    send_rows(kit, topic, rows.append_column("gate", pa.array(["B1", "B2"])))
    assert texts(kit.spark.table(table)) == texts(kit.read(subscribe=topic).select("carrier", "delay"))
    assert count(kit, with_where) == 2
    kit.spark.sql(f"ALTER TABLE {table} ADD COLUMNS (gate STRING)")
    assert texts(kit.spark.table(table)) == texts(kit.read(subscribe=topic))
    kit.spark.sql(f"ALTER TABLE {table} DROP COLUMN carrier")
    assert kit.spark.table(table).columns == ["delay", "gate"]
    assert count(kit, with_where) == 2
    kit.admin.evolve_schema(topic, lambda known: rename_column(known, "delay", "late"))
    with pytest.raises(
        Exception, match=r"the topic does not have the columns any more .* create it again .*column 'delay'"
    ):
        kit.spark.table(table).count()
    kit.spark.sql(f"DROP TABLE {table}")


@proves("SPF.6")
def test_a_table_that_cannot_be_read_is_refused_where_it_is_made(kit: Kit) -> None:
    topic = kit.topic()
    table = name_of(topic)
    for given, told in (
        (options(kit, subscribe=topic, columns="delay"), r"'columns' is 'delay': .* has no schema"),
        (options(kit, topic=topic), "the source of this minilog version has no option 'topic'"),
        ("", "no option is given: name at least the brokers and a topic"),
        (options(kit, subscribe=topic) + " LOCATION '/tmp/t'", "a topic is not a path"),
    ):
        with pytest.raises(Exception, match=told):
            kit.spark.sql(f"CREATE TABLE {table} USING minilog {given}")
    assert not kit.spark.catalog.tableExists(table)


@proves("SPF.6")
def test_a_table_with_columns_of_its_own_has_no_options(kit: Kit) -> None:
    """It is made without a word, and its options never reach the source."""
    topic = kit.topic()
    table = name_of(topic)
    kit.spark.sql(f"CREATE TABLE {table} (value STRING) USING minilog {options(kit, subscribe=topic)}")
    with pytest.raises(Exception, match=r"no option is given: .* write CREATE TABLE"):
        kit.spark.table(table).count()
    kit.spark.sql(f"DROP TABLE {table}")


@proves("SPF.31")
def test_a_table_made_by_a_data_frame_cannot_be_read_and_says_what_to_do(kit: Kit, tmp_path: pathlib.Path) -> None:
    """Spark makes the table and has the rows written: of the table the sink hears nothing, so it cannot refuse."""
    topic = kit.topic()
    table = name_of(topic)
    given = {"bootstrap.servers": kit.servers, "topic": topic}
    frame = kit.spark.sql("SELECT 'a' AS value")
    frame.write.format("minilog").mode("append").options(**given).saveAsTable(table)
    with pytest.raises(
        Exception, match=r"cannot read a table that saveAsTable, writeTo or toTable made: drop that table, and create"
    ):
        kit.spark.table(table).count()
    kit.spark.sql(f"DROP TABLE {table}")
    assert create(kit, topic) == table
    assert values(kit.spark.table(table)) == ["a"]
    named = f"WITH (`bootstrap.servers` = '{kit.servers}', topic = '{topic}')"
    kit.spark.sql(f"INSERT INTO {table} {named} BY NAME SELECT binary('b') AS value")
    kit.spark.sql(f"INSERT INTO {table} {named} (key, value) SELECT binary('k'), binary('c')")
    assert values(kit.spark.table(table)) == ["a", "b", "c"]
    kit.spark.sql(f"DROP TABLE {table}")


@pytest.mark.long
@proves("SPF.7")
def test_an_insert_into_a_table_is_refused(kit: Kit, tmp_path: pathlib.Path) -> None:
    """Of an INSERT the sink is told the columns of what is inserted: here they are those of the table that is read, and
    by them the rows would go back to where they come from."""
    schema = schema_from_ddl("carrier string, delay int")
    origin, aim = typed_topic(kit, schema), typed_topic(kit, schema)
    send_rows(kit, origin, pa.table({"carrier": ["UA"], "delay": pa.array([1], pa.int32())}))
    table, other = create(kit, origin), create(kit, aim)
    rows = kit.spark.table(table)
    stream = kit.spark.readStream.option("startingOffsets", "earliest").table(table).writeStream
    stream = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    for insert in (
        lambda: kit.spark.sql(f"INSERT INTO {other} SELECT * FROM {table}"),
        lambda: kit.spark.sql(f"INSERT INTO {other} VALUES ('UA', 1)"),
        lambda: kit.spark.sql(
            f"CREATE TABLE t_as USING minilog {options(kit, subscribe=aim)} AS SELECT * FROM {table}"
        ),
        lambda: rows.write.insertInto(other),
        lambda: finish(stream.toTable(other)),
    ):
        with pytest.raises(Exception, match=r"no option is given: .* Rows cannot be inserted into a table .*df\.write"):
            insert()
    assert not kit.spark.catalog.tableExists("t_as")
    assert (count(kit, table), count(kit, other)) == (1, 0)
    kit.spark.sql(
        f"INSERT INTO {other} WITH (`bootstrap.servers` = '{kit.servers}', topic = '{aim}') SELECT * FROM {table}"
    )
    rows.write.format("minilog").mode("append").options(**{"bootstrap.servers": kit.servers, "topic": aim}).save()
    assert (count(kit, table), count(kit, other)) == (1, 2)
    for each in (table, other):
        kit.spark.sql(f"DROP TABLE {each}")


def test_a_frame_of_a_table_makes_a_topic_like_any_other(kit: Kit) -> None:
    table = create(kit, typed_topic(kit, schema_from_ddl("carrier string, delay int")))
    made = kit.new_name()
    given = {"bootstrap.servers": kit.servers, "topic": made, "createTopic": "true"}
    kit.spark.table(table).write.format("minilog").mode("append").options(**given).save()
    (found,) = kit.admin.describe_topics([made])
    assert str(found.schema) == "carrier string, delay int"
    assert kit.read(subscribe=made).schema == kit.spark.createDataFrame([], "carrier string, delay int").schema
    reader = kit.spark.read.format("minilog").option("bootstrap.servers", kit.servers).option("subscribe", made)
    assert reader.schema(kit.spark.table(table).schema).load().count() == 0
    kit.spark.sql(f"DROP TABLE {table}")


@proves("SPF.8")
def test_a_view_shows_what_was_there_at_its_first_action(kit: Kit) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b"])
    view = name_of(topic)
    kit.spark.sql(f"CREATE TEMPORARY VIEW {view} USING minilog {options(kit, subscribe=topic)}")
    assert count(kit, view) == 2
    kit.send(topic, ["c"])
    assert count(kit, view) == 2
    kit.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING minilog {options(kit, subscribe=topic)}")
    assert count(kit, view) == 3


@proves("SPF.4")
def test_a_topic_is_not_a_path(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    reader = kit.spark.read.format("minilog").option("bootstrap.servers", kit.servers)
    with pytest.raises(
        Exception, match=f"option 'path' is '{topic}': a topic is not a path. Name the topic with option"
    ):
        reader.load(topic)
    writer = kit.spark.range(1).selectExpr("string(id) AS value").write.format("minilog").mode("append")
    with pytest.raises(Exception, match=r"a topic is not a path. Name the topic with option\('topic'"):
        writer.option("bootstrap.servers", kit.servers).save(topic)
    stream = kit.read_stream(subscribe=topic).select("value").writeStream.format("minilog")
    stream = stream.option("bootstrap.servers", kit.servers).option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match=r"a topic is not a path. Name the topic with option\('topic'"):
        finish(stream.trigger(availableNow=True).start(topic))
