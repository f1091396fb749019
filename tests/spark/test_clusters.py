"""Where Spark runs: local-cluster, standalone with a master and two workers, and Spark Connect.

The driver is a process of its own each time, and finds the data source by itself.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tests.cluster import free_ports
from tests.rules import proves
from tests.spark.kit import Kit
from tests.spark.standalone import ENVIRONMENT, daemon, standalone

pytestmark = proves("SPC.1")

NUMBERS = range(500)


def copy(kit: Kit, directory: pathlib.Path, master: str, *flags: str) -> int:
    """Copies a topic there, twice on one checkpoint, and sees each record once. How many stand in the copy that are of
    attempts at a task which did not win."""
    source, target = kit.topic(partitions=2), kit.topic(partitions=2)
    for partition in range(2):
        kit.send(source, [str(number) for number in NUMBERS if number % 2 == partition], partition=partition)
    program = [sys.executable, "-m", "tests.spark.copying", master, kit.servers, source, target]
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


@proves("SPF.1")
@pytest.mark.long
@pytest.mark.timeout(290)
def test_local_cluster(kit: Kit, tmp_path: pathlib.Path) -> None:
    copy(kit, tmp_path, "local-cluster[2,1,1024]")


@proves("SPS.7", "SPC.2")
@pytest.mark.long
@pytest.mark.timeout(290)
def test_standalone_with_two_workers_and_a_speculative_task(kit: Kit, tmp_path: pathlib.Path) -> None:
    with standalone(tmp_path) as spark:
        losers = copy(kit, tmp_path, spark.url, "--speculate")
    assert losers > 0, "what the first attempt wrote stands there, and nobody sees it"


@pytest.mark.long
def test_spark_connect(kit: Kit, tmp_path: pathlib.Path) -> None:
    (port,) = free_ports(1)
    server = (
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"),
        *("--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.ui.enabled=false"),
    )
    with daemon(tmp_path, "connect", "Spark Connect server started", *server):
        copy(kit, tmp_path, f"sc://127.0.0.1:{port}")
