"""What is cited exists: documents, their sections, invariants, wrong rules, targets, and the tests of rules.

docs/spec/README.md § Citations has the forms. Each file that is committed is read; line breaks count as spaces.
"""

from __future__ import annotations

import functools
import pathlib
import re
import subprocess
from collections.abc import Iterator

from tests.rules import proves
from tests.rules.table import RULES, SIMULATION, WRONG

pytestmark = proves("DOC.4", "DOC.10")

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = ROOT / "docs" / "spec"
NOT_OURS = ("LICENSE", "constraints.txt", "tools/dashboard_page/package-lock.json")
SITE = ("mkdocs.yml", "tools/build_site.py", "tests/unit/documents/test_site.py")  # they name pages of the site
VENDORED = ("tests/console/axe/", "operator_tools/minilog_tools/console/static/uplot/")
PICTURES = (".png", ".svg")
GENERATED = re.compile(r"client/minilog/v1/.*_pb2(_grpc)?\.py$")  # descriptors as bytes; the stubs beside them are read

DOCUMENT = re.compile(r"[\w./-]*[\w-]\.md\b")
MODULE = re.compile(r"`([\w./]*\w+\.py)`")
SECTION = re.compile(r"§ (?=[\w])")
NUMBERED = re.compile(r"\d+(\.\d+)?(?![\w-])")
LINK = re.compile(r"\]\(([^)\s]+)\)")
INVARIANT = re.compile(r"(?<![\w.])V\d+\b")
WRONG_RULE = re.compile(r"(?i)\b(?:mutants?|wrong rules?) (\d+(?:(?:, | and | to )\d+)*)\b")
TARGET = re.compile(r"(?<![\w.])T\d+r?\b")
OUTSIDE = re.compile(r"\.\./" + r"shared\b")
FARTHEST = 150  # characters from a document's name to a section of it


@functools.cache
def files() -> dict[str, str]:
    """All that is committed and ours, by its path: the text, as one line."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    found = {}
    for name in names:
        if name in NOT_OURS or name.startswith(VENDORED) or name.endswith(PICTURES) or GENERATED.match(name):
            continue
        text = (ROOT / name).read_text(errors="replace")
        found[name] = re.sub(r"\s*\n\s*(?:(?:#|//|\*) )?", " ", text)
    return found


@functools.cache
def headings(document: pathlib.Path) -> tuple[str, ...]:
    return tuple(re.findall(r"^#+ (.+?)\s*$", document.read_text(), re.MULTILINE))


def resolved(cited: str, citing: str) -> pathlib.Path | None:
    """The document: by its path from the root, by its name alone where one has it, in Markdown relative to the file."""
    places = [ROOT / cited]
    if citing.endswith(".md"):
        places.append(ROOT / citing / ".." / cited)
    for place in places:
        if place.resolve().is_file():
            return place.resolve()
    alike = [name for name in files() if "/" not in cited and pathlib.Path(name).name == cited]
    return ROOT / alike[0] if len(alike) == 1 else None


def documents() -> Iterator[tuple[str, str]]:
    for name, text in files().items():
        for match in DOCUMENT.finditer(text) if name not in SITE else ():
            yield name, match[0]


def sections() -> Iterator[tuple[str, str | None, str]]:
    """(the file that cites, the document, what follows the sign)."""
    for name, text in files().items():
        for match in SECTION.finditer(text):
            before = list(DOCUMENT.finditer(text, max(0, match.start() - FARTHEST), match.start()))
            yield name, before[-1][0] if before else None, text[match.end() : match.end() + 100]


def has_section(document: pathlib.Path, follows: str) -> bool:
    if (number := NUMBERED.match(follows)) is not None:
        return any(re.match(rf"{re.escape(number[0])}[. ]", each) for each in headings(document))
    return any(follows.startswith(each) and not follows[len(each) :][:1].isalnum() for each in headings(document))


def numbers(pattern: re.Pattern[str], under: str = "") -> Iterator[tuple[str, str]]:
    for name, text in files().items():
        if name.startswith(under):
            for found in pattern.finditer(text):
                yield name, found[1] if pattern.groups else found[0]


def first_cells(document: pathlib.Path, pattern: str) -> set[str]:
    """What the first cells of its tables define."""
    cells = re.findall(r"^\| ([^|]*) \|", document.read_text(), re.MULTILINE)
    return {found for cell in cells for found in re.findall(pattern, cell)}


INVARIANTS = first_cells(SPEC / "invariants.md", r"^[VMKQ]\d+$")
WRONG_RULES = {number for name in WRONG if (number := name.split()[0]).isdecimal()}
TARGETS = first_cells(ROOT / "docs/spec/performance.md", r"^T\d+r?$")


def test_every_document_that_is_cited_is_in_the_repository() -> None:
    assert not [each for each in documents() if resolved(each[1], each[0]) is None]


def test_nothing_cites_what_lies_outside_of_the_repository() -> None:
    assert not [name for name, text in files().items() if OUTSIDE.search(text)]


def test_every_section_that_is_cited_exists() -> None:
    wrong = []
    for name, document, follows in sections():
        found = None if document is None else resolved(document, name)
        if found is None or not has_section(found, follows):
            wrong.append((name, document, follows[:40]))
    assert not wrong


def test_every_link_leads_somewhere() -> None:
    wrong = []
    for name, text in files().items():
        if not name.endswith(".md"):
            continue
        for link in LINK.findall(text):
            path, _, anchor = link.partition("#")
            target = (ROOT / name / ".." / path).resolve() if path else ROOT / name
            if "://" not in link and (
                not target.exists() or (anchor and anchor not in map(anchor_of, headings(target)))
            ):
                wrong.append((name, link))
    assert not wrong


def test_every_module_that_a_document_names_exists() -> None:
    """By its path, by the end of it (`leader/produce.py`), or by its name."""
    named = [(name, found) for name, text in files().items() if name.endswith(".md") for found in MODULE.findall(text)]
    assert len(named) > 200
    assert not [each for each in named if not any(f"/{name}".endswith(f"/{each[1]}") for name in files())]


def anchor_of(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.replace("`", "")).strip().lower().replace(" ", "-")


def test_the_invariants_are_numbered_without_a_gap_and_each_that_is_cited_exists() -> None:
    last_numbers = {"V": 22, "M": 5, "K": 6, "Q": 8}
    numbered = {f"{letter}{number}" for letter, last in last_numbers.items() for number in range(1, last + 1)}
    assert numbered == INVARIANTS
    assert not [each for each in numbers(INVARIANT) if each[1] not in INVARIANTS]


def test_every_wrong_rule_that_is_cited_exists() -> None:
    cited = [(name, number) for name, found in numbers(WRONG_RULE) for number in re.findall(r"\d+", found)]
    assert not [each for each in cited if each[1] not in WRONG_RULES]


def test_the_numbered_wrong_rules_are_all_in_the_simulator() -> None:
    assert not WRONG_RULES - {name.split()[0] for name in SIMULATION}


def test_each_invariant_is_a_rule() -> None:
    assert RULES.keys() >= INVARIANTS


def test_every_target_that_a_benchmark_names_exists() -> None:
    assert not [each for each in numbers(TARGET, under="benchmarks/") if each[1] not in TARGETS]


def test_there_are_as_many_citations_as_one_would_think() -> None:
    """A pattern that finds nothing checks nothing."""
    assert len(list(documents())) > 150
    assert len(list(sections())) > 60
    assert len(list(numbers(INVARIANT))) > 400
    assert len(list(numbers(WRONG_RULE))) > 10
