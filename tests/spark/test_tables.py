"""Tables of the catalog and views over topics: what SQL users write."""

from __future__ import annotations

import pathlib

import pytest

from tests.spark.kit import Kit, finish


def options(kit: Kit, **given: str) -> str:
    all_of_them = {"bootstrap.servers": kit.servers, **given}
    return "OPTIONS (" + ", ".join(f"`{name}` '{value}'" for name, value in all_of_them.items()) + ")"


def name_of(topic: str) -> str:
    return topic.replace("-", "_")


def count(kit: Kit, relation: str) -> int:
    return int(kit.spark.sql(f"SELECT count(*) AS n FROM {relation}").collect()[0].n)


def test_a_table_of_the_catalog_is_refused_where_it_is_made(kit: Kit) -> None:
    topic = kit.topic()
    for given in (options(kit, subscribe=topic), options(kit, topic=topic)):
        with pytest.raises(
            Exception, match=r"a table of the catalog cannot stand for a topic: .* CREATE TEMPORARY VIEW"
        ):
            kit.spark.sql(f"CREATE TABLE {name_of(topic)} USING minilog {given}")
    assert not kit.spark.catalog.tableExists(name_of(topic))


def test_or_where_it_is_used_if_spark_does_not_ask_before(kit: Kit) -> None:
    """With columns of its own it is made without a word, and its options never reach the source."""
    topic = kit.topic()
    table = name_of(topic)
    kit.spark.sql(f"CREATE TABLE {table} (value STRING) USING minilog {options(kit, topic=topic)}")
    for use in (lambda: kit.spark.sql(f"INSERT INTO {table} VALUES ('a')"), kit.spark.table(table).count):
        with pytest.raises(
            Exception, match=r"no option is given: .* If this is a table, a table of the catalog cannot"
        ):
            use()
    kit.spark.sql(f"DROP TABLE {table}")


@pytest.mark.parametrize("made_by", ["SQL", "DataFrame"])
def test_a_view_shows_what_was_there_at_its_first_action(kit: Kit, made_by: str) -> None:
    topic = kit.topic()
    kit.send(topic, ["a", "b"])
    view = name_of(topic)
    if made_by == "SQL":
        kit.spark.sql(f"CREATE TEMPORARY VIEW {view} USING minilog {options(kit, subscribe=topic)}")
    else:
        kit.read(subscribe=topic).createTempView(view)
    assert count(kit, view) == 2
    kit.send(topic, ["c"])
    assert count(kit, view) == 2
    if made_by == "SQL":
        kit.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING minilog {options(kit, subscribe=topic)}")
    else:
        kit.read(subscribe=topic).createOrReplaceTempView(view)
    assert count(kit, view) == 3


def test_a_topic_is_not_a_path(kit: Kit, tmp_path: pathlib.Path) -> None:
    topic = kit.topic()
    reader = kit.spark.read.format("minilog").option("bootstrap.servers", kit.servers)
    with pytest.raises(Exception, match=f"option 'path' is '{topic}': a topic is not a path; name it with option"):
        reader.load(topic)
    writer = kit.spark.range(1).selectExpr("string(id) AS value").write.format("minilog").mode("append")
    with pytest.raises(Exception, match=r"a topic is not a path; name it with option\('topic'"):
        writer.option("bootstrap.servers", kit.servers).save(topic)
    stream = kit.read_stream(subscribe=topic).select("value").writeStream.format("minilog")
    stream = stream.option("bootstrap.servers", kit.servers).option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match=r"a topic is not a path; name it with option\('topic'"):
        finish(stream.trigger(availableNow=True).start(topic))
