"""One cluster of three brokers and one Spark for all tests of this folder; each test makes topics of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from minilog import Admin
from tests.cluster import Cluster, running_cluster
from tests.spark.forked_workers import python_of_workers
from tests.spark.kit import Kit

# os: these tests are about the connector; durability is tested with the brokers, and costs a second per hundred writes.
# Records of years ago are kept.
BROKER_SETTINGS = {"flush.policy": "os", "retention.ms": "-1", "log.cleaner.backoff.ms": "100"}
# No JVM lives long enough here for its best compiler to pay, whose threads take the cores from everybody else.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
RACKS = {broker_id: ("--rack", f"r{broker_id}") for broker_id in (1, 2, 3)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves sockets to the garbage collector, which is not our warning to fix."""
    for item in items:
        if "tests/spark/" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("brokers")
    with running_cluster(directory, brokers=3, settings=BROKER_SETTINGS, arguments=RACKS) as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_TOOL_OPTIONS"] = JVM_OPTIONS
    directory = tmp_path_factory.mktemp("spark")
    with python_of_workers(directory) as python:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
        session = (
            SparkSession.builder.master("local[2]")
            .appName("minilog tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
            .config("spark.local.dir", str(directory / "local"))
            .getOrCreate()
        )
        # Programs that a test starts have the real one.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture(scope="session")
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        yield client


@pytest.fixture
def kit(spark: SparkSession, cluster: Cluster, admin: Admin, request: pytest.FixtureRequest) -> Iterator[Kit]:
    """What a test works with; queries that it leaves running are stopped."""
    yield Kit(spark, cluster.bootstrap_servers, admin, name=request.node.name)
    for query in spark.streams.active:
        query.stop()
