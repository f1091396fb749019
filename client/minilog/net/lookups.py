"""The look-ups that more than one kind of client needs: offsets of partitions, names of topics."""

from __future__ import annotations

from collections.abc import Mapping

from minilog.errors import TimedOut
from minilog.net.network_client import NetworkClient
from minilog.net.offsets_query import OffsetsQuery, offset_of
from minilog.types import OffsetSpec, TopicPartition


async def answered_offsets(cluster: NetworkClient, wanted: Mapping[TopicPartition, OffsetSpec]) -> OffsetsQuery:
    """The leaders' answers for all partitions. Raises the error of a partition that failed, and TimedOut."""
    query = await cluster.query_offsets(wanted, cluster.deadline())
    for partition, error in query.failures.items():
        raise type(error)(f"no offset for partition {partition.partition} of topic {partition.topic!r}: {error}")
    for partition in query.missing():
        last = query.last_errors.get(partition) or "no leader answered"
        what = f"partition {partition.partition} of topic {partition.topic!r}"
        raise TimedOut(f"no offset for {what} within request.timeout.ms: {last}")
    return query


async def list_offsets(
    cluster: NetworkClient, wanted: Mapping[TopicPartition, OffsetSpec]
) -> dict[TopicPartition, int | None]:
    """The wanted offsets, under the client's isolation level. None if no record is as young as the time stamp."""
    if not wanted:
        return {}
    query = await answered_offsets(cluster, wanted)
    level = cluster.config.isolation_level
    return {partition: offset_of(query.results[partition], spec, level) for partition, spec in wanted.items()}


async def list_topics(cluster: NetworkClient, *, internal: bool = False) -> list[str]:
    """The names of all topics, sorted. Afterwards their metadata is in the cache."""
    answer = await cluster.refresh(None)
    topics = (topic for topic in answer.topics if not topic.error.code)
    return sorted(topic.name for topic in topics if internal or not topic.internal)
