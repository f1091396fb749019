"""minilog: three brokers with default settings, started as `minilog broker` is."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping

import pyarrow as pa

from benchmarks.processes import HOST, Servers, free_ports, wait_until
from minilog import Admin, NewTopic, TopicPartition
from minilog.errors import MinilogError

_ANSWER_WITHIN_MS = 2_000


class MinilogCluster:
    """See System."""

    name = "minilog"

    def __init__(self, directory: pathlib.Path, settings: Mapping[str, str] | None = None, brokers: int = 3) -> None:
        self._servers = Servers(directory)
        self._ports = dict(zip(range(1, brokers + 1), free_ports(brokers), strict=True))
        self._settings = dict(settings or {})
        for broker_id in self._ports:
            self.start(broker_id)
        self.wait_running()

    @property
    def servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    @property
    def pids(self) -> dict[str, int]:
        return self._servers.pids

    def start(self, broker_id: int) -> None:
        command = [sys.executable, "-m", "minilog_broker.cli.main", "broker", "--id", str(broker_id)]
        command += ["--listen", f"{HOST}:{self._ports[broker_id]}"]
        command += ["--voters", ",".join(f"{each}@{HOST}:{self._ports[each]}" for each in list(self._ports)[:3])]
        command += ["--data-dir", str(self._servers.directory / f"broker-{broker_id}")]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self._servers.start(f"broker {broker_id}", command)

    def wait_running(self) -> None:
        wait_until(lambda: self._running() == len(self.pids), "the start of minilog's brokers")

    def _running(self) -> int:
        try:
            with Admin({"bootstrap.servers": self.servers, "request.timeout.ms": _ANSWER_WITHIN_MS}) as admin:
                return sum(broker.state == "running" for broker in admin.describe_cluster().brokers)
        except MinilogError:
            return 0

    def create(self, topic: str, partitions: int, *, is_synced: bool = True, schema: pa.Schema | None = None) -> None:
        """With a schema, a typed one."""
        configs = {"flush.policy": "fsync" if is_synced else "os"}
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=3, configs=configs, schema=schema)
        with Admin({"bootstrap.servers": self.servers}) as admin:
            admin.create_topics([wanted])

    def wait_in_sync(self, topic: str, partitions: int) -> None:
        def all_are() -> bool:
            with Admin({"bootstrap.servers": self.servers}) as admin:
                found = admin.describe_topics([topic])[0].partitions
            return len(found) == partitions and all(each.leader is not None and len(each.isr) == 3 for each in found)

        wait_until(all_are, f"all replicas of {topic} in sync")

    def leader(self, topic: str) -> int:
        with Admin({"bootstrap.servers": self.servers}) as admin:
            leader = admin.describe_topics([topic])[0].partitions[0].leader
        return -1 if leader is None else leader

    def kill(self, broker_id: int) -> None:
        self._servers.kill(f"broker {broker_id}")

    def delete(self, topic: str) -> None:
        with Admin({"bootstrap.servers": self.servers}) as admin:
            admin.delete_topics([topic])

    def count(self, topic: str, partitions: int) -> int:
        """Offsets: markers of transactions have some, too."""
        with Admin({"bootstrap.servers": self.servers}) as admin:
            ends = admin.list_offsets({TopicPartition(topic, each): "latest" for each in range(partitions)})
        return sum(end or 0 for end in ends.values())

    def end(self) -> None:
        self._servers.end()
