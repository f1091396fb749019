"""Rows as JSON, one document a row, for people and for what knows keys and values only. Not for the hot path.

Numbers stay numbers; a decimal is text with all of its digits, a date and a time are ISO 8601, bytes are base64, NaN
and the infinities are text. A map is an object, in which a key that is no text is its JSON. A null is null. Every value
that a row can have has a form here: a reader that fails at one row would never come to the rows behind it. `minilog
produce` takes all of these forms.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa

from minilog.typed.rows.iso_8601 import date_text, timestamp_text

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def rows_as_json(rows: pa.RecordBatch) -> list[bytes]:
    """One object a row, with its columns in order."""
    return [json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() for row in _plain_rows(rows)]


def _plain_rows(rows: pa.RecordBatch) -> list[Any]:
    try:
        return [_plain(row) for row in rows.to_pylist(maps_as_pydicts="strict")]
    # A date or time that Python has no object for; a map whose keys are structs, or of which two are equal.
    except (OverflowError, ValueError, TypeError, KeyError):
        return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*map(_far, rows.columns), strict=True)]


def _far(values: pa.Array) -> list[Any]:
    """Value by value, with dates and times in any year."""
    return [_far_value(value) for value in values]


def value_shown(value: pa.Scalar) -> str:
    """One value as Python shows it, or where Python has no object for it as its text: for errors."""
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):
        return repr(_far_value(value))


def _far_value(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_timestamp(kind):
        microseconds = value.value * 1_000_000 // _PER_SECOND[kind.unit]
        return timestamp_text(microseconds, has_zone=kind.tz is not None)
    if pa.types.is_date(kind):
        return date_text(value.cast(pa.date32()).value)
    if pa.types.is_struct(kind):
        return {name: _far_value(value[name]) for name in kind.names}
    if pa.types.is_map(kind):
        keys, items = value.values.flatten()
        return {_name(key): item for key, item in zip(_far(keys), _far(items), strict=True)}
    if pa.types.is_list(kind):
        return _far(value.values)
    return _plain(value.as_py())


def _name(key: Any) -> str:
    """The names of an object are text: a key of another type is its JSON in it."""
    return key if isinstance(key, str) else json.dumps(key, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {_name(_plain(key)): _plain(member) for key, member in value.items()}
        case list():
            return [_plain(member) for member in value]
        case bytes():
            return base64.b64encode(value).decode()
        case decimal.Decimal():
            return str(value)
        case datetime.date():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case _:
            return value
