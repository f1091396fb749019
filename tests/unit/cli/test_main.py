"""The entry point of `minilog`."""

from __future__ import annotations

import subprocess
import sys

_LOOK = """
import sys
from minilog_broker.cli import app, main

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
