"""The kinds of values that Arrow's types have: which are cast to which. Pure."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

_IsKind = Callable[[pa.DataType], bool]


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _is_binary_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_number(kind: pa.DataType) -> bool:
    return _is_exact(kind) or _is_binary_number(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    wide = pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(pa.types.is_binary(kind) or wide)


def is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def is_local_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


# Values of one kind are cast to another type of the same kind, where none of them is lost.
_KINDS: tuple[_IsKind, ...] = (
    _is_exact,
    _is_binary_number,
    _is_text,
    _is_bytes,
    pa.types.is_date,
    is_instant,
    is_local_time,
)


def is_cast(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values without parts are cast at all; each of them is looked at when it is."""
    if pa.types.is_floating(kind):
        return _is_number(given)
    return any(is_kind(given) and is_kind(kind) for is_kind in _KINDS)
