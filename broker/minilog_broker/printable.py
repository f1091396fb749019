"""Text for people. It has nothing that a terminal would obey, no line breaks, and a bounded length."""

from __future__ import annotations

import sys

MAX_NAME_CHARACTERS = 255  # no valid name of a topic, a group, a transaction or a user is longer


def printable(text: object) -> str:
    """`text` for a terminal. A character that would steer the terminal or break the line becomes an escape (\\x1b).

    Any writer can choose names, and no name may paint, hide or overwrite other text. So all text for people passes
    here."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in str(text))


def shortened(name: str) -> str:
    """A name as errors show it: a name that is too long to be valid is cut. A request may send megabytes as a name."""
    return name if len(name) <= MAX_NAME_CHARACTERS else name[:MAX_NAME_CHARACTERS] + "..."


def say(line: object, *, error: bool = False) -> None:
    """Print one line for people, on stdout or on stderr. Nothing is flushed, for a thousand lines may follow."""
    print(printable(line), file=sys.stderr if error else sys.stdout)
