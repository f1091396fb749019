"""Conditions as messages: what comes back is what was sent, and no message is believed that cannot be one."""

from __future__ import annotations

import contextlib
import math
import random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from minilog.errors import CorruptMessage, InvalidArgument
from minilog.limits import MAX_CONDITION_BYTES
from minilog.typed.conditions.predicate import And, Equal, IsNull, Less, Not, Or, Predicate, StartsWith
from minilog.typed.conditions.predicate_wire import MAX_LEVELS, predicate_from_wire, predicate_to_wire
from minilog.typed.conditions.where import parse_where
from minilog.typed.schema.ddl import parse_ddl
from minilog.typed.schema.fields import Field
from minilog.typed.schema.topic_schema import TopicSchema, first_version
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.v1 import data_pb2, typed_pb2
from minilog_broker.replication.sessions.scanner import Scanner
from tests.unit.client.test_where import SCHEMA

FLOATS = first_version(parse_ddl("narrow float, wide double, fare decimal(38,10)"))
SCHEMAS = TopicSchemas((SCHEMA,))
TELLS = typed_pb2.Predicate


def fields_of(schema: TopicSchema) -> dict[int, Field]:
    return {each.id: each for each in schema.fields}


def brought_over(predicate: Predicate, schema: TopicSchema = SCHEMA) -> Predicate:
    content = predicate_to_wire(predicate).SerializeToString()
    return predicate_from_wire(TELLS.FromString(content), fields_of(schema).get)


def read(told: typed_pb2.Predicate) -> Predicate:
    return predicate_from_wire(told, fields_of(SCHEMA).get)


@pytest.mark.parametrize(
    "words",
    [
        "narrow = 0.3",
        "narrow > 0.3",
        "narrow <= 1e300",
        "narrow = 1e308",
        "wide <> -0.0",
        "fare = -9999999999999999999999999999.9999999999",
        "fare < 0.0000000001",
    ],
)
def test_numbers_come_back_to_the_last_digit(words: str) -> None:
    """A float is compared with the double that was written: 0.3 is not what a float has for it."""
    predicate = parse_where(words, FLOATS)
    assert brought_over(predicate, FLOATS) == predicate


def nested(part: Predicate, levels: int) -> Predicate:
    for level in range(levels):
        part = (Not(part), And((part,)), Or((part,)))[level % 3]
    return part


def test_as_deep_as_a_condition_may_be_it_is_read_in_a_request() -> None:
    deep: Predicate = Equal(SCHEMA.column("delay").id, pa.scalar(1, pa.int32()))
    for _ in range(MAX_LEVELS - 1):
        deep = And((deep,))
    assert brought_over(deep) == deep
    selection = typed_pb2.Selection(schema_version=1, where=predicate_to_wire(deep))
    request = data_pb2.FetchRequest(positions=[data_pb2.FetchPosition(selection=selection)])
    (position,) = data_pb2.FetchRequest.FromString(request.SerializeToString()).positions
    assert read(position.selection.where) == deep


def test_a_replica_can_be_told_each_where() -> None:
    for levels in range(0, 110, 3):
        for around in ("not {}", "not ({})", "({}) and flag", "({}) or flag"):
            words = "delay not between 1 and 2"
            for _ in range(levels):
                words = around.format(words)
            try:
                predicate = parse_where(words, SCHEMA)
            except InvalidArgument:
                continue
            assert brought_over(predicate) == predicate


@pytest.mark.parametrize("levels", [MAX_LEVELS, 200, 10_000])
def test_a_condition_that_is_too_deep_is_refused_on_both_sides(levels: int) -> None:
    with pytest.raises(InvalidArgument, match="levels"):
        predicate_to_wire(nested(IsNull(1), levels))
    told = top = TELLS()
    for _ in range(levels):
        told = told.negated
    told.is_null = 1
    with pytest.raises(CorruptMessage, match=r"levels|terms"):
        read(top)
    asked = typed_pb2.Selection(schema_version=1)
    told = asked.where
    for _ in range(levels):
        told = told.negated
    told.is_null = 1
    with pytest.raises(InvalidArgument, match=r"levels|terms"):
        Scanner(asked, SCHEMAS)


def test_a_condition_that_is_too_long_is_refused_on_both_sides() -> None:
    carrier = SCHEMA.column("carrier").id
    for long in (StartsWith(carrier, "x" * MAX_CONDITION_BYTES), Or((IsNull(carrier),) * 500_000)):
        with pytest.raises(InvalidArgument, match="the most is"):
            predicate_to_wire(long)
    told = TELLS(starts_with=typed_pb2.PrefixCondition(field_id=carrier, prefix="x" * (1 << 20)))
    with pytest.raises(CorruptMessage, match="the most is"):
        read(told)
    told = TELLS(any_of=typed_pb2.Predicates(parts=[TELLS(is_null=carrier)] * 300_000))
    with pytest.raises(CorruptMessage, match="the most is"):
        read(told)


def compared(name: str, **value: Any) -> typed_pb2.Predicate:
    bound = typed_pb2.Bound(**value)
    return TELLS(equal=typed_pb2.Comparison(field_id=SCHEMA.column(name).id, value=bound))


@pytest.mark.parametrize(
    "told",
    [
        TELLS(),
        TELLS(constant=7),  # type: ignore[arg-type]
        TELLS(negated=TELLS()),
        TELLS(all_of=typed_pb2.Predicates()),
        TELLS(any_of=typed_pb2.Predicates()),
        TELLS(any_of=typed_pb2.Predicates(parts=[TELLS()])),
        TELLS(is_null=99),
        TELLS(is_null=SCHEMA.column("tags").type.element.id),  # type: ignore[union-attr]
        TELLS(known=typed_pb2.KnownCondition(field_id=0)),
        TELLS(less=typed_pb2.Comparison(field_id=99, value=typed_pb2.Bound(integer=1))),
        TELLS(starts_with=typed_pb2.PrefixCondition(field_id=SCHEMA.column("delay").id, prefix="x")),
        compared("delay"),
        compared("delay", number=1.0),
        compared("delay", content=b"1"),
        compared("delay", integer=2**31),
        compared("tiny", integer=-129),
        compared("carrier", content=b"\xff"),
        compared("carrier", integer=1),
        compared("ratio", integer=1),
        compared("flag", number=1.0),
        compared("fare", integer=1),
        compared("fare", unscaled=b"\x7f" * 5_000),
        compared("fare", unscaled=b"\x7f" * 4),
        compared("day", integer=2**40),
        compared("day", number=math.nan),
        compared("tags", content=b"x"),
    ],
)
def test_a_message_that_is_no_condition_is_refused(told: typed_pb2.Predicate) -> None:
    with pytest.raises(CorruptMessage) as raised:
        read(told)
    assert 20 < len(str(raised.value)) < 500
    with pytest.raises(InvalidArgument):
        Scanner(typed_pb2.Selection(schema_version=1, where=told), SCHEMAS)


def test_the_ends_of_a_type_are_read() -> None:
    for name, value in (("at", -(2**63)), ("local", 2**63 - 1), ("day", -(2**31)), ("delay", 2**31 - 1)):
        assert isinstance(read(compared(name, integer=value)), Equal)
    assert isinstance(read(compared("fare", unscaled=b"")), Equal)


def test_half_of_a_sign_is_no_text() -> None:
    for words in ("carrier = '\ud800'", "carrier like '\udfff%'", "`\ud800` = 1"):
        with pytest.raises(InvalidArgument, match="half of a character"):
            parse_where(words, SCHEMA)


def test_random_messages_are_conditions_or_refused() -> None:
    """Bytes of real conditions, changed: a seed makes them the same every time."""
    chance = random.Random(20_261_124)
    where = parse_where("delay > 1 and carrier like 'A%' or fare in (1.5, 2) and not ratio < 0.5", SCHEMA)
    content = typed_pb2.Selection(
        schema_version=1, field_ids=[1, 2], where=predicate_to_wire(where)
    ).SerializeToString()
    read_as_one = 0
    for _ in range(4_000):
        changed = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        with contextlib.suppress(DecodeError, InvalidArgument):
            asked = typed_pb2.Selection.FromString(bytes(changed))
            asked.schema_version = 1
            Scanner(asked, SCHEMAS)
            read_as_one += 1
        with contextlib.suppress(DecodeError, InvalidArgument):
            asked = typed_pb2.Selection.FromString(chance.randbytes(chance.randrange(30)))
            asked.schema_version = 1
            Scanner(asked, SCHEMAS)
    assert read_as_one > 100


def test_less_or_equal_is_not_less() -> None:
    for or_equal in (False, True):
        predicate = Less(SCHEMA.column("delay").id, pa.scalar(3, pa.int32()), or_equal)
        assert brought_over(predicate) == predicate
