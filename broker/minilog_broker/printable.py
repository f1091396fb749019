"""Text for people: nothing that a terminal would obey, and nothing that would begin another line."""

from __future__ import annotations


def printable(text: object) -> str:
    """`text` for a terminal: what would steer it, or break the line, is shown as an escape (\\x1b). Names come from
    whoever may write, and are not to paint, hide or overwrite anything. All that people are shown goes through here."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(text))
