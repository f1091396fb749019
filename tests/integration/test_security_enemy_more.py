"""More of what an enemy tried, and what takes long: hosts, offsets of others, sessions that end, strangers."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import queue
import socket
import ssl
import struct
import threading
import time
import uuid
from typing import Any

import grpc
import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.errors import MinilogError, error_from_wire
from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog.security.mechanisms import Scram
from minilog.security.scram import SALT_BYTES, ScramCredential, ScramMechanism, salted_password
from minilog.security.secret import Secret
from minilog.stream_messages import FETCH, StreamMessage
from minilog.v1 import authentication_pb2, authentication_pb2_grpc, common_pb2, coordinator_pb2, data_pb2, metadata_pb2
from minilog_broker.server.access.scram_exchange import verifier_line
from tests.integration.garbage import HTTP2_PREFACE
from tests.integration.memory_attacks import HalfSender, _Stream, call_headers, frame
from tests.integration.test_access_rules import PASSWORD, rule, user
from tests.integration.test_security_enemy import said, session_of, topic_id_of
from tests.secured import SecuredCluster, running_secured_cluster
from tests.streams_by_hand import StreamEnded, call_of

WITHIN_S = 15.0
AUTHENTICATE = b"/minilog.v1.AuthenticationService/Authenticate"

pytestmark = pytest.mark.long


class ListeningEverywhere(SecuredCluster):
    def command(self, broker_id: int) -> list[str]:
        words = super().command(broker_id)
        at = words.index("--listen") + 1
        port = self.ports[broker_id]
        words[at] = f"0.0.0.0:{port}"
        return [*words, "--set", f"advertised.address=127.0.0.1:{port}"]


class TestHosts:
    def test_a_denial_for_an_address_of_ipv6(self, tmp_path: pathlib.Path) -> None:
        """--listen 0.0.0.0:PORT takes IPv6 too (gRPC's wildcard): a user from ::1, which is denied."""
        cluster = ListeningEverywhere(tmp_path, 1)
        try:
            cluster.start()
            cluster.wait_running()
            with Admin(cluster.client) as admin:
                admin.create_topics([NewTopic("open", num_partitions=1, replication_factor=1)])
                denied = AccessRule(
                    "User:v6", "::1", Operation.ALL, ResourceKind.TOPIC, "*", Pattern.LITERAL, Permission.DENY
                )
                user(cluster, admin, "v6", rule("v6", Operation.READ), denied)
                topic_id = topic_id_of(admin, "open")
            roots = (cluster.folder / "clients.pem").read_bytes()
            address = f"[::1]:{cluster.ports[1]}"

            async def read() -> Any:
                async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(roots)) as channel:
                    call: Any = authentication_pb2_grpc.AuthenticationServiceStub(channel).Authenticate()
                    client = Scram("SCRAM-SHA-512", "v6", Secret(PASSWORD), uuid.uuid4().hex, salted_password)
                    content: Any = client.first()
                    session = b""
                    while not session:
                        await call.write(
                            authentication_pb2.AuthenticateRequest(mechanism="SCRAM-SHA-512", content=content)
                        )
                        answer = await call.read()
                        assert error_from_wire(answer.error) is None
                        content, session = await client.respond(answer.content), answer.session
                    entry = metadata_pb2.ListOffsetsEntry(partition_id=common_pb2.PartitionId(topic_id=topic_id))
                    ask: Any = channel.unary_unary(
                        "/minilog.v1.MetadataService/ListOffsets",
                        response_deserializer=metadata_pb2.ListOffsetsResponse.FromString,
                    )
                    request = metadata_pb2.ListOffsetsRequest(entries=[entry]).SerializeToString()
                    return await ask(request, timeout=5, metadata=said(session))

            with pytest.raises(grpc.aio.AioRpcError) as caught:
                print("ANSWER FROM ::1", asyncio.run(read()))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE, caught.value  # as if there were no such topic
        finally:
            cluster.end()


class TestOffsetsOfOthers:
    def test_nobody_commits_offsets_in_the_transaction_of_another(self, tmp_path: pathlib.Path) -> None:
        with running_secured_cluster(tmp_path, 1) as cluster, Admin(cluster.client) as admin:
            admin.create_topics([NewTopic(each, num_partitions=1, replication_factor=1) for each in ("in", "out")])
            topic_id = topic_id_of(admin, "in")
            kinds = ResourceKind
            user(
                cluster,
                admin,
                "mallory",
                rule("mallory", Operation.READ, "in"),
                rule("mallory", Operation.READ, "victims", kind=kinds.GROUP),
                rule("mallory", Operation.WRITE, "mine", kind=kinds.TRANSACTIONAL_ID),
            )
            session = session_of(cluster, "mallory")
            told: MinilogError | None = None
            outcome = "committed"
            with cluster.client_channel() as channel:
                settings = {**cluster.client, "transactional.id": "victim", "delivery.timeout.ms": 6000}
                with Producer(settings) as producer:
                    try:
                        with producer.transaction() as transaction:
                            producer.send("out", b"x").result(timeout=WITHIN_S)
                            transaction.commit_offsets("victims", {TopicPartition("in", 0): 1})
                            producer_id = admin.describe_transaction("victim").producers[0].producer_id
                            request = coordinator_pb2.CommitOffsetsRequest(
                                group_id="victims",
                                offsets=[
                                    coordinator_pb2.OffsetToCommit(
                                        partition_id=common_pb2.PartitionId(topic_id=topic_id), offset=99
                                    )
                                ],
                                coordinator_epoch=-1,
                            )
                            request.transaction.transactional_id = "mine"
                            request.transaction.producer_id = producer_id
                            call: Any = channel.unary_unary(
                                "/minilog.v1.GroupService/CommitOffsets",
                                response_deserializer=coordinator_pb2.CommitOffsetsResponse.FromString,
                            )
                            for sequence in range(4):
                                request.transaction.sequence = sequence
                                answer = call(request.SerializeToString(), timeout=5, metadata=said(session))
                                told = error_from_wire(answer.error)
                                print("SEQUENCE", sequence, repr(told))
                    except MinilogError as error:
                        outcome = repr(error)
            print("VICTIM", outcome, admin.describe_transaction("victim").listing)
            print("OFFSETS", admin.describe_group("victims"))
            assert told is not None


class TestSessionsThatEnd:
    @pytest.mark.parametrize(
        ("acks", "idempotence"),
        [("all", "true")],  # without sequence numbers a batch that was on its way may be written twice, as ever
    )
    def test_nothing_is_lost_and_nothing_doubled(self, tmp_path: pathlib.Path, acks: str, idempotence: str) -> None:
        """A session of a second: a producer goes on for eight of them."""
        with running_secured_cluster(tmp_path, 1, {"connections.max.reauth.ms": "1000"}) as short:
            with Admin(short.client) as admin:
                admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=1)])
            sent, failed = 0, []
            settings = {**short.client, "acks": acks, "enable.idempotence": idempotence, "linger.ms": 1}
            with Producer(settings) as producer:
                until = time.monotonic() + 8
                futures = []
                while time.monotonic() < until:
                    for _ in range(20):
                        futures.append(producer.send("t", str(sent).encode() + b" " * 2000))
                        sent += 1
                    time.sleep(0.005)
                producer.flush()
                for each in futures:
                    try:
                        each.result(timeout=20)
                    except MinilogError as error:
                        failed.append(repr(error))
            found: list[int] = []
            with Consumer({**short.client, "auto.offset.reset": "earliest"}) as consumer:
                consumer.assign([TopicPartition("t", 0)])
                idle = 0
                while idle < 6:
                    got = [int((each.value or b"").split()[0]) for each in consumer.poll(0.5)]
                    found += got
                    idle = 0 if got else idle + 1
            lost, doubled = sent - len(set(found)), len(found) - len(set(found))
            print(f"ACKS {acks} IDEMPOTENT {idempotence} SENT {sent} FAILED {len(failed)} {failed[:1]} ", end="")
            print(f"LOST {lost} DOUBLED {doubled} OF CONSUMER")
            assert (lost - len(failed), doubled) == (0, 0)


class TestBrokersThatStart:
    def test_a_topic_that_is_not_known_yet_is_not_read_later(self, tmp_path: pathlib.Path) -> None:
        """Bob may nothing, and knows the id of a topic. He asks a broker that has replayed nothing."""
        cluster = SecuredCluster(tmp_path)
        mechanism = ScramMechanism.SCRAM_SHA_512
        credential = ScramCredential.derive(mechanism, Secret(PASSWORD), salt=b"s" * SALT_BYTES, iterations=4096)
        with (cluster.folder / "users.json").open("a") as file:
            file.write(verifier_line("bob", credential))
        try:
            cluster.start()
            cluster.wait_running()
            with Admin(cluster.client) as admin:
                admin.create_topics([NewTopic("secret", num_partitions=3, replication_factor=1)])
                topic_id = topic_id_of(admin, "secret")
            with Producer(cluster.client) as producer:
                for number in range(60):
                    producer.send("secret", b"the plans", key=str(number).encode()).result(timeout=WITHIN_S)
            cluster.kill(1, 2, 3)
            cluster.start(1)
            deadline = time.monotonic() + 20
            while True:
                try:
                    session = session_of(cluster, "bob")
                    break
                except grpc.aio.AioRpcError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
            positions = [
                data_pb2.FetchPosition(
                    partition_id=common_pb2.PartitionId(topic_id=topic_id, partition=each),
                    position_number=each + 1,
                    leader_epoch=-1,
                )
                for each in range(3)
            ]
            first = data_pb2.FetchRequest(
                credit_bytes=1 << 20,
                positions=positions,
                isolation_level=data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
            )
            requests.put(StreamMessage(first, []))
            came: list[bytes] = []
            told: list[str] = []
            call = call_of(cluster.client_place(), FETCH)(iter(requests.get, None), timeout=60, session=session)
            with contextlib.closing(call):

                def keep_alive() -> None:
                    while not came:
                        time.sleep(0.5)
                        requests.put(StreamMessage(data_pb2.FetchRequest(credit_bytes=1 << 20), []))

                threading.Thread(target=keep_alive, daemon=True).start()
                time.sleep(1.0)
                cluster.start(2, 3)
                ended = "still open"
                try:
                    for answer in call:
                        told += [str(run.error.message) for run in answer.message.runs if run.error.code]
                        came += [bytes(each) for each in answer.payloads if b"plans" in bytes(each)]
                        if came:
                            break
                except StreamEnded as error:
                    ended = str(error)
                requests.put(None)
            print("BOB READ", came[:1], ended, told)
            assert not came
        finally:
            cluster.end()


class TestStrangers:
    def test_streams_that_never_read_are_ended(self, tmp_path: pathlib.Path) -> None:
        """Nobody is known: Authenticate, with windows of nothing, so that no refusal can be written."""
        with running_secured_cluster(tmp_path, 1) as cluster:
            roots = ssl.create_default_context(cafile=str(cluster.folder / "clients.pem"))
            roots.set_alpn_protocols(["h2"])
            pid = cluster.processes[1].pid
            before = resident_mib(pid)
            connections = []
            for _ in range(5):
                plain = socket.create_connection(("127.0.0.1", cluster.ports[1]))
                one = roots.wrap_socket(plain, server_hostname="127.0.0.1")
                settings = struct.pack(">HI", 4, 0)
                one.sendall(HTTP2_PREFACE + frame(4, 0, 0, settings) + frame(4, 1, 0, b""))
                for number in range(1, 200, 2):
                    one.sendall(frame(1, 4, number, call_headers(AUTHENTICATE, b"https")))
                connections.append(one)
            deadline = time.monotonic() + 25
            ended = 0
            for one in connections:
                one.settimeout(max(0.1, (deadline - time.monotonic()) / 5))
                content = b""
                try:
                    while time.monotonic() < deadline:
                        got = one.recv(1 << 16)
                        if not got:
                            break
                        content += got
                except TimeoutError:
                    pass
                while len(content) >= 9:
                    length = int.from_bytes(content[:3], "big")
                    kind, flags = content[3], content[4]
                    ended += kind == 3 or (kind in (0, 1) and flags & 1)
                    content = content[9 + length :]
            for one in connections:
                one.close()
            print("STREAMS ENDED", ended, "OF 500; MiB", resident_mib(pid) - before)
            assert ended > 400


def resident_mib(pid: int) -> float:
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / (1 << 20)


class _Tls:
    """A socket as HalfSender uses one, over TLS."""

    def __init__(self, cluster: SecuredCluster) -> None:
        context = ssl.create_default_context(cafile=str(cluster.folder / "clients.pem"))
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("127.0.0.1", cluster.ports[1]), timeout=5.0)
        self._socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._socket.sendall(HTTP2_PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0)))
        self._socket.setblocking(False)

    def recv(self, size: int) -> bytes:
        try:
            return self._socket.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send(self, content: bytes) -> int:
        try:
            return self._socket.send(content)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def close(self) -> None:
        self._socket.close()


class Stranger(HalfSender):
    """Authenticate, with messages of any size, on a connection that takes no answer."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self._socket = _Tls(cluster)  # type: ignore[assignment]
        self._came = self._going = b""
        self._window_bytes = self._first_window_bytes = 65_535
        self._streams = {}
        self.ended = False

    def ask(self, count: int, size_bytes: int) -> None:
        length = b""
        left = size_bytes
        while left >= 0x80:
            length += bytes([left & 0x7F | 0x80])
            left >>= 7
        content = b"\x12" + length + bytes([left])
        for number in range(1, 2 * count, 2):
            self._going += frame(1, 4, number, call_headers(AUTHENTICATE, b"https"))
            head = struct.pack(">BI", 0, size_bytes + len(content)) + content
            self._streams[number] = _Stream(size_bytes + len(head), self._first_window_bytes, head)


class TestStrangersThatSend:
    def test_strangers_do_not_stop_producers(self, tmp_path: pathlib.Path) -> None:
        with running_secured_cluster(tmp_path, 1) as cluster:
            with Admin(cluster.client) as admin:
                admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=1)])
            with Producer(cluster.client) as producer:
                producer.send("t", b"x").result(timeout=WITHIN_S)
            pid = cluster.processes[1].pid
            before = resident_mib(pid)
            strangers = []
            stop = threading.Event()
            for _ in range(8):
                one = Stranger(cluster)
                one.pump(0.3)
                one.ask(8, 4_000_000)
                until = time.monotonic() + 15
                while any(each.left_bytes for each in one._streams.values()) and time.monotonic() < until:
                    one.pump(0.05)
                strangers.append(one)

            def pump() -> None:
                while not stop.is_set():
                    for each in strangers:
                        each.pump(0.0)
                    time.sleep(0.001)

            thread = threading.Thread(target=pump)
            thread.start()
            sent = [(one.ended, sum(each.left_bytes for each in one._streams.values())) for one in strangers]
            time.sleep(10)
            print("STRANGERS", sent, "MiB", resident_mib(pid) - before)
            outcome = "written"
            began = time.monotonic()
            try:
                settings = {**cluster.client, "delivery.timeout.ms": 15_000, "request.timeout.ms": 5000}
                with Producer(settings) as producer:
                    producer.send("t", b"honest").result(timeout=20)
            except (MinilogError, TimeoutError) as error:
                outcome = repr(error)
            print("HONEST", outcome, time.monotonic() - began)
            stop.set()
            thread.join()
            for one in strangers:
                one.__exit__()
            print(cluster.log_text(1)[-1500:])
            assert outcome == "written"


class TestHonestClients:
    def test_a_transaction_outlives_its_session(self, tmp_path: pathlib.Path) -> None:
        with running_secured_cluster(tmp_path, 1, {"connections.max.reauth.ms": "1000"}) as short:
            with Admin(short.client) as admin:
                admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=1)])
            failed: list[str] = []
            sent = 0
            with Producer({**short.client, "transactional.id": "long"}) as producer:
                for _ in range(3):
                    try:
                        with producer.transaction():
                            until = time.monotonic() + 4
                            while time.monotonic() < until:
                                producer.send("t", str(sent).encode())
                                sent += 1
                                time.sleep(0.002)
                    except MinilogError as error:
                        failed.append(repr(error))
            found: list[int] = []
            settings = {**short.client, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
            with Consumer(settings) as consumer:
                consumer.assign([TopicPartition("t", 0)])
                idle = 0
                while idle < 6:
                    got = [int(each.value or b"") for each in consumer.poll(0.5)]
                    found += got
                    idle = 0 if got else idle + 1
            print("TRANSACTIONS", sent, len(found), len(set(found)), failed)
            assert (failed, sorted(found)) == ([], list(range(sent)))

    def test_brokers_that_are_killed_are_no_wrong_password(self, tmp_path: pathlib.Path) -> None:
        with running_secured_cluster(tmp_path, 3, {"connections.max.reauth.ms": "2000"}) as three:
            with Admin(three.client) as admin:
                admin.create_topics([NewTopic("t", num_partitions=3, replication_factor=3)])
                settings = user(three, admin, "alice", rule("alice", Operation.WRITE, "t"))
            told: list[str] = []
            stop = threading.Event()

            def ask() -> None:
                with Admin({**settings, "request.timeout.ms": 20_000}) as client:
                    while not stop.is_set():
                        try:
                            client.list_topics()
                        except MinilogError as error:
                            told.append(repr(error)[:160])
                        time.sleep(0.02)

            threads = [threading.Thread(target=ask) for _ in range(3)]
            for each in threads:
                each.start()
            failed: list[str] = []
            with Producer({**settings, "request.timeout.ms": 20_000}) as producer:
                for round_number in range(4):
                    broker = 1 + round_number % 3
                    three.kill(broker)
                    three.start(broker)
                    until = time.monotonic() + 5
                    while time.monotonic() < until:
                        try:
                            producer.send("t", b"x").result(timeout=20)
                        except MinilogError as error:
                            failed.append(repr(error)[:160])
                        time.sleep(0.02)
            stop.set()
            for each in threads:
                each.join()
            print("TOLD", len(told), sorted(set(told))[:4], "PRODUCER", len(failed), sorted(set(failed))[:3])
            assert not [each for each in told + failed if "AuthenticationFailed" in each or "Authorization" in each]


class TestStreamsThatEnd:
    def test_a_session_that_ends_is_hardly_felt(self, tmp_path: pathlib.Path) -> None:
        """A producer that sends one record after the other: how long does one take where its session ends?"""
        with running_secured_cluster(tmp_path, 1, {"connections.max.reauth.ms": "6000"}) as short:
            with Admin(short.client) as admin:
                admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=1)])
            longest_s = 0.0
            with Producer({**short.client, "linger.ms": 0}) as producer:
                until = time.monotonic() + 16
                producer.send("t", b"x").result(timeout=30)
                while time.monotonic() < until:
                    began = time.monotonic()
                    producer.send("t", b"x").result(timeout=30)
                    longest_s = max(longest_s, time.monotonic() - began)
                    time.sleep(0.02)
            print("LONGEST", longest_s)
            assert longest_s < 2.0
