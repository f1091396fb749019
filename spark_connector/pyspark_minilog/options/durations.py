"""Lengths of time in options, in the form that Spark reads: `500ms`, `10s`, `15m`, `2h`, `7d`. Pure."""

from __future__ import annotations

import re

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_FORM = re.compile(r"([0-9]{1,18})\s*([a-z]+)")


def duration_ms(text: str) -> int | None:
    """The milliseconds, or None if the text is not a number with a unit."""
    match = _FORM.fullmatch(text.strip().lower())
    unit_ms = _UNITS_MS.get(match.group(2)) if match else None
    return None if match is None or unit_ms is None else int(match.group(1)) * unit_ms
