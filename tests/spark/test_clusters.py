"""Where Spark runs: local-cluster, standalone with a master and two workers, and Spark Connect.

The driver is a process of its own each time, and finds the data source by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pyspark
import pytest

from tests.cluster import free_ports
from tests.spark.kit import Kit, wait_until

SPARK_HOME = pathlib.Path(pyspark.__file__).parent
NUMBERS = range(500)
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


@contextlib.contextmanager
def daemon(directory: pathlib.Path, name: str, ready: str, *arguments: str) -> Iterator[None]:
    """A JVM of Spark's, from when it has said `ready` until the end of the block."""
    log = directory / f"{name}.log"
    command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=ENVIRONMENT, cwd=directory)
    try:

        def is_ready() -> bool:
            assert process.poll() is None, f"{name} ended: {log.read_text()[-2000:]}"
            return ready in log.read_text()

        wait_until(is_ready, START_S)
        yield
    finally:
        process.terminate()
        process.wait(30)


def copy(kit: Kit, directory: pathlib.Path, master: str, *flags: str) -> int:
    """Copies a topic there, twice on one checkpoint, and sees each record once. How many stand in the copy that are of
    attempts at a task which did not win."""
    source, target = kit.topic(partitions=2), kit.topic(partitions=2)
    for partition in range(2):
        kit.send(source, [str(number) for number in NUMBERS if number % 2 == partition], partition=partition)
    program = [sys.executable, "-m", "tests.spark.copying", master, kit.servers, source, target]
    for _ in range(2):
        done = subprocess.run(
            [*program, str(directory / "checkpoint"), *flags],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert (found["records"], found["total"]) == (len(NUMBERS), sum(NUMBERS))
    losers: int = found["stored"] - len(NUMBERS)
    return losers


def test_local_cluster(kit: Kit, tmp_path: pathlib.Path) -> None:
    copy(kit, tmp_path, "local-cluster[2,1,1024]")


@pytest.mark.timeout(290)
def test_standalone_with_two_workers_and_a_speculative_task(kit: Kit, tmp_path: pathlib.Path) -> None:
    """On two host names: Spark never speculates on the host of the first attempt."""
    port, *ports = free_ports(5)
    url = f"spark://127.0.0.1:{port}"
    kind = "org.apache.spark.deploy"
    master = (f"{kind}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ports[0]))
    with contextlib.ExitStack() as stack:
        stack.enter_context(daemon(tmp_path, "master", "I have been elected leader", *master))
        for number in (1, 2):
            worker = (f"{kind}.worker.Worker", "--host", f"127.0.0.{number}", "--cores", "1", "--memory", "1g")
            place = ("--work-dir", str(tmp_path / f"worker-{number}"), "--webui-port", str(ports[number]))
            ready = "Successfully registered with master"
            stack.enter_context(daemon(tmp_path, f"worker-{number}", ready, *worker, *place, url))
        assert copy(kit, tmp_path, url, "--speculate") > 0, "what the first attempt wrote is there, and nobody sees it"


def test_spark_connect(kit: Kit, tmp_path: pathlib.Path) -> None:
    (port,) = free_ports(1)
    server = (
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"),
        *("--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.ui.enabled=false"),
    )
    with daemon(tmp_path, "connect", "Spark Connect server started", *server):
        copy(kit, tmp_path, f"sc://127.0.0.1:{port}")
