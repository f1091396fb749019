"""Whether markers may come from whom they say, as far as this broker's image knows. Pure.

the request names                                        is refused with
a partition that the transactional id does not hash to   InvalidArgument
a leader epoch of it that is over                        FencedLeaderEpoch: that coordinator was deposed
one that this broker does not know yet                   UnknownLeaderEpoch: again, when its image is there
a producer id that nobody was given, as far as is known  UnknownProducerId: again, as above
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
    """What the leader of the partition is asked for."""
    return MarkersRequest(
        ticket,
        request.transactional_id,
        CoordinatorEpoch(request.coordinator_partition, request.coordinator_epoch),
        [EndMarker(each.producer_id, each.committed, each.last_sequence) for each in request.markers],
        timestamp_us,
    )


def check_markers(image: MetadataImage, request: coordinator_pb2.WriteMarkersRequest) -> None:
    """Raises what is wrong with the sender, or with the producers: see the module's text."""
    _check_coordinator(image, request)
    producer_ids = [each.producer_id for each in request.markers]
    if min(producer_ids, default=0) < 0:
        raise InvalidArgument(f"producer id {min(producer_ids)} cannot be: they are counted from 0")
    if max(producer_ids, default=-1) >= image.next_producer_id:
        raise UnknownProducerId(
            f"producer id {max(producer_ids)} was given to nobody, as far as this broker knows: all are below "
            f"{image.next_producer_id}"
        )


def _check_coordinator(image: MetadataImage, request: coordinator_pb2.WriteMarkersRequest) -> None:
    partition = coordinator_partition(request.transactional_id)
    who = f"the coordinator of transactional id '{request.transactional_id}'"
    if request.coordinator_partition != partition:
        raise InvalidArgument(
            f"{who} leads partition {partition} of {TRANSACTIONS_TOPIC_NAME}, not {request.coordinator_partition}"
        )
    topic_id = image.topic_ids.get(TRANSACTIONS_TOPIC_NAME)
    state = None if topic_id is None else image.partitions.get(PartitionKey(topic_id, partition))
    known = -1 if state is None else state.leader_epoch
    if request.coordinator_epoch > known:
        raise UnknownLeaderEpoch(f"{who} asks in epoch {request.coordinator_epoch}, {known} is known here: retry")
    if request.coordinator_epoch < known:
        raise FencedLeaderEpoch(f"{who} asks in epoch {request.coordinator_epoch}, it is {known}: it was deposed")
