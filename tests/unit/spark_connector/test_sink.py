"""What a DataFrame's columns mean, and how its batches are cast and parted."""

from __future__ import annotations

import datetime
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.writing.sink import Payload, SinkPlan, plan_sink, refuse_overwrite
from tests.rules import proves

HEADERS = "array<struct<key:string,value:binary>>"


def schema(**columns: str) -> StructType:
    names = {"int": "integer", "bigint": "long"}
    found = StructType()
    for name, kind in columns.items():
        if kind == HEADERS:
            entry = StructType().add("key", "string").add("value", "binary")
            from pyspark.sql.types import ArrayType

            found.add(name, ArrayType(entry))
        else:
            found.add(name, names.get(kind, kind))
    return found


def rows(payload: Payload) -> list[dict[str, object]]:
    found: list[dict[str, object]] = payload.columns.to_pylist()
    return found


class TestPlan:
    @proves("SPS.1")
    def test_all_columns(self) -> None:
        wanted = {
            "value": "string",
            "key": "binary",
            "topic": "string",
            "partition": "int",
            "headers": HEADERS,
            "timestamp": "timestamp",
        }
        plan = plan_sink(schema(**wanted, ignored="double"), None)
        assert plan == SinkPlan(None, tuple(wanted))
        spelled = plan_sink(schema(**{name.upper(): kind for name, kind in wanted.items()}, Ignored="double"), None)
        assert spelled.columns == tuple(wanted)
        assert pickle.loads(pickle.dumps(plan)) == plan

    @proves("SPS.1")
    def test_names_mean_the_same_in_any_case(self) -> None:
        plan = plan_sink(schema(Value="string", KEY="string", Topic="string"), None)
        batch = pa.record_batch({"Value": ["a", "b"], "KEY": ["k", None], "Topic": ["t", "u"]})
        assert plan.topics(batch) == {"t", "u"}
        assert [(each.topic, rows(each)) for each in plan.payloads(batch)] == [
            ("t", [{"key": b"k", "value": b"a"}]),
            ("u", [{"key": None, "value": b"b"}]),
        ]
        with pytest.raises(
            InvalidOption, match="columns 'value' and 'Value' of the DataFrame both match the column 'v"
        ):
            plan_sink(schema(value="string", Value="string"), "t")

    @proves("SPS.1")
    @pytest.mark.parametrize(
        ("columns", "topic", "message"),
        [
            ({"key": "string"}, "t", "column 'value' is missing among key: name the column to write 'value'"),
            ({"value": "bigint"}, "t", "column 'value' is of type 'bigint': cast it to binary or string"),
            ({"value": "string", "key": "int"}, "t", "column 'key' is of type 'int': cast it to binary or string"),
            ({"value": "string", "partition": "bigint"}, "t", "column 'partition' is of type 'bigint': cast it to int"),
            (
                {"value": "string", "timestamp": "bigint"},
                "t",
                "column 'timestamp' is of type 'bigint': cast it to timestamp",
            ),
            ({"value": "string", "headers": "string"}, "t", "column 'headers' is of type 'string': cast it to array<"),
            ({"value": "string", "topic": "int"}, None, "column 'topic' is of type 'int': cast it to string"),
            ({"value": "string"}, None, "no topic is named: set the option 'topic', or give a column 'topic'"),
        ],
    )
    def test_wrong_columns_are_refused_by_name(self, columns: dict[str, str], topic: str | None, message: str) -> None:
        with pytest.raises(InvalidOption) as refusal:
            plan_sink(schema(**columns), topic)
        assert message in str(refusal.value)

    def test_the_option_wins_over_a_column_of_any_type(self) -> None:
        assert plan_sink(schema(value="string", topic="int"), "t").topic == "t"

    @proves("SPS.5")
    def test_overwrite_is_refused_with_the_reason(self) -> None:
        assert 'writers can only append to a log: use .mode("append")' in str(refuse_overwrite())


class TestPayloads:
    def test_rows_of_one_topic_without_partition_are_one_payload_without_a_sort(self) -> None:
        batch = pa.record_batch({"value": ["x", None], "other": [1, 2]})
        (only,) = SinkPlan("t", ("value",)).payloads(batch)
        assert (only.topic, only.partition) == ("t", None)
        assert rows(only) == [{"value": b"x"}, {"value": None}]

    @proves("SPF.34")
    def test_columns_are_cast_to_the_stored_types(self) -> None:
        when = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
        header = pa.struct([pa.field("key", pa.large_string(), nullable=False), ("value", pa.large_binary())])
        batch = pa.record_batch(
            {
                "timestamp": pa.array([when], pa.timestamp("us", tz="Europe/Vienna")),
                "key": pa.array(["k"], pa.large_string()),
                "value": pa.array([b"v"], pa.large_binary()),
                "headers": pa.array([[{"key": "h", "value": b"1"}]], pa.large_list(header)),
            }
        )
        (only,) = SinkPlan("t", ("key", "value", "timestamp", "headers")).payloads(batch)
        assert only.columns.schema.names == ["key", "value", "timestamp", "headers"]
        assert only.columns.schema.field("value").type == pa.binary()
        assert only.columns.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
        assert rows(only) == [{"key": b"k", "value": b"v", "timestamp": when, "headers": [{"key": "h", "value": b"1"}]}]

    @proves("SPS.3")
    def test_rows_go_to_their_topics_and_partitions_in_their_order(self) -> None:
        batch = pa.record_batch(
            {
                "value": ["1", "2", "3", "4", "5"],
                "topic": ["b", "a", "b", "b", "a"],
                "partition": pa.array([1, None, 0, 1, 0], pa.int32()),
            }
        )
        found = list(SinkPlan(None, ("value", "topic", "partition")).payloads(batch))
        assert {(each.topic, each.partition): [row["value"] for row in rows(each)] for each in found} == {
            ("b", 0): [b"3"],
            ("b", 1): [b"1", b"4"],
            ("a", None): [b"2"],
            ("a", 0): [b"5"],
        }

    def test_the_option_topic_wins_over_the_column(self) -> None:
        batch = pa.record_batch({"value": ["1"], "topic": [None], "partition": pa.array([3], pa.int32())})
        (only,) = SinkPlan("t", ("value", "topic", "partition")).payloads(batch)
        assert (only.topic, only.partition) == ("t", 3)

    def test_a_null_topic_is_refused(self) -> None:
        batch = pa.record_batch({"value": ["1", "2"], "topic": ["a", None]})
        with pytest.raises(
            InvalidOption, match=r"column 'topic' is null in 1 rows .the first is row 1 of its batch.: fill it"
        ):
            list(SinkPlan(None, ("value", "topic")).payloads(batch))

    def test_a_negative_partition_is_refused(self) -> None:
        batch = pa.record_batch({"value": ["1"], "partition": pa.array([-1], pa.int32())})
        with pytest.raises(InvalidOption, match="column 'partition' is -1: give 0 or more, or null"):
            list(SinkPlan("t", ("value", "partition")).payloads(batch))

    def test_an_empty_batch_is_nothing(self) -> None:
        batch = pa.record_batch({"value": pa.array([], pa.string()), "topic": pa.array([], pa.string())})
        assert list(SinkPlan(None, ("value", "topic")).payloads(batch)) == []
