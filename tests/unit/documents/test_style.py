"""Users read no word that docs/internals/words.md names: in pages, errors or help. Documents have limits of length."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import typer

from minilog_broker.server.metrics import names
from minilog_tools.cli.app import tree
from tests import documents
from tests.documents import ROOT
from tests.rules import proves

pytestmark = proves("DOC.11")

MOST_WORDS = {"ARCHITECTURE.md": 4_500}  # somebody reads it in one sitting
NOT_OURS = re.compile(
    r"\b(anew|so (?:long|much|many|often|large|far)(?! as)|who(?:m|ever)|tells?|told|says?|said|(?:some|no)body"
    r"|in the place of|believed?s?|put out of|hence|thereof|shall)\b",
    re.IGNORECASE,
)
ALLOWED = {"Users for whom access rules are not checked."}
SPEAKS = re.compile(r"(self\._?)?log(ger)?\.(debug|info|warning|error|exception)$|(say|print|warnings\.warn)$")
NO_PROSE = re.compile(r"`[^`]*`|^ {4}.*$", re.MULTILINE)


def pages() -> Iterator[tuple[str, str]]:
    for page in (*documents.READ_BY_USERS, "HACKING.md", "CONTRIBUTING.md"):
        for number, line in enumerate((ROOT / page).read_text().splitlines(), start=1):
            yield f"{page}:{number}", NO_PROSE.sub("", line)


def help_texts(command: Any = None, path: str = "minilog") -> Iterator[tuple[str, str]]:
    command = typer.main.get_command(tree()) if command is None else command
    yield path, " ".join([command.help or "", *(getattr(each, "help", None) or "" for each in command.params)])
    for name, verb in getattr(command, "commands", {}).items():
        yield from help_texts(verb, f"{path} {name}")


def said() -> Iterator[tuple[str, str]]:
    """The texts of all errors, log lines, warnings and printed lines of the product, and the meanings of errors."""
    for package in (
        "client/minilog",
        "broker/minilog_broker",
        "operator_tools/minilog_tools",
        "spark_connector/pyspark_minilog",
    ):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())) if "/v1/" not in str(file) else ():
                if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and SPEAKS.match(ast.unparse(node.func))):
                    parts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                    yield f"{file.name}:{node.lineno}", " ".join(part for part in parts if isinstance(part, str))
                elif isinstance(node, ast.ClassDef) and file.name == "errors.py":
                    yield f"{file.name}:{node.lineno}", ast.get_docstring(node) or ""


def test_pages_of_users_help_metrics_and_messages_have_no_word_that_we_do_not_use() -> None:
    texts = [*pages(), *help_texts(), *said(), *((metric.name, metric.help) for metric in names.ALL)]
    assert len(texts) > 2_000  # a walk that finds nothing checks nothing
    found = {
        place: match[0]
        for place, text in texts
        for match in NOT_OURS.finditer(text)
        if not any(a in text for a in ALLOWED)
    }
    assert not found, "docs/internals/words.md has a better word for each"


def test_the_page_of_words_names_each_word_that_the_test_looks_for() -> None:
    page = (ROOT / "docs/internals/words.md").read_text().partition("## Words that we do not use")[2]
    table = " ".join(re.findall(r"^\| ([^|]*) \|", page, re.MULTILINE))
    for word in ("anew", "so long", "whom", "tell", "told", "say", "nobody", "in the place of", "believe", "hence"):
        assert NOT_OURS.search(word), word
        assert word in table, word


def test_a_document_with_a_limit_stays_below_it() -> None:
    lengths = {name: len((ROOT / name).read_text().split()) for name in MOST_WORDS}
    assert not {name: length for name, length in lengths.items() if length > MOST_WORDS[name]}
