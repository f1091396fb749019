"""Heavy requests, hostile or only large: beside each a well-behaved client hardly notices, and sees no election."""

from __future__ import annotations

import pathlib
import re

import grpc
import pytest

from minilog import Admin, NewTopic
from minilog.errors import InvalidArgument
from minilog.limits import MAX_ADMIN_TOPICS, MAX_NEW_PARTITIONS, MAX_OFFSETS_ENTRIES
from minilog.types import TopicPartition
from minilog.v1 import metadata_pb2, metadata_pb2_grpc
from tests.cluster import HOST, Cluster, running_cluster
from tests.integration import attacks
from tests.integration.well_behaved import Attack, unnoticed
from tests.pool import THREE, shared_cluster

pytestmark = pytest.mark.long

ATTACKS: list[Attack] = [
    attacks.came_damaged,
    attacks.bombs,
    attacks.many_partitions,
    attacks.many_names,
    attacks.many_positions,
    attacks.many_entries,
]


@pytest.mark.quiet
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_client_beside_an_attack_hardly_notices(tmp_path: pathlib.Path, attack: Attack) -> None:
    _, cluster = unnoticed(tmp_path, attack, running_cluster)
    for broker_id in cluster.ports:
        assert "Traceback" not in cluster.log_text(broker_id)


cluster = shared_cluster(THREE)


def test_a_request_above_a_limit_is_refused_with_the_limit_and_the_remedy(cluster: Cluster) -> None:
    entries = [metadata_pb2.ListOffsetsEntry()] * (MAX_OFFSETS_ENTRIES + 1)
    with grpc.insecure_channel(f"{HOST}:{cluster.ports[1]}") as channel:
        stub = metadata_pb2_grpc.MetadataServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.ListOffsets(metadata_pb2.ListOffsetsRequest(entries=entries), timeout=10)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        words = rf"names {MAX_OFFSETS_ENTRIES + 1} entries .*ListOffsets.*at most {MAX_OFFSETS_ENTRIES}.*split it"
        assert re.search(words, refused.value.details() or "")
        answer = stub.ListOffsets(metadata_pb2.ListOffsetsRequest(entries=entries[:-1]), timeout=10)
        assert len(answer.results) == MAX_OFFSETS_ENTRIES


@pytest.mark.long
def test_a_user_of_many_topics_and_partitions_meets_no_limit(cluster: Cluster) -> None:
    names = [f"small-{number}" for number in range(MAX_ADMIN_TOPICS + 1)]
    with Admin({"bootstrap.servers": cluster.bootstrap_servers, "request.timeout.ms": 120_000}) as admin:
        try:
            created = admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1) for name in names])
        except InvalidArgument as error:
            raise AssertionError(f"a limit showed: {error}") from error
        assert sorted(created) == sorted(names)
        admin.create_topics([NewTopic("wide", num_partitions=MAX_OFFSETS_ENTRIES * 3 + 1, replication_factor=1)])
        assert MAX_OFFSETS_ENTRIES * 3 + 1 < MAX_NEW_PARTITIONS
        wanted = {TopicPartition("wide", each): "latest" for each in range(MAX_OFFSETS_ENTRIES * 3 + 1)}
        assert set(admin.list_offsets(wanted).values()) == {0}
        admin.delete_topics([*names, "wide"])
