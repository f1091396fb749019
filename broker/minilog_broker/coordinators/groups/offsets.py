"""The rules of committed offsets: what a commit, a marker and a deletion change. docs/spec/transactions.md § Groups.

    a commit                                  changes
    by itself                                 the group's offsets, one batch
    in a transaction                          the producer's pending offsets of the group; a sequence that was seen
                                              before changes nothing, a gap is refused
    a marker: aborted                         the pending offsets are gone
    a marker: committed                       they are the group's, each where nothing was committed later: of two
                                              commits the later one holds, whenever their transactions end (as in Kafka)
    a marker of a producer without pending    nothing: it was written before, or nothing was committed

An offset of a topic that the image does not know is refused, so that a topic id that is not known later was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minilog.errors import (
    InvalidArgument,
    OffsetMetadataTooLarge,
    UnknownTopicId,
)
from minilog.limits import MAX_GROUP_OFFSETS
from minilog.partition_key import PartitionKey
from minilog.v1 import coordinator_pb2
from minilog_broker.coordinators.groups.records import (
    GroupChange,
    GroupKey,
    GroupValue,
    Offset,
    PendingCommit,
)
from minilog_broker.coordinators.sequences import check_marker, is_new
from minilog_broker.coordinators.table import Change, CommittedTable

MAX_ID_CHARACTERS = 255
MAX_METADATA_CHARACTERS = 4_096  # Kafka's offset.metadata.max.bytes
MAX_OFFSETS = MAX_GROUP_OFFSETS

GroupTable = CommittedTable[GroupKey, GroupValue]
KnowsTopic = Callable[[bytes], bool]


def check_commit(request: coordinator_pb2.CommitOffsetsRequest, knows_topic: KnowsTopic) -> None:
    """Raises InvalidArgument, OffsetMetadataTooLarge, UnknownTopicId."""
    group = request.group_id
    if not 1 <= len(group) <= MAX_ID_CHARACTERS:
        raise InvalidArgument(f"a group id has 1 to {MAX_ID_CHARACTERS} characters")
    keys = [PartitionKey.of(new_offset.partition_id) for new_offset in request.offsets]
    if not 1 <= len(keys) <= MAX_OFFSETS or len(set(keys)) < len(keys):
        raise InvalidArgument(f"group '{group}': a commit has 1 to {MAX_OFFSETS} offsets, each of another partition")
    for key, new_offset in zip(keys, request.offsets, strict=True):
        where = f"group '{group}', partition {key.partition} of topic id {key.topic_id.hex()}"
        if new_offset.offset < 0:
            raise InvalidArgument(f"{where}: offset {new_offset.offset} is below 0")
        if len(new_offset.metadata) > MAX_METADATA_CHARACTERS:
            raise OffsetMetadataTooLarge(f"{where}: the metadata has more than {MAX_METADATA_CHARACTERS} characters")
        if not knows_topic(key.topic_id):
            raise UnknownTopicId(f"{where}: the topic was deleted, or is not known yet: retry")


def commit(request: coordinator_pb2.CommitOffsetsRequest, next_offset: int, wall_us: int) -> list[GroupChange]:
    """A commit by itself. `next_offset`: where in the log its first record will stand."""
    return [
        Change(GroupKey(request.group_id, partition=key), offset)
        for key, offset in _offsets(request, next_offset, wall_us).items()
    ]


def _offsets(request: coordinator_pb2.CommitOffsetsRequest, position: int, wall_us: int) -> dict[PartitionKey, Offset]:
    return {
        PartitionKey.of(new_offset.partition_id): Offset(
            new_offset.offset, new_offset.leader_epoch, new_offset.metadata, wall_us, position
        )
        for new_offset in request.offsets
    }


def pending_of(table: GroupTable, producer_id: int, groups: Iterable[str]) -> dict[str, PendingCommit]:
    """What a producer has pending, by group."""
    values = {group: table.get(GroupKey(group, producer_id=producer_id)) for group in sorted(groups)}
    return {group: value for group, value in values.items() if isinstance(value, PendingCommit)}


def commit_in_transaction(
    table: GroupTable, request: coordinator_pb2.CommitOffsetsRequest, groups: Iterable[str], wall_us: int
) -> list[GroupChange]:
    """`groups`: in which the producer may have something pending. Raises OutOfOrderSequenceNumber, InvalidTxnState."""
    transaction = request.transaction
    pending = pending_of(table, transaction.producer_id, groups)
    if not is_new(pending, transaction, f"group '{request.group_id}'"):
        return []
    key = GroupKey(request.group_id, producer_id=transaction.producer_id)
    former = table.get(key)
    offsets = dict(former.offsets) if isinstance(former, PendingCommit) else {}
    offsets.update(_offsets(request, table.end_offset, wall_us))
    return [Change(key, PendingCommit(transaction.transactional_id, transaction.sequence, tuple(offsets.items())))]


def end_producers(
    table: GroupTable,
    markers: Iterable[coordinator_pb2.ProducerMarker],
    groups_of: Callable[[int], Iterable[str]],
    knows_topic: KnowsTopic,
) -> list[GroupChange]:
    """What markers of one transaction do. Raises InvalidTxnState, for all, where a commit is not what is pending."""
    changes: dict[GroupKey, GroupValue | None] = {}
    for marker in markers:
        pending = pending_of(table, marker.producer_id, groups_of(marker.producer_id))
        check_marker(pending, marker)
        for group, entry in pending.items():
            changes[GroupKey(group, producer_id=marker.producer_id)] = None
            for partition, offset in entry.offsets if marker.committed else ():
                key = GroupKey(group, partition=partition)
                current = changes.get(key) or table.get(key)
                older = isinstance(current, Offset) and current.position > offset.position
                if not older and knows_topic(partition.topic_id):
                    changes[key] = offset
    return [Change(key, value) for key, value in changes.items()]
