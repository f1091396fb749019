"""The driver's questions to the cluster: one look at the topics of a query. The only user of the Admin client.

A look takes one round trip, unless topics, partitions or leaders have changed since the look before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from minilog import Admin, NewTopic, TopicPartition
from minilog.errors import MinilogError, OffsetNotAvailable, RetriableError
from minilog.typed.schema.topic_schemas import TopicSchemas
from minilog.types import SizesFrom
from pyspark_minilog.login.clients import lend
from pyspark_minilog.options.limits import SizeMarks, sizes_to_ask
from pyspark_minilog.options.offsets import Partition, Positions
from pyspark_minilog.options.places import OfGroup, Place, timestamps_ms
from pyspark_minilog.options.subscription import TopicFacts
from pyspark_minilog.options.table import SourceOptions
from pyspark_minilog.reading.resolving import Resolved, Snapshot, resolve
from pyspark_minilog.reading.typed_rows import TypedTopic, TypedTopics, check_untyped

if TYPE_CHECKING:
    from minilog.types import PartitionDescription, TopicDescription

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")


def take_snapshot(options: SourceOptions, *, must_exist: bool, sizes_from: Positions | None = None) -> Snapshot:
    """The ids and offsets of all topics of the query. While the cluster cannot answer, it asks again, as the options
    fetchOffset.* allow.

    With `must_exist` it refuses a named topic or partition that does not exist. `sizes_from` asks for bytes as well,
    above these offsets (or above the start of the log). maxBytesPerTrigger needs them, and so does an observer of the
    unread records. Raises InvalidOption, MinilogError.
    """
    return _retried(options, lambda: _look(options, sizes_from, must_exist=must_exist))


def describe_schemas(options: SourceOptions) -> dict[str, TypedTopic | None]:
    """The schemas of all existing topics of the query, with None for a topic without a schema. Raises MinilogError."""
    subscription = options.subscription
    with lend(Admin, options.client) as admin:
        topics = _retried(options, lambda: admin.describe_topics(_names(options), missing_ok=True))
    selected = subscription.select(_facts(topic) for topic in topics)
    return {topic.name: _schemas(topic) for topic in topics if topic.name in selected}


def renewed(rows: TypedTopics | None, now: Snapshot, *, is_stream: bool = True) -> TypedTopics | None:
    """The typed topics of a query as they are now (`TypedTopics.renewed`), or None if no topic has a schema. Raises
    InvalidOption, SchemaChanged."""
    if rows is None:
        check_untyped(now.schemas)
        return None
    return rows.renewed(now.schemas, is_stream=is_stream)


def resolve_place(options: SourceOptions, place: Place, snapshot: Snapshot) -> Resolved:
    """The offsets of a place in `snapshot`. It asks the cluster about timestamps and the committed offsets of a group.
    Raises InvalidOption, MinilogError."""
    if isinstance(place, OfGroup):
        from pyspark_minilog.reading.group import committed

        return resolve(
            place, snapshot, _retried(options, lambda: committed(options.client, options.group or "", snapshot.latest))
        )
    timestamps = timestamps_ms(place, snapshot.latest, time.time_ns() // 1_000_000)
    if not timestamps:
        return resolve(place, snapshot)
    return resolve(
        place, snapshot, _retried(options, lambda: _first_since(options.client, timestamps, snapshot.latest))
    )


def _first_since(client: Mapping[str, str], wanted_ms: Positions, latest: Positions) -> dict[Partition, int | None]:
    """The offset of the first record at or after each timestamp, or None if all records are older. A record behind
    `latest` counts as being at `latest`. So a query begins where one of Spark's Kafka connector would."""
    from minilog import Consumer  # it loads more than an Admin, and only timestamps need it

    with lend(Consumer, client) as consumer:
        offsets = consumer.offsets_for_times(
            {TopicPartition(*partition): at_ms for partition, at_ms in wanted_ms.items()}
        )
    return {
        partition: None if (offset := offsets[TopicPartition(*partition)]) is None else min(offset, latest[partition])
        for partition in wanted_ms
    }


def _retried(options: SourceOptions, ask: Callable[[], _Answer]) -> _Answer:
    for attempt in range(options.retries + 1):
        try:
            return ask()
        except RetriableError as error:
            if attempt == options.retries:
                raise
            logger.debug("asking again in %s ms: %s", options.retry_interval_ms, error)
            time.sleep(options.retry_interval_ms / 1000)
    raise AssertionError("unreachable: the last attempt returns or raises")


def topic_id(client: Mapping[str, str], topic: str) -> str | None:
    """The id of a topic by name, or None if the topic does not exist."""
    with lend(Admin, client) as admin:
        return next((description.id for description in admin.describe_topics([topic], missing_ok=True)), None)


def deleted_topics(client: Mapping[str, str], names: Sequence[str]) -> set[str]:
    """The topics that certainly do not exist. The metadata of a broker may be old, but the controller creates topics,
    so this function asks it whether it would create them. It returns only topics with the answer yes."""
    deleted = set()
    with lend(Admin, client) as admin:
        for name in names:
            try:
                admin.create_topics([NewTopic(name)], validate_only=True)
                deleted.add(name)
            except MinilogError as error:
                logger.debug("topic '%s' may exist: %s", name, error)
    return deleted


def log_bounds(client: Mapping[str, str], partition: Partition) -> tuple[int, int]:
    """The first offset of a partition, and the end of its readable records."""
    topic_partition = TopicPartition(partition.topic, partition.partition)
    with lend(Admin, client) as admin:
        earliest = admin.list_offsets({topic_partition: "earliest"})[topic_partition]
        latest = admin.list_offsets({topic_partition: "latest"})[topic_partition]
    assert earliest is not None  # only timestamps can be without an offset
    assert latest is not None
    return earliest, latest


def _look(options: SourceOptions, sizes_from: Positions | None, *, must_exist: bool) -> Snapshot:
    subscription, client = options.subscription, options.client
    sizes = None if sizes_from is None else _sizes_question(options.limits.max_bytes or 1, sizes_from)
    with lend(Admin, client) as admin:
        topics = admin.describe_topics(_names(options), missing_ok=True, sizes=sizes)
    described = {
        Partition(topic.name, partition.partition): partition for topic in topics for partition in topic.partitions
    }
    selected = subscription.select(_facts(topic) for topic in topics)
    if must_exist:
        subscription.check_complete(selected)
    committed_only = client["isolation.level"] == "read_committed"
    earliest: Positions = {}
    latest: Positions = {}
    marks: dict[Partition, SizeMarks] = {}
    for partition in subscription.partitions(selected):
        description = described[partition]
        earliest[partition], latest[partition] = _bounds(partition, description, committed_only)
        if sizes_from is not None:
            begun = max(sizes_from.get(partition, 0), earliest[partition])
            marks[partition] = SizeMarks.ascending(
                begun, ((mark.offset, mark.size_bytes) for mark in description.sizes)
            )
    schemas = {topic.name: _schemas(topic) for topic in topics if topic.name in selected}
    return Snapshot({name: facts.topic_id for name, facts in selected.items()}, earliest, latest, marks, schemas)


def _schemas(topic: TopicDescription) -> TypedTopic | None:
    versions = topic.schema_versions
    return TypedTopic(topic.id, TopicSchemas(tuple(versions))) if versions else None


def _names(options: SourceOptions) -> Callable[[str], bool] | list[str]:
    subscription = options.subscription
    return subscription.matches if subscription.pattern is not None else list(subscription.named())


def _sizes_question(max_bytes: int, sizes_from: Positions) -> Callable[[TopicPartition], SizesFrom]:
    sizes = sizes_to_ask(max_bytes)
    return lambda partition: SizesFrom(sizes_from.get(Partition(partition.topic, partition.partition), 0), sizes)


def _bounds(partition: Partition, description: PartitionDescription, committed_only: bool) -> tuple[int, int]:
    end = description.last_stable_offset if committed_only else description.high_watermark
    if description.log_start_offset is None or end is None:
        why = description.why_no_offsets or "look at the brokers"
        raise OffsetNotAvailable(f"no leader of partition {partition} gives its offsets: {why}")
    return description.log_start_offset, end


def _facts(topic: TopicDescription) -> TopicFacts:
    return TopicFacts(topic.name, topic.id, len(topic.partitions), topic.internal)
