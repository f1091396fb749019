"""Where a scan begins and ends, which columns it gives, and what it says of itself (client/minilog/scanning). Pure."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from minilog import scan, schema_from_ddl
from minilog.errors import InvalidArgument, InvalidConfig, InvalidSchema
from minilog.scanning.explain import explain
from minilog.scanning.newest_rows import KeyCounts
from minilog.scanning.places import check_order, places_of
from minilog.scanning.plan import checked_partitions
from minilog.scanning.planned import ScanPlan, ScanRequest, Travelled
from minilog.scanning.shape import shape_of
from minilog.types import TopicPartition

SCHEMA = schema_from_ddl("carrier string, delay int, at timestamp")
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SERVERS = {"bootstrap.servers": "127.0.0.1:1"}


# -- places


def test_a_place_is_for_all_partitions_and_a_dict_for_some() -> None:
    assert places_of("t", None, "latest", [0, 1]) == {P0: "latest", P1: "latest"}
    assert places_of("t", 5, "earliest", [0, 1]) == {P0: 5, P1: 5}
    assert places_of("t", {1: 7}, "earliest", [0, 1]) == {P0: "earliest", P1: 7}


def test_a_datetime_is_the_first_millisecond_that_is_not_before_it() -> None:
    at = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
    milliseconds = int(at.timestamp() * 1000)
    assert places_of("t", at, "earliest", [0]) == {P0: f"@{milliseconds}"}
    assert places_of("t", at + datetime.timedelta(microseconds=1), "earliest", [0]) == {P0: f"@{milliseconds + 1}"}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({2: 5}, "partition 2 of topic 't', which the scan does not read"),
        (datetime.datetime(2013, 1, 1), "has no zone"),
        (datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC), "before 1970"),
    ],
)
def test_a_place_that_cannot_be_is_refused(given: object, word: str) -> None:
    with pytest.raises(InvalidArgument, match=word):
        places_of("t", given, "earliest", [0, 1])  # type: ignore[arg-type]


def test_a_range_that_is_upside_down_is_refused() -> None:
    check_order({P0: 3}, {P0: 3})
    with pytest.raises(InvalidArgument, match="would end before it starts: the start is offset 4, the end is offset 3"):
        check_order({P0: 4}, {P0: 3})


@pytest.mark.parametrize("given", [0, "01", [0, 0], [True], ["0"]])
def test_partitions_are_a_list_of_numbers(given: object) -> None:
    with pytest.raises(InvalidArgument):
        checked_partitions(given)  # type: ignore[arg-type]


# -- shape


def test_a_topic_with_a_schema_gives_its_columns_and_its_metadata_behind_them() -> None:
    shape = shape_of("t", SCHEMA, None, None, metadata=True)
    assert shape.schema.names == ["carrier", "delay", "at", "_topic", "_partition", "_offset", "_timestamp", "_key"]
    assert not shape.selection.is_narrow  # stored batches go as they are


def test_columns_come_in_the_order_that_is_asked_for_in_the_spelling_of_the_topic() -> None:
    shape = shape_of("t", SCHEMA, ["_offset", "DELAY", "carrier"], None, metadata=False)
    assert shape.schema.names == ["_offset", "delay", "carrier"]
    assert shape.selection.columns == ("delay", "carrier")
    assert not shape.selection.timestamps
    assert not shape.selection.keys


def test_metadata_that_is_named_is_not_given_twice() -> None:
    shape = shape_of("t", SCHEMA, ["_key", "delay"], None, metadata=True)
    assert shape.schema.names == ["_key", "delay", "_topic", "_partition", "_offset", "_timestamp"]


def test_both_kinds_of_topics_have_the_same_metadata() -> None:
    names = ["_topic", "_partition", "_offset", "_timestamp", "_key", "_headers"]
    typed = shape_of("t", SCHEMA, names, None, metadata=True)
    plain = shape_of("t", None, names, None, metadata=True)
    assert typed.schema == plain.schema


def test_a_topic_without_a_schema_gives_keys_and_values() -> None:
    assert shape_of("t", None, None, None, metadata=False).schema.names == ["key", "value"]
    with pytest.raises(InvalidArgument, match="no column 'delay': it has key, value, _topic"):
        shape_of("t", None, ["delay"], None, metadata=False)
    with pytest.raises(InvalidArgument, match="no column 'delay': there are key, value, _topic"):
        shape_of("t", None, None, "delay > 1", metadata=False)


@pytest.mark.parametrize(
    ("columns", "where", "is_enough"),
    [
        ([], None, True),
        (["_offset", "_partition", "_topic"], "_offset > 5 and _topic = 't'", True),
        ([], "_key is null", False),
        (["_timestamp"], None, False),
        (None, None, False),
    ],
)
def test_headers_are_enough_for_what_they_tell_of_records_without_a_schema(
    columns: list[str] | None, where: str | None, is_enough: bool
) -> None:
    shape = shape_of("t", None, columns, where, metadata=False)
    assert shape.selection.offsets_only == is_enough
    assert not shape.selection.is_narrow


def test_a_where_on_metadata_of_a_topic_with_a_schema_is_refused_with_what_to_do() -> None:
    for where in ("_offset > 5", "`_Timestamp` > timestamp '2013-01-01T00:00:00Z' and delay > 1"):
        with pytest.raises(InvalidArgument, match="for places in the log give start, end and partitions"):
            shape_of("t", SCHEMA, None, where, metadata=False)
    with pytest.raises(InvalidArgument, match=r"there is no column 'nothing': there are carrier, delay, at$"):
        shape_of("t", SCHEMA, None, "nothing > 5", metadata=False)


def test_columns_that_are_not_there_or_are_named_twice_are_refused() -> None:
    with pytest.raises(InvalidSchema, match="nothing"):
        shape_of("t", SCHEMA, ["nothing"], None, metadata=False)
    with pytest.raises(InvalidArgument, match="named twice: delay"):
        shape_of("t", SCHEMA, ["delay", "Delay"], None, metadata=False)


# -- what a scan says before it reads


def test_a_scan_asks_nothing_before_it_is_used_and_refuses_what_cannot_be_meant() -> None:
    assert repr(scan("t", where="delay > 1", config=SERVERS)) == "<Scan of 't' where delay > 1>"
    with pytest.raises(InvalidArgument, match=r"give \['delay'\]"):
        scan("t", "delay", config=SERVERS)
    with pytest.raises(InvalidArgument, match="is no condition"):
        scan("t", where=True, config=SERVERS)  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig):
        scan("t", config={**SERVERS, "nothing": 1})


def plan(statistics: tuple[str, ...] | None = None) -> ScanPlan:
    return ScanPlan("an-id", SCHEMA, (TopicPartition("t", 0, 5, 9),), statistics)


def test_an_explanation_tells_what_travels_and_by_which_statistics_batches_are_left_out() -> None:
    wanted = ScanRequest("t", ("delay",), "delay > 1 and carrier = 'UA'")
    said = explain(wanted, plan(), wanted.shape(SCHEMA), Travelled(100, 3, 2, 20))
    assert said.travels == ("carrier", "delay")
    assert said.gives == ("delay",)
    assert said.compared == ("carrier", "delay")
    assert said.by_statistics == ("delay",)  # text has none unless the topic says so
    assert "2 of them were left out, with 20 offsets" in str(said)
    assert explain(wanted, plan(("carrier",)), wanted.shape(SCHEMA), None).by_statistics == ("carrier",)


def test_an_explanation_tells_that_nothing_can_be_left_out() -> None:
    wanted = ScanRequest("t", None, "carrier = 'UA'")
    assert "no batch is left out" in str(explain(wanted, plan(), wanted.shape(SCHEMA), None))


def test_an_explanation_tells_who_compares_records_without_a_schema() -> None:
    plain = ScanPlan("an-id", None, (TopicPartition("t", 0, 5, 9),), None)
    wanted = ScanRequest("t", ("value",), "_key = X'6b'")
    said = explain(wanted, plain, wanted.shape(None), None)
    assert said.compared == ("_key",)
    assert "this program compares the records when they have come" in str(said)
    wanted = ScanRequest("t", ())
    assert "no column, but the headers of batches" in str(explain(wanted, plain, wanted.shape(None), None))


def test_an_explanation_of_all_columns_names_them() -> None:
    wanted = ScanRequest("t")
    said = explain(wanted, plan(), wanted.shape(SCHEMA), None)
    assert said.travels == SCHEMA.names
    assert "4 offsets, of partitions 0: 5 to 9" in str(said)


def test_an_explanation_of_the_newest_rows_tells_what_travels_first() -> None:
    keyed = replace(SCHEMA, key_columns=("carrier",))
    wanted = ScanRequest("t", ("delay",), "delay > 1", is_latest=True)
    explained = explain(wanted, plan(), wanted.shape(keyed), Travelled(100, 3, 0, 0, KeyCounts(9, 2, 1)))
    assert explained.keys == SCHEMA.key_columns
    assert explained.travels == ("delay",)
    of_keys = explain(wanted, replace(plan(), schema=keyed), wanted.shape(keyed), None)
    assert "scan of the newest row of each key of topic 't'" in str(of_keys)
    assert "carrier: they travel first, of all offsets" in str(of_keys)
    assert "7 rows of 9 keys, 2 of them deleted; 1 rows have no key" in str(explained)


def test_a_view_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="there is no view 'newest': give 'latest'"):
        scan("t", view="newest", config=SERVERS)
