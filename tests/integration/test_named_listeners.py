"""Clients inside and outside of a network: each touches the ports of its own listener, and brokers those of neither.

Each broker listens on `inside` (in the clear, loopback), on `outside` (SASL_SSL, behind a TCP proxy on other ports) and
for other brokers; there is no listener without a name.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import pathlib
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from minilog import Admin, Consumer, NewTopic, Producer
from minilog.admin.security import UserUpsertion
from minilog.errors import AuthenticationFailed, BrokerNotAvailable, TimedOut
from minilog.types import TopicPartition
from minilog.v1 import metadata_pb2, metadata_pb2_grpc, peer_pb2, peer_pb2_grpc
from minilog_broker.security.certificates import (
    CURVE,
    Signing,
    certificate_pem,
    client_identity,
    issue,
    key_pem,
    read_authority,
)
from tests.cluster import HOST, OF_NOW, STREAM_PORT_OFFSET, broker_name, free_ports, pairs_of, running_program
from tests.connections import connections_of
from tests.proxy import Proxy
from tests.rules import proves
from tests.secured import SecuredCluster

pytestmark = proves("MD.24")

TOPIC = "flights"
RECORDS = 300
LOOK_S = 0.01
CLIENT = """
import json, sys, time
from minilog import Admin, Consumer, Producer
settings = json.loads(sys.stdin.readline())
producer, consumer, admin = Producer(settings), Consumer({**settings, "auto.offset.reset": "earliest"}), Admin(settings)
mark = settings["client.id"].encode()
futures = [producer.send("flights", mark, partition=number % 3) for number in range(300)]
producer.flush()
written = len({(each.result().partition, each.result().offset) for each in futures})
consumer.subscribe(["flights"])
found, deadline = 0, time.monotonic() + 30
while found < 300 and time.monotonic() < deadline:
    found += sum(record.value == mark for record in consumer.poll(1.0))
told = sorted([each.host, each.port] for each in admin.describe_cluster().brokers)
print(json.dumps({"written": written, "found": found, "told": told}), flush=True)
sys.stdin.readline()
"""


class NamedCluster(SecuredCluster):
    """`outside_of`: the brokers that have that listener, all by default."""

    def __init__(self, directory: pathlib.Path, brokers: int = 3, outside_of: Collection[int] | None = None) -> None:
        super().__init__(directory, brokers)
        free = free_ports(2 * brokers)
        self.inside_ports = dict(zip(self.ports, free[:brokers], strict=True))
        self.outside_ports = dict(zip(self.ports, free[brokers:], strict=True))
        self.outside_of = set(self.ports if outside_of is None else outside_of)
        # `ports` are the public ones: those of the proxy, which opens them when the broker listens.
        self.proxy = Proxy(
            {broker_name(each): pairs_of(self.ports[each], self.outside_ports[each]) for each in self.ports}
        )
        self.inside: dict[str, Any] = {
            "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in self.inside_ports.values())
        }

    def command(self, broker_id: int) -> list[str]:
        settings = {
            **self.security.settings(broker_id, f"{HOST}:{self.peer_ports[broker_id]}"),
            "security.protocol": "PLAINTEXT",
            "ssl.keystore.location": "",
            "listeners": f"inside://{HOST}:{self.inside_ports[broker_id]}",
            "listener.security.protocol.map": "inside:PLAINTEXT",
        }
        if broker_id in self.outside_of:
            settings["listeners"] += f",OUTSIDE://{HOST}:{self.outside_ports[broker_id]}"
            settings["listener.security.protocol.map"] += ",OUTSIDE:SASL_SSL"
            settings["advertised.listeners"] = f"OUTSIDE://{HOST}:{self.ports[broker_id]}"
            settings["listener.name.outside.ssl.keystore.location"] = str(self.folder.absolute() / "server.pem")
        else:
            del settings["super.users"], settings["sasl.scram.users.file"]
        command = [sys.executable, "-m", "minilog_tools.cli.main", "broker", "--id", str(broker_id)]
        command += ["--voters", self.voter_list, "--data-dir", str(self.data_directory(broker_id))]
        command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        return command

    def states(self) -> dict[int, str]:
        with Admin({**self.inside, "request.timeout.ms": 2000}) as admin:
            return {broker.id: broker.state for broker in admin.describe_cluster().brokers}


@contextlib.contextmanager
def running(cluster: NamedCluster) -> Iterator[NamedCluster]:
    try:
        cluster.start()
        cluster.wait_running()
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamedCluster]:
    with running(NamedCluster(tmp_path_factory.mktemp("named"))) as found:
        with Admin(found.inside) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=3)])
        yield found


@contextlib.contextmanager
def watched(pid: int) -> Iterator[set[int]]:
    """The ports that a process is connected to at any look while the block runs, and at the end of it."""
    touched: set[int] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            touched.update(ends.remote for ends in connections_of(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield touched
        touched.update(ends.remote for ends in connections_of(pid))
    finally:
        over.set()
        thread.join()


def ports_touched(settings: Mapping[str, Any]) -> tuple[dict[str, Any], set[int]]:
    """What a client of its own process says, and the ports that it was connected to from its start to its end."""
    with running_program([sys.executable, "-c", CLIENT]) as client, watched(client.pid) as touched:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(json.dumps({name: str(value) for name, value in settings.items()}) + "\n")
        client.stdin.flush()
        said = client.stdout.readline()
        assert said, client.communicate()[1]
    return json.loads(said), touched


def both_of(ports: Mapping[int, int]) -> set[int]:
    """Ports of calls, and those of streams beside them."""
    return {port + offset for port in ports.values() for offset in (0, STREAM_PORT_OFFSET)}


def test_a_client_outside_is_told_the_proxys_ports_and_touches_no_other(cluster: NamedCluster) -> None:
    said, touched = ports_touched({**cluster.client, "client.id": "outside"})
    assert (said["written"], said["found"]) == (RECORDS, RECORDS)
    assert said["told"] == sorted([HOST, port] for port in cluster.ports.values())
    assert touched == both_of(cluster.ports)


def test_a_client_inside_touches_the_ports_inside_alone(cluster: NamedCluster) -> None:
    said, touched = ports_touched({**cluster.inside, "client.id": "inside"})
    assert (said["written"], said["found"]) == (RECORDS, RECORDS)
    assert said["told"] == sorted([HOST, port] for port in cluster.inside_ports.values())
    assert touched == both_of(cluster.inside_ports)


def test_brokers_come_to_each_other_on_neither(cluster: NamedCluster) -> None:
    of_clients = both_of(cluster.ports) | both_of(cluster.inside_ports) | both_of(cluster.outside_ports)
    for broker_id, process in cluster.processes.items():
        remote = {ends.remote for ends in connections_of(process.pid)}
        assert not remote & of_clients
        others = {each: port for each, port in cluster.peer_ports.items() if each != broker_id}
        assert remote & set(others.values()), "and they do come to each other"
        assert remote & (both_of(others) - set(others.values())), "for streams, too"
    with grpc.insecure_channel(f"{HOST}:{cluster.inside_ports[1]}") as channel:
        with pytest.raises(grpc.RpcError) as refused:
            peer_pb2_grpc.PeerServiceStub(channel).Vote(peer_pb2.VoteRequest(), timeout=5)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_each_listener_has_its_own_rules(cluster: NamedCluster) -> None:
    with Admin(cluster.client) as admin:
        admin.alter_users([UserUpsertion("bob", "bobs-password")])
    bob = {**cluster.client, "sasl.username": "bob", "sasl.password": "bobs-password"}
    deadline, seen = time.monotonic() + 20, None
    while seen is None and time.monotonic() < deadline:
        with contextlib.suppress(AuthenticationFailed), Admin(bob) as admin:  # until all brokers know him
            seen = admin.list_topics()
    assert seen == [], "no rule lets him see any"
    with Admin(cluster.inside) as admin:
        assert admin.list_topics() == [TOPIC]
    nobody = {"bootstrap.servers": cluster.bootstrap_servers, "request.timeout.ms": 2000}
    with Admin(nobody) as admin, pytest.raises(BrokerNotAvailable):
        admin.list_topics()


def test_metadata_names_the_listener_that_was_asked(cluster: NamedCluster) -> None:
    with grpc.insecure_channel(f"{HOST}:{cluster.inside_ports[2]}") as channel:
        stub = metadata_pb2_grpc.MetadataServiceStub(channel)
        answer = stub.GetMetadata(metadata_pb2.GetMetadataRequest(client=OF_NOW), timeout=5)
    assert answer.listener == "inside"
    assert {(each.broker_id, each.port) for each in answer.brokers} == set(cluster.inside_ports.items())
    assert not answer.unreachable_brokers


@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_a_broker_without_the_listener_is_named_and_waited_for(tmp_path: pathlib.Path) -> None:
    with running(NamedCluster(tmp_path, 2, outside_of=[1])) as cluster:
        outside = {**cluster.client, "bootstrap.servers": f"{HOST}:{cluster.ports[1]}"}
        with Admin(cluster.inside) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])
            (topic,) = admin.describe_topics([TOPIC])
            there, elsewhere = (each.partition for each in sorted(topic.partitions, key=lambda each: each.leader or 0))
        with Admin({**outside, "request.timeout.ms": 1500}) as admin:
            told = {each.id: (each.host, each.port) for each in admin.describe_cluster().brokers}
            assert told == {1: (HOST, cluster.ports[1]), 2: ("", 0)}
            assert "LISTENER_NOT_FOUND" in {each.code for each in admin.cluster_health().problems}
            with pytest.raises(TimedOut, match="broker 2 has no listener 'outside'"):
                admin.list_offsets({TopicPartition(TOPIC, elsewhere): "latest"})
        with Producer({**outside, "delivery.timeout.ms": 1500, "request.timeout.ms": 1500}) as producer:
            producer.send(TOPIC, b"x", partition=there).result(timeout=20)
            with pytest.raises(TimedOut, match="LISTENER_NOT_FOUND: broker 2 has no listener 'outside'"):
                producer.send(TOPIC, b"x", partition=elsewhere).result(timeout=20)
        with Producer({**outside, "delivery.timeout.ms": 60_000}) as producer:
            waits = producer.send(TOPIC, b"late", partition=elsewhere)
            cluster.stop(2)
            cluster.outside_of.add(2)
            cluster.start(2)
            assert waits.result(timeout=60).partition == elsewhere
        with Consumer({**cluster.inside, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition(TOPIC, elsewhere)])
            assert [record.value for record in consumer.poll(10.0)] == [b"late"]


@pytest.mark.long
@pytest.mark.dear("it starts brokers again, or a cluster of its own")
def test_listeners_have_certificates_and_ways_to_log_in_of_their_own(tmp_path: pathlib.Path) -> None:
    """One with passwords, one with certificates, and what brokers are shown elsewhere: of one broker, with one user."""
    cluster = SecuredCluster(tmp_path, 1)
    (port,) = free_ports(1)
    key, now = ec.generate_private_key(CURVE()), datetime.datetime.now(datetime.UTC)
    authority = read_authority(
        (cluster.folder / "clients.pem").read_bytes(), (cluster.folder / "clients.key").read_bytes()
    )
    signing = Signing(x509.random_serial_number(), now, datetime.timedelta(days=1))
    certificate = issue(client_identity("admin"), key.public_key(), authority, signing)
    keystore = tmp_path / "admin.pem"
    keystore.write_bytes(key_pem(key) + certificate_pem(certificate))
    settings = {
        "listeners": f"certificates://{HOST}:{port}",
        "listener.security.protocol.map": "certificates:SSL",
        "listener.name.certificates.ssl.truststore.location": str(cluster.folder.absolute() / "clients.pem"),
    }
    cluster.arguments[1] = [*cluster.arguments[1], *(f"--set={name}={value}" for name, value in settings.items())]
    by_certificate = {
        "bootstrap.servers": f"{HOST}:{port}",
        "security.protocol": "SSL",
        "ssl.truststore.location": cluster.client["ssl.truststore.location"],
    }
    try:
        cluster.start()
        cluster.wait_running()
        with Admin(cluster.client) as admin:
            admin.create_topics([NewTopic(TOPIC)])
            assert [each.port for each in admin.describe_cluster().brokers] == [cluster.ports[1]]
        with Admin({**by_certificate, "ssl.keystore.location": str(keystore)}) as admin:
            assert [each.port for each in admin.describe_cluster().brokers] == [port]
            assert admin.list_topics() == [TOPIC]
        quickly = {"request.timeout.ms": 1000}
        for wrong in (by_certificate, {**cluster.client, "bootstrap.servers": f"{HOST}:{port}"}):
            with Admin({**wrong, **quickly}) as admin, pytest.raises(BrokerNotAvailable):
                admin.list_topics()
    finally:
        cluster.end()
