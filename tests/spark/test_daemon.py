"""The daemon that has all loaded before it forks: it starts no thread that a fork would lose, and its workers work."""

from __future__ import annotations

import subprocess
import sys

import pytest

# jemalloc's and OpenBLAS's own handlers of forks mend theirs; the latter have the name of their process.
MIND_FORKS = {"python", "jemalloc_bg_thd"}
PROGRAM = """
import os, pathlib, sys
sys.argv[1:] = [{kind!r}]
from pyspark_minilog import daemon
daemon.load()
from minilog.net import home
assert not home._process.has_clients
names = [(task / "comm").read_text().strip() for task in pathlib.Path("/proc/self/task").iterdir()]
print(*sorted(set(names)))
import threading
assert threading.active_count() == 1, threading.enumerate()
"""
KINDS = ("pyspark.worker", "pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.commit_data_source_write")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_loaded_starts_no_thread_that_a_fork_would_lose(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(kind=kind)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= MIND_FORKS
