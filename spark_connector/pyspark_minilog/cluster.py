"""What the driver asks of the cluster: one look at the topics of a query. The only user of the Admin client."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minilog import Admin, TopicPartition
from minilog.errors import OffsetNotAvailable, RetriableError
from pyspark_minilog.clients import lend
from pyspark_minilog.offsets import Partition, Positions
from pyspark_minilog.options import SourceOptions
from pyspark_minilog.planning import Snapshot
from pyspark_minilog.subscription import Subscription, TopicFacts

if TYPE_CHECKING:
    from minilog.types import PartitionDescription, TopicDescription

logger = logging.getLogger(__name__)


def take_snapshot(options: SourceOptions, *, must_exist: bool) -> Snapshot:
    """The ids and offsets of all that the query reads, asked again as fetchOffset.* says while the cluster cannot tell.

    With `must_exist` a topic or partition that is named but not there is refused. Raises InvalidOption, MinilogError.
    """
    for attempt in range(options.retries + 1):
        try:
            return _look(options.client, options.subscription, must_exist=must_exist)
        except RetriableError as error:
            if attempt == options.retries:
                raise
            logger.debug("asking again in %s ms: %s", options.retry_interval_ms, error)
            time.sleep(options.retry_interval_ms / 1000)
    raise AssertionError("unreachable: the last attempt returns or raises")


def topic_id(client: Mapping[str, str], topic: str) -> str | None:
    """The id of a topic by name, None where there is none."""
    with lend(Admin, client) as admin:
        if topic not in admin.list_topics():
            return None
        return admin.describe_topics([topic])[0].id


def log_bounds(client: Mapping[str, str], partition: Partition) -> tuple[int, int]:
    """The first offset of a partition, and the end of what may be read of it."""
    asked = TopicPartition(partition.topic, partition.partition)
    with lend(Admin, client) as admin:
        earliest = admin.list_offsets({asked: "earliest"})[asked]
        latest = admin.list_offsets({asked: "latest"})[asked]
    assert earliest is not None  # only timestamps can be without an offset
    assert latest is not None
    return earliest, latest


def _look(client: Mapping[str, str], subscription: Subscription, *, must_exist: bool) -> Snapshot:
    with lend(Admin, client) as admin:
        names = subscription.candidates(admin.list_topics())
        described = {each.name: each for each in admin.describe_topics(names)} if names else {}
    selected = subscription.select(_facts(each) for each in described.values())
    if must_exist:
        subscription.check_complete(selected)
    committed_only = client["isolation.level"] == "read_committed"
    earliest: Positions = {}
    latest: Positions = {}
    for partition in subscription.partitions(selected):
        found = next(each for each in described[partition.topic].partitions if each.partition == partition.partition)
        earliest[partition], latest[partition] = _bounds(partition, found, committed_only)
    return Snapshot({name: each.topic_id for name, each in selected.items()}, earliest, latest)


def _bounds(partition: Partition, found: PartitionDescription, committed_only: bool) -> tuple[int, int]:
    end = found.last_stable_offset if committed_only else found.high_watermark
    if found.log_start_offset is None or end is None:
        raise OffsetNotAvailable(f"partition {partition} has no leader that tells its offsets: look at the brokers")
    return found.log_start_offset, end


def _facts(topic: TopicDescription) -> TopicFacts:
    return TopicFacts(topic.name, topic.id, len(topic.partitions), topic.internal)
