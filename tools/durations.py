"""The durations of all tests, from the junit files of a run into a table that is kept.

    .ci/run && make durations

`make test` writes one junit file for each part to artifacts/junit, and `.ci/run` writes the seconds of its steps to
artifacts/steps.tsv. The tool makes of them `tests/durations.tsv` (each module, each test above a second, each step) and
the page of durations. A part that was not run keeps its rows. A unit test holds the limits by
this table, and not by the clock of the machine that it runs on.
"""

from __future__ import annotations

import ast
import collections
import csv
import functools
import pathlib
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests/durations.tsv"
PAGE = (ROOT / "docs/internals/durations").with_suffix(".md")
JUNIT = ROOT / "artifacts/junit"
STEPS = ROOT / "artifacts/steps.tsv"

WORKERS = {"unit": 2, "simulation": 2, "integration": 4, "spark": 3, "lowest": 1}
"""The parts of the suite, and in how many processes pytest runs each of them (Makefile)."""
PARTS_OF_TEST = ("unit", "simulation", "integration", "spark")
"""What `make test` runs."""
STEP = "step"
"""The part of what is no test: a step of `.ci/run`."""
KEPT_ABOVE_S = 1.0
SPARK_REASON = "it runs jobs of Spark"
"""Nearly each test of Spark takes more than 3 s, so none carries the mark."""
DEAREST = 50


@dataclass(frozen=True)
class Row:
    """A module of tests, one dear test (`module::test`), or a step of `.ci/run`."""

    part: str
    name: str
    tests: int
    seconds: float
    """Fixtures are included."""
    call_seconds: float
    """Of a test: without its fixtures. Of a module: the dearest one."""
    clusters: int
    jvms: int
    reason: str = ""
    """Why a test may take so long: its mark `dear`."""


def read_table(path: pathlib.Path = TABLE) -> list[Row]:
    """The rows that are kept."""
    with path.open(newline="") as file:
        return [
            Row(part, name, int(tests), float(seconds), float(call), int(clusters), int(jvms), reason)
            for part, name, tests, seconds, call, clusters, jvms, reason in list(csv.reader(file, delimiter="\t"))[1:]
        ]


def modules(rows: Iterable[Row], part: str) -> list[Row]:
    """The rows of a part that have all its tests, each once."""
    return [row for row in rows if row.part == part and "::" not in row.name]


def minutes(rows: Iterable[Row], part: str) -> float:
    """How long a part takes: the sum of its tests, over the processes that run them."""
    return sum(row.seconds for row in modules(rows, part)) / WORKERS.get(part, 1) / 60


def minutes_of_test(rows: list[Row]) -> float:
    """How long `make test` takes, without what pytest needs before and after the tests of a part."""
    return sum(minutes(rows, part) for part in PARTS_OF_TEST)


def main() -> int:
    former = read_table() if TABLE.exists() else []
    found = [*_measured(), *_steps()]
    parts = {row.part for row in found}
    rows = sorted((*found, *(row for row in former if row.part not in parts)), key=lambda row: (row.part, row.name))
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        writer.writerows(astuple(row) for row in rows)
    PAGE.write_text(page(rows))
    print(f"durations of {', '.join(sorted(parts)) or 'nothing: run .ci/run first'} are in {TABLE.relative_to(ROOT)}")
    return 0 if parts else 1


def _measured() -> Iterator[Row]:
    for part in WORKERS:
        path = JUNIT / f"{part}.xml"
        if path.exists():
            yield from _rows(part, ElementTree.parse(path).iter("testcase"))


def _rows(part: str, cases: Iterable[ElementTree.Element]) -> Iterator[Row]:
    """Each module, and each test above a second."""
    of_modules: dict[str, list[Row]] = collections.defaultdict(list)
    for case in cases:
        test = _test(part, case)
        of_modules[test.name.partition("::")[0]].append(test)
    for module, tests in of_modules.items():
        seconds, call = sum(test.seconds for test in tests), max(test.call_seconds for test in tests)
        clusters, jvms = sum(test.clusters for test in tests), sum(test.jvms for test in tests)
        yield Row(part, module, len(tests), round(seconds, 1), call, clusters, jvms)
        yield from (test for test in tests if test.seconds > KEPT_ABOVE_S)


def _test(part: str, case: ElementTree.Element) -> Row:
    facts = {each.get("name"): each.get("value", "") for each in case.iter("property")}
    module, group = _module(case.get("classname", ""))
    return Row(
        part,
        "::".join(filter(None, (module, group, case.get("name", "")))),
        1,
        round(float(case.get("time", 0)), 1),
        round(float(facts.get("call", 0)), 1),
        int(facts.get("cluster", 0)),
        int(facts.get("jvm", 0)),
        SPARK_REASON if part in ("spark", "lowest") else _reason(module, case.get("name", "").partition("[")[0]),
    )


@functools.cache
def _reasons(module: str) -> dict[str, str]:
    """The marks `dear` of a module, by the names of its tests."""
    path = ROOT / module
    found = {}
    for node in ast.walk(ast.parse(path.read_text())) if path.suffix == ".py" and path.exists() else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.dear":
                    found[node.name] = str(ast.literal_eval(mark.args[0]))
    return found


def _reason(module: str, test: str) -> str:
    return _reasons(module).get(test, "")


def _module(class_name: str) -> tuple[str, str]:
    """The file of a junit's `classname`, and the class of tests in it."""
    words = class_name.split(".")
    if words[-1] == "txt":  # scenarios
        return "/".join(words[:-1]) + ".txt", ""
    for end in range(len(words), 0, -1):
        path = "/".join(words[:end]) + ".py"
        if (ROOT / path).exists():
            return path, "::".join(words[end:])
    return class_name.replace(".", "/") + ".py", ""


def _steps() -> Iterator[Row]:
    if STEPS.exists():
        for line in STEPS.read_text().splitlines():
            name, seconds = line.split("\t")
            yield Row(STEP, name, 0, float(seconds), 0.0, 0, 0)


def page(rows: list[Row]) -> str:
    """The document of the table."""
    return "\n".join(_lines(rows)) + "\n"


def _lines(rows: list[Row]) -> Iterator[str]:
    yield from (
        "# How long the tests take",
        "",
        "`make durations` writes this page after `.ci/run`, from `tests/durations.tsv`.",
        "Seconds include the fixtures. Minutes are the sum over the processes in which pytest runs the part.",
        "",
        "| part | tests | sum in s | processes | clusters | JVMs | minutes |",
        "|---|---|---|---|---|---|---|",
    )
    for part in WORKERS:
        of_part = modules(rows, part)
        tests, clusters, jvms = (sum(getattr(row, n) for row in of_part) for n in ("tests", "clusters", "jvms"))
        seconds = sum(row.seconds for row in of_part)
        took = f"{minutes(rows, part):.1f}"
        yield f"| {part} | {tests} | {seconds:.0f} | {WORKERS[part]} | {clusters} | {jvms} | {took} |"
    yield f"| **`make test`** | | | | | | {minutes_of_test(rows):.1f} |"
    yield from ("", "The steps of `.ci/run`:", "", "| step | s |", "|---|---|")
    steps = modules(rows, STEP)
    yield from (f"| {row.name} | {row.seconds:.0f} |" for row in steps)
    yield f"| **together** | {sum(row.seconds for row in steps):.0f} |"
    yield from ("", f"The {DEAREST} dearest tests:", "", "| test | s | without fixtures | why |", "|---|---|---|---|")
    tests_alone = [row for row in rows if "::" in row.name]
    for row in sorted(tests_alone, key=lambda row: -row.seconds)[:DEAREST]:
        name = row.name.removeprefix("tests/").replace("|", "\\|")
        yield f"| {name} | {row.seconds:.1f} | {row.call_seconds:.1f} | {row.reason} |"


if __name__ == "__main__":
    sys.exit(main())
