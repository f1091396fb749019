"""From a rule to all its proofs, and the documents that show them.

    python -m tools.rules HW.4        # the sentence, its place, its wrong rules, its tests; or part of a test's name
    python -m tools.rules --write     # writes the four documents anew (`make rules`)
    python -m tools.rules --check     # what `make check` holds, and how many proofs the rules have

The rules are in tests/rules. A proof is a test with the mark `proves`, a scenario that names the rule, or a wrong
rule that a search looks for.
"""

from __future__ import annotations

import ast
import collections
import functools
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.rules import Mutant, Rule, Section
from tests.rules.table import RULES, SECTIONS, WRONG
from tests.scenarios.text import read

ROOT = pathlib.Path(__file__).resolve().parents[1]
MANY = 3
"""More proofs than this are worth a look: perhaps one of them says nothing new."""

SCENARIOS = re.compile(r"tests/unit/\w+/scenarios/\w+\.txt")

WORLDS = {
    "simulation": "the simulator",
    "histories": "histories of replication",
    "quorum": "histories of the quorum",
    "small_model": "the small model",
}


@dataclass(frozen=True)
class Proof:
    """A test or a scenario, or a whole file of them, that has the mark of a rule."""

    rule_id: str
    module: str
    test: str = ""
    line: int = 1
    is_long: bool = False
    """`make test` does not run it."""

    @property
    def layer(self) -> str:
        """unit, simulation, integration, spark or console."""
        return self.module.split("/")[1]

    def __str__(self) -> str:
        name = self.module.removeprefix("tests/").removesuffix(".py").removesuffix(".txt").replace("/test_", "/")
        return f"{name}::{self.test.removeprefix('test_')}" if self.test else name


@functools.cache
def proofs() -> dict[str, list[Proof]]:
    """By rule."""
    listed = subprocess.run(["git", "ls-files", "tests"], cwd=ROOT, capture_output=True, check=True, text=True)
    found = collections.defaultdict(list)
    for name in listed.stdout.splitlines():
        if name.endswith(".py") and (ROOT / name).is_file() and "proves(" in (text := (ROOT / name).read_text()):
            for proof in _proofs_in(name, ast.parse(text)):
                found[proof.rule_id].append(proof)
        elif SCENARIOS.fullmatch(name) and (ROOT / name).is_file():
            for proof in _proofs_of_scenarios(name):
                found[proof.rule_id].append(proof)
    return dict(found)


def _proofs_of_scenarios(name: str) -> Iterator[Proof]:
    file = read(ROOT / name)
    yield from (Proof(rule, name, "", file.proves_line) for rule in file.proves)
    for scenario in file.scenarios:
        yield from (Proof(rule, name, scenario.title, scenario.line) for rule in scenario.proves)


def _proofs_in(module: str, tree: ast.Module) -> Iterator[Proof]:
    marks = [
        node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    module_is_long = any(_is_long(node) for node in marks)
    for node in marks:
        yield from (Proof(rule, module, "", node.lineno, module_is_long) for rule in _marked(node))
    for found in ast.walk(tree):
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            is_long = module_is_long or any(_is_long(each) for each in found.decorator_list)
            for decorator in found.decorator_list:
                yield from (Proof(rule, module, found.name, found.lineno, is_long) for rule in _marked(decorator))


def _is_long(mark: ast.AST) -> bool:
    return "pytest.mark.long" in ast.unparse(mark) and "pytest.param" not in ast.unparse(mark)


def _marked(mark: ast.AST) -> Iterator[str]:
    """The rules of the calls of `proves` in it."""
    for node in ast.walk(mark):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "proves":
            yield from (str(ast.literal_eval(each)) for each in node.args)


def worlds_of(mutant: Mutant) -> list[str]:
    """Where the wrong rule is looked for."""
    return [world for world in WORLDS if getattr(mutant, world) is not None]


def layers_of(rule: Rule) -> collections.Counter[str]:
    """The number of proofs in each layer."""
    return collections.Counter(
        [proof.layer for proof in proofs().get(rule.id, [])]
        + [f"wrong rules of {WORLDS[world]}" for mutant in rule.wrong for world in worlds_of(mutant)]
    )


def faults() -> Iterator[str]:
    """What `make check` refuses."""
    for rule in RULES.values():
        if not rule.wrong and not rule.seldom and all(proof.is_long for proof in proofs().get(rule.id, [])):
            yield f"{rule.id} has no proof in `make test` ({rule.sentence}): mark its test with @proves({rule.id!r})"
    for rule_id in proofs().keys() - RULES.keys():
        yield f"{rule_id} is no rule of tests/rules: see {proofs()[rule_id][0]}"
    for mutant in WRONG.values():
        if not worlds_of(mutant):
            yield f"the wrong rule {mutant.name!r} is looked for nowhere"
    ids = [rule.id for sections in SECTIONS.values() for section in sections for rule in section.rules]
    yield from (
        f"{rule_id} is the id of {count} rules" for rule_id, count in collections.Counter(ids).items() if count > 1
    )
    for path, text in documents().items():
        if not path.exists() or path.read_text() != text:
            yield f"{path.relative_to(ROOT)} is not what tests/rules says: run `make rules`"


# -- documents

_HEADS = {
    "docs/internals/rules.md": (
        ("invariants", "replication", "producing", "storage", "transactions", "product"),
        "Rules and their proofs",
        ("docs/spec/invariants.md", "docs/spec/replication.md", "docs/spec/transactions.md"),
    ),
    "docs/internals/rules-metadata.md": (
        ("metadata",),
        "Rules of metadata and their proofs",
        ("docs/spec/quorum.md", "docs/spec/replication.md#eligible-leaders-and-damage"),
    ),
    "docs/internals/spark-rules.md": (
        ("spark",),
        "Rules of the Spark connector and their proofs",
        ("docs/spec/connector.md",),
    ),
}
"""The areas of a page, its title, and the specifications that it is about."""


def documents() -> dict[pathlib.Path, str]:
    """The generated documents, by their paths."""
    pages = {ROOT / path: "\n".join(_page(*head)) + "\n" for path, head in _HEADS.items()}
    return pages | {ROOT / "docs/spec/wrong-rules.md": "\n".join(_wrong_rules()) + "\n"}


def _page(areas: tuple[str, ...], title: str, places: tuple[str, ...]) -> Iterator[str]:
    yield from (
        f"# {title}",
        "",
        "`make rules` writes this page from `tests/rules` and from the marks `proves` of the tests.",
        "A proof is a test, a scenario, a whole file of them, or a search that finds a wrong rule.",
        "`python -m tools.rules HW.4` prints one rule.",
        *_links(*places, "docs/spec/wrong-rules.md"),
    )
    for area in areas:
        for section in SECTIONS[area]:
            yield from (
                "",
                f"## {section.title}",
                *_links(*section.places),
                "",
                "| | rule | proofs | by |",
                "|---|---|---|---|",
            )
            yield from (_row(rule) for rule in section.rules)


def _links(*places: str) -> Iterator[str]:
    links = []
    for place in places:
        document, _, anchor = place.removeprefix("docs/").partition("#")
        words = anchor or pathlib.Path(document).stem
        links.append(f"[{words.replace('-', ' ')}](../{place.removeprefix('docs/')})")
    if links:
        yield f"See {', '.join(links)}."


def _row(rule: Rule) -> str:
    layers = ", ".join(f"{layer} {count}" for layer, count in layers_of(rule).items())
    tests = ", ".join(f"`{proof}`" for proof in proofs().get(rule.id, []))
    return f"| {rule.id} | {rule.sentence.replace('|', chr(92) + '|')} | {layers} | {tests} |"


def _wrong_rules() -> Iterator[str]:
    yield from (
        "# Wrong rules",
        "",
        "Each row is a known way to get a rule wrong. For each row there is a *mutant*: a switch in test code. It puts",
        "the wrong rule in the place of the true one. A search that does not find a mutant proves nothing. The name of",
        "a mutant begins with its number, with the invariant that it breaks (`V6 ...`), with the Kafka proposal of the",
        "rule (`KIP-107 ...`), or with `shell` for a rule of the shells around the cores.",
        "`make rules` writes this page from `tests/rules`. The seeds that find them in the simulator are in",
        "`tests/simulation/pins.tsv`.",
        "",
        "| breaks | wrong rule | found by |",
        "|---|---|---|",
    )
    for rule in RULES.values():
        for mutant in rule.wrong:
            yield f"| {rule.id} | {mutant.name} | {', '.join(WORLDS[world] for world in worlds_of(mutant))} |"


# -- the command


def _show(text: str) -> Iterator[str]:
    """A rule by its id, or the rules of a test by a part of its name."""
    for rule in RULES.values():
        tests = proofs().get(rule.id, [])
        if text == rule.id or any(text in str(proof) for proof in tests):
            section = next(each for each in _sections() if rule in each.rules)
            yield f"{rule.id}  {rule.sentence}"
            yield from (f"    in {place}" for place in section.places)
            yield from (f"    wrong: {mutant.name} ({', '.join(worlds_of(mutant))})" for mutant in rule.wrong)
            yield from (f"    {proof.module}:{proof.line} {proof.test}" for proof in tests)


def _sections() -> Iterator[Section]:
    for sections in SECTIONS.values():
        yield from sections


def _summary() -> Iterator[str]:
    counts = collections.Counter(min(sum(layers_of(rule).values()), MANY + 1) for rule in RULES.values())
    shown = ", ".join(f"{counts[n]} with {n if n <= MANY else f'more than {MANY}'}" for n in range(MANY + 2))
    yield f"{len(RULES)} rules, by the number of their proofs: {shown}. {len(WRONG)} wrong rules."
    many = {rule.id: sum(layers_of(rule).values()) for rule in RULES.values()}
    shown = ", ".join(f"{rule} {n}" for rule, n in sorted(many.items(), key=lambda each: -each[1]) if n > MANY)
    yield f"more than {MANY} proofs: {shown}"


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["--write"]:
        for path, text in documents().items():
            path.write_text(text)
        return 0
    if arguments == ["--check"]:
        wrong = list(faults())
        print("\n".join(wrong or _summary()))
        return 1 if wrong else 0
    if len(arguments) != 1 or not (lines := list(_show(arguments[0]))):
        print(__doc__ if len(arguments) != 1 else f"there is no rule and no proof {arguments[0]!r}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
