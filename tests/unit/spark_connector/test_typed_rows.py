"""What a query reads of topics that have a schema: columns, versions, refusals. And what the sink tells at once."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from minilog import TopicSchema, schema_from_ddl
from minilog.errors import InvalidRecord, InvalidSchema
from minilog.typed.schema.evolution import add_column, drop_column, rename_column, widen_column
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schemas import TopicSchemas
from pyspark_minilog.errors import InvalidOption, SchemaChanged
from pyspark_minilog.helpers import _options
from pyspark_minilog.options.offsets import Partition, SourceOffset, parse_offset_spec
from pyspark_minilog.options.table import (
    RowOptions,
    parse_batch_options,
    parse_sink_options,
    parse_source_options,
    parse_stream_options,
)
from pyspark_minilog.reading.planning import PlannedRange
from pyspark_minilog.reading.read_task import ReadTask, joined, planned
from pyspark_minilog.reading.typed_rows import (
    METADATA,
    TypedTopic,
    TypedTopics,
    check_untyped,
    typed_topics,
)
from pyspark_minilog.spark_types import arrow_schema, schema_from_spark, spark_schema
from pyspark_minilog.writing.typed_plan import TypedPlan
from pyspark_minilog.writing.typed_sink import check_columns, spelled, without_mark
from tests.rules import proves

V1 = schema_from_ddl("carrier string NOT NULL, delay int, note string", ["carrier"])
LONG = widen_column(V1, "delay", Primitive("long"))
RENAMED = rename_column(V1, "note", "remark")
AGAIN = add_column(RENAMED, Field("note", Primitive("string")))
KEYED = schema_from_ddl("carrier string NOT NULL, delay int NOT NULL", ["carrier"])
OWN = TopicSchema((Field("id", Primitive("int"), True, 1), Field("_deleted", Primitive("boolean"), True, 2)), ("id",))
GATE = add_column(V1, Field("gate", Primitive("string")))


def topic(*versions: TopicSchema, number: int = 1) -> TypedTopic:
    return TypedTopic(f"{number:032x}", TopicSchemas(versions))


def rows(*versions: TopicSchema, **options: object) -> TypedTopics:
    found = typed_topics({"t": topic(*versions)}, RowOptions(**options))  # type: ignore[arg-type]
    assert found is not None
    return found


class TestTypes:
    @proves("SPT.1")
    def test_there_and_back(self) -> None:
        schema = schema_from_ddl(
            "a boolean, b byte, c short, d int NOT NULL, e long, f float, g double, h string, i binary, j date,"
            " k timestamp, l timestamp_ntz, m decimal(38,2), n struct<x: int NOT NULL, y: array<map<string, int>>>"
        )
        spark = spark_schema(schema)
        assert schema_from_spark(spark) == schema
        assert arrow_schema(spark).equals(schema.arrow_schema), "what brokers hand out goes to Spark as it is"
        assert not spark["d"].nullable

    def test_roles(self) -> None:
        made = schema_from_spark(StructType([StructField("a", StringType())]), ["a"])
        assert made.key_columns == ("a",)
        with pytest.raises(InvalidSchema):
            schema_from_spark(StructType([StructField("_key", StringType())]))


class TestVersions:
    @proves("SPT.9")
    @pytest.mark.parametrize(
        ("versions", "columns", "where", "before", "found"),
        [
            ((V1, GATE), None, None, 1, 2),  # the DataFrame has a column that the first version does not have
            ((V1, GATE), ("carrier", "delay"), None, 1, 1),
            ((V1, GATE), ("carrier",), "gate is null", 1, 2),
            ((V1, LONG), ("carrier", "delay"), None, 1, 2),
            ((V1, LONG), ("carrier",), None, 1, 1),
            ((V1, RENAMED, AGAIN), ("note",), None, 1, 1),
            ((V1, RENAMED, AGAIN), ("note",), None, 2, 3),
            ((V1, GATE), ("carrier",), None, None, 2),
            ((V1, GATE), ("carrier",), None, 7, 2),
        ],
    )
    def test_a_query_goes_on_by_the_one_before_where_that_gives_the_same_columns(
        self,
        versions: tuple[TopicSchema, ...],
        columns: tuple[str, ...] | None,
        where: str | None,
        before: int | None,
        found: int,
    ) -> None:
        query = rows(*versions, columns=columns, where=where)
        known = {} if before is None else {"t": before}
        assert query.versions(["t"], known) == {"t": found}
        assert query.rows(["t"], known).schemas == {"t": versions[found - 1]}

    def test_a_stream_that_was_to_fail_goes_on_by_the_newest_but_replays_by_its_own(self) -> None:
        query = rows(V1, GATE, columns=("carrier",), fails_on_change=True)
        assert query.versions(["t"], {"t": 1}) == {"t": 2}
        assert query.rows(["t"], {"t": 1}).schemas == {"t": V1}

    def test_the_schema_of_load_stays_while_the_topic_is_the_same(self) -> None:
        query = rows(V1)
        assert query.renewed({"t": topic(V1, GATE)}) is query
        other = query.renewed({"t": topic(V1, number=2)})
        assert other.topics["t"].id == topic(V1, number=2).id
        with pytest.raises(InvalidOption, match="topics 't' and 't' have different columns"):
            query.renewed({"t": topic(GATE, number=2)})

    def test_a_change_is_told_with_what_has_changed(self) -> None:
        query = rows(V1, fails_on_change=True)
        with pytest.raises(
            SchemaChanged, match=r"has version 2 of its schema now, .* 1 when the query began \(added gate string"
        ):
            query.renewed({"t": topic(V1, GATE)})
        assert query.renewed({"t": topic(V1, GATE)}, is_stream=False) is query

    def test_a_query_of_keys_and_values_meets_no_schema(self) -> None:
        check_untyped({"t": None})
        with pytest.raises(InvalidOption, match="this query began with keys and values"):
            check_untyped({"t": None, "u": topic(V1)})


class TestSchema:
    def test_columns_and_metadata(self) -> None:
        found = rows(V1, columns=("DELAY", "carrier"), metadata=True)
        assert found.schema().names == ["delay", "carrier", "_topic", "_partition", "_offset", "_timestamp", "_key"]
        task = found.rows(["t"], {})
        assert (task.columns, task.metadata, task.as_kafka) == (("delay", "carrier"), True, False)

    @proves("SPT.7")
    def test_a_given_one_is_a_projection(self) -> None:
        given = StructType([StructField("_offset", LongType()), StructField("delay", LongType())])
        found = rows(V1, metadata=True).projected(given)
        assert (found.columns, found.metadata) == (("delay",), ("_offset",))
        with pytest.raises(InvalidOption, match="the columns here are carrier, delay, note"):
            rows(V1).projected(given)
        with pytest.raises(InvalidOption, match="gives column 'note' the type int, but the topic has string"):
            rows(V1).projected(StructType([StructField("note", IntegerType())]))

    def test_as_keys_and_values_topics_may_differ(self) -> None:
        options = RowOptions(is_kafka_view=True, where="delay > 1")
        found = typed_topics({"a": topic(V1), "b": topic(GATE, number=2)}, options)
        assert found is not None
        assert found.columns is None
        assert found.rows(["a", "b"], {}).metadata
        other = schema_from_ddl("x int")
        with pytest.raises(InvalidOption, match="option 'where' is 'delay > 1': there is no column 'delay'"):
            typed_topics({"a": topic(V1), "b": topic(other, number=2)}, options)

    def test_topics_of_the_same_columns_in_any_order(self) -> None:
        other = schema_from_ddl("note string, delay int, carrier string NOT NULL")
        found = typed_topics({"a": topic(V1), "b": topic(other, number=2)}, RowOptions())
        assert found is not None
        assert found.columns == V1.names
        with pytest.raises(InvalidOption, match="topics 'a' and 'b' have different columns"):
            typed_topics({"a": topic(V1), "b": topic(drop_column(V1, "note"), number=2)}, RowOptions())
        with pytest.raises(InvalidOption, match="topic 'a' has a schema, but topic 'b' has none"):
            typed_topics({"a": topic(V1), "b": None}, RowOptions())

    def test_without_a_schema(self) -> None:
        assert typed_topics({"a": None}, RowOptions(is_kafka_view=True)) is None
        assert typed_topics({}, RowOptions(columns=("a",))) is None
        with pytest.raises(InvalidOption, match="option 'where' is 'x = 1': topic 'a' has no schema"):
            typed_topics({"a": None}, RowOptions(where="x = 1"))


class TestTasks:
    def test_each_knows_the_schemas_that_it_needs(self) -> None:
        query = typed_topics({"a": topic(V1), "b": topic(V1, number=2)}, RowOptions())
        parts = [(PlannedRange(Partition(name, 0), 0, 1),) for name in ("a", "b")]
        tasks = [each for each in planned(parts, query, {"a": 1}) if isinstance(each, ReadTask)]
        assert [list(each.rows.schemas) for each in tasks if each.rows] == [["a"], ["b"]]
        assert pickle.loads(pickle.dumps(tasks)) == tasks
        assert planned(parts, None, {}) == [ReadTask(each) for each in parts]

    def test_rows_come_under_the_types_that_spark_expects(self) -> None:
        schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
        (good,) = joined(iter([pa.record_batch({"n": pa.array([1], pa.int32())})]), schema)
        assert good.schema == schema


class TestOffsets:
    def test_versions_are_kept(self) -> None:
        offset = SourceOffset({Partition("t", 0): 5}, {"t": "ab"}, schema_versions={"t": 3})
        said = json.loads(json.dumps(offset.to_json()))
        assert said == {"__schema_versions": {"t": 3}, "__topic_ids": {"t": "ab"}, "t": {"0": 5}}
        assert SourceOffset.from_json(said) == offset
        spec = parse_offset_spec("startingOffsets", json.dumps(said))
        assert spec.positions == {Partition("t", 0): 5}

    def test_without_them_nothing_is_another(self) -> None:
        assert SourceOffset({Partition("t", 0): 5}, {"t": "ab"}).to_json() == {
            "__topic_ids": {"t": "ab"},
            "t": {"0": 5},
        }

    @pytest.mark.parametrize("said", [[], {"t": "1"}, {"t": True}])
    def test_others_are_refused(self, said: object) -> None:
        with pytest.raises(InvalidOption, match="a list of schema versions that minilog cannot read"):
            SourceOffset.from_json({"__schema_versions": said, "t": {"0": 5}})


class TestOptions:
    def test_of_the_source(self) -> None:
        given = {"bootstrap.servers": "a:1", "subscribe": "t", "columns": "a, b", "WHERE": "a > 1", "metadata": "True"}
        assert parse_source_options(given).rows == RowOptions(("a", "b"), "a > 1", metadata=True)
        changed = parse_source_options({"bootstrap.servers": "a:1", "subscribe": "t", "onSchemaChange": "FAIL"})
        assert changed.rows == RowOptions(fails_on_change=True)
        newest = parse_batch_options({"bootstrap.servers": "a:1", "subscribe": "t", "view": "Latest"})
        assert newest.rows == RowOptions(is_latest_view=True)

    @proves("SPT.4")
    def test_a_table_of_the_newest_rows_is_a_batch_whose_partitions_are_whole(self) -> None:
        given = {"bootstrap.servers": "a:1", "subscribe": "t", "view": "latest"}
        with pytest.raises(InvalidOption, match=r"option 'view' is 'latest': a stream never has .* with deletes=true"):
            parse_stream_options(given)
        for option in ("minPartitions", "maxRecordsPerPartition"):
            with pytest.raises(InvalidOption, match="view=latest reads a partition in one task"):
                parse_batch_options({**given, option: "2"})
        with pytest.raises(InvalidOption, match="view=latest has no row of a deleted key"):
            parse_batch_options({**given, "deletes": "true"})
        with pytest.raises(InvalidOption, match=r"give columns, kafka .* or latest"):
            parse_batch_options({**given, "view": "newest"})

    @proves("SPT.3")
    def test_a_table_of_the_newest_rows_needs_key_columns(self) -> None:
        options = RowOptions(is_latest_view=True)
        keyed, keyless = (schema_from_ddl("a int, b int", keys) for keys in (["a"], []))
        assert typed_topics({"a": topic(keyed)}, options) is not None
        assert typed_topics({"a": None}, options) is None
        with pytest.raises(InvalidOption, match="option 'view' is 'latest': topic 'b' has no key columns"):
            typed_topics({"a": topic(keyed), "b": topic(keyless, number=2)}, options)

    def test_of_the_sink(self) -> None:
        given = {"bootstrap.servers": "a:1", "topic": "t", "createTopic": "true", "keyColumns": "a,b"}
        found = parse_sink_options({**given, "numPartitions": "3", "timestampColumn": "at"}).schema
        assert (found.creates, found.merges, found.key_columns, found.num_partitions) == (True, False, ("a", "b"), 3)
        assert (found.timestamp_column, found.replication_factor) == ("at", None)
        with pytest.raises(InvalidOption, match="option 'numPartitions' is '3': it is for a topic that the write"):
            parse_sink_options({"bootstrap.servers": "a:1", "topic": "t", "numPartitions": "3"})
        with pytest.raises(InvalidOption, match="option 'timestampColumn' is 'a,b': name one column"):
            parse_sink_options({**given, "timestampColumn": "a,b"})

    def test_of_the_helpers(self) -> None:
        found = _options("t", ["a", "b"], None, {"bootstrap_servers": "h:1", "metadata": True, "minPartitions": 2})
        assert found == {
            "subscribe": "t",
            "columns": "a,b",
            "bootstrap.servers": "h:1",
            "metadata": "true",
            "minPartitions": "2",
        }


class TestSink:
    @proves("SPY.2")
    @pytest.mark.parametrize(
        ("columns", "error", "message"),
        [
            ("carrier string, gate string", InvalidOption, r"topic 't' has no column 'gate' \(its columns are carrier"),
            ("delay int", InvalidOption, "column 'carrier' of topic 't' may not be null, but the DataFrame does not"),
            ("carrier int", InvalidRecord, "column 'carrier' is string, and the rows have int32: cast it yourself"),
        ],
    )
    def test_faults_that_need_no_row_are_refused_on_the_driver(
        self, columns: str, error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            check_columns(spark_schema(schema_from_ddl(columns)), "t", V1)

    @proves("SPS.1")
    def test_names_are_those_of_the_topic_in_any_case(self) -> None:
        found = spelled(spark_schema(schema_from_ddl("CARRIER string, Delay long, other int")), V1)
        assert found.names == ["carrier", "delay", "other"]
        (only,) = TypedPlan("t", V1, ("carrier",)).payloads(pa.record_batch({"CARRIER": ["a"]}))
        assert only.columns.schema.names == ["carrier"]
        twice = StructType([StructField("carrier", StringType()), StructField("Carrier", StringType())])
        with pytest.raises(InvalidOption, match="both match the column 'carrier', since Spark ignores case in names"):
            spelled(twice, V1)

    @proves("SPS.1")
    @pytest.mark.parametrize("kind", [DayTimeIntervalType(), NullType(), VariantType(), ArrayType(NullType())])
    def test_a_type_that_no_topic_has_is_refused_with_its_column(self, kind: DataType) -> None:
        given = StructType([StructField("carrier", StringType()), StructField("delay", kind)])
        with pytest.raises(
            InvalidSchema, match=r"column 'delay(\.element)?' is of type '.*', which no topic can have: cast it"
        ):
            schema_from_spark(given)

    def test_rows_go_as_they_are_with_the_version_to_write_by(self) -> None:
        check_columns(spark_schema(schema_from_ddl("delay long, carrier string")), "t", V1)
        batch = pa.record_batch({"carrier": ["a"]})
        (only,) = TypedPlan("t", V1, ("carrier",)).payloads(batch)
        assert only == ("t", None, batch, V1)


class TestDeletions:
    def test_the_source_gives_a_last_column_and_nullable_ones(self) -> None:
        found = rows(KEYED, deletes=True, metadata=True)
        schema = found.schema()
        assert schema.names == ["carrier", "delay", *METADATA.names, "_deleted"]
        assert [field.name for field in schema if not field.nullable] == ["carrier"]
        task = found.rows(["t"], {})
        assert (task.deletes, task.metadata) == (True, True)
        assert not rows(KEYED).rows(["t"], {}).deletes
        assert [field.name for field in rows(KEYED).schema() if not field.nullable] == ["carrier", "delay"]

    def test_the_column_alone_asks_for_no_metadata(self) -> None:
        found = rows(KEYED, columns=("delay",), deletes=True)
        assert found.schema().names == ["delay", "_deleted"]
        assert not found.rows(["t"], {}).metadata
        given = StructType().add("_deleted", "boolean").add("carrier", "string")
        projected = rows(KEYED, deletes=True).projected(given)
        assert (projected.columns, projected.metadata) == (("carrier",), ("_deleted",))

    def test_deletions_that_cannot_be_read_are_refused(self) -> None:
        other = schema_from_ddl("carrier string NOT NULL, delay int NOT NULL", ["delay"])
        with pytest.raises(InvalidOption, match="different key columns"):
            typed_topics({"a": topic(KEYED), "b": topic(other, number=2)}, RowOptions(deletes=True))
        assert typed_topics({"a": topic(KEYED), "b": topic(other, number=2)}, RowOptions())
        with pytest.raises(InvalidOption, match=r"deletes='true'.*has no schema|deletes.*has no schema"):
            typed_topics({"a": None}, RowOptions(deletes=True))
        with pytest.raises(InvalidOption, match="of its own"):
            rows(OWN, deletes=True)
        own = rows(OWN)
        assert own.projected(own.schema()).columns == ("id", "_deleted")

    def test_options_say_it(self) -> None:
        given = {"bootstrap.servers": "a:1", "subscribe": "t", "DELETES": "true"}
        assert parse_source_options(given).rows == RowOptions(deletes=True)
        assert _options("t", None, None, {"deletes": True}) == {"subscribe": "t", "deletes": "true"}

    def test_the_sink_takes_the_column_in_any_case(self) -> None:
        frame = StructType().add("CARRIER", "string").add("_Deleted", "boolean")
        schema = spelled(frame, KEYED)
        assert schema.names == ["carrier", "_deleted"]
        check_columns(schema, "t", KEYED)
        with pytest.raises(InvalidOption, match="column 'delay' of topic 't' may not be null"):
            check_columns(StructType().add("carrier", "string"), "t", KEYED)

    @pytest.mark.parametrize(
        ("frame", "schema", "message"),
        [
            (StructType().add("carrier", "string").add("_deleted", "string"), KEYED, "cast it to boolean"),
            (StructType().add("delay", "integer").add("_deleted", "boolean"), KEYED, "does not have it"),
            (StructType().add("n", "integer").add("_deleted", "boolean"), schema_from_ddl("n int"), "no key columns"),
        ],
    )
    def test_deletions_that_the_sink_refuses(self, frame: StructType, schema: TopicSchema, message: str) -> None:
        with pytest.raises(InvalidOption, match=message):
            check_columns(frame, "t", schema)

    def test_a_row_of_a_new_topic_has_no_such_column(self) -> None:
        frame = StructType().add("carrier", "string").add("_deleted", "boolean")
        assert without_mark(frame, None).names == ["carrier"]
        assert without_mark(StructType().add("_deleted", "boolean"), OWN).names == ["_deleted"]
