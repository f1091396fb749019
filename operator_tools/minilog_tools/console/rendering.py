"""The templates. Values from the cluster are text, never markup: escaped for HTML, and without control characters."""

from __future__ import annotations

import datetime
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from minilog_tools.console.shown_bytes import shown_text

_NONE = "–"


def templates() -> Environment:
    """The templates of this package. Each is compiled once."""
    environment = Environment(
        loader=PackageLoader("minilog_tools.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_text,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"number": number, "short": short, "age": age, "time": time_text, "size": size, "rate": rate}
    environment.globals["href"] = href
    return environment


def _text(value: Any) -> Any:
    """Every value passes here before it is escaped."""
    return value if isinstance(value, Markup) else shown_text(str(value))


def href(path: str, **fields: object) -> str:
    """The address of a page of this console. Fields that are None are left out."""
    query = {name: str(value) for name, value in fields.items() if value is not None}
    return f"{path}?{urlencode(query, errors='replace')}" if query else path


def number(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """A number in at most five characters: 1.2 M."""
    if value is None:
        return _NONE
    for least, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= least:
            scaled = value / (1e3 if unit == "k" else least)
            return f"{scaled:.3g} {unit}"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.1f}"


def rate(value: float | None) -> str:
    return _NONE if value is None else f"{short(value)}/s"


def size(value: int | None) -> str:
    if value is None:
        return _NONE
    for least, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= least:
            return f"{value / least:.1f} {unit}"
    return f"{value} B"


def age(seconds: float | None) -> str:
    if seconds is None:
        return _NONE
    if seconds < 1:
        return "0 s" if seconds < 0.001 else "< 1 s"
    for least, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * least:
            return f"{seconds / least:.0f} {unit}"
    return f"{seconds:.0f} s"


def time_text(milliseconds: int | None) -> str:
    """A time of UTC, or the number of milliseconds where Python has no such date."""
    if milliseconds is None:
        return _NONE
    try:
        at = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return f"{milliseconds} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}"
