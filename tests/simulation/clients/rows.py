"""What rows of a typed topic hold, and conditions on them: an own reading of both, with nothing of the product's.

A row carries the value that the history judges by in its key, and the number of that value. What else it holds comes
of the number, the field and its type: so who reads a column of another field, or of another row, sees it.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from minilog import schema_from_ddl
from minilog.typed.schema.fields import Field, Primitive
from minilog.typed.schema.topic_schema import TopicSchema
from tests.simulation.machines.machine import EPOCH_S

WORD, NUMBER, SIZE, SHARE, NOTE, AT = range(1, 7)  # ids of the first columns
_BEFORE_WORD = "a row of many neighbours -- "  # a bound ends in the number behind it
_BEFORE_NOTE = "of many notes that begin alike "
_DDL = "word string NOT NULL, number int NOT NULL, size int, share float, note string, at timestamp"
PART, SHARD = 7, 8  # of a compacted topic: its key columns
_KEYED_DDL = f"{_DDL}, part string NOT NULL, shard int"
PARTS, SHARDS, DELETED_SHARE = 5, 3, 0.2
_FAR = 2**33  # no int
OPERATORS = ("<", "<=", "=", ">=", ">")
Columns: TypeAlias = Mapping[int, Any]  # by field id; of what is not there nothing is said: it is null


def first_schema(*, has_key: bool, has_timestamp: bool) -> TopicSchema:
    """The version that the topic is made with."""
    return schema_from_ddl(_DDL, ["word"] if has_key else [], "at" if has_timestamp else None)


def keyed_schema(*, has_shard: bool, has_timestamp: bool) -> TopicSchema:
    """The version that a compacted topic is made with."""
    key_columns = ["part", "shard"] if has_shard else ["part"]
    return schema_from_ddl(_KEYED_DDL, key_columns, "at" if has_timestamp else None)


def key_values(value: bytes) -> Columns:
    """The key columns of the row of a value in a compacted topic, one of a small set: null is a value of the second."""
    chance = random.Random(value)
    shard = chance.randrange(SHARDS)
    return {PART: f"part {chance.randrange(PARTS)}", SHARD: shard or None}


def deletes(value: bytes) -> bool:
    """Whether the row of a value in a compacted topic deletes its key."""
    return random.Random(b"deletes " + value).random() < DELETED_SHARE


def number_of(value: bytes) -> int:
    return int(value.partition(b":")[2])


def value_of(word: str) -> bytes:
    return word.removeprefix(_BEFORE_WORD).encode()


def column_value(field: Field, value: bytes, now_s: float) -> Any:
    """What the row of a value has in a column."""
    number = number_of(value)
    if field.id == WORD:
        return _BEFORE_WORD + value.decode()
    if field.id == NUMBER:
        return number
    if field.id == AT:
        return datetime.datetime.fromtimestamp(EPOCH_S, datetime.UTC) + datetime.timedelta(
            microseconds=int(now_s * 1e6)
        )
    if (number + field.id) % 4 == 0:
        return None
    match field.type:
        case Primitive("int"):
            return number % 100 * 100 + field.id
        case Primitive("long"):
            return number % 100 * 100 + field.id + (_FAR if number % 2 else 0)
        case Primitive("float"):
            return number % 64 + field.id / 1024
        case Primitive("double"):
            return number % 64 + field.id / 1024 + 1e-9
        case _:
            return f"{_BEFORE_NOTE}{number % 10} {field.id}"


# -- conditions


@dataclass(frozen=True, slots=True)
class Compared:
    """column OPERATOR value."""

    field_id: int
    operator: str
    value: Any


@dataclass(frozen=True, slots=True)
class Missing:
    """column is null."""

    field_id: int


@dataclass(frozen=True, slots=True)
class Without:
    """not part."""

    part: Condition


@dataclass(frozen=True, slots=True)
class Joined:
    """one `and` or `or` other."""

    word: str
    one: Condition
    other: Condition


Condition: TypeAlias = Compared | Missing | Without | Joined


def as_sql(condition: Condition, schema: TopicSchema) -> str:
    """With the names of a version."""
    match condition:
        case Compared(field_id, operator, value):
            return f"{schema.by_id[field_id].name} {operator} {value!r}"
        case Missing(field_id):
            return f"{schema.by_id[field_id].name} is null"
        case Without(part):
            return f"not ({as_sql(part, schema)})"
        case Joined(word, one, other):
            return f"({as_sql(one, schema)}) {word} ({as_sql(other, schema)})"


def ids_of(condition: Condition) -> set[int]:
    """Of the columns that it names."""
    match condition:
        case Compared(field_id) | Missing(field_id):
            return {field_id}
        case Without(part):
            return ids_of(part)
        case Joined(_, one, other):
            return ids_of(one) | ids_of(other)


def truth(condition: Condition, columns: Columns) -> bool | None:
    """Of one row; None: unknown."""
    match condition:
        case Missing(field_id):
            return columns.get(field_id) is None
        case Without(part):
            found = truth(part, columns)
            return None if found is None else not found
        case Compared(field_id, operator, value):
            return _compared(columns.get(field_id), operator, value)
        case Joined(word, one, other):
            both = truth(one, columns), truth(other, columns)
            decides = word == "or"
            return decides if decides in both else None if None in both else not decides


def _compared(found: Any, operator: str, value: Any) -> bool | None:
    if found is None:
        return None
    match operator:
        case "like":
            return bool(found.startswith(value.removesuffix("%")))
        case "=":
            return bool(found == value)
        case "<":
            return bool(found < value)
        case "<=":
            return bool(found <= value)
        case ">":
            return bool(found > value)
        case _:
            return bool(found >= value)


def _of_a_row(field: Field, number: int) -> Any:
    """What a row at that number, or else one of the two behind it, has in a column: not each has something."""
    values = (column_value(field, f":{number + more}".encode(), 0.0) for more in range(3))
    return next(value for value in values if value is not None)


def drawn_condition(schema: TopicSchema, chance: random.Random, written: int) -> Condition:
    """One that some rows satisfy: a part of all numbers, of one writer, with or without a value in some column. Half of
    the constants are what a row has that was written: there is the edge of all that compares."""
    number, text = chance.randrange(written + 50), chance.randrange(10)
    least = Compared(NUMBER, ">=", number)
    size, share = number % 100 * 100, number % 64 + 0.5
    if chance.random() < 0.5:
        number = chance.randrange(max(1, written))
        size, share = (_of_a_row(schema.by_id[each], number) for each in (SIZE, SHARE))
    kinds: list[Condition] = [
        Joined("and", least, Compared(NUMBER, "<", number + chance.choice((5, 50, 500)))),
        Compared(NUMBER, chance.choice(("<", "<=", "=")), number),
        Compared(WORD, chance.choice(("<", ">", "<=", ">=")), f"{_BEFORE_WORD}p{chance.randrange(1, 3)}:{number}"),
        Compared(WORD, "like", f"{_BEFORE_WORD}p{chance.randrange(1, 3)}:%"),
        Compared(NOTE, chance.choice(("<", ">", "=", "<=")), f"{_BEFORE_NOTE}{text} {NOTE}"),
        Compared(SIZE, chance.choice(OPERATORS), size),
        Compared(SHARE, chance.choice(OPERATORS), share),
        Without(Compared(SIZE, chance.choice(OPERATORS), size)),
        Joined("or", Missing(NOTE), Missing(SIZE)),
        Joined("and", Missing(SIZE), Without(Missing(NOTE))),
    ]
    own = [Missing(each.id) for each in schema.fields if each.id > AT]
    for each in own[-2:]:
        kinds += [each, Without(each), Joined("and", least, each)]
    return chance.choice(kinds)
