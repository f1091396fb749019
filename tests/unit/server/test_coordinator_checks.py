"""The checks of calls to a coordinator that need the metadata."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minilog.errors import InvalidArgument, UnknownLeaderEpoch
from minilog.limits import MAX_SETTLED_PARTITIONS
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2, queue_pb2
from minilog_broker.coordinators.groups.offsets import MAX_ID_CHARACTERS as MAX_GROUP_CHARACTERS
from minilog_broker.coordinators.transactions.enlisting import MAX_ID_CHARACTERS
from minilog_broker.server.services.coordinator_checks import (
    check_group,
    check_leader_epochs,
    check_settlements,
    check_transaction,
)
from tests.unit.controller.cluster import ControllerCluster


def test_an_offset_names_no_leader_epoch_that_does_not_exist_yet() -> None:
    """A consumer that begins there would wait for that leader for good."""
    cluster = ControllerCluster()
    cluster.start_all()
    key = cluster.created()
    epoch = cluster.image.partitions[key].leader_epoch

    def check(leader_epoch: int) -> None:
        offset = coordinator_pb2.OffsetToCommit(partition_id=key.to_wire(), offset=5, leader_epoch=leader_epoch)
        check_leader_epochs(cluster.image, coordinator_pb2.CommitOffsetsRequest(group_id="g", offsets=[offset]))

    for known in (-1, 0, epoch):
        check(known)
    with pytest.raises(UnknownLeaderEpoch, match=f"names leader epoch {epoch + 1}, and this broker knows only"):
        check(epoch + 1)


def check_transactional_id(name: str) -> None:
    check_transaction(coordinator_pb2.EnlistRequest(transactional_id=name))


def check_group_id(name: str) -> None:
    check_group(coordinator_pb2.CommitOffsetsRequest(group_id=name))


@pytest.mark.parametrize(
    ("check", "most"), [(check_transactional_id, MAX_ID_CHARACTERS), (check_group_id, MAX_GROUP_CHARACTERS)]
)
def test_an_id_has_a_length(check: Callable[[str], None], most: int) -> None:
    """What a coordinator remembers of a name is short."""
    for length in (1, most):
        check("x" * length)
    for length in (0, most + 1):
        with pytest.raises(InvalidArgument, match=f"has 1 to {most} characters"):
            check("x" * length)


def test_a_request_settles_records_of_so_many_partitions() -> None:
    def request(partitions: int) -> queue_pb2.SettleRequest:
        keys = [PartitionKey(bytes(16), number) for number in range(partitions)]
        settlements = [
            queue_pb2.Settlement(lease_id=1, partition_id=key.to_wire(), verdict=queue_pb2.VERDICT_ACCEPT)
            for key in keys
        ]
        return queue_pb2.SettleRequest(queue="jobs", settlements=settlements)

    check_settlements(request(MAX_SETTLED_PARTITIONS))
    with pytest.raises(InvalidArgument, match="at most 100 partitions, and this one names 101"):
        check_settlements(request(MAX_SETTLED_PARTITIONS + 1))
