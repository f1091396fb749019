"""The checks of calls to a coordinator that need the metadata."""

from __future__ import annotations

import pytest

from minilog.errors import InvalidArgument, UnknownLeaderEpoch
from minilog.limits import MAX_SETTLED_PARTITIONS
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2, queue_pb2
from minilog_broker.server.services.coordinator_checks import check_leader_epochs, check_settlements
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
