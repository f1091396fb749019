"""A cluster that is closed to strangers: what the honest client feels, and every attack that was run on an open one."""

from __future__ import annotations

import datetime
import json
import pathlib
import random
import subprocess
import sys
import time
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from minilog import Admin, Consumer, NewTopic, Producer
from minilog.errors import AuthenticationFailed, BrokerNotAvailable, InvalidConfig
from minilog.stream_messages import (
    FETCH,
    HEARTBEAT,
    PRODUCE,
    REPLICATE,
    STREAM_METHODS,
    StreamMessage,
    StreamMethod,
)
from minilog.v1 import coordinator_pb2, peer_pb2
from minilog_broker.security import audit
from minilog_broker.security.certificates import (
    CURVE,
    Signing,
    broker_identity,
    certificate_pem,
    client_identity,
    issue,
    key_pem,
    read_authority,
)
from tests.cluster import HOST
from tests.integration import garbage
from tests.pool import SECURED, shared_cluster
from tests.secured import SecuredCluster, running_secured_cluster
from tests.streams_by_hand import HandStream, Place, StreamEnded

TOPIC = "flights"
RECORDS = 200
ANSWER_S = 5.0
REFUSED = ("UNAUTHENTICATED", "PERMISSION_DENIED")
OF_PEERS = [each for each in garbage.methods() if each.containing_service.name in ("PeerService", "MarkerService")]
OF_CLIENTS = [
    each
    for each in garbage.methods()
    if each not in OF_PEERS and each.containing_service.name != "AuthenticationService"
]
SENDERS = {
    "Vote": "candidate_id",
    "BeginQuorumEpoch": "leader_id",
    "WriteMarkers": "",
}


shared = shared_cluster(SECURED)


@pytest.fixture(scope="module")
def cluster(shared: SecuredCluster) -> SecuredCluster:
    with Admin(shared.client) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=3)])
    return shared


def written_and_read(cluster: SecuredCluster) -> int:
    """Some records there and back; how many came of those that were written now."""
    mark = random.randbytes(8)
    with Producer(cluster.client) as producer:
        futures = [producer.send(TOPIC, mark + bytes([number])) for number in range(RECORDS)]
        producer.flush()
        for each in futures:
            each.result(timeout=20)
    found, deadline = 0, time.monotonic() + 20
    with Consumer({**cluster.client, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([TOPIC])
        while found < RECORDS and time.monotonic() < deadline:
            found += sum(record.value is not None and record.value.startswith(mark) for record in consumer.poll(1.0))
    return found


class TestTheHonest:
    def test_a_user_writes_and_reads(self, cluster: SecuredCluster) -> None:
        assert written_and_read(cluster) == RECORDS

    def test_a_leader_that_dies_is_followed(self, cluster: SecuredCluster) -> None:
        with Admin(cluster.client) as admin:
            leader = admin.describe_topics([TOPIC])[0].partitions[0].leader
        assert leader is not None
        cluster.kill(leader)
        assert written_and_read(cluster) == RECORDS
        cluster.start(leader)
        cluster.wait_running()

    def test_sessions_that_end_are_renewed(self, tmp_path: pathlib.Path) -> None:
        """connections.max.reauth.ms is a second: producer and consumer go on for several of them."""
        with running_secured_cluster(tmp_path, 1, {"connections.max.reauth.ms": "1000"}) as short:
            with Admin(short.client) as admin:
                admin.create_topics([NewTopic(TOPIC)])
            consumer = Consumer({**short.client, "auto.offset.reset": "earliest"})
            with Producer(short.client) as producer, consumer:
                consumer.subscribe([TOPIC])
                found = 0
                for number in range(12):
                    producer.send(TOPIC, bytes([number])).result(timeout=20)
                    found += len(consumer.poll(0.4))
                deadline = time.monotonic() + 20
                while found < 12 and time.monotonic() < deadline:
                    found += len(consumer.poll(1.0))
            assert found == 12

    @pytest.mark.long
    def test_transactions_outlive_sessions(self, tmp_path: pathlib.Path) -> None:
        """Each goes on for several sessions of a second."""
        with running_secured_cluster(tmp_path, 1, {"connections.max.reauth.ms": "1000"}) as short:
            with Admin(short.client) as admin:
                admin.create_topics([NewTopic(TOPIC)])
            sent = found = 0
            with Producer({**short.client, "transactional.id": "long"}) as producer:
                for _ in range(3):
                    ends_s = time.monotonic() + 4
                    with producer.transaction():
                        while time.monotonic() < ends_s:
                            producer.send(TOPIC, b"%d" % sent)
                            sent += 1
                            time.sleep(0.002)
            settings = {**short.client, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
            with Consumer(settings) as consumer:
                consumer.subscribe([TOPIC])
                while found < sent:
                    for record in consumer.poll(10.0):
                        assert record.value == b"%d" % found
                        found += 1

    @pytest.mark.long
    def test_a_process_may_close_its_last_client_again_and_again(self, cluster: SecuredCluster) -> None:
        """gRPC ended its threads then, which stood still with Python's lock: no time-out inside the process helps."""
        settings = {name: str(value) for name, value in cluster.client.items()}
        program = [sys.executable, "-c", CLOSING]
        done = subprocess.run(program, input=json.dumps(settings), timeout=60, capture_output=True, text=True)
        assert done.stdout.split() == ["closed"], done.stderr[-2000:]

    def test_a_certificate_is_renewed_without_a_restart(self, tmp_path: pathlib.Path) -> None:
        with running_secured_cluster(tmp_path, 1) as alone:
            file = alone.folder / "server.pem"
            former = served_certificate(alone)
            authority = read_authority(*((alone.folder / f"clients.{each}").read_bytes() for each in ("pem", "key")))
            key = ec.generate_private_key(CURVE())
            identity = broker_identity("any", 1, [HOST])
            renewed = issue(identity, key.public_key(), authority, signing())
            other = alone.folder / "renewed.pem"
            other.write_bytes(key_pem(key) + certificate_pem(renewed))
            other.rename(file)
            deadline = time.monotonic() + 20
            while served_certificate(alone) == former:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert alone.states() == {1: "running"}


CLOSING = """
import json, sys
from minilog import Admin, Consumer
settings = json.load(sys.stdin)
for _ in range(200):
    with Admin(settings) as admin:
        admin.list_topics()
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["flights"])
        consumer.poll(0.02)
print("closed")
"""


def signing() -> Signing:
    return Signing(x509.random_serial_number(), datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1))


def served_certificate(cluster: SecuredCluster) -> str:
    import ssl

    return ssl.get_server_certificate((HOST, cluster.ports[1]))


class TestClientsThatAreRefused:
    def test_an_unknown_user_and_a_wrong_password_are_told_the_same(self, cluster: SecuredCluster) -> None:
        told = []
        for settings in ({"sasl.username": "nobody"}, {"sasl.password": "guessed"}):
            with Admin({**cluster.client, **settings}) as admin, pytest.raises(AuthenticationFailed) as caught:
                admin.describe_cluster()
            told.append(str(caught.value))
        assert told[0] == told[1]

    def test_a_client_in_the_clear_has_no_broker(self, cluster: SecuredCluster) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "request.timeout.ms": 1000}
        with Admin(settings) as admin, pytest.raises(BrokerNotAvailable):
            admin.describe_cluster()

    def test_a_broker_of_another_authority_is_not_believed(self, cluster: SecuredCluster) -> None:
        settings = {**cluster.client, "ssl.truststore.location": str(cluster.folder / "brokers.pem")}
        with Admin(settings) as admin, pytest.raises(AuthenticationFailed, match=r"ssl\.truststore\.location"):
            admin.describe_cluster()

    @pytest.mark.dear("it waits for a time-out of the product")
    def test_a_name_that_the_certificate_does_not_have(self, cluster: SecuredCluster) -> None:
        settings = {**cluster.client, "bootstrap.servers": f"127.0.0.2:{cluster.ports[1]}", "request.timeout.ms": 1000}
        with Admin(settings) as admin, pytest.raises((AuthenticationFailed, BrokerNotAvailable)):
            admin.describe_cluster()

    def test_a_password_never_goes_without_encryption(self, cluster: SecuredCluster) -> None:
        for protocol in ("PLAINTEXT", "SSL"):
            with pytest.raises(InvalidConfig, match="SASL_SSL"):
                Admin({**cluster.client, "security.protocol": protocol})


def stream_ends(place: Place, method: StreamMethod, request: Message | None = None, session: bytes = b"") -> str:
    """How a broker ends a stream that begins with this request."""
    stream = HandStream(place, method, session, ANSWER_S)
    try:
        if request is not None:
            stream.write(StreamMessage(request))
        for _ in stream:
            continue
    except StreamEnded as ended:
        return str(ended)
    finally:
        stream.close()
    return "well"


def audited(cluster: SecuredCluster, path: str, principal: str) -> list[str]:
    """Why broker 1 has refused this call to this principal, as its audit log tells."""
    found = []
    for line in cluster.log_text(1).splitlines():
        told = json.loads(line) if line.startswith("{") else {}
        if told.get("logger") == audit.LOGGER:
            event = json.loads(told["event"])
            refusal = (path, principal, "denied")
            if (event["method"], event["principal"], event["decision"]) == refusal:
                found.append(event["reason"])
    return found


class TestAttacksOnTheClientsListener:
    @pytest.mark.parametrize("method", OF_CLIENTS + OF_PEERS, ids=garbage.path_of)
    def test_no_call_is_answered_to_a_stranger(self, cluster: SecuredCluster, method: MethodDescriptor) -> None:
        chance = random.Random(method.full_name)
        with cluster.client_channel() as channel:
            said = garbage.call(channel, method, [garbage.request_of(method, chance)], ANSWER_S)
        assert said.startswith(REFUSED), said
        assert audited(cluster, garbage.path_of(method), "User:ANONYMOUS")

    @pytest.mark.parametrize("method", STREAM_METHODS.values(), ids=STREAM_METHODS)
    @pytest.mark.parametrize("session", [b"", random.randbytes(32)], ids=["no session", "one that nobody gave"])
    def test_no_stream_is_opened_to_a_stranger(
        self, cluster: SecuredCluster, method: StreamMethod, session: bytes
    ) -> None:
        said = stream_ends(cluster.client_place(), method, session=session)
        assert said.startswith(("AuthenticationFailed", "AuthorizationFailed")), said
        assert audited(cluster, method.path, "User:ANONYMOUS")

    def test_a_session_that_nobody_gave_is_none(self, cluster: SecuredCluster) -> None:
        with cluster.client_channel() as channel:
            call: Any = channel.unary_unary("/minilog.v1.MetadataService/GetMetadata")
            with pytest.raises(grpc.RpcError) as caught:
                call(b"", timeout=ANSWER_S, metadata=(("minilog-session-bin", random.randbytes(32)),))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture(scope="module")
def clients_keystore(cluster: SecuredCluster) -> bytes:
    """Key and certificate of a client, by the authority that clients believe."""
    authority = read_authority(*((cluster.folder / f"clients.{each}").read_bytes() for each in ("pem", "key")))
    key = ec.generate_private_key(CURVE())
    return key_pem(key) + certificate_pem(issue(client_identity("alice"), key.public_key(), authority, signing()))


class TestAttacksOnTheBrokersListener:
    @pytest.mark.parametrize("shown", ["nothing", "a client's"])
    def test_without_a_certificate_of_a_broker_there_is_no_connection_and_no_stream(
        self, cluster: SecuredCluster, clients_keystore: bytes, tmp_path: pathlib.Path, shown: str
    ) -> None:
        """TLS ends it, whatever is called: no call comes that an audit log could tell of."""
        with cluster.peer_channel(1, None if shown == "nothing" else clients_keystore) as channel:
            for method in (OF_CLIENTS[0], OF_PEERS[0]):
                said = garbage.call(channel, method, [b""], ANSWER_S)
                assert said.startswith(("UNAVAILABLE", "DEADLINE_EXCEEDED")), said
        keystore = tmp_path / "client.pem"
        keystore.write_bytes(clients_keystore)
        said = ended_by_tls(cluster.peer_place(1, None if shown == "nothing" else keystore), REPLICATE)
        assert any(each in said for each in ("closed the connection", "reset by peer", "alert", "Broken pipe")), said

    @pytest.mark.parametrize("method", [PRODUCE, FETCH], ids=["Produce", "Fetch"])
    def test_brokers_open_no_stream_of_clients(self, cluster: SecuredCluster, method: StreamMethod) -> None:
        said = stream_ends(cluster.peer_place(1, cluster.keystore_file_of(2)), method)
        assert said.startswith("AuthorizationFailed"), said
        assert audited(cluster, method.path, "Broker:minilog:2")

    @pytest.mark.parametrize("method", OF_CLIENTS, ids=garbage.path_of)
    def test_brokers_are_no_clients(self, cluster: SecuredCluster, method: MethodDescriptor) -> None:
        with cluster.peer_channel(1, cluster.keystore_of(2)) as channel:
            said = garbage.call(channel, method, [b""], ANSWER_S)
        if method.name not in ("RegisterPartitions", "ListOffsets"):  # leaders and coordinators ask each other those
            assert said.startswith(REFUSED), said
            assert audited(cluster, garbage.path_of(method), "Broker:minilog:2")

    @pytest.mark.parametrize(
        ("method", "request_"),
        [(HEARTBEAT, peer_pb2.HeartbeatRequest(broker_id=3)), (REPLICATE, peer_pb2.ReplicateRequest(broker_id=3))],
        ids=["Heartbeat", "Replicate"],
    )
    def test_a_broker_opens_streams_in_its_own_name_alone(
        self, cluster: SecuredCluster, method: StreamMethod, request_: Message
    ) -> None:
        said = stream_ends(cluster.peer_place(1, cluster.keystore_file_of(2)), method, request_)
        assert said.startswith("AuthorizationFailed"), said
        assert any("used the id of" in each for each in audited(cluster, method.path, "Broker:minilog:2"))

    @pytest.mark.parametrize(
        "method", [each for each in OF_PEERS if garbage.path_of(each) not in STREAM_METHODS], ids=garbage.path_of
    )
    def test_a_broker_speaks_in_its_own_name_alone(self, cluster: SecuredCluster, method: MethodDescriptor) -> None:
        """Broker 2's certificate, broker 3's name."""
        kind = getattr(peer_pb2, method.input_type.name, None) or getattr(coordinator_pb2, method.input_type.name)
        field = SENDERS.get(method.name, "broker_id")
        request = kind(**({field: 3} if field else {}))
        if method.name == "WriteMarkers":
            request = forged_markers(cluster, sender=2)
        with cluster.peer_channel(1, cluster.keystore_of(2)) as channel:
            said = garbage.call(channel, method, [request.SerializeToString()], ANSWER_S)
        assert said.startswith("PERMISSION_DENIED"), said
        assert any("used the id of" in each for each in audited(cluster, garbage.path_of(method), "Broker:minilog:2"))

    def test_a_certificate_of_another_cluster_is_refused(self, cluster: SecuredCluster) -> None:
        authority = read_authority(*((cluster.folder / f"brokers.{each}").read_bytes() for each in ("pem", "key")))
        key = ec.generate_private_key(CURVE())
        other = issue(broker_identity("other", 2, [HOST]), key.public_key(), authority, signing())
        with cluster.peer_channel(1, key_pem(key) + certificate_pem(other)) as channel:
            said = garbage.call(channel, OF_PEERS[0], [b""], ANSWER_S)
        assert said.startswith("UNAUTHENTICATED"), said

    def test_a_certificate_that_has_expired_is_refused(self, cluster: SecuredCluster) -> None:
        authority = read_authority(*((cluster.folder / f"brokers.{each}").read_bytes() for each in ("pem", "key")))
        key = ec.generate_private_key(CURVE())
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=2)
        short = Signing(x509.random_serial_number(), past, datetime.timedelta(hours=1))
        old = issue(broker_identity("minilog", 2, [HOST]), key.public_key(), authority, short)
        with cluster.peer_channel(1, key_pem(key) + certificate_pem(old)) as channel:
            said = garbage.call(channel, OF_PEERS[0], [b""], ANSWER_S)
        assert said.startswith(("UNAVAILABLE", "DEADLINE_EXCEEDED")), said


def ended_by_tls(place: Place, method: StreamMethod) -> str:
    """By TLS 1.3 a client's handshake is done before its certificate is looked at: it hears of that when it reads, or
    when it writes."""
    try:
        return stream_ends(place, method)
    except OSError as error:
        return str(error)


def forged_markers(cluster: SecuredCluster, sender: int) -> coordinator_pb2.WriteMarkersRequest:
    """In the name of whoever leads a partition of __transactions that `sender` does not lead."""
    with Producer({**cluster.client, "transactional.id": "held"}) as producer, producer.transaction():
        producer.send(TOPIC, b"x")
    with Admin(cluster.client) as admin:
        (found,) = admin.describe_topics(["__transactions"])
    partition = next(each for each in found.partitions if each.leader not in (sender, None))
    return coordinator_pb2.WriteMarkersRequest(
        coordinator_partition=partition.partition, coordinator_epoch=partition.leader_epoch
    )
