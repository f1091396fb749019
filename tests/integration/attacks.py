"""What a heavy-handed or hostile client sends: each an attack as tests/integration/well_behaved.py has them.

python -m tests.integration.well_behaved tests.integration.attacks:came_damaged
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import pyarrow as pa

from minilog import Admin, NewTopic, Producer
from minilog.limits import MAX_OFFSETS_ENTRIES
from minilog.record_batch.builder import build_batch
from minilog.stream_messages import FETCH, PRODUCE, StreamMessage, StreamMethod
from minilog.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    common_pb2,
    data_pb2,
    metadata_pb2,
    metadata_pb2_grpc,
)
from tests.cluster import HOST, OF_NOW, STREAM_PORT_OFFSET, Cluster
from tests.streams_by_hand import HandStream, Place, StreamEnded

TOPIC = "attacked"
ANSWER_S = 30.0
MILLION = 1_000_000
_UNBOUNDED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def came_damaged(cluster: Cluster) -> Iterator[None]:
    """78 KiB of positions that say that what was sent came damaged: each has the replica look at a mebibyte."""
    with _led_partition(cluster, fill_bytes=4 << 20) as (address, partition_id):
        position = data_pb2.FetchPosition(partition_id=partition_id, leader_epoch=-1, came_damaged=True)
        positions = [position] * (78 * 1024 // (position.ByteSize() + 2))
        request = StreamMessage(data_pb2.FetchRequest(credit_bytes=1, positions=positions))
        with send_and_wait(address, FETCH) as send:
            yield
            while True:
                send(request)
                yield


def bombs(cluster: Cluster) -> Iterator[None]:
    """One message of 25 zstd batches, 60 MiB each when decompressed: what a batch of this topic may become at most."""
    largest = {"max.message.bytes": str(64 << 20)}
    with _led_partition(cluster, configs=largest) as (address, partition_id):
        batch = _bomb(partition_id)
        entries = [
            data_pb2.ProduceEntry(correlation_id=each, partition_id=partition_id, leader_epoch=-1) for each in range(25)
        ]
        produced = data_pb2.ProduceRequest(acks=1, timeout_ms=5000, entries=entries)
        request = StreamMessage(produced, [batch] * len(entries))
        with send_and_wait(address, PRODUCE) as send:
            yield
            while True:
                send(request)
                yield


def _bomb(partition_id: common_pb2.PartitionId) -> bytes:
    values = pa.record_batch({"value": [bytes(1 << 20)] * 60})
    return build_batch(partition_id.topic_id, 0, values, timestamp_us=1, compression="zstd")


def many_partitions(cluster: Cluster) -> Iterator[None]:
    """One request for ten topics of 10,000 partitions each, to whoever is the controller."""
    yield
    for turn in range(1_000):
        topics = [
            admin_pb2.NewTopic(name=f"many-{turn}-{each}", num_partitions=10_000, replication_factor=1)
            for each in range(10)
        ]
        request = admin_pb2.CreateTopicsRequest(timeout_ms=30_000, topics=topics)
        for port in cluster.ports.values():
            with _channel(f"{HOST}:{port}") as channel, contextlib.suppress(grpc.RpcError):
                admin_pb2_grpc.AdminServiceStub(channel).CreateTopics(request, timeout=ANSWER_S)
        yield


def wide_topics(cluster: Cluster) -> Iterator[None]:
    """What is allowed, one after the other: a topic of as many partitions as one may have is created, and deleted."""
    with Admin({"bootstrap.servers": cluster.bootstrap_servers, "request.timeout.ms": 60_000}) as admin:
        yield
        for turn in range(1_000):
            admin.create_topics([NewTopic(f"wide-{turn}", num_partitions=10_000, replication_factor=1)])
            yield
            admin.delete_topics([f"wide-{turn}"])
            yield


def many_entries(cluster: Cluster) -> Iterator[None]:
    """As much as one request may name, from thirty connections at once: what is allowed is costly, too."""
    with _led_partition(cluster, fill_bytes=4 << 20) as (address, partition_id), contextlib.ExitStack() as stack:
        sizes = [each << 10 for each in range(64)]
        entry = metadata_pb2.ListOffsetsEntry(partition_id=partition_id, leader_epoch=-1, sizes_bytes=sizes)
        request = metadata_pb2.ListOffsetsRequest(entries=[entry] * MAX_OFFSETS_ENTRIES)
        channels = [stack.enter_context(_channel(address)) for _ in range(30)]
        yield
        while True:
            stubs = [metadata_pb2_grpc.MetadataServiceStub(channel) for channel in channels]
            calls = [stub.ListOffsets.future(request, timeout=ANSWER_S) for stub in stubs]
            for call in calls:
                with contextlib.suppress(grpc.RpcError, grpc.FutureTimeoutError):
                    call.result(timeout=ANSWER_S)
            yield


def many_names(cluster: Cluster) -> Iterator[None]:
    """A metadata request of a million names."""
    request = metadata_pb2.GetMetadataRequest(client=OF_NOW, topic_names=[f"n{each}" for each in range(MILLION)])
    with _channel(_first_address(cluster)) as channel:
        yield
        while True:
            with contextlib.suppress(grpc.RpcError):
                metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(request, timeout=ANSWER_S)
            yield


def many_positions(cluster: Cluster) -> Iterator[None]:
    """A fetch request of a million positions."""
    address = _first_address(cluster)
    positions = [
        data_pb2.FetchPosition(partition_id=common_pb2.PartitionId(topic_id=bytes(16), partition=each))
        for each in range(MILLION)
    ]
    request = StreamMessage(data_pb2.FetchRequest(credit_bytes=1, positions=positions))
    yield
    while True:
        with send_and_wait(address, FETCH) as send:
            send(request)
        yield


# -- tools


def _first_address(cluster: Cluster) -> str:
    return f"{HOST}:{next(iter(cluster.ports.values()))}"


def _channel(address: str) -> grpc.Channel:
    return grpc.insecure_channel(address, options=_UNBOUNDED)


@contextlib.contextmanager
def _led_partition(
    cluster: Cluster, *, fill_bytes: int = 0, configs: dict[str, str] | None = None
) -> Iterator[tuple[str, common_pb2.PartitionId]]:
    """A new topic of one partition, with some records: its leader's address, and how the wire names it."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3, configs=configs or {})])
        with Producer(servers) as producer:
            for _ in range(max(1, fill_bytes >> 16)):
                producer.send(TOPIC, value=bytes(1 << 16))
        (topic,) = admin.describe_topics([TOPIC])
    leader = topic.partitions[0].leader
    assert leader is not None
    yield f"{HOST}:{cluster.ports[leader]}", common_pb2.PartitionId(topic_id=uuid.UUID(topic.id).bytes)


@contextlib.contextmanager
def send_and_wait(address: str, method: StreamMethod) -> Iterator[Any]:
    """A function that sends a message and waits for one: on the stream there is, or a new one where that broke."""
    place = Place(int(address.rpartition(":")[2]) + STREAM_PORT_OFFSET)
    stream = HandStream(place, method)

    def send(message: Any) -> None:
        nonlocal stream
        try:
            stream.write(message)
            next(stream)
        except (OSError, StreamEnded, StopIteration):
            stream.cancel()
            stream = HandStream(place, method)

    try:
        yield send
    finally:
        stream.cancel()
