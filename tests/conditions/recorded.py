"""Conditions with Spark's answers: a line each, and a sign for each row."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass

FILE = pathlib.Path(__file__).with_name("recorded.tsv")
SIGNS = {True: "1", False: "0", None: "-"}
REFUSED = "refused"


@dataclass(frozen=True)
class Case:
    """A condition, and what it is for each row by Spark: a string of SIGNS. REFUSED: minilog takes no such condition.
    Nothing: Spark was not asked yet."""

    words: str
    answer: str = ""


def read_cases() -> list[Case]:
    """All of the file."""
    found = []
    for line in FILE.read_text().splitlines():
        answer, _, written = line.rpartition("\t")
        found.append(Case(json.loads(written) if written.startswith('"') else written, answer))
    return found


def write_cases(cases: Iterable[Case]) -> None:
    """Conditions with line breaks and the like are written as in JSON."""
    lines = []
    for case in cases:
        plain = case.words.isprintable() and not case.words.startswith('"')
        lines.append(f"{case.answer}\t{case.words if plain else json.dumps(case.words)}")
    FILE.write_text("\n".join(lines) + "\n")
