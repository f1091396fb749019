"""One value of JSON as Arrow takes it for a column's type: the counterpart of `typed/rows/as_json.py`.

It reads everything that `as_json` prints: maps, bytes at any depth, NaN and the infinities, dates and times of every
year. A number comes as int, or as Decimal with all of its digits. Dates and times become counts, because Python has no
object for far years.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import json
import math
import reprlib
from typing import Any

from minilog.typed.rows.iso_8601 import days_of, microseconds_of
from minilog.typed.schema.fields import Array, Decimal, Field, FieldType, Map, Primitive, Struct
from minilog_tools.cli.row_sources import BadRows, hint

_INTEGER_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
_NO_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TEXT_KEYS: frozenset[FieldType] = frozenset(
    Primitive(name) for name in ("string", "binary", "date", "timestamp", "timestamp_ntz")
)
_ENOUGH_DIGITS = decimal.Context(prec=80, traps=[decimal.Inexact, decimal.InvalidOperation])


class _Unfit(Exception):
    """A value does not fit its type."""


def loads(text: str) -> Any:
    """The value of a JSON text, with all digits of its numbers. Raises ValueError, also for a name that an object has
    twice, and RecursionError."""
    return json.loads(text, object_pairs_hook=_once, parse_float=decimal.Decimal)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return values


def value_of(value: Any, field: Field) -> Any:
    """The value for Arrow of a JSON value that `loads` gave. A null becomes None, even where the field allows no null.

    Raises BadRows, which names the column."""
    try:
        return _value(value, field.type, field.name)
    except _Unfit:
        raise _refused(value, field.type, field.name) from None


def _refused(value: Any, kind: FieldType, path: str) -> BadRows:
    return BadRows(f"column {path!r} is {kind}, and {_shown(value)} does not fit{hint(kind)}")


def _shown(value: Any) -> str:
    if isinstance(value, decimal.Decimal):
        short = repr(float(value))
        return short if decimal.Decimal(short) == value else str(value)
    return reprlib.repr(value)


def _value(value: Any, kind: FieldType, path: str) -> Any:
    if value is None:
        return None
    match kind:
        case Struct(fields) if isinstance(value, dict):
            return _struct(value, fields, path)
        case Array(element) if isinstance(value, list):
            return [_part(entry, element, path) for entry in value]
        case Map(key, item) if isinstance(value, dict):
            return [(_key(name, key, path), _part(entry, item, path)) for name, entry in value.items()]
        case Decimal(precision, scale):
            return _decimal(value, precision, scale)
        case Primitive(name):
            return _primitive(value, name)
    raise _Unfit


def _part(value: Any, field: Field, path: str) -> Any:
    here = f"{path}.{field.name}"
    try:
        return _value(value, field.type, here)
    except _Unfit:
        raise _refused(value, field.type, here) from None


def _struct(value: dict[str, Any], fields: tuple[Field, ...], path: str) -> dict[str, Any]:
    if unknown := sorted(value.keys() - {field.name for field in fields}):
        raise BadRows(f"column {path!r} has no field {unknown[0]!r}: leave it out, or add it to the schema")
    return {field.name: _part(value.get(field.name), field, path) for field in fields}


def _key(name: str, field: Field, path: str) -> Any:
    """A key of a map, from a name of a JSON object. Such names are text, so a key of another type is JSON in this
    text."""
    value: Any = name
    if not isinstance(field.type, Decimal) and field.type not in _TEXT_KEYS:
        try:
            value = loads(name)
        except (ValueError, RecursionError):
            value = name
    return _part(value, field, path)


def _primitive(value: Any, name: str) -> Any:
    if name in _INTEGER_BITS:
        most = 1 << (_INTEGER_BITS[name] - 1)
        whole = _whole(value)
        converted: Any = whole if type(whole) is int and -most <= whole < most else None
    elif name in ("float", "double"):
        converted = _float(value, math.inf if name == "double" else _LARGEST_FLOAT)
    elif name == "boolean":
        converted = value if isinstance(value, bool) else None
    elif isinstance(value, str):
        converted = _from_text(value, name)
    else:
        converted = None
    if converted is None:
        raise _Unfit
    return converted


def _whole(value: Any) -> Any:
    """2.0 and 1e2 as integers, as a double of a program is one."""
    if not isinstance(value, decimal.Decimal) or value.adjusted() >= _ENOUGH_DIGITS.prec:
        return value
    whole = int(value)
    return whole if whole == value else value


def _float(value: Any, largest: float) -> float | None:
    if isinstance(value, str):
        return _NO_NUMBERS.get(value)
    if isinstance(value, float):  # NaN or Infinity, without quotes
        return value
    if type(value) is not int and not isinstance(value, decimal.Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if math.isinf(number) or abs(number) > largest else number


def _from_text(value: str, name: str) -> Any:
    match name:
        case "binary":
            return _from_base64(value)
        case "date":
            return days_of(value)
        case "timestamp" | "timestamp_ntz":
            return microseconds_of(value, has_zone=name == "timestamp")
        case _:
            return value if _is_text(value) else None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _from_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _decimal(value: Any, precision: int, scale: int) -> decimal.Decimal:
    try:
        number = decimal.Decimal(value) if isinstance(value, str) or type(value) is int else value
        if not isinstance(number, decimal.Decimal) or not number.is_finite():
            raise _Unfit
        whole = number.quantize(decimal.Decimal(1).scaleb(-scale), context=_ENOUGH_DIGITS)
    except (decimal.DecimalException, ValueError):
        raise _Unfit from None
    if len(whole.as_tuple().digits) > precision and whole:
        raise _Unfit
    return whole
