"""Several columns in one text, as options and settings name them: `carrier,delay`. Pure.

Names have commas between them. One with a comma, a backquote, or a space at an end stands in backquotes, with each
backquote in it twice, as in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from minilog.errors import InvalidArgument

_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^,`]*[^,`\s]))\s*(?:,|$)")
_PLAIN = re.compile(r"[^,`\s](?:[^,`]*[^,`\s])?")
_SHOWN_CHARACTERS = 60


def parse_names(text: str) -> tuple[str, ...]:
    """At least one. Raises InvalidArgument with the place."""
    names, at = list[str](), 0
    while at < len(text) or not names or text[at - 1] == ",":
        match = _NAME.match(text, at)
        if match is None:
            raise InvalidArgument(
                f"names of columns are missing at {text[at : at + _SHOWN_CHARACTERS]!r} (character {at + 1}): give "
                "names with commas between them, such as carrier,delay, and one with a comma in it in `backquotes`"
            )
        quoted, plain = match.groups()
        names.append(plain if quoted is None else quoted.replace("``", "`"))
        at = match.end()
    return tuple(names)


def names_in_words(names: Iterable[str]) -> str:
    """What parse_names reads as these."""
    return ",".join(name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`" for name in names)
