"""The entry point of `minilog`."""

from __future__ import annotations

import subprocess
import sys

import pytest

_LOOK = """
import sys
from minilog_tools.cli import app, main

def run(arguments):
    from minilog.record_batch.builder import records_to_columns
    records_to_columns([b"first"])
    print([name for name in sys.modules if name.startswith("pandas.")])
    return 0

app.run = run
main.main()
"""


def test_the_first_array_of_a_process_does_not_import_pandas() -> None:
    """Arrow does where it is installed, and pyspark installs it: half a second in which a broker's loop stands."""
    ended = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


_WITHOUT = """
import sys
from minilog_tools.cli import main
from minilog_broker.imports import Without
sys.meta_path.insert(0, Without({missing!r}))
sys.argv = ["minilog", *{arguments!r}]
main.main()
"""


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("typer", ["topic", "list"]),
        (
            "structlog",
            ["broker", "--id", "1", "--listen", "127.0.0.1:1", "--voters", "1@127.0.0.1:1", "--data-dir", "d"],
        ),
        ("cryptography", ["cert", "create", "authority", "--out", "d"]),
    ],
)
def test_where_the_extra_is_missing_one_sentence_says_how_to_install_it(missing: str, arguments: list[str]) -> None:
    code = _WITHOUT.format(missing=missing, arguments=arguments)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        1,
        "",
        f"minilog: {missing} is not installed: brokers and the command line need it, and clients do not. Install it: "
        "pip install 'pyspark-minilog[broker]'\n",
    )
