"""Where the options of a catalog's table are: told at CREATE TABLE, kept by its columns, found again at a read."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options.catalog_tables import OPTIONS, created, read_options, stored_options, with_options
from pyspark_minilog.options.table import parse_source_options
from pyspark_minilog.reading.schema import check_source_schema, source_schema
from tests.rules import proves

pytestmark = proves("SPF.5")

GIVEN = {"bootstrap.servers": "h:1", "subscribe": "flights"}
# As Spark 4.3 says it: CREATE TABLE t USING minilog OPTIONS (...) COMMENT 'c' TBLPROPERTIES ('subscribe' = 'no').
AT_CREATION = {
    "provider": "minilog",
    "owner": "root",
    "comment": "c",
    "subscribe": "no",
    "bootstrap.servers": "h:1",
    "option.subscribe": "flights",
    "option.bootstrap.servers": "h:1",
}


def test_the_options_of_a_table_are_told_from_its_properties() -> None:
    assert created(AT_CREATION) == GIVEN
    assert created(GIVEN) is None
    assert created({"provider": "minilog", "owner": "root"}) == {}


def test_a_table_has_no_folder() -> None:
    of_table = created({**AT_CREATION, "location": "file:/tmp/t", "path": "file:/tmp/t", "external": "true"})
    assert of_table is not None
    with pytest.raises(InvalidOption, match="a topic is not a path"):
        parse_source_options(of_table)


@proves("SPF.20")
@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("option.minilog.sasl.password", "minilog.sasl.password"),
        ("option.kafka.sasl.jaas.config", "kafka.sasl.jaas.config"),
        ("option.sasl.password", "sasl.password"),
        ("minilog.sasl.password", "minilog.sasl.password"),
    ],
)
@pytest.mark.parametrize("allowed", [{}, {"option.allowsecretsinoptions": "true"}])
def test_a_table_never_keeps_a_secret(key: str, told: str, allowed: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match=f"option '{told}' holds a secret, and the catalog keeps") as refused:
        created({**AT_CREATION, **allowed, key: "planted"})
    assert "minilog.config.file" in str(refused.value)
    assert "planted" not in str(refused.value)
    assert created({**AT_CREATION, "credential.team": "a"}) == GIVEN


def test_columns_keep_them_whichever_is_dropped() -> None:
    first, second = StructField("a", StringType(), False, {"x": "y"}), StructField("b", StringType())
    table = with_options(StructType([first, second]), GIVEN)
    assert [(each.name, each.nullable, each.metadata.get("x")) for each in table.fields] == [
        ("a", False, "y"),
        ("b", True, None),
    ]
    for each in table.fields:
        assert stored_options(StructType([StructField("new", StringType()), each])) == GIVEN
    assert first.metadata == {"x": "y"}
    assert stored_options(StructType([first])) == stored_options(StructType()) == {}


def test_the_stored_text_says_nothing_of_the_order() -> None:
    schema = StructType([StructField("a", StringType())])
    texts = {with_options(schema, each)["a"].metadata[OPTIONS] for each in (GIVEN, dict(reversed(GIVEN.items())))}
    assert texts == {'{"bootstrap.servers": "h:1", "subscribe": "flights"}'}


def test_columns_of_a_table_are_those_of_the_source() -> None:
    for include_headers in (False, True):
        table = StructType.fromJson(with_options(source_schema(include_headers), GIVEN).jsonValue())
        check_source_schema(table, include_headers)
        assert stored_options(table) == GIVEN


def test_options_of_a_read_win() -> None:
    table = with_options(source_schema(False), {**GIVEN, "startingoffsets": "earliest"})
    found = read_options({"startingoffsets": "-10", "minpartitions": "2"}, table)
    assert found == {**GIVEN, "startingoffsets": "-10", "minpartitions": "2"}
    assert read_options({}, source_schema(False)) == {}


@pytest.mark.parametrize("option", ["subscribe", "subscribePattern", "assign"])
def test_a_read_that_says_of_what_is_no_tables(option: str) -> None:
    """Its schema may be that of a table: spark.read.schema(spark.table("t").schema)."""
    given = {"bootstrap.servers": "other:1", option: "x"}
    assert read_options(given, with_options(source_schema(False), GIVEN)) == given
