"""What each entry point loads before it does anything: every process pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from minilog_tools.cli import app

_HEAVY = {
    "cryptography", "google.protobuf", "grpc", "jwt", "minilog.admin", "minilog.aio.admin",
    "minilog.aio.consumer_shell", "minilog.aio.producer", "minilog.aio.producer_shell", "minilog.consumer.core",
    "minilog.producer.sender", "minilog.producer.typed_rows", "minilog.typed.schema.fields",
    "minilog.typed.conditions.predicate", "minilog.typed.rows.reader", "minilog.typed.schema.topic_schema",
    "minilog_broker.quorum.node", "minilog_broker.replication", "minilog_broker.server", "minilog_broker.storage",
    "msgspec", "numpy", "opentelemetry", "prometheus_client", "pyarrow", "pyarrow.compute", "pyarrow.csv",
    "pyarrow.json", "pyarrow.parquet", "pyspark", "rich", "sqlglot", "starlette", "structlog", "typer", "uvicorn",
}  # fmt: skip
_NETWORK = {"google.protobuf", "grpc"}
_ARROW = {"pyarrow", "numpy"}  # Arrow itself loads numpy
_PRODUCER = {"minilog.aio.producer", "minilog.aio.producer_shell", "minilog.producer.sender"}
_CONSUMER = {"minilog.aio.consumer_shell", "minilog.consumer.core"}
_ADMIN = {"minilog.admin", "minilog.aio.admin"}
_RUN = "from minilog_tools.cli import main; import sys; sys.argv = ['minilog', {}]; main.main()"
_NOWHERE = "'-b', 'no-port'"  # refused by the client, when all is loaded
_BROKER = "'--id', '1', '--listen', '127.0.0.1:1', '--voters', '1@127.0.0.1:1', '--data-dir', '/dev/null/none'"
_STORED = {
    "minilog.typed.schema.fields",
    "minilog.typed.conditions.predicate",
    "minilog.typed.rows.reader",
    "minilog.typed.schema.topic_schema",
}
_STORED |= {"pyarrow", "pyarrow.compute"}
_SERVED = {
    "minilog_broker.quorum.node",
    "minilog_broker.replication",
    "minilog_broker.server",
    "minilog_broker.storage",
}
_SERVED |= {"minilog.admin", "msgspec", "structlog"}
_CASES = {
    "import minilog": set(),
    "from minilog import Producer": _NETWORK | _ARROW | _PRODUCER,
    "from minilog import Consumer": _NETWORK | _ARROW | _CONSUMER,
    "from minilog import Producer, Consumer": _NETWORK | _ARROW | _PRODUCER | _CONSUMER,
    "from minilog import Admin": _NETWORK | _ADMIN,
    "import minilog_tools.cli.main": set(),
    _RUN.format("'--version'"): set(),
    _RUN.format("'--help'"): {"google.protobuf", "typer", "rich"},
    _RUN.format(f"'topic', 'list', {_NOWHERE}"): _NETWORK | _ADMIN | {"typer"},
    _RUN.format(f"'broker', {_BROKER}"): _NETWORK | _STORED | _SERVED | {"typer"},
}


@pytest.mark.parametrize("code", _CASES)
def test_an_entry_point_loads_only_what_it_uses(code: str) -> None:
    assert _loaded(code) <= _CASES[code]


def _loaded(code: str) -> set[str]:
    """What of the heavy a process has loaded that did this."""
    look = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\n"
        f"print('loaded', *sorted(set(sys.modules) & {_HEAVY!r}))"
    )
    ended = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    return set(ended.stdout.splitlines()[-1].split()[1:])


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
