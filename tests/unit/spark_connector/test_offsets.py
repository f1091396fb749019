"""Offset JSON: deterministic, sorted, never empty, and Kafka's own form is understood."""

from __future__ import annotations

import json

import pytest

from pyspark_minilog.errors import InvalidOption
from pyspark_minilog.options.offsets import (
    EARLIEST,
    LATEST,
    Partition,
    SourceOffset,
    everywhere,
    parse_assignment,
    parse_offset_spec,
)
from tests.rules import proves

A0, A1, A10, B0 = Partition("a", 0), Partition("a", 1), Partition("a", 10), Partition("b", 0)


@proves("SPF.14")
def test_json_is_sorted_with_partitions_by_number() -> None:
    offset = SourceOffset({B0: 1, A10: 2, A1: 3, A0: 4}, {"b": "ib", "a": "ia"})
    assert json.dumps(offset.to_json()) == (
        '{"__topic_ids": {"a": "ia", "b": "ib"}, "a": {"0": 4, "1": 3, "10": 2}, "b": {"0": 1}}'
    )


@proves("SPO.21")
def test_json_never_is_empty() -> None:
    assert SourceOffset({}).to_json() == {"__topic_ids": {}}


def test_json_goes_there_and_back() -> None:
    offset = SourceOffset({A0: 4, B0: 7}, {"a": "ia", "b": "ib"}, begun_from={A0: 1})
    assert SourceOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@proves("SPX.2")
def test_partitions_that_were_let_go_go_there_and_back() -> None:
    offset = SourceOffset({Partition("a", 1): 5}, {"a": "i"}, let_go=frozenset({Partition("a", 1), Partition("a", 0)}))
    assert offset.to_json()["__let_go"] == {"a": [0, 1]}
    assert SourceOffset.from_json(offset.to_json()) == offset
    wrongs: list[object] = [[], {"a": 1}, {"a": ["x"]}]
    for wrong in wrongs:
        with pytest.raises(InvalidOption, match="a newer version of minilog wrote it"):
            SourceOffset.from_json({"__let_go": wrong, "a": {"0": 1}})


@proves("SPF.13")
def test_an_initial_offset_is_its_own_beginning() -> None:
    initial = SourceOffset({A0: 4}, {"a": "i"}, begun_from={A0: 4})
    assert SourceOffset.from_json(initial.to_json()).is_initial
    assert not SourceOffset({A0: 5}, {"a": "i"}, begun_from={A0: 4}).is_initial
    assert not SourceOffset({A0: 4}, {"a": "i"}).is_initial
    assert SourceOffset({}, {}, begun_from={}).is_initial


@proves("SPO.21")
def test_a_kafka_checkpoint_is_understood() -> None:
    assert SourceOffset.from_json({"a": {"0": 23, "1": 45}}) == SourceOffset({A0: 23, A1: 45}, {})


def test_a_foreign_checkpoint_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"another source wrote it\. Start the query with a new checkpointLocation"):
        SourceOffset.from_json({"logOffset": 5})


def test_a_checkpoint_of_a_newer_version_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"a newer version of minilog wrote it\. Upgrade pyspark-minilog where"):
        SourceOffset.from_json({"__epochs": {"a": {"0": 3}}, "__topic_ids": {"a": "ia"}, "a": {"0": 23}})


@pytest.mark.parametrize(("text", "place"), [("earliest", EARLIEST), (" Latest ", LATEST)])
def test_a_single_place_counts_for_all(text: str, place: int) -> None:
    spec = parse_offset_spec("startingOffsets", text)
    assert spec.place_of(A0) == spec.place_of(B0) == place


def test_places_per_partition_and_per_topic() -> None:
    spec = parse_offset_spec("startingOffsets", '{"a":{"0":23,"1":-2,"10":-1},"b":"latest"}')
    assert [spec.place_of(p) for p in (A0, A1, A10, B0)] == [23, EARLIEST, LATEST, LATEST]
    assert spec.mentions(LATEST)
    assert spec.mentions(EARLIEST)


@proves("SPO.21")
def test_a_checkpoint_may_be_given_as_start() -> None:
    written = json.dumps(SourceOffset({A0: 4}, {"a": "ia"}, begun_from={A0: 1}).to_json())
    spec = parse_offset_spec("startingOffsets", written)
    assert (spec.place_of(A0), spec.topic_ids) == (4, {"a": "ia"})


def test_specific_offsets_name_exactly_the_partitions_read() -> None:
    spec = parse_offset_spec("startingOffsets", '{"a":{"0":23,"1":5}}')
    spec.check_names([A0, A1])
    with pytest.raises(InvalidOption, match=r"it leaves out b-0\. Name exactly the partitions that the query reads"):
        spec.check_names([A0, A1, B0])
    with pytest.raises(InvalidOption, match="it names a-1, which this query does not read"):
        spec.check_names([A0])
    with pytest.raises(InvalidOption, match="it names b, which"):
        parse_offset_spec("startingOffsets", '{"a":"earliest","b":"earliest"}').check_names([A0])
    everywhere("startingOffsets", LATEST).check_names([A0])


def test_assignments_are_sorted_and_without_duplicates() -> None:
    assert parse_assignment("assign", '{"b":[1,0,1],"a":[2]}') == {"a": (2,), "b": (0, 1)}
