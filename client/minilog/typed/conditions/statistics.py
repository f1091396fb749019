"""What a batch says of its columns, so that readers can do without it: nulls and bounds, made by its producer. Pure.

Text and bytes are cut to BOUND_BYTES: the lowest value to a beginning of it, the highest to a beginning that is raised
by one in its last place, or to nothing where that cannot be. So bounds may be wider than the values, never narrower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pyarrow as pa

from minilog import compute as pc
from minilog.errors import CorruptMessage
from minilog.typed.conditions.bounds import set_bound, value_of
from minilog.typed.conditions.predicate import ColumnStatistics, plain_value
from minilog.typed.schema.fields import Decimal, Field, Primitive, children
from minilog.typed.schema.topic_schema import TopicSchema
from minilog.v1 import typed_pb2

BOUND_BYTES = 32
DEFAULT_COLUMNS = 16  # numbers and dates, besides the key and the time stamp
MAX_COLUMNS = 256  # of which one batch tells
_NUMBERS = {"byte", "short", "int", "long", "float", "double", "date", "timestamp", "timestamp_ntz"}
_TEXTS = {"string", "binary"}
_HIGHEST_SIGN = 0x10FFFF
_SHOWN_CHARACTERS = 300
_SURROGATES = range(0xD800, 0xE000)


def default_columns(schema: TopicSchema) -> tuple[str, ...]:
    """Those whose statistics are told where nobody names any: the key, the time stamp, the first numbers and dates."""
    stamps = () if schema.timestamp_column is None else (schema.timestamp_column,)
    numbers = [field.name for field in schema.fields if isinstance(field.type, Decimal) or _is_of(field, _NUMBERS)]
    return tuple(dict.fromkeys((*schema.key_columns, *stamps, *numbers[:DEFAULT_COLUMNS])))


def statistics_of(columns: Iterable[tuple[Field, pa.Array]]) -> list[typed_pb2.ColumnStatistics]:
    """What is told of these columns of one batch."""
    return [_statistics_of(field, values) for field, values in columns]


def read_statistics(
    messages: Sequence[typed_pb2.ColumnStatistics], schema: TopicSchema, row_count: int
) -> dict[int, ColumnStatistics]:
    """By field id. Raises CorruptMessage where they cannot be those of a batch of this schema."""
    if len(messages) > MAX_COLUMNS:
        raise CorruptMessage(f"a batch has statistics of {len(messages)} columns, the most is {MAX_COLUMNS}")
    by_field: dict[int, ColumnStatistics] = {}
    for message in messages:
        field = schema.by_id.get(message.field_id)
        if field is None or message.field_id in by_field or not 0 <= message.null_count <= row_count:
            raise CorruptMessage(f"a batch of {row_count} rows has impossible statistics of column {message.field_id}")
        lowest, highest = (value_of(bound, field) for bound in (message.lowest, message.highest))
        by_field[message.field_id] = ColumnStatistics(row_count, message.null_count, lowest, highest)
    return by_field


def check_statistics(message: typed_pb2.ColumnStatistics, field: Field, values: pa.Array) -> None:
    """Checks that the statistics are exactly those of `values`: they have one form. Raises CorruptMessage."""
    if (true := _statistics_of(field, values)).SerializeToString() != message.SerializeToString():
        raise CorruptMessage(
            f"a batch has the statistics {_shown(message)} of column {field.name!r}, but its rows have {_shown(true)}: "
            "its producer is wrong"
        )


def _shown(message: typed_pb2.ColumnStatistics) -> str:
    return str(message).replace("\n", " ").strip()[:_SHOWN_CHARACTERS] or "nothing"


def _is_of(field: Field, names: set[str]) -> bool:
    return isinstance(field.type, Primitive) and field.type.name in names


def _statistics_of(field: Field, values: pa.Array) -> typed_pb2.ColumnStatistics:
    message = typed_pb2.ColumnStatistics(field_id=field.id, null_count=values.null_count)
    if children(field.type) or values.null_count == len(values):
        return message
    bounds = pc.min_max(values)
    lowest, highest = plain_value(bounds["min"]), plain_value(bounds["max"])
    if pa.types.is_floating(values.type):
        lowest, highest = _with_nan(values, lowest, highest)
    if _is_of(field, _TEXTS):
        lowest, highest = _cut(lowest), _raised(highest)
    for bound, value in ((message.lowest, lowest), (message.highest, highest)):
        if value is not None:
            set_bound(bound, value)
    return message


def _with_nan(values: pa.Array, lowest: float, highest: float) -> tuple[float, float]:
    """NaN is above all: Arrow leaves it out. -0.0 and 0.0 are one number."""
    is_nan = pc.is_nan(values)
    if pc.all(is_nan).as_py():
        return math.nan, math.nan
    return lowest + 0.0, math.nan if pc.any(is_nan).as_py() else highest + 0.0


def _cut(value: str | bytes) -> str | bytes:
    if isinstance(value, bytes):
        return value[:BOUND_BYTES]
    return value.encode()[:BOUND_BYTES].decode(errors="ignore")


def _raised(value: str | bytes) -> str | bytes | None:
    """The value, or something short that is above all values that begin as it does."""
    short = _cut(value)
    if short == value:
        return value
    if isinstance(short, bytes):
        kept = short.rstrip(b"\xff")
        return kept[:-1] + bytes((kept[-1] + 1,)) if kept else None
    kept_text = short.rstrip(chr(_HIGHEST_SIGN))
    if not kept_text:
        return None
    following = ord(kept_text[-1]) + 1
    return kept_text[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)
