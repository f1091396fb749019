"""The messages of a consumer, the check of its users' arguments, and the texts of its errors. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from minilog.client_config import ClientConfig
from minilog.consumer.partition import Assigned, ConsumerSession
from minilog.errors import InvalidArgument, MinilogError, UnknownTopicId
from minilog.partition_key import PartitionKey
from minilog.types import TopicPartition
from minilog.v1 import data_pb2

_ISOLATION = {
    "read_committed": data_pb2.ISOLATION_LEVEL_READ_COMMITTED,
    "read_uncommitted": data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
}


def fetch_request(
    session: ConsumerSession,
    wanted: Iterable[data_pb2.FetchPosition],
    forgotten: Iterable[PartitionKey],
    config: ClientConfig,
) -> data_pb2.FetchRequest:
    """One message with all the credit. The first message of a session also names the client and the isolation level."""
    first = session.credit_sent_bytes == 0
    # A consumer never takes back credit that it sent. So after a `put_back` the credit stays as it was sent.
    session.credit_sent_bytes = max(session.credit_sent_bytes, session.credit_bytes)
    return data_pb2.FetchRequest(
        client=config.identity() if first else None,
        isolation_level=_ISOLATION[config.isolation_level] if first else data_pb2.ISOLATION_LEVEL_NONE,
        credit_bytes=session.credit_sent_bytes,
        positions=wanted,
        forgotten=[key.to_wire() for key in forgotten],
        keepalive_ms=config.session_keepalive_ms if first else 0,
    )


def keepalive(credit_bytes: int, config: ClientConfig) -> data_pb2.FetchRequest:
    """The credit that was sent, once more. It may be a session's first message, so it has the isolation level."""
    return data_pb2.FetchRequest(
        isolation_level=_ISOLATION[config.isolation_level],
        credit_bytes=credit_bytes,
        keepalive_ms=config.session_keepalive_ms,
    )


def fetch_position(assigned: Assigned, key: PartitionKey) -> data_pb2.FetchPosition:
    return data_pb2.FetchPosition(
        partition_id=key.to_wire(),
        position_number=assigned.position_number,
        fetch_offset=assigned.fetch_offset or 0,
        end_offset=assigned.end_offset,
        leader_epoch=assigned.leader_epoch,
        last_fetched_epoch=assigned.last_epoch,
        came_damaged=assigned.broken_runs > 0,
        selection=None if assigned.reader is None else assigned.reader.wire_selection,
        headers_only=assigned.headers_only,
    )


def readable_end(run: data_pb2.PartitionRun, config: ClientConfig) -> int:
    """The end of the readable records, as far as the replica knows."""
    return run.last_stable_offset if config.isolation_level == "read_committed" else run.high_watermark


def name_of(partition: TopicPartition) -> str:
    return f"partition {partition.partition} of topic {partition.topic!r}"


def checked_partitions(given: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> list[TopicPartition]:
    """The partitions to read. A mapping has the offsets to begin at. Raises InvalidArgument."""
    if isinstance(given, Mapping):
        partitions = [replace(partition, offset=at) for partition, at in given.items()]
    else:
        partitions = list(given)
    if len(set(partitions)) != len(partitions):
        twice = next(partition for partition in partitions if partitions.count(partition) > 1)
        raise InvalidArgument(f"{name_of(twice)} is in the list twice: give each partition once")
    for partition in partitions:
        for offset in (partition.offset, partition.end_offset):
            if offset is not None and (not isinstance(offset, int) or offset < 0):
                raise InvalidArgument(f"{name_of(partition)} has no offset {offset!r}: offsets begin at 0")
    return partitions


def cut_back(assigned: Assigned, run: data_pb2.PartitionRun) -> str:
    """The text for a log that has lost records which the user has read."""
    return (
        f"{name_of(assigned.partition)} ends at {run.diverging_epoch.end_offset} in epoch {run.diverging_epoch.epoch}: "
        f"the log has lost records below {assigned.fetch_offset}, which this consumer has read. Seek to go on"
    )


def out_of_range(assigned: Assigned, run: data_pb2.PartitionRun) -> str:
    """The text for an offset that the log does not have. A bounded read was promised its records, whatever the
    settings."""
    has = f"{name_of(assigned.partition)} has offsets {run.log_start_offset} to {run.log_end_offset}"
    if assigned.end_offset is not None and run.log_start_offset > (assigned.fetch_offset or 0):
        return (
            f"{has} now, and this read still needs {assigned.fetch_offset} to {assigned.end_offset}: retention, or a "
            "deletion of records, was faster. Start the read anew, or let the topic keep its records for longer "
            "(retention.ms, retention.bytes)"
        )
    return f"{has}, the consumer asked for {assigned.fetch_offset}, and auto.offset.reset is error: {run.error.message}"


def unreadable(assigned: Assigned, error: MinilogError) -> str:
    """The text for a run that stays unreadable after several attempts."""
    return f"{name_of(assigned.partition)} cannot be read at {assigned.fetch_offset}: {error}"


class TopicGone(UnknownTopicId):
    """The id of a deleted topic. A retry is useless, unlike for an id that the brokers do not know yet."""

    retriable = False
