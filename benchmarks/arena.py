"""Where the systems meet: each is started when a workload first asks for it, and all go on side by side until the end.

An idle cluster beside the one that is measured takes a few percent of a core, and each side has the other beside it.
"""

from __future__ import annotations

import functools
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from benchmarks import artifacts
from benchmarks.accounting import Cost, cost_of, settle
from benchmarks.figures import Run
from benchmarks.systems import Running
from benchmarks.systems.empty import EmptyDataSource
from benchmarks.systems.jetstream import JetStreamCluster
from benchmarks.systems.kafka import KafkaCluster
from benchmarks.systems.keys import make_keys
from benchmarks.systems.minilog import MinilogCluster

SPARK_CORES = 2
_Running = TypeVar("_Running", bound=Running)


class Arena:
    """`directory`: of data, away from what is measured else; `peers`: where artifacts are kept; `is_alone`: without
    peers; `is_secured`: TLS and passwords on both sides."""

    def __init__(self, directory: pathlib.Path, peers: pathlib.Path, *, is_alone: bool, is_secured: bool) -> None:
        self.directory, self._peers, self._is_alone = directory, peers, is_alone
        self._keys = make_keys(directory / "keys") if is_secured else None
        self._systems: dict[str, Running] = {}
        self._number = 0

    @functools.cached_property
    def minilog(self) -> MinilogCluster:
        return self._started(MinilogCluster(self.directory / "minilog", keys=self._keys))

    @functools.cached_property
    def kafka(self) -> KafkaCluster:
        """Raises artifacts.Unavailable."""
        self._require_peers()
        try:
            import confluent_kafka  # noqa: F401
        except ImportError:
            raise artifacts.Unavailable("confluent-kafka is not installed: pip install '.[bench]'") from None
        jars = artifacts.kafka_jars(self._peers)
        return self._started(KafkaCluster(self.directory / "kafka", jars, self._keys))

    @functools.cached_property
    def jetstream(self) -> JetStreamCluster:
        """Raises artifacts.Unavailable."""
        self._require_peers()
        if self._keys is not None:
            raise artifacts.Unavailable("--secured was given, and NATS is not secured here")
        return self._started(JetStreamCluster(self.directory / "nats", artifacts.nats_programs(self._peers)))

    @functools.cached_property
    def spark(self) -> Any:
        """One session for both connectors; without Kafka's where that cannot be had."""
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers, and its search for data sources
        builder = SparkSession.builder.master(f"local[{SPARK_CORES}]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.driver.memory", "3g").config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        builder = builder.config("spark.sql.warehouse.dir", str(self.directory / "warehouse"))
        if (jars := self._spark_jars()) is not None:
            builder = builder.config("spark.jars", ",".join(map(str, jars)))
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        session.dataSource.register(EmptyDataSource)
        return session

    def require_spark_kafka(self) -> None:
        """Raises artifacts.Unavailable where the session has no Kafka."""
        self._require_peers()
        artifacts.spark_kafka_jars(self._peers)

    def _spark_jars(self) -> list[pathlib.Path] | None:
        try:
            self.require_spark_kafka()
        except artifacts.Unavailable:
            return None
        return artifacts.spark_kafka_jars(self._peers)

    def _require_peers(self) -> None:
        if self._is_alone:
            raise artifacts.Unavailable("--alone was said")

    def _started(self, system: _Running) -> _Running:
        self._systems[system.name] = system
        return system

    def name(self, what: str) -> str:
        """A topic's name that nobody has used."""
        self._number += 1
        return f"{what}-{self._number}"

    def measure(self, system: Running | None, work: Callable[[], float | None]) -> Cost:
        """Do the work on a machine that has written all that is dirty; None: nobody's, but Spark's own."""
        settle()
        others = frozenset(pid for each in self._systems.values() if each is not system for pid in each.pids.values())
        return cost_of(work, system.pids if system is not None else {}, others)

    def end(self) -> None:
        """Everything that was started ends."""
        if "spark" in self.__dict__:
            self.spark.stop()
        for system in self._systems.values():
            system.end()


def rate_run(cost: Cost, records: float, record_bytes: int, figure: float, **details: float) -> Run:
    """A run that moved so many records."""
    return Run(figure, cost, amount_bytes=records * record_bytes, details=details)
