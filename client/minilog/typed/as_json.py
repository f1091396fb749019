"""Rows as JSON, one document a row, for people and for what knows keys and values only. Not for the hot path.

Numbers stay numbers; a decimal is text with all of its digits, a date and a time are ISO 8601, bytes are base64, NaN
and the infinities are text. A null is null.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa


def rows_as_json(rows: pa.RecordBatch) -> list[bytes]:
    """One object a row, with its columns in order."""
    return [json.dumps(_plain(row), ensure_ascii=False, separators=(",", ":")).encode() for row in rows.to_pylist()]


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() if value and isinstance(value[0], tuple):
            return {str(_plain(key)): _plain(each) for key, each in value}
        case list():
            return [_plain(each) for each in value]
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
