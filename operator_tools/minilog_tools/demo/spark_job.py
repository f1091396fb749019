"""The Spark job as a process of its own. The demonstration stops it half way, and starts it again."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from minilog_broker.failure import CommandFailed
from minilog_tools.demo.patience import cpu_s_of_group, limit_on_this_machine_s, machine_load

# Spark finishes the micro-batch at hand, then ends its JVM.
_STOP_WITHIN_S = 45.0
_LOOK_EVERY_S = 0.2


def check_spark_can_run() -> None:
    """Raises CommandFailed where PySpark or Java is missing. The demonstration calls it before it starts anything."""
    if importlib.util.find_spec("pyspark") is None:
        raise CommandFailed("PySpark is not installed: pip install 'pyspark-minilog[demo]'")
    home = os.environ.get("JAVA_HOME")
    if shutil.which(str(pathlib.Path(home) / "bin" / "java") if home else "java") is None:
        raise CommandFailed(
            "Spark needs Java 17 or 21, and there is none: install it "
            "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
        )


def job_file() -> pathlib.Path:
    """jobs/delays.py of the source tree; in an installed package, the copy beside this file."""
    in_source_tree = pathlib.Path(__file__).resolve().parents[3] / "jobs" / "delays.py"
    return in_source_tree if in_source_tree.is_file() else pathlib.Path(__file__).with_name("delays_job.py")


class SparkJob:
    """The process of the job. At most one runs at a time, always with the same checkpoint."""

    def __init__(self, directory: pathlib.Path, script: pathlib.Path, options: Sequence[str]) -> None:
        """`options`: those of the script, without its checkpoint."""
        self.log_file = directory / "spark.log"
        self._checkpoint = directory / "checkpoint"
        self._command = [sys.executable, str(script), *options, "--checkpoint", str(self._checkpoint)]
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more_options: str) -> None:
        environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **os.environ}
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *more_options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=environment,
                process_group=0,
            )

    @property
    def finished_batches(self) -> int:
        """The number of micro-batches that the checkpoint has as done."""
        return self._batches("commits")

    @property
    def begun_batches(self) -> int:
        """The number of micro-batches that the checkpoint has as begun. One more than finished: the job is in it."""
        return self._batches("offsets")

    @property
    def cpu_s(self) -> float:
        """The CPU time of the job and its JVM so far. Spark's Python workers have process groups of their own."""
        return 0.0 if self._process is None else cpu_s_of_group(self._process.pid)

    def _batches(self, folder: str) -> int:
        written = self._checkpoint / folder
        return sum(entry.name.isdigit() for entry in written.iterdir()) if written.is_dir() else 0

    def wait_for_batches(self, count: int, stop: threading.Event) -> None:
        """Wait until `count` micro-batches are done, or `stop` is set."""
        while self.finished_batches < count and not stop.wait(_LOOK_EVERY_S):
            self.check_alive()

    def check_alive(self) -> None:
        """Raises CommandFailed where the job has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise CommandFailed(f"the Spark job ended by itself ({self._process.returncode}): see {self.log_file}")

    def wait_ended(self, timeout_s: float) -> None:
        """Wait for the end of a job that ends by itself. Raises CommandFailed where it fails, or does not end."""
        process, self._process = self._process, None
        assert process is not None
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process = process
            raise CommandFailed(f"the Spark job did not end in {timeout_s:.0f} s: see {self.log_file}") from None
        if code != 0:
            raise CommandFailed(f"the Spark job ended with exit code {code}: see {self.log_file}")

    def stop(self) -> None:
        """Ask the job to stop, and wait. Raises CommandFailed where it does not stop."""
        process = self._process
        if process is None:
            return
        process.terminate()
        limit_s = limit_on_this_machine_s(_STOP_WITHIN_S)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise CommandFailed(
                f"the Spark job did not stop in {limit_s:.0f} s. {machine_load()}: see {self.log_file}"
            ) from None
        self._process = None
        if code != 0:
            raise CommandFailed(f"the Spark job ended with exit code {code}: see {self.log_file}")

    def end(self) -> None:
        """Kill the job and its Java process. Both are in a process group of their own."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
