"""Who imports whom, beside the contracts of pyproject.toml. Imports under TYPE_CHECKING count here too."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
import tomllib
from collections.abc import Iterator

import grimp

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
OURS = tuple(LINTER["root_packages"])


@functools.cache
def graph(*, with_types: bool) -> grimp.ImportGraph:
    return grimp.build_graph(*OURS, include_external_packages=True, exclude_type_checking_imports=not with_types)


def reached(imports: grimp.ImportGraph, module: str) -> set[str]:
    """What a module imports inside the project, at once or by others."""
    found, open_ends = set[str](), [module]
    while open_ends:
        for name in imports.find_modules_directly_imported_by(open_ends.pop()):
            if name.startswith(OURS) and name not in found:
                found.add(name)
                open_ends.append(name)
    return found


def excused_for_types() -> Iterator[str]:
    """The rows of ignore_imports in pyproject.toml that say "types"."""
    for line in (ROOT / "pyproject.toml").read_text().splitlines():
        if match := re.search(r'"([\w.*]+ -> [\w.*]+)".*# types', line):
            yield match.group(1)


def test_no_module_imports_itself_by_way_of_others() -> None:
    imports = graph(with_types=True)
    assert [module for module in sorted(imports.modules) if module in reached(imports, module)] == []


def test_a_row_that_a_contract_excuses_for_types_names_imports_for_types_alone() -> None:
    rows, imports = list(excused_for_types()), graph(with_types=False)
    assert rows
    for row in rows:
        importer, imported = row.split(" -> ")
        found = [
            f"{name} -> {other}"
            for name in imports.find_matching_modules(importer)
            for other in imports.find_matching_modules(imported)
            if imports.direct_import_exists(importer=name, imported=other)
        ]
        assert not found, f"{row} is excused for types, and is an import of the running program"


CLAIM = re.compile(r"\b(?:[Pp]ure|(?:[Nn]o|without) I/O)\b")
IO = {"asyncio", "grpc", "os", "socket", "subprocess", "threading", "time"}


def docstrings() -> Iterator[tuple[str, str]]:
    for package in OURS:
        (top,) = (folder / package for folder in ROOT.iterdir() if (folder / package / "__init__.py").is_file())
        for file in sorted(top.rglob("*.py")):
            name = ".".join(file.relative_to(top.parent).with_suffix("").parts).removesuffix(".__init__")
            yield name, ast.get_docstring(ast.parse(file.read_text())) or ""


def test_a_module_that_says_that_it_is_pure_or_without_io_is_under_a_contract_that_forbids_io() -> None:
    """The contracts look at all that a module imports, also by others."""
    cores = [
        source
        for contract in LINTER["contracts"]
        if contract["type"] == "forbidden" and set(contract["forbidden_modules"]) >= IO
        if not contract.get("allow_indirect_imports", False)
        for source in contract["source_modules"]
    ]
    said = [name for name, text in docstrings() if CLAIM.search(text)]
    assert len(said) > 100
    outside = [name for name in said if not any(f"{name}.".startswith(f"{core}.") for core in cores)]
    assert not outside, "add them to the contract of the cores in pyproject.toml, or mend their sentences"
