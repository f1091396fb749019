"""The names of the packages: type checkers find wrong ones, and know each right one."""

from __future__ import annotations

import ast
import inspect
import pathlib
import subprocess
import sys

import pytest

import minilog
import minilog.aio
from minilog import errors

WRONG = """
import minilog
import minilog.aio
from minilog import Prodcer
from minilog.aio import Consumr

def send(producer: minilog.Producer) -> None:
    try:
        producer.flush()
    except minilog.TimeOut:
        pass

minilog.sacn("flights")
minilog.aio.Produser
"""
RIGHT = """
import minilog
from minilog import GroupMetadata, Message, RunningCluster, TimedOut

def work(message: Message, group: GroupMetadata, cluster: RunningCluster, error: minilog.types.Record) -> str:
    try:
        message.accept()
    except (TimedOut, minilog.OffsetOutOfRange, minilog.errors.Closed) as failure:
        return failure.code
    return group.group_id + cluster.bootstrap_servers
"""


def found_by_mypy(program: str, folder: pathlib.Path) -> list[str]:
    file = folder / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(folder), str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 1), ended.stderr
    return [line for line in ended.stdout.splitlines() if ": error:" in line]


@pytest.mark.dear("it runs mypy")
def test_a_type_checker_finds_each_wrong_name_and_takes_each_right_one(tmp_path: pathlib.Path) -> None:
    found = "\n".join(found_by_mypy(WRONG, tmp_path))
    assert [name for name in ("Prodcer", "Consumr", "TimeOut", "sacn", "Produser") if f'"{name}"' not in found] == []
    assert found_by_mypy(RIGHT, tmp_path) == []


@pytest.mark.parametrize("package", [minilog, minilog.aio])
def test_a_type_checker_is_told_of_each_name_and_a_program_gets_it(package: object) -> None:
    """Without a run of mypy, which takes long: the imports that only type checkers see name what a program may use."""
    assert inspect.ismodule(package)
    tree = ast.parse(inspect.getsource(package))
    seen = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    told = {alias.asname for node in ast.walk(seen[0]) if isinstance(node, ast.ImportFrom) for alias in node.names}
    public = set(package.__all__)
    if package is minilog:
        kinds = [value for value in vars(errors).values() if inspect.isclass(value)]
        public |= {kind.__name__ for kind in kinds if issubclass(kind, errors.MinilogError)} | {"errors", "types"}
    assert told == public
    assert all(getattr(package, name) is not None for name in public)


@pytest.mark.parametrize("name", ["TimeOut", "Prodcer", "common_pb2"])
def test_a_wrong_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(minilog, name)
