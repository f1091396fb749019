"""minilog: three brokers with default settings, started as `minilog broker` is. Secured as by `minilog up --secure`."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping, Sequence

import pyarrow as pa

from benchmarks.processes import HOST, Servers, free_ports, wait_until
from benchmarks.systems.keys import Keys
from minilog import Admin, NewTopic, TopicPartition, TopicSchema
from minilog.errors import MinilogError
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, coordinator_partition

_ANSWER_WITHIN_MS = 2_000
_STREAM_PORT_OFFSET = 1_000  # the default of stream.port.offset


class MinilogCluster:
    """See System."""

    name = "minilog"

    def __init__(
        self,
        directory: pathlib.Path,
        settings: Mapping[str, str] | None = None,
        brokers: int = 3,
        keys: Keys | None = None,
        arguments: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self._servers = Servers(directory)
        self._keys = keys
        self._ports = dict(zip(range(1, brokers + 1), free_ports(brokers), strict=True))
        self._peer_ports = self._ports
        if keys is not None:
            self._peer_ports = dict(zip(self._ports, free_ports(brokers), strict=True))
        self._settings = dict(settings or {})
        self._arguments = dict(arguments or {})  # more of the command line, by broker
        for broker_id in self._ports:
            self.start(broker_id)
        self.wait_running()

    @property
    def servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports.values())

    @property
    def client_ports(self) -> list[int]:
        """Of calls, and of streams."""
        return [*self._ports.values(), *(port + _STREAM_PORT_OFFSET for port in self._ports.values())]

    @property
    def pids(self) -> dict[str, int]:
        return self._servers.pids

    def start(self, broker_id: int) -> None:
        command = [sys.executable, "-m", "minilog_tools.cli.main", "broker", "--id", str(broker_id)]
        command += ["--listen", f"{HOST}:{self._ports[broker_id]}"]
        voters = list(self._ports)[:3]
        command += ["--voters", ",".join(f"{each}@{HOST}:{self._peer_ports[each]}" for each in voters)]
        command += ["--data-dir", str(self._servers.directory / f"broker-{broker_id}")]
        secured: dict[str, str] = {}
        if self._keys is not None:
            secured = self._keys.security.settings(broker_id, f"{HOST}:{self._peer_ports[broker_id]}")
        for name, value in {**secured, **self._settings}.items():
            command += ["--set", f"{name}={value}"]
        self._servers.start(f"broker {broker_id}", [*command, *self._arguments.get(broker_id, ())])

    def wait_running(self) -> None:
        wait_until(lambda: self._running() == len(self.pids), "the start of minilog's brokers")

    def _admin(self, settings: Mapping[str, object] | None = None) -> Admin:
        secured = {} if self._keys is None else self._keys.security.client_settings()
        return Admin({"bootstrap.servers": self.servers, **secured, **(settings or {})})

    def _running(self) -> int:
        try:
            with self._admin({"request.timeout.ms": _ANSWER_WITHIN_MS}) as admin:
                return sum(broker.state == "running" for broker in admin.describe_cluster().brokers)
        except MinilogError:
            return 0

    def create(
        self, topic: str, partitions: int, *, is_synced: bool = True, schema: pa.Schema | TopicSchema | None = None
    ) -> None:
        """With a schema, a typed one."""
        configs = {"flush.policy": "fsync" if is_synced else "os"}
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=3, configs=configs, schema=schema)
        with self._admin() as admin:
            admin.create_topics([wanted])

    def wait_in_sync(self, topic: str, partitions: int) -> None:
        def all_are() -> bool:
            with self._admin() as admin:
                found = admin.describe_topics([topic])[0].partitions
            return len(found) == partitions and all(each.leader is not None and len(each.isr) == 3 for each in found)

        wait_until(all_are, f"all replicas of {topic} in sync")

    def leader(self, topic: str) -> int:
        with self._admin() as admin:
            leader = admin.describe_topics([topic])[0].partitions[0].leader
        return -1 if leader is None else leader

    def kill(self, broker_id: int) -> None:
        self._servers.kill(f"broker {broker_id}")

    def delete(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic])

    def count(self, topic: str, partitions: int) -> int:
        """Offsets: markers of transactions have some, too."""
        with self._admin() as admin:
            ends = admin.list_offsets({TopicPartition(topic, each): "latest" for each in range(partitions)})
        return sum(end or 0 for end in ends.values())

    def member_count(self, group: str) -> int:
        with self._admin() as admin:
            return {each.group_id: each.member_count for each in admin.list_groups()}.get(group, 0)

    def coordinator(self, group: str) -> int:
        with self._admin() as admin:
            partitions = admin.describe_topics([GROUPS_TOPIC_NAME])[0].partitions
        leader = partitions[coordinator_partition(group)].leader
        return -1 if leader is None else leader

    def end(self) -> None:
        self._servers.end()
