"""What a call to a coordinator is refused for before its coordinator sees it. All raise InvalidArgument, with words.

How many of anything one call may name is in the table of all calls (request_limits)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from minilog.errors import InvalidArgument
from minilog.v1 import common_pb2, coordinator_pb2
from minilog_broker.coordinators.groups.offsets import MAX_ID_CHARACTERS as MAX_GROUP_CHARACTERS
from minilog_broker.coordinators.transactions.enlisting import MAX_ID_CHARACTERS

TOPIC_ID_BYTES = 16


class OfTransaction(Protocol):
    """A request to the coordinator of a transactional id."""

    @property
    def transactional_id(self) -> str: ...


class GroupsRequest(Protocol):
    """A request to the coordinator of a group."""

    @property
    def group_id(self) -> str: ...


def check_transaction(request: OfTransaction) -> None:
    """Its transactional id."""
    if not 1 <= len(request.transactional_id) <= MAX_ID_CHARACTERS:
        raise InvalidArgument(
            f"a transactional id has 1 to {MAX_ID_CHARACTERS} characters, this one has {len(request.transactional_id)}"
        )


def check_registration(request: coordinator_pb2.RegisterPartitionsRequest) -> None:
    """Its transactional id and partitions."""
    check_transaction(request)
    _check_partitions(request.partitions)


def check_end(request: coordinator_pb2.EndTransactionRequest) -> None:
    """Its transactional id, and the partitions of all winners."""
    check_transaction(request)
    for winner in request.winners:
        _check_partitions(written.partition_id for written in winner.partitions)


def check_group(request: GroupsRequest) -> None:
    """Its group id."""
    if not 1 <= len(request.group_id) <= MAX_GROUP_CHARACTERS:
        raise InvalidArgument(
            f"a group id has 1 to {MAX_GROUP_CHARACTERS} characters, this one has {len(request.group_id)}"
        )


def check_group_partitions(request: coordinator_pb2.FetchOffsetsRequest | coordinator_pb2.DeleteGroupRequest) -> None:
    """Its group id, and the partitions whose offsets are meant."""
    check_group(request)
    _check_partitions(request.partitions)


def check_commit(request: coordinator_pb2.CommitOffsetsRequest) -> None:
    """Its group id, the partitions of its offsets, and the transactional id where it has one."""
    check_group(request)
    _check_partitions(each.partition_id for each in request.offsets)
    if request.HasField("transaction"):
        check_transaction(request.transaction)


def _check_partitions(partitions: Iterable[common_pb2.PartitionId]) -> None:
    for partition in partitions:
        if len(partition.topic_id) != TOPIC_ID_BYTES or partition.partition < 0:
            raise InvalidArgument(
                f"partition {partition.partition} of topic id {partition.topic_id.hex()!r} cannot be: a topic id has "
                f"{TOPIC_ID_BYTES} bytes and partitions are counted from 0"
            )
