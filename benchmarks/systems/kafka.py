"""Apache Kafka: three nodes, each broker and controller (KRaft), with the heap that its start script gives (1 GB).

A topic is synced as minilog's are by flush.messages=1. "Tuned" is what a client does: batches of 1 MB.
Secured: TLS everywhere, and SCRAM-SHA-512 for clients, with the same certificate as minilog's brokers show.
"""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from benchmarks.processes import HOST, Servers, free_ports, wait_until
from benchmarks.systems.keys import Keys

# As kafka-server-start.sh and kafka-run-class.sh start it.
_SERVER = [
    "java", "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
]  # fmt: skip
CLIENT = ["java", "-Xmx1g", "-XX:+UseG1GC"]
TUNED = {"batch.size": "1000000", "linger.ms": "5", "buffer.memory": "67108864", "max.request.size": "8388608"}
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_REPLICATED = {
    "default.replication.factor": 3, "min.insync.replicas": 2, "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3, "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.replication.factor": 3, "share.coordinator.state.topic.min.isr": 2,
    "group.initial.rebalance.delay.ms": 0,
}  # fmt: skip


class KafkaCluster:
    """See System. Needs confluent-kafka for what an administrator does."""

    name = "kafka"

    def __init__(
        self,
        directory: pathlib.Path,
        jars: pathlib.Path,
        keys: Keys | None = None,
        more_settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.class_path = f"{jars}/*"
        self._servers = Servers(directory)
        self._keys = keys
        self._more_settings = more_settings
        ports = free_ports(9)
        self._ports = dict(zip((1, 2, 3), zip(ports[:3], ports[3:6], ports[6:], strict=True), strict=True))
        for node_id in self._ports:
            self._format(node_id)
            self.start(node_id)
        self.wait_running()

    @property
    def servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port, _, _ in self._ports.values())

    @property
    def client_ports(self) -> list[int]:
        return [port for port, _, _ in self._ports.values()]

    @property
    def java_settings(self) -> dict[str, str]:
        """What a Java client needs besides the addresses."""
        if self._keys is None:
            return {}
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._keys.authority),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{login} username="{self._keys.user}" password="{self._keys.password}";',
        }

    def command_config(self) -> list[str]:
        """The same as a file, for its tools."""
        path = self._servers.directory / "client.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in self.java_settings.items()))
        return ["--command-config", str(path)]

    @property
    def pids(self) -> dict[str, int]:
        return self._servers.pids

    def _format(self, node_id: int) -> None:
        port, controller_port, peer_port = self._ports[node_id]
        voters = ",".join(f"{each}@{HOST}:{ports[1]}" for each, ports in self._ports.items())
        settings: dict[str, Any] = {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self._servers.directory / f"node-{node_id}",
            **_REPLICATED,
            **self._more_settings,
        }
        if self._keys is not None:
            settings |= _secured(self._keys, port, controller_port, peer_port)
        path = self._properties(node_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        tool = ["java", "-Xmx256m", "-cp", self.class_path, "kafka.tools.StorageTool", "format"]
        tool += ["-t", _CLUSTER_ID, "-c", str(path)]
        if self._keys is not None:
            tool += ["--add-scram", f"SCRAM-SHA-512=[name={self._keys.user},password={self._keys.password}]"]
        subprocess.run(tool, check=True, capture_output=True)

    def _properties(self, node_id: int) -> pathlib.Path:
        return self._servers.directory / f"node-{node_id}.properties"

    def start(self, node_id: int) -> None:
        command = [*_SERVER, "-cp", self.class_path, "kafka.Kafka", str(self._properties(node_id))]
        self._servers.start(f"broker {node_id}", command)

    def wait_running(self) -> None:
        wait_until(lambda: self._running() == len(self.pids), "the start of Kafka's brokers")

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        settings = {} if self._keys is None else self._keys.librdkafka_settings()
        return AdminClient(
            {"bootstrap.servers": self.servers, "log_level": 0, "reconnect.backoff.max.ms": 100, **settings}
        )

    def _running(self) -> int:
        from confluent_kafka import KafkaException

        try:
            return len(self._admin().list_topics(timeout=2).brokers)
        except KafkaException:
            return 0

    def create(self, topic: str, partitions: int, *, is_synced: bool = True) -> None:
        from confluent_kafka.cimpl import NewTopic

        admin, config = self._admin(), {"flush.messages": "1"} if is_synced else {}
        for future in admin.create_topics([NewTopic(topic, partitions, 3, config=config)]).values():
            future.result(60)

        self.wait_in_sync(topic, partitions)

    def create_single(self, topic: str, configs: dict[str, str], broker_id: int = 1) -> int:
        """One partition with one copy, on the broker whose id it gives."""
        from confluent_kafka.cimpl import NewTopic

        admin = self._admin()
        for future in admin.create_topics(
            [NewTopic(topic, 1, replica_assignment=[[broker_id]], config=configs)]
        ).values():
            future.result(60)
        wait_until(lambda: topic in admin.list_topics(timeout=10).topics, f"the creation of {topic}")
        return broker_id

    def alter(self, topic: str, configs: dict[str, str]) -> None:
        """Set settings of a topic."""
        from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

        entries = [
            ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
            for setting, value in configs.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        admin = self._admin()  # as long as it is asked
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)

    def begin_share_group_at_start(self, group: str) -> None:
        """The share group gets the records that were there before it."""
        tool = ["java", "-Xmx256m", "-cp", self.class_path, "org.apache.kafka.tools.ConfigCommand", "--alter"]
        tool += ["--bootstrap-server", self.servers, "--entity-type", "groups", "--entity-name", group]
        subprocess.run(
            [*tool, "--add-config", "share.auto.offset.reset=earliest", *self.command_config()],
            check=True,
            capture_output=True,
        )

    def wait_in_sync(self, topic: str, partitions: int) -> None:
        admin = self._admin()

        def all_are() -> bool:
            found = admin.list_topics(topic, timeout=10).topics[topic].partitions
            return len(found) == partitions and all(each.leader > 0 and len(each.isrs) == 3 for each in found.values())

        wait_until(all_are, f"all replicas of {topic} in sync")

    def leader(self, topic: str) -> int:
        return int(self._admin().list_topics(topic, timeout=10).topics[topic].partitions[0].leader)

    def kill(self, broker_id: int) -> None:
        self._servers.kill(f"broker {broker_id}")

    def delete(self, topic: str) -> None:
        admin = self._admin()  # as long as it is asked
        for future in admin.delete_topics([topic], operation_timeout=60).values():
            future.result(60)

    def count(self, topic: str, partitions: int) -> int:
        from confluent_kafka import Consumer, TopicPartition

        settings = {} if self._keys is None else self._keys.librdkafka_settings()
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "count", **settings})
        try:
            marks = [
                consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=30) for each in range(partitions)
            ]
        finally:
            consumer.close()
        return sum(high for _, high in marks)

    def member_count(self, group: str) -> int:
        from confluent_kafka import KafkaException

        try:
            return len(self._group(group).members)
        except KafkaException:  # there is none yet
            return 0

    def coordinator(self, group: str) -> int:
        return int(self._group(group).coordinator.id)

    def _group(self, group: str) -> Any:
        return self._admin().describe_consumer_groups([group], request_timeout=30)[group].result(60)

    def end(self) -> None:
        self._servers.end()


def _secured(keys: Keys, port: int, controller_port: int, peer_port: int) -> dict[str, Any]:
    """Of one node: clients log in by SCRAM over TLS, nodes speak TLS among themselves."""
    return {
        "listeners": f"CLIENTS://{HOST}:{port},PEERS://{HOST}:{peer_port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"CLIENTS://{HOST}:{port},PEERS://{HOST}:{peer_port}",
        "inter.broker.listener.name": "PEERS",
        "listener.security.protocol.map": "CONTROLLER:SSL,PEERS:SSL,CLIENTS:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keys.server,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": keys.authority,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
