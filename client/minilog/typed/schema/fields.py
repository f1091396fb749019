"""The columns of a typed topic: a small algebra of types with a stable id for each field, nested ones too. Pure.

A schema is data, never code: a peer names one of these types and nothing else, so that it can bring no extension type,
no dictionary and no union of its own. The names are those of Spark's SQL, the layouts Arrow's:

    boolean bool      byte int8       short int16    int int32        long int64       float float32    double float64
    string utf8       binary binary   date date32    timestamp timestamp[us, UTC]      timestamp_ntz timestamp[us]
    decimal(p,s) decimal128           array list     struct struct    map map
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from minilog.errors import InvalidSchema

MAX_PRECISION = 38  # decimal128
_PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
PRIMITIVE_NAMES = frozenset(_PRIMITIVES)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts, by Spark's name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    """Digits in all, and behind the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in order; names are unique among them."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{quoted(field.name)}: {field.type}{field.suffix}' for field in self.fields)}>"


@dataclass(frozen=True, slots=True)
class Array:
    """A list; its element is a field of its own, with an id, named `element`."""

    element: Field

    def __str__(self) -> str:
        return f"array<{self.element.type}>"


@dataclass(frozen=True, slots=True)
class Map:
    """Keys are never null; `key` and `value` are fields with ids."""

    key: Field
    value: Field

    def __str__(self) -> str:
        return f"map<{self.key.type}, {self.value.type}>"


FieldType: TypeAlias = Primitive | Decimal | Struct | Array | Map


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a part of one. The id is what readers and evolution go by; 0: none was given yet. `comment` is for
    people; empty: none."""

    name: str
    type: FieldType
    nullable: bool = True
    id: int = 0
    comment: str = ""

    @property
    def suffix(self) -> str:
        """What DDL says behind the type."""
        return "" if self.nullable else " NOT NULL"

    def __str__(self) -> str:
        return f"{quoted(self.name)} {self.type}{self.suffix}"


def quoted(name: str) -> str:
    """A name as DDL writes it: in backticks where it is no plain word."""
    return name if _WORD.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def children(kind: FieldType) -> tuple[Field, ...]:
    """The fields that a type is made of."""
    match kind:
        case Struct(fields):
            return fields
        case Array(element):
            return (element,)
        case Map(key, value):
            return (key, value)
        case _:
            return ()


def with_children(kind: FieldType, fields: tuple[Field, ...]) -> FieldType:
    """The same kind of type, made of other fields."""
    match kind:
        case Struct():
            return Struct(fields)
        case Array():
            return Array(*fields)
        case Map():
            return Map(*fields)
        case _:
            return kind


def walk(fields: tuple[Field, ...], path: str = "") -> Iterator[tuple[str, Field]]:
    """Every field with its dotted path, outer ones first."""
    for field in fields:
        here = f"{path}.{field.name}" if path else field.name
        yield here, field
        yield from walk(children(field.type), here)


def mapped(fields: tuple[Field, ...], change: Callable[[Field], Field]) -> tuple[Field, ...]:
    """The same tree with each field changed, outer ones first; `change` keeps the type's kind."""
    return tuple(
        replace(new, type=with_children(new.type, mapped(children(new.type), change)))
        for new in (change(field) for field in fields)
    )


def arrow_type(kind: FieldType) -> pa.DataType:
    """The Arrow layout of a type, without ids: those are told beside it."""
    match kind:
        case Primitive(name):
            return _PRIMITIVES[name]
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Struct(fields):
            return pa.struct([arrow_field(field) for field in fields])
        case Array(element):
            return pa.list_(arrow_field(element))
        case Map(key, value):
            return pa.map_(arrow_field(key), arrow_field(value))


def arrow_field(field: Field) -> pa.Field:
    """The Arrow field of a column."""
    return pa.field(field.name, arrow_type(field.type), field.nullable)


def field_from_arrow(field: pa.Field, path: str = "") -> Field:
    """The column that can take what an Arrow field holds, without an id. Widths and units that a topic has not are
    widened: unsigned integers to the next signed one, dictionaries to their values, time stamps to microseconds.
    Raises InvalidSchema."""
    here = f"{path}.{field.name}" if path else field.name
    return Field(field.name, _from_arrow(field.type, here), field.nullable)


_WIDENED: dict[pa.DataType, str] = {
    **{arrow: name for name, arrow in _PRIMITIVES.items()},
    pa.uint8(): "short",
    pa.uint16(): "int",
    pa.uint32(): "long",
    pa.float16(): "float",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date64(): "date",
}


def _from_arrow(kind: pa.DataType, path: str) -> FieldType:
    if kind in _WIDENED:
        return Primitive(_WIDENED[kind])
    if pa.types.is_timestamp(kind):
        return Primitive("timestamp" if kind.tz else "timestamp_ntz")
    if pa.types.is_fixed_size_binary(kind):
        return Primitive("binary")
    if pa.types.is_decimal(kind) and kind.precision <= MAX_PRECISION:
        return Decimal(kind.precision, kind.scale)
    if pa.types.is_dictionary(kind):
        return _from_arrow(kind.value_type, path)
    if pa.types.is_map(kind):
        return Map(
            replace(field_from_arrow(kind.key_field, path), name="key", nullable=False),
            replace(field_from_arrow(kind.item_field, path), name="value"),
        )
    if pa.types.is_struct(kind):
        return Struct(tuple(field_from_arrow(arrow_child, path) for arrow_child in kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return Array(replace(field_from_arrow(kind.value_field, path), name="element"))
    raise InvalidSchema(f"column {path!r} is {kind} in Arrow, a type that no topic can have: cast it, or leave it out")
