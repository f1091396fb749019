"""Values of numpy and pandas as Python's own, where nothing is lost. Pure, and neither of the two is needed.

pandas gives nothing else where rows are taken out of a frame: its numbers are numpy's, its times are Timestamps with
nanoseconds, its nulls are NaT and NA.
"""

from __future__ import annotations

import datetime
from typing import Any

_NULLS = frozenset({"NaTType", "NAType"})


def plain_value(value: Any) -> Any:
    """None for a null of theirs, and the same object where there is no such value of Python."""
    kind = type(value)
    if kind.__name__ in _NULLS and kind.__module__.startswith("pandas."):
        return None
    if isinstance(value, datetime.datetime):
        return _plain_time(value)
    if not hasattr(kind, "dtype") or not hasattr(kind, "item"):
        return value
    if value.ndim:
        return list(value) if value.ndim == 1 else value
    return _plain_day_or_time(value) if value.dtype.kind == "M" else value.item()


def _plain_time(value: datetime.datetime) -> datetime.datetime:
    """Of a subclass."""
    if getattr(value, "nanosecond", 0):
        return value
    return datetime.datetime.combine(value.date(), value.timetz())


def _plain_day_or_time(value: Any) -> Any:
    """Of numpy's datetime64."""
    if value != value:  # NaT
        return None
    if isinstance(value.item(), datetime.date):
        return value.item()
    microseconds = value.astype("datetime64[us]")
    scalar = microseconds.item()
    return scalar if microseconds == value and isinstance(scalar, datetime.datetime) else value
