"""Markers that no coordinator sent: none is written, and a transaction that is open beside them ends as it should."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import time
from collections.abc import Iterator

import grpc
import pytest

from minilog import Admin, NewTopic, Producer, TopicPartition
from minilog.errors import (
    FencedLeaderEpoch,
    InvalidArgument,
    MinilogError,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownProducerId,
    error_from_wire,
)
from minilog.net.coordinators_of import INTERNAL_PARTITIONS, TRANSACTIONS_TOPIC_NAME, coordinator_partition
from minilog.v1 import coordinator_pb2, coordinator_pb2_grpc, metadata_pb2, metadata_pb2_grpc
from tests.cluster import HOST, OF_NOW, Cluster, running_cluster
from tests.integration.clients import read_all
from tests.integration.well_behaved import unnoticed

pytestmark = [pytest.mark.quiet, pytest.mark.long]

TOPIC = "marked"
NAME = "report"
COORDINATOR = coordinator_partition(NAME)
LARGEST = 2**31 - 1
TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("bad-markers")) as running:
        with Admin({"bootstrap.servers": running.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3)])
        yield running


def described(cluster: Cluster, topic: str) -> metadata_pb2.TopicMetadata:
    with grpc.insecure_channel(f"{HOST}:{cluster.ports[1]}") as channel:
        request = metadata_pb2.GetMetadataRequest(client=OF_NOW, topic_names=[topic])
        found = metadata_pb2_grpc.MetadataServiceStub(channel).GetMetadata(request, timeout=TIMEOUT_S)
    return found.topics[0]


def coordinator_epoch(cluster: Cluster) -> int:
    partitions = described(cluster, TRANSACTIONS_TOPIC_NAME).partitions
    return next(each.leader_epoch for each in partitions if each.partition == COORDINATOR)


def write(cluster: Cluster, *, producer_id: int, partition: int, epoch: int, committed: bool) -> set[str]:
    """To all brokers, in the coordinator's name: what each says."""
    topic = described(cluster, TOPIC)
    request = coordinator_pb2.WriteMarkersRequest(
        transactional_id=NAME, coordinator_partition=partition, coordinator_epoch=epoch
    )
    request.partition_id.topic_id = topic.topic_id
    request.markers.add(producer_id=producer_id, committed=committed, last_sequence=-1)
    said = set()
    for port in cluster.ports.values():
        with grpc.insecure_channel(f"{HOST}:{port}") as channel:
            answer = coordinator_pb2_grpc.MarkerServiceStub(channel).WriteMarkers(request, timeout=TIMEOUT_S)
        error = error_from_wire(answer.error)
        said.add("done" if error is None else type(error).__name__)
    return said


def end(cluster: Cluster, isolation: str) -> int:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": isolation}) as admin:
        found = admin.list_offsets({TopicPartition(TOPIC, 0): "latest"})[TopicPartition(TOPIC, 0)]
    assert found is not None
    return found


def refused(*errors: type[MinilogError]) -> set[str]:
    return {error.__name__ for error in errors}


def test_markers_that_no_coordinator_sent_end_nothing(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """Abort and commit, for the producers of the open transaction and for some that nobody was ever given."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    with Producer(servers | {"transactional.id": NAME}) as producer, producer.transaction():
        for number in range(3):
            producer.send(TOPIC, b"all or nothing %d" % number).result(timeout=TIMEOUT_S)
        epoch, written = coordinator_epoch(cluster), end(cluster, "read_uncommitted")

        def forged_markers(cluster: Cluster) -> Iterator[None]:
            yield
            for committed in itertools.cycle((False, True)):
                forge(cluster, epoch, committed=committed)
                yield

        unnoticed(tmp_path, forged_markers, lambda _: contextlib.nullcontext(cluster))
        assert end(cluster, "read_uncommitted") == written, "a marker was written"
        assert end(cluster, "read_committed") == 0, "the transaction is still open"
    deadline_s = time.monotonic() + TIMEOUT_S
    while end(cluster, "read_committed") < written:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    values = [value for _, value in read_all(cluster.bootstrap_servers, TOPIC)[0]]
    assert values == [b"all or nothing %d" % number for number in range(3)]


def forge(cluster: Cluster, epoch: int, *, committed: bool) -> None:
    for producer_id in range(4):  # that of the open transaction among them
        for other, said in ((epoch - 1, FencedLeaderEpoch), (epoch + 1, UnknownLeaderEpoch)):
            found = write(cluster, producer_id=producer_id, partition=COORDINATOR, epoch=other, committed=committed)
            assert found == refused(said)
    elsewhere = (COORDINATOR + 1) % INTERNAL_PARTITIONS
    found = write(cluster, producer_id=0, partition=elsewhere, epoch=LARGEST, committed=committed)
    assert found == refused(InvalidArgument)
    found = write(cluster, producer_id=2**62, partition=COORDINATOR, epoch=epoch, committed=committed)
    assert found <= refused(UnknownProducerId, NotLeaderOrFollower)
    assert "UnknownProducerId" in found
