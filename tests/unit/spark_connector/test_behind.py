"""How far a query is behind, worked out from what Spark 4.3 told of real queries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_minilog.options.limits import SizeMarks
from pyspark_minilog.options.offsets import Partition, parse_offset_spec
from pyspark_minilog.watching.behind import (
    MOST_TOPICS,
    OTHER_TOPICS,
    BatchProgress,
    Left,
    QueryBehind,
    TopicBehind,
    batch_of,
)
from pyspark_minilog.watching.unread import Unread, left_over, unread_bytes
from tests.rules import proves

pytestmark = proves("SPF.18")

# What a query of two partitions with maxOffsetsPerTrigger=8 told, from a topic to a topic; the second batch.
PROGRESS = """
{"id":"2540514a-e832-4ae9-b64d-e3679234f6ce","runId":"4b9aa589-1a91-4867-a141-96d2bc8d6782","name":"q1",
"timestamp":"2026-11-24T21:14:45.458Z","batchId":1,"batchDuration":972,"numInputRows":8,"inputRowsPerSecond":0.5,
"processedRowsPerSecond":8.2,"durationMs":{"addBatch":627,"commitOffsets":114,"getBatch":0,"latestOffset":20,
"queryPlanning":26,"triggerExecution":971,"walCommit":156},"stateOperators":[],"sources":[{"description":
"org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow@6a2c3e0a",
"startOffset":{"__from":{"t":{"0":0,"1":0}},"__topic_ids":{"t":"78c7e25c-b9ba-26ea-bbc3-fb04dbc3fd9b"},
"t":{"0":8,"1":0}},"endOffset":{"__topic_ids":{"t":"78c7e25c-b9ba-26ea-bbc3-fb04dbc3fd9b"},"t":{"0":16,"1":0}},
"latestOffset":{"__unread":{"bytes":{"t":312},"since_ms":{"t":1795554868000}},
"__topic_ids":{"t":"78c7e25c-b9ba-26ea-bbc3-fb04dbc3fd9b"},"t":{"0":20,"1":0}},"numInputRows":8,
"inputRowsPerSecond":0.5,"processedRowsPerSecond":8.2}],"sink":{"description":
"org.apache.spark.sql.execution.datasources.v2.python.PythonTable@1060f672","numOutputRows":7}}
"""
# That of a query that copies one rate source into a topic: nothing of minilog is read.
OF_OTHERS = """
{"id":"0b1c","runId":"11","name":null,"timestamp":"2026-11-24T21:14:45.458Z","batchId":1,"batchDuration":972,
"numInputRows":8,"stateOperators":[],"sources":[{"description":"RateStreamV2[rowsPerSecond=1, rampUpTimeSeconds=0]",
"startOffset":0,"endOffset":5,"latestOffset":5,"numInputRows":5}],"sink":{"description":"x","numOutputRows":-1}}
"""


def told(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PROGRESS) | changes
    return found


def source(end: dict[str, Any], latest: dict[str, Any] | None, rows: int = 1, ids: object = None) -> dict[str, Any]:
    known = dict.fromkeys(end, "id") if ids is None else ids
    latest_offset = None if latest is None else {"__topic_ids": dict.fromkeys(latest, "id"), **latest}
    end_offset = {"__topic_ids": known, **end}
    return {"description": "p", "endOffset": end_offset, "latestOffset": latest_offset, "numInputRows": rows}


def left_of(*sources: dict[str, Any]) -> dict[str, Left] | None:
    batch = batch_of(json.dumps(told(sources=list(sources))))
    assert batch is not None
    return batch.left


def test_a_batch_that_lags_is_behind_by_what_is_between_its_end_and_the_latest_offset() -> None:
    assert batch_of(PROGRESS) == BatchProgress(1, 0.972, 8, 7, {"t": Left(4, 312, 1795554868000)})


def test_a_query_without_a_source_of_minilog_is_none_of_ours() -> None:
    assert batch_of(OF_OTHERS) is None


def test_only_sources_of_minilog_are_counted() -> None:
    other = json.loads(OF_OTHERS)["sources"][0]
    batch = batch_of(json.dumps(told(sources=[other, source({"a": {"0": 1}}, {"a": {"0": 1}}, rows=3)])))
    assert batch is not None
    assert (batch.read, batch.left) == (3, {"a": Left(0)})


def test_a_sink_that_spark_does_not_count_has_written_an_unknown_number() -> None:
    batch = batch_of(json.dumps(told(sink={"description": "ForeachBatchSink", "numOutputRows": -1})))
    assert batch is not None
    assert batch.written is None


def test_partitions_of_a_topic_are_added_and_topics_are_not() -> None:
    end = {"a": {"0": 1, "1": 5}, "b": {"0": 0}}
    assert left_of(source(end, {"a": {"0": 4, "1": 7}, "b": {"0": 1}})) == {"a": Left(5), "b": Left(1)}


def test_of_two_sources_that_read_one_topic_the_slower_one_counts() -> None:
    slow, quick = source({"a": {"0": 1}}, {"a": {"0": 9}}), source({"a": {"0": 8}}, {"a": {"0": 9}})
    assert left_of(quick, slow) == left_of(slow, quick) == {"a": Left(8)}


def test_another_topic_of_the_same_name_and_a_partition_that_is_gone_are_not_behind() -> None:
    assert left_of(source({"a": {"0": 1}}, {"a": {"0": 9}}, ids={"a": "former"})) == {"a": Left(0)}
    assert left_of(source({"a": {"0": 1, "1": 5}}, {"a": {"0": 1}})) == {"a": Left(0)}
    assert left_of(source({"a": {"0": 5}}, {"a": {"0": 3}})) == {"a": Left(0)}


def test_a_batch_that_was_not_planned_anew_says_nothing_of_what_is_left() -> None:
    """As the first one after a restart: Spark replays it without asking how far the source could go."""
    assert left_of(source({"a": {"0": 1}}, None)) is None


def test_reports_of_another_version_are_left_out() -> None:
    latest = {"__unread": {"bytes": {"a": "many"}, "since_ms": [1], "new": 1}, "a": {"0": 3}}
    assert left_of(source({"a": {"0": 1}}, latest)) == {"a": Left(2)}
    assert Unread.from_json("?") == Unread({}, {})


def test_topics_above_the_limit_are_taken_together() -> None:
    count = MOST_TOPICS + 3
    end = {f"t{number}": {"0": 0} for number in range(count)}
    latest: dict[str, Any] = {f"t{number}": {"0": number} for number in range(count)}
    latest["__unread"] = {"bytes": {"t1": 10, "t2": 20}, "since_ms": {"t2": 7}}
    found = left_of(source(end, latest))
    assert found is not None
    assert len(found) == MOST_TOPICS + 1
    assert found[OTHER_TOPICS] == Left(0 + 1 + 2, 30, 7)
    assert "t2" not in found
    assert sum(each.records for each in found.values()) == sum(range(count))


@pytest.mark.parametrize(
    "broken", ["", "[]", "{}", '{"sources":[{}],"sink":{}}x', PROGRESS.replace('"0":20', '"0":"x"')]
)
def test_a_report_that_cannot_be_understood_raises(broken: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        batch_of(broken)


def test_time_passes_for_what_is_unread() -> None:
    left = Left(4, 312, 1_000)
    assert left.behind("t", 3_500) == TopicBehind("t", 4, 312, 2.5)
    assert left.behind("t", 500).seconds == 0.0, "a clock that is behind the producer's"
    assert Left(0, None, None).behind("t", 3_500) == TopicBehind("t", 0, 0, 0.0)
    assert Left(4).behind("t", 3_500) == TopicBehind("t", 4, None, None)


def behind(*topics: TopicBehind, name: str | None = "q") -> QueryBehind:
    return QueryBehind("id", name, topics, 1, 1, 1, 1, 1.0, 1, True, None)


def test_a_query_is_behind_by_all_its_topics_and_as_old_as_the_oldest() -> None:
    found = behind(TopicBehind("a", 4, 10, 2.5), TopicBehind("b", 1, 5, 9.0))
    assert (found.records, found.bytes, found.seconds, found.label) == (5, 15, 9.0, "q")
    partly = behind(TopicBehind("a", 4, None, None), TopicBehind("b", 1, 5, 9.0), name=None)
    assert (partly.records, partly.bytes, partly.seconds, partly.label) == (5, None, 9.0, "id")


A0, A1, B0 = Partition("a", 0), Partition("a", 1), Partition("b", 0)


def test_bytes_of_what_is_left_are_those_that_the_brokers_measured() -> None:
    left = left_over({A0: 5, A1: 3, B0: 7}, {A0: 10, A1: 3, B0: 8})
    assert left == {A0: (5, 10), B0: (7, 8)}
    marks = {A0: SizeMarks(0, ((10, 1000),)), B0: SizeMarks(6, ((8, 40),))}
    assert unread_bytes(left, marks) == {"a": 500, "b": 20}
    assert unread_bytes(left, {A0: marks[A0]}) == {"a": 500}, "nothing is made up for what was not measured"


def test_a_latest_offset_can_be_given_as_a_start_with_all_that_it_says() -> None:
    spec = parse_offset_spec("startingOffsets", '{"__unread":{"bytes":{"t":1}},"__topic_ids":{"t":"x"},"t":{"0":20}}')
    assert spec.positions == {Partition("t", 0): 20}
