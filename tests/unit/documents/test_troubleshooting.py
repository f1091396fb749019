"""docs/guides/troubleshooting.md has each sentence of the Spark connector, and no stale row."""

from __future__ import annotations

import ast
import pathlib
import re

from tests.rules import proves

pytestmark = proves("DOC.6")

ROOT = pathlib.Path(__file__).parents[3]
CONNECTOR = ROOT / "spark_connector/pyspark_minilog"
PAGE = (ROOT / "docs/guides/troubleshooting.md").read_text()
OF_OTHERS = "## Before the connector speaks"
NOT_SENTENCES = {
    ("cluster.py", "unreachable: the last attempt returns or raises"),
    ("leases.py", "unreachable: the last attempt returns or raises"),
    ("config_file.py", " is not possible: "),  # what another one is cut by
}
METRICS = "observed_metrics.py"  # what a metric means: it is shown by Prometheus
VARIES = "…"
_SENTENCE_WORDS = 4


def template(text: ast.expr) -> str | None:
    """The text of a literal, with `…` for its variable parts, None for any other expression."""
    match text:
        case ast.Constant(value=str(value)):
            return re.sub(r"%[sd]", VARIES, value)
        case ast.JoinedStr(values=values):
            return "".join(template(value) or VARIES for value in values)
    return None


def sentences() -> set[tuple[str, str]]:
    """(module, text) of each text of at least four words that is no docstring and no part of another text."""
    texts = set()
    for module in sorted(CONNECTOR.rglob("*.py")):
        tree = ast.parse(module.read_text())
        inner = {id(part) for text in ast.walk(tree) if isinstance(text, ast.JoinedStr) for part in text.values}
        inner |= {id(line.value) for line in ast.walk(tree) if isinstance(line, ast.Expr)}
        for node in ast.walk(tree):
            text = template(node) if isinstance(node, ast.expr) and id(node) not in inner else None
            if text and text.count(" ") >= _SENTENCE_WORDS - 1 and module.name != METRICS:
                texts.add((module.name, text))
    return texts - NOT_SENTENCES


def fixed_parts(text: str) -> list[str]:
    """The constant parts of a text."""
    return [part for part in (part.strip(" .,:;'()`") for part in text.split(VARIES)) if re.search(r"\w{2}", part)]


def shown_by(line: str, text: str) -> bool:
    """Whether the line has all constant parts of the text, in their order."""
    return re.search(".*?".join(map(re.escape, fixed_parts(text))), line) is not None


LINES = [line.replace("`", "") for line in PAGE.splitlines()]
ROWS = [line for line in PAGE.partition(OF_OTHERS)[2].partition("\n## ")[2].splitlines() if line.startswith("| `")]


def test_each_sentence_of_the_connector_has_a_row() -> None:
    texts = sentences()
    assert len(texts) > 150
    whole = re.sub(r"\s+", " ", " ".join(LINES))
    lines = [*LINES, whole[whole.index("observe writes lines") :]]
    missing = [
        (module, text) for module, text in texts if not any(shown_by(line, text.replace("`", "")) for line in lines)
    ]
    assert not missing, "docs/guides/troubleshooting.md needs a row for each of these: cause, and what to do"


def test_each_row_has_a_sentence_that_is_said() -> None:
    texts = {text.replace("`", "") for _, text in sentences()}
    assert len(ROWS) > 90
    assert not [row for row in ROWS if not any(shown_by(row.replace("`", ""), text) for text in texts)]
