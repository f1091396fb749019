"""Schemas of typed topics: what they may be, in words and JSON, in Arrow, and how they may change."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilog.errors import InvalidSchema
from minilog.sync.admin import Admin
from minilog.typed import evolution
from minilog.typed.schema import evolution as changes
from minilog.typed.schema.ddl import parse_ddl, parse_type, schema_from_ddl
from minilog.typed.schema.evolution import (
    FIRST,
    add_column,
    check_evolution,
    drop_column,
    loosen_column,
    merged,
    move_column,
    rename_column,
    widen_column,
)
from minilog.typed.schema.fields import PRIMITIVE_NAMES, Array, Decimal, Field, FieldType, Map, Primitive, Struct, walk
from minilog.typed.schema.schema_json import schema_from_json, schema_to_json
from minilog.typed.schema.topic_schema import (
    MAX_DEPTH,
    MAX_FIELDS,
    TopicSchema,
    check_schema,
    first_version,
    schema_from_arrow,
)
from minilog.typed.schema.wire import schema_from_wire, schema_to_wire

FLIGHTS = (
    "carrier string NOT NULL, delay int, fare decimal(8,2), at timestamp, "
    "stops array<struct<airport: string, min: int>>"
)


def flights() -> TopicSchema:
    return first_version(parse_ddl(FLIGHTS), ["carrier"], "at")


def names() -> st.SearchStrategy[str]:
    return st.text("abcdefgh `é-", min_size=1, max_size=3)


def types() -> st.SearchStrategy[FieldType]:
    primitives = st.sampled_from(sorted(PRIMITIVE_NAMES)).map(Primitive)
    decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s)))
    return st.recursive(
        st.one_of(primitives, decimals),
        lambda inner: st.one_of(
            inner.map(lambda kind: Array(Field("element", kind))),
            st.tuples(inner, inner).map(lambda two: Map(Field("key", two[0], False), Field("value", two[1]))),
            columns(inner).map(Struct),
        ),
        max_leaves=6,
    )


def columns(kinds: st.SearchStrategy[FieldType]) -> st.SearchStrategy[tuple[Field, ...]]:
    fields = st.builds(Field, names(), kinds, st.booleans())
    return st.lists(fields, min_size=1, max_size=4, unique_by=lambda each: each.name).map(tuple)


@given(columns(types()))
def test_words_json_and_arrow_tell_the_same_columns(fields: tuple[Field, ...]) -> None:
    schema = first_version(fields)
    check_schema(schema)
    assert first_version(parse_ddl(str(schema))) == schema
    assert schema_from_json(schema_to_json(schema)) == schema
    assert schema_from_arrow(schema.arrow_schema) == schema


@given(st.text(max_size=60))
def test_words_are_understood_or_refused(text: str) -> None:
    try:
        fields = parse_ddl(text)
    except InvalidSchema:
        return
    assert fields


def test_ids_are_given_outer_fields_first_and_each_once() -> None:
    ids = {path: each.id for path, each in walk(flights().fields)}
    assert ids == {
        "carrier": 1,
        "delay": 2,
        "fare": 3,
        "at": 4,
        "stops": 5,
        "stops.element": 6,
        "stops.element.airport": 7,
        "stops.element.min": 8,
    }
    assert flights().last_field_id == 8


def test_the_json_of_a_frame_of_spark_is_a_schema() -> None:
    said = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": False, "metadata": {}},
            {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
            {
                "name": "tags",
                "type": {"type": "map", "keyType": "string", "valueType": "decimal(5,1)", "valueContainsNull": False},
                "nullable": True,
                "metadata": {},
            },
        ],
    }
    schema = schema_from_json(json.dumps(said))
    assert str(schema) == "id long NOT NULL, n int, tags map<string, decimal(5,1)>"
    assert not schema.column("tags").type.value.nullable  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "the name of a column is missing"),
        ("a", "a type is missing"),
        ("a int,", "the name of a column is missing"),
        ("a int b int", "a comma or the end is missing"),
        ("a decimal(39,2)", "precision of 1 to 38"),
        ("a decimal(4,5)", "scale of at most that"),
        ("a uint", "there is no type 'uint'"),
        ("a interval day", "there is no type 'interval'"),
        ("a array<int", "'>' is missing"),
        ("a int, A string", "two fields are called 'A'"),
        ("`` int", "a name or a type is missing"),
        ("_offset long", "a column that readers get beside the topic's columns"),
        ("a int not", "NULL behind NOT is missing"),
        ("a " + "array<" * 40 + "int" + ">" * 40, "nested deeper"),
        (", ".join(f"c{n} int" for n in range(MAX_FIELDS + 1)), "more than 1000 fields"),
        ("a int;", "is missing"),
        (f"`{'x' * 300}` int", "1 to 255 bytes"),
        ("`a\nb` int", "printable"),
        ("`a.b` int", "has a dot"),
    ],
)
def test_values_that_are_no_schema_are_refused_with_a_sentence(words: str, complaint: str) -> None:
    with pytest.raises(InvalidSchema, match=complaint.replace("(", r"\(")):
        first_version(parse_ddl(words))


def test_comments_of_columns_are_kept_in_words_json_and_messages() -> None:
    words = r"a int COMMENT 'it\'s\nA', s struct<x: int COMMENT 'inner'>, b string"
    schema = schema_from_ddl(words)
    said = [(path, field.comment) for path, field in walk(schema.fields)]
    assert said == [("a", "it's\nA"), ("s", ""), ("s.x", "inner"), ("b", "")]
    assert schema_from_json(schema_to_json(schema)) == schema
    assert schema_from_wire(schema_to_wire(schema)) == schema
    renamed = rename_column(add_column(schema, Field("c", Primitive("int"), comment="new")), "a", "z")
    assert (renamed.column("z").comment, renamed.column("c").comment) == ("it's\nA", "new")


@pytest.mark.parametrize(("comment", "complaint"), [("x" * 1025, "longer than 1024 bytes"), ("\x1b[2J", "printed")])
def test_a_comment_is_short_and_printable(comment: str, complaint: str) -> None:
    with pytest.raises(InvalidSchema, match=f"the comment of column 's.x' .*{complaint}"):
        first_version([Field("s", Struct((Field("x", Primitive("int"), comment=comment),)))])


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (
            {"name": "c", "type": "string", "metadata": {"__COLLATIONS": {"c": "spark.UTF8_LCASE"}}},
            "column 'c': coll.* UTF8_LCASE",
        ),
        ({"name": "c", "type": "string collate UNICODE_CI"}, "column 'c' .*collation UNICODE_CI is none that a topic"),
        (
            {
                "name": "s",
                "type": {
                    "type": "struct",
                    "fields": [
                        {
                            "name": "a",
                            "type": {"type": "array", "elementType": "string"},
                            "metadata": {"__COLLATIONS": {"a.element": "icu.UNICODE"}},
                        }
                    ],
                },
            },
            "column 's.a': collation UNICODE is none",
        ),
        (
            {"name": "v", "type": {"type": "udt", "class": "o.VectorUDT", "pyClass": "p.VectorUDT", "sqlType": {}}},
            "column 'v' is of type 'p.VectorUDT', which no topic can have: cast it",
        ),
        (
            {"name": "a", "type": {"type": "array", "elementType": {"type": "tensor", "fields": "x" * 500}}},
            "column 'a.element' is of type 'tensor', which no topic can have: cast it to one of Spark's own types, or",
        ),
        (
            {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "variant"}},
            "column 'm.value' is of type 'variant', which no topic can have",
        ),
    ],
)
def test_types_that_no_topic_keeps_are_refused_with_column_and_type(field: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidSchema, match=complaint) as refusal:
        schema_from_json(json.dumps([field]))
    assert "{" not in str(refusal.value)


def test_a_collation_in_words_is_refused_and_the_plain_one_of_spark_is_taken() -> None:
    with pytest.raises(InvalidSchema, match="collation UTF8_LCASE is none that a topic keeps"):
        parse_ddl("a int, c string COLLATE UTF8_LCASE NOT NULL")
    plain = {"name": "c", "type": "string", "metadata": {"__COLLATIONS": {"c": "spark.UTF8_BINARY"}}}
    assert str(schema_from_json(json.dumps([plain]))) == "c string"


@pytest.mark.parametrize("text", ["{", "1", '{"fields": [1]}', '{"fields": [{"name": "a"}]}', "[" * 100_000])
def test_texts_that_are_no_json_schema_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        schema_from_json(text)


@pytest.mark.parametrize(
    ("keys", "timestamp", "complaint"),
    [
        (["stops"], None, "a type without one form to hash"),
        (["nothing"], None, "there is no column 'nothing'"),
        (["delay", "delay"], None, "twice"),
        ([], "delay", "has to be a timestamp"),
        ([], "nothing", "there is no column"),
    ],
)
def test_key_and_time_stamp_are_columns_that_can_be_so(keys: list[str], timestamp: str | None, complaint: str) -> None:
    with pytest.raises(InvalidSchema, match=complaint):
        first_version(parse_ddl(FLIGHTS), keys, timestamp)


def test_an_arrow_schema_is_widened_to_what_a_topic_has() -> None:
    arrow = pa.schema(
        [
            ("u", pa.uint16()),
            ("t", pa.timestamp("ns")),
            ("s", pa.dictionary(pa.int8(), pa.large_string())),
            ("l", pa.large_list(pa.float16())),
            ("d", pa.date64()),
        ]
    )
    assert str(schema_from_arrow(arrow)) == "u int, t timestamp_ntz, s string, l array<float>, d date"
    with pytest.raises(InvalidSchema, match=r"column 'x\.y' is uint64"):
        schema_from_arrow(pa.schema([("x", pa.struct([("y", pa.uint64())]))]))


def test_an_added_column_gets_an_id_that_no_field_ever_had() -> None:
    without = drop_column(flights(), "delay")
    again = add_column(without, Field("delay", Primitive("int")), after="carrier")
    assert [each.name for each in again.fields] == ["carrier", "delay", "fare", "at", "stops"]
    assert again.column("delay").id == 9
    assert (again.version, again.last_field_id) == (3, 9)


def test_fields_of_structs_are_added_renamed_and_dropped() -> None:
    schema = add_column(flights(), Field("gate", Primitive("string")), "stops.element")
    schema = rename_column(schema, "stops.element.min", "minutes")
    schema = drop_column(schema, "stops.element.airport")
    assert str(schema.column("stops").type) == "array<struct<minutes: int, gate: string>>"
    assert {path: each.id for path, each in walk(schema.fields)}["stops.element.minutes"] == 8


def test_key_and_time_stamp_follow_their_columns() -> None:
    schema = rename_column(rename_column(flights(), "carrier", "airline"), "at", "scheduled")
    assert (schema.key_columns, schema.timestamp_column) == (("airline",), "scheduled")
    assert schema.column("airline").id == 1


def test_types_widen_and_nulls_are_let_in() -> None:
    schema = widen_column(widen_column(flights(), "delay", Primitive("long")), "fare", Decimal(12, 2))
    schema = loosen_column(move_column(schema, "fare", after=FIRST), "carrier")
    assert str(schema).startswith("fare decimal(12,2), carrier string, delay long, at timestamp")


REFUSED = {
    "a new column that may not be null": lambda s: add_column(s, Field("x", Primitive("int"), False)),
    "a name that is there": lambda s: add_column(s, Field("DELAY", Primitive("int"))),
    "a name that is taken": lambda s: rename_column(s, "delay", "fare"),
    "a narrower integer": lambda s: widen_column(s, "delay", Primitive("short")),
    "an integer as text": lambda s: widen_column(s, "delay", Primitive("string")),
    "an integer as a double": lambda s: widen_column(s, "delay", Primitive("double")),
    "fewer digits": lambda s: widen_column(s, "fare", Decimal(6, 2)),
    "another scale": lambda s: widen_column(s, "fare", Decimal(9, 3)),
    "a list as a map": lambda s: widen_column(s, "stops", parse_type("map<string,int>")),
    "without its key": lambda s: drop_column(s, "carrier"),
    "without its time stamp": lambda s: drop_column(s, "at"),
    "without the element of a list": lambda s: drop_column(s, "stops.element"),
    "part of what is no struct": lambda s: add_column(s, Field("x", Primitive("int")), "delay"),
    "a column that is not there": lambda s: drop_column(s, "nothing"),
    "behind a column that is not there": lambda s: move_column(s, "delay", after="nothing"),
    "another key": lambda s: check_evolution(s, replace(s, version=2, key_columns=("delay",))),
    "a version left out": lambda s: check_evolution(s, replace(s, version=3)),
    "ids that are given again": lambda s: check_evolution(s, replace(s, version=2, last_field_id=7)),
    "a field that moved out of its struct": lambda s: check_evolution(
        s, replace(s, version=2, fields=(*s.fields[:4], Field("min", Primitive("int"), True, 8)))
    ),
    "an id of a dropped field": lambda s: check_evolution(
        drop_column(s, "delay"),
        replace(s, version=3, fields=(*drop_column(s, "delay").fields, Field("x", Primitive("int"), True, 2))),
    ),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_no_other_change_is_allowed(change: object) -> None:
    with pytest.raises(InvalidSchema):
        change(flights())  # type: ignore[operator]


@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("double", "int"),
        ("double", "long"),
        ("float", "int"),
        ("int", "double"),
        ("map<int, int>", "map<long, int>"),
        ("decimal(8,2)", "int"),
        ("decimal(8,2)", "decimal(9,1)"),
        ("long", "int"),
        ("struct<x: double>", "struct<x: int>"),
    ],
)
def test_merging_keeps_the_type_of_what_is_cast_when_it_is_written(column: str, given: str) -> None:
    schema = first_version(parse_ddl(f"a {column}"))
    assert merged(schema, parse_ddl(f"a {given}")) is schema
    assert merged(schema, parse_ddl(f"a {given}, b int")).column("a") == schema.column("a")


def test_merging_keeps_the_types_that_keys_are_hashed_of() -> None:
    schema = first_version(parse_ddl("id int, n int"), ["id"])
    assert merged(schema, parse_ddl("id long")) is schema
    assert str(merged(schema, parse_ddl("id long, n long"))) == "id int, n long"


@pytest.mark.parametrize("name", ["_headers", "_Headers", "_key", "_OFFSET"])
def test_no_column_has_the_name_of_what_readers_get_beside_the_columns(name: str) -> None:
    with pytest.raises(InvalidSchema, match="beside the topic's columns: rename it"):
        first_version(parse_ddl(f"a int, {name} string"))
    with pytest.raises(InvalidSchema, match="beside the topic's columns: rename it"):
        add_column(flights(), Field(name, Primitive("string")))
    with pytest.raises(InvalidSchema, match="beside the topic's columns: rename it"):
        rename_column(flights(), "delay", name)
    first_version(parse_ddl(f"a struct<{name}: int>"))


def test_a_topic_that_has_a_column_named_headers_already_is_read_and_evolves() -> None:
    first = first_version(parse_ddl("a int, b string"))
    stored = replace(first, fields=(first.fields[0], replace(first.fields[1], name="_headers")))
    check_schema(stored)
    assert add_column(stored, Field("c", Primitive("int"))).names == ("a", "_headers", "c")
    assert rename_column(stored, "_headers", "b").names == ("a", "b")


def test_a_frame_with_more_columns_and_wider_types_merges() -> None:
    wanted = parse_ddl("delay bigint, carrier string, stops array<struct<gate string, airport string>>, tail string")
    schema = merged(flights(), wanted)
    assert str(schema) == (
        "carrier string NOT NULL, delay long, fare decimal(8,2), at timestamp, "
        "stops array<struct<airport: string, min: int, gate: string>>, tail string"
    )
    assert merged(schema, parse_ddl("delay smallint")) is schema
    with pytest.raises(InvalidSchema, match="cannot become string"):
        merged(schema, parse_ddl("delay string"))


def test_depth_is_bounded() -> None:
    kind: FieldType = Primitive("int")
    for _ in range(MAX_DEPTH):
        kind = Array(Field("element", kind))
    with pytest.raises(InvalidSchema, match="nested deeper"):
        first_version([Field("a", kind)])


def test_programs_import_every_change_of_a_schema_from_the_path_that_admin_names() -> None:
    assert "minilog.typed.evolution" in (Admin.evolve_schema.__doc__ or "")
    own = {name for name, each in vars(changes).items() if getattr(each, "__module__", "") == changes.__name__}
    assert {name for name in own if not name.startswith("_")} <= set(evolution.__all__)
    assert all(getattr(evolution, name) is getattr(changes, name) for name in evolution.__all__)
