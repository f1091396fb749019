"""Rows as CSV. An empty field is null, `""` is an empty text, and bytes are base64. `table_rows.py` reads this form."""

from __future__ import annotations

import base64
import io
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv

from minilog import compute as pc
from minilog.typed.rows.iso_8601 import date_text, timestamp_text

# Arrow prints years above 9999 without a sign, and those above 32767 wrong.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_DAY_US = 86_400_000_000


def rows_as_csv(rows: pa.RecordBatch, *, header: bool) -> bytes:
    """The rows as CSV, where no column has parts. With `header` the names of the columns stand before the rows."""
    columns = [_printable(column) for column in rows.columns]
    sink = io.BytesIO()
    batch = pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
    pcsv.write_csv(batch, sink, pcsv.WriteOptions(include_header=header))
    return sink.getvalue()


def _printable(column: pa.Array) -> pa.Array:
    """The column, or its values as text where nobody could read back the text that Arrow prints."""
    kind = column.type
    if pa.types.is_binary(kind):
        return _texts(column, lambda value: base64.b64encode(value.as_py()).decode())
    if pa.types.is_date(kind) and _is_far(column.cast(pa.int32()), 1):
        return _texts(column, lambda value: date_text(value.value))
    if pa.types.is_timestamp(kind) and _is_far(column.cast(pa.int64()), _DAY_US):
        has_zone = kind.tz is not None
        return _texts(column, lambda value: timestamp_text(value.value, has_zone=has_zone))
    return column


def _is_far(counts: pa.Array, of_a_day: int) -> bool:
    ends = pc.min_max(counts)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return low is not None and (low < _FIRST_DAY * of_a_day or high >= (_LAST_DAY + 1) * of_a_day)


def _texts(column: pa.Array, text: Any) -> pa.Array:
    return pa.array([text(value) if value.is_valid else None for value in column], pa.string())
