"""What a scan reads, fixed at its first use: the topic by its id, the version of its schema, offsets of partitions.

The plan asks for the ends before it asks for the schema, so it knows the version of every row below them. The ends are
those of the isolation level (net/offsets_query.py), as for every reader.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from minilog.aio.first_records import offsets_for_times
from minilog.errors import InvalidArgument, UnknownTopicId, UnknownTopicOrPartition
from minilog.groups.descriptions import ReadableEnds, look_ups, place
from minilog.net.lookups import list_offsets
from minilog.net.metadata_cache import CachedTopic
from minilog.net.network_client import NetworkClient
from minilog.scanning.places import check_order, places_of
from minilog.scanning.planned import ScanPlan, ScanRequest
from minilog.types import GroupPosition, TopicPartition

if TYPE_CHECKING:
    pass


async def make_plan(cluster: NetworkClient, wanted: ScanRequest) -> ScanPlan:
    """One look at the cluster. Raises InvalidArgument, UnknownTopicOrPartition, TimedOut, BrokerNotAvailable."""
    deadline_s = cluster.deadline()
    await cluster.refresh([wanted.topic], deadline_s)
    before = await cluster.topic(wanted.topic, deadline_s)
    numbers = _numbers(wanted, before)
    starts = places_of(wanted.topic, wanted.start, "earliest", numbers)
    ends = places_of(wanted.topic, wanted.end, "latest", numbers)
    first = await _offsets(cluster, starts)
    last = await _offsets(cluster, ends)
    check_order(first, last)
    await cluster.refresh([wanted.topic], deadline_s)
    topic = await cluster.topic(wanted.topic, deadline_s)
    if topic.topic_id != before.topic_id:
        raise UnknownTopicId(f"topic {wanted.topic!r} was deleted and created again during the scan: scan it again")
    topic_id = str(uuid.UUID(bytes=topic.topic_id))
    return ScanPlan(
        topic_id,
        None if topic.schemas is None else topic.schemas.latest,
        tuple(TopicPartition(p.topic, p.partition, first[p], last[p], topic_id) for p in sorted(first)),
        topic.statistics_columns,
    )


async def _offsets(cluster: NetworkClient, places: dict[TopicPartition, GroupPosition]) -> dict[TopicPartition, int]:
    timestamps = {partition: at for partition, at in look_ups(places).items() if isinstance(at, int)}
    starts = await list_offsets(cluster, dict.fromkeys(places, "earliest"))
    ends = await list_offsets(cluster, dict.fromkeys(places, "latest"))
    first = await offsets_for_times(cluster, timestamps)
    offsets = dict[TopicPartition, int]()
    for partition, where in places.items():
        readable = ReadableEnds(starts[partition] or 0, ends[partition] or 0)
        is_end = where == "latest"
        offsets[partition] = readable.end_offset if is_end else place(partition, where, first.get(partition), readable)
    return offsets


def _numbers(wanted: ScanRequest, topic: CachedTopic) -> Sequence[int]:
    if wanted.partitions is None:
        return range(topic.partition_count)
    if strange := [number for number in wanted.partitions if not 0 <= number < topic.partition_count]:
        raise UnknownTopicOrPartition(
            f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {strange[0]}"
        )
    return wanted.partitions


def checked_partitions(given: Iterable[int] | None) -> tuple[int, ...] | None:
    """Sorted. Raises InvalidArgument for what are no numbers, and for one that is given twice."""
    if given is None:
        return None
    if isinstance(given, int | str):
        raise InvalidArgument(f"partitions takes a list of numbers: give [{given!r}]")
    numbers = list(given)
    if strange := [number for number in numbers if not isinstance(number, int) or isinstance(number, bool)]:
        raise InvalidArgument(f"{strange[0]!r} is no number of a partition")
    if len(set(numbers)) < len(numbers):
        raise InvalidArgument("a partition is given twice: give each partition once")
    return tuple(sorted(numbers))
