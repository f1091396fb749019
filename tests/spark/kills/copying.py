"""The streaming copy as a service: its driver program is started again, from its checkpoint, whenever it ends.

Processes are found by their parents (/proc), so that nothing is ever killed that is not the copy's own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import psutil

ROOT = pathlib.Path(__file__).resolve().parents[3]
RECENT_BATCHES = 6
FIRST_BATCH_S = 1.0
STOP_S = 60.0
ABANDONED_S = 120.0
_LOOK_S = 0.1
_SOURCE_WORKER = "pyspark.sql.streaming.python_streaming_source_runner"


class Copying:
    """A supervisor of one driver program; the query's own restarts inside it are Spark's."""

    def __init__(
        self, directory: pathlib.Path, arguments: Sequence[str], *, master: str, worker_ids: Sequence[int] = ()
    ) -> None:
        """`arguments`: SERVERS SOURCE SINK and options of driver.py. `worker_ids`: whose children executors are, where
        they are not the driver's."""
        self._directory = directory
        self._worker_ids = worker_ids
        self.checkpoint = directory / "checkpoint"
        places = (str(self.checkpoint), str(directory))
        servers, source, sink, *options = arguments
        self._command = [sys.executable, "-m", "tests.spark.kills.driver", master, servers, source, sink, *places]
        self._command += options
        self.log = directory / "driver.log"
        self.starts = 0
        self._abandoned: list[subprocess.Popen[bytes]] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._process = self._start()
        self._stopping = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
        self._supervisor.start()

    def query_id(self) -> str | None:
        """Spark's, the checkpoint's; None while it was never started."""
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return str(json.loads((self.checkpoint / "metadata").read_text())["id"])
        return None

    def finished_batch(self) -> int:
        """The last micro-batch that Spark has noted as committed; -1 before the first."""
        names = [each.name for each in (self.checkpoint / "commits").glob("[0-9]*")]
        return max(map(int, names), default=-1)

    def batch_s(self) -> float:
        """How long a micro-batch takes at present, from commit to commit."""
        found = sorted(each.stat().st_mtime for each in (self.checkpoint / "commits").glob("[0-9]*"))[-RECENT_BATCHES:]
        return statistics.median(b - a for a, b in itertools.pairwise(found)) if len(found) > 1 else FIRST_BATCH_S

    def driver_jvms(self) -> list[psutil.Process]:
        """One, or none while it starts."""
        return [each for each in _below(self._process.pid) if _is(each, "java")][:1]

    def executor_jvms(self) -> list[psutil.Process]:
        """Those that executors have of their own, if they have."""
        drivers = {each.pid for each in self.driver_jvms()}
        return [each for each in self._descendants() if _is(each, "java") and each.pid not in drivers]

    def workers(self) -> list[psutil.Process]:
        """Python processes that run tasks, or the source of the query; not those that plan, which idle but for a
        moment, nor the daemons that fork them."""
        return [each for each in self._descendants() if _works(each)]

    def processes(self) -> dict[str, list[psutil.Process]]:
        """All that runs, by what it is."""
        return {"driver JVM": self.driver_jvms(), "executor JVMs": self.executor_jvms(), "workers": self.workers()}

    def replace(self) -> None:
        """Take the driver program for dead though it is not, and start another one on its checkpoint."""
        self._abandoned.append(self._process)
        self._process = self._start()

    def wait_for_abandoned(self) -> None:
        """Those that were taken for dead awake, and end by themselves. AssertionError where one does not."""
        for program in self._abandoned:
            for each in _below(program.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.resume()
            wait_for("the end of an abandoned driver", lambda program=program: program.poll() is not None, ABANDONED_S)  # type: ignore[misc]
        self._abandoned.clear()

    def stop(self) -> int:
        """A clean end; the exit code."""
        self._stopping.set()
        self._supervisor.join()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.end()
            raise

    def end(self) -> None:
        """Whatever is still alive ends now."""
        self._stopping.set()
        self._supervisor.join()
        for program in (*self._abandoned, self._process):
            for each in _below(program.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            program.kill()
            program.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=environment,
            )

    def _supervise(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            if self._process.poll() is not None:
                assert self._process.stdin is not None
                self._process.stdin.close()
                self._process = self._start()

    def _descendants(self) -> list[psutil.Process]:
        return [each for parent in (self._process.pid, *self._worker_ids) for each in _below(parent)]


def _below(parent: int) -> list[psutil.Process]:
    try:
        return psutil.Process(parent).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _is(process: psutil.Process, name: str) -> bool:
    try:
        return process.name() == name
    except psutil.NoSuchProcess:
        return False


def _works(process: psutil.Process) -> bool:
    try:
        command, parent = process.cmdline(), process.parent()
    except psutil.NoSuchProcess:
        return False
    # A daemon is named after what it forks, as are its children.
    is_daemon = "pyspark.daemon" in command and parent is not None and _is(parent, "java")
    return command[-1:] in (["pyspark.worker"], [_SOURCE_WORKER]) and not is_daemon


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float) -> float:
    """Until `condition()` holds; seconds. AssertionError, naming `what`, after `timeout_s`."""
    started_s = time.monotonic()
    while not condition():
        assert time.monotonic() - started_s < timeout_s, f"{what}: not within {timeout_s} s"
        time.sleep(0.02)
    return time.monotonic() - started_s
