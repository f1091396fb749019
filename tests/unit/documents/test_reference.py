"""docs/reference has the errors, the metrics and the Python API of the code, and no more."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re

import minilog
import pyspark_minilog
from minilog import errors
from minilog_broker.server.metrics import names
from pyspark_minilog import errors as connector_errors
from tests.rules import proves

pytestmark = proves("DOC.5")

REFERENCE = pathlib.Path(__file__).parents[3] / "docs/reference"
ERRORS = (REFERENCE / "errors.md").read_text()
METRICS = (REFERENCE / "metrics.md").read_text()
PYTHON = (REFERENCE / "python.md").read_text()


def rows(text: str, cells: int) -> list[list[str]]:
    """The rows of all tables that have so many cells and begin with a name in backquotes."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\| `.*\|$", text, re.M)]
    return [row for row in rows if len(row) == cells]


def meaning(error: type[Exception]) -> str:
    return " ".join((inspect.getdoc(error) or "").split())


def defined(module: object) -> list[type[Exception]]:
    """Its errors, in the order of the module."""
    classes = [value for name, value in vars(module).items() if inspect.isclass(value) and not name.startswith("_")]
    return [member for member in classes if issubclass(member, Exception) and member.__module__ == module.__name__]  # type: ignore[attr-defined]


def test_every_error_is_in_the_table_with_its_code_and_its_meaning() -> None:
    shown = [row[:4] for row in rows(ERRORS, cells=5)]
    assert shown == [
        [f"`{error.__name__}`", f"`{error.code}`", "yes" if error.retriable else "no", meaning(error)]
        for error in defined(errors)
        if issubclass(error, errors.MinilogError)
    ]


def test_every_error_of_the_connector_is_in_the_second_table() -> None:
    shown = [row[:2] for row in rows(ERRORS, cells=3)]
    assert shown == [[f"`{error.__name__}`", meaning(error)] for error in defined(connector_errors)]


def test_every_error_says_what_to_do() -> None:
    assert all(row[-1] for cells in (5, 3) for row in rows(ERRORS, cells))


def test_every_metric_is_in_the_table_with_its_type_and_labels() -> None:
    """The meaning there may say more than the line of help that a scrape has."""
    shown = {tuple(row[:3]) for row in rows(METRICS, cells=4)}
    assert shown == {(f"`{metric.name}`", metric.type.value, ", ".join(metric.labels)) for metric in names.ALL}
    assert all(row[3] for row in rows(METRICS, cells=4))


def documented() -> dict[str, object]:
    """What python.md has the docstrings of, by the path that it gives."""
    objects: dict[str, object] = {}
    for path in re.findall(r"^::: (\S+)$", PYTHON, re.M):
        module, _, name = path.rpartition(".")
        try:
            objects[path] = importlib.import_module(path)
        except ModuleNotFoundError:
            objects[path] = getattr(importlib.import_module(module), name)
    return objects


def test_every_public_name_is_in_the_python_reference() -> None:
    objects = documented()
    whole = {path for path, value in objects.items() if inspect.ismodule(value)}
    public = [getattr(minilog, name) for name in minilog.__all__ if name != "aio"]
    public += [getattr(minilog.aio, name) for name in minilog.aio.__all__]
    public += [getattr(pyspark_minilog, name) for name in pyspark_minilog.__all__ if name != "DefaultSource"]
    missing = [
        value
        for value in public
        if value not in objects.values()
        and value.__module__ not in whole
        and not (inspect.isclass(value) and issubclass(value, errors.MinilogError))  # errors.md has them
    ]
    assert not missing


def test_everything_in_the_python_reference_says_what_it_is_for() -> None:
    assert not [path for path, value in documented().items() if not inspect.getdoc(value)]
