"""The examples below the help of each command. There are at least two: one of the plain use, one of further options."""

from __future__ import annotations


def examples(plain: str, other: str, *more: str) -> str:
    """Command lines as the end of a help page, one a line. `tests/unit/cli/test_examples.py` parses each of them."""
    return "\n\n".join(("Examples:", plain, other, *more))
