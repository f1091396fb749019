"""Spark in processes of their own: its daemons until the end of a block, and drivers to their end."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyspark

from tests.cluster import free_ports

SPARK_HOME = pathlib.Path(pyspark.__file__).parent
START_S = 60.0
ENVIRONMENT = {
    **os.environ,
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_NO_DAEMONIZE": "1",
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
    "PYTHONPATH": os.pathsep.join(sys.path[1:]),
}
_KIND = "org.apache.spark.deploy"
_LOOK_S = 0.1
_STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class Standalone:
    """A master's URL, and the ids of the processes below which executors are."""

    url: str
    worker_ids: tuple[int, ...]


@contextlib.contextmanager
def daemon(directory: pathlib.Path, name: str, ready: str, *arguments: str) -> Iterator[int]:
    """A JVM of Spark's; its process id."""
    log = directory / f"{name}.log"
    command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=ENVIRONMENT, cwd=directory)
    try:
        deadline = time.monotonic() + START_S
        while ready not in log.read_text():
            assert process.poll() is None, f"{name} ended: {log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"{name} is not ready: {log.read_text()[-2000:]}"
            time.sleep(_LOOK_S)
        yield process.pid
    finally:
        process.terminate()
        process.wait(_STOP_S)


@contextlib.contextmanager
def standalone(directory: pathlib.Path, *, cores: int = 1) -> Iterator[Standalone]:
    """A master and two workers, each of so many cores, on two host names: Spark never runs a speculative task on the
    host of the first attempt."""
    port, *ports = free_ports(4)
    url = f"spark://127.0.0.1:{port}"
    master = (f"{_KIND}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ports[0]))
    with contextlib.ExitStack() as stack:
        stack.enter_context(daemon(directory, "master", "I have been elected leader", *master))
        worker_ids = []
        for number in (1, 2):
            worker = (f"{_KIND}.worker.Worker", "--host", f"127.0.0.{number}", "--cores", str(cores), "--memory", "1g")
            place = ("--work-dir", str(directory / f"worker-{number}"), "--webui-port", str(ports[number]))
            ready = "Successfully registered with master"
            worker_ids.append(stack.enter_context(daemon(directory, f"worker-{number}", ready, *worker, *place, url)))
        yield Standalone(url, tuple(worker_ids))


LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = info
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
"""


def run_job(
    home: pathlib.Path, *command: str, environment: Mapping[str, str], executors: int, cwd: pathlib.Path | None = None
) -> tuple[dict[str, Any], str]:
    """Run a module in a driver of its own. What its last line tells in JSON, and what driver and executors log."""
    logging = home / "log4j2.properties"
    logging.write_text(LOGGING)
    environment = {**environment, "JAVA_TOOL_OPTIONS": f"-Dlog4j2.configurationFile={logging}"}
    output, errors = home / "output", home / "errors"  # pipes would be held open by what it leaves behind
    with output.open("w") as out, errors.open("w") as err:
        code = subprocess.run(
            [sys.executable, "-m", *command], stdout=out, stderr=err, env=environment, cwd=cwd, timeout=240
        ).returncode
    assert code == 0, errors.read_text()[-3000:]
    told: dict[str, Any] = json.loads(output.read_text().splitlines()[-1])
    work = SPARK_HOME / "work" / told["application"]
    of_executors = [each.read_text(errors="replace") for each in work.rglob("std*")]
    assert len(of_executors) == 2 * executors
    shutil.rmtree(work, ignore_errors=True)
    return told, "\n".join([output.read_text(), errors.read_text(), *of_executors])
