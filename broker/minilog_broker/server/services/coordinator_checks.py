"""Checks of calls to a coordinator, before the coordinator sees them. Where nothing else is said they raise
InvalidArgument.

The limits on repeated fields are in the table of all calls (request_limits).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from minilog.errors import InvalidArgument, UnknownLeaderEpoch
from minilog.limits import MAX_RELEASE_DELAY_MS, MAX_SETTLED_PARTITIONS
from minilog.partition_key import PartitionKey
from minilog.v1 import common_pb2, coordinator_pb2, queue_pb2
from minilog_broker.controller.image import MetadataImage
from minilog_broker.coordinators.groups.offsets import MAX_ID_CHARACTERS as MAX_GROUP_CHARACTERS
from minilog_broker.coordinators.transactions.enlisting import MAX_ID_CHARACTERS

TOPIC_ID_BYTES = 16
MAX_LEASE_WAIT_MS = 120_000  # a worker that is idle asks again after it
MAX_WORKER_CHARACTERS = 255


class OfTransaction(Protocol):
    """A request to the coordinator of a transactional id."""

    @property
    def transactional_id(self) -> str: ...


class GroupsRequest(Protocol):
    """A request to the coordinator of a group."""

    @property
    def group_id(self) -> str: ...


def check_transaction(request: OfTransaction) -> None:
    """Check the transactional id."""
    if not 1 <= len(request.transactional_id) <= MAX_ID_CHARACTERS:
        raise InvalidArgument(
            f"a transactional id has 1 to {MAX_ID_CHARACTERS} characters, and this one has "
            f"{len(request.transactional_id)}"
        )


def check_registration(request: coordinator_pb2.RegisterPartitionsRequest) -> None:
    """Check the transactional id and the partitions."""
    check_transaction(request)
    _check_partitions(request.partitions)


def check_end(request: coordinator_pb2.EndTransactionRequest) -> None:
    """Check the transactional id, and the partitions of all winners."""
    check_transaction(request)
    for winner in request.winners:
        _check_partitions(written.partition_id for written in winner.partitions)


def check_group(request: GroupsRequest) -> None:
    """Check the group id."""
    if not 1 <= len(request.group_id) <= MAX_GROUP_CHARACTERS:
        raise InvalidArgument(
            f"a group id has 1 to {MAX_GROUP_CHARACTERS} characters, and this one has {len(request.group_id)}"
        )


class QueueRequest(Protocol):
    """A request to the coordinator of a queue."""

    @property
    def queue(self) -> str: ...


def check_queue(request: QueueRequest) -> None:
    """Check the name of the queue."""
    if not 1 <= len(request.queue) <= MAX_GROUP_CHARACTERS:
        raise InvalidArgument(
            f"the name of a queue has 1 to {MAX_GROUP_CHARACTERS} characters, and this one has {len(request.queue)}"
        )


def check_lease(request: queue_pb2.LeaseRequest) -> None:
    """Check the name of the queue, the topics and the bounds."""
    check_queue(request)
    if not request.topic_ids or len(set(request.topic_ids)) < len(request.topic_ids):
        raise InvalidArgument(f"queue '{request.queue}': a lease names one topic or more, each of them once")
    _check_partitions(common_pb2.PartitionId(topic_id=topic_id) for topic_id in request.topic_ids)
    if request.max_records < 1:
        raise InvalidArgument(f"queue '{request.queue}': a lease takes at least one record")
    if request.max_wait_ms > MAX_LEASE_WAIT_MS:
        raise InvalidArgument(
            f"queue '{request.queue}': a lease waits at most {MAX_LEASE_WAIT_MS} ms, and not {request.max_wait_ms}"
        )
    if len(request.worker_id) > MAX_WORKER_CHARACTERS:
        raise InvalidArgument(
            f"queue '{request.queue}': the id of a worker has at most {MAX_WORKER_CHARACTERS} characters"
        )


def check_settlements(request: queue_pb2.SettleRequest) -> None:
    """Check the name of the queue, and the range and verdict of each settlement."""
    check_queue(request)
    _check_partitions(settlement.partition_id for settlement in request.settlements)
    partitions = {PartitionKey.of(settlement.partition_id) for settlement in request.settlements}
    if len(partitions) > MAX_SETTLED_PARTITIONS:
        raise InvalidArgument(
            f"queue '{request.queue}': a request settles messages of at most {MAX_SETTLED_PARTITIONS} partitions, and "
            f"this one names {len(partitions)}: send several"
        )
    for settlement in request.settlements:
        first, last = settlement.first_offset, settlement.last_offset
        where = f"queue '{request.queue}', partition {settlement.partition_id.partition}, offsets {first} to {last}"
        if not 0 <= first <= last:
            raise InvalidArgument(f"{where}: a range ends at or behind its begin, which is not below 0")
        if settlement.verdict not in (
            queue_pb2.VERDICT_ACCEPT,
            queue_pb2.VERDICT_RELEASE,
            queue_pb2.VERDICT_REJECT,
            queue_pb2.VERDICT_RETURN,
        ):
            raise InvalidArgument(
                f"{where}: verdict {settlement.verdict} is not known: accept, release, reject or return"
            )
        if settlement.delay_ms > MAX_RELEASE_DELAY_MS:
            raise InvalidArgument(f"{where}: a release waits at most {MAX_RELEASE_DELAY_MS} ms")
    if request.HasField("transaction"):
        check_transaction(request.transaction)
    if request.HasField("rewritten"):
        if not request.HasField("transaction"):
            raise InvalidArgument(f"queue '{request.queue}': letters are written again in a transaction only")
        _check_letters(request.queue, request.rewritten)


def check_redrive(request: queue_pb2.RedriveRequest) -> None:
    """Check the name of the queue, the part of the dead-letter topic, and that the letters are of it, in order."""
    check_queue(request)
    _check_letters(request.queue, request)
    _check_partitions(letter.partition_id for letter in request.letters)
    before = request.first_offset - 1
    for letter in request.letters:
        if not before < letter.letter_offset < request.next_offset or letter.offset < 0:
            raise InvalidArgument(
                f"queue '{request.queue}': the letter at {letter.letter_offset} of the record at {letter.offset} is "
                f"not between {before} and {request.next_offset}: letters come in the order of their offsets"
            )
        before = letter.letter_offset


def _check_letters(queue: str, part: queue_pb2.RedriveRequest | queue_pb2.RewrittenLetters) -> None:
    """Check a part of a dead-letter topic."""
    _check_partitions((part.letters_partition_id,))
    if not 0 <= part.first_offset < part.next_offset:
        raise InvalidArgument(
            f"queue '{queue}': letters from {part.first_offset} to {part.next_offset} are none: they end behind their "
            "begin, which is not below 0"
        )


def check_group_partitions(request: coordinator_pb2.FetchOffsetsRequest | coordinator_pb2.DeleteGroupRequest) -> None:
    """Check the group id and the partitions of the offsets."""
    check_group(request)
    _check_partitions(request.partitions)


def check_commit(request: coordinator_pb2.CommitOffsetsRequest) -> None:
    """Check the group id, the partitions of the offsets, and the transactional id where there is one."""
    check_group(request)
    _check_partitions(committed.partition_id for committed in request.offsets)
    if request.HasField("transaction"):
        check_transaction(request.transaction)


def check_leader_epochs(image: MetadataImage, request: coordinator_pb2.CommitOffsetsRequest) -> None:
    """Raises UnknownLeaderEpoch, which is retriable, if an offset names a later leader epoch than this broker knows.

    A consumer that begins at a committed offset trusts no leader of an earlier epoch. An epoch that never was would
    keep it waiting for good."""
    for committed in request.offsets:
        state = image.partitions.get(PartitionKey.of(committed.partition_id))
        if state is not None and committed.leader_epoch > state.leader_epoch:
            raise UnknownLeaderEpoch(
                f"the offset for partition {committed.partition_id.partition} of {state.topic_name} names leader epoch "
                f"{committed.leader_epoch}, and this broker knows only epoch {state.leader_epoch}: retry"
            )


def _check_partitions(partitions: Iterable[common_pb2.PartitionId]) -> None:
    for partition in partitions:
        if len(partition.topic_id) != TOPIC_ID_BYTES or partition.partition < 0:
            raise InvalidArgument(
                f"partition {partition.partition} of topic id {partition.topic_id.hex()!r} cannot exist: a topic id "
                f"has {TOPIC_ID_BYTES} bytes, and partitions are counted from 0"
            )
