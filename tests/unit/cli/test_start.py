"""What each entry point loads before it does anything: every process pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from minilog_broker.cli import app

_HEAVY = {
    "cryptography", "grpc", "minilog.aio.admin", "minilog.aio.consumer", "numpy", "opentelemetry", "prometheus_client",
    "pyarrow", "pyarrow.compute", "pyarrow.csv", "pyarrow.json", "pyarrow.parquet", "rich", "sqlglot", "starlette",
    "typer", "uvicorn",
}  # fmt: skip
_ARROW = {"pyarrow", "numpy", "grpc"}  # Arrow itself loads numpy
_RUN = "from minilog_broker.cli import main; import sys; sys.argv = ['minilog', {}]; main.main()"
_CASES = {
    "import minilog": set(),
    "from minilog import Producer": _ARROW,
    "from minilog import Producer, Consumer": _ARROW | {"minilog.aio.consumer"},
    "import minilog_broker.cli.main": set(),
    _RUN.format("'--version'"): set(),
    _RUN.format("'--help'"): {"typer", "rich"},
}


@pytest.mark.parametrize("code", _CASES)
def test_an_entry_point_loads_only_what_it_uses(code: str) -> None:
    look = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\n"
        f"print('loaded', *sorted(set(sys.modules) & {_HEAVY!r}))"
    )
    ended = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    loaded = ended.stdout.splitlines()[-1].split()[1:]
    assert set(loaded) <= _CASES[code]


def test_the_version_is_one_line() -> None:
    code = _RUN.format("'--version'")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name, version = ended.stdout.split()
    assert (name, version[0].isdigit()) == ("minilog", True)


def test_the_list_of_commands_is_the_same_whether_they_are_loaded_or_not() -> None:
    """A command that is not named is in the list by a summary of its own."""

    def listed(tree: typer.Typer) -> dict[str, str]:
        commands = typer.main.get_command(tree).commands  # type: ignore[attr-defined]
        return {name: each.get_short_help_str(200) for name, each in commands.items()}

    assert listed(app.tree(loaded=())) == listed(app.tree())
