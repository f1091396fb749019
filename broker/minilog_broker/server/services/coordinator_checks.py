"""What a call to a coordinator is refused for before its coordinator sees it. All raise InvalidArgument, with words.

How many of anything one call may name is in the table of all calls (request_limits)."""

from __future__ import annotations

from collections.abc import Iterable

from minilog.errors import InvalidArgument
from minilog.v1 import common_pb2, coordinator_pb2
from minilog_broker.coordinators.groups.offsets import MAX_ID_CHARACTERS as MAX_GROUP_CHARACTERS
from minilog_broker.coordinators.transactions.enlisting import MAX_ID_CHARACTERS

TOPIC_ID_BYTES = 16


def check_transactional_id(transactional_id: str) -> None:
    if not 1 <= len(transactional_id) <= MAX_ID_CHARACTERS:
        raise InvalidArgument(
            f"a transactional id has 1 to {MAX_ID_CHARACTERS} characters, this one has {len(transactional_id)}"
        )


def check_group_id(group_id: str) -> None:
    if not 1 <= len(group_id) <= MAX_GROUP_CHARACTERS:
        raise InvalidArgument(f"a group id has 1 to {MAX_GROUP_CHARACTERS} characters, this one has {len(group_id)}")


def check_partitions(partitions: Iterable[common_pb2.PartitionId]) -> None:
    """Of a registration, or of offsets that are asked for."""
    for each in partitions:
        _check_partition(each)


def check_end(request: coordinator_pb2.EndTransactionRequest) -> None:
    check_transactional_id(request.transactional_id)
    for winner in request.winners:
        for written in winner.partitions:
            _check_partition(written.partition_id)


def check_commit(request: coordinator_pb2.CommitOffsetsRequest) -> None:
    check_group_id(request.group_id)
    check_partitions(each.partition_id for each in request.offsets)
    if request.HasField("transaction"):
        check_transactional_id(request.transaction.transactional_id)


def _check_partition(partition: common_pb2.PartitionId) -> None:
    if len(partition.topic_id) != TOPIC_ID_BYTES or partition.partition < 0:
        raise InvalidArgument(
            f"partition {partition.partition} of topic id {partition.topic_id.hex()!r} cannot be: a topic id has "
            f"{TOPIC_ID_BYTES} bytes and partitions are counted from 0"
        )
