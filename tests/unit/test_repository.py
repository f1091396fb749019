"""Rules of the repository itself: what may be committed, how long a file may be, and one table of errors."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import tomllib

import pytest

from minilog import errors
from minilog.v1 import common_pb2
from minilog_tools import extras
from tests.rules import proves

ROOT = pathlib.Path(__file__).resolve().parents[2]
GENERATED = "client/minilog/v1/"
LONGEST_FILE_LINES = 600  # 400 is the guide: a file is split where its idea splits, not where it reaches a number
LONGEST_FUNCTION_LINES = 70
PRODUCT = ("client/", "broker/", "operator_tools/", "spark_connector/")
MIRRORS = "client/minilog/sync"  # the blocking classes are made from those of minilog.aio, and have their names
# In pieces, so that this file does not name what it forbids.
FORBIDDEN_TEXT = re.compile(
    "|".join(
        (
            "py" + r"pi\.(org|python)",
            "python" + "hosted",
            "arti" + "factory",
            "--(extra-)?" + "index-url",
            "find" + "-links",
            "trusted" + "-host",
            r"(?<![\w.])/(work|root|home)" + "/",
        )
    )
)
UNSAFE_MODULES = {"pickle", "cloudpickle", "marshal", "shelve", "dill"}


def committed_files() -> list[pathlib.Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def sources() -> list[pathlib.Path]:
    return [each for each in committed_files() if each.suffix == ".py" and GENERATED not in str(each)]


def named(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_registry_and_no_path_of_a_machine_is_committed() -> None:
    found = []
    for file in committed_files():
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), start=1):
            if match := FORBIDDEN_TEXT.search(line):
                found.append(f"{named(file)}:{number}: {match.group()}")
    assert not found


def test_constraints_are_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    wrong = [line for line in lines if not line.startswith("#") and not re.fullmatch(r"[\w.-]+==[\w.]+", line)]
    assert not wrong


def test_files_stay_short() -> None:
    lengths = {named(file): len(file.read_text().splitlines()) for file in sources()}
    assert not {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE_LINES}


@pytest.mark.dear("it reads all of the repository")
def test_functions_stay_short() -> None:
    too_long = []
    for file in sources():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION_LINES:
                    too_long.append(f"{named(file)}:{node.lineno}: {node.name} has {lines} lines")
    assert not too_long


def test_each_public_class_of_the_product_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = {}
    for file in sources():
        if named(file).startswith(PRODUCT) and named(file.parent) != MIRRORS:
            for name in re.findall(r"^class ([A-Za-z]\w*)", file.read_text(), re.MULTILINE):
                homes.setdefault(name, []).append(named(file))
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def test_names_of_tests_have_a_subject() -> None:
    """A row of a report says what broke: `test_it_is_kept` says that of nothing."""
    pronoun = re.compile(r"^ *(?:async )?def (test_(?:it|one|they|who|what)_\w+)", re.MULTILINE)
    tests = [file for file in sources() if named(file).startswith("tests/")]
    assert not [f"{named(file)}: {name}" for file in tests for name in pronoun.findall(file.read_text())]


def test_nothing_unpickles() -> None:
    found = []
    for file in sources():
        if named(file).startswith("tests/"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{named(file)}: {name}" for name in names if name.split(".")[0] in UNSAFE_MODULES]
    assert not found


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        named(file)
        for file in sources()
        if file.read_text().strip() and not ast.get_docstring(ast.parse(file.read_text()))
    ]
    assert not silent


def test_every_package_says_that_it_is_typed() -> None:
    """Else a checker takes all of it for Any where it is installed (PEP 561). The wheel has what is in the folders."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert len(packages) == 4
    assert {f"{each}/py.typed" for each in packages} <= {named(file) for file in committed_files()}


def test_the_extra_of_brokers_is_named_alike_everywhere() -> None:
    """Where it is installed from, where a missing package is explained, and where its imports are forbidden."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    installed = {
        re.split(r"[<>=]", requirement)[0] for requirement in project["project"]["optional-dependencies"]["broker"]
    }
    contracts = project["tool"]["importlinter"]["contracts"]
    forbidden = [
        set(contract["forbidden_modules"]) for contract in contracts if "the extra `broker`" in contract["name"]
    ]
    assert installed == set(extras.BROKER_EXTRA.values())
    assert forbidden == [set(extras.BROKER_EXTRA)]


@pytest.mark.parametrize("code", [value for value in common_pb2.ErrorCode.values() if value != 0])
def test_every_code_of_the_wire_has_its_exception(code: common_pb2.ErrorCode.ValueType) -> None:
    found = errors.error_class(code)
    assert "ERROR_CODE_" + found.code == common_pb2.ErrorCode.Name(code)


def test_every_exception_has_a_code_of_the_wire() -> None:
    known = set(common_pb2.ErrorCode.keys())
    pending, seen = [errors.MinilogError], set()
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        seen.add("ERROR_CODE_" + kind.code)
    assert seen <= known


@proves("DOC.11")
def test_changelog_readme_and_all_that_names_a_version_name_that_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    shown = {
        "CHANGELOG.md": r"^## (\d+\.\d+\.\d+)",  # the newest release: the first heading with a number
        "README.md": r"This is version (\d+\.\d+\.\d+) ",
        "docs/start.md": r"pyspark_minilog-(\d+\.\d+\.\d+)-py3",
        "docs/operating/kubernetes.md": r"/minilog:(\d+\.\d+\.\d+) ",
        "deploy/helm/minilog/Chart.yaml": r"^appVersion: (\d+\.\d+\.\d+)$",
    }
    named = {name: re.findall(form, (ROOT / name).read_text(), re.MULTILINE)[:1] for name, form in shown.items()}
    assert named == {name: [version] for name in shown}
