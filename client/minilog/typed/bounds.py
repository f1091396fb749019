"""Values of columns as messages: the bounds of statistics, and what a condition compares with. Pure.

A value is what `plain_value` makes of an Arrow scalar: a number, a bool, text, bytes, a decimal; days and microseconds
are numbers.
"""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa

from minilog.errors import CorruptMessage
from minilog.typed.fields import Decimal, Field, Primitive, arrow_type
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
            sign, digits, _ = value.as_tuple()
            unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
            bound.unscaled = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
        case str():
            bound.content = value.encode()
        case _:
            bound.content = value


def value_of(bound: typed_pb2.Bound, field: Field) -> Any:
    """What a message says of a column; None where it says nothing. Raises CorruptMessage where it cannot be that."""
    kind, said = field.type, bound.WhichOneof("value")
    if said is None:
        return None
    match kind, said:
        case Decimal(_, scale), "unscaled":
            return decimal.Decimal(f"{int.from_bytes(bound.unscaled[:_DECIMAL_BYTES], 'big', signed=True)}e-{scale}")
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
    value, kind = value_of(bound, field), arrow_type(field.type)
    if pa.types.is_floating(kind):
        kind = pa.float64()  # 0.3 is not a float's 0.3
    if value is None:
        raise CorruptMessage(f"a condition on column {field.name!r} has no value")
    try:
        if pa.types.is_timestamp(kind):
            return pa.scalar(value, pa.int64()).cast(kind)
        return pa.scalar(value, pa.int32()).cast(kind) if pa.types.is_date(kind) else pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise CorruptMessage(f"a bound of column {field.name!r} is no {field.type}: {error}") from error
