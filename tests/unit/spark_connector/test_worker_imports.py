"""What a Python worker of Spark's loads for a task: each worker pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_HEAVY = {
    "cryptography", "jwt", "minilog.aio.admin", "minilog.aio.consumer_shell", "minilog.aio.producer",
    "minilog.typed.schema.evolution", "minilog.typed.rows.reader", "minilog.typed.rows.rows", "minilog_broker",
    "msgspec", "opentelemetry", "prometheus_client", "pyarrow.compute", "pyarrow.csv", "pyarrow.parquet",
    "pyspark_minilog.reading.cluster", "pyspark_minilog.reading.typed_rows", "pyspark_minilog.writing.typed_sink",
    "rich", "sqlglot", "starlette", "structlog", "typer", "uvicorn",
}  # fmt: skip
_TYPED = {"minilog.typed.rows.reader", "minilog.typed.rows.rows", "minilog.typed.schema.evolution"}
# What is pickled to the task, and the client that it is lent.
_CASES = {
    "import pyspark_minilog.reading.batch_reader, pyspark_minilog.login.clients, minilog; minilog.Consumer": {
        "minilog.aio.consumer_shell"
    },
    "import pyspark_minilog.reading.stream_reader, pyspark_minilog.login.clients, minilog; minilog.Consumer": {
        "minilog.aio.consumer_shell"
    },
    "import pyspark_minilog.queues.reader, pyspark_minilog.login.clients, minilog; minilog.Consumer": {
        "minilog.aio.consumer_shell"
    },
    "import pyspark_minilog.reading.task_rows, pyspark_minilog.reading.batch_reader": _TYPED,
    "import pyspark_minilog.writing.write_task, pyspark_minilog.login.clients, minilog; minilog.Producer": {
        "minilog.aio.producer"
    },
    "import pyspark_minilog.writing.typed_plan, pyspark_minilog.writing.write_task": _TYPED,
}


@pytest.mark.parametrize("code", _CASES)
def test_a_task_loads_only_what_it_uses(code: str) -> None:
    look = f"import sys; {code}; print('loaded', *sorted(set(sys.modules) & {_HEAVY!r}))"
    ended = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert set(ended.stdout.split()[1:]) <= _CASES[code]
