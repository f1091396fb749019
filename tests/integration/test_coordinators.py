"""Coordinators in real brokers: what they have answered stands, whoever coordinates next."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from minilog import Admin, NewTopic, TopicPartition
from minilog.errors import InvalidArgument, InvalidTopic, InvalidTxnState, NotCoordinator, ProducerFenced
from minilog.net.coordinators_of import GROUPS_TOPIC_NAME, TRANSACTIONS_TOPIC_NAME, coordinator_partition
from minilog.v1 import common_pb2, coordinator_pb2
from tests import programs
from tests.cluster import Cluster, running_cluster
from tests.integration.coordinating import Coordinating, coordinating, error_of
from tests.rules import proves

pytestmark = proves("CO.2")

COMMITTED = coordinator_pb2.TRANSACTION_OUTCOME_COMMITTED


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of its own: nobody has used a group or a transaction yet."""
    with running_cluster(tmp_path_factory.mktemp("coordinators")) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("orders", num_partitions=1, replication_factor=3)])
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Coordinating]:
    with coordinating(cluster) as client:
        yield client


@pytest.fixture
def orders(client: Coordinating) -> bytes:
    return client.topic("orders").topic_id


def listed(cluster: Cluster, *, internal: bool = False) -> list[str]:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        return admin.list_topics(internal=internal)


def test_internal_topics_are_there_from_their_first_use_on_and_are_nobodys_to_write(
    cluster: Cluster, client: Coordinating, orders: bytes
) -> None:
    assert not client.topic(GROUPS_TOPIC_NAME).partitions, "the first use is answered before it is created"
    assert client.commit("first", orders, 7) is None
    assert listed(cluster) == ["orders"]
    assert GROUPS_TOPIC_NAME in listed(cluster, internal=True)
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        (described,) = admin.describe_topics([GROUPS_TOPIC_NAME])
        assert (described.internal, len(described.partitions)) == (True, 16)
        with pytest.raises(InvalidTopic):
            admin.delete_topics([GROUPS_TOPIC_NAME])
    ended = programs.run("produce", GROUPS_TOPIC_NAME, "-b", cluster.bootstrap_servers, stdin="x\n")
    assert ended.returncode == 1
    assert "only brokers write to it" in ended.stderr


def test_only_the_leader_of_a_names_partition_coordinates_it(
    cluster: Cluster, client: Coordinating, orders: bytes
) -> None:
    assert client.commit("mine", orders, 1) is None
    client.enlist("mine", b"run", b"attempt")
    leaders = client.leader_of(GROUPS_TOPIC_NAME, "mine"), client.leader_of(TRANSACTIONS_TOPIC_NAME, "mine")
    for broker_id in cluster.ports:
        fetched = client.groups_at(broker_id).FetchOffsets(coordinator_pb2.FetchOffsetsRequest(group_id="mine"))
        described = client.transactions_at(broker_id).DescribeTransaction(
            coordinator_pb2.DescribeTransactionRequest(transactional_id="mine")
        )
        assert isinstance(error_of(fetched), NotCoordinator) == (broker_id != leaders[0])
        assert isinstance(error_of(described), NotCoordinator) == (broker_id != leaders[1])


def test_a_malformed_call_is_refused_with_words(client: Coordinating) -> None:
    nameless = client.groups_at(1).FetchOffsets(coordinator_pb2.FetchOffsetsRequest())
    assert isinstance(error_of(nameless), InvalidArgument)
    odd = coordinator_pb2.FetchOffsetsRequest(group_id="g", partitions=[common_pb2.PartitionId(topic_id=b"x")])
    assert isinstance(error_of(client.groups_at(1).FetchOffsets(odd)), InvalidArgument)
    long = coordinator_pb2.EnlistRequest(transactional_id="x" * 5_000)
    assert isinstance(error_of(client.transactions_at(1).Enlist(long)), InvalidArgument)


def test_a_transaction_ends_and_a_run_that_was_superseded_is_fenced(client: Coordinating) -> None:
    first = client.enlist("job", b"run-1", b"a-1")
    assert (first.outcome, first.generation) == (coordinator_pb2.ENLIST_OUTCOME_ENLISTED, 0)
    ended = client.end("job", b"run-1", b"a-1", 0, coordinator_pb2.Winner(producer_id=first.producer_id))
    assert ended.outcome == COMMITTED
    second = client.enlist("job", b"run-2", b"a-2")
    assert second.generation == 1
    assert second.producer_id > first.producer_id
    assert isinstance(error_of(client.enlist("job", b"run-1", b"a-1", generation=1)), ProducerFenced)
    late = client.end("job", b"run-2", b"a-2", 1, coordinator_pb2.Winner(producer_id=first.producer_id))
    assert isinstance(error_of(late), InvalidTxnState)


def test_offsets_of_a_transaction_are_hidden_until_its_markers_reach_the_coordinator_of_the_group(
    client: Coordinating, orders: bytes
) -> None:
    group = client.topic(GROUPS_TOPIC_NAME).topic_id
    assert client.commit("sums", orders, 3) is None
    enlisted = client.enlist("sums-job", b"run", b"attempt")
    producer, proof = enlisted.producer_id, enlisted.producer_proof
    sent = {"transactional_id": "sums-job", "producer_id": producer, "sequence": 0, "producer_proof": proof}
    assert client.commit("sums", orders, 9, **sent) is None
    (hidden,) = client.fetch("sums").offsets
    assert hidden.error.code == common_pb2.ERROR_CODE_UNSTABLE_OFFSET_COMMIT
    where = common_pb2.PartitionId(topic_id=group, partition=coordinator_partition("sums"))
    written = coordinator_pb2.WrittenPartition(partition_id=where, last_sequence=0)
    winner = coordinator_pb2.Winner(producer_id=producer, partitions=[written])
    assert client.end("sums-job", b"run", b"attempt", 0, winner).outcome == COMMITTED
    assert client.committed("sums") == [9]
    assert isinstance(client.commit("sums", orders, 10, **{**sent, "sequence": 1}), ProducerFenced)


def test_the_replicas_of_an_internal_partition_are_moved_as_those_of_any(
    cluster: Cluster, client: Coordinating, orders: bytes
) -> None:
    assert client.commit("moved", orders, 5) is None
    former = client.leader_of(GROUPS_TOPIC_NAME, "moved")
    partition = TopicPartition(GROUPS_TOPIC_NAME, coordinator_partition("moved"))
    others = sorted(set(cluster.ports) - {former})
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.alter_partition_reassignments({partition: others})
    deadline = time.monotonic() + 10
    while client.leader_of(GROUPS_TOPIC_NAME, "moved") not in others:
        assert time.monotonic() < deadline, "the leader was not moved"
        time.sleep(0.05)
    assert client.committed("moved") == [5]


@proves("CO.16")
def test_what_was_committed_is_known_to_the_next_coordinator_and_after_a_restart_of_all(
    cluster: Cluster, client: Coordinating, orders: bytes
) -> None:
    for offset in range(1, 51):
        assert client.commit("lasting", orders, offset) is None
    enlisted = client.enlist("lasting", b"run", b"attempt")
    victim = client.leader_of(GROUPS_TOPIC_NAME, "lasting")
    cluster.kill(victim)
    assert client.committed("lasting") == [50]
    winner = coordinator_pb2.Winner(producer_id=enlisted.producer_id)
    assert client.end("lasting", b"run", b"attempt", 0, winner).outcome == COMMITTED
    assert client.commit("lasting", orders, 51) is None
    assert set(cluster.stop().values()) == {0}
    cluster.start()
    cluster.wait_running()
    assert client.committed("lasting") == [51]
    assert client.end("lasting", b"run", b"attempt", 0, winner).outcome == COMMITTED
