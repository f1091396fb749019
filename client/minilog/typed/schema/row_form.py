"""A row that a program gives as a dict, checked before it is gathered: one wrong row is refused alone. Pure.

A value has the Python type that Arrow gives back for the column's type: int, float, str, bytes, bool, datetime.date,
datetime.datetime (with a zone, or without one for timestamp_ntz), decimal.Decimal, a list, a dict. A number is taken
where nothing of it is lost, and by a float or double where it is not above the largest one (rows.py has the rule for
tables). So is the like of it that numpy and pandas have (scalars.py). What is missing is null,
as are NaT and NA. A datetime without a zone is no instant: Spark would read it in the zone of a session, pandas in UTC
and Python in the zone of the machine.
"""

from __future__ import annotations

import datetime
import decimal
import math
import reprlib
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from minilog.errors import InvalidRecord
from minilog.typed.schema.fields import Array, Decimal, Field, Map, Primitive, Struct
from minilog.typed.schema.scalars import plain_value

DELETED_COLUMN = "_deleted"
"""Beside the columns of the topic, in rows to write and in rows that are read: whether the row deletes its key."""

_INTEGER_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FLOAT = struct.Struct("<f")
_KEY_LENGTH, _I64 = struct.Struct(">i"), struct.Struct(">q")
_NULL_LENGTH = b"\xff\xff\xff\xff"
_FIXED_BYTES, _DECIMAL_BYTES = 8, 16
_MICROSECOND = datetime.timedelta(microseconds=1)

_Check = Callable[[Any], Any]


class DeletedRow(tuple[Any, ...]):
    """The values of a row that deletes its key: null but for those of the key columns."""

    __slots__ = ()


class CheckedRow(NamedTuple):
    """`values` in the order of the columns; `key` as key_of has it; about how many bytes it takes; and its own time
    stamp, where the schema has a column of them. `values` are a DeletedRow where the row deletes its key."""

    values: tuple[Any, ...]
    key: bytes | None
    size_bytes: int
    timestamp_us: int | None


class RowForm:
    """Of one version of a schema."""

    def __init__(self, fields: tuple[Field, ...], key_columns: tuple[str, ...], timestamp_column: str | None) -> None:
        self._fields = fields
        self._columns = [(field.name, _nullable(field, field.name)) for field in fields]
        self._names = frozenset(field.name for field in fields)
        self._marks_deletions = DELETED_COLUMN not in map(str.lower, self._names)
        places = {field.name: place for place, field in enumerate(fields)}
        self._keys = [(places[name], fields[places[name]]) for name in key_columns]
        self._timestamp = None if timestamp_column is None else places[timestamp_column]

    def check(self, row: Mapping[str, Any]) -> CheckedRow:
        """Raises InvalidRecord, with the column and the value."""
        if not row.keys() <= self._names:
            unknown = sorted(map(str, row.keys() - self._names))
            if unknown != [DELETED_COLUMN] or not self._marks_deletions:
                raise InvalidRecord(
                    f"the topic has no column {unknown[0]!r}: it has {', '.join(self._names_in_order())}"
                )
            if _says_deleted(row[DELETED_COLUMN]):
                return self._check_deletion(row)
        values = tuple([check(row.get(name)) for name, check in self._columns])
        stamp = None if self._timestamp is None else values[self._timestamp]
        return CheckedRow(values, self._key(values), _size(values), None if stamp is None else _microseconds(stamp))

    def _check_deletion(self, row: Mapping[str, Any]) -> CheckedRow:
        """Of the values only those of the key columns count, and that of the timestamp column as the time stamp."""
        if not self._keys:
            raise InvalidRecord("a row deletes its key, but the topic has no key columns: create one with a key")
        values: list[Any] = [None] * len(self._fields)
        for place, field in self._keys:
            if field.name not in row:
                raise InvalidRecord(f"the deletion has no value for key column {field.name!r}: give all key columns")
            values[place] = self._columns[place][1](row[field.name])
        key = self._key(tuple(values))
        if key is None:
            raise InvalidRecord(f"the deletion has null in key column {self._keys[0][1].name!r}: that is no key")
        stamp = None
        if self._timestamp is not None:
            name = self._fields[self._timestamp].name
            stamp = None if row.get(name) is None else self._columns[self._timestamp][1](row[name])
        return CheckedRow(DeletedRow(values), key, _size(values), None if stamp is None else _microseconds(stamp))

    def _names_in_order(self) -> list[str]:
        return [field.name for field in self._fields]

    def _key(self, values: tuple[Any, ...]) -> bytes | None:
        parts = [_key_bytes(values[place], field) for place, field in self._keys]
        if len(parts) < 2:
            return parts[0] if parts else None
        return b"".join(_NULL_LENGTH if part is None else _KEY_LENGTH.pack(len(part)) + part for part in parts)


def _says_deleted(value: Any) -> bool:
    """The value of `_deleted` in a row. Raises InvalidRecord."""
    plain = plain_value(value)
    if plain is None or isinstance(plain, bool):
        return bool(plain)
    raise InvalidRecord(f"{DELETED_COLUMN!r} is true or false, and {reprlib.repr(value)} is neither")


def _key_bytes(value: Any, field: Field) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case bytes():
            return value
        case bool():
            return b"\1" if value else b"\0"
        case decimal.Decimal():
            scale = field.type.scale if isinstance(field.type, Decimal) else 0
            return int(value.scaleb(scale, _EXACT)).to_bytes(_DECIMAL_BYTES, "big", signed=True)
        case datetime.datetime():
            return _I64.pack(_microseconds(value))
        case datetime.date():
            return _I64.pack(value.toordinal() - _EPOCH.toordinal())
        case _:
            return _I64.pack(value)


_EXACT = decimal.Context(prec=80, traps=[decimal.InvalidOperation])


def _microseconds(value: datetime.datetime) -> int:
    return ((value if value.tzinfo else value.replace(tzinfo=datetime.UTC)) - _EPOCH) // _MICROSECOND


def _size(value: Any) -> int:
    """About what it takes in columns."""
    if isinstance(value, str | bytes):
        return _FIXED_BYTES + len(value)
    if isinstance(value, tuple | list):
        return sum(map(_size, value))
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return _FIXED_BYTES


def _nullable(field: Field, path: str) -> _Check:
    check = _check(field, path)
    if field.nullable:
        return lambda value: None if value is None else check(value)

    def required(value: Any) -> Any:
        problem = None if value is None else check(value)
        if problem is None:
            raise InvalidRecord(f"column {path!r} may not be null, and the row has no value for it")
        return problem

    return required


def _check(field: Field, path: str) -> _Check:
    match field.type:
        case Primitive(name) if name in _INTEGER_BITS:
            return _integer(field, path, 1 << (_INTEGER_BITS[name] - 1))
        case Primitive(name):
            return _of_kind(field, path, _TAKES[name])
        case Decimal(precision, scale):
            return _of_kind(field, path, lambda value: _decimal(value, precision, scale))
        case Struct(fields):
            return _struct(fields, field, path)
        case Array(element):
            inner = _nullable(element, f"{path}.element")
            return _of_kind(
                field,
                path,
                lambda value: [inner(member) for member in value] if isinstance(value, list | tuple) else None,
            )
        case Map(key, value):
            keys, items = _nullable(key, f"{path}.key"), _nullable(value, f"{path}.value")
            return _of_kind(
                field,
                path,
                lambda given: [(keys(k), items(v)) for k, v in given.items()] if isinstance(given, Mapping) else None,
            )


def _of_kind(field: Field, path: str, take: _Check) -> _Check:
    """`take` gives None for what it does not take. What is checked is None for a null of pandas."""

    def check(value: Any) -> Any:
        if (taken := take(value)) is not None:
            return taken
        plain = plain_value(value)
        if plain is None or (plain is not value and (taken := take(plain)) is not None):
            return taken
        raise _refused(field, path, value)

    return check


def _integer(field: Field, path: str, most: int) -> _Check:
    def take(value: Any) -> int | None:
        whole = int(value) if _is_whole(value) else value
        return whole if type(whole) is int and -most <= whole < most else None

    slowly = _of_kind(field, path, take)

    def check(value: Any) -> Any:
        return value if type(value) is int and -most <= value < most else slowly(value)

    return check


def _is_whole(value: Any) -> bool:
    """Whether it is a float or decimal without digits behind the point. A decimal of too many digits is none: it fits
    no integer."""
    if isinstance(value, decimal.Decimal):
        return value.is_finite() and value.adjusted() < _EXACT.prec and value == value.to_integral_value(context=_EXACT)
    return isinstance(value, float) and value.is_integer()


def _refused(field: Field, path: str, value: Any) -> InvalidRecord:
    return InvalidRecord(
        f"column {path!r} is {field.type}, and {reprlib.repr(value)} is none that fits{_advice(field, value)}"
    )


def _advice(field: Field, value: Any) -> str:
    """What to do, where that is not plain."""
    if isinstance(value, float) and math.isnan(value):
        return ": give None where there is no value"
    if field.type == Primitive("date") and isinstance(value, datetime.datetime):
        return ": give its date()"
    plain = plain_value(value)
    if not isinstance(plain, datetime.datetime):
        return ""
    if field.type == Primitive("timestamp") and plain.tzinfo is None:
        return ": it has no zone: give it one, such as value.replace(tzinfo=datetime.UTC)"
    if field.type == Primitive("timestamp_ntz") and plain.tzinfo is not None:
        return ": it has a zone, and the column has times without: give value.replace(tzinfo=None)"
    return ": it has nanoseconds, and the column has microseconds: round it" if getattr(value, "nanosecond", 0) else ""


def _struct(fields: tuple[Field, ...], field: Field, path: str) -> _Check:
    checks = [(child.name, _nullable(child, f"{path}.{child.name}")) for child in fields]
    names = {field.name for field in fields}

    def take(value: Any) -> Any:
        if not isinstance(value, Mapping) or not value.keys() <= names:
            return None
        return {name: check(value.get(name)) for name, check in checks}

    return _of_kind(field, path, take)


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return None  # half of a surrogate pair
        return value
    return None


def _double(value: Any) -> float | None:
    if isinstance(value, float):
        return value
    if type(value) is not int and not (isinstance(value, decimal.Decimal) and value.is_finite()):
        return None
    try:
        wide = float(value)
    except OverflowError:
        return None
    return None if math.isinf(wide) else wide


def _float(value: Any) -> float | None:
    wide = _double(value)
    if wide is None or math.isnan(wide) or math.isinf(wide):
        return wide
    try:
        narrow: float = _FLOAT.unpack(_FLOAT.pack(wide))[0]
        return narrow
    except OverflowError:
        return None


def _decimal(value: Any, precision: int, scale: int) -> decimal.Decimal | None:
    if type(value) is int:
        value = decimal.Decimal(value)
    if not isinstance(value, decimal.Decimal) or not value.is_finite():
        return None
    digits = value.normalize(_EXACT).as_tuple()
    exponent = int(digits.exponent)
    whole = len(digits.digits) + exponent if any(digits.digits) else 0
    return value if -exponent <= scale and whole <= precision - scale else None


_TAKES: dict[str, _Check] = {
    "boolean": lambda value: value if isinstance(value, bool) else None,
    "float": _float,
    "double": _double,
    "string": _text,
    "binary": lambda value: value if isinstance(value, bytes) else None,
    "date": lambda value: value if type(value) is datetime.date else None,
    # Not those of a subclass: that of pandas has nanoseconds, and NaT is one.
    "timestamp": lambda value: value if type(value) is datetime.datetime and value.tzinfo is not None else None,
    "timestamp_ntz": lambda value: value if type(value) is datetime.datetime and value.tzinfo is None else None,
}
