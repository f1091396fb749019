"""Who imports whom, beside the contracts of pyproject.toml. Imports under TYPE_CHECKING count here too."""

from __future__ import annotations

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
