"""What an enemy tried against the security of brokers: each test says how it should be."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa
import pytest

from minilog import Admin, Consumer, NewTopic, Producer, TopicPartition
from minilog.admin.security import UserUpsertion
from minilog.errors import AuthenticationFailed, MinilogError, UnknownProducerId, error_from_wire
from minilog.record_batch.builder import build_batch
from minilog.security.access_rules import AccessRule, Operation, Pattern, Permission, ResourceKind
from minilog.security.mechanisms import Scram
from minilog.security.scram import salted_password
from minilog.security.secret import Secret
from minilog.stream_messages import FETCH, PRODUCE, StreamMessage
from minilog.v1 import (
    admin_pb2,
    authentication_pb2,
    authentication_pb2_grpc,
    common_pb2,
    coordinator_pb2,
    data_pb2,
    metadata_pb2,
    metadata_pb2_grpc,
)
from tests.integration.test_access_rules import PASSWORD, rule, user
from tests.rules import proves
from tests.secured import SecuredCluster, running_secured_cluster
from tests.streams_by_hand import HandStream, Place, StreamEnded

pytestmark = [proves("MD.10"), pytest.mark.long]

OPEN, HIDDEN = "open", "hidden"
WITHIN_S = 15.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with running_secured_cluster(tmp_path_factory.mktemp("enemy"), 1) as running:
        with Admin(running.client) as admin:
            admin.create_topics([NewTopic(each, num_partitions=1, replication_factor=1) for each in (OPEN, HIDDEN)])
        yield running


@pytest.fixture
def admin(cluster: SecuredCluster) -> Iterator[Admin]:
    with Admin(cluster.client) as client:
        yield client


def session_of(cluster: SecuredCluster, name: str, password: str = PASSWORD, broker_id: int = 1) -> bytes:
    """A session by hand."""

    async def exchange() -> bytes:
        roots = (cluster.folder / "clients.pem").read_bytes()
        address = f"127.0.0.1:{cluster.ports[broker_id]}"
        async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(roots)) as channel:
            call: Any = authentication_pb2_grpc.AuthenticationServiceStub(channel).Authenticate()
            client = Scram("SCRAM-SHA-512", name, Secret(password), uuid.uuid4().hex, salted_password)
            content: bytes | None = client.first()
            mechanism = "SCRAM-SHA-512"
            while content is not None:
                await call.write(authentication_pb2.AuthenticateRequest(mechanism=mechanism, content=content))
                answer = await call.read()
                if (error := error_from_wire(answer.error)) is not None:
                    raise error
                content = await client.respond(answer.content)
                if answer.session:
                    return bytes(answer.session)
            raise AssertionError("no session")

    return asyncio.run(exchange())


def said(session: bytes) -> tuple[tuple[str, bytes], ...]:
    return (("minilog-session-bin", session),)


def topic_id_of(admin: Admin, name: str) -> bytes:
    (topic,) = admin.describe_topics([name])
    return uuid.UUID(topic.id).bytes


class RawProduce:
    """A produce stream by hand, of a user."""

    def __init__(self, place: Place, session: bytes) -> None:
        self._stream = HandStream(place, PRODUCE, session, timeout_s=120)
        self._number = 0

    def send(
        self, topic_id: bytes, batch: bytes, transactional_id: str | None = None, *, proof: bytes = b""
    ) -> MinilogError | None:
        self._number += 1
        entry = data_pb2.ProduceEntry(
            correlation_id=self._number,
            partition_id=common_pb2.PartitionId(topic_id=topic_id, partition=0),
            leader_epoch=0,
            producer_proof=proof,
        )
        if transactional_id is not None:
            entry.transaction.transactional_id = transactional_id
        self._stream.write(StreamMessage(data_pb2.ProduceRequest(acks=-1, timeout_ms=5000, entries=[entry]), [batch]))
        while True:
            for result in next(self._stream).message.results:
                if result.correlation_id == self._number:
                    return error_from_wire(result.error)

    def close(self) -> None:
        self._stream.cancel()


def read_committed(cluster: SecuredCluster, topic: str, within_s: float = 6.0) -> list[bytes | None]:
    found: list[bytes | None] = []
    settings = {**cluster.client, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            found += [each.value for each in consumer.poll(0.5)]
    return found


class TestTransactionsOfOthers:
    def test_nobody_writes_into_the_open_transaction_of_another(self, cluster: SecuredCluster, admin: Admin) -> None:
        """Mallory may write the topic, and transactions of her own name alone."""
        admin.create_topics([NewTopic("ledger", num_partitions=1, replication_factor=1)])
        topic_id = topic_id_of(admin, "ledger")
        user(
            cluster,
            admin,
            "mallory",
            rule("mallory", Operation.WRITE, "ledger"),
            rule("mallory", Operation.WRITE, "mine", kind=ResourceKind.TRANSACTIONAL_ID),
        )
        session = session_of(cluster, "mallory")
        told: MinilogError | None = None
        outcome = "committed"
        settings = {**cluster.client, "transactional.id": "victim", "delivery.timeout.ms": 6000}
        with Producer(settings) as producer:
            try:
                with producer.transaction():
                    producer.send("ledger", b"of the victim").result(timeout=WITHIN_S)
                    described = admin.describe_transaction("victim")
                    producer_id = described.producers[0].producer_id
                    stream = RawProduce(cluster.client_place(), session)
                    forged = build_batch(
                        topic_id,
                        0,
                        pa.record_batch({"value": [b"of mallory"]}),
                        timestamp_us=1,
                        producer_id=producer_id,
                        producer_epoch=0,
                        base_sequence=1,
                        transactional=True,
                    )
                    told = stream.send(topic_id, forged, "mine")
                    stream.close()
            except MinilogError as error:
                outcome = repr(error)
        read = read_committed(cluster, "ledger")
        state = admin.describe_transaction("victim")
        print("ANSWER TO MALLORY", repr(told), "VICTIM", outcome, "READ", read, "STATE", state)
        assert told is not None
        assert read == [b"of the victim"]


class TestProducerIdsOfOthers:
    def test_junk_under_producer_ids_of_others_takes_nothing_from_them(
        self, cluster: SecuredCluster, admin: Admin
    ) -> None:
        """Mallory may write and read the topic. Ids are handed out in order, and stand in each batch that she reads."""
        admin.create_topics([NewTopic("shared", num_partitions=1, replication_factor=1)])
        topic_id = topic_id_of(admin, "shared")
        user(cluster, admin, "mallory", rule("mallory", Operation.WRITE, "shared"))
        session = session_of(cluster, "mallory")

        def forged(producer_id: int, epoch: int = 0, sequence: int = 0, *, transactional: bool = False) -> bytes:
            return build_batch(
                topic_id,
                0,
                pa.record_batch({"value": [b"junk"]}),
                timestamp_us=1,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )

        honest = {**cluster.client, "delivery.timeout.ms": 10_000, "linger.ms": 0}
        with cluster.client_channel() as channel, Producer(honest) as living:
            living.send("shared", b"living 0").result(timeout=WITHIN_S)
            stub = metadata_pb2_grpc.MetadataServiceStub(channel)
            own = stub.InitProducerId(metadata_pb2.InitProducerIdRequest(), metadata=said(session))
            stream, before, after = (
                RawProduce(cluster.client_place(), session),
                own.producer_id - 1,
                own.producer_id + 1,
            )
            told = [stream.send(topic_id, forged(each), proof=own.producer_proof) for each in range(after, after + 8)]
            told += [stream.send(topic_id, forged(after + 8))]
            told += [stream.send(topic_id, forged(before, *at), proof=own.producer_proof) for at in ((0, 1), (1, 0))]
            for number in range(1, 4):
                living.send("shared", b"living %d" % number).result(timeout=WITHIN_S)
            for number in range(6):
                with Producer(honest) as producer:
                    producer.send("shared", b"later %d" % number).result(timeout=WITHIN_S)
            with Producer({**honest, "transactional.id": "whole"}) as producer, producer.transaction():
                producer.send("shared", b"in a transaction").result(timeout=WITHIN_S)
            assert stream.send(topic_id, forged(own.producer_id), proof=own.producer_proof) is None
            stream.close()
        assert [type(each) for each in told] == [UnknownProducerId] * len(told)
        expected = [b"living %d" % number for number in range(4)] + [b"later %d" % number for number in range(6)]
        assert read_committed(cluster, "shared", within_s=2.0) == [*expected, b"in a transaction", b"junk"]


class TestMemory:
    def test_names_that_are_remembered_are_short(self, cluster: SecuredCluster, admin: Admin) -> None:
        """Who may write transactions of a prefix names each of them once, a MiB long."""
        topic_id = topic_id_of(admin, OPEN)
        prefix = AccessRule(
            "User:memory", "*", Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, "t-", Pattern.PREFIXED, Permission.ALLOW
        )
        user(cluster, admin, "memory", rule("memory", Operation.WRITE), prefix)
        session = session_of(cluster, "memory")
        pid = cluster.processes[1].pid
        before = resident_mib(pid)
        stream = RawProduce(cluster.client_place(), session)
        for number in range(300):
            stream.send(topic_id, b"", f"t-{number}-" + "x" * (1 << 20))
        held = resident_mib(pid) - before
        stream.close()
        print("MiB HELD BY ONE STREAM", held)
        assert held < 100


def resident_mib(pid: int) -> float:
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / (1 << 20)


class TestWhatErrorsTell:
    def test_an_id_does_not_tell_the_name(self, cluster: SecuredCluster, admin: Admin) -> None:
        user(cluster, admin, "curious")
        session = session_of(cluster, "curious")
        hidden, missing = (self._told(cluster, session, each) for each in (topic_id_of(admin, HIDDEN), b"0" * 16))
        print(hidden)
        assert not any(HIDDEN in each for each in hidden), hidden
        assert hidden == missing
        lines = [line for line in cluster.log_text(1).splitlines() if "User:curious" in line and "denied" in line]
        assert sum(f"topic:{HIDDEN}" in line for line in lines) == len(hidden), lines  # the audit log has the truth

    def _told(self, cluster: SecuredCluster, session: bytes, topic_id: bytes) -> list[str]:
        """What each call by this id is answered, without the id."""
        told = []
        with cluster.client_channel() as channel:
            partition_id = common_pb2.PartitionId(topic_id=topic_id, partition=0)
            for path, request in (
                (
                    "/minilog.v1.MetadataService/ListOffsets",
                    metadata_pb2.ListOffsetsRequest(entries=[metadata_pb2.ListOffsetsEntry(partition_id=partition_id)]),
                ),
                (
                    "/minilog.v1.DataService/DeleteRecords",
                    data_pb2.DeleteRecordsRequest(entries=[data_pb2.DeleteRecordsEntry(partition_id=partition_id)]),
                ),
                (
                    "/minilog.v1.AdminService/DeleteTopics",
                    admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.TopicDeletion(topic_id=topic_id)]),
                ),
            ):
                call: Any = channel.unary_unary(path)
                with pytest.raises(grpc.RpcError) as caught:
                    call(request.SerializeToString(), timeout=5, metadata=said(session))
                told.append(f"{caught.value.code()} {caught.value.details()}")
            stream = RawProduce(cluster.client_place(), session)
            told.append(repr(stream.send(topic_id, b"")))
            stream.close()
        return [each.replace(topic_id.hex(), "ID") for each in told]

    def test_offsets_of_hidden_topics_are_not_shown(self, cluster: SecuredCluster, admin: Admin) -> None:
        """Kafka shows offsets of topics that the caller may DESCRIBE alone."""
        with Producer(cluster.client) as producer:
            producer.send(HIDDEN, b"x").result(timeout=WITHIN_S)
        with Consumer({**cluster.client, "group.id": "report", "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition(HIDDEN, 0, 0)])
            consumer.poll(1.0)
            consumer.commit({TopicPartition(HIDDEN, 0): 1})
        user(cluster, admin, "peeper", rule("peeper", Operation.DESCRIBE, "report", kind=ResourceKind.GROUP))
        metadata = said(session_of(cluster, "peeper"))
        with cluster.client_channel() as channel:
            call: Any = channel.unary_unary(
                "/minilog.v1.GroupService/DescribeGroup",
                response_deserializer=coordinator_pb2.DescribeGroupResponse.FromString,
            )
            request = coordinator_pb2.DescribeGroupRequest(group_id="report")
            answer = call(request.SerializeToString(), timeout=5, metadata=metadata)
        print(answer)
        assert not answer.offsets


class TestHonest:
    def test_a_user_is_not_told_a_wrong_password_by_a_broker_that_starts(self, tmp_path: pathlib.Path) -> None:
        """One broker of three is up: it has replayed nothing, and knows no user yet."""
        with running_secured_cluster(tmp_path) as three:
            with Admin(three.client) as admin:
                settings = user(three, admin, "alice")
            three.kill(1, 2, 3)
            three.start(1)
            address = f"127.0.0.1:{three.ports[1]}"
            caught: BaseException | None = None
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                try:
                    with Admin({**settings, "bootstrap.servers": address, "request.timeout.ms": 1500}) as client:
                        client.describe_cluster()
                except MinilogError as error:
                    caught = error
                    if "did not answer" not in str(error) or isinstance(error, AuthenticationFailed):
                        break
            print("TOLD", repr(caught))
            assert not isinstance(caught, AuthenticationFailed)


class TestMoreOfHonest:
    def test_a_cluster_that_starts_anew_knows_its_users_or_says_nothing(self, tmp_path: pathlib.Path) -> None:
        """All brokers are started again, as after a power cut: what does alice's program hear?"""
        with running_secured_cluster(tmp_path) as three:
            with Admin(three.client) as admin:
                settings = user(three, admin, "alice")
            three.kill(1, 2, 3)
            told: list[str] = []
            with Admin({**settings, "request.timeout.ms": 20_000}) as client:
                three.start(1, 2, 3)
                until = time.monotonic() + 15
                while time.monotonic() < until:
                    try:
                        client.list_topics()
                        told.append("listed")
                        break
                    except MinilogError as error:
                        told.append(repr(error)[:150])
            print("RESTART", told[:3], len(told))
            assert not any("AuthenticationFailed" in each for each in told)


class TestInternalTopics:
    def test_nobody_writes_the_logs_of_coordinators(self, cluster: SecuredCluster, admin: Admin) -> None:
        with Producer({**cluster.client, "transactional.id": "any"}) as producer, producer.transaction():
            producer.send(OPEN, b"x")
        everything = AccessRule(
            "User:allof", "*", Operation.ALL, ResourceKind.TOPIC, "*", Pattern.LITERAL, Permission.ALLOW
        )
        user(cluster, admin, "allof", everything)
        session = session_of(cluster, "allof")
        told = []
        with cluster.client_channel() as channel:
            stream = RawProduce(cluster.client_place(), session)
            for name in ("__transactions",):
                topic_id = topic_id_of(admin, name)
                batch = build_batch(topic_id, 0, pa.record_batch({"value": [b"forged"]}), timestamp_us=1)
                told.append(stream.send(topic_id, batch))
                call: Any = channel.unary_unary(
                    "/minilog.v1.DataService/DeleteRecords",
                    response_deserializer=data_pb2.DeleteRecordsResponse.FromString,
                )
                partition_id = common_pb2.PartitionId(topic_id=topic_id, partition=0)
                request = data_pb2.DeleteRecordsRequest(
                    timeout_ms=3000, entries=[data_pb2.DeleteRecordsEntry(partition_id=partition_id, before_offset=-1)]
                )
                answer = call(request.SerializeToString(), timeout=8, metadata=said(session))
                told.append(error_from_wire(answer.results[0].error))
                call = channel.unary_unary("/minilog.v1.AdminService/DeleteTopics")
            stream.close()
        print("INTERNAL", told)
        assert all(told)

    def test_a_password_that_changes_ends_streams(self, cluster: SecuredCluster, admin: Admin) -> None:
        user(cluster, admin, "changing", rule("changing", Operation.READ))
        topic_id = topic_id_of(admin, OPEN)
        partition_id = common_pb2.PartitionId(topic_id=topic_id, partition=0)
        position = data_pb2.FetchPosition(partition_id=partition_id, position_number=1, leader_epoch=-1)
        stream = HandStream(cluster.client_place(), FETCH, session_of(cluster, "changing"), timeout_s=20)
        with contextlib.closing(stream):
            stream.write(StreamMessage(data_pb2.FetchRequest(credit_bytes=1 << 20, positions=[position]), []))
            next(stream)
            admin.alter_users([UserUpsertion("changing", "another")])
            began = time.monotonic()
            with pytest.raises(StreamEnded, match="AuthenticationFailed"):
                list(stream)
        assert time.monotonic() - began < 2
