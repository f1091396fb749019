"""What became of a schema: in words, and as the one version that several changes make."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilog.errors import InvalidSchema
from minilog.typed.schema.changes import changes_between
from minilog.typed.schema.ddl import schema_from_ddl
from minilog.typed.schema.evolution import (
    FIRST,
    add_column,
    as_next_version,
    check_evolution,
    drop_column,
    loosen_column,
    move_column,
    rename_column,
    widen_column,
)
from minilog.typed.schema.fields import Field, Primitive, Struct
from minilog.typed.schema.topic_schema import TopicSchema

FLIGHTS = schema_from_ddl("carrier string NOT NULL, delay int, place struct<x: int, y: int>", ["carrier"])
INT = Primitive("int")


def several(schema: TopicSchema) -> TopicSchema:
    schema = add_column(schema, Field("gone", INT))
    schema = add_column(schema, Field("gate", Primitive("string")), after=FIRST)
    schema = drop_column(schema, "gone")
    schema = add_column(schema, Field("z", INT), "place")
    return rename_column(schema, "carrier", "airline")


def test_several_changes_are_one_version_whose_ids_have_no_gap() -> None:
    new = as_next_version(FLIGHTS, several(FLIGHTS))
    check_evolution(FLIGHTS, new)
    assert (new.version, new.last_field_id) == (2, FLIGHTS.last_field_id + 2)
    assert {each.name: each.id for each in new.fields} == {"gate": 6, "airline": 1, "delay": 2, "place": 3}
    assert new.key_columns == ("airline",)


def test_a_change_that_changes_nothing_is_no_version() -> None:
    assert as_next_version(FLIGHTS, FLIGHTS) is FLIGHTS
    there_and_back = rename_column(rename_column(FLIGHTS, "delay", "late"), "late", "delay")
    assert as_next_version(FLIGHTS, there_and_back) is FLIGHTS


def test_versions_that_are_no_evolution_as_a_whole_are_refused() -> None:
    """Each version alone is in order; one of them drops what the key is made of."""
    with pytest.raises(InvalidSchema, match="the key is made of carrier, and stays so"):
        as_next_version(
            FLIGHTS, schema_from_ddl("carrier string NOT NULL, delay int, place struct<x: int, y: int>, n int")
        )


def test_each_change_has_its_words() -> None:
    new = move_column(loosen_column(several(FLIGHTS), "airline"), "delay", after=FIRST)
    new = as_next_version(FLIGHTS, widen_column(drop_column(new, "place.x"), "delay", Primitive("long")))
    assert changes_between(FLIGHTS, new) == [
        "dropped place.x",
        "added gate string",
        "added place.z int",
        "widened delay from int to long",
        "renamed carrier to airline",
        "airline may be null",
        "the order is delay, gate, airline, place",
    ]
    assert changes_between(new, new) == []


def test_an_order_within_a_struct_is_told_with_its_place() -> None:
    place = FLIGHTS.column("place")
    assert isinstance(place.type, Struct)
    turned = replace(place, type=Struct(place.type.fields[::-1]))
    new = replace(FLIGHTS, fields=(*FLIGHTS.fields[:2], turned), version=2)
    assert changes_between(FLIGHTS, new) == ["the order in place is y, x"]
