"""A peer that sends garbage: every broker lives and says no traceback, and the cluster serves on as if nothing came."""

from __future__ import annotations

import pathlib
import random
import re
from collections.abc import Callable, Iterator

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from minilog import Admin, NewTopic, Producer
from minilog.v1 import metadata_pb2, metadata_pb2_grpc
from tests.cluster import HOST, Cluster, running_cluster
from tests.integration import garbage

pytestmark = pytest.mark.long

TOPIC = "untouched"
RAW_SENDINGS = 60
MESSAGES_PER_CALL = 60
# Errors with a name, and bytes that are no message; everything else the broker's code did not foresee.
FORESEEN = re.compile(r"Unexpected <class '(minilog\.errors\.|google\.protobuf\.message\.DecodeError)")
ANSWER_S, STREAM_S = 1.0, 0.1
# What decides over a topic or a broker: a random message that happened to be right would be obeyed.
COMMANDS = {each.name for each in garbage.methods() if each.containing_service.name == "AdminService"} | {"Register"}
PROTO = pathlib.Path(__file__).parents[2] / "proto"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("bad-peers")) as running:
        with Admin({"bootstrap.servers": running.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=3)])
        yield running


@pytest.fixture(autouse=True)
def nothing_happened(cluster: Cluster) -> Iterator[None]:
    """The same processes, the same leaders, all in sync, writes are taken; nobody has said a traceback."""
    before = picture(cluster)
    yield
    for broker_id, process in cluster.processes.items():
        assert process.poll() is None, cluster.log_text(broker_id)[-3000:]
        assert "Traceback" not in cluster.log_text(broker_id), cluster.log_text(broker_id)[-3000:]
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for partition in range(3):
            producer.send(TOPIC, value=b"still here", partition=partition).result(timeout=20)
    assert picture(cluster) == before


def picture(cluster: Cluster) -> list[object]:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        described = admin.describe_cluster()
        partitions = admin.describe_topics([TOPIC])[0].partitions
    epochs = [(each.leader, each.leader_epoch, sorted(each.isr)) for each in partitions]
    return [described.controller, described.controller_epoch, [each.id for each in described.brokers], epochs]


def test_every_service_of_the_proto_files_is_sent_garbage() -> None:
    texts = [path.read_text() for path in PROTO.rglob("*.proto")]
    written = {name for text in texts for name in re.findall(r"^service (\w+)", text, flags=re.MULTILINE)}
    assert {method.containing_service.name for method in garbage.methods()} == written


def test_headers_of_a_call_are_bounded_and_the_connection_goes_on(cluster: Cluster) -> None:
    """Between the two default limits of gRPC, 8 and 16 KiB, a call was refused by lot."""
    with grpc.insecure_channel(f"{HOST}:{cluster.ports[1]}") as channel:
        stub = metadata_pb2_grpc.MetadataServiceStub(channel)
        for size, refused in ((7_000, False), (9_000, True)) * 20:
            try:
                stub.GetMetadata(metadata_pb2.GetMetadataRequest(), metadata=(("filling", "x" * size),), timeout=10.0)
                code = grpc.StatusCode.OK
            except grpc.RpcError as error:
                code = error.code()
            assert code is (grpc.StatusCode.RESOURCE_EXHAUSTED if refused else grpc.StatusCode.OK)


@pytest.mark.parametrize("make", [garbage.raw_bytes, garbage.http2_frames])
def test_bytes_that_are_no_call_are_dropped(cluster: Cluster, make: Callable[[random.Random], bytes]) -> None:
    chance = random.Random(11)
    for number in range(RAW_SENDINGS):
        port = cluster.ports[1 + number % 3]
        garbage.send_raw((HOST, port), make(chance))


@pytest.mark.parametrize("method", garbage.methods(), ids=garbage.path_of)
def test_a_call_with_noise_or_a_senseless_message_is_refused(cluster: Cluster, method: MethodDescriptor) -> None:
    chance = random.Random(method.full_name)
    requests = [chance.randbytes(chance.randrange(1, 300)) for _ in range(MESSAGES_PER_CALL)]
    if method.name not in COMMANDS:
        requests += [garbage.request_of(method, chance) for _ in range(MESSAGES_PER_CALL)]
    timeout_s = STREAM_S if method.client_streaming else ANSWER_S
    for broker_id, port in cluster.ports.items():
        with grpc.insecure_channel(f"{HOST}:{port}") as channel:
            for request in requests[broker_id - 1 :: len(cluster.ports)]:
                said = garbage.call(channel, method, [request], timeout_s)
                assert "Unexpected" not in said or FORESEEN.search(said), (said, request)
