"""The check of the sender of markers, by this broker's image. Pure.

the request names                                        refusal
a partition that the transactional id does not hash to   InvalidArgument
a leader epoch of it that is over                        FencedLeaderEpoch: that coordinator was deposed
one that this broker does not know yet                   UnknownLeaderEpoch: retried until its image has it
a producer id above all that this broker knows           UnknownProducerId: retried as above
"""

from __future__ import annotations

from minilog.errors import FencedLeaderEpoch, InvalidArgument, UnknownLeaderEpoch, UnknownProducerId
from minilog.net.coordinators_of import TRANSACTIONS_TOPIC_NAME, coordinator_partition
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.replication.leader.transaction_markers import MarkersRequest
from minilog_broker.replication.replica_effects import EndMarker
from minilog_broker.storage.markers import CoordinatorEpoch


def markers_request(request: coordinator_pb2.WriteMarkersRequest, ticket: object, timestamp_us: int) -> MarkersRequest:
    """The request for the leader of the partition."""
    return MarkersRequest(
        ticket,
        request.transactional_id,
        CoordinatorEpoch(request.coordinator_partition, request.coordinator_epoch),
        [EndMarker(marker.producer_id, marker.committed, marker.last_sequence) for marker in request.markers],
        timestamp_us,
    )


def check_markers(image: MetadataImage, request: coordinator_pb2.WriteMarkersRequest) -> None:
    """Raises the errors of the table above for a wrong sender, and for producers."""
    _check_coordinator(image, request)
    producer_ids = [marker.producer_id for marker in request.markers]
    if min(producer_ids, default=0) < 0:
        raise InvalidArgument(f"producer id {min(producer_ids)} is not valid: producer ids are counted from 0")
    if max(producer_ids, default=-1) >= image.next_producer_id:
        raise UnknownProducerId(
            f"this broker does not know producer id {max(producer_ids)}: all that it knows are below "
            f"{image.next_producer_id}"
        )


def _check_coordinator(image: MetadataImage, request: coordinator_pb2.WriteMarkersRequest) -> None:
    partition = coordinator_partition(request.transactional_id)
    sender = f"the coordinator of transactional id '{request.transactional_id}'"
    if request.coordinator_partition != partition:
        raise InvalidArgument(
            f"{sender} leads partition {partition} of {TRANSACTIONS_TOPIC_NAME}, not {request.coordinator_partition}"
        )
    topic_id = image.topic_ids.get(TRANSACTIONS_TOPIC_NAME)
    state = None if topic_id is None else image.partitions.get(PartitionKey(topic_id, partition))
    epoch = -1 if state is None else state.leader_epoch
    if request.coordinator_epoch > epoch:
        raise UnknownLeaderEpoch(
            f"{sender} asks in epoch {request.coordinator_epoch}, and this broker knows only epoch {epoch}: retry"
        )
    if request.coordinator_epoch < epoch:
        raise FencedLeaderEpoch(
            f"{sender} asks in epoch {request.coordinator_epoch}, and the current one is {epoch}: it was deposed"
        )
