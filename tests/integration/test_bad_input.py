"""Bad input against real brokers: one clear sentence with what is wrong, nothing written, and everything lives on."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import uuid
from dataclasses import dataclass
from typing import Any

import grpc
import pyarrow as pa
import pytest

from minilog import Admin, NewTopic, Producer, TopicPartition
from minilog.errors import (
    MessageTooLarge,
    MinilogError,
    NotLeaderOrFollower,
    UnknownProducerId,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_from_wire,
)
from minilog.net.stream_frames import FrameKind
from minilog.record_batch.builder import build_batch
from minilog.stream_messages import PRODUCE, StreamMessage
from minilog.v1 import common_pb2, data_pb2, metadata_pb2, metadata_pb2_grpc
from tests.cluster import STREAM_PORT_OFFSET, Cluster, running_cluster
from tests.integration.garbage import SERVICES
from tests.pool import THREE, shared_cluster
from tests.streams_by_hand import HandStream, Place, StreamEnded

ANSWER_WITHIN_S = 10.0
TOPIC = "letters"
SMALL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Target:
    """A partition to write to, as the wire names it."""

    address: str
    topic_id: bytes
    leader_epoch: int

    @property
    def place(self) -> Place:
        """The port of streams of its leader."""
        return Place(int(self.address.rpartition(":")[2]) + STREAM_PORT_OFFSET)

    def batch(self, value: str = "hello") -> bytes:
        return build_batch(self.topic_id, 0, pa.record_batch({"value": [value]}), timestamp_us=1)

    def batch_of(self, producer_id: int, epoch: int = 0) -> bytes:
        """The first one of a producer."""
        rows = pa.record_batch({"value": ["hello"]})
        return build_batch(
            self.topic_id,
            0,
            rows,
            timestamp_us=1,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
        )


TOO_LONG = (128 << 20) + 1


class RawProduceStream:
    """A produce stream by hand."""

    def __init__(self, target: Target) -> None:
        self._stream = HandStream(target.place, PRODUCE, timeout_s=ANSWER_WITHIN_S)
        self._target = target

    def __enter__(self) -> RawProduceStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.cancel()

    def send(
        self,
        batch: bytes,
        *,
        acks: int = -1,
        partition: int = 0,
        topic_id: bytes | None = None,
        proof: bytes = b"",
    ) -> MinilogError | None:
        """The broker's answer to one batch: its error, or None."""
        entry = data_pb2.ProduceEntry(
            correlation_id=1,
            partition_id=common_pb2.PartitionId(topic_id=topic_id or self._target.topic_id, partition=partition),
            leader_epoch=self._target.leader_epoch,
            producer_proof=proof,
        )
        request = data_pb2.ProduceRequest(acks=acks, timeout_ms=5000, entries=[entry])
        self._stream.write(StreamMessage(request, [batch]))
        while True:
            for result in next(self._stream).message.results:
                return error_from_wire(result.error)


shared = shared_cluster(THREE)


@pytest.fixture(scope="module")
def cluster(shared: Cluster) -> Cluster:
    with Admin({"bootstrap.servers": shared.bootstrap_servers}) as admin:
        configs = {"max.message.bytes": str(SMALL_BYTES)}
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3, configs=configs)])
    return shared


@pytest.fixture(scope="module")
def target(cluster: Cluster) -> Target:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.send(TOPIC, value=b"first").result(timeout=ANSWER_WITHIN_S)
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        (topic,) = admin.describe_topics([TOPIC])
    (partition,) = topic.partitions
    assert partition.leader is not None
    address = f"127.0.0.1:{cluster.ports[partition.leader]}"
    return Target(address, uuid.UUID(topic.id).bytes, partition.leader_epoch)


def end(cluster: Cluster) -> int | None:
    where = TopicPartition(TOPIC, 0)
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        return admin.list_offsets({where: "latest"})[where]


def test_a_broken_batch_is_refused_and_nothing_is_written(cluster: Cluster, target: Target) -> None:
    before = end(cluster)
    with RawProduceStream(target) as stream:
        error = stream.send(target.batch()[:-1] + b"\xff")
        assert error is not None
        assert error.code == "CORRUPT_MESSAGE"
        assert "has crc 0x" in str(error)
        assert end(cluster) == before
        assert stream.send(target.batch()) is None
    assert end(cluster) == (before or 0) + 1


def test_a_batch_over_max_message_bytes_is_refused(cluster: Cluster, target: Target) -> None:
    before = end(cluster)
    with RawProduceStream(target) as stream:
        error = stream.send(target.batch("x" * SMALL_BYTES))
        assert isinstance(error, MessageTooLarge)
        assert re.search(rf"max\.message\.bytes of the topic is {SMALL_BYTES}", str(error))
        assert stream.send(target.batch()) is None
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with Producer(servers) as producer, pytest.raises(MessageTooLarge, match=str(SMALL_BYTES)):
        producer.send(TOPIC, value=b"x" * SMALL_BYTES).result(timeout=ANSWER_WITHIN_S)
    assert end(cluster) == (before or 0) + 1


def test_a_frame_over_its_limit_ends_its_stream_alone(cluster: Cluster, target: Target) -> None:
    before = end(cluster)
    with RawProduceStream(target) as other:
        stream = HandStream(target.place, PRODUCE)
        stream.claim(FrameKind.MESSAGE, TOO_LONG)
        with contextlib.closing(stream), pytest.raises(StreamEnded, match=f"CorruptMessage: .* {TOO_LONG} bytes"):
            list(stream)
        assert other.send(target.batch()) is None
    assert end(cluster) == (before or 0) + 1


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_message_that_grpc_has_compressed_is_refused_before_it_is_expanded(
    target: Target, compression: grpc.Compression
) -> None:
    """60 MiB of zeros take 60 KB on the wire, and no limit of ours counts what they become."""
    calls = [f"/{service.full_name}/{method.name}" for service in SERVICES for method in service.methods]
    assert len(calls) > 40
    with grpc.insecure_channel(target.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        for path in calls:
            call: Any = channel.stream_stream(path, request_serializer=bytes)(
                iter([bytes(1 << 20)]), timeout=ANSWER_WITHIN_S, compression=compression
            )
            with pytest.raises(grpc.RpcError) as refused:
                next(call)
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED, (path, refused.value)
    with RawProduceStream(target) as stream:
        assert stream.send(target.batch()) is None


def test_an_unknown_partition_or_topic_id_is_named(target: Target) -> None:
    with RawProduceStream(target) as stream:
        error = stream.send(target.batch(), partition=7)
        # A broker knows its own replicas only: whether there is such a partition, the client asks the metadata.
        assert isinstance(error, NotLeaderOrFollower)
        assert f"no replica of partition 7 of topic id {target.topic_id.hex()}" in str(error)
        stranger = bytes(range(16))
        error = stream.send(target.batch(), topic_id=stranger)
        assert isinstance(error, UnknownTopicId)
        assert stranger.hex() in str(error).replace("-", "")
        assert stream.send(target.batch()) is None


def test_a_batch_under_a_producer_id_that_was_not_given_to_its_writer_is_refused(
    cluster: Cluster, target: Target
) -> None:
    before = end(cluster)
    with grpc.insecure_channel(target.address) as channel, RawProduceStream(target) as stream:
        stub = metadata_pb2_grpc.MetadataServiceStub(channel)
        own = stub.InitProducerId(metadata_pb2.InitProducerIdRequest(), timeout=ANSWER_WITHIN_S)
        proof = own.producer_proof
        for producer_id, epoch in ((own.producer_id + 1, 0), (own.producer_id, 1), (2**62, 0)):
            error = stream.send(target.batch_of(producer_id, epoch), proof=proof)
            assert isinstance(error, UnknownProducerId)
            assert f"no proof that it owns producer id {producer_id}, epoch {epoch}" in str(error)
        assert isinstance(stream.send(target.batch_of(own.producer_id)), UnknownProducerId)
        assert end(cluster) == before
        assert stream.send(target.batch_of(own.producer_id), proof=proof) is None
        assert isinstance(stream.send(target.batch_of(own.producer_id + 1), proof=proof), UnknownProducerId)


@pytest.mark.dear("it waits for a time-out of the product")
def test_a_client_is_told_of_an_unknown_topic_and_partition(cluster: Cluster) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "request.timeout.ms": 3000, "max.block.ms": 3000}
    with Producer({**servers, "delivery.timeout.ms": 1000}) as producer:
        with pytest.raises(MinilogError, match="nowhere"):
            producer.send("nowhere", value=b"").result(timeout=ANSWER_WITHIN_S)
        with pytest.raises(MinilogError, match=rf"{TOPIC}.*7"):
            producer.send(TOPIC, value=b"", partition=7).result(timeout=ANSWER_WITHIN_S)
    with Admin(servers) as admin, pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        admin.describe_topics(["nowhere"])


@pytest.mark.long
def test_a_disk_of_another_cluster_is_not_taken(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    with running_cluster(tmp_path / "other") as other:
        other.stop(2)
        shutil.rmtree(other.data_directory(2))
        shutil.copytree(cluster.data_directory(2), other.data_directory(2))
        mine = (other.data_directory(2) / "broker.json").read_bytes()
        other.start(2)
        assert other.processes.pop(2).wait(ANSWER_WITHIN_S) == 1
        said = other.log_text(2).splitlines()[-1]
        assert re.search(r"^minilog: broker 2: .*belongs to cluster \S+, .*[0-9a-f-]{36}", said), said
        assert "Traceback" not in other.log_text(2)
        assert (other.data_directory(2) / "broker.json").read_bytes() == mine


def test_a_producer_that_knew_a_topic_created_again_writes_to_the_new_one(cluster: Cluster) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with Admin(servers) as admin, Producer(servers) as producer:
        admin.create_topics([NewTopic("again", num_partitions=1)])
        producer.send("again", b"to the first").result(timeout=ANSWER_WITHIN_S)
        admin.delete_topics(["again"])
        admin.create_topics([NewTopic("again", num_partitions=1)])
        for offset in range(2):
            assert producer.send("again", b"to the second").result(timeout=ANSWER_WITHIN_S).offset == offset
