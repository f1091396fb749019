"""Text for people: nothing that a terminal would obey or that would begin another line, and no more than is read."""

from __future__ import annotations

import sys

MAX_NAME_CHARACTERS = 255  # no name that there can be is longer: of a topic, a group, a transaction, a user


def printable(text: object) -> str:
    """`text` for a terminal: what would steer it, or break the line, is shown as an escape (\\x1b). Names come from
    whoever may write, and are not to paint, hide or overwrite anything. All that people are shown goes through here."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(text))


def shortened(name: str) -> str:
    """A name as errors show it: of one that is longer than any can be, the beginning. What came may have megabytes."""
    return name if len(name) <= MAX_NAME_CHARACTERS else name[:MAX_NAME_CHARACTERS] + "..."


def say(line: object, *, error: bool = False) -> None:
    """One line for people, on stdout, or on stderr; without a flush: what follows may be a thousand lines."""
    print(printable(line), file=sys.stderr if error else sys.stdout)
