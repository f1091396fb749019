"""Values of columns as messages: the bounds of statistics, and what a condition compares with. Pure.

A value is what `plain_value` makes of an Arrow scalar: a number, a bool, text, bytes, a decimal; days and microseconds
are numbers.
"""

from __future__ import annotations

import contextlib
import decimal
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from minilog.errors import CorruptMessage
from minilog.typed.conditions.predicate import array_of_plain
from minilog.typed.schema.fields import Decimal, Field, Primitive, arrow_type
from minilog.v1 import typed_pb2

_WHOLE_NUMBERS = {"byte", "short", "int", "long", "date", "timestamp", "timestamp_ntz"}
_DECIMAL_BYTES = 17  # 38 digits and a sign


def set_bound(bound: typed_pb2.Bound, value: Any) -> None:
    """`value` as a message."""
    match value:
        case bool() | int():
            bound.integer = int(value)
        case float():
            bound.number = value
        case decimal.Decimal():
            bound.unscaled = _unscaled(value)
        case str():
            bound.content = value.encode()
        case _:
            bound.content = value


def _unscaled(value: decimal.Decimal) -> bytes:
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)


def _scaled(unscaled: bytes, scale: int) -> decimal.Decimal:
    return decimal.Decimal(f"{int.from_bytes(unscaled[:_DECIMAL_BYTES], 'big', signed=True)}e-{scale}")


def value_of(bound: typed_pb2.Bound, field: Field) -> Any:
    """The bound as a Python value of the column's type, None if unset. Raises CorruptMessage if the type differs."""
    kind, value_field = field.type, bound.WhichOneof("value")
    if value_field is None:
        return None
    match kind, value_field:
        case Decimal(_, scale), "unscaled":
            return _scaled(bound.unscaled, scale)
        case Primitive("boolean"), "integer":
            return bool(bound.integer)
        case Primitive("float" | "double"), "number":
            return bound.number
        case Primitive("binary"), "content":
            return bound.content
        case Primitive("string"), "content":
            try:
                return bound.content.decode()
            except UnicodeDecodeError as error:
                raise CorruptMessage(f"a bound of column {field.name!r} is no text: {error}") from None
        case Primitive(name), "integer" if name in _WHOLE_NUMBERS:
            return bound.integer
        case _:
            raise CorruptMessage(f"a bound of column {field.name!r} is no {kind}")


def scalar_of(bound: typed_pb2.Bound, field: Field) -> pa.Scalar:
    """What a condition compares a column with, as where.py makes it: in the column's type, but a float with a double.
    Raises CorruptMessage where the message says nothing, or what cannot be."""
    value = value_of(bound, field)
    if value is None:
        raise CorruptMessage(f"a condition on column {field.name!r} has no value")
    with values_fit(field):
        return array_of_plain([value], compared_type(field))[0]


@contextlib.contextmanager
def values_fit(field: Field) -> Iterator[None]:
    """Raises CorruptMessage where what is made of a message in the block does not fit into the column."""
    try:
        yield
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise CorruptMessage(f"a bound of column {field.name!r} is no {field.type}: {error}") from error


def compared_type(field: Field) -> pa.DataType:
    """The type of what a condition compares a column with."""
    kind = arrow_type(field.type)
    return pa.float64() if pa.types.is_floating(kind) else kind  # 0.3 is not a float's 0.3


def add_values(message: typed_pb2.SetCondition, values: Sequence[Any]) -> None:
    """Plain values of one column as a message."""
    match values[0]:
        case bool() | int():
            message.integers.extend(map(int, values))
        case float():
            message.numbers.extend(values)
        case decimal.Decimal():
            message.unscaled.extend(map(_unscaled, values))
        case str():
            message.contents.extend(value.encode() for value in values)
        case _:
            message.contents.extend(values)


def values_of(message: typed_pb2.SetCondition, field: Field) -> list[Any]:
    """The values of a message's condition that a column is one of several. Raises CorruptMessage for values that the
    column cannot have."""
    kind = field.type
    named = [descriptor.name for descriptor, _ in message.ListFields() if descriptor.is_repeated]
    match kind, named:
        case Decimal(_, scale), ["unscaled"]:
            return [_scaled(unscaled, scale) for unscaled in message.unscaled]
        case Primitive("boolean"), ["integers"]:
            return list(map(bool, message.integers))
        case Primitive("float" | "double"), ["numbers"]:
            return list(message.numbers)
        case Primitive("binary"), ["contents"]:
            return list(message.contents)
        case Primitive("string"), ["contents"]:
            try:
                return list(map(bytes.decode, message.contents))
            except UnicodeDecodeError as error:
                raise CorruptMessage(f"a set of values of column {field.name!r} has no text in it: {error}") from None
        case Primitive(name), ["integers"] if name in _WHOLE_NUMBERS:
            return list(message.integers)
        case _:
            raise CorruptMessage(f"a set of values of column {field.name!r} has none, or none of {kind}")
